"""Parts of memories that commands read and write, and what has been accessed of each memory, found by place."""

import dataclasses
import itertools
from collections.abc import Iterator

from gradloom.rtl.channels import Unit
from gradloom.rtl.config import PE_ROWS

__all__ = ["Access", "Box", "Past", "Space", "overlap", "row_access", "tensor_access"]

_TENSOR_DIMENSIONS = 3
_EVERY = (0, 1 << 16)
_CELL_ADDRESSES = 64
_CELL_INDICES = 4
"""Sizes of the cells by which past accesses are found: addresses on chip, banks or indices of a tensor."""
Box = tuple[tuple[int, int], ...]
"""Half-open ranges, one a dimension; two boxes conflict if they overlap in every dimension."""


@dataclasses.dataclass(frozen=True)
class Access:
    """A part of a memory: on-chip addresses, or two to three index ranges of a DRAM tensor."""

    space: str
    box: Box


def row_access(space: str, first: int, count: int, banks: tuple[int, int] = (0, PE_ROWS)) -> Access:
    """Addresses of the input or error buffer, of some of each WPU's row banks."""
    return Access(space, ((first, first + count), banks))


def tensor_access(space: str, box: Box) -> Access:
    """A part of a tensor in DRAM: images and channel groups, or output and input groups; then rows or kernel windows, or all."""
    return Access(space, box if len(box) == _TENSOR_DIMENSIONS else (*box, _EVERY))


@dataclasses.dataclass(eq=False, slots=True)
class Past:
    """What a command has accessed."""

    position: int
    """Of the command in the program."""
    engine: Unit
    write: bool
    box: Box
    live: bool = True
    """Nothing later stands for it."""
    seen: int = 0
    """The latest search that has found it."""


class Space:
    """What has been accessed of one memory or tensor, found by place: cells of some addresses or indices in the first two
    dimensions."""

    def __init__(self, dimensions: int, *, on_chip: bool) -> None:
        self._dimensions = dimensions
        self._sizes = (_CELL_ADDRESSES if on_chip else _CELL_INDICES, _CELL_INDICES)
        self._cells: dict[tuple[int, ...], list[Past]] = {}
        self._searches = 0

    def _keys(self, box: Box) -> Iterator[tuple[int, ...]]:
        if len(box) != self._dimensions:
            raise ValueError(f"an access of {len(box)} dimensions to a memory of {self._dimensions}")
        return itertools.product(
            *(range(low // size, (high - 1) // size + 1) for size, (low, high) in zip(self._sizes, box, strict=False))
        )

    def near(self, box: Box) -> list[Past]:
        """All that may overlap ``box``."""
        self._searches += 1
        search, found = self._searches, []
        for key in self._keys(box):
            cell = self._cells.get(key)
            if cell:
                dead = 0
                for past in cell:
                    if not past.live:
                        dead += 1
                    elif past.seen != search:
                        past.seen = search
                        found.append(past)
                if 2 * dead > len(cell):
                    self._cells[key] = [past for past in cell if past.live]
        return found

    def add(self, new: Past) -> None:
        """Remember ``new``, and forget what it stands for: all inside a write, its engine's reads inside a read."""
        for past in self.near(new.box):
            if (new.write or (past.engine == new.engine and not past.write)) and _inside(past.box, new.box):
                past.live = False
        for key in self._keys(new.box):
            self._cells.setdefault(key, []).append(new)


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes of the same memory conflict."""
    # A loop takes a third of the time of all() over a generator.
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low >= other_high or other_low >= high:
            return False
    return True


def _inside(a: Box, b: Box) -> bool:
    for (low, high), (other_low, other_high) in zip(a, b, strict=True):  # noqa: SIM110
        if low < other_low or high > other_high:
            return False
    return True
