"""When commands would run, estimated while the program is being written, so that the order of a program can follow time.

The commands of every engine start in order, as soon as the engine has room and what they depend on is done; cycles of a command
are those of the cost model (:class:`~gradloom.host.cost_model.cost.Costs`). Unlike :func:`~gradloom.host.cost_model.replay.replay`
a clock knows no command queues and no fetch of the program, and its memory is a usual one: a program must not depend on where it
runs.
"""

import itertools
from collections.abc import Iterable

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.pipeline import in_flight
from gradloom.host.cost_model.cost import Costs, DramCost, EngineState, StagedState
from gradloom.host.program.assembler import Instruction

__all__ = ["Clock"]


class Clock:
    """Starts and ends of all commands so far, in cycles from the start of the program.

    Parameters
    ----------
    staged : :class:`bool`
        The A-Core's stages are followed exactly, not about.

    Attributes
    ----------
    done : dict
        Position of a command in the program: the cycle in which it is done.
    """

    def __init__(self, config: Config, *, staged: bool = False) -> None:
        self._costs = Costs(config, DramCost())
        self._engines = {unit: EngineState(in_flight(unit)) for unit in units(config)}
        if staged:
            self._engines[Unit.ACORE] = StagedState(in_flight(Unit.ACORE))
        self.done: dict[int, int] = {}

    def place(self, position: int, unit: Unit, instruction: Instruction, behind: Iterable[int]) -> None:
        """The next command of an engine, which waits for the commands at ``behind``."""
        engine = self._engines[unit]
        time = max(engine.free, engine.under_way[0], *(self.done[place] for place in behind), 0)
        cost = self._costs(instruction)
        self.done[position] = engine.begin(time, cost, engine.first(time, cost) + cost.transfer)

    def through(self, first: int) -> int:
        """When all commands from position ``first`` on are done; 0 if there are none."""
        behind = itertools.takewhile(lambda position: position >= first, reversed(self.done))
        return max((self.done[position] for position in behind), default=0)

    def free(self, unit: Unit) -> int:
        """When the last beat or window so far has passed an engine's pipeline."""
        return self._engines[unit].bus

    def accepts(self, unit: Unit) -> int:
        """When an engine could take its next command."""
        return max(self._engines[unit].free, self._engines[unit].under_way[0])

    def barrier(self) -> None:
        """All engines wait for the last of them."""
        time = max(engine.under_way[-1] for engine in self._engines.values())
        for engine in self._engines.values():
            engine.free = engine.bus = max(time, engine.bus)
