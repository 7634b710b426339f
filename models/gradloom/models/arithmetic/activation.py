"""Bias, ReLU, linear outputs, logits and the errors that leave a layer (docs/arithmetic.md, section 10).

Forward and backward of layers without normalisation, and the encoding of backward sums with the error that
a shortcut adds.
"""

from typing import Any, NamedTuple

import numpy as np

from .arith import add, align, saturate
from .pint import Encoded, encode

__all__ = ["LOGIT_BITS", "LOGIT_EXPONENT", "MASTER_EXPONENT", "ReluBackward", "ReluForward", "add_bias",
           "error_out", "linear_backward", "linear_forward", "logits", "relu_backward", "relu_forward"]

MASTER_EXPONENT = -24
"""Exponent of the int32 masters of bias, gamma, beta and tau (Q.24)."""
LOGIT_EXPONENT = -8
LOGIT_BITS = 24


class ReluForward(NamedTuple):
    """Encoded outputs and the bitmap (bool) of positive sums."""

    z: Encoded
    bit: np.ndarray


class ReluBackward(NamedTuple):
    """Masked errors (exponent of dz, codes unchanged) and their sums (B, C), the gradient of the bias."""

    dx: Encoded
    sb: np.ndarray


def add_bias(x: Any, master: Any, e_x: int) -> np.ndarray:
    """``x + align(master, -24 - eX)``: sums (B, C, Y, X) of exponent eX plus a bias (C,) in Q.24, int64."""
    bias = np.asarray(master).astype(np.int64).reshape(1, -1, 1, 1)
    return add("bias", x, align(bias, MASTER_EXPONENT - e_x))


def relu_forward(x: Any, sh: int) -> ReluForward:
    """ReLU of biased sums, encoded with ``sh = e_z - eX``; the bit is ``x > 0``."""
    wide = np.asarray(x).astype(np.int64)
    return ReluForward(encode(np.maximum(wide, 0), sh), wide > 0)


def relu_backward(dz: Any, bit: Any) -> ReluBackward:
    """``dx = bit ? dz : 0`` keeps its exponent and its codes; no statistics, no scale of its own."""
    d = np.where(np.asarray(bit).astype(bool), np.asarray(dz), 0).astype(np.int64)
    return ReluBackward(encode(d, 0), d.sum(axis=(2, 3)))


def linear_forward(x: Any, sh: int) -> Encoded:
    """Biased sums without activation, encoded with ``sh = e_z - eX``."""
    return encode(x, sh)


def linear_backward(dz: Any) -> np.ndarray:
    """Gradient sums (B, C) of the bias; dx is dz itself."""
    return np.asarray(dz).astype(np.int64).sum(axis=(2, 3))


def logits(x: Any, e_x: int) -> np.ndarray:
    """Biased sums (B, M, 1, 1) or (B, M) as logits in Q8, saturated to 24 bits (int32, shape (B, M))."""
    wide = saturate(align(x, e_x - LOGIT_EXPONENT), LOGIT_BITS)
    return wide.reshape(wide.shape[0], -1).astype(np.int32)


def error_out(x: Any, sh: int, *, shortcut: Any = None, sh_shortcut: int = 0, bit: Any = None) -> Encoded:
    """Errors dz of a tensor from the complete backward sums of its main consumer.

    Parameters
    ----------
    x : int64 (B, C, Y, X), exponent eA
    sh : int
        ``e_dz - eA``
    shortcut : integers (B, C, Y, X), optional
        Decoded errors that a second consumer sends back: dz of the layer that adds this tensor (with its
        bitmap ``bit``), or the errors of a second convolution, a PINT tensor of its own
    sh_shortcut : int
        Exponent of ``shortcut`` less eA
    bit : bool (B, C, Y, X), optional
        Bitmap of the adding layer; None takes every error
    """
    if shortcut is None:
        return encode(x, sh)
    d = np.asarray(shortcut).astype(np.int64)
    if bit is not None:
        d = np.where(np.asarray(bit).astype(bool), d, 0)
    return encode(add("shortcut error", x, align(d, sh_shortcut)), sh)
