"""Parts of memories that commands read and write, and what has been accessed of each memory, found by place."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gradloom.contracts.config import PE_ROWS
from gradloom.contracts.engines import Unit

__all__ = ["Access", "AccessIndex", "AccessRecord", "Ranges", "inside", "overlap", "row_access", "tensor_access"]

_TENSOR_DIMENSIONS = 3
_EVERY = (0, 1 << 16)
_CELL_INDICES = 4
"""Size of the cells by which past accesses are found: indices of a tensor."""
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
    """What a command accesses of a memory or tensor (:meth:`AccessIndex.record`)."""

    engine: Unit
    write: bool
    box: Ranges
    first: int
    end: int
    """Its range in the first dimension, in which most of what is near lies outside."""
    cells: "Sequence[_Cell]"
    position: int = -1
    """Of the command in the program."""
    listed: "Sequence[_Records]" = ()
    """Where it has been added, and is to be taken out again."""


_Cell = tuple[int, int]
_Records = dict[AccessRecord, None]
"""A set in the order in which it was filled, from which anything is taken out at once."""


class AccessIndex:
    """What has been accessed of one memory or tensor. Accesses are added in the order of the program, and forgotten when something
    later stands for them.

    What overlaps a box is found by cells of some addresses or indices in the first two dimensions, and in a cell by engine: an
    access lies in every cell that it touches. What lies inside a box begins in one of the cells that the box touches.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._cells: defaultdict[_Cell, defaultdict[Unit, _Records]] = defaultdict(lambda: defaultdict(dict))
        self._begun: defaultdict[_Cell, _Records] = defaultdict(dict)
        """By the first cell that an access touches, of all engines."""
        self.reads = self.writes = 0
        """That have been added: a search for what lies before an access gives the same until there are more."""

    def clear(self) -> None:
        """Forget everything."""
        self._cells.clear()
        self._begun.clear()
        self.writes += 1

    def record(self, engine: Unit, box: Ranges, *, write: bool) -> AccessRecord:
        """An access, to be compared with others and then added."""
        if len(box) != self._dimensions:
            raise ValueError(f"an access of {len(box)} dimensions to a memory of {self._dimensions}")
        first, end = box[0]
        return AccessRecord(engine, write, box, first, end, self._touched(box))

    @staticmethod
    def _touched(box: Ranges) -> Sequence[_Cell]:
        (low, high), (first, last) = box[:2]
        others = range(first // _CELL_INDICES, (last - 1) // _CELL_INDICES + 1)
        return [(cell, other) for cell in range(low // _CELL_INDICES, (high - 1) // _CELL_INDICES + 1) for other in others]

    def latest(self, new: AccessRecord, needs: dict[Unit, int], known: Mapping[Unit, int]) -> None:
        """Note in ``needs``, for every other engine, the position of its last command that an access has to come after: writes,
        and reads if it is a write itself. Not what is ``known`` to have finished: every command of an engine up to a position."""
        cells, write, engine, box, first, end = self._cells, new.write, new.engine, new.box, new.first, new.end
        for cell in new.cells:
            if cell not in cells:
                continue
            for other, accessed in cells[cell].items():
                if other is engine:
                    continue
                bound = max(needs.get(other, -1), known.get(other, -1))
                # From the last access back to what is known already.
                for past in reversed(accessed):
                    if past.position <= bound:
                        break
                    if past.first < end and first < past.end and (write or past.write) and overlap(past.box, box):
                        needs[other] = past.position
                        break

    def add(self, new: AccessRecord, position: int) -> None:
        """Remember an access of the command at a position, and forget what it stands for: all inside a write, its engine's reads
        inside a read."""
        write, engine, box, first, end = new.write, new.engine, new.box, new.first, new.end
        for cell in new.cells:
            covered = [past for past in self._begun.get(cell, ()) if first <= past.first and past.end <= end and
                       (write or (past.engine is engine and not past.write)) and inside(past.box, box)]
            for past in covered:
                for records in past.listed:
                    del records[past]
        new.position = position
        new.listed = [self._begun[new.cells[0]], *(self._cells[cell][engine] for cell in new.cells)]
        for records in new.listed:
            records[new] = None
        if write:
            self.writes += 1
        else:
            self.reads += 1


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
