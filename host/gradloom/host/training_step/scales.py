"""Exponents of the next step: which tensors are scaled, and by which commands of the Sequencer (docs/arithmetic.md)."""

import dataclasses
from collections.abc import Iterable

from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Opcode
from gradloom.host.compilation.program_builder import ProgramBuilder, shifts
from gradloom.host.program.assembler import Instruction
from gradloom.models.network import Kind
from gradloom.models.state import delayed_kinds

__all__ = ["Scale", "scale_all", "scales"]


@dataclasses.dataclass(frozen=True)
class Scale:
    """One SCALE: tensor of the statistics, tensor of the exponent (the next one of weights and velocities), F of the encoder."""

    stat: int
    target: int
    f: int

    def commands(self) -> list[Instruction]:
        """The Sequencer's."""
        scale = Instruction(Opcode.SCALE, {"tid": self.stat, "target": self.target, "f": self.f})
        if self.stat == self.target:
            return [scale]
        return [Instruction(Opcode.EXPSET, {"target": self.stat}, shifts(SH0=(0, (self.target,), ()))), scale]


def scales(builder: ProgramBuilder) -> list[Scale]:
    """All of a step."""
    network, tid = builder.network, builder.tid
    found = [
        Scale(tid(layer.name, kind), tid(layer.name, kind), network.rounding.f(kind))
        for layer in network.layers
        for kind in delayed_kinds(network, layer.name)
    ]
    for layer in network.weighted:
        found += [
            Scale(tid(layer.name, now), tid(layer.name, ahead), network.rounding.f(now))
            for now, ahead in ((Kind.W, Kind.W_NEXT), (Kind.V, Kind.V_NEXT))
        ]
    return found


def scale_all(builder: ProgramBuilder, chosen: Iterable[Scale], *, together: bool = False) -> None:
    """Scale some tensors, each as soon as the A-Core is through with what uses its present exponent; or ``together``, behind the
    last command that does.

    Commands that use the new exponents come behind these in the program.
    """
    recorder, last = builder.recorder, dict[int, int]()
    for place, instruction in recorder.since_barrier():
        if instruction.unit(builder.config) == Unit.ACORE:
            last |= dict.fromkeys(instruction.tensors, place)
    chosen = list(chosen)
    places = [max(last.get(scale.stat, -1), last.get(scale.target, -1)) for scale in chosen]
    if together:
        places = [max(places, default=-1)] * len(places)
    recorder.behind_acore([(place, command) for place, scale in zip(places, chosen, strict=True) for command in scale.commands()])
