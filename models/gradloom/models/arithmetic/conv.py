"""Convolution in its three phases, exact in integers (ETA equations 1, 3, 5; docs/arithmetic.md, section 8).

A fully connected layer is a convolution whose kernel is the whole input plane, without padding (equations 2,
4, 6). The exponent of a result is the sum of the operands' exponents. A sum that does not fit the accumulator
is an :class:`~gradloom.models.arithmetic.arith.ArithmeticFault`.
"""

from typing import Any

import numpy as np

from .arith import check_fits

__all__ = ["GRADIENT_BITS", "SUM_BITS", "backward", "forward", "output_size", "weight_gradient"]

SUM_BITS = 36
"""W of forward and backward sums."""
GRADIENT_BITS = 48
"""W of weight-gradient sums."""
_CHUNK = 1 << 24
"""Elements of an unfolded window matrix that are held at once."""


def output_size(n: int, k: int, stride: int, pad: int) -> int:
    """``floor((n + 2 pad - k) / stride) + 1`` positions of a window of ``k`` along ``n`` inputs."""
    if n + 2 * pad < k:
        raise ValueError(f"A kernel of {k} does not fit an input of {n} with padding {pad}")
    return (n + 2 * pad - k) // stride + 1


def _pair(kernel: int | tuple[int, int]) -> tuple[int, int]:
    return (kernel, kernel) if isinstance(kernel, int) else kernel


def _peak(x: np.ndarray) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def _operands(a: np.ndarray, b: np.ndarray, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands of sums of ``terms`` products: float64 for BLAS where every partial sum is below 2^53, else int64."""
    kind = np.float64 if _peak(a) * _peak(b) * terms < 1 << 53 else np.int64
    return a.astype(kind), b.astype(kind)


def _windows(x: np.ndarray, kernel: tuple[int, int], stride: int, pad: int) -> np.ndarray:
    """Windows (B, C, Yo, Xo, Ky, Kx) of zero-padded planes, a view."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))[:, :, ::stride, ::stride]


def _batches(images: int, elements: int) -> list[slice]:
    size = max(1, _CHUNK // max(elements, 1))
    return [slice(start, min(start + size, images)) for start in range(0, images, size)]


def forward(x: Any, w: Any, stride: int, pad: int, *, kernel: int | tuple[int, int] | None = None,
            width: int | None = SUM_BITS) -> np.ndarray:
    """Forward sums.

    Parameters
    ----------
    x : integers (B, C, Y, X)
    w : integers (M, C, Ky, Kx)
    stride, pad : int
        Of both axes; padding holds integer 0
    kernel : int or pair, optional
        Checked against ``w``
    width : int or None
        Bits that a sum may take; None does not check

    Returns
    -------
    int64 (B, M, Yo, Xo)
        ``sum over c, i, j of w[m, c, i, j] x[b, c, y stride + i - pad, x stride + j - pad]``
    """
    x, w = np.asarray(x), np.asarray(w)
    m, c, ky, kx = w.shape
    if x.shape[1] != c:
        raise ValueError(f"The input has {x.shape[1]} channels, the weights have {c}")
    if kernel is not None and _pair(kernel) != (ky, kx):
        raise ValueError(f"The weights have a kernel of {(ky, kx)}, not {_pair(kernel)}")
    yo, xo = output_size(x.shape[2], ky, stride, pad), output_size(x.shape[3], kx, stride, pad)
    x, matrix = _operands(x, w.reshape(m, -1), c * ky * kx)
    out = np.empty((x.shape[0], m, yo, xo), dtype=np.int64)
    for part in _batches(x.shape[0], c * ky * kx * yo * xo):
        windows = _windows(x[part], (ky, kx), stride, pad).transpose(1, 4, 5, 0, 2, 3)
        sums = (matrix @ windows.reshape(c * ky * kx, -1)).reshape(m, -1, yo, xo)
        out[part] = sums.transpose(1, 0, 2, 3)
    return out if width is None else check_fits("forward sums", out, width)


def backward(err: Any, w: Any, x_shape: tuple[int, ...], stride: int, pad: int, *,
             width: int | None = SUM_BITS) -> np.ndarray:
    """Errors of the input, the adjoint of :func:`forward` in ``x``.

    Parameters
    ----------
    err : integers (B, M, Yo, Xo)
    w : integers (M, C, Ky, Kx)
    x_shape : (B, C, Y, X) or (C, Y, X) or (Y, X)
        Positions that no window reads get 0

    Returns
    -------
    int64 (B, C, Y, X)
    """
    err, w = np.asarray(err), np.asarray(w)
    m, c, ky, kx = w.shape
    batch, _, yo, xo = err.shape
    y, x = x_shape[-2:]
    if (output_size(y, ky, stride, pad), output_size(x, kx, stride, pad)) != (yo, xo):
        raise ValueError(f"Errors of {yo} x {xo} do not belong to an input of {y} x {x}")
    err, matrix = _operands(err, w.reshape(m, -1).T, m * ky * kx)
    out = np.empty((batch, c, y, x), dtype=np.int64)
    for part in _batches(batch, c * ky * kx * yo * xo):
        flat = err[part].transpose(1, 0, 2, 3).reshape(m, -1)
        taps = (matrix @ flat).reshape(c, ky, kx, -1, yo, xo).transpose(3, 0, 1, 2, 4, 5)
        padded = np.zeros((taps.shape[0], c, y + 2 * pad, x + 2 * pad), dtype=taps.dtype)
        for i in range(ky):
            for j in range(kx):
                padded[:, :, i : i + stride * yo : stride, j : j + stride * xo : stride] += taps[:, :, i, j]
        out[part] = padded[:, :, pad : pad + y, pad : pad + x]
    return out if width is None else check_fits("backward sums", out, width)


def weight_gradient(x: Any, err: Any, kernel: int | tuple[int, int], stride: int, pad: int, *,
                    width: int | None = GRADIENT_BITS) -> np.ndarray:
    """Weight gradients summed over the batch, the adjoint of :func:`forward` in ``w``.

    Parameters
    ----------
    x : integers (B, C, Y, X)
    err : integers (B, M, Yo, Xo)

    Returns
    -------
    int64 (M, C, Ky, Kx), not divided by the batch
    """
    x, err = np.asarray(x), np.asarray(err)
    ky, kx = _pair(kernel)
    batch, m, yo, xo = err.shape
    c = x.shape[1]
    if (output_size(x.shape[2], ky, stride, pad), output_size(x.shape[3], kx, stride, pad)) != (yo, xo):
        raise ValueError(f"Errors of {yo} x {xo} do not belong to an input of {x.shape[2]} x {x.shape[3]}")
    x, err = _operands(x, err, batch * yo * xo)
    out = np.zeros((m, c * ky * kx), dtype=x.dtype)
    for part in _batches(batch, c * ky * kx * yo * xo):
        windows = _windows(x[part], (ky, kx), stride, pad).transpose(0, 2, 3, 1, 4, 5)
        out += err[part].transpose(1, 0, 2, 3).reshape(m, -1) @ windows.reshape(-1, c * ky * kx)
    gradient = out.reshape(m, c, ky, kx).astype(np.int64)
    return gradient if width is None else check_fits("weight gradients", gradient, width)
