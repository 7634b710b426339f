"""Arguments of the command line that several subcommands take, and what their values may be.

A value's function takes the text and raises :exc:`argparse.ArgumentTypeError` if it is not one.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradloom.boards.board import BOARDS
from gradloom.contracts.config import PRESETS
from gradloom.host.devices.board_choice import board_choice
from gradloom.host.devices.device import DEVICES, device_name
from gradloom.host.files import UserError
from gradloom.host.requests import CLOCK_MHZ, COUNT, DECAY, GIGABYTES, INTEGERS, MOMENTUM, RATE, SEED, SHARE, Range
from gradloom.models.formats import FORMATS, find_format
from gradloom.models.images import NORMALISATIONS, Augmentation
from gradloom.models.network import NetworkError
from gradloom.models.rounding import parse_rounding

__all__ = [
    "augment_argument",
    "bench_device",
    "clock_mhz",
    "decay",
    "device",
    "dram_arguments",
    "format_argument",
    "gigabytes",
    "integers_argument",
    "machine_arguments",
    "memory_arguments",
    "momentum",
    "normalise_argument",
    "positive",
    "rate",
    "rounding_argument",
    "schedule_argument",
    "seed",
    "share",
    "step_arguments",
]


def _number(rule: Range, parse: Callable[[str], float]) -> Callable[[str], Any]:
    """Numbers of a range, as a text that ``parse`` reads."""
    def convert(text: str) -> float:
        try:
            value = parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(rule.broken(text)) from None
        broken = rule.broken(value, None if rule.whole else text)
        if broken is not None:
            raise argparse.ArgumentTypeError(broken)
        return value

    return convert


def _based(text: str) -> int:
    """A whole number, decimal or with its base before it (``0x``)."""
    return int(text, 0)


positive: Callable[[str], int] = _number(COUNT, int)
"""A whole number from 1 to the largest that a run may have of anything."""
seed: Callable[[str], int] = _number(SEED, _based)
"""A seed of 32 bits, decimal or with its base before it."""
rate: Callable[[str], float] = _number(RATE, float)
"""A learning rate."""
momentum: Callable[[str], float] = _number(MOMENTUM, float)
"""A momentum."""
decay: Callable[[str], float] = _number(DECAY, float)
"""A weight decay."""
clock_mhz: Callable[[str], float] = _number(CLOCK_MHZ, float)
"""A clock in MHz."""
gigabytes: Callable[[str], float] = _number(GIGABYTES, float)
"""A bandwidth in GB a second."""
share: Callable[[str], float] = _number(SHARE, float)
"""A share of something."""


def _rounding(text: str) -> dict[str, str]:
    try:
        return parse_rounding(text)
    except NetworkError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("rounding: ")) from None


def device(text: str) -> str:
    """Name of a device."""
    try:
        return device_name(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def bench_device(text: str) -> str:
    """Name of what ``gradloom bench`` measures, or ``model``, which estimates."""
    if text in ("rtl", "model"):
        return text
    try:
        choice = board_choice(text)
        if choice is not None and choice.build is None:  # a netlist takes the cycles of sim:BOARD, and hours for them
            return text
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"{text!r} cannot be measured: give rtl, model, BOARD[:PORT] or sim:BOARD (boards: "
                                     f"{', '.join(BOARDS)})")


def _format(text: str) -> str:
    try:
        return find_format(text).name
    except NetworkError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("format ")) from None


def format_argument(parser: argparse.ArgumentParser) -> None:
    """The number format."""
    parser.add_argument("--format", type=_format, metavar="NAME",
                        help=f"number format, with its own rounding: {', '.join(FORMATS)}; the machine runs pint8, golden model "
                             f"and emulator all (default: the network's)")


def rounding_argument(parser: argparse.ArgumentParser, default: str = "the network's") -> None:
    """How each kind of tensor is rounded; ``default`` says in the help whose rounding is taken else."""
    parser.add_argument("--rounding", type=_rounding, metavar="KIND=HOW,...",
                        help="nearest or stochastic rounding of activations, normalised, errors, weights, velocities; weights "
                             f"also feedback: to nearest, and what that leaves is kept for the next step (default: {default})")


def integers_argument(parser: argparse.ArgumentParser, default: str | None = "unit") -> None:
    """What images of whole numbers mean; without a default that of the training."""
    parser.add_argument("--integers", choices=INTEGERS, default=default,
                        help="images of whole numbers, such as bytes: divided by a power of two so that they lie in -1..1 "
                             f"(unit), or taken as they are (raw) (default: {default or 'as in the training'})")


def normalise_argument(parser: argparse.ArgumentParser, default: str = "the network's, else none") -> None:
    """Whether channels are normalised; ``default`` says in the help what is done else."""
    parser.add_argument("--normalise", choices=NORMALISATIONS, default=None,
                        help="channel: of every channel its mean over the training images is subtracted, and it is divided by its "
                             f"standard deviation (default: {default})")


def _augment(text: str) -> str:
    try:
        return str(Augmentation.parse(text))
    except NetworkError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("augment: ")) from None


def augment_argument(parser: argparse.ArgumentParser) -> None:
    """How training images are moved, and how many are held out."""
    parser.add_argument("--augment", type=_augment, default=None, metavar="HOW,...",
                        help="crop or crop=N: training images are moved by up to N (4) rows and columns; flip: every other one is "
                             "mirrored, as a hash of seed, epoch and image decides; none (default: the network's, else none)")
    parser.add_argument("--validation", type=positive, default=None, metavar="N",
                        help="training images held out and evaluated after every epoch; the test images then after the last alone")


def machine_arguments(parser: argparse.ArgumentParser, device_default: str = "rtl") -> None:
    """Network, machine, data and device."""
    parser.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    parser.add_argument("--config", metavar="NAME|FILE",
                        help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small; of a board, its own)")
    parser.add_argument("--data", default="digits", metavar="NAME|FILE",
                        help="digits, an .npz file with x and y, or a folder of MNIST idx files, of CIFAR-10 batches or of "
                             "images (default: digits)")
    parser.add_argument("--device", type=device, default=device_default, metavar="NAME",
                        help=f"{', '.join(DEVICES)}: simulated hardware, the numpy golden model, or its exact emulator in PyTorch, "
                             f"there on a GPU; BOARD[:PORT], sim:BOARD or netlist:BOARD[:FOLDER]: a board, all of it in "
                             f"simulation, or every cell of what gradloom build routed (boards: {', '.join(BOARDS)}; "
                             f"default: {device_default})")


def dram_arguments(parser: argparse.ArgumentParser) -> None:
    """What the DRAM model does beside a simulated machine."""
    parser.add_argument("--dram-latency", type=int, default=40, metavar="CYCLES", help="read latency of the DRAM model")
    parser.add_argument("--dram-bytes-per-cycle", type=float, default=None, metavar="N",
                        help="bandwidth of the DRAM model, reads and writes together (default: one beat each way)")
    parser.add_argument("--stalls", type=float, default=0.0, metavar="P",
                        help="probability of a random stall on every AXI4 channel and cycle (default: 0)")


def memory_arguments(parser: argparse.ArgumentParser) -> None:
    """The DRAM model and the waveform of a simulation."""
    dram_arguments(parser)
    parser.add_argument("--trace-fst", type=Path, default=None, metavar="FILE", help="write an FST waveform")
    parser.add_argument("--trace-cycles", default="0:20000", metavar="FROM:TO", help="cycles of the waveform")


def schedule_argument(parser: argparse.ArgumentParser) -> None:
    """Where the schedule comes from."""
    parser.add_argument("--schedule", default=None, metavar="FILE|rules",
                        help="file of gradloom tune, or the scheduler's rules alone (default: the package's for this network, "
                             "machine and batch, if it has one, else the rules)")


def step_arguments(parser: argparse.ArgumentParser) -> None:
    """Some steps and the state that they begin at, for verify, diff and health."""
    parser.add_argument("--weights", type=Path, default=None, metavar="DIR|FILE",
                        help="begin at the state of a trained run, its folder or checkpoint.npz (default: at initial weights)")
    parser.add_argument("--batch", type=positive, default=4)
    parser.add_argument("--steps", type=positive, default=5)
    parser.add_argument("--lr", type=rate)
    parser.add_argument("--momentum", type=momentum)
    parser.add_argument("--weight-decay", type=decay)
    format_argument(parser)
    rounding_argument(parser)
    parser.add_argument("--seed", type=seed, default=1)
