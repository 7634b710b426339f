"""Parts of memories that commands read and write, and what has been accessed of each memory, found by place."""

import dataclasses
from collections.abc import Iterator

from gradloom.contracts.config import PE_ROWS
from gradloom.contracts.engines import Unit

__all__ = ["Access", "AccessIndex", "AccessRecord", "Ranges", "overlap", "row_access", "tensor_access"]

_TENSOR_DIMENSIONS = 3
_EVERY = (0, 1 << 16)
_CELL_ADDRESSES = 64
_CELL_INDICES = 4
"""Sizes of the cells by which past accesses are found: addresses on chip, banks or indices of a tensor."""
Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges, one a dimension; two boxes conflict if they overlap in every dimension."""


@dataclasses.dataclass(frozen=True)
class Access:
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
    live: bool = True
    """Nothing later stands for it."""


class AccessIndex:
    """What has been accessed of one memory or tensor, found by place: cells of some addresses or indices in the first two
    dimensions, and in a cell by engine. An access lies in every cell that it touches, and is met once for each that a search has in
    common with it. They are added in the order of the program."""

    def __init__(self, dimensions: int, *, on_chip: bool) -> None:
        self._dimensions = dimensions
        self._sizes = (_CELL_ADDRESSES if on_chip else _CELL_INDICES, _CELL_INDICES)
        self._cells: dict[tuple[int, ...], dict[Unit, list[AccessRecord]]] = {}

    def _keys(self, box: Ranges) -> list[tuple[int, ...]]:
        if len(box) != self._dimensions:
            raise ValueError(f"an access of {len(box)} dimensions to a memory of {self._dimensions}")
        (low, high), size = box[0], self._sizes[0]
        first = range(low // size, (high - 1) // size + 1)
        if len(box) == 1:
            return [(key,) for key in first]
        (low, high), size = box[1], self._sizes[1]
        second = range(low // size, (high - 1) // size + 1)
        return [(key, other) for key in first for other in second]

    def conflicts(self, box: Ranges, *, write: bool) -> Iterator[AccessRecord]:
        """What an access has to come behind, some of it more than once: writes, and reads if it is a ``write`` itself."""
        cells = self._cells
        for key in self._keys(box):
            for accessed in cells.get(key, {}).values():
                for past in accessed:
                    if past.live and (write or past.write) and overlap(past.box, box):
                        yield past

    def latest(self, box: Ranges, engine: Unit, needs: dict[Unit, int], *, write: bool) -> None:
        """Note in ``needs``, for every other engine, the position of its last command that an access has to come behind."""
        # As `conflicts`, from the last access of each engine back to what is known already.
        cells = self._cells
        for key in self._keys(box):
            for other, accessed in cells.get(key, {}).items():
                if other == engine:
                    continue
                known = needs.get(other, -1)
                for past in reversed(accessed):
                    if past.position <= known:
                        break
                    if past.live and (write or past.write) and overlap(past.box, box):
                        needs[other] = past.position
                        break

    def add(self, new: AccessRecord) -> None:
        """Remember ``new``, and forget what it stands for: all inside a write, its engine's reads inside a read."""
        write, engine, box, cells = new.write, new.engine, new.box, self._cells
        first, end = box[0]
        for key in self._keys(box):
            cell = cells.setdefault(key, {})
            mine = cell.setdefault(engine, [])
            for accessed in cell.values() if write else (mine,):
                dead = 0
                for past in accessed:
                    if not past.live:
                        dead += 1
                    elif write or not past.write:
                        # Most of what is near lies outside in the first dimension.
                        low, high = past.box[0]
                        if first <= low and high <= end and _inside(past.box, box):
                            past.live = False
                            dead += 1
                if 2 * dead > len(accessed):
                    accessed[:] = [past for past in accessed if past.live]
            mine.append(new)


def overlap(a: Ranges, b: Ranges) -> bool:
    """Whether two boxes of the same memory conflict."""
    # A loop takes a third of the time of all() over a generator.
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low >= other_high or other_low >= high:
            return False
    return True


def _inside(a: Ranges, b: Ranges) -> bool:
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low < other_low or high > other_high:
            return False
    return True
