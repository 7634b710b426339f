"""Parts of memories that commands read and write, and what has been accessed of each memory, found by place."""

import dataclasses
import functools
from typing import NamedTuple, TypeAlias

from gradloom.contracts.config import PE_ROWS
from gradloom.contracts.engines import Unit

__all__ = ["Access", "AccessIndex", "AccessRecord", "Ranges", "inside", "overlap", "row_access", "tensor_access"]

_TENSOR_DIMENSIONS = 3
_EVERY = (0, 1 << 16)
_CELL_ADDRESSES = 64
_CELL_INDICES = 4
"""Sizes of the cells by which past accesses are found: addresses on chip, banks or indices of a tensor."""
_Cell = tuple[int, int]
Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges, one a dimension; two boxes conflict if they overlap in every dimension."""


class Access(NamedTuple):
    """A part of a memory: on-chip addresses, or two to three index ranges of a DRAM tensor."""

    space: str
    box: Ranges


def row_access(space: str, first: int, count: int, banks: tuple[int, int] = (0, PE_ROWS)) -> Access:
    """Addresses of the input or error buffer, of some of each WPU's row banks."""
    return Access(space, ((first, first + count), banks))


def tensor_access(space: str, box: Ranges) -> Access:
    """A part of a tensor in DRAM: images and channel groups, or output and input groups; then rows or kernel windows, or all."""
    return Access(space, box if len(box) == _TENSOR_DIMENSIONS else (*box, _EVERY))


@dataclasses.dataclass(eq=False, slots=True)
class AccessRecord:
    """What a command has accessed."""

    position: int
    """Of the command in the program."""
    engine: Unit
    write: bool
    box: Ranges


_Records: TypeAlias = dict[AccessRecord, None]
"""A set in the order in which it was filled, from which anything is taken out at once."""


class AccessIndex:
    """What has been accessed of one memory or tensor, found by place: cells of some addresses or indices in the first two
    dimensions, and in a cell by engine. An access lies in every cell that it touches. They are added in the order of the program,
    and forgotten when something later stands for them."""

    def __init__(self, dimensions: int, *, on_chip: bool) -> None:
        self._dimensions = dimensions
        self._size = _CELL_ADDRESSES if on_chip else _CELL_INDICES
        self._cells: dict[_Cell, dict[Unit, _Records]] = {}
        self._begun: dict[_Cell, _Records] = {}
        """The same by the cell alone in which an access begins: whatever lies inside a box begins in one of its cells."""

    def _touched(self, box: Ranges) -> tuple[_Cell, ...]:
        if len(box) != self._dimensions:
            raise ValueError(f"an access of {len(box)} dimensions to a memory of {self._dimensions}")
        return _touched(box[:2], self._size)

    def latest(self, box: Ranges, engine: Unit | None, needs: dict[Unit, int], *, write: bool) -> None:
        """Note in ``needs``, for every engine but ``engine``, the position of its last command that an access has to come behind:
        writes, and reads if it is a ``write`` itself."""
        cells = self._cells
        for cell in self._touched(box):
            for other, accessed in cells[cell].items() if cell in cells else ():
                if other is engine:
                    continue
                known = needs.get(other, -1)
                # From the last access back to what is known already.
                for past in reversed(accessed):
                    if past.position <= known:
                        break
                    if (write or past.write) and overlap(past.box, box):
                        needs[other] = past.position
                        break

    def add(self, new: AccessRecord) -> None:
        """Remember ``new``, and forget what it stands for: all inside a write, its engine's reads inside a read."""
        write, engine, box, cells, begun = new.write, new.engine, new.box, self._cells, self._begun
        first, end = box[0]
        touched = self._touched(box)
        for cell in touched:
            past_ones = begun.get(cell)
            if past_ones:
                # Most of what is near lies outside in the first dimension.
                covered = [past for past in past_ones if first <= past.box[0][0] and past.box[0][1] <= end and
                           (write or (past.engine is engine and not past.write)) and inside(past.box, box)]
                for past in covered:
                    del past_ones[past]
                    for other in self._touched(past.box):
                        del cells[other][past.engine][past]
            mine = cells.setdefault(cell, {})
            if engine in mine:
                mine[engine][new] = None
            else:
                mine[engine] = {new: None}
        begun.setdefault(touched[0], {})[new] = None


@functools.lru_cache(maxsize=1 << 14)
def _touched(place: Ranges, size: int) -> tuple[_Cell, ...]:
    """The cells of a box's first two dimensions; every access asks for them several times, and many have the same place."""
    low, high = place[0]
    first = range(low // size, (high - 1) // size + 1)
    if len(place) == 1:
        return tuple((cell, 0) for cell in first)
    low, high = place[1]
    second = range(low // _CELL_INDICES, (high - 1) // _CELL_INDICES + 1)
    return tuple((cell, other) for cell in first for other in second)


def overlap(a: Ranges, b: Ranges) -> bool:
    """Whether two boxes of the same memory conflict."""
    # A loop takes a third of the time of all() over a generator.
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low >= other_high or other_low >= high:
            return False
    return True


def inside(a: Ranges, b: Ranges) -> bool:
    """Whether a box lies in another one of the same memory."""
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low < other_low or high > other_high:
            return False
    return True
