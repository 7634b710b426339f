"""Tasks: commands that are known before it is known when they come, on places on chip that are found when they do.

A layer's commands are made in the order of their meaning and put into tasks, each with the piece of work
(:mod:`gradloom.host.order.pieces`) by which it is scheduled. Addresses on chip depend on the order in which tasks come. So until a
task is emitted they are an :class:`Address`: so far into a :class:`Place` that its ring or pool has still to find.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from gradloom.contracts.isa import Opcode
from gradloom.host.order.accesses import Access
from gradloom.host.order.pieces import Piece
from gradloom.host.order.places import Pool, Ring

__all__ = ["Address", "Collector", "Command", "Emitter", "GiveBack", "Place", "Take", "Task", "emitted"]


class Emitter(Protocol):
    """Where commands with their addresses go (:class:`~gradloom.host.compilation.tiling.Builder`)."""

    def emit(self, command: "Command") -> None:
        """Emit a command whose places have been found."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """So many addresses into a place."""

    place: Place
    offset: int = 0

    def __add__(self, more: int) -> "Address":
        return Address(self.place, self.offset + more)

    def __int__(self) -> int:
        return self.place.start + self.offset


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """A command of an engine with all that it reads and writes; fields and boxes of accesses may hold an :class:`Address`.

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
        fields = {name: int(value) if isinstance(value, Address) else value for name, value in self.fields.items()}
        emitter.emit(dataclasses.replace(self, fields=fields, reads=_found(self.reads), writes=_found(self.writes)))


def _found(accesses: Iterable[Access]) -> tuple[Access, ...]:
    return tuple(
        Access(access.space, tuple((int(low), int(high)) for low, high in access.box))
        if any(isinstance(low, Address) for low, _ in access.box) else access
        for access in accesses)


@dataclasses.dataclass(frozen=True, slots=True)
class Take:
    """A ring or pool finds a place."""

    source: Ring | Pool
    place: Place

    def perform(self, _: Emitter) -> None:
        self.place.start = self.source.take(self.place.count)


@dataclasses.dataclass(frozen=True, slots=True)
class GiveBack:
    """A place of a pool is free again."""

    pool: Pool
    place: Place

    def perform(self, _: Emitter) -> None:
        self.pool.give_back(self.place.start)


Step: TypeAlias = Command | Take | GiveBack


@dataclasses.dataclass(frozen=True)
class Task:
    """A piece of work with its commands, and the places that they take and give back, in order."""

    piece: Piece
    steps: tuple[Step, ...]


def emitted(tasks: Sequence[Task], emitter: Emitter) -> Iterator[Piece]:
    """Tasks as a work: yields every piece, and emits its commands when it is resumed."""
    for task in tasks:
        yield task.piece
        for step in task.steps:
            step.perform(emitter)


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
