"""``gradloom bench`` on a board, plugged in or simulated: cycles of a step, engines, memory and cable, beside the cost model."""

import argparse
import dataclasses
import time
from typing import Any

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.regmap import offset
from gradloom.host.bench.bench_measure import Steps, check_last, estimate, golden_step
from gradloom.host.cost_model.sdram_cost import sdram_cost
from gradloom.host.devices.board_choice import BoardChoice
from gradloom.host.devices.device import csr_batch
from gradloom.host.devices.limits import told
from gradloom.host.devices.opening import MemoryOptions, board_runner
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.files import UserError
from gradloom.host.knobs import Knobs
from gradloom.host.link.board_device import BoardDevice
from gradloom.host.runs.progress import StepProgress
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["measure_board", "refuse", "report_lines", "step_and_head", "steps_before"]


def steps_before(count: int) -> int:
    """Steps before the start of ``count`` steps that is measured: the calibrating one, and, if there are several to tell it from,
    one in a start of its own, which shows what a start costs."""
    return 2 if count > 1 else 1


def refuse(options: argparse.Namespace, memory: MemoryOptions) -> None:
    """Raises :exc:`UserError` for options that only the simulated machine has."""
    for given, name in ((options.trace, "--trace"), (options.draw, "--draw"), (options.what_if, "--what-if"),
                        (options.check == "all", "--check all"),
                        (memory != MemoryOptions(), "an option of the DRAM model"),
                        (options.clock_mhz is not None, "--clock-mhz")):
        if given:
            raise UserError(f"{name} cannot be given with a board, which has its own clock and memory and shows no single command: "
                            f"take --device rtl for it, or leave it out")


@dataclasses.dataclass(frozen=True)
class _Reading:
    """Counters of the machine at one moment."""

    cycles: int
    busy: dict[str, int]
    read_bytes: int
    written_bytes: int


def _read(runner: ProgramRunner) -> _Reading:
    config = runner.config
    engines = units(config) if config.counters != "none" else ()
    names = [f"BUSY_{unit.name}" for unit in engines] + (["READ_BEATS", "WRITE_BEATS"] if engines else [])
    words = csr_batch(runner.device, [(offset(f"{name}_{half}"), None) for name in names for half in ("LOW", "HIGH")])
    found = dict(zip(names, (low | high << 32 for low, high in zip(words[::2], words[1::2], strict=True)), strict=True))
    return _Reading(runner.cycles, {unit.name.lower(): found[f"BUSY_{unit.name}"] for unit in engines},
                    config.beat_bytes * found.get("READ_BEATS", 0), config.beat_bytes * found.get("WRITE_BEATS", 0))


def measure_board(network: Network, config: Config, steps: Steps, count: int, *, seed: int, choice: BoardChoice, check: str,
                  calibrate: str, knobs: Knobs) -> dict[str, Any]:
    """Calibrate, take a step in a start of its own if several follow, then these in one start, which is what is reported.

    Parameters
    ----------
    steps : :class:`~gradloom.host.bench.bench_measure.Steps`
        :func:`steps_before` and those of the start.
    count : :class:`int`
        Steps of the start.
    check : :class:`str`
        "last" or "off": whether the last step is compared with the golden model.
    calibrate : :class:`str`
        "device", or "golden": the golden model takes the calibrating step, and the board begins with the state behind it.

    Returns
    -------
    :class:`dict`
        ``kind`` (*simulated* or *on-board*), ``clock_mhz``, ``total`` (of a step: cycles, images a second, busy cycles of every
        engine that is counted, bytes read and written), ``start`` (steps, cycles beyond those of its steps, bytes and round
        trips of the cable, their seconds at the cable's rate, and those that went by, on a board), ``estimated``, ``check``,
        ``parameters``, ``program``.

    Raises
    ------
    :exc:`~gradloom.host.bench.bench_measure.CheckFailed`
        If a byte differs.
    """
    batch, begin, end = len(steps.labels[0]), steps_before(count), len(steps.labels)
    hypers = golden.schedule_table(network.train, len(steps.labels))
    runner = board_runner(choice, network, config, batch, count, export_dw=False, knobs=knobs)
    assert isinstance(runner.device, BoardDevice)
    link, state = runner.device.link, State.initial(network, seed, steps.exponent)
    given = int(calibrate == "golden")
    if given:
        with told("step 0"):
            golden_step(network, config, state, steps, hypers, 0)
    progress = StepProgress(len(steps.labels), given)

    def train(first: int, last: int) -> None:
        def report(done: float) -> None:
            progress.update(min(first + done, last - 0.01), loss=None, accuracy=None, cycles=runner.cycles)

        runner.train(steps.images[first:last], steps.labels[first:last], hypers[first:last], report)
        progress.update(last, loss=None, accuracy=None, cycles=runner.cycles)

    checked = {"steps": 0, "tensors": 0, "bytes": 0}
    try:
        runner.load(state)
        if not given:
            train(0, 1)
        alone = runner.cycles
        if begin > 1:
            train(1, begin)
        alone = runner.cycles - alone
        state = runner.state() if check == "last" else state
        before = _read(runner)
        cable, began = dataclasses.replace(link.statistics), time.monotonic()
        train(begin, end)
        seconds, moved = time.monotonic() - began, dataclasses.replace(link.statistics)
        after = _read(runner)
        if check == "last":
            checked = check_last(runner, state, steps, hypers, begin, end)
        parameters = digests.parameters_digest(network, runner.state())
    finally:
        progress.close()
        runner.close()
    clock = link.identity.clock
    spent = after.cycles - before.cycles
    step, head = step_and_head(alone, spent, count)
    sent, received = moved.bytes_sent - cable.bytes_sent, moved.bytes_received - cable.bytes_received
    guess = estimate(runner.steady, sdram_cost(choice.board.part, clock), max(2, count)).cycles
    return {
        "kind": runner.kind,
        "clock_mhz": clock / 1e6,
        "total": {
            "cycles": step,
            "images_per_second": batch * clock / step,
            "busy": {name: (cycles - before.busy[name]) // count for name, cycles in after.busy.items()},
            "read_bytes": (after.read_bytes - before.read_bytes) // count,
            "written_bytes": (after.written_bytes - before.written_bytes) // count,
        },
        "start": {
            "steps": count,
            "cycles": spent,
            "head_cycles": head,
            "bytes_sent": sent,
            "bytes_received": received,
            "round_trips": moved.round_trips - cable.round_trips,
            "machine_seconds": spent / clock,
            "cable_seconds": runner.device.cable_seconds(sent + received),
            "seconds": None if choice.simulated else seconds,
        },
        "estimated": {"cycles": guess, "error": guess / step - 1},
        "check": checked,
        "parameters": parameters,
        "program": runner.steady.digest(),
    }


def step_and_head(alone: int, spent: int, count: int) -> tuple[int, int]:
    """Cycles of a step within a start, and those of the start beside its steps: from a start of one step that took ``alone`` cycles
    and one of ``count`` that took ``spent``. Of a single step the head cannot be told, and is among its cycles."""
    step = round((spent - alone) / (count - 1)) if count > 1 else spent
    return step, spent - count * step


def report_lines(bench: dict[str, Any]) -> list[str]:
    """What the command prints."""
    kind, total, start, guess = bench["kind"], bench["total"], bench["start"], bench["estimated"]
    cycles = total["cycles"]
    lines = [
        f"cycles of a step      {cycles:,} ({kind}); cost model {guess['cycles']:,} ({100 * guess['error']:+.1f} %, estimated)",
        f"at {bench['clock_mhz']:g} MHz             {total['images_per_second']:,.1f} images/s in the machine ({kind})",
    ]
    if total["busy"]:
        shares = ", ".join(f"{name} {100 * busy / cycles:.1f} %" for name, busy in total["busy"].items()
                           if name != Unit.SEQ.name.lower())
        lines += [f"busy                  {shares}",
                  f"memory                {total['read_bytes']:,} bytes read, {total['written_bytes']:,} written, "
                  f"{(total['read_bytes'] + total['written_bytes']) / cycles:.2f} bytes a cycle"]
    else:
        lines.append("busy                  not counted (the machine was built with counters = none)")
    many = start["steps"] > 1
    beside = f"{start['head_cycles']:,} cycles of them beside its steps" if many else "what a start has beside its steps among them"
    lines.append(f"a start of {start['steps']} step{'s' if many else ' '}    {1e3 * start['machine_seconds']:.1f} ms in the "
                 f"machine, {beside}")
    lines.append(f"cable                 {start['bytes_sent']:,} bytes there, {start['bytes_received']:,} back, "
                 f"{start['round_trips']} round trips, {1e3 * start['cable_seconds']:.1f} ms (computed) if nothing overlaps")
    images = start["steps"] * bench["batch"]
    if start["seconds"] is not None:
        lines.append(f"by the clock          {1e3 * start['seconds']:.1f} ms, {images / start['seconds']:,.1f} images/s with "
                     f"the cable ({kind})")
    else:
        both = start["machine_seconds"] + start["cable_seconds"]
        lines.append(f"machine and cable     {images / both:,.1f} images/s, one after the other (computed)")
    checked = bench["check"]
    lines.append(f"check                 equal to the golden model: {checked['tensors']:,} tensors, {checked['bytes']:,} bytes of "
                 f"the last step" if checked["steps"] else "check                 none (--check off)")
    return [*lines, f"parameters            {bench['parameters'][:16]}"]
