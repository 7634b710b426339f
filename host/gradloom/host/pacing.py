"""Commands of independent work, interleaved so that the engines that carry them advance side by side.

Every engine takes its commands in the order of the program. Weight gradients of a layer (array) and the normalisation's
backward of the layer before it (A-Core) depend on nothing of each other, but one behind the other in the program the
second would wait for the first. A piece of work is therefore a generator that emits some commands and yields the
cycles that they keep their engine busy; :class:`Pacer` emits first what is due first.
"""

from collections.abc import Iterator

__all__ = ["Pacer", "Work"]

Work = Iterator[int]
"""Emits a few commands at each step, and yields the cycles of the engine that bounds them."""


class Pacer:
    """Work of the present (`run`) and work that may trail behind it (`defer`).

    Both start at the same time; whichever has used fewer cycles goes on.
    """

    def __init__(self) -> None:
        self._deferred: list[Work] = []
        self._spent = 0

    def defer(self, work: Work) -> None:
        """Emit ``work`` beside what runs until the next :meth:`flush`."""
        if not self._deferred:
            self._spent = 0
        self._deferred.append(work)

    def run(self, work: Work) -> None:
        """Emit all of ``work``, with deferred work in between."""
        elapsed = 0
        start = self._spent
        for cycles in work:
            elapsed += cycles
            while self._deferred and self._spent - start < elapsed:
                self._advance()

    def flush(self) -> None:
        """Emit all deferred work."""
        while self._deferred:
            self._advance()

    def _advance(self) -> None:
        cycles = next(self._deferred[0], None)
        if cycles is None:
            self._deferred.pop(0)
        else:
            self._spent += cycles
