"""Two devices side by side on the same batches: the first tensor that differs, and a waveform of the moment."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.host.devices.tensor_order import element_text, phase
from gradloom.host.devices.verification import Comparison, Difference, compare_tensors
from gradloom.host.runs.progress import StepProgress
from gradloom.models.golden.step import Hyper, StepResult, expected_tensors
from gradloom.models.layers import Kind
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["Batches", "Found", "Side", "TraceRequest", "compare_devices", "describe", "trace_difference"]


@dataclasses.dataclass(frozen=True)
class Side:
    """A device: its name on the command line, its machine, and what reports call it."""

    device: str
    config: Config
    memory: MemoryOptions
    title: str

    def open(self, batches: "Batches", *, memory: MemoryOptions | None = None) -> Session:
        session = Session(
            batches.network, self.config, batches.batch, self.device, batches.exponent, batches.initial.seed, memory or self.memory
        )
        session.load(batches.initial)
        return session


@dataclasses.dataclass(frozen=True)
class Batches:
    """What both sides train on: a network, its first state, and one batch and hyperparameters a step."""

    network: Network
    initial: State
    images: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    hypers: Sequence[Hyper]

    @property
    def batch(self) -> int:
        return len(self.labels[0])

    @property
    def exponent(self) -> int:
        return self.initial.exponents[Kind.Z]


@dataclasses.dataclass(frozen=True)
class TraceRequest:
    """A waveform to write, from so many cycles before the difference to as many after it."""

    file: Path
    margin: int


@dataclasses.dataclass(frozen=True)
class Found:
    """Result of a comparison. ``values`` and ``cycles`` of a difference are those of the two sides in their order."""

    tensors: int
    bytes: int
    difference: Difference | None
    values: tuple[int, int] = (0, 0)
    cycles: tuple[int | None, int | None] = (None, None)


def compare_devices(batches: Batches, sides: tuple[Side, Side]) -> Found:
    """Train both sides step by step and compare every tensor; stops at the first step that differs."""
    with sides[0].open(batches) as first, sides[1].open(batches) as second:
        sessions = (first, second)
        # The side that knows cycles is compared as a device, so that they decide which tensor was written first.
        turned = second.cycles is None and first.cycles is not None
        tensors = size = 0
        progress = StepProgress(len(batches.labels))
        first.notice = second.notice = progress.warn
        try:
            for step in range(len(batches.labels)):
                outcomes = [_train(session, batches, step) for session in sessions]
                comparison = _compare(batches.network, step, *(sessions[::-1] if turned else sessions))
                tensors, size = tensors + comparison.tensors, size + comparison.bytes
                if comparison.difference is not None:
                    return _found(comparison.difference, tensors, size, sessions, turned)
                progress.update(step + 1, loss=outcomes[0], accuracy=None, cycles=second.cycles or first.cycles)
        finally:
            progress.close()
    return Found(tensors, size, None)


def _train(session: Session, batches: Batches, step: int) -> float:
    return session.train([batches.images[step]], [batches.labels[step]], [batches.hypers[step]])[0].loss


def _compare(network: Network, step: int, reference: Session, device: Session) -> Comparison:
    tensors = {key: np.asarray(reference.tensor(*key)) for key in expected_tensors(network, export_dw=device.export_dw)}
    return compare_tensors(network, step, StepResult(tensors, {}, 0.0, 0, {}), reference.state(), device)


def _found(difference: Difference, tensors: int, size: int, sessions: tuple[Session, Session], turned: bool) -> Found:
    values = (difference.device, difference.golden) if turned else (difference.golden, difference.device)
    cycles = tuple(
        None if difference.tensor.startswith("exponent") else
        session.written_at(difference.layer, difference.tensor, difference.index)
        for session in sessions
    )
    return Found(tensors, size, difference, values, (cycles[0], cycles[1]))


def describe(network: Network, found: Found, titles: tuple[str, str]) -> str:
    """The difference in one line."""
    difference = found.difference
    assert difference is not None
    sides = []
    for title, value, cycle in zip(titles, found.values, found.cycles, strict=True):
        written = "" if cycle is None else f", written in cycle {cycle}"
        sides.append(f"{title} {element_text(network, difference.tensor, value)}{written}")
    return (
        f"step {difference.step}, layer {difference.layer!r}, phase {phase(difference.tensor)}, tensor {difference.tensor}, "
        f"element {list(difference.index)}: {'; '.join(sides)}"
    )


def trace_difference(batches: Batches, sides: tuple[Side, Side], found: Found, request: TraceRequest) -> tuple[int, int] | None:
    """Repeat the hardware's run with a waveform around the cycle that wrote the differing element.

    Returns the waveform's (first, last) cycle, or ``None`` if no side knows a cycle.
    """
    difference = found.difference
    assert difference is not None
    chosen = next((n for n in (1, 0) if found.cycles[n] is not None), None)
    if chosen is None:
        return None
    cycle = found.cycles[chosen]
    assert cycle is not None
    window = (max(0, cycle - request.margin), cycle + request.margin)
    memory = dataclasses.replace(sides[chosen].memory, trace=request.file, trace_cycles=window)
    with sides[chosen].open(batches, memory=memory) as session:
        for step in range(difference.step + 1):
            _train(session, batches, step)
            # The registers that the comparison read took cycles as well.
            session.exponents()
        again = session.written_at(difference.layer, difference.tensor, difference.index)
    if again != cycle:
        raise RuntimeError(f"the repeated run wrote the element in cycle {again}, the first one in cycle {cycle}")
    return window
