"""Where work tells how it goes: the console of the command line, or a Python program that may want to hear nothing."""

import dataclasses
import sys
import warnings
from collections.abc import Callable
from typing import Protocol

from gradloom.host.runs.progress import StepProgress

__all__ = ["Console", "Listener", "Progress", "Reporter", "StepReport"]


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is.

    Parameters
    ----------
    done : :class:`float`
        Steps that are behind us; fractions count.
    total : :class:`int`
        Steps of the whole run.
    loss, accuracy : :class:`float`, optional
        Of the latest steps; ``None`` before the first.
    cycles : :class:`int`, optional
        Of the machine so far; ``None`` on a device that counts none.
    """

    done: float
    total: int
    loss: float | None
    accuracy: float | None
    cycles: int | None


class StepReport(Protocol):
    """Takes what happens in the steps of a run, as :class:`~gradloom.host.runs.progress.StepProgress` does."""

    def update(self, done: float, *, loss: float | None, accuracy: float | None, cycles: int | None) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def close(self) -> None: ...


class Reporter(Protocol):
    """Takes what work tells of itself."""

    def line(self, text: str) -> None:
        """What is done, or has come of it."""

    def notice(self, text: str) -> None:
        """What could be done better, such as a schedule that is missing."""

    def warn(self, text: str) -> None:
        """What is to be looked at, such as numbers at the ends of their range."""

    def steps(self, total: int, done: int = 0) -> StepReport:
        """Steps begin: so many of the run, some of them done before."""


class Console:
    """What the command line prints: results to standard output, the rest to standard error."""

    def line(self, text: str) -> None:
        print(f"gradloom: {text}", flush=True)

    def notice(self, text: str) -> None:
        print(f"gradloom: {text}", file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        self.notice(f"warning: {text}")

    def steps(self, total: int, done: int = 0) -> StepReport:
        return StepProgress(total, done)


class Listener:
    """Prints nothing. A function may hear of the progress; warnings are Python's (:exc:`UserWarning`)."""

    def __init__(self, heard: Callable[[Progress], None] | None = None) -> None:
        self._heard = heard

    def line(self, text: str) -> None:
        """Results are returned."""

    def notice(self, text: str) -> None:
        """Costs nothing but time."""

    def warn(self, text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=2)

    def steps(self, total: int, done: int = 0) -> StepReport:
        return _Heard(total, self._heard, self.warn)


class _Heard:
    def __init__(self, total: int, heard: Callable[[Progress], None] | None, warn: Callable[[str], None]) -> None:
        self._total, self._heard, self._warn = total, heard, warn
        self._warned: set[str] = set()

    def update(self, done: float, *, loss: float | None, accuracy: float | None, cycles: int | None) -> None:
        if self._heard is not None:
            self._heard(Progress(done, self._total, loss, accuracy, cycles))

    def note(self, text: str) -> None:
        """Notes accompany a progress line."""

    def warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    def close(self) -> None:
        """Nothing is open."""
