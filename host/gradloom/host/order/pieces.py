"""Pieces of work: commands that are emitted together, and what they wait for and take, as the list scheduler sees them
(:mod:`gradloom.host.order.list_scheduler`)."""

import dataclasses
import enum
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from gradloom.host.order.accesses import Access
from gradloom.host.order.allocators import CachedRing, FreeListAllocator

__all__ = ["OPEN", "BoundEngine", "Deferred", "Gate", "Kept", "Known", "Piece", "Relief", "Results", "Work"]


class BoundEngine(enum.IntEnum):
    """The engine that bounds a piece."""

    LOAD = enum.auto()
    ARRAY = enum.auto()
    ACORE = enum.auto()


class Known(Protocol):
    """A task (:class:`~gradloom.host.order.tasks.Task`), as far as its place in the order goes.

    Attributes
    ----------
    emitted : whether its last command has been emitted
    through : when the commands that it ended with are done
    """

    emitted: bool
    through: int

    @property
    def after(self) -> "Sequence[Known]":
        """Tasks that it has to come after."""

    @property
    def gated(self) -> "Sequence[Known]":
        """Tasks that its gate waits for."""

    def taken(self) -> Iterator[Access]:
        """Parts of rings that it would take if it came now: nothing there may be still to be used."""

    def read(self) -> Sequence[Access]:
        """Regions in DRAM that it reads, or its gate waits for, and what others have made on the array; known when it may come."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """What has to be done before a task begins, although its own commands could run before.

    A task that takes room on chip and holds it until later tasks have come waits here for what all of them need. Begun too early,
    tiles would hold room that others need, and wait for each other. The tasks that a gate waits for follow from regions, as all
    dependences do: those that have accessed them before, in the order of meaning.

    Parameters
    ----------
    written : regions that later tasks read: whoever writes them comes first
    settled : regions that are to be left alone: whoever reads or writes them comes first
    summed : regions that the array is to be finished with: those of its tasks whose sums become these come first
    """

    written: tuple[Access, ...] = ()
    settled: tuple[Access, ...] = ()
    summed: tuple[Access, ...] = ()

    def __or__(self, other: "Gate") -> "Gate":
        """Waits for what either waits for."""
        return Gate(self.written + other.written, self.settled + other.settled, self.summed + other.summed)


OPEN = Gate()
"""Waits for nothing."""


class Results:
    """Where the first results of a piece of the array will go on chip, as its memory's allocator says when it is asked."""

    def place(self) -> Access | None:
        """What has to be free before the array begins."""
        return None

    def unused(self) -> Sequence[Access]:
        """What nothing may lie in that is still to be used."""
        return ()

    def readers(self) -> Sequence[Known]:
        """Tasks that have yet to read what lies there: they come before."""
        return ()

    def disjoint(self) -> bool:
        """Whether results of others that have begun lie elsewhere, so that the piece may come between theirs."""
        return False


class Kept(NamedTuple):
    """Operands that are loaded unless the ring still holds them by a key."""

    ring: CachedRing
    key: Hashable


class Deferred:
    """What a piece does late, as nobody waits for it, or before, where others want the room that it gives back.

    Attributes
    ----------
    done : :class:`bool`
        The piece has nothing left to do.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action, self.done = action, False

    def do(self) -> None:
        """Once."""
        assert not self.done
        self.done = True
        self._action()


class Relief(NamedTuple):
    """Room that a piece's own work holds, and could give back: what is ``deferred``, the oldest first, ``most`` at a time."""

    deferred: tuple[Deferred, ...] = ()
    most: int = 0

    def give(self) -> bool:
        """Give some back; says whether there was any."""
        found = [deferred for deferred in self.deferred if not deferred.done][: self.most]
        for deferred in found:
            deferred.do()
        return bool(found)


class Piece(NamedTuple):
    """Commands that are emitted together.

    Parameters
    ----------
    lane : the engine that bounds them
    cycles : of that engine
    gate : what must have been emitted before, beside what its commands come after by their accesses
    room : addresses that must be free on chip, which these commands take
    opens, closes : a queue of operands of the array that these commands add to, or have used the oldest of
    ahead : sets of operands in that queue, at most; ``None``: as chosen for all
    lag : cycles by which the A-Core may lag behind the begin of an array piece without making the array wait
    late : whether nobody waits for it, so that the A-Core may do anything else first
    weights : beats of weights that must be there before its first window, or, of a load, that it brings
    kept : where these may still lie when the work comes to the piece, so that none need be loaded
    sweeps : cycles in which its results leave the array and the A-Core takes them
    inside : whether it goes on with what a piece before it has begun: what that one closes is free with the last of them, and no
        other work's partial sums come between those of the array
    idle : whether gradients may come before a piece that goes on, if they are through when it could start
    holds : whether its work has gathered gradients that wait for further spans, beside which no other work of its line has room
    passes : whether it may come before earlier works of its line that cannot
    silent : whether the A-Core gets nothing to do by it
    results : where its first results go
    loads : whether what the A-Core needs is loaded first
    passes_first : whether it is a first pass of the A-Core only, beside which others are swept
    update : whether it updates weights, so that nobody waits for it but gradients that want its room
    relief : where all works wait for room
    deferred : what it does, unless that has been done when the work comes to it
    task : whose it is, if its commands are known
    """

    lane: BoundEngine
    cycles: int
    gate: Gate = OPEN
    room: tuple[tuple[FreeListAllocator, int], ...] = ()
    opens: str = ""
    closes: str = ""
    ahead: int | None = None
    lag: int = 0
    late: bool = False
    weights: int = 0
    kept: Kept | None = None
    sweeps: int = 0
    inside: bool = False
    idle: bool = False
    holds: bool = False
    passes: bool = False
    silent: bool = False
    results: Results | None = None
    loads: bool = True
    passes_first: bool = False
    update: bool = False
    relief: Relief = Relief()
    deferred: Deferred | None = None
    task: "Known | None" = None

    def now(self, task: "Known | None" = None) -> "Piece":
        """The same, when its work has come to it."""
        there = self.kept is not None and self.kept.ring.held(self.kept.key) is not None
        return self._replace(weights=0 if there else self.weights, task=task)

    @property
    def long_sweep(self) -> bool:
        """Whether the array would wait for its results before the next one of its kind."""
        return self.sweeps > self.cycles


Work: TypeAlias = Iterator[Piece]
"""Yields every piece before its commands, which are emitted when it is resumed."""
