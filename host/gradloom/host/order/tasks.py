"""Tasks: commands that are known before it is known when they come, on places on chip that are found when they do.

A layer's commands are made in the order of their meaning and put into tasks, each with the piece of work
(:mod:`gradloom.host.order.pieces`) by which it is scheduled. What depends on the order in which tasks come is found when a task is
emitted: addresses on chip (an :class:`Address` is so far into a :class:`Place` that its ring or pool has still to find), and the
channel of loads that several share (:class:`Way`).
"""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.order.accesses import Access
from gradloom.host.order.pieces import Piece
from gradloom.host.order.places import Pool, Ring

__all__ = ["Address", "Call", "Collector", "Command", "Emitter", "GiveBack", "Later", "Place", "Region", "Source", "Step",
           "Take", "Task", "Uses", "Way", "emitted", "known",
           "sources"]


_GRADIENTS = "DW"
"""The buffer of weight gradients."""


class Emitter(Protocol):
    """Where commands go whose addresses have been found (:class:`~gradloom.host.compilation.tiling.Builder`)."""

    def emit(self, command: "Command") -> None:
        """Emit a command."""

    def way(self, dest: Dest, *, shared: bool, most: int | None = None) -> int:
        """As :meth:`gradloom.host.order.tokens.Recorder.way`."""

    def set_tag(self, tag: int) -> None:
        """Give a tag to what is emitted from now on."""


class Later:
    """A number, or a name, that is known when the task is emitted; ``source`` is what has to be found for it."""

    __slots__ = ("find", "source")

    def __init__(self, source: object, find: Callable[[], int | str]) -> None:
        self.source, self.find = source, find

    def __add__(self, more: int) -> "Later":
        return Later(self.source, lambda: int(self.find()) + more)

    def __and__(self, mask: int) -> "Later":
        return Later(self.source, lambda: int(self.find()) & mask)

    def __mod__(self, modulus: int) -> "Later":
        return Later(self.source, lambda: int(self.find()) % modulus)


class Way:
    """The channel of some loads, which the first of them chooses."""

    __slots__ = ("_dest", "_found", "_most")

    def __init__(self, dest: Dest, most: int | None) -> None:
        self._dest, self._most = dest, most
        self._found: int | None = None

    def choose(self, emitter: Emitter) -> int:
        if self._found is None:
            self._found = emitter.way(self._dest, shared=True, most=self._most)
        return self._found


class Source(Protocol):
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
        super().__init__(place, lambda: place.start + offset)
        self.place, self.offset = place, offset

    def __add__(self, more: int) -> "Address":
        return Address(self.place, self.offset + more)

    def __int__(self) -> int:
        return self.place.start + self.offset


class Region:
    """A ring in a part of a memory that is taken when a task is emitted.

    Parameters
    ----------
    size : :class:`int`
        Addresses.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.ring: Ring | None = None

    def _opened(self) -> Ring:
        if self.ring is None:
            raise ValueError("a command uses a region that nothing has opened before it")
        return self.ring

    def take(self, count: int) -> int:
        return self._opened().take(count)

    def held(self, key: Hashable) -> int | None:
        return self._opened().held(key)

    def take_for(self, key: Hashable, count: int) -> int:
        return self._opened().take_for(key, count)


class Uses(NamedTuple):
    """What a step reads and writes: parts of tensors in DRAM; places on chip that it uses, and that it takes or fills; sums and
    gradients that the array has made."""

    reads: Sequence[Access] = ()
    writes: Sequence[Access] = ()
    places: Sequence[object] = ()
    filled: Sequence[object] = ()
    made: Sequence[Access] = ()


class Step(Protocol):
    """A command, or what is done with places beside commands."""

    def perform(self, emitter: Emitter) -> Iterator[Piece] | None:
        """Do it. Where other tasks may come between, their place is a piece."""

    def uses(self) -> Uses:
        """What it reads and writes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command of an engine with all that it reads and writes; fields and accesses may hold what is known :class:`Later`.

    ``again``, ``tail``: as for :meth:`gradloom.host.order.tokens.Recorder.emit`.
    """

    opcode: Opcode
    fields: dict[str, Any]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    tail: tuple[Any, ...]
    again: bool
    tag: int

    def perform(self, emitter: Emitter) -> None:
        fields = {name: value.choose(emitter) if isinstance(value, Way) else _found(value) for name, value in self.fields.items()}
        reads, writes = (tuple(known(access) for access in accesses) for accesses in (self.reads, self.writes))
        emitter.emit(dataclasses.replace(self, fields=fields, reads=reads, writes=writes))

    def uses(self) -> Uses:
        dram_reads = self.reads if self.opcode == Opcode.LOAD else ()
        dram_writes = self.writes if self.opcode == Opcode.STORE else ()
        made = [access for access in self.reads if isinstance(access.space, Later) or access.space == _GRADIENTS]
        return Uses(dram_reads, dram_writes, sources(self.reads), sources(self.writes), made)


def sources(accesses: Iterable[Access]) -> list[object]:
    """What has to be found for some accesses."""
    return [value.source for access in accesses for value in (access.space, *(low for low, _ in access.box))
            if isinstance(value, Later)]


def _found(value: Any) -> Any:
    return value.find() if isinstance(value, Later) else value


def known(access: Access) -> Access:
    """An access, all of it known."""
    if not isinstance(access.space, Later) and not any(isinstance(low, Later) for low, _ in access.box):
        return access
    return Access(_found(access.space), tuple((_found(low), _found(high)) for low, high in access.box))


@dataclasses.dataclass(frozen=True, slots=True)
class Take:
    """A place is found."""

    source: Source
    place: Place

    def perform(self, _: Emitter) -> None:
        self.place.start = self.source.take(self.place.count)

    def uses(self) -> Uses:
        return Uses(filled=(self.place,))


@dataclasses.dataclass(frozen=True, slots=True)
class GiveBack:
    """A place of a pool is free again."""

    pool: Pool
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
        every = (self.used, *(step.uses() for step in self.steps))
        return Uses(*(tuple(itertools.chain(*kind)) for kind in zip(*every, strict=True)))


@dataclasses.dataclass(eq=False)
class Task:
    """A piece of work with its steps, in order.

    Attributes
    ----------
    number : :class:`int`
        In the order of meaning.
    after : tuple of :class:`Task`
        Earlier ones that it has to come behind.
    reads : tuple of :class:`~gradloom.host.order.accesses.Access`
        Parts of tensors in DRAM, and what others have made on the array.
    emitted : :class:`bool`
    through : :class:`int`
        When the commands that it ended with are done.
    twin : :class:`Task`, optional
        What others come behind, if this one comes in its place.
    """

    piece: Piece
    steps: tuple[Step, ...]
    number: int = -1
    after: "tuple[Task, ...]" = ()
    reads: tuple[Access, ...] = ()
    emitted: bool = False
    through: int = 0
    twin: "Task | None" = None

    def read(self) -> list[Access]:
        """Parts of tensors in DRAM that it reads, and what others have made on the array; known when it may come."""
        return [known(access) for access in self.reads]

    def come(self) -> None:
        """Its last command has been emitted."""
        self.emitted = True
        if self.twin:
            self.twin.emitted = True


def emitted(tasks: Sequence[Task], emitter: Emitter) -> Iterator[Piece]:
    """Tasks as a work: yields every piece, and emits its commands when it is resumed."""
    for task in tasks:
        if not task.piece.gone():
            yield task.piece.now(task)
            for step in task.steps:
                yield from step.perform(emitter) or ()
        task.come()


class _Ring:
    """A ring, as commands see it that are still to come."""

    def __init__(self, ring: Ring, steps: list[Step]) -> None:
        self._ring, self._steps = ring, steps
        self.size, self.first = ring.size, ring.first

    def take(self, count: int) -> Address:
        place = Place(count)
        self._steps.append(Take(self._ring, place))
        return Address(place)


class _Pool:
    """A pool, as commands see it that are still to come; of pieces that wait for its room, the pool itself."""

    def __init__(self, pool: Pool, steps: list[Step]) -> None:
        self.pool, self._steps = pool, steps
        self.name, self.size = pool.name, pool.size

    def take(self, count: int) -> Address:
        place = Place(count)
        self._steps.append(Take(self.pool, place))
        return Address(place)

    def give_back(self, start: Address) -> None:
        assert start.offset == 0
        self._steps.append(GiveBack(self.pool, start.place))

    def from_end(self) -> "_Pool":
        return _Pool(self.pool.from_end(), self._steps)

    def from_begin(self) -> "_Pool":
        return _Pool(self.pool.from_begin(), self._steps)


class Collector:
    """Takes the place of recorder, rings and pools while tasks are made (:meth:`tasks`).

    Attributes
    ----------
    tag : :class:`int`
        Given to every command.
    steps : list
        Of the task that is being made.
    """

    def __init__(self, rings: dict[str, Ring], pools: dict[str, Pool]) -> None:
        self.tag = 0
        self.steps: list[Step] = []
        self.rings = {name: _Ring(ring, self.steps) for name, ring in rings.items()}
        self.pools = {name: _Pool(pool, self.steps) for name, pool in pools.items()}

    def emit(self, opcode: Opcode, fields: dict[str, Any], *, reads: Iterable[Access] = (), writes: Iterable[Access] = (),
             tail: tuple[Any, ...] = (), again: bool = False) -> None:
        """As :meth:`gradloom.host.order.tokens.Recorder.emit`."""
        self.steps.append(Command(opcode, fields, tuple(reads), tuple(writes), tail, again, self.tag))

    def way(self, dest: Dest, *, shared: bool, most: int | None = None) -> Way | int:
        """As :meth:`gradloom.host.order.tokens.Recorder.way`, when the first of the loads that get it is emitted."""
        return Way(dest, most) if shared else 0

    def planned(self, pool: Pool) -> _Pool:
        """A pool, as commands see it that are still to come."""
        return _Pool(pool, self.steps)

    def take(self, source: Source, count: int) -> Address:
        """``count`` addresses of a memory or a region."""
        place = Place(count)
        self.steps.append(Take(source, place))
        return Address(place)

    def tasks(self, pieces: Iterator[Piece]) -> list[Task]:
        """The tasks of a work."""
        found: list[Task] = []
        assert not self.steps
        piece = next(pieces, None)
        assert not self.steps, "commands before the first piece"
        while piece is not None:
            following = next(pieces, None)
            room = tuple((pool.pool if isinstance(pool, _Pool) else pool, count) for pool, count in piece.room)
            found.append(Task(dataclasses.replace(piece, room=room), tuple(self.steps)))
            self.steps.clear()
            piece = following
        return found
