"""Brute-force convolutions of integers, from images alone: what the sums and gradients of testbenches must be."""

from typing import Protocol

import numpy as np

__all__ = ["Geometry", "backward", "decode_code", "forward", "weight_gradient"]


class Geometry(Protocol):
    """Sizes of a convolution with a square kernel: stored and output rows and columns, stride, padding."""

    @property
    def y(self) -> int: ...
    @property
    def x(self) -> int: ...
    @property
    def yo(self) -> int: ...
    @property
    def xo(self) -> int: ...
    @property
    def kernel(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def pad(self) -> int: ...


def decode_code(code: np.ndarray) -> np.ndarray:
    """Values of PINT(8, 3) codes."""
    m = (np.asarray(code).astype(np.int64) & 127 ^ 64) - 64
    return np.where(np.asarray(code) >= 128, 8 * m, np.where((m >= -8) & (m < 8), m, 64 * m))


def forward(x: np.ndarray, w: np.ndarray, layer: Geometry) -> np.ndarray:
    """Brute-force convolution of integers [N][C][Y][X] * [M][C][K][K]."""
    p, s = layer.pad, layer.stride
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    out = np.zeros((len(x), len(w), layer.yo, layer.xo), np.int64)
    for ky in range(layer.kernel):
        for kx in range(layer.kernel):
            view = padded[:, :, ky:ky + s * layer.yo:s, kx:kx + s * layer.xo:s][:, :, :layer.yo, :layer.xo]
            out += np.einsum("ncyx,mc->nmyx", view, w[:, :, ky, kx])
    return out


def backward(e: np.ndarray, w: np.ndarray, layer: Geometry) -> np.ndarray:
    """Gradient of the input: the transpose of :func:`forward`."""
    p, s = layer.pad, layer.stride
    out = np.zeros((len(e), w.shape[1], layer.y + 2 * p + 2, layer.x + 2 * p + 2), np.int64)
    for ky in range(layer.kernel):
        for kx in range(layer.kernel):
            out[:, :, ky:ky + s * layer.yo:s, kx:kx + s * layer.xo:s] += np.einsum("nmyx,mc->ncyx", e, w[:, :, ky, kx])
    return out[:, :, p:p + layer.y, p:p + layer.x]


def weight_gradient(x: np.ndarray, e: np.ndarray, layer: Geometry) -> np.ndarray:
    """Gradient of the weights [M][C][K][K]."""
    p, s = layer.pad, layer.stride
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    out = np.zeros((e.shape[1], x.shape[1], layer.kernel, layer.kernel), np.int64)
    for ky in range(layer.kernel):
        for kx in range(layer.kernel):
            view = padded[:, :, ky:ky + s * layer.yo:s, kx:kx + s * layer.xo:s]
            out[:, :, ky, kx] = np.einsum("ncyx,nmyx->mc", view, e)
    return out
