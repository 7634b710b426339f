"""``gradloom diff``: the first difference of two runs, or of two devices side by side."""

import argparse

from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.diff.diff_live import Batches, Side, TraceRequest, compare_devices, describe, trace_difference
from gradloom.host.diff.diff_runs import compare_runs, read_run, replay
from gradloom.host.environment import check_device, check_output_file
from gradloom.host.files import UserError
from gradloom.host.requests import option_values
from gradloom.host.runs.steps import StepsRequest, material

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Returns 0 if nothing differs, 1 if something does."""
    if options.trace is not None and options.trace.exists():
        raise UserError(f"{options.trace} exists already: give another --trace, nothing is overwritten")
    if options.trace is not None:
        check_output_file(options.trace, "--trace")
    if options.runs and (options.device or options.config):
        raise UserError("two run folders were given, and --device or --config too: give one or the other")
    if len(options.runs) not in (0, 2):
        raise UserError(f"diff takes two run folders or none, {len(options.runs)} were given: give two, or --device twice")
    return _runs(options) if options.runs else _live(options)


def _runs(options: argparse.Namespace) -> int:
    first, second = (read_run(path) for path in options.runs)
    evidence = compare_runs(first, second)
    print(f"gradloom: A is {first.path}, B is {second.path}")
    if evidence.same:
        common = min(len(run.record["steps"]) for run in (first, second))
        print(f"gradloom: 0 differences in {common} steps, epochs and checkpoints")
        return 0
    if evidence.settings:
        print(f"gradloom: the runs have different settings: {', '.join(evidence.settings)}")
    for line in evidence.lines:
        print(f"gradloom: DIFFERENT: {line}")
    if not options.replay:
        return 1
    if evidence.settings:
        raise UserError(f"--replay trains both runs again side by side, which needs one {evidence.settings[0]}: leave --replay out")
    last = min(len(run.record["steps"]) for run in (first, second))
    batches, sides = replay(first, second, last if evidence.step is None else evidence.step + 1)
    if _compare(options, batches, sides) == 0:
        print("gradloom: the devices agree on this machine now: one of the folders was computed otherwise")
    return 1


def _live(options: argparse.Namespace) -> int:
    if options.replay:
        raise UserError("--replay belongs to two run folders: give them, or leave it out")
    if len(options.device or ()) > 2 or len(options.config or ()) > 2:
        raise UserError("diff compares two devices: give --device and --config at most twice each")
    devices = [*(options.device or ("golden", "rtl"))] * 2
    names = [*(options.config or (None,))] * 2
    configs = [machine_config(device, name) for device, name in zip(devices[:2], names[:2], strict=True)]
    if len(options.device or ()) == 1 and len(options.config or ()) != 2:
        raise UserError(f"both sides are --device {devices[0]}: give another --device, or two --config")
    memory = MemoryOptions.from_arguments(options)
    pairs = list(zip(devices[:2], configs[:2], strict=True))
    titles = [device if device != "rtl" or pairs[0][0] != pairs[1][0] else f"{device} {config.name}" for device, config in pairs]
    if titles[0] == titles[1]:
        titles = ["A", "B"]
    first, second = (Side(device, config, memory, title) for (device, config), title in zip(pairs, titles, strict=True))
    for device, config in pairs:
        check_device(device, config)
        if options.trace is not None:
            check_device(device, config, options.trace)
    given = material(StepsRequest(**option_values(StepsRequest, options)))
    parts = [slice(step * options.batch, (step + 1) * options.batch) for step in range(options.steps)]
    batches = Batches(
        given.network,
        given.state,
        [given.images[part] for part in parts],
        [given.labels[part] for part in parts],
        given.hypers,
    )
    print(
        f"gradloom: {given.network.name} on {first.title} and {second.title}, {options.steps} steps of {options.batch} images "
        f"({given.title}), seed {options.seed}",
        flush=True,
    )
    return _compare(options, batches, (first, second))


def _compare(options: argparse.Namespace, batches: Batches, sides: tuple[Side, Side]) -> int:
    if options.trace is not None and not any(side.device == "rtl" for side in sides):
        raise UserError("--trace records the simulated hardware, neither side is rtl: leave it out, or give --device rtl")
    found = compare_devices(batches, sides)
    if found.difference is None:
        print(f"gradloom: 0 differences: {found.tensors:,} tensors, {found.bytes:,} bytes compared over {len(batches.labels)} steps"
              + (", no waveform is written" if options.trace is not None else ""))
        return 0
    print(f"gradloom: DIFFERENT: {describe(batches.network, found, (sides[0].title, sides[1].title))}", flush=True)
    if options.trace is not None:
        window = trace_difference(batches, sides, found, TraceRequest(options.trace, options.trace_margin))
        if window is None:
            print("gradloom: no cycle is known for it, no waveform is written")
        else:
            print(f"gradloom: waveform of cycles {window[0]}..{window[1]} in {options.trace}")
    return 1
