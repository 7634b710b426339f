"""``gradloom eval``: accuracy of trained weights on the test images, by forward-only programs."""

import argparse
import dataclasses

from gradloom.host.datasets.data import Preparation, load_dataset
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session, check_fit
from gradloom.host.environment import check_device, check_output_file
from gradloom.host.files import UserError, write_json
from gradloom.host.runs.run_folder import load_checkpoint, trained_preparation
from gradloom.models import digests
from gradloom.models.network import Kind, load_network

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    if options.out is not None and options.out.exists():
        raise UserError(f"{options.out} exists already: give another --out, nothing is overwritten")
    memory = MemoryOptions.from_arguments(options)
    network, config = load_network(options.network).formatted(options.format), machine_config(options.device, options.config)
    if options.out is not None:
        check_output_file(options.out)
    check_device(options.device, config, options.trace_fst)
    preparation = trained_preparation(options.weights)
    if options.integers is not None:
        preparation = dataclasses.replace(preparation, divisor=Preparation.asked(options.integers).divisor)
    if options.normalise is not None:
        preparation = dataclasses.replace(preparation, normalise=options.normalise, channels=())
    data = load_dataset(options.data, preparation=preparation)
    batch = options.batch or network.train.batch
    check_fit(network, data, batch)
    state = load_checkpoint(options.weights, network)
    network = dataclasses.replace(network, rounding=state.rounding).rounded(options.rounding)
    if not state.calibrated:
        raise UserError(f"{options.weights} holds an untrained state: train at least one step first")
    if not len(data.test_y):
        raise UserError(f"{data.name} has no test images: give an .npz file with x_test and y_test")
    digest = digests.parameters_digest(network, state)
    state.exponents[Kind.Z] = data.exponent
    with Session(network, config, batch, options.device, data.exponent, state.seed, memory) as session:
        session.load(state)
        outcome = session.evaluate(data.test_x, data.test_y)
        cycles, kind, cost = session.cycles, session.kind, session.cost()
    if data.note:
        print(f"gradloom: {data.note}")
    text = "" if cycles is None else f", {cycles:,} {kind} cycles"
    print(
        f"gradloom: {network.name} after {state.step} steps: test accuracy {100 * outcome.correct / outcome.images:.2f} % "
        f"({outcome.correct} of {outcome.images}), loss {outcome.loss:.4f}{text}"
    )
    if cost is not None:
        print(f"gradloom: on the board: {cost}")
    if options.out is not None:
        write_json(
            options.out,
            {
                "network": network.name,
                "configuration": config.name,
                "device": options.device,
                "number_format": network.format,
                "rounding": dataclasses.asdict(network.rounding),
                "divisor": data.divisor,
                "channels": data.channels,
                "steps": state.step,
                "test_accuracy": outcome.correct / outcome.images,
                "test_loss": outcome.loss,
                "images": outcome.images,
                "cycles": cycles,
                "sha256": digest,
            },
        )
    return 0
