"""Sizes of layers as the scheduler sees them: channel groups, beats of planes, cycles of the channels that bring them."""

import dataclasses

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest
from gradloom.host.compilation.windows import Shape
from gradloom.host.dram.layout import bitmap_beats, ceil_div, even, plane_beats
from gradloom.models.network import FullyConnected, Layer, Network

__all__ = ["Plane", "channel_cycles", "shape_of"]


@dataclasses.dataclass(frozen=True)
class Plane:
    """Beats of one plane of a channel group."""

    y: int
    x: int

    @property
    def xe(self) -> int:
        return even(self.x) // 2

    @property
    def nb(self) -> int:
        return plane_beats(self.y, self.x)

    @property
    def bits(self) -> int:
        return bitmap_beats(self.y, self.x)

    def of(self, rows: tuple[int, int] | None) -> "Plane":
        """Some of its rows; ``None``: all of it."""
        return Plane(rows[1] - rows[0], self.x) if rows else self

    def rows_of(self, beats: int) -> int:
        """Rows of parts of at most so many beats; 0 if that is all of the plane, or no number."""
        return max(1, beats // self.xe) if 0 < beats < self.nb else 0

    def fields(self) -> dict[str, int]:
        return {"nb": self.nb, "xe": self.xe, "py": self.y, "xodd": self.x & 1, "n": self.y * self.x & 0x7FFF}


def shape_of(network: Network, layer: Layer, config: Config) -> Shape:
    """Group counts and sizes of a convolution or fully connected layer."""
    geometry, g = network.geometry(layer.name), config.group
    (c, yi, xi), (m, yo, xo) = geometry.in_shape, geometry.out_shape
    ky, kx = geometry.kernel
    if isinstance(layer, FullyConnected) and ky * kx > 1:
        kx = even(kx)
    laps_in, laps_out = (min(config.laps, ceil_div(channels, config.cols)) for channels in (c, m))
    groups = ceil_div(c, g), ceil_div(m, g)
    return Shape(*groups, yi, xi, yo, xo, ky, kx, geometry.stride, geometry.pad, laps_in, laps_out, geometry.across)


def channel_cycles(config: Config, inputs: int, others: int, *, channels: int = 2) -> int:
    """Cycles of the Loaders for so many beats of inputs, and of weights or errors, whose channel may take a part of the inputs.

    ``channels``: how many of those that fill the input buffer are counted on. By default none of the A-Core's, which help where
    they are free: else images would be cut into ranges whose weights are loaded too often (``eta``, estimated: VGG16 at batch 16
    1.3 %, ResNet18 at batch 4 2.4 % more cycles a step).
    """
    if config.load_channels < 3:
        return inputs + others
    return max(others, ceil_div(inputs + others, min(channels, len(load_channels(config, Dest.IBUF)))))
