"""The command ``gradloom``: arguments, and how errors reach the user. Each subcommand's work is in its own module."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from gradloom.host.device import DEVICES, MachineError, device_name
from gradloom.host.files import UserError
from gradloom.models.formats import FORMATS, find_format
from gradloom.models.network import NetworkError
from gradloom.models.rounding import parse_rounding
from gradloom.rtl.config import PRESETS, ConfigError

__all__ = ["main"]

_INTERRUPTED = 130
_MOST = 10_000_000
"""Largest number of steps, epochs and images; the learning-rate table has an entry for every step."""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument as every other error: in one sentence, through :func:`main`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see {self.prog} --help")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if not 1 <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"must lie in 1..{_MOST}, not {text}")
    return value


def _seed(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"must lie in 0..2^32-1, not {value}")
    return value


def _between(low: float, high: float, range_text: str) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must lie in {range_text}, not {text}")
        return value

    return convert


def _rounding(text: str) -> dict[str, str]:
    try:
        return parse_rounding(text)
    except NetworkError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("rounding: ")) from None


def _device(text: str) -> str:
    try:
        return device_name(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_rate = _between(2.0**-30, 64.0, "2^-30..64")
_momentum = _between(0.0, 255 / 256, "0..255/256")
_decay = _between(0.0, 0.5, "0..0.5")
_clock = _between(0.001, 100000.0, "0.001..100000 MHz")


def _format(text: str) -> str:
    try:
        return find_format(text).name
    except NetworkError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("format ")) from None


def _format_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", type=_format, metavar="NAME",
                        help=f"number format, with its own rounding: {', '.join(FORMATS)}; the machine runs pint8, golden model "
                             f"and emulator all (default: the network's)")


def _rounding_argument(parser: argparse.ArgumentParser, default: str = "the network's") -> None:
    parser.add_argument("--rounding", type=_rounding, metavar="KIND=HOW,...",
                        help="nearest or stochastic rounding of activations, normalised, errors, weights, velocities "
                             f"(default: {default})")


def _machine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    parser.add_argument("--config", default="small", metavar="NAME|FILE",
                        help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small)")
    parser.add_argument("--data", default="digits", metavar="NAME|FILE",
                        help="digits, an .npz file with x and y, or a folder of MNIST idx files, of CIFAR-10 batches or of "
                             "images (default: digits)")
    parser.add_argument("--device", type=_device, default="rtl", metavar="NAME",
                        help=f"{', '.join(DEVICES)}: simulated hardware, the numpy golden model, or its exact emulator in PyTorch, "
                             f"there on a GPU (default: rtl)")


def _dram_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dram-latency", type=int, default=40, metavar="CYCLES", help="read latency of the DRAM model")
    parser.add_argument("--dram-bytes-per-cycle", type=float, default=None, metavar="N",
                        help="bandwidth of the DRAM model, reads and writes together (default: one beat each way)")
    parser.add_argument("--stalls", type=float, default=0.0, metavar="P",
                        help="probability of a random stall on every AXI4 channel and cycle (default: 0)")


def _memory_arguments(parser: argparse.ArgumentParser) -> None:
    _dram_arguments(parser)
    parser.add_argument("--trace-fst", type=Path, default=None, metavar="FILE", help="write an FST waveform")
    parser.add_argument("--trace-cycles", default="0:20000", metavar="FROM:TO", help="cycles of the waveform")


def _schedule_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedule", default=None, metavar="FILE|rules",
                        help="file of gradloom tune, or the scheduler's rules alone (default: the package's for this network, "
                             "machine and batch, if it has one, else the rules)")


def _tune_arguments(tune: argparse.ArgumentParser) -> None:
    tune.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    tune.add_argument("--config", default="small", metavar="NAME|FILE",
                      help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small)")
    tune.add_argument("--batch", type=_positive, help="images a step (default: the network's)")
    tune.add_argument("--trials", type=_positive, default=200, help="schedules to try, beside those tried before (default: 200)")
    tune.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="trials at a time (default: one for each core)")
    tune.add_argument("--seed", type=_seed, default=1)
    tune.add_argument("--out", type=Path, default=None, metavar="FILE",
                      help="where the best schedule is kept; an earlier search there goes on "
                           "(default: schedule-NETWORK-CONFIG-BATCH.json)")
    tune.add_argument("--dram-latency", type=int, default=40, metavar="CYCLES", help="read latency of the memory")
    tune.add_argument("--dram-bytes-per-cycle", type=float, default=None, metavar="N",
                      help="bandwidth of the memory, reads and writes together (default: one beat each way)")
    tune.set_defaults(stalls=0.0, trace_fst=None, trace_cycles="0:1")


def _bench_arguments(bench: argparse.ArgumentParser) -> None:
    bench.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    bench.add_argument("--config", default="small", metavar="NAME|FILE",
                       help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small)")
    bench.add_argument("--data", default=None, metavar="NAME|FILE",
                       help="training images (default: hashed ones, of any network's shape)")
    bench.add_argument("--device", choices=("rtl", "model"), default="rtl",
                       help="simulated hardware, or the cost model, which estimates in seconds (default: rtl)")
    bench.add_argument("--batch", type=_positive, help="images a step (default: the network's)")
    bench.add_argument("--steps", type=_positive, default=2,
                       help="steps after the calibrating one; the last is reported (default: 2)")
    _format_argument(bench)
    _rounding_argument(bench)
    bench.add_argument("--seed", type=_seed, default=1)
    bench.add_argument("--clock-mhz", type=_clock, default=200.0, metavar="F",
                       help="clock of the rates (default: 200, that of ETA)")
    bench.add_argument("--check", choices=("all", "last", "off"), default="last",
                       help="compare with the golden model: every step, the reported one, or none (default: last)")
    bench.add_argument("--calibrate", choices=("device", "golden"), default="device",
                       help="who takes the calibrating step, of more than twice the cycles of the others (default: device)")
    bench.add_argument("--compare", action="store_true", help="set the cost model's estimate beside the simulation")
    bench.add_argument("--out", type=Path, default=None, metavar="DIR",
                       help="folder of bench.json and bench.html (default: runs/bench-NETWORK-CONFIG-N)")
    bench.add_argument("--trace", type=Path, default=None, metavar="FILE",
                       help="also write every command of the step as a trace for ui.perfetto.dev")
    _schedule_argument(bench)
    _memory_arguments(bench)


def _step_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=_positive, default=4)
    parser.add_argument("--steps", type=_positive, default=5)
    parser.add_argument("--lr", type=_rate)
    parser.add_argument("--momentum", type=_momentum)
    parser.add_argument("--weight-decay", type=_decay)
    _format_argument(parser)
    _rounding_argument(parser)
    parser.add_argument("--seed", type=_seed, default=1)


def _diff_arguments(diff: argparse.ArgumentParser) -> None:
    diff.add_argument("runs", nargs="*", type=Path, metavar="RUN",
                      help="two run folders; without them two devices are compared live")
    diff.add_argument("--replay", action="store_true",
                      help="train both runs again up to their first difference and name its tensor and element")
    diff.add_argument("--device", action="append", type=_device, metavar="NAME",
                      help=f"{', '.join(DEVICES)}; give it for either side (default: golden, then rtl)")
    diff.add_argument("--config", action="append", metavar="NAME|FILE",
                      help=f"machine of both sides, or give one for either: {', '.join(PRESETS)} or a TOML file (default: small)")
    diff.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    diff.add_argument("--data", default="digits", metavar="NAME|FILE", help="as of verify (default: digits)")
    _step_arguments(diff)
    diff.add_argument("--trace", type=Path, default=None, metavar="FILE",
                      help="write an FST waveform of the cycles around the first difference")
    diff.add_argument("--trace-margin", type=_positive, default=2000, metavar="CYCLES",
                      help="cycles of the waveform before and after it (default: 2000)")
    _dram_arguments(diff)
    diff.set_defaults(trace_fst=None, trace_cycles="0:1")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gradloom", description="Generate, verify and run DNN training accelerators.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a network on the simulated hardware, the golden model or the emulator")
    _machine_arguments(train)
    train.add_argument("--batch", type=_positive, help="images a step (default: the network's)")
    length = train.add_mutually_exclusive_group()
    length.add_argument("--steps", type=_positive, help="stop after this many steps")
    length.add_argument("--epochs", type=_positive, help="passes over the training images (default: the network's)")
    train.add_argument("--lr", type=_rate, help="peak learning rate (default: the network's)")
    train.add_argument("--warmup", type=_positive, metavar="EPOCHS",
                       help="epochs in which the learning rate rises to it (default: the network's)")
    train.add_argument("--momentum", type=_momentum, help="momentum, rounded to 1/256 (default: the network's)")
    train.add_argument("--weight-decay", type=_decay, help="weight decay, rounded to a power of two (default: the network's)")
    _format_argument(train)
    _rounding_argument(train)
    train.add_argument("--seed", type=_seed, help="seed of weights, order and rounding (default: 1)")
    train.add_argument("--out", type=Path, default=None, metavar="DIR",
                       help="folder of the results (default: runs/NETWORK-CONFIG-N)")
    train.add_argument("--check", choices=("all", "last", "off"), default="last",
                       help="compare with the golden model: every tensor of every step, of the last step, or not (default: last)")
    _schedule_argument(train)
    train.add_argument("--resume", type=Path, default=None, metavar="DIR", help="go on with an interrupted run")
    _memory_arguments(train)

    evaluate = commands.add_parser("eval", help="accuracy of trained weights on the test images, forward passes only")
    _machine_arguments(evaluate)
    evaluate.add_argument("--weights", type=Path, required=True, metavar="DIR|FILE", help="a run's folder or its checkpoint.npz")
    _format_argument(evaluate)
    _rounding_argument(evaluate, "that of the training")
    evaluate.add_argument("--batch", type=_positive, help="images a program run (default: the network's)")
    evaluate.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the result as JSON")
    _memory_arguments(evaluate)

    verify = commands.add_parser("verify", help="run golden model and device side by side and compare every tensor of every step")
    _machine_arguments(verify)
    _step_arguments(verify)
    _schedule_argument(verify)
    _memory_arguments(verify)

    _diff_arguments(commands.add_parser("diff", help="the first difference of two runs, or of two devices side by side"))
    _bench_arguments(commands.add_parser("bench", help="what a training step costs on a machine, by layer and phase"))

    _tune_arguments(commands.add_parser("tune", help="search for a faster schedule of a training step"))

    verilog = commands.add_parser("verilog", help="write the machine's Verilog, register map and configuration")
    verilog.add_argument("--config", default="small", metavar="NAME|FILE")
    verilog.add_argument("--family", choices=("any", "xc7"), default="any",
                         help="xc7: the array's MACs are DSP48E1 slices (not mac = post_shift)")
    verilog.add_argument("--out", type=Path, required=True, metavar="DIR")

    commands.add_parser("doctor", help="check compiler, make, packages and versions")
    return parser


def _check_resume(options: argparse.Namespace) -> None:
    """A resumed run keeps its settings; only a waveform may be asked for."""
    defaults = vars(_parser().parse_args([options.command]))
    for name, value in vars(options).items():
        if name not in ("resume", "trace_fst", "trace_cycles") and value != defaults[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} cannot be given with --resume, the run keeps its settings: remove {option}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0 success, 1 a check failed or the machine stopped with an error, 2 bad input, 130 interrupted.
    """
    try:
        options = _parser().parse_args(arguments)
        if options.command == "doctor":
            from gradloom.host.doctor import report
            return report()
        if options.command == "verilog":
            from gradloom.host.verilog_command import run as command
        elif options.command == "train":
            from gradloom.host.train_command import run as command
            if options.resume is not None:
                _check_resume(options)
        elif options.command == "bench":
            from gradloom.host.bench_command import run as command
        elif options.command == "tune":
            from gradloom.host.tune_command import run as command
        elif options.command == "diff":
            from gradloom.host.diff_command import run as command
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
    except OSError as error:
        if error.strerror is None:
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"gradloom: error: {place}{error.strerror}", file=sys.stderr)
        return 2
    except MachineError as error:
        print(f"gradloom: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gradloom: interrupted", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
