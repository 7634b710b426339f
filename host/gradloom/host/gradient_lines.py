"""Weight gradients in two lines: those that hardly need the A-Core, and those whose updates take it for long.

Planes that fill the A-Core's buffers keep it busy for long. Meanwhile the array goes on with gradients of the first line; those of
the second come when they are through, or where the array would wait all the same. Networks without such planes have one line.
Each line has a part of the weight-gradient buffer, so that neither overwrites what the other one has not yet updated. The first
layer's gradients, the last to come, begin when all others are done and have all of it.
"""

import dataclasses

from gradloom.host.layout import plane_beats
from gradloom.host.pacing import Part
from gradloom.host.tiling import Builder, shape_of
from gradloom.host.tokens import Ring
from gradloom.host.windows import forward_sweep
from gradloom.models.network import INPUT, Conv, FullyConnected
from gradloom.rtl.config import PE_ROWS, PE_TAPS

__all__ = ["GradientLines", "Line", "updated"]

_LONG = 0.25
"""Beats of an update for each cycle of the array that makes its gradients, from which on a layer belongs to the second line."""


@dataclasses.dataclass(frozen=True)
class Line:
    """Where and when the gradients of a layer are made.

    Parameters
    ----------
    name : of the line; the first one in the alphabet is served first
    ring : its part of the weight-gradient buffer
    needs : what must be there before
    """

    name: str
    ring: Ring
    needs: tuple[Part, ...] = ()


def updated(builder: Builder, layer: str) -> Part:
    """Says that nothing of a layer's gradients is left in the weight-gradient buffer."""
    return Part(f"{layer} updated", builder.images)


class GradientLines:
    """The lines of all layers of a network (:meth:`of`)."""

    def __init__(self, builder: Builder) -> None:
        config, weighted = builder.config, builder.network.weighted
        self._builder = builder
        self._whole = Line("gradients", Ring(config.dw_depth))
        self._slow = {layer.name for layer in weighted if self._long_updates(layer)}
        self._first = {layer.name for layer in weighted if layer.input == INPUT}
        others = {layer.name for layer in weighted} - self._first
        half = config.dw_depth // 2
        self._parts = (Line("gradients", Ring(half)), Line("gradients, long updates", Ring(config.dw_depth - half, first=half)))
        large = any(2 * self._beats(layer.name) > config.abuf_depth for layer in builder.network.layers)
        self._two = large and bool(self._slow & others) and bool(others - self._slow) and half >= 2 * config.dw_tile_beats

    def _beats(self, layer: str) -> int:
        """Beats of a plane."""
        _, y, x = self._builder.network.shape(layer)
        return plane_beats(y, x)

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

    def of(self, layer: Conv | FullyConnected) -> Line:
        """The line of a layer."""
        if not self._two:
            return self._whole
        if layer.name not in self._first:
            return self._parts[layer.name in self._slow]
        others = (other.name for other in self._builder.network.weighted if other.name not in self._first)
        return dataclasses.replace(self._whole, needs=tuple(updated(self._builder, name) for name in others))
