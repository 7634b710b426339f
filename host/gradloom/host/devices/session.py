"""A network on a device: load a state, train steps, read tensors, evaluate. What the command line talks to.

The same calls serve the golden model, the emulator and the simulated hardware; a device that is reached through a program and a
memory image hides behind :class:`~gradloom.host.devices.runner.ProgramRunner`.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradloom.host.choices import Choices
from gradloom.host.datasets.data import Dataset
from gradloom.host.devices.device import is_emulator
from gradloom.host.devices.limits import finite, near_text, saturated, saturation_text, told
from gradloom.host.devices.models import GoldenModel, Step, StepModel, emulator
from gradloom.host.devices.runner import Outcome, ProgramRunner
from gradloom.host.environment import check_device
from gradloom.host.files import UserError
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Hyper
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.rtl.config import Config

if TYPE_CHECKING:
    from gradloom.sim.rtl_device import RtlDevice

__all__ = ["STEPS_PER_START", "MemoryOptions", "Score", "Session", "check_fit", "rtl_device"]

STEPS_PER_START = 8
"""Most steps of one start of the machine; the host only polls the status meanwhile."""


@dataclasses.dataclass(frozen=True)
class MemoryOptions:
    """The DRAM model of a simulated device.

    Parameters
    ----------
    latency : :class:`int`
        Cycles from a read's address to its first beat.
    bytes_per_cycle : :class:`float`, optional
        Reads and writes together; ``None`` is a beat each way and cycle.
    stalls : :class:`float`
        Probability of a random stall on every AXI4 channel and cycle.
    trace : path, optional
        FST waveform to write; ``trace_cycles`` is its (first, last) cycle.
    """

    latency: int = 40
    bytes_per_cycle: float | None = None
    stalls: float = 0.0
    trace: Path | None = None
    trace_cycles: tuple[int, int] = (0, 20000)

    @classmethod
    def from_arguments(cls, options: argparse.Namespace) -> "MemoryOptions":
        if not 0 <= options.dram_latency <= 10000:
            raise UserError(f"--dram-latency must lie in 0..10000 cycles, not {options.dram_latency}")
        if options.dram_bytes_per_cycle is not None and not 0.01 <= options.dram_bytes_per_cycle <= 10000:
            raise UserError(f"--dram-bytes-per-cycle must lie in 0.01..10000, not {options.dram_bytes_per_cycle}")
        if not 0 <= options.stalls < 1:
            raise UserError(f"--stalls must lie in 0..1 (1 excluded), not {options.stalls}")
        try:
            first, last = (int(part) for part in options.trace_cycles.split(":"))
        except ValueError:
            raise UserError(f"--trace-cycles must be FROM:TO in cycles, not {options.trace_cycles!r}") from None
        if not 0 <= first < last:
            raise UserError(f"--trace-cycles must be FROM:TO with 0 <= FROM < TO, not {options.trace_cycles!r}")
        if options.trace_fst is not None:
            if options.device != "rtl":
                raise UserError("--trace-fst records the simulated hardware: give --device rtl with it")
            if options.trace_fst.exists():
                raise UserError(f"{options.trace_fst} exists already: give another --trace-fst, nothing is overwritten")
        return cls(
            options.dram_latency, options.dram_bytes_per_cycle, options.stalls, options.trace_fst, (first, last)
        )

    def record(self) -> dict[str, Any]:
        """What a run's record keeps (a waveform belongs to one session, not to the run)."""
        return {"latency": self.latency, "bytes_per_cycle": self.bytes_per_cycle, "stalls": self.stalls}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "MemoryOptions":
        return cls(record["latency"], record["bytes_per_cycle"], record["stalls"])


@dataclasses.dataclass(frozen=True)
class Score:
    """Evaluation of a set of images."""

    loss: float
    correct: int
    images: int


def check_fit(network: Network, data: Dataset, batch: int) -> None:
    """Raises :exc:`UserError` if the network cannot take this data in batches of this size."""
    if data.train_x.shape[1:] != network.input_shape:
        raise UserError(
            f"network {network.name} takes images of {network.input_shape} (channels, rows, columns), "
            f"data {data.name} has {data.train_x.shape[1:]}: give fitting data or change the network's input"
        )
    if data.classes > network.classes:
        raise UserError(
            f"data {data.name} has {data.classes} classes, network {network.name} only {network.classes}: "
            "give a network with as many outputs"
        )
    if batch > len(data.train_y):
        raise UserError(f"--batch {batch} is more than the {len(data.train_y)} training images of {data.name}")


def rtl_device(config: Config, size: int, memory: MemoryOptions) -> "RtlDevice":
    """The simulated machine with ``size`` bytes of memory; it may take minutes to build."""
    from gradloom.sim.rtl_device import DramModel, RtlDevice
    from gradloom.sim.verilate import BuildError

    bandwidth = None if memory.bytes_per_cycle is None else Fraction(memory.bytes_per_cycle).limit_denominator(1000)
    model = DramModel(bandwidth=bandwidth, latency=memory.latency, write_latency=memory.latency, stall=memory.stalls)
    try:
        device = RtlDevice(config, dram_bytes=size, dram=model, track_writes=True, trace=memory.trace is not None)
    except BuildError as error:
        raise UserError(f"the simulator cannot be built ({error}): run gradloom doctor") from None
    if memory.trace is not None:
        first, last = memory.trace_cycles
        try:
            device.trace(memory.trace, first=first, cycles=last - first)
        except RuntimeError:
            device.close()
            raise UserError(f"--trace-fst {memory.trace} cannot be written: give a file in a folder that exists") from None
    return device


def _print_warning(text: str) -> None:
    print(f"gradloom: warning: {text}", file=sys.stderr, flush=True)


class Session:
    """One network on one device, as a context manager."""

    def __init__(
        self,
        network: Network,
        config: Config,
        batch: int,
        device: str,
        input_exponent: int,
        seed: int,
        memory: MemoryOptions,
        *,
        export_dw: bool = True,
        choices: Choices | None = None,
    ) -> None:
        self._network, self._batch = network, batch
        self._step = 0
        self._told: set[tuple[str, str]] = set()
        self.notice: Callable[[str], None] = _print_warning
        """Takes warnings: of sums near their limit and of saturated logits, each kind once for every layer."""
        self._result: Step | None = None
        self._runner: ProgramRunner | None = None
        self._model: StepModel | None = None
        if device == "golden":
            self._model = GoldenModel(network, State.initial(network, seed, input_exponent))
        elif is_emulator(device):
            self._model = emulator(network, State.initial(network, seed, input_exponent), device)
        else:
            check_device(device, config, memory.trace)
            self._runner = ProgramRunner(
                network, config, batch, STEPS_PER_START, lambda size: rtl_device(config, size, memory),
                export_dw=export_dw, choices=choices,
            )
        self.export_dw = export_dw
        """Whether the weight gradients are stored, and so can be compared."""

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            self._runner.close()

    @property
    def _machine(self) -> ProgramRunner:
        assert self._runner is not None
        return self._runner

    @property
    def cycles(self) -> int | None:
        """Simulated cycles of this session so far; ``None`` on a device that counts none."""
        return None if self._runner is None else self._runner.cycles

    def cycles_total(self, previous: dict[str, Any] | None) -> int | None:
        """Cycles of the run: those that an earlier session's ``cycle_table`` holds and those since."""
        return None if self._runner is None else (previous or {}).get("total", 0) + self._runner.cycles

    def cycle_table(self, previous: dict[str, Any] | None) -> dict[str, Any] | None:
        """Busy cycles of every engine by layer and phase, added to the table of earlier calls."""
        return None if self._runner is None else self._runner.cycle_table(previous)

    def load(self, state: State) -> None:
        """Put a state on the device."""
        self._step = state.step
        if self._model is not None:
            self._model.load(state)
        else:
            self._machine.load(state.copy())

    def state(self) -> State:
        """The device's state."""
        return self._machine.state() if self._model is None else self._model.state()

    def train(
        self,
        images: Sequence[np.ndarray],
        labels: Sequence[np.ndarray],
        hypers: Sequence[Hyper],
        report: Callable[[float], None] | None = None,
    ) -> list[Outcome]:
        """Train one step per batch, all from one start of the machine; ``report`` hears how many steps are done.

        Raises
        ------
        :exc:`~gradloom.host.devices.device.MachineError`
            If a step cannot be computed (:exc:`~gradloom.host.devices.limits.LimitReached`) or the machine stops otherwise.
        """
        if self._model is None:
            outcomes = self._machine.train(images, labels, hypers, report)
            for number, outcome in enumerate(outcomes):
                self._warn(f"step {self._step + number}", outcome, len(labels[number]))
            self._step += len(outcomes)
            return outcomes
        outcomes = []
        for number, (x, y, hyper) in enumerate(zip(images, labels, hypers, strict=True)):
            when = f"step {self._step}"
            with told(when):
                self._result = self._model.train_step(x, y, hyper)
            result = self._result
            extreme = 0 if self._network.arithmetic.real else saturated(result.tensors[self._network.logits.name, "logits"])
            outcome = Outcome(finite(when, result.loss), result.correct, extreme, result.near)
            self._warn(when, outcome, len(y))
            outcomes.append(outcome)
            self._step += 1
            if report is not None:
                report(number + 1)
        return outcomes

    def _warn(self, when: str, outcome: Outcome, images: int) -> None:
        """Tell of an outcome what has not been told before."""
        self._warn_saturated(when, outcome.saturated, images)
        new = {key: bits for key, bits in outcome.near.items() if key not in self._told}
        self._told |= set(new)
        for text in near_text(when, new):
            self.notice(text)

    def _warn_saturated(self, when: str, count: int, images: int) -> None:
        layer = self._network.logits.name
        if count and (layer, "logits") not in self._told:
            self._told.add((layer, "logits"))
            self.notice(saturation_text(when, layer, count, images * self._network.classes))

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Score:
        """Forward passes over all images; the state stays as it is."""
        loss, correct, extreme, when = 0.0, 0, 0, f"evaluation after {self._step} steps"
        for start in range(0, len(labels), self._batch):
            x, y = images[start : start + self._batch], labels[start : start + self._batch]
            if self._model is not None:
                with told(when):
                    result = self._model.evaluate(x, y)
                loss, correct, logits = loss + result.loss * len(y), correct + result.correct, result.logits
            else:
                logits = self._machine.logits(x)
                batch_loss, batch_correct = golden.score(self._network, logits, y)
                loss, correct = loss + batch_loss * len(y), correct + batch_correct
            extreme += saturated(logits)
        self._warn_saturated(when, extreme, len(labels))
        return Score(loss / len(labels), correct, len(labels))

    def tensor(self, layer: str, name: str) -> np.ndarray:
        """A tensor that the latest step wrote, in its logical shape."""
        if self._runner is not None:
            return self._runner.tensor(layer, name)
        assert self._result is not None
        return self._result.tensors[layer, name]

    def exponents(self) -> dict[int, int]:
        """Exponents by tensor number, after the latest step."""
        return self._machine.exponents() if self._model is None else self._model.exponents

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        """Cycle in which an element was last written, where the device knows."""
        return None if self._runner is None else self._runner.written_at(layer, name, index)
