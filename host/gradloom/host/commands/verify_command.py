"""``gradloom verify``: golden model and device side by side, every tensor of every step compared."""

import argparse
import contextlib
import dataclasses
from collections.abc import Generator

import numpy as np

from gradloom.host.choices import choose
from gradloom.host.datasets.data import Preparation, epoch_order, load_dataset
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.limits import sum_widths, told
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session, check_fit
from gradloom.host.devices.verification import compare_tensors
from gradloom.host.environment import check_device
from gradloom.host.runs.progress import StepProgress
from gradloom.host.runs.run_folder import load_checkpoint, trained_preparation
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.network import Kind, Network, load_network
from gradloom.models.state import State

__all__ = ["Material", "material", "run", "steps_on", "verify"]


def synthetic_images(network: Network, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Hashed images and labels for a network that the given data does not fit: codes, labels, exponent."""
    from gradloom.models.arithmetic import dither, pint

    shape = (count, *network.input_shape)
    index = np.arange(int(np.prod(shape)), dtype=np.int64)
    hashed = np.asarray(dither.hash24(dither.tensor_seed(seed, 0, 2), index), dtype=np.int64)
    codes = pint.encode((hashed >> 11) - 4096, 0).code.reshape(shape)
    labels = np.asarray(dither.hash24(dither.tensor_seed(seed, 1, 2), np.arange(count, dtype=np.int64)), np.int64)
    return codes, (labels >> 4) % network.classes, -11


@dataclasses.dataclass(frozen=True)
class Material:
    """What a verification trains on.

    Parameters
    ----------
    images, labels : arrays (steps * batch, C, Y, X) and (steps * batch,)
    exponent : :class:`int`
        Of the images.
    title : :class:`str`
        Where the images come from.
    hypers : list of :class:`~gradloom.models.golden.step.Hyper`
        One a step.
    state : :class:`~gradloom.models.state.State`
        Before the first.
    """

    network: Network
    images: np.ndarray
    labels: np.ndarray
    exponent: int
    title: str
    hypers: list[golden.Hyper]
    state: State


def material(options: argparse.Namespace) -> Material:
    """Network, state, batches and hyperparameters of the command line; hashed images where the data does not fit the network."""
    network = load_network(options.network).formatted(options.format)
    preparation = Preparation.asked(options.integers, options.normalise or network.data.normalise)
    if options.weights is not None:
        network = dataclasses.replace(network, rounding=load_checkpoint(options.weights, network).rounding)
        found = trained_preparation(options.weights)
        if options.normalise is None and found.normalise != "none":
            preparation = found
    network = network.rounded(options.rounding)
    needed = options.batch * options.steps
    data = None if options.data == "random" else load_dataset(options.data, preparation=preparation)
    if data is not None and data.train_x.shape[1:] == network.input_shape and data.classes <= network.classes:
        check_fit(network, data, options.batch)
        order = np.concatenate([epoch_order(len(data.train_y), options.seed, e) for e in range(1 + needed // len(data.train_y))])
        images, labels, exponent, title = data.train_x[order[:needed]], data.train_y[order[:needed]], data.exponent, data.title
    else:
        images, labels, exponent = synthetic_images(network, needed, options.seed)
        title = "hashed images"
    train = dataclasses.replace(
        network.train,
        lr=options.lr or network.train.lr,
        momentum=network.train.momentum if options.momentum is None else options.momentum,
        weight_decay=network.train.weight_decay if options.weight_decay is None else options.weight_decay,
    )
    hypers = golden.schedule_table(train, options.steps, average=network.arithmetic.average)
    state = State.initial(network, options.seed, exponent)
    if options.weights is not None:
        # Once more: rests are kept, or not, as the rounding wants it.
        state = dataclasses.replace(load_checkpoint(options.weights, network), rounding=network.rounding)
        state.exponents[Kind.Z] = exponent
    return Material(network, images, labels, exponent, title, hypers, state)


def steps_on(session: Session, given: Material, options: argparse.Namespace) -> Generator[tuple[int, slice], None, None]:
    """Train step after step, each in a start of its own, with progress: its number from 0, and which of the images it took.

    The state that the session begins with is a copy.
    """
    session.load(given.state)
    progress = StepProgress(options.steps)
    session.notice = progress.warn
    try:
        for step in range(options.steps):
            part = slice(step * options.batch, (step + 1) * options.batch)
            outcome = session.train([given.images[part]], [given.labels[part]], [given.hypers[step]])[0]
            yield step, part
            progress.update(step + 1, loss=outcome.loss, accuracy=outcome.correct / options.batch, cycles=session.cycles)
    finally:
        progress.close()


def run(options: argparse.Namespace) -> int:
    """Returns 0 only if not one byte differs."""
    return verify(options)[0]


def verify(options: argparse.Namespace) -> tuple[int, str]:
    """The exit code, 0 only if not one byte differs, and then the digest of the parameters."""
    memory, config = MemoryOptions.from_arguments(options), machine_config(options.device, options.config)
    check_device(options.device, config, options.trace_fst)
    given = material(options)
    network, exponent = given.network, given.exponent
    state, first = given.state, given.state.step
    trained = f", from step {first} on" if options.weights else ""
    print(
        f"gradloom: verifying {network.name} on {config.name} ({config.macs} MACs), device {options.device}, "
        f"{options.steps} steps of {options.batch} images ({given.title}){trained}, seed {state.seed}",
        flush=True,
    )
    tensors = size = 0
    with Session(network, config, options.batch, options.device, exponent, state.seed, memory,
                 choices=choose(options.schedule, network, config, options.batch)) as session:
        with contextlib.closing(steps_on(session, given, options)) as steps:
            for step, part in steps:
                with told(f"golden model beside the device, step {first + step}"):
                    result = golden.train_step(network, state, given.images[part], given.labels[part], given.hypers[step],
                                               widths=sum_widths(network, config))
                comparison = compare_tensors(network, first + step, result, state, session)
                tensors, size = tensors + comparison.tensors, size + comparison.bytes
                if comparison.difference is not None:
                    break
        if comparison.difference is not None:
            print(f"gradloom: DIFFERENT: {comparison.difference}")
            return 1, ""
        cycles = "" if session.cycles is None else f", {session.cycles:,} {session.kind} cycles"
        cost = session.cost()
    digest = digests.parameters_digest(network, state)
    print(f"gradloom: 0 differences: {tensors:,} tensors, {size:,} bytes compared over {options.steps} steps{cycles}, "
          f"parameters {digest[:16]}")
    if cost is not None:
        print(f"gradloom: on the board: {cost}")
    return 0, digest
