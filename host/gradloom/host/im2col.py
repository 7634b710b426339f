"""The first convolution as a kernel-1 layer over images whose windows the host has laid out as channels (im2col).

An array of G input columns takes G channels of one kernel position a cycle; an image of three channels leaves most of them idle,
and kernels above 3 x 3 are folded into windows of 3 x 3 that they do not fill. Laid out as C Ky Kx channels of the output's
planes, the image feeds the kernel-1 pattern with dense channels: ResNet18's 7 x 7 stem takes 21 windows a position in place of 72
at G = 8. Every integer sum is the same. So are the indices of weights: (m, c, ky, kx) of the convolution is
(m, c Ky Kx + ky Kx + kx) of the lowered layer, at the same place in row-major order, and all rounding follows from that.
"""

import dataclasses

import numpy as np

from gradloom.host.layout import ceil_div
from gradloom.models.layers import Geometry
from gradloom.models.network import INPUT, Conv, Network
from gradloom.rtl.config import PE_ROWS, PE_TAPS, Config

__all__ = ["Lowered", "lower"]

_GAIN = 2
"""Least ratio of array windows before and after. The image grows by Ky Kx / stride squared, and a 3 x 3 kernel of stride 1 gains
nothing that its loads do not cost."""


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What the machine runs for a network.

    Parameters
    ----------
    network : :class:`Network`
        With the first convolution as a kernel-1 layer, or as it was.
    geometry : :class:`Geometry`, optional
        That convolution's, if it was lowered.
    """

    network: Network
    geometry: Geometry | None = None

    def images(self, codes: np.ndarray) -> np.ndarray:
        """uint8 codes (B, C, Y, X) as the machine reads them: (B, C Ky Kx, Yo, Xo) if lowered. Padding is code 0."""
        if self.geometry is None:
            return codes
        (_, rows, columns), (ky, kx), s, p = self.geometry.out_shape, self.geometry.kernel, self.geometry.stride, self.geometry.pad
        padded = np.pad(codes, ((0, 0), (0, 0), (p, p), (p, p)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (ky, kx), axis=(2, 3))[:, :, ::s, ::s]
        return windows.transpose(0, 1, 4, 5, 2, 3).reshape(len(codes), -1, rows, columns)

    def codes(self, images: np.ndarray) -> np.ndarray:
        """What :meth:`images` was made from."""
        if self.geometry is None:
            return images
        (_, rows, columns), (ky, kx), s, p = self.geometry.out_shape, self.geometry.kernel, self.geometry.stride, self.geometry.pad
        channels, height, width = self.geometry.in_shape
        windows = images.reshape(len(images), channels, ky, kx, rows, columns)
        padded = np.zeros((len(images), channels, height + 2 * p, width + 2 * p), images.dtype)
        for y in range(ky):
            for x in range(kx):
                padded[:, :, y : y + s * rows : s, x : x + s * columns : s] = windows[:, :, y, x]
        return padded[:, :, p : p + height, p : p + width]


def lower(network: Network, config: Config) -> Lowered:
    """Lower the first convolution where that at least halves its windows on the array, and no pixel is lost by it."""
    readers = network.consumers(INPUT)
    layer = readers[0][0]
    if len(readers) != 1 or not isinstance(layer, Conv) or layer.kernel == 1:
        return Lowered(network)
    geometry, g = network.geometry(layer.name), config.group
    channels, (ky, kx) = geometry.in_shape[0], geometry.kernel
    outputs = ceil_div(layer.out, g)
    before = ceil_div(ky, PE_ROWS) * ceil_div(kx, PE_TAPS) * ceil_div(channels, g) * outputs
    after = ceil_div(ceil_div(channels * ky * kx, g), PE_ROWS) * ceil_div(outputs, PE_TAPS)
    reach = [(n - 1) * layer.stride + k - layer.pad for n, k in zip(geometry.out_shape[1:], geometry.kernel, strict=True)]
    if before < _GAIN * after or any(end < size for end, size in zip(reach, geometry.in_shape[1:], strict=True)):
        return Lowered(network)
    layers = tuple(
        dataclasses.replace(layer, kernel=1, stride=1, pad=0) if other is layer else other for other in network.layers
    )
    shape = (channels * ky * kx, *geometry.out_shape[1:])
    return Lowered(dataclasses.replace(network, input_shape=shape, layers=layers), geometry)
