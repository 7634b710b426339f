"""An engine in a replay: its queue, what of it has started, and what comes later because others keep it waiting."""

import dataclasses
from collections import deque

from gradloom.host.cost_model.cost import StagedState

__all__ = ["Command", "QueuedEngine"]


@dataclasses.dataclass
class Command:
    """One command of an engine, all in cycles."""

    place: int
    """In the program."""
    start: int
    end: int
    """The cycle after its last beat or window."""
    bursts: int = 0
    rate: float = 0.0
    """Of a load: its bursts, and the cycles of each."""
    walks: bool = False
    """It goes from bank to bank of the weight buffer."""


class QueuedEngine(StagedState):
    """One engine with its queue."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(in_flight)
        self.handed: deque[tuple[int, int]] = deque()
        """(position, cycle in which the last word was there) of commands that have not started."""
        self.words = 0
        """Words in the queue: all of ``handed`` but the first, which is collected beside the queue."""
        self.commands: list[Command] = []
        """All that have started."""
        self.held = 0
        """Of a Loader: until then lower channels keep single banks of the weight buffer busy, so that what goes from bank to bank
        stands."""

    def delay(self, cycles: int) -> None:
        """What its next command does comes so much later."""
        self.bus += cycles
        self.free += cycles

    def walks(self, time: int) -> bool:
        """Whether a load that goes from bank to bank is under way after ``time``."""
        return self._first_walk(time) is not None

    def postpone(self, time: int, cycles: int) -> list[int]:
        """What goes from bank to bank after ``time``, and all behind it, comes so much later; the places of these commands."""
        first = self._first_walk(time)
        if first is None:
            return []
        late = self.commands[first:]
        for command in late:
            command.end += cycles
        for place in range(max(-len(late), -len(self.under_way)), 0):
            self.under_way[place] += cycles
        self.delay(cycles)
        return [command.place for command in late]

    def _first_walk(self, time: int) -> int | None:
        first = None
        for place in range(len(self.commands) - 1, -1, -1):
            if self.commands[place].end <= time:
                break
            if self.commands[place].walks:
                first = place
        return first
