"""Tasks: commands that are known before it is known when they come, on places on chip that are found when they do.

A layer's commands are made in the order of their meaning and put into tasks, each with the piece of work
(:mod:`gradloom.host.order.pieces`) by which it is scheduled. What depends on the order in which tasks come is found when a task is
emitted: addresses on chip (an :class:`Address` is so far into a :class:`Place` that its ring or pool has still to find), and the
channel of loads that several share (:class:`Way`).
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from gradloom.contracts.config import PE_ROWS
from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.order.accesses import Access
from gradloom.host.order.allocators import FreeListAllocator, RingAllocator
from gradloom.host.order.pieces import Piece

__all__ = ["Address", "Allocator", "Call", "Collector", "Command", "CommandEmitter", "Emitter", "Fields", "GiveBack",
           "Later", "Number", "Place", "PlannedAccess", "PlannedPool", "PlannedRing", "Region", "Start", "Step",
           "Take", "Task", "Uses", "Way", "emitted", "known", "planned_rows", "together"]


_GRADIENTS = "DW"
"""The buffer of weight gradients."""


class CommandEmitter(Protocol):
    """Where commands go whose addresses have been found (:class:`~gradloom.host.compilation.transfers.Transfers`)."""

    def emit(self, command: "Command", fields: dict[str, Any], reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Emit a command, all of whose fields and accesses have been found."""

    def way(self, dest: Dest, *, shared: bool, most: int | None = None) -> int:
        """As :meth:`gradloom.host.order.synchronize.Recorder.way`."""

    def set_tag(self, tag: int) -> None:
        """Give a tag to what is emitted from now on."""


class Emitter(CommandEmitter, Protocol):
    """Where the steps of tasks go (:class:`~gradloom.host.compilation.program_builder.ProgramBuilder`)."""

    def start(self, tasks: "Sequence[Task]") -> None:
        """Emit tasks one after the other from now on, beside all others."""


class Later:
    """A number, or a name, that is known when the task is emitted; ``source`` is what has to be found for it."""

    __slots__ = ("_make", "source")

    def __init__(self, source: object, make: Callable[[], int | str]) -> None:
        self.source, self._make = source, make

    def find(self) -> int | str:
        """It, once its source has been found."""
        return self._make()

    def __add__(self, more: int) -> "Later":
        return Later(self.source, lambda: int(self.find()) + more)

    def __and__(self, mask: int) -> "Later":
        return Later(self.source, lambda: int(self.find()) & mask)

    def __mod__(self, modulus: int) -> "Later":
        return Later(self.source, lambda: int(self.find()) % modulus)


Number: TypeAlias = int | Later
Fields: TypeAlias = Mapping[str, Any]
"""Of a command; numbers, of which some may be known :class:`Later`, and the channel of a load (:class:`Way`)."""


class PlannedAccess(NamedTuple):
    """An :class:`~gradloom.host.order.accesses.Access` to addresses on chip that may be known later."""

    space: "str | Later"
    box: tuple[tuple[Number, Number], ...]

    @property
    def sources(self) -> list[object]:
        """What has to be found for it."""
        return [value.source for value in (self.space, *(low for low, _ in self.box)) if isinstance(value, Later)]

    def known(self) -> Access:
        """When all has been found."""
        return Access(str(_found(self.space)), tuple((_found(low), _found(high)) for low, high in self.box))


def planned_rows(space: str, first: Number, count: int, banks: tuple[int, int] = (0, PE_ROWS)) -> PlannedAccess:
    """As :func:`~gradloom.host.order.accesses.row_access`."""
    return PlannedAccess(space, ((first, first + count), banks))


class Way:
    """The channel of some loads, which the first of them chooses."""

    __slots__ = ("_dest", "_found", "_most")

    def __init__(self, dest: Dest, most: int | None) -> None:
        self._dest, self._most = dest, most
        self._found: int | None = None

    def choose(self, emitter: CommandEmitter) -> int:
        """The channel; all later calls give the same."""
        if self._found is None:
            self._found = emitter.way(self._dest, shared=True, most=self._most)
        return self._found


class Allocator(Protocol):
    """A memory that hands out addresses: a ring, a pool, or a region of one."""

    def take(self, count: int) -> int:
        """First of ``count`` successive addresses."""


class Place:
    """``count`` addresses of an on-chip memory; ``start`` is the first one, once they have been found."""

    __slots__ = ("_start", "count")

    def __init__(self, count: int) -> None:
        self.count = count
        self._start: int | None = None

    @property
    def start(self) -> int:
        """Raises :exc:`ValueError` before they have been found."""
        if self._start is None:
            raise ValueError("a command uses addresses that nothing has taken before it")
        return self._start

    @start.setter
    def start(self, found: int) -> None:
        self._start = found


class Address(Later):
    """So many addresses into a place."""

    __slots__ = ("offset", "place")

    def __init__(self, place: Place, offset: int = 0) -> None:
        self.source = self.place = place
        self.offset = offset

    def find(self) -> int:
        return self.place.start + self.offset

    def __add__(self, more: int) -> "Address":
        return Address(self.place, self.offset + more)

    def __int__(self) -> int:
        return self.find()


class Region:
    """A ring in a part of a memory that is taken when a task is emitted.

    Parameters
    ----------
    size : :class:`int`
        Addresses.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.ring: RingAllocator | None = None

    def _opened(self) -> RingAllocator:
        if self.ring is None:
            raise ValueError("a command uses a region that nothing has opened before it")
        return self.ring

    def take(self, count: int) -> int:
        """As :meth:`gradloom.host.order.allocators.RingAllocator.take`; like the others it raises :exc:`ValueError` before it is
        opened."""
        return self._opened().take(count)

    def held(self, key: Hashable) -> int | None:
        """As :meth:`gradloom.host.order.allocators.RingAllocator.held`."""
        return self._opened().held(key)

    def take_for(self, key: Hashable, count: int) -> int:
        """As :meth:`gradloom.host.order.allocators.RingAllocator.take_for`."""
        return self._opened().take_for(key, count)


class Uses(NamedTuple):
    """What a step reads and writes: parts of tensors in DRAM; places on chip that it uses, and that it takes or fills; sums and
    gradients that the array has made."""

    reads: Sequence[Access] = ()
    writes: Sequence[Access] = ()
    places: Sequence[object] = ()
    filled: Sequence[object] = ()
    made: Sequence[PlannedAccess] = ()


def together(every: Iterable[Uses]) -> Uses:
    """What several steps read and write."""
    found: tuple[list[Any], ...] = ([], [], [], [], [])
    for uses in every:
        for some, more in zip(found, uses, strict=True):
            if more:
                some += more
    return Uses(*found)


class Step(Protocol):
    """A command, or what is done with places beside commands."""

    def perform(self, emitter: Emitter) -> Iterator[Piece] | None:
        """Do it. Where other tasks may come between, their place is a piece."""

    def uses(self) -> Uses:
        """What it reads and writes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command of an engine with all that it reads and writes; fields and accesses may hold what is known :class:`Later`.

    ``again``, ``tail``: as for :meth:`gradloom.host.order.synchronize.Recorder.emit`.
    """

    opcode: Opcode
    fields: Fields
    reads: tuple[Access | PlannedAccess, ...]
    writes: tuple[Access | PlannedAccess, ...]
    tail: tuple[Any, ...]
    again: bool
    tag: int

    def perform(self, emitter: CommandEmitter) -> None:
        fields = {name: value if type(value) is int else value.choose(emitter) if isinstance(value, Way) else _found(value)
                  for name, value in self.fields.items()}
        emitter.emit(self, fields, [known(access) for access in self.reads], [known(access) for access in self.writes])

    def uses(self) -> Uses:
        reads, writes, made = list[Access](), list[Access](), list[PlannedAccess]()
        places, filled = list[object](), list[object]()
        # What is known lies in DRAM, but the array's counters and ports.
        for access in self.reads:
            if isinstance(access, PlannedAccess):
                places += access.sources
                if isinstance(access.space, Later) or access.space == _GRADIENTS:
                    made.append(access)
            elif self.opcode == Opcode.LOAD:
                reads.append(access)
        for access in self.writes:
            if isinstance(access, PlannedAccess):
                filled += access.sources
            elif self.opcode == Opcode.STORE:
                writes.append(access)
        return Uses(reads, writes, places, filled, made)


def _found(value: Any) -> Any:
    return value.find() if isinstance(value, Later) else value


def known(access: Access | PlannedAccess) -> Access:
    """An access, all of it known."""
    return access.known() if isinstance(access, PlannedAccess) else access


@dataclasses.dataclass(frozen=True, slots=True)
class Take:
    """A place is found."""

    source: Allocator
    place: Place

    def perform(self, _: Emitter) -> None:
        self.place.start = self.source.take(self.place.count)

    def uses(self) -> Uses:
        return Uses(filled=(self.place,))


@dataclasses.dataclass(frozen=True, slots=True)
class GiveBack:
    """A place of a pool is free again."""

    pool: FreeListAllocator
    place: Place

    def perform(self, _: Emitter) -> None:
        self.pool.give_back(self.place.start)

    def uses(self) -> Uses:
        return Uses(places=(self.place,))


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Something is done that depends on the order of tasks.

    ``steps``: some that may be done by it. ``used``: what it reads and writes beside them.
    """

    action: Callable[[], None]
    tag: int
    steps: tuple[Step, ...]
    used: Uses

    def perform(self, emitter: Emitter) -> None:
        emitter.set_tag(self.tag)
        self.action()

    def uses(self) -> Uses:
        return together([self.used, *(step.uses() for step in self.steps)])


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Further tasks come from now on, beside all others: what the A-Core does with what the array has made.

    ``otherwise``: others that come in their place unless these are ``chosen`` when the step is done.
    """

    tasks: "Sequence[Task]"
    otherwise: "Sequence[Task]" = ()
    chosen: Callable[[], bool] = lambda: True

    def perform(self, emitter: Emitter) -> None:
        emitter.start(self.tasks if self.chosen() else self.otherwise)

    def uses(self) -> Uses:
        return Uses()


@dataclasses.dataclass(eq=False)
class Task:
    """A piece of work with its steps, in order.

    Attributes
    ----------
    number : :class:`int`
        In the order of meaning.
    after : tuple of :class:`Task`
        Earlier ones that it has to come after.
    gated : tuple of :class:`Task`
        Earlier ones that its gate waits for.
    reads : tuple of :class:`~gradloom.host.order.accesses.Access`
        Parts of tensors in DRAM, and what others have made on the array.
    emitted : :class:`bool`
    through : :class:`int`
        When the commands that it ended with are done.
    takes : tuple of (:class:`~gradloom.host.order.allocators.RingAllocator`, tuple of int)
        What it takes of each ring whose addresses are to have been used, one after the other, until it uses itself what others
        have left there.
    twin : :class:`Task`, optional
        What others come behind, if this one comes in its place.
    """

    piece: Piece
    steps: tuple[Step, ...]
    number: int = -1
    after: "tuple[Task, ...]" = ()
    gated: "tuple[Task, ...]" = ()
    reads: tuple[Access | PlannedAccess, ...] = ()
    emitted: bool = False
    through: int = 0
    takes: tuple[tuple[RingAllocator, tuple[int, ...]], ...] = ()
    twin: "Task | None" = None

    def __post_init__(self) -> None:
        found = defaultdict[RingAllocator, list[int]](list)
        own, used = set[object](), set[object]()
        for step in self.steps:
            if isinstance(step, Take) and isinstance(step.source, RingAllocator) and step.source.name:
                own.add(step.place)
                if step.source.name not in used:
                    found[step.source].append(step.place.count)
            elif isinstance(step, Command):
                used |= {access.space for access in step.reads
                         if isinstance(access, PlannedAccess) and not own.issuperset(access.sources)}
        self.takes = tuple((ring, tuple(counts)) for ring, counts in found.items())

    def taken(self) -> Iterator[Access]:
        """Where what it takes of rings would lie if it came now."""
        for ring, counts in self.takes:
            for start, count in zip(ring.ahead(counts), counts, strict=True):
                yield Access(ring.name, ((start, start + count),))

    def read(self) -> list[Access]:
        """Parts of tensors in DRAM that it reads, and what others have made on the array; known when it may come."""
        return [known(access) for access in self.reads]

    def come(self) -> None:
        """Its last command has been emitted; its steps are done with."""
        self.emitted, self.steps, self.reads = True, (), ()
        if self.twin:
            self.twin.emitted = True


def emitted(tasks: Sequence[Task], emitter: Emitter) -> Iterator[Piece]:
    """Tasks as a work: yields every piece, and emits its commands when it is resumed."""
    for task in tasks:
        if task.piece.deferred is None or not task.piece.deferred.done:
            yield task.piece.now(task)
            for step in task.steps:
                yield from step.perform(emitter) or ()
        task.come()


class PlannedRing:
    """A ring, as commands see it that are still to come."""

    def __init__(self, ring: RingAllocator, collector: "Collector") -> None:
        self._ring, self._collector = ring, collector
        self.size = ring.size

    def take(self, count: int) -> Address:
        """First of ``count`` successive addresses."""
        return self._collector.take(self._ring, count)


class PlannedPool:
    """A pool, as commands see it that are still to come.

    Attributes
    ----------
    real : :class:`~gradloom.host.order.allocators.FreeListAllocator`
        The pool itself, as it is now.
    """

    def __init__(self, pool: FreeListAllocator, collector: "Collector") -> None:
        self.real, self._collector = pool, collector
        self.size = pool.size

    def take(self, count: int) -> Address:
        """First of ``count`` successive addresses that are taken then."""
        return self._collector.take(self.real, count)

    def give_back(self, start: Address) -> None:
        """The addresses that were taken from ``start`` on are free."""
        assert start.offset == 0
        self._collector.add(GiveBack(self.real, start.place))

    def from_end(self) -> "PlannedPool":
        """The same addresses, handed out from the last one on."""
        return PlannedPool(self.real.from_end(), self._collector)


class Collector:
    """Puts what is emitted and taken into tasks (:meth:`tasks`), while it is ``open``.

    Parameters
    ----------
    tag : :class:`int`
        Given to every command.
    """

    def __init__(self, rings: Mapping[str, RingAllocator], pools: Mapping[str, FreeListAllocator], tag: int = 0, *,
                 open: bool = False) -> None:
        self.tag, self.open = tag, open
        self._steps: list[Step] = []
        self.rings = {name: PlannedRing(ring, self) for name, ring in rings.items()}
        self.pools = {name: PlannedPool(pool, self) for name, pool in pools.items()}

    def add(self, step: Step) -> None:
        """The next step of the task that is being made."""
        if not self.open:
            raise RuntimeError(f"{step} belongs to no task")
        self._steps.append(step)

    def take(self, source: Allocator, count: int) -> Address:
        """``count`` addresses of a memory or a region."""
        place = Place(count)
        self.add(Take(source, place))
        return Address(place)

    def steps(self) -> tuple[Step, ...]:
        """All since this was asked for."""
        found = tuple(self._steps)
        self._steps.clear()
        return found

    def tasks(self, pieces: Iterator[Piece]) -> list[Task]:
        """The tasks of a work."""
        found: list[Task] = []
        piece = next(pieces, None)
        assert not self._steps, "commands before the first piece"
        while piece is not None:
            following = next(pieces, None)
            found.append(Task(piece, self.steps()))
            piece = following
        return found
