"""The first convolution as kernel-1 windows over images that the host has laid out anew (im2col).

An array of G input columns takes G channels of one kernel position a cycle; an image of three channels leaves most of them idle,
and kernels above 3 x 3 are folded into windows of 3 x 3 that they do not fill. The kernel-1 pattern takes 3 G channels of one
position, so the host makes channels of

- the kernel's rows (:class:`KernelRows`): C ceil(Ky / G) G channels of the output's rows and the image's columns, which Kx windows
  of one position sweep over. Every column is stored once, though Kx / stride windows read it. Where the channels are so few that
  the PE rows hold them all, every stride-th column lies in a row of its own, so that what neighbouring positions read are
  neighbouring columns (docs/decisions/0005-first-layer.md); or of
- whole windows (:class:`Windows`): C Ky Kx channels of the output's planes, where these are fewer steps of the array.

ResNet18's 7 x 7 stem takes 20 steps a position (21 with whole windows) in place of 72 at G = 8, and 38 thousand beats an image
in place of 119.
Every integer sum is the same, and rounding follows from a weight's index in the convolution (:class:`WeightIndex`).
The kernel-1 pattern is ETA's pattern 7 (section IV-B1), weight stationary (docs/decisions/0001-weight-stationary-kernel-1.md).
"""

import abc
import dataclasses
import math

import numpy as np

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.host.dram.layout import ceil_div
from gradloom.models.layers import Geometry
from gradloom.models.network import INPUT, Conv, Network

__all__ = ["KernelRows", "Lowered", "WeightIndex", "Windows", "lower"]

_GAIN = 2
"""Least ratio of array windows before and after. The image grows, and a 3 x 3 kernel of stride 1 gains nothing that its loads do
not cost."""


@dataclasses.dataclass(frozen=True)
class WeightIndex:
    """Index (m, c, ky, kx) of a layer's weights in row-major order, as the machine steps through them.

    Parameters
    ----------
    out, lane, row, column : steps from output channel to output channel, from one channel of an input group to the next, from
        kernel row to kernel row, from column to column
    group, spread : step from input group to input group, and of every how many groups ``far`` is the step instead
    """

    out: int
    lane: int
    row: int
    column: int
    group: int
    spread: int
    far: int

    def start(self, group: int) -> int:
        """Index of output channel 0 and the first channel of an input group."""
        channel, part = divmod(group, self.spread)
        return channel * self.far + part * self.group


@dataclasses.dataclass(frozen=True)
class _Layout(abc.ABC):
    """How a convolution's image and weights are laid out.

    Parameters
    ----------
    geometry : :class:`Geometry`
        The convolution's.
    """

    geometry: Geometry

    @property
    @abc.abstractmethod
    def lowered(self) -> Geometry:
        """Of what the machine runs."""

    @abc.abstractmethod
    def images(self, codes: np.ndarray) -> np.ndarray:
        """uint8 codes (B, C, Y, X) as the machine reads them. Padding is code 0."""

    @abc.abstractmethod
    def codes(self, images: np.ndarray) -> np.ndarray:
        """What :meth:`images` was made from."""

    @abc.abstractmethod
    def weights(self, values: np.ndarray) -> np.ndarray:
        """Values (M, C, Ky, Kx) of weights at the machine's places; 0 elsewhere."""

    @abc.abstractmethod
    def values(self, weights: np.ndarray) -> np.ndarray:
        """What :meth:`weights` was made from."""

    @abc.abstractmethod
    def index(self, group: int) -> WeightIndex:
        """Steps of the convolution's indices; ``group``: G."""

    def _windows(self, codes: np.ndarray, kernel: tuple[int, int], steps: tuple[int, int]) -> np.ndarray:
        """Views (B, C, ., ., *kernel) of the padded image."""
        p = self.geometry.pad
        padded = np.pad(codes, ((0, 0), (0, 0), (p, p), (p, p)))
        return np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))[:, :, :: steps[0], :: steps[1]]

    def _empty(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A padded image, and the image in it."""
        (channels, height, width), p = self.geometry.in_shape, self.geometry.pad
        padded = np.zeros((len(images), channels, height + 2 * p, width + 2 * p), images.dtype)
        return padded, padded[:, :, p : p + height, p : p + width]


@dataclasses.dataclass(frozen=True)
class Windows(_Layout):
    """Whole windows as channels: (B, C Ky Kx, Yo, Xo)."""

    @property
    def lowered(self) -> Geometry:
        g = self.geometry
        return Geometry((g.in_shape[0] * math.prod(g.kernel), *g.out_shape[1:]), g.out_shape, (1, 1), 1, 0)

    def images(self, codes: np.ndarray) -> np.ndarray:
        windows = self._windows(codes, self.geometry.kernel, (self.geometry.stride, self.geometry.stride))
        return windows.transpose(0, 1, 4, 5, 2, 3).reshape(len(codes), *self.lowered.in_shape)

    def codes(self, images: np.ndarray) -> np.ndarray:
        (ky, kx), (_, rows, columns), s = self.geometry.kernel, self.geometry.out_shape, self.geometry.stride
        padded, image = self._empty(images)
        windows = images.reshape(len(images), self.geometry.in_shape[0], ky, kx, rows, columns)
        for y in range(ky):
            for x in range(kx):
                padded[:, :, y : y + s * rows : s, x : x + s * columns : s] = windows[:, :, y, x]
        return image

    def weights(self, values: np.ndarray) -> np.ndarray:
        return np.reshape(values, (len(values), self.lowered.in_shape[0], 1, 1))

    def values(self, weights: np.ndarray) -> np.ndarray:
        return np.reshape(weights, (len(weights), self.geometry.in_shape[0], *self.geometry.kernel))

    def index(self, group: int) -> WeightIndex:
        return WeightIndex(self.lowered.in_shape[0], 1, 1, 1, group, 1, group)


@dataclasses.dataclass(frozen=True)
class KernelRows(_Layout):
    """The kernel's rows as ``lanes`` channels, Ky rounded up to whole groups: (B, C lanes, Yo P, ceil(X / P)) with
    X = (Xo - 1) stride + Kx columns, of which P = ``phases`` divide the columns in turns among P rows. P is 1 or the stride."""

    lanes: int
    phases: int = 1

    @property
    def _columns(self) -> int:
        return (self.geometry.out_shape[2] - 1) * self.geometry.stride + self.geometry.kernel[1]

    @property
    def lowered(self) -> Geometry:
        g, p = self.geometry, self.phases
        shape = g.in_shape[0] * self.lanes, g.out_shape[1] * p, ceil_div(self._columns, p)
        return Geometry(shape, g.out_shape, (1, g.kernel[1]), p, 0, g.stride // p)

    def images(self, codes: np.ndarray) -> np.ndarray:
        (channels, _, _), ky, (_, rows, columns) = self.geometry.in_shape, self.geometry.kernel[0], self.lowered.in_shape
        windows = self._windows(codes, (ky, 1), (self.geometry.stride, 1))[:, :, :, : self._columns, :, 0]
        found = np.zeros((len(codes), channels, self.lanes, rows // self.phases, columns * self.phases), codes.dtype)
        found[:, :, :ky, :, : self._columns] = windows.transpose(0, 1, 4, 2, 3)
        return self._in_turns(found, columns).reshape(len(codes), *self.lowered.in_shape)

    def codes(self, images: np.ndarray) -> np.ndarray:
        (channels, _, _), ky, s = self.geometry.in_shape, self.geometry.kernel[0], self.geometry.stride
        rows = self.lowered.in_shape[1]
        padded, image = self._empty(images)
        found = self._in_turns(images.reshape(len(images), channels, self.lanes, rows // self.phases, -1), self.phases)
        for y in range(ky):
            padded[:, :, y : y + s * rows // self.phases : s, : self._columns] = found[:, :, y, :, : self._columns]
        return image

    @staticmethod
    def _in_turns(rows: np.ndarray, length: int) -> np.ndarray:
        """Rows (..., X) whose columns are dealt to X / ``length`` runs in turns, one behind the other."""
        return rows.reshape(*rows.shape[:-1], length, -1).swapaxes(-1, -2).reshape(rows.shape)

    def weights(self, values: np.ndarray) -> np.ndarray:
        m, c, ky, kx = np.shape(values)
        found = np.zeros((m, c, self.lanes, 1, kx), values.dtype)
        found[:, :, :ky, 0] = values
        return found.reshape(m, c * self.lanes, 1, kx)

    def values(self, weights: np.ndarray) -> np.ndarray:
        (channels, _, _), (ky, kx) = self.geometry.in_shape, self.geometry.kernel
        return np.reshape(weights, (len(weights), channels, self.lanes, kx))[:, :, :ky]

    def index(self, group: int) -> WeightIndex:
        (channels, _, _), (ky, kx) = self.geometry.in_shape, self.geometry.kernel
        return WeightIndex(channels * ky * kx, kx, 0, 1, group * kx, self.lanes // group, ky * kx)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What the machine runs for a network.

    Parameters
    ----------
    network : :class:`Network`
        With the first convolution's geometry as it is laid out, or as it was.
    layer : :class:`str`
        That convolution, if it was lowered.
    layout : :class:`KernelRows` or :class:`Windows`, optional
        How it is laid out.
    """

    network: Network
    layer: str = ""
    layout: KernelRows | Windows | None = None

    def images(self, codes: np.ndarray) -> np.ndarray:
        """uint8 codes (B, C, Y, X) as the machine reads them."""
        return self.layout.images(codes) if self.layout else codes

    def codes(self, images: np.ndarray) -> np.ndarray:
        """What :meth:`images` was made from."""
        return self.layout.codes(images) if self.layout else images

    def weights(self, layer: str, values: np.ndarray) -> np.ndarray:
        """Values (M, C, Ky, Kx) of a layer's weights at the machine's places."""
        return self.layout.weights(values) if self.layout and layer == self.layer else values

    def values(self, layer: str, weights: np.ndarray) -> np.ndarray:
        """What :meth:`weights` was made from."""
        return self.layout.values(weights) if self.layout and layer == self.layer else weights

    def index(self, layer: str, group: int) -> WeightIndex:
        """Steps of a layer's indices; ``group``: G."""
        if self.layout and layer == self.layer:
            return self.layout.index(group)
        _, channels, ky, kx = self.network.weight_shape(layer)
        plane = ky * kx
        return WeightIndex(channels * plane, plane, kx, 1, group * plane, 1, group * plane)


def lower(network: Network, config: Config) -> Lowered:
    """Lower the first convolution where that at least halves its windows on the array, and no pixel is lost by it."""
    readers = network.consumers(INPUT)
    layer = readers[0][0]
    if len(readers) != 1 or not isinstance(layer, Conv) or layer.kernel == 1:
        return Lowered(network)
    geometry, g = network.geometry(layer.name), config.group
    channels, (ky, kx) = geometry.in_shape[0], geometry.kernel
    outputs, lanes = ceil_div(layer.out, g), ceil_div(ky, g) * g
    before = ceil_div(ky, PE_ROWS) * ceil_div(kx, PE_TAPS) * ceil_div(channels, g) * outputs
    windows = ceil_div(ceil_div(channels * ky * kx, g), PE_ROWS) * ceil_div(outputs, PE_TAPS)
    columns = ceil_div(channels * lanes // g, PE_ROWS) * ceil_div(outputs, PE_TAPS) * kx
    reach = [(n - 1) * layer.stride + k - layer.pad for n, k in zip(geometry.out_shape[1:], geometry.kernel, strict=True)]
    if before < _GAIN * windows or any(end < size for end, size in zip(reach, geometry.in_shape[1:], strict=True)):
        return Lowered(network)
    phases = layer.stride if channels * lanes <= PE_ROWS * g else 1
    layout = KernelRows(geometry, lanes, phases) if columns <= windows else Windows(geometry)
    return Lowered(network.laid_out(layer.name, layout.lowered), layer.name, layout)
