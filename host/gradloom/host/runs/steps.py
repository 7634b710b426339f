"""Some training steps from a given state, each in a start of its own: what verify, diff and health train."""

import dataclasses
from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np

from gradloom.host.datasets.data import Preparation, RawImages, epoch_order, load_dataset
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.session import Session, check_fit
from gradloom.host.requests import (
    COUNT,
    DECAY,
    FORMAT,
    IMAGES,
    INTEGERS,
    MOMENTUM,
    NETWORK,
    RATE,
    ROUNDING,
    SEED,
    WEIGHTS,
    check_choice,
    check_fields,
    check_types,
    given_network,
)
from gradloom.host.runs.reporting import Reporter
from gradloom.host.runs.run_folder import load_checkpoint, trained_preparation
from gradloom.models.golden import step as golden
from gradloom.models.images import NORMALISATIONS
from gradloom.models.network import Kind, Network
from gradloom.models.state import State

__all__ = ["Material", "StepsRequest", "material", "steps_on"]

HASHED = "random"
"""In the place of data: hashed images of the network's shape."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepsRequest:
    """Some steps of training and the state that they begin at.

    Parameters
    ----------
    network : :class:`~gradloom.models.network.Network` or :class:`str`
        A network, or the name or TOML file of one.
    data : :class:`~gradloom.host.datasets.data.RawImages` or :class:`str`
        Images, the name or file of some, or "random". Hashed ones are taken where they do not fit the network.
    integers : :class:`str`
        "unit" or "raw": what images of whole numbers mean.
    normalise : :class:`str`, optional
        "none" or "channel"; default: the network's, or what the training of the weights did.
    weights : path, optional
        Folder or checkpoint of the run at whose state the steps begin; default: at initial weights.
    batch, steps : :class:`int`
        Images of a step, and how many steps.
    lr, momentum, weight_decay : :class:`float`, optional
        Default: the network's.
    format : :class:`str`, optional
        Number format; default: the network's.
    rounding : mapping, optional
        Changes of the rounding, by kind of tensor.
    seed : :class:`int`
        Of weights, order and rounding.

    Raises
    ------
    :exc:`~gradloom.host.requests.FieldError`
        If a value is out of its range.
    """

    network: Network | str = "digits-cnn"
    data: RawImages | str = "digits"
    integers: str = "unit"
    normalise: str | None = None
    weights: Path | None = None
    batch: int = 4
    steps: int = 5
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    format: str | None = None
    rounding: Mapping[str, str] | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        check_fields(self, batch=COUNT, steps=COUNT, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, seed=SEED)
        check_types(self, network=NETWORK, weights=WEIGHTS, data=IMAGES, format=FORMAT, rounding=ROUNDING)
        check_choice(self, "integers", INTEGERS)
        check_choice(self, "normalise", NORMALISATIONS)


@dataclasses.dataclass(frozen=True)
class Material:
    """What is trained on.

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


def material(request: StepsRequest) -> Material:
    """Network, state, batches and hyperparameters of a request; hashed images where the data does not fit."""
    network = given_network(request.network).formatted(request.format)
    preparation = Preparation.asked(request.integers, request.normalise or network.data.normalise)
    if request.weights is not None:
        network = dataclasses.replace(network, rounding=load_checkpoint(request.weights, network).rounding)
        found = trained_preparation(request.weights)
        if request.normalise is None and found.normalise != "none":
            preparation = found
    network = network.rounded(request.rounding)
    needed = request.batch * request.steps
    data = None if request.data == HASHED else load_dataset(request.data, preparation=preparation)
    if data is not None and data.train_x.shape[1:] == network.input_shape and data.classes <= network.classes:
        check_fit(network, data, request.batch)
        count = len(data.train_y)
        order = np.concatenate([epoch_order(count, request.seed, e) for e in range(1 + needed // count)])[:needed]
        images, labels, exponent, title = data.train_x[order], data.train_y[order], data.exponent, data.title
    else:
        images, labels, exponent = synthetic_images(network, needed, request.seed)
        title = "hashed images"
    train = dataclasses.replace(
        network.train,
        lr=request.lr or network.train.lr,
        momentum=network.train.momentum if request.momentum is None else request.momentum,
        weight_decay=network.train.weight_decay if request.weight_decay is None else request.weight_decay,
    )
    hypers = golden.schedule_table(train, request.steps, average=network.arithmetic.average)
    state = State.initial(network, request.seed, exponent)
    if request.weights is not None:
        # Once more: rests are kept, or not, as the rounding wants it.
        state = dataclasses.replace(load_checkpoint(request.weights, network), rounding=network.rounding)
        state.exponents[Kind.Z] = exponent
    return Material(network, images, labels, exponent, title, hypers, state)


def steps_on(session: Session, given: Material, request: StepsRequest, reporter: Reporter
             ) -> Generator[tuple[int, slice], None, None]:
    """Train step after step, each in a start of its own, with progress.

    Yields a step's number from 0, and which of the images it took. The state that the session begins with is a copy.
    """
    session.load(given.state)
    progress = reporter.steps(request.steps)
    session.notice = progress.warn
    try:
        for step in range(request.steps):
            part = slice(step * request.batch, (step + 1) * request.batch)
            outcome = session.train([given.images[part]], [given.labels[part]], [given.hypers[step]])[0]
            yield step, part
            accuracy = outcome.correct / request.batch
            progress.update(step + 1, loss=outcome.loss, accuracy=accuracy, cycles=session.cycles)
    finally:
        progress.close()
