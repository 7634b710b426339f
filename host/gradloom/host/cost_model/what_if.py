"""What a step would take if a part of the machine took no time: which engine is worth making faster, and how much that can gain.

The same program is replayed with some commands at next to no cycles. The order of the commands, their semaphores and what all
others take stay as they are, so this is what the part costs this schedule; a schedule made for the faster machine may gain more.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Engine
from gradloom.host.cost_model.cost import Cost, Costs, DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.workload import PHASES
from gradloom.host.program.assembler import Instruction

__all__ = ["PARTS", "Part", "what_if"]

_NOTHING = Cost(issue=3, ahead=0, latency=3, transfer=2, end=2)
"""Of a command that takes no time: the hand-over from engine to engine is left."""
_GRADIENTS = PHASES.index("WG + WU")
"""Phase of a command's tag."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the machine, or of its work.

    Parameters
    ----------
    name : :class:`str`
    free : callable
        Whether a command takes no time.
    latency : :class:`bool`
        Whether the memory keeps its latency.
    """

    name: str
    free: Callable[[Instruction], bool] = lambda _: False
    latency: bool = True


def _engines(*engines: Engine) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.engine in engines


PARTS = (
    Part("memory latency", latency=False),
    Part("loads and stores", _engines(Engine.LOAD, Engine.STORE)),
    Part("A-Core", _engines(Engine.ACORE)),
    Part("loads, stores and A-Core", _engines(Engine.LOAD, Engine.STORE, Engine.ACORE)),
    Part("array", _engines(Engine.CCORE)),
    Part("weight gradients and updates", lambda instruction: instruction.tag % 8 == _GRADIENTS),
)
"""Each with all that another engine or the memory takes left as it is."""


class _FreeCosts(Costs):
    def __init__(self, config: Config, dram: DramCost, free: Callable[[Instruction], bool]) -> None:
        super().__init__(config, dram)
        self._free = free

    def __call__(self, instruction: Instruction) -> Cost:
        return _NOTHING if self._free(instruction) else super().__call__(instruction)


def what_if(
    programs: Sequence[tuple[Instruction, ...]], step: int, config: Config, dram: DramCost
) -> Iterator[tuple[Part, int]]:
    """Cycles of a ``step`` of one start (:func:`~gradloom.host.cost_model.trace.step_programs`), counted from 0, for every part in
    turn.

    A replay each: seconds where a step has tens of thousands of commands.
    """
    for part in PARTS:
        memory = dram if part.latency else dataclasses.replace(dram, latency=0)
        yield part, replay(programs, config, memory, _FreeCosts(config, memory, part.free))[step].cycles
