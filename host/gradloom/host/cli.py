"""The command ``gradloom``: its subcommands, and how errors reach the user. Each subcommand's work is in its own module."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gradloom.boards.board import BOARDS
from gradloom.boards.fpgas import FPGAS
from gradloom.contracts.config import PRESETS, ConfigError
from gradloom.host.commands.cli_arguments import (
    augment_argument,
    bench_device,
    clock_mhz,
    decay,
    device,
    dram_arguments,
    format_argument,
    gigabytes,
    integers_argument,
    machine_arguments,
    memory_arguments,
    momentum,
    normalise_argument,
    positive,
    rate,
    rounding_argument,
    schedule_argument,
    seed,
    share,
    step_arguments,
)
from gradloom.host.commands.verilog_command import TARGETS
from gradloom.host.devices.device import DEVICES, MachineError
from gradloom.host.devices.limits import told
from gradloom.host.explore.names import ALL_SYSTEMS, RESOURCE_FAMILIES
from gradloom.host.files import UserError
from gradloom.host.requests import CHECKS
from gradloom.models.network import NetworkError
from gradloom.sim.simulation import ProtocolError
from gradloom.systems.networks import NETWORKS

__all__ = ["main", "parse"]

_INTERRUPTED = 130
_UNREAD = 141


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument as every other error: in one sentence, through :func:`main`."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}: see {self.prog} --help")


def _tune_arguments(tune: argparse.ArgumentParser) -> None:
    tune.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    tune.add_argument("--config", default="small", metavar="NAME|FILE",
                      help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small)")
    tune.add_argument("--batch", type=positive, help="images a step (default: the network's)")
    tune.add_argument("--trials", type=positive, default=200, help="schedules to try, beside those tried before (default: 200)")
    tune.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="trials at a time (default: one for each core)")
    tune.add_argument("--seed", type=seed, default=1)
    tune.add_argument("--out", type=Path, default=None, metavar="FILE",
                      help="where the best schedule is kept; an earlier search there goes on "
                           "(default: schedule-NETWORK-CONFIG-BATCH.json)")
    tune.add_argument("--dram-latency", type=int, default=40, metavar="CYCLES", help="read latency of the memory")
    tune.add_argument("--dram-bytes-per-cycle", type=float, default=None, metavar="N",
                      help="bandwidth of the memory, reads and writes together (default: one beat each way)")
    tune.set_defaults(stalls=0.0, trace_fst=None, trace_cycles="0:1")


def _bench_arguments(bench: argparse.ArgumentParser) -> None:
    bench.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    bench.add_argument("--config", metavar="NAME|FILE",
                       help=f"machine: {', '.join(PRESETS)} or a TOML file (default: small; of a board, its own)")
    bench.add_argument("--data", default=None, metavar="NAME|FILE",
                       help="training images (default: hashed ones, of any network's shape)")
    integers_argument(bench)
    bench.add_argument("--device", type=bench_device, default="rtl", metavar="NAME",
                       help="rtl: simulated hardware; model: the cost model, which estimates in seconds; BOARD[:PORT] or "
                            "sim:BOARD: a board, or all of it in simulation, without layers and phases (boards: "
                            f"{', '.join(BOARDS)}; default: rtl)")
    bench.add_argument("--batch", type=positive, help="images a step (default: the network's)")
    bench.add_argument("--steps", type=positive, default=2,
                       help="steps after the calibrating one; the last is reported (default: 2)")
    format_argument(bench)
    rounding_argument(bench)
    bench.add_argument("--seed", type=seed, default=1)
    bench.add_argument("--clock-mhz", type=clock_mhz, metavar="F",
                       help="clock of the rates (default: 200, that of ETA; of a board, its own)")
    bench.add_argument("--check", choices=CHECKS, default="last",
                       help="compare with the golden model: every step, the reported one, or none (default: last)")
    bench.add_argument("--calibrate", choices=("device", "golden"), default="device",
                       help="who takes the calibrating step, of more than twice the cycles of the others (default: device)")
    bench.add_argument("--compare", action="store_true", help="set the cost model's estimate beside the simulation")
    bench.add_argument("--what-if", action="store_true",
                       help="estimate the step with one part of the machine after the other taking no time")
    bench.add_argument("--out", type=Path, default=None, metavar="DIR",
                       help="folder of bench.json and bench.html (default: runs/bench-NETWORK-CONFIG-N)")
    bench.add_argument("--draw", default=None, metavar="LAYER[:PHASE]",
                       help="also draw a layer's commands in time; PHASE: FP (default), BP, norm or WG")
    bench.add_argument("--trace", type=Path, default=None, metavar="FILE",
                       help="also write every command of the step as a trace for ui.perfetto.dev")
    schedule_argument(bench)
    memory_arguments(bench)


def _diff_arguments(diff: argparse.ArgumentParser) -> None:
    diff.add_argument("runs", nargs="*", type=Path, metavar="RUN",
                      help="two run folders; without them two devices are compared live")
    diff.add_argument("--replay", action="store_true",
                      help="train both runs again up to their first difference and name its tensor and element")
    diff.add_argument("--device", action="append", type=device, metavar="NAME",
                      help=f"{', '.join(DEVICES)}; give it for either side (default: golden, then rtl)")
    diff.add_argument("--config", action="append", metavar="NAME|FILE",
                      help=f"machine of both sides, or give one for either: {', '.join(PRESETS)} or a TOML file (default: small)")
    diff.add_argument("--network", default="digits-cnn", metavar="NAME|FILE", help="built-in network or TOML file")
    diff.add_argument("--data", default="digits", metavar="NAME|FILE", help="as of verify (default: digits)")
    integers_argument(diff)
    normalise_argument(diff)
    step_arguments(diff)
    diff.add_argument("--trace", type=Path, default=None, metavar="FILE",
                      help="write an FST waveform of the cycles around the first difference")
    diff.add_argument("--trace-margin", type=positive, default=2000, metavar="CYCLES",
                      help="cycles of the waveform before and after it (default: 2000)")
    dram_arguments(diff)
    diff.set_defaults(trace_fst=None, trace_cycles="0:1")


def _explore_arguments(explore: argparse.ArgumentParser) -> None:
    explore.add_argument("--network", required=True, metavar="NAME|FILE",
                         help=f"built-in network or TOML file; for the papers' systems also {', '.join(NETWORKS)}")
    explore.add_argument("--system", choices=ALL_SYSTEMS, default="eta",
                         help="eta: gradloom's own machines; the others by the equations of their papers (default: eta)")
    explore.add_argument("--device", metavar="NAME", help=f"{', '.join(FPGAS)}; or give its sizes:")
    explore.add_argument("--luts", type=positive, metavar="N", help="LUTs of the device")
    explore.add_argument("--dsps", type=positive, metavar="N", help="its DSP slices or multipliers")
    explore.add_argument("--brams", type=positive, metavar="N", help="its block RAMs, of 36 Kbit (ecp5: of 18 Kbit)")
    explore.add_argument("--bandwidth", type=gigabytes, metavar="GB/S", help="of its memory, reads and writes together")
    explore.add_argument("--family", choices=RESOURCE_FAMILIES, default="xc7",
                         help="of a device that is given by sizes (default: xc7)")
    explore.add_argument("--batch", type=positive, help="images a step (default: the network's; 128 for those of the papers)")
    explore.add_argument("--clock-mhz", type=clock_mhz, metavar="F", help="another clock than the device's (of sizes: 200)")
    explore.add_argument("--fill", type=share, metavar="SHARE",
                         help="share of the LUTs that a machine may take, 0 to 1 (default: 0.8; of ECP5 the largest routed one)")
    explore.add_argument("--points", type=positive, default=5, help="machines to compile at most, for --system eta (default: 5)")
    explore.add_argument("--json", action="store_true", help="print the record as JSON in place of the table")
    explore.add_argument("--out", type=Path, default=None, metavar="DIR",
                         help="folder of explore.json, explore.svg and a TOML file for each machine (default: runs/explore-NETWORK-"
                              "DEVICE-N)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gradloom", description="Generate, verify and run DNN training accelerators.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="train a network on the simulated hardware, the golden model or the emulator")
    machine_arguments(train)
    integers_argument(train)
    normalise_argument(train)
    augment_argument(train)
    train.add_argument("--batch", type=positive, help="images a step (default: the network's)")
    length = train.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive, help="stop after this many steps")
    length.add_argument("--epochs", type=positive, help="passes over the training images (default: the network's)")
    train.add_argument("--lr", type=rate, help="peak learning rate (default: the network's)")
    train.add_argument("--warmup", type=positive, metavar="EPOCHS",
                       help="epochs in which the learning rate rises to it (default: the network's)")
    train.add_argument("--momentum", type=momentum, help="momentum, rounded to 1/256 (default: the network's)")
    train.add_argument("--weight-decay", type=decay, help="weight decay, rounded to a power of two (default: the network's)")
    format_argument(train)
    rounding_argument(train)
    train.add_argument("--seed", type=seed, help="seed of weights, order and rounding (default: 1)")
    train.add_argument("--out", type=Path, default=None, metavar="DIR",
                       help="folder of the results (default: runs/NETWORK-CONFIG-N)")
    train.add_argument("--check", choices=CHECKS, default="last",
                       help="compare with the golden model: every tensor of every step, of the last step, or not (default: last)")
    schedule_argument(train)
    train.add_argument("--resume", type=Path, default=None, metavar="DIR", help="go on with an interrupted run")
    memory_arguments(train)

    evaluate = commands.add_parser("eval", help="accuracy of trained weights on the test images, forward passes only")
    machine_arguments(evaluate)
    integers_argument(evaluate, None)
    normalise_argument(evaluate, "as in the training")
    evaluate.add_argument("--weights", type=Path, required=True, metavar="DIR|FILE", help="a run's folder or its checkpoint.npz")
    format_argument(evaluate)
    rounding_argument(evaluate, "that of the training")
    evaluate.add_argument("--batch", type=positive, help="images a program run (default: the network's)")
    evaluate.add_argument("--out", type=Path, default=None, metavar="FILE", help="write the result as JSON")
    memory_arguments(evaluate)

    verify = commands.add_parser("verify", help="run golden model and device side by side and compare every tensor of every step")
    machine_arguments(verify)
    integers_argument(verify)
    normalise_argument(verify)
    step_arguments(verify)
    schedule_argument(verify)
    memory_arguments(verify)

    health = commands.add_parser("health", help="zeros, saturated elements and segments of every tensor of some training steps")
    machine_arguments(health, device_default="golden")
    integers_argument(health)
    normalise_argument(health)
    step_arguments(health)
    health.add_argument("--out", type=Path, default=None, metavar="DIR",
                        help="folder of health.json and health.html (default: runs/health-NETWORK-N)")
    memory_arguments(health)

    _diff_arguments(commands.add_parser("diff", help="the first difference of two runs, or of two devices side by side"))
    _bench_arguments(commands.add_parser("bench", help="what a training step costs on a machine, by layer and phase"))

    _tune_arguments(commands.add_parser("tune", help="search for a faster schedule of a training step"))

    _explore_arguments(commands.add_parser("explore", help="which machine trains a network fastest on a device"))

    verilog = commands.add_parser("verilog", help="write the machine's Verilog, register map and configuration")
    verilog.add_argument("--config", default="small", metavar="NAME|FILE")
    verilog.add_argument("--family", choices=TARGETS, default="any",
                         help="xc7: the array's MACs are DSP48E1 slices (not mac = post_shift)")
    verilog.add_argument("--package", action="store_true",
                         help="also a FuseSoC core and the registers in SystemRDL; AXI4 data of at least 32 bits")
    verilog.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write, which must not exist")

    _board_commands(commands)

    doctor = commands.add_parser("doctor", help="check compiler, make, packages and versions")
    doctor.add_argument("--board", metavar="NAME", help="also what building for this board, flashing it and its cable need")
    return parser


def _board_commands(commands: "argparse._SubParsersAction[_Parser]") -> None:
    boards = commands.add_parser("boards", help="boards that can be built for, and those that are plugged in")
    boards.add_argument("--json", action="store_true", help="as JSON")

    build = commands.add_parser("build", help="a bitstream for a board, with a report of what it takes and how fast it is")
    build.add_argument("--board", required=True, metavar="NAME", help="gradloom boards lists them")
    build.add_argument("--config", metavar="NAME|FILE", help="another machine than the board's")
    build.add_argument("--freq", type=clock_mhz, metavar="MHZ", help="another clock than the board's")
    build.add_argument("--seed", type=seed, default=1, help="of the placement (default: 1)")
    build.add_argument("--block-ram", type=positive, metavar="KIB", help="block RAM behind the machine, not the board's SDRAM")
    build.add_argument("--margin", type=positive, metavar="TILES", help="by which a net may leave its bounding box (default: 12)")
    build.add_argument("--router", metavar="OPTIONS", help="options of nextpnr for routing, as one word, in place of ours")
    build.add_argument("--fresh", action="store_true", help="do again what was done before with the same inputs")
    build.add_argument("--out", type=Path, metavar="DIR", help="folder of the build, which goes on there (default: build/BOARD)")

    flash = commands.add_parser("flash", help="load a bitstream into a board")
    flash.add_argument("--board", required=True, metavar="NAME", help="gradloom boards lists them")
    flash.add_argument("--build", type=Path, metavar="DIR", help="folder of a build (default: build/BOARD)")
    flash.add_argument("--port", metavar="PORT|SERIAL", help="which board, if there are several")
    flash.add_argument("--persistent", action="store_true", help="into its flash memory, so that it stays")
    flash.add_argument("--no-test", action="store_true", help="do not test the board's identity and memory afterwards")

    light = commands.add_parser("first-light", help="load a board, test it, train on it for 20 steps beside the golden model")
    light.add_argument("--board", required=True, metavar="NAME", help="gradloom boards lists them")
    light.add_argument("--build", type=Path, metavar="DIR", help="folder of a build (default: build/BOARD)")
    light.add_argument("--port", metavar="PORT|SERIAL", help="which board, if there are several")
    light.add_argument("--simulated", action="store_true", help="the whole board in simulation, for who has none")


def _check_resume(options: argparse.Namespace) -> None:
    """A resumed run keeps its settings; only a waveform may be asked for."""
    defaults = vars(_parser().parse_args([options.command]))
    for name, value in vars(options).items():
        if name not in ("resume", "trace_fst", "trace_cycles") and value != defaults[name]:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} cannot be given with --resume, the run keeps its settings: remove {option}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If it has a wrong argument.
    """
    return _parser().parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0 success, 1 a check failed or the machine stopped with an error, 2 bad input, 130 interrupted, 141
    nobody reads the output any more, as a shell says of a program that SIGPIPE ends (``gradloom bench ... | head``).
    """
    try:
        try:
            return _main(arguments)
        finally:
            # What is buffered would be written when Python ends, where nobody could tell the error.
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD


def _main(arguments: Sequence[str] | None) -> int:
    try:
        options = _parser().parse_args(arguments)
        if options.command == "doctor":
            from gradloom.host.commands.doctor import report
            return report(options.board)
        if options.command == "boards":
            from gradloom.host.boards.boards_command import run as command
        elif options.command == "build":
            from gradloom.host.boards.build_command import run as command
        elif options.command == "flash":
            from gradloom.host.boards.flash_command import run as command
        elif options.command == "first-light":
            from gradloom.host.boards.first_light import run as command
        elif options.command == "verilog":
            from gradloom.host.commands.verilog_command import run as command
        elif options.command == "train":
            from gradloom.host.commands.train_command import run as command
            if options.resume is not None:
                _check_resume(options)
        elif options.command == "bench":
            from gradloom.host.bench.bench_command import run as command
        elif options.command == "explore":
            from gradloom.host.explore.explore_command import run as command
        elif options.command == "tune":
            from gradloom.host.commands.tune_command import run as command
        elif options.command == "diff":
            from gradloom.host.diff.diff_command import run as command
        elif options.command == "health":
            from gradloom.host.health.health_command import run as command
        elif options.command == "eval":
            from gradloom.host.commands.eval_command import run as command
        else:
            from gradloom.host.commands.verify_command import run as command
        with told("a step"):
            return command(options)
    except (UserError, ConfigError, NetworkError) as error:
        print(f"gradloom: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # An OSError, but none of the input's: main says what it is.
        raise
    except OSError as error:
        if error.strerror is None:
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"gradloom: error: {place}{error.strerror}", file=sys.stderr)
        return 2
    except MachineError as error:
        print(f"gradloom: error: {error}", file=sys.stderr)
        return 1
    except ProtocolError as error:
        print(f"gradloom: error: {error}; that is a fault of the generated hardware or of its model, not of the input: please "
              "report it with this command", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gradloom: interrupted", file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
