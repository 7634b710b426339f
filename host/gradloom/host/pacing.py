"""Commands of independent work, interleaved so that the engines that carry them advance side by side.

Every engine takes its commands in the order of the program. Weight gradients of a layer (array), the backward convolution of
the layer before it (array) and that one's normalisation (A-Core) depend on nothing of each other, but one behind the
other in the program the second would wait for the first. A piece of work is therefore a generator that emits some commands and
yields the cycles that they keep their engine busy; :class:`Pacer` emits first what is due first.
"""

import enum
from collections.abc import Iterator

__all__ = ["Lane", "Pacer", "Work"]

Work = Iterator[int]
"""Emits a few commands at each step, and yields the cycles of the engine that bounds them."""


class Lane(enum.Enum):
    """The engine that bounds deferred work; lanes advance independently of each other."""

    ARRAY = enum.auto()
    ACORE = enum.auto()


class _Queue:
    """Deferred work of one lane, in order."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, Work]] = []
        self.spent = 0

    def advance(self) -> None:
        cycles = next(self.pieces[0][1], None)
        if cycles is None:
            self.pieces.pop(0)
        else:
            self.spent += cycles


class Pacer:
    """Work of the present (`run`) and work that may trail behind it (`defer`).

    Deferred work begins with what runs next and keeps ahead of it by about one step, so that an engine has something to do
    while the first step's results are on their way.
    """

    def __init__(self) -> None:
        self._queues = {lane: _Queue() for lane in Lane}
        self._lead = 0

    def defer(self, work: Work, lane: Lane, gives: str = "") -> None:
        """Emit ``work``, which computes ``gives``, beside what runs from now on."""
        self._queues[lane].pieces.append((gives, work))

    def run(self, work: Work) -> None:
        """Emit all of ``work``, with deferred work in between."""
        elapsed = 0
        starts = {lane: queue.spent for lane, queue in self._queues.items()}
        while True:
            for lane, queue in self._queues.items():
                while queue.pieces and queue.spent - starts[lane] < elapsed + self._lead:
                    queue.advance()
            cycles = next(work, None)
            if cycles is None:
                return
            elapsed += cycles
            self._lead = cycles

    def need(self, *names: str | None) -> None:
        """Emit deferred work until nothing that gives one of ``names`` is left."""
        for queue in self._queues.values():
            while any(gives in names for gives, _ in queue.pieces):
                queue.advance()

    def flush(self) -> None:
        """Emit all deferred work."""
        for queue in self._queues.values():
            while queue.pieces:
                queue.advance()
