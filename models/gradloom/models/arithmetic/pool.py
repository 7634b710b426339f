"""Passes over windows of planes: maximum and average pooling, forward and backward (docs/arithmetic.md, section 11)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .arith import reciprocal
from .conv import output_size

__all__ = ["PoolWalk", "avg_backward", "avg_exponent", "avg_forward", "max_backward", "max_forward", "walked"]

_NEVER = -(1 << 62)


@dataclasses.dataclass(frozen=True)
class PoolWalk:
    """One pass over windows of planes, a microprogram of the machine; the backward pass is the adjoint of the forward pass.

    Parameters
    ----------
    kernel : (rows, columns) of a window
    stride : rows and columns from window to window
    pad : rows and columns around the planes on which the windows lie
    spread : ``False``: a result is of the positions that its window holds; ``True``: of the windows that hold its position
    maximum : a result is the first maximum of its window; spread, the sum over the windows whose index names its position
    mean : sums are divided by the positions of a window (maxima are not)
    """

    kernel: tuple[int, int]
    stride: int
    pad: int = 0
    spread: bool = False
    maximum: bool = False
    mean: bool = True

    @property
    def adjoint(self) -> "PoolWalk":
        """The derivative: the same windows the other way."""
        return dataclasses.replace(self, spread=not self.spread)

    @property
    def divisor(self) -> int:
        """What a sum is divided by."""
        return self.kernel[0] * self.kernel[1] if self.mean else 1

    @property
    def fraction(self) -> int:
        """Bits by which the wide results' exponent is lower than that of what is read."""
        return 0 if self.maximum else 15 + reciprocal(self.divisor)[1]


def walked(
    x: Any, walk: PoolWalk, shape: tuple[int, ...], index: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Wide results of a pass, int64 (B, C, Y, X), and of a maximum that is not spread its index (:func:`max_forward`).

    ``shape`` is that of the results, of which the last two numbers count; ``index`` that of a maximum that is spread.
    """
    _check(walk.kernel, walk.pad)
    if walk.maximum and walk.spread:
        return max_backward(x, index, shape, walk.kernel, walk.stride, walk.pad), None
    if walk.maximum:
        return max_forward(x, walk.kernel, walk.stride, walk.pad)
    if walk.spread:
        values = np.asarray(x).astype(np.int64)
        sums = _scatter(lambda i, j: values, walk.kernel, shape, walk.stride, walk.pad)
    else:
        sums = _windows(np.asarray(x), walk.kernel, walk.stride, walk.pad, 0).sum(axis=(4, 5))
    return sums * reciprocal(walk.divisor)[0], None


def _pair(kernel: int | tuple[int, int]) -> tuple[int, int]:
    return (kernel, kernel) if isinstance(kernel, int) else kernel


def _check(kernel: tuple[int, int], pad: int) -> None:
    if not 0 <= pad < min(kernel):
        raise ValueError(f"Padding of a pool must be 0 or more and below its kernel {kernel}, not '{pad}'")


def _windows(x: np.ndarray, kernel: tuple[int, int], stride: int, pad: int, fill: int) -> np.ndarray:
    """Windows (B, C, Yo, Xo, Ky, Kx) of planes padded with ``fill``."""
    for size, window in zip(x.shape[2:], kernel, strict=True):
        output_size(size, window, stride, pad)
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))[:, :, ::stride, ::stride]


def _scatter(taps: Callable[[int, int], np.ndarray], kernel: tuple[int, int], shape: tuple[int, ...],
             stride: int, pad: int) -> np.ndarray:
    """Sum (B, C, Y, X) of ``taps(i, j)`` (B, C, Yo, Xo) at the input positions that tap (i, j) reads."""
    y, x = shape[-2:]
    first = taps(0, 0)
    batch, channels, yo, xo = first.shape
    padded = np.zeros((batch, channels, y + 2 * pad, x + 2 * pad), dtype=np.int64)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            padded[:, :, i : i + stride * yo : stride, j : j + stride * xo : stride] += taps(i, j)
    return padded[:, :, pad : pad + y, pad : pad + x]


def max_forward(x: Any, kernel: int | tuple[int, int], stride: int,
                pad: int) -> tuple[np.ndarray, np.ndarray]:
    """First maximum of each window in row-major order; padding never wins.

    Returns
    -------
    value : int64 (B, C, Yo, Xo), exponent of ``x``
    index : uint8 (B, C, Yo, Xo), ``i * Kx + j`` of the maximum within its window, stored as a raw byte
    """
    size = _pair(kernel)
    _check(size, pad)
    windows = _windows(np.asarray(x), size, stride, pad, _NEVER)
    flat = windows.reshape(*windows.shape[:4], -1)
    index = flat.argmax(axis=-1)
    return np.take_along_axis(flat, index[..., None], axis=-1)[..., 0], index.astype(np.uint8)


def max_backward(dz: Any, index: Any, shape: tuple[int, ...], kernel: int | tuple[int, int], stride: int,
                 pad: int) -> np.ndarray:
    """Sum of dz over the windows whose index names the position; int64 (B, C, Y, X), exponent of dz.

    ``shape`` is that of the pool's input, of which the last two numbers count.
    """
    size = _pair(kernel)
    error, chosen = np.asarray(dz).astype(np.int64), np.asarray(index)
    return _scatter(lambda i, j: np.where(chosen == i * size[1] + j, error, 0), size, shape, stride, pad)


def avg_exponent(e: int, kernel: int | tuple[int, int]) -> int:
    """Exponent of the wide results of average pooling: ``e - 15 - k``."""
    return e - PoolWalk(_pair(kernel), 1).fraction


def avg_forward(x: Any, kernel: int | tuple[int, int], stride: int, pad: int) -> np.ndarray:
    """Window sums times the reciprocal of the window's size; padding counts as 0.

    int64 (B, C, Yo, Xo), exponent ``e - 15 - k``. A global average pool is a window of the whole plane.
    """
    return walked(x, PoolWalk(_pair(kernel), stride, pad), ())[0]


def avg_backward(dz: Any, shape: tuple[int, ...], kernel: int | tuple[int, int], stride: int,
                 pad: int) -> np.ndarray:
    """Sum of dz over the windows that hold the position, times the reciprocal.

    int64 (B, C, Y, X), exponent ``e_dz - 15 - k``; ``shape`` as for :func:`max_backward`.
    """
    return walked(dz, PoolWalk(_pair(kernel), stride, pad).adjoint, shape)[0]
