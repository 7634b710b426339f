"""Updates that are carried over: weight gradients of the last layers beside the forward pass of the next step.

Weight gradients fill the time in which the array would wait, but the forward pass has none of its own: where a layer waits for the
one before, the array stands. A layer's gradients need its input and its error, which stay in memory until the next step writes them
anew. So those of some last layers wait for the next step, whose forward pass reaches the inputs and the weights of the last layers
last. Their exponents, seeds and hyperparameters stay those of their own step until then: every byte is as without.
"""

import dataclasses

from gradloom.contracts.isa import Opcode
from gradloom.host.backward.schedule_backward import dx_kind
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.compilation.transfers import BASE
from gradloom.host.order.pieces import OPEN, BoundEngine, Gate, Work
from gradloom.host.training_step.scales import Scale, scale_all, scales
from gradloom.models.network import Conv, FullyConnected, Kind
from gradloom.models.rounding import NEAREST_F

__all__ = ["ArrivingUpdates", "carried_layers", "held_scales", "seeds"]

Weighted = Conv | FullyConnected


def carried_layers(builder: ProgramBuilder) -> tuple[Weighted, ...]:
    """Those that are chosen, in forward order; never a first one, whose input is another one in the next step."""
    chosen = set(builder.knobs.deferred_layers) & set(builder.search_space.deferrable)
    return tuple(layer for layer in builder.network.weighted if layer.name in chosen)


def held_scales(builder: ProgramBuilder, layers: tuple[Weighted, ...]) -> dict[str, list[Scale]]:
    """Scales that have to wait for the updates of some layers, by the layer whose output is their input: its next forward pass is
    the first thing that needs them."""
    found: dict[str, list[Scale]] = {}
    every = {scale.stat: scale for scale in scales(builder)}
    for layer in layers:
        tids = {builder.tid(layer.name, kind) for kind in (dx_kind(layer), Kind.W, Kind.V)} | {builder.tid(layer.input, Kind.Z)}
        held = found.setdefault(layer.input, [])
        held += [every[tid] for tid in sorted(tids) if tid in every and every[tid] not in held]
    return found


def seeds(builder: ProgramBuilder, layers: tuple[Weighted, ...]) -> set[int]:
    """Tensors that the updates of some layers round stochastically."""
    rounding = builder.network.rounding
    return {builder.tid(layer.name, kind) for layer in layers for kind in (Kind.W, Kind.V) if rounding.f(kind) != NEAREST_F}


@dataclasses.dataclass
class ArrivingUpdates:
    """Updates of the step before, and what waits for them.

    Parameters
    ----------
    layers : in forward order, in which they are needed
    leaving : layers whose updates are left for the next step
    """

    builder: ProgramBuilder
    layers: tuple[Weighted, ...]
    leaving: tuple[Weighted, ...]

    def __post_init__(self) -> None:
        self._held = held_scales(self.builder, self.layers)

    def scale(self) -> None:
        """All scales that have waited."""
        scale_all(self.builder, [scale for held in self._held.values() for scale in held])

    def gate(self, name: str) -> Gate:
        """Of the forward pass of a layer, loads aside: its results, and the scales that come with them, replace what the updates of
        the layers that follow have used once their weights are settled."""
        if name not in self._held:
            return OPEN
        return Gate(settled=tuple(self.builder.region(layer.name, "w") for layer in self.layers if layer.input == name))

    def scaled(self, name: str, works: list[Work]) -> list[Work]:
        """The forward pass of a layer, with the scales that have waited for it."""
        return [self._scaled(work, name) for work in works] if name in self._held else works

    def _scaled(self, work: Work, name: str) -> Work:
        for piece in work:
            yield piece
            if piece.lane != BoundEngine.LOAD and name in self._held:
                scale_all(self.builder, self._held.pop(name), together=True)
                if not self._held:
                    self._begin_step()

    def _begin_step(self) -> None:
        """Hyperparameters and seeds of this step, which nothing needs as long as those of the step before are in use."""
        recorder = self.builder.recorder
        recorder.aside(Opcode.LDHYP, breg=BASE["hyper"])
        for tid in sorted(seeds(self.builder, self.leaving)):
            recorder.aside(Opcode.SEED, tid=tid)
