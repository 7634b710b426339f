"""What tasks wait for: earlier ones that write what they read, or that access what they write; and their gates.

Tasks are added in the order of their meaning, in which their commands would be right one after the other. Tensors in DRAM are
compared by their parts (:mod:`gradloom.host.order.accesses`), places on chip by who took and filled them. Nothing else says which
task comes after which.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from gradloom.host.order.accesses import Access, Ranges, inside, overlap
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate
from gradloom.host.order.tasks import Start, Task, together

__all__ = ["Dependences"]


_CELL = 4
"""Images and channel groups of a tensor by which past accesses are found."""
_Cell = tuple[str, int, int]


@dataclasses.dataclass(eq=False, slots=True)
class _Accessed:
    """A part of a tensor that a task reads or writes, and the cells that it touches."""

    number: int
    box: Ranges
    cells: list[_Cell]


def _accessed(number: int, access: Access) -> _Accessed:
    (low, high), (first, last) = access.box[:2]
    cells = [(access.space, image, group) for image in range(low // _CELL, (high - 1) // _CELL + 1)
             for group in range(first // _CELL, (last - 1) // _CELL + 1)]
    return _Accessed(number, access.box, cells)


class _Accesses:
    """Reads, or writes, of tensors by tasks, found by place. An access lies in every cell of images and channel groups that it
    touches."""

    def __init__(self) -> None:
        self._cells: defaultdict[_Cell, dict[_Accessed, None]] = defaultdict(dict)

    def meeting(self, new: _Accessed) -> set[int]:
        """Numbers of the tasks whose accesses overlap one."""
        box = new.box
        return {past.number for cell in new.cells for past in self._cells.get(cell, ()) if overlap(past.box, box)}

    def add(self, new: _Accessed) -> None:
        """A task's access."""
        for cell in new.cells:
            self._cells[cell][new] = None

    def forget(self, new: _Accessed) -> None:
        """What lies inside a write: whoever comes behind that comes behind it, too."""
        for cell in new.cells:
            found = self._cells.get(cell, {})
            for past in [past for past in found if inside(past.box, new.box)]:
                del found[past]


class Dependences:
    """Finds for every task that is added the earlier ones that it has to come after (``task.after``), and those that its gate waits
    for (``task.gated``)."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._reads, self._writes = _Accesses(), _Accesses()
        self._fillers: defaultdict[int, list[Task]] = defaultdict(list)
        """Of places on chip, by identity."""

    def add(self, tasks: Sequence[Task]) -> None:
        """The next tasks, of one work."""
        # They share their gates, and none of them accesses what the gate of another one waits for.
        gates = {OPEN: tuple[Task, ...]()}
        for task in tasks:
            task.number = len(self._tasks)
            self._tasks.append(task)
            reads, writes, places, filled, made = together(step.uses() for step in task.steps)
            own = {id(place) for place in filled}
            # What it makes itself lies nobody knows where until it has come.
            task.reads = (*reads, *(access for access in made if not own & {id(place) for place in access.sources}),
                          *task.piece.gate.written)
            gate = task.piece.gate
            if gate not in gates:
                gates[gate] = self._gated(gate)
            task.gated = gates[gate]
            found = {filler.number for place in (*places, *filled) for filler in self._fillers[id(place)]}
            for place in own:
                self._fillers[place].append(task)
            read, written = ([_accessed(task.number, access) for access in accesses] for accesses in (reads, writes))
            for new in (*read, *written):
                found |= self._writes.meeting(new)
            for new in written:
                found |= self._reads.meeting(new)
            for new in written:
                self._reads.forget(new)
                self._writes.forget(new)
                self._writes.add(new)
            for new in read:
                self._reads.add(new)
            task.after = tuple(self._tasks[number] for number in sorted(found - {task.number}))
            for step in task.steps:
                if isinstance(step, Start):
                    self.add(step.tasks)
                    if step.otherwise:
                        self._add_instead(step.otherwise, step.tasks)

    def _gated(self, gate: Gate) -> tuple[Task, ...]:
        """Tasks that a gate waits for."""
        found = set[int]()
        for access in (*gate.written, *gate.settled):
            found |= self._writes.meeting(_accessed(-1, access))
        for access in gate.settled:
            found |= self._reads.meeting(_accessed(-1, access))
        for access in gate.summed:
            for number in self._writes.meeting(_accessed(-1, access)):
                task = self._tasks[number]
                found |= {made.number for made in (task, *task.after) if made.piece.lane == BoundEngine.ARRAY}
        return tuple(self._tasks[number] for number in sorted(found))

    def _add_instead(self, tasks: Sequence[Task], of: Sequence[Task]) -> None:
        """Tasks that may come in the place ``of`` others, which have been added and do the same."""
        for task, other in zip(tasks, of, strict=True):
            task.number, task.twin, task.after, task.gated, task.reads = other.number, other, other.after, other.gated, other.reads
