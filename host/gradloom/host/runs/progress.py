"""The progress line of long work: what is done, how it goes and how long it will take."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["StepProgress"]


class StepProgress:
    """Steps of a run with loss, accuracy, cycles and time left.

    On a terminal a live line; elsewhere a plain line now and then, so that a log stays readable.

    Parameters
    ----------
    total, done : :class:`int`
        Steps of the whole run, and those done before it started.
    unit : :class:`str`
        What a step is called.
    quiet_seconds : :class:`float`
        Least time between two lines where the output is no terminal.
    """

    def __init__(self, total: int, done: int = 0, *, unit: str = "step", quiet_seconds: float = 10.0) -> None:
        self._total, self._first, self._done, self._unit = total, done, float(done), unit
        self._start = time.monotonic()
        self._quiet_seconds, self._last_line = quiet_seconds, 0.0
        self._text = ""
        self._warned: set[str] = set()
        self._live: Progress | None = None
        if sys.stderr.isatty():
            self._live = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
            )
            self._task = self._live.add_task("training", total=total, completed=done, text="")
            self._live.start()

    def left(self) -> str:
        """Estimate of the time left, from the pace so far."""
        progressed = self._done - self._first
        if progressed <= 0:
            return "time left unknown"
        seconds = (time.monotonic() - self._start) / progressed * (self._total - self._done)
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02d} left"

    def update(self, done: float, *, loss: float | None, accuracy: float | None, cycles: int | None) -> None:
        """``done`` steps (fractions count) are behind us; loss and accuracy are those of the latest steps."""
        self._done = max(self._done, done)
        parts = [f"{self._unit} {int(self._done)}/{self._total}"]
        if loss is not None:
            parts.append(f"loss {loss:.3f}")
        if accuracy is not None:
            parts.append(f"accuracy {100 * accuracy:.1f} %")
        if cycles is not None:
            parts.append(f"{cycles / 1e6:.2f} M cycles")
        parts.append(self.left())
        self._text = "  ".join(parts)
        if self._live is not None:
            self._live.update(self._task, completed=self._done, text=self._text)
        elif time.monotonic() - self._last_line >= self._quiet_seconds or self._done >= self._total:
            self._last_line = time.monotonic()
            print(self._text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line above the progress line."""
        if self._live is not None:
            self._live.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """A warning above the progress line, each once."""
        if text not in self._warned:
            self._warned.add(text)
            self.note(f"gradloom: warning: {text}")

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
