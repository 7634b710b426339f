"""Which command accessed an address of an on-chip memory last: an array of positions for each engine."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gradloom.contracts.engines import Unit
from gradloom.host.order.accesses import Ranges

__all__ = ["AddressAccess", "AddressIndex"]

_NONE = -1
_LEAST = 1024
"""Addresses that an array begins with; it grows with what is accessed."""


class AddressAccess(NamedTuple):
    """What a command accesses of a memory (:meth:`AddressIndex.record`)."""

    engine: Unit
    write: bool
    where: slice | tuple[slice, slice]


class _Last:
    """Positions of the last commands of one engine that read, or wrote, each address (in each bank)."""

    __slots__ = ("newest", "places")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.places, self.newest = np.full(shape, _NONE, np.int32), _NONE

    def grow(self, shape: tuple[int, ...]) -> None:
        """To a larger memory."""
        places = np.full(shape, _NONE, np.int32)
        places[tuple(slice(size) for size in self.places.shape)] = self.places
        self.places = places


class AddressIndex:
    """What has been accessed of an on-chip memory. Accesses are added in the order of the program; a write stands for all that was
    before it at its addresses.

    As :class:`~gradloom.host.order.accesses.AccessIndex`, for boxes of one dimension, or of two, whose second one is small (banks):
    most accesses of a program are of this kind, of a few hundred addresses, and many begin and end within each other.

    Parameters
    ----------
    dimensions : 1 or 2
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._shape: tuple[int, ...] = (_LEAST,) if dimensions == 1 else (_LEAST, 1)
        self._read: dict[Unit, _Last] = {}
        self._written: dict[Unit, _Last] = {}
        self.reads = self.writes = 0
        """That have been added: a search for what lies before an access gives the same until there are more."""

    def clear(self) -> None:
        """Forget everything."""
        self._read.clear()
        self._written.clear()
        self.writes += 1

    def record(self, engine: Unit, box: Ranges, *, write: bool) -> AddressAccess:
        """An access, to be compared with others and then added."""
        if len(box) != self._dimensions:
            raise ValueError(f"an access of {len(box)} dimensions to a memory of {self._dimensions}")
        if any(end > size for (_, end), size in zip(box, self._shape, strict=True)):
            self._shape = tuple(max(size, 1 << (end - 1).bit_length()) for (_, end), size in zip(box, self._shape, strict=True))
            for last in (*self._read.values(), *self._written.values()):
                last.grow(self._shape)
        where = slice(*box[0]) if self._dimensions == 1 else (slice(*box[0]), slice(*box[1]))
        return AddressAccess(engine, write, where)

    def latest(self, new: AddressAccess, needs: dict[Unit, int], known: Mapping[Unit, int]) -> None:
        """Note in ``needs``, for every other engine, the position of its last command that an access has to come after: writes,
        and reads if it is a write itself. Not what is ``known`` to have finished: every command of an engine up to a position."""
        engine, write, where = new
        for found in (self._written, self._read) if write else (self._written,):
            for other, last in found.items():
                bound = max(needs.get(other, _NONE), known.get(other, _NONE))
                if other is not engine and last.newest > bound:
                    place = int(np.maximum.reduce(last.places[where], axis=None))
                    if place > bound:
                        needs[other] = place

    def add(self, new: AddressAccess, position: int) -> None:
        """Remember an access of the command at a position."""
        engine, write, where = new
        found = self._written if write else self._read
        if engine not in found:
            found[engine] = _Last(self._shape)
        if write:
            for last in (*self._read.values(), *self._written.values()):
                last.places[where] = _NONE
            self.writes += 1
        else:
            self.reads += 1
        last = found[engine]
        last.places[where] = position
        last.newest = position
