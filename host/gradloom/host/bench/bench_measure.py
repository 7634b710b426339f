"""Run the steps of ``gradloom bench`` on the simulated machine and record when every command ran."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import Timeline, step_programs, timelines
from gradloom.host.cost_model.what_if import Part, what_if
from gradloom.host.devices.device import Device
from gradloom.host.devices.limits import sum_widths, told
from gradloom.host.devices.opening import MemoryOptions, rtl_device
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.verification import CheckFailed, compare_tensors
from gradloom.host.knobs import Knobs
from gradloom.host.machine_program import MachineProgram
from gradloom.host.runs.progress import StepProgress
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["CheckFailed", "Measured", "Steps", "check_last", "dram_cost", "estimate", "estimate_parts", "golden_step",
           "measure", "peak_bytes"]


@dataclasses.dataclass(frozen=True)
class Steps:
    """What is trained: one entry of images and labels for the calibration step and each step after it."""

    images: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    exponent: int
    source: str

    @property
    def steady(self) -> int:
        return len(self.labels) - 1


@dataclasses.dataclass(frozen=True)
class Measured:
    """The last step.

    Parameters
    ----------
    plan : :class:`~gradloom.host.machine_program.MachineProgram`
        Of the steady steps.
    steps : :class:`int`
        Of the start whose last step it is.
    timeline, estimated : :class:`~gradloom.host.cost_model.trace.Timeline`
        As recorded, and as the cost model estimates it.
    traffic : (read bytes, written bytes)
        At the memory port in all steps after the calibration, by step.
    checked : dict
        What was compared with the golden model: steps, tensors, bytes.
    parameters : :class:`str`
        SHA-256 over all that training has learnt, as it lies in the machine's memory after the last step.
    simulated : dict
        Cycles of all steps and of the calibration, wall-clock seconds, cycles a second.
    """

    plan: MachineProgram
    steps: int
    timeline: Timeline
    estimated: Timeline
    traffic: tuple[int, int]
    checked: dict[str, Any]
    parameters: str
    simulated: dict[str, Any]


class _Bench:
    def __init__(self, network: Network, config: Config, steps: Steps, seed: int, memory: MemoryOptions,
                 knobs: Knobs | None) -> None:
        self.network, self.steps, self.batch = network, steps, len(steps.labels[0])
        self.runner = ProgramRunner(network, config, self.batch, max(1, steps.steady), self._open(config, memory), export_dw=False,
                                    knobs=knobs)
        self.hypers = golden.schedule_table(network.train, len(steps.labels))
        self.state = State.initial(network, seed, steps.exponent)
        self.checked = {"steps": 0, "tensors": 0, "bytes": 0}

    def _open(self, config: Config, memory: MemoryOptions) -> Callable[[int], Device]:
        def open_device(size: int) -> Any:
            self.device = rtl_device(config, size, memory)
            return self.device

        return open_device

    def run(self, first: int, last: int, progress: StepProgress, expected: int) -> float:
        """Steps ``first`` to ``last`` (excluded) from one start; a step takes about ``expected`` cycles. Returns the seconds."""
        began, base = time.monotonic(), self.device.cycle

        def report(_: float) -> None:
            done = first + (self.device.cycle - base) / max(1, expected)
            progress.update(min(done, last - 0.01), loss=None, accuracy=None, cycles=self.device.cycle)

        self.runner.train(self.steps.images[first:last], self.steps.labels[first:last], self.hypers[first:last], report)
        progress.update(last, loss=None, accuracy=None, cycles=self.device.cycle)
        return time.monotonic() - began

    def check(self, first: int, last: int) -> None:
        """Golden steps from the state before ``first``; the tensors of the last one are compared."""
        for key, value in check_last(self.runner, self.state, self.steps, self.hypers, first, last).items():
            self.checked[key] += value


def golden_step(network: Network, config: Config, state: State, steps: Steps, hypers: Sequence[golden.Hyper], step: int,
                ) -> golden.StepResult:
    """A step of the run by the golden model, with sums as wide as the machine's, from ``state``, which goes with it."""
    return golden.train_step(network, state, steps.images[step], steps.labels[step], hypers[step],
                             widths=sum_widths(network, config))


def check_last(runner: ProgramRunner, state: State, steps: Steps, hypers: Sequence[golden.Hyper], first: int, last: int,
               ) -> dict[str, int]:
    """Golden steps ``first`` to ``last`` (excluded) from ``state``, which goes with them; the tensors of the last one are compared
    with the device's. Returns what was compared: steps, tensors, bytes.

    Raises
    ------
    :exc:`CheckFailed`
        If a byte differs.
    """
    network = runner.network
    for step in range(first, last):
        with told(f"golden model beside the device, step {step}"):
            result = golden_step(network, runner.config, state, steps, hypers, step)
    comparison = compare_tensors(network, last - 1, result, state, runner)
    if comparison.difference is not None:
        raise CheckFailed(str(comparison.difference))
    return {"steps": 1, "tensors": comparison.tensors, "bytes": comparison.bytes}


def estimate(plan: MachineProgram, dram: DramCost, steps: int = 2) -> Timeline:
    """The last of so many steady steps of one start, by the cost model; the first one has the program's head."""
    return replay(step_programs(plan.instructions, plan.labels, steps), plan.config, dram)[steps - 1]


def estimate_parts(plan: MachineProgram, dram: DramCost, steps: int = 2) -> Iterator[tuple[Part, int]]:
    """Estimated cycles of the same step if one part of the machine after the other took no time."""
    return what_if(step_programs(plan.instructions, plan.labels, steps), steps - 1, plan.config, dram)


def dram_cost(memory: MemoryOptions) -> DramCost:
    """What the cost model takes a DRAM model for."""
    return DramCost(latency=memory.latency, bytes_per_cycle=memory.bytes_per_cycle)


def peak_bytes(config: Config, memory: MemoryOptions) -> float:
    """Bytes a cycle that the memory gives at most: as set, or a beat for every channel of the machine."""
    channels = config.load_channels + config.store_channels
    return float(channels * config.beat_bytes) if memory.bytes_per_cycle is None else memory.bytes_per_cycle


def measure(network: Network, config: Config, steps: Steps, *, seed: int, memory: MemoryOptions, check: str,
            calibrate: str = "device", knobs: Knobs | None = None) -> Measured:
    """Calibrate, then train the steady steps from one start (``check`` "all": one start each) and record the last one.

    Weight gradients are not stored, as that would cost time which training does not need.

    Parameters
    ----------
    check : :class:`str`
        "all", "last" or "off": what is compared with the golden model.
    calibrate : :class:`str`
        "device", or "golden": the golden model takes the calibration step, whose dry runs take the machine more than twice the
        cycles of a steady one, and the machine begins with the state behind it.
    knobs : :class:`~gradloom.host.knobs.Knobs`, optional
        Of the schedule; by default those of the package or the rules'.

    Raises
    ------
    :exc:`CheckFailed`
        If a byte differs.
    """
    began = time.monotonic()
    bench = _Bench(network, config, steps, seed, memory, knobs)
    built = time.monotonic() - began
    given = int(calibrate == "golden")
    if given:
        with told("step 0"):
            golden_step(network, config, bench.state, steps, bench.hypers, 0)
    progress = StepProgress(len(steps.labels), given)
    try:
        if built > 2:
            progress.note(f"machine ready after {built:.0f} s")
        device = bench.device
        bench.runner.load(bench.state)
        plan = bench.runner.steady
        groups = [(step, step + 1) for step in range(1, len(steps.labels))] if check == "all" else [(1, len(steps.labels))]
        count = groups[-1][1] - groups[-1][0]
        guess = estimate(plan, dram_cost(memory), count)
        spent = 0.0
        if not given:
            spent = bench.run(0, 1, progress, 2 * guess.cycles)
            if check == "all":
                bench.check(0, 1)
            elif check == "last":
                bench.state = bench.runner.state()
        calibration = device.cycle
        for first, last in groups:
            device.record_events()
            before = device.counts()
            spent += bench.run(first, last, progress, guess.cycles)
            if check != "off":
                bench.check(first, last)
        after, beat = device.counts(), device.beat_bytes
        traffic = tuple((after[key] - before[key]) * beat // count for key in ("read_beats", "write_beats"))
        timeline = timelines(step_programs(plan.instructions, plan.labels, count), config, *device.events())[count - 1]
        total, parameters = device.cycle, digests.parameters_digest(network, bench.runner.state())
    finally:
        progress.close()
        bench.runner.close()
    return Measured(plan, count, timeline, guess, (traffic[0], traffic[1]), bench.checked, parameters, {
        "cycles": total, "calibration_cycles": calibration, "seconds": spent, "cycles_per_second": total / spent,
        "build_seconds": built,
    })
