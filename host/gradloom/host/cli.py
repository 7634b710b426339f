"""The command ``gradloom``: arguments, and how errors reach the user. Each subcommand's work is in its own module."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gradloom.host.files import UserError
from gradloom.models.network import NetworkError
from gradloom.rtl.config import PRESETS, ConfigError

__all__ = ["main"]

_INTERRUPTED = 130


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {value}")
    return value


def _seed(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"must lie in 0..2^32-1, not {value}")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must lie in 0..1 (1 excluded), not {text}")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not 2.0**-30 < value <= 64:
        raise argparse.ArgumentTypeError(f"must lie above 2^-30 and be at most 64, not {text}")
    return value


def _machine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    parser.add_argument("--config", default="small", metavar="NAME|FILE",
                        help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small)")
    parser.add_argument("--data", default="digits", metavar="NAME|FILE",
                        help="digits, an .npz file with x and y, or a folder of MNIST idx files (default: digits)")
    parser.add_argument("--device", choices=("rtl", "golden"), default="rtl",
                        help="simulated hardware, or the numpy golden model (default: rtl)")


def _memory_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dram-latency", type=int, default=40, metavar="CYCLES", help="read latency of the DRAM model")
    parser.add_argument("--dram-bytes-per-cycle", type=float, default=None, metavar="N",
                        help="bandwidth of the DRAM model, reads and writes together (default: one beat each way)")
    parser.add_argument("--stalls", type=float, default=0.0, metavar="P",
                        help="probability of a random stall on every AXI4 channel and cycle (default: 0)")
    parser.add_argument("--trace-fst", type=Path, default=None, metavar="FILE", help="write an FST waveform")
    parser.add_argument("--trace-cycles", default="0:20000", metavar="FROM:TO", help="cycles of the waveform")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gradloom", description="Generate, verify and run DNN training accelerators.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a network on the simulated hardware or the golden model")
    _machine_arguments(train)
    train.add_argument("--batch", type=_positive, help="images a step (default: the network's)")
    length = train.add_mutually_exclusive_group()
    length.add_argument("--steps", type=_positive, help="stop after this many steps")
    length.add_argument("--epochs", type=_positive, help="passes over the training images (default: the network's)")
    train.add_argument("--lr", type=_rate, help="peak learning rate (default: the network's)")
    train.add_argument("--momentum", type=_fraction, help="momentum, rounded to 1/256 (default: the network's)")
    train.add_argument("--weight-decay", type=_fraction, help="weight decay, rounded to a power of two (default: the network's)")
    train.add_argument("--seed", type=_seed, help="seed of weights, order and rounding (default: 1)")
    train.add_argument("--out", type=Path, default=None, metavar="DIR", help="folder of the results (default: runs/NETWORK-CONFIG-N)")
    train.add_argument("--check", choices=("all", "last", "off"), default="last",
                       help="compare with the golden model: every tensor of every step, of the last step, or not (default: last)")
    train.add_argument("--resume", type=Path, default=None, metavar="DIR", help="go on with an interrupted run")
    _memory_arguments(train)

    evaluate = commands.add_parser("eval", help="accuracy of trained weights on the test images, forward passes only")
    _machine_arguments(evaluate)
    evaluate.add_argument("--weights", type=Path, required=True, metavar="DIR|FILE", help="a run's folder or its checkpoint.npz")
    evaluate.add_argument("--batch", type=_positive, help="images a program run (default: the network's)")
    evaluate.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the result as JSON")
    _memory_arguments(evaluate)

    verify = commands.add_parser("verify", help="run golden model and RTL side by side and compare every tensor of every step")
    _machine_arguments(verify)
    verify.add_argument("--batch", type=_positive, default=4)
    verify.add_argument("--steps", type=_positive, default=5)
    verify.add_argument("--lr", type=_rate)
    verify.add_argument("--momentum", type=_fraction)
    verify.add_argument("--weight-decay", type=_fraction)
    verify.add_argument("--seed", type=_seed, default=1)
    _memory_arguments(verify)

    verilog = commands.add_parser("verilog", help="write the machine's Verilog, register map and configuration")
    verilog.add_argument("--config", default="small", metavar="NAME|FILE")
    verilog.add_argument("--out", type=Path, required=True, metavar="DIR")

    commands.add_parser("doctor", help="check compiler, make, packages and versions")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 success, 1 a check failed, 2 bad input, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "doctor":
            from gradloom.host.doctor import report
            return report()
        if options.command == "verilog":
            from gradloom.host.verilog_command import run as command
        elif options.command == "train":
            from gradloom.host.train_command import run as command
        elif options.command == "eval":
            from gradloom.host.eval_command import run as command
        else:
            from gradloom.host.verify_command import run as command
        return command(options)
    except (UserError, ConfigError, NetworkError) as error:
        print(f"gradloom: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except KeyboardInterrupt:
        print("gradloom: interrupted", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
