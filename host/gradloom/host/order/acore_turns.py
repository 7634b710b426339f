"""What the A-Core does next where its work comes in many small pieces, which its three stages take side by side.

A command passes a first pass over its planes, the preparation of its scalars and the sweep, in order; each stage may hold another
command (docs/machine.md, section 5). So a first pass, or an update of parameters, which is all preparation, costs nothing if sweeps
are under way that take as long. And a sweep costs others nothing if nothing else could be swept meanwhile.
"""

import dataclasses
import enum
from collections.abc import Sequence

__all__ = ["AcoreWork", "Turn", "acore_turn"]

_BESIDE = 100
"""Cycles of sweeps ahead from which on something else may pass the first two stages."""
_PREPARED = 40
"""In which a sweep is prepared, about."""
_SCALARS = 400
"""The same for scalars only, which take longer."""
_LATE = 200
"""Cycles by which an update of weights may keep others waiting."""


class Turn(enum.Enum):
    """What a piece takes: the lanes, for what others wait for or for an update of weights; a first pass; scalars only."""

    SWEEP = enum.auto()
    UPDATE = enum.auto()
    PASS = enum.auto()
    SCALARS = enum.auto()


@dataclasses.dataclass(frozen=True)
class AcoreWork:
    """A piece that may come next: what it takes, when it has what it needs, its cycles."""

    turn: Turn
    ready: int
    cycles: int


def acore_turn(works: Sequence[AcoreWork], accepts: int, free: int, lanes: int, *, crowded: bool) -> tuple[int, int]:
    """When the A-Core begins with which of some pieces, the first of those that are alike.

    Parameters
    ----------
    accepts, free : when its first stage could take a command, and when what it has taken is through
    lanes : when the lanes are through with what they have
    crowded : whether others wait for room that updates would give back
    """

    def first(turn: Turn) -> tuple[int, int] | None:
        start = max(accepts, free - _PREPARED) if turn in (Turn.SWEEP, Turn.UPDATE) else accepts
        return min(((max(start, work.ready), n) for n, work in enumerate(works) if work.turn == turn), default=None)

    sweep, update, early, scalars = (first(turn) for turn in (Turn.SWEEP, Turn.UPDATE, Turn.PASS, Turn.SCALARS))
    if lanes - accepts >= _BESIDE:
        if early and early[0] <= accepts:
            return early
        if scalars and lanes - accepts >= _SCALARS:
            return scalars
    next_one = min((found for found in (sweep, early) if found), default=None)
    if sweep and early and sweep[0] <= early[0] + _BESIDE:
        next_one = sweep
    if update and (not next_one or max(update[0], free) + works[update[1]].cycles <= next_one[0] + _LATE):
        return update
    if scalars and (not next_one or scalars[0] + works[scalars[1]].cycles <= next_one[0] or crowded):
        return scalars
    assert next_one is not None
    return next_one
