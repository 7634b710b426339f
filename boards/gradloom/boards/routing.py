"""Whether a router is on its way to an end."""

import re

__all__ = ["Diverges"]

_ITERATION = re.compile(r"\biter=(\d+) wires=\d+ overused=(\d+)")
_PATIENCE = 20
"""Iterations since there were fewest wires that several nets want."""
_MORE = 4
"""Times as many as then."""


class Diverges:
    """Takes the lines of nextpnr's router2; true from the one on that shows that it moves away from an end.

    An iteration tells how many wires several nets want. On the way to none there are plateaus, some dozens of iterations with one
    or two of them, but none that rises far. Where many nets near the longest path meet, of which each pays little for a wire that
    it shares with others, their number falls for some 40 iterations and then grows without end.
    """

    def __init__(self) -> None:
        self._fewest: int | None = None
        self._when = 0

    def __call__(self, line: str) -> bool:
        found = _ITERATION.search(line)
        if not found:
            return False
        iteration, overused = int(found[1]), int(found[2])
        if self._fewest is None or overused <= self._fewest:
            self._fewest, self._when = overused, iteration
        return iteration - self._when >= _PATIENCE and overused > _MORE * self._fewest
