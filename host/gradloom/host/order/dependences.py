"""What tasks wait for: earlier ones that write what they read, or that access what they write.

Tasks are added in the order of their meaning, in which their commands would be right one after the other. Tensors in DRAM are
compared by their parts (:mod:`gradloom.host.order.accesses`), places on chip by who took and filled them.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence

from gradloom.contracts.engines import Unit
from gradloom.host.order.accesses import Access, Past, Space
from gradloom.host.order.tasks import Task, Uses

__all__ = ["Dependences"]


class Dependences:
    """Finds for every task that is added the earlier ones that it has to come behind (``task.after``)."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._spaces: dict[str, Space] = {}
        self._writers: defaultdict[int, list[Task]] = defaultdict(list)
        """Of places on chip, by identity."""

    def add(self, tasks: Sequence[Task]) -> None:
        """The next tasks."""
        for task in tasks:
            task.number = len(self._tasks)
            self._tasks.append(task)
            every = (Uses(), *(step.uses() for step in task.steps))
            reads, writes, places, filled, made = (tuple(itertools.chain(*kind)) for kind in zip(*every, strict=True))
            own = {id(place) for place in filled}
            # What it makes itself lies nobody knows where until it has come.
            task.reads = (*reads, *(access for access in made if not own & {id(place) for place in access.sources}))
            found = {writer.number for place in (*places, *filled) for writer in self._writers[id(place)]}
            for write, accesses in ((False, reads), (True, writes)):
                for access in accesses:
                    found.update(past.position for past in self._space(access).conflicts(access.box, write=write))
            for place in filled:
                self._writers[id(place)].append(task)
            for write, accesses in ((False, reads), (True, writes)):
                for access in accesses:
                    self._space(access).add(Past(task.number, Unit.SEQ, write, access.box))
            task.after = tuple(self._tasks[number] for number in sorted(found - {task.number}))

    def add_instead(self, tasks: Sequence[Task], of: Sequence[Task]) -> None:
        """Tasks that may come in the place ``of`` others, which have been added and do the same."""
        for task, other in zip(tasks, of, strict=True):
            task.number, task.twin, task.after, task.reads = other.number, other, other.after, other.reads

    def _space(self, access: Access) -> Space:
        if access.space not in self._spaces:
            self._spaces[access.space] = Space(len(access.box), on_chip=False)
        return self._spaces[access.space]
