"""The shortcut of the CIFAR ResNets: subsampled planes, zero channels appended (docs/arithmetic.md, section 11).

Codes are copied, so the exponent is that of the source; no rounding, no statistics.
"""

import numpy as np

__all__ = ["subsample", "subsample_backward"]


def subsample(x: np.ndarray, stride: int, out: int) -> np.ndarray:
    """``x[:, :, ::stride, ::stride]`` with zero channels up to ``out``: (B, C, Y, X) to (B, out, Yo, Xo)."""
    kept = x[:, :, ::stride, ::stride]
    return np.pad(kept, ((0, 0), (0, out - x.shape[1]), (0, 0), (0, 0)))


def subsample_backward(error: np.ndarray, shape: tuple[int, ...], stride: int) -> np.ndarray:
    """Errors (B, out, Yo, Xo) at the positions that were kept, 0 elsewhere; those of appended channels are dropped.

    ``shape`` is that of the input, of which the last three numbers count: (C, Y, X).
    """
    c, y, x = shape[-3:]
    spread = np.zeros((len(error), c, y, x), error.dtype)
    spread[:, :, ::stride, ::stride] = error[:, :c]
    return spread
