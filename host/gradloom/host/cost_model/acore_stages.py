"""The A-Core's stages in a replay: what keeps the first pass and the preparation of a command waiting beside what is its own.

The first pass waits for the sweeps before it (:mod:`gradloom.host.cost_model.stream_reads`); in the preparation, scalars wait while
a Storer reads the parameter buffer, and their results while a Loader writes it. Such a transfer may begin when a command that it
meets has long started, so the latest commands are placed anew then.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable

from gradloom.contracts.pipeline import ACORE_ACCEPT, RUNS_IN_FLIGHT
from gradloom.host.cost_model.cost import Cost, Costs, StagedState
from gradloom.host.cost_model.preparation import preparation
from gradloom.host.cost_model.stream_reads import StreamReads
from gradloom.host.program.assembler import Instruction

__all__ = ["AcoreStages"]

_USUAL_WAIT = 2
"""Cycles of waiting that :class:`~gradloom.host.cost_model.cost.Costs` has in a first pass, which schedules count on."""


@dataclasses.dataclass(frozen=True)
class _Started:
    """A command that has started, and what the engine was like before."""

    place: int
    time: int
    instruction: Instruction
    cost: Cost
    before: StagedState
    reads: StreamReads


class AcoreStages:
    """Places the commands of the A-Core.

    Parameters
    ----------
    engine : :class:`~gradloom.host.cost_model.cost.StagedState`
        The A-Core's, which follows what happens here.
    """

    def __init__(self, engine: StagedState, costs: Costs) -> None:
        self._engine, self._costs = engine, costs
        self._reads = StreamReads(costs.config.turns)
        self._started: deque[_Started] = deque(maxlen=RUNS_IN_FLIGHT)
        self._stored: set[int] = set()
        self._loaded: set[int] = set()

    def begin(self, place: int, time: int, instruction: Instruction, cost: Cost) -> int:
        """The next command, at ``place`` in the program, starts at ``time``. Returns when it is done."""
        self._started.append(_Started(place, time, instruction, cost, self._engine.copy(), self._reads.copy()))
        return self._through(time, instruction, cost)

    def stored(self, cycles: Iterable[int]) -> dict[int, int]:
        """A Storer reads the parameter buffer. Returns by places of commands when they are done now."""
        return self._again(self._stored, cycles)

    def loaded(self, cycles: Iterable[int]) -> dict[int, int]:
        """A Loader writes the parameter buffer. Returns by places of commands when they are done now."""
        return self._again(self._loaded, cycles)

    def _again(self, taken: set[int], cycles: Iterable[int]) -> dict[int, int]:
        if not self._started:
            return {}
        taken.difference_update([cycle for cycle in taken if cycle < self._started[0].time])
        taken.update(cycles)
        self._engine.restore(self._started[0].before)
        self._reads = self._started[0].reads.copy()
        found: dict[int, int] = {}
        for number, command in enumerate(self._started):
            before, reads = self._engine.copy(), self._reads.copy()
            self._started[number] = dataclasses.replace(command, before=before, reads=reads)
            found[command.place] = self._through(command.time, command.instruction, command.cost)
        return found

    def _through(self, time: int, instruction: Instruction, cost: Cost) -> int:
        engine = self._engine
        if cost.prepare:
            if cost.passed:
                late = self._reads.late(instruction, cost, time) - _USUAL_WAIT
                cost = cost._replace(latency=cost.latency + late)
            accepted = engine.entered(time, cost)
            stored, loaded = ({cycle - accepted for cycle in taken if cycle >= accepted} for taken in (self._stored, self._loaded))
            if stored or loaded:
                cycles = preparation(instruction, self._costs.program(instruction), self._costs.config, stored, loaded)
                cost = cost._replace(latency=cost.latency + cycles - cost.prepare, prepare=cycles)
        first = engine.first(time, cost)
        if cost.prepare:
            self._reads.sweep(instruction, cost, first)
        done = engine.begin(time, cost, first + cost.transfer)
        engine.free += ACORE_ACCEPT if cost.prepare else 0
        return done
