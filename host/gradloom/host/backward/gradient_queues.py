"""Weight gradients in lines that run beside each other: those that hardly need the A-Core, those whose updates take it for long,
and those of a first layer whose operands are loaded more slowly than the array uses them.

Planes that fill the A-Core's buffers keep it busy for long. Meanwhile the array goes on with gradients of the first of these lines;
those of the second come when they are through, or where the array would wait all the same. Networks without such planes have one
line for all. Each line has a part of the weight-gradient buffer, so that none overwrites what another one has not yet updated.

The first layer's gradients are the last to come. With few input channels they take the array little time, but errors as any
layer's: one after the other, the array would wait for the Loaders. So they have a line of their own, served first but with a small
share of the buffers, and between its row ranges come those of other layers, whose loads have time to spare. A kernel of several
windows has more gradients open than such a line has room for: it begins when all others are done and has the whole buffer.
"""

import dataclasses
from collections.abc import Collection

from gradloom.contracts.config import PE_ROWS, PE_TAPS
from gradloom.host.compilation.layer_sizes import channel_cycles, shape_of
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.layout import plane_beats
from gradloom.host.order.allocators import RingAllocator
from gradloom.host.order.pieces import OPEN, Gate
from gradloom.host.tiles.phase_sweeps import forward_sweep
from gradloom.models.network import INPUT, Conv, FullyConnected

__all__ = ["GradientQueue", "GradientQueues"]

_FEW = 2
"""Tiles of gradients that the first layer's own line has room for."""
_SMALL = 8
"""Its share of the error buffer is one of so many."""
_LONG = 0.25
"""Beats of an update for each cycle of the array that makes its gradients, from which on a layer belongs to the second line."""


@dataclasses.dataclass(frozen=True)
class GradientQueue:
    """Where and when the gradients of a layer are made.

    Parameters
    ----------
    name : of the line; the first one in the alphabet is served first
    ring : its part of the weight-gradient buffer
    gate : of all of them
    share : of how many parts of the error buffer a block may take one
    ahead : sets of operands on chip; ``None``: as chosen for all
    """

    name: str
    ring: RingAllocator
    gate: Gate = OPEN
    share: int = 2
    ahead: int | None = None


class GradientQueues:
    """The lines of all layers of a network (:meth:`of`).

    Parameters
    ----------
    leaving : layers whose gradients are left to the next step
    """

    def __init__(self, builder: ProgramBuilder, leaving: Collection[Conv | FullyConnected] = ()) -> None:
        config, weighted = builder.config, builder.network.weighted
        self._builder, self._leaving = builder, leaving
        self._slow = {layer.name for layer in weighted if self._long_updates(layer)}
        self._first = {layer.name for layer in weighted if layer.input == INPUT}
        others = {layer.name for layer in weighted} - self._first
        own = _FEW * config.dw_tile_beats
        bound = all(self._loads_bound(layer) for layer in weighted if layer.name in self._first)
        apart = bound and bool(others) and own <= config.dw_depth // 4
        rest = config.dw_depth - own if apart else config.dw_depth
        half = rest // 2

        def part(size: int, first: int = 0) -> RingAllocator:
            return RingAllocator(size, first=first, name="DW")

        self._own = GradientQueue("first gradients", part(own, rest), share=_SMALL, ahead=1) if apart else None
        self._whole = GradientQueue("gradients", part(rest))
        self._parts = GradientQueue("gradients", part(half)), GradientQueue("gradients, long updates", part(rest - half, half))
        large = any(2 * self._beats(layer.name) > config.abuf_depth for layer in builder.network.layers)
        self._two = large and bool(self._slow & others) and bool(others - self._slow) and half >= 2 * config.dw_tile_beats

    def _beats(self, layer: str) -> int:
        """Beats of a plane."""
        _, y, x = self._builder.network.shape(layer)
        return plane_beats(y, x)

    def _loads_bound(self, layer: Conv | FullyConnected) -> bool:
        """A convolution of one kernel window whose operands take the Loaders longer than the array, if each is loaded once."""
        builder, config = self._builder, self._builder.config
        shape = shape_of(builder.network, layer, config)
        sweep = forward_sweep(shape, config)
        if sweep.k1 or len(sweep.windows) > 1:
            return False
        count = builder.images[1] - builder.images[0]
        inputs, errors = count * shape.cg * sweep.rows * sweep.xe, count * shape.mg * plane_beats(shape.yo, shape.xo)
        return channel_cycles(config, inputs, errors) > shape.mg * shape.cg * sweep.cycles(config, count)

    def _long_updates(self, layer: Conv | FullyConnected) -> bool:
        """A convolution whose updates take the A-Core for long. Those of fully connected layers come before anything else could."""
        if isinstance(layer, FullyConnected):
            return False
        builder, config = self._builder, self._builder.config
        shape = shape_of(builder.network, layer, config)
        sweep = forward_sweep(shape, config)
        blocks = PE_ROWS * PE_TAPS if sweep.k1 else min(PE_ROWS, shape.ky) * min(PE_TAPS, shape.kx)
        count = builder.images[1] - builder.images[0]
        return blocks * config.block_beats >= _LONG * sweep.cycles(config, count)

    def of(self, layer: Conv | FullyConnected) -> GradientQueue:
        """The line of a layer."""
        if self._own and layer.name in self._first:
            return self._own
        if not self._two:
            return self._whole
        if layer.name not in self._first:
            return self._parts[layer.name in self._slow]
        weighted = self._builder.network.weighted
        others = (other.name for other in weighted if other.name not in self._first and other not in self._leaving)
        # It takes the whole buffer: nothing of the others' gradients is left there once their weights have been updated.
        return dataclasses.replace(self._whole, gate=Gate(settled=tuple(self._builder.region(name, "w") for name in others)))
