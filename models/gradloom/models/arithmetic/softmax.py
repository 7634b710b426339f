"""Loss gradients of logits: softmax cross-entropy and squared error (docs/arithmetic.md, section 12)."""

from typing import Any, NamedTuple

import numpy as np

from .pint import Encoded, encode

__all__ = ["EXP_TABLE", "SOFTMAX_EXPONENT", "SQUARED_EXPONENT", "WIDE_EXPONENTS", "LossGradient", "gradient", "loss",
           "probabilities", "squared", "squared_loss"]

SOFTMAX_EXPONENT = -12
"""Fixed exponent of the softmax error."""
SQUARED_EXPONENT = -8
WIDE_EXPONENTS = {"softmax": -16, "squared": -8}
"""Exponents of the wide errors, by loss."""
ONE = 1 << 16
"""Probability 1."""
_SOFTMAX_SHIFT = 4
_LOG2_E = 369
"""log2(e) in Q8."""

EXP_TABLE = np.array([round(32768 * 2 ** (-i / 256)) for i in range(256)], dtype=np.int64)
"""``2^(-i/256)`` in Q15 (16 bits; no entry is a tie, so every library rounds alike)."""


class LossGradient(NamedTuple):
    """Wide errors (int64 (B, M)) and their encoding; the scale is fixed, so ``stat`` is not used."""

    error: np.ndarray
    encoded: Encoded


def _one_hot(shape: tuple[int, ...], labels: Any) -> np.ndarray:
    chosen = np.asarray(labels).astype(np.int64)
    if chosen.shape != shape[:1]:
        raise ValueError(f"{shape[0]} images need {shape[0]} labels, not an array of shape {chosen.shape}")
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < shape[1]):
        raise ValueError(f"Labels must be class numbers below {shape[1]}")
    classes = np.arange(shape[1])
    return chosen[:, None] == classes


def _targets(shape: tuple[int, ...], targets: Any) -> np.ndarray:
    wide = np.asarray(targets)
    if wide.shape != shape or wide.dtype.kind not in "iu":
        raise ValueError(f"Targets must be integers (Q8) of shape {shape}, not {wide.dtype} of shape {wide.shape}")
    return wide.astype(np.int64)


def probabilities(logits: Any) -> np.ndarray:
    """Softmax of logits (B, M), int24 in Q8: int64 in Q16, floored."""
    wide = np.asarray(logits).astype(np.int64)
    d = np.minimum(wide.max(axis=1, keepdims=True) - wide, 32767)
    t = (d * _LOG2_E) >> 8
    power = EXP_TABLE[t & 255] >> np.minimum(t >> 8, 16)
    return (power << 16) // power.sum(axis=1, keepdims=True)


def gradient(logits: Any, labels: Any) -> LossGradient:
    """Gradient of each image's cross-entropy: ``p - 65536 onehot`` (exponent -16), encoded at exponent -12.

    Parameters
    ----------
    logits : integers (B, M), int24 in Q8
    labels : integers (B,)
    """
    p = probabilities(logits)
    error = p - ONE * _one_hot(p.shape, labels)
    return LossGradient(error, encode(error, _SOFTMAX_SHIFT))


def squared(logits: Any, labels: Any) -> LossGradient:
    """Gradient of half the squared error against one-hot targets: ``logit - 256 onehot``, exponent -8.

    ``labels`` may be targets (B, M) of any values in Q8 instead, as a reconstruction has them.
    """
    wide = np.asarray(logits).astype(np.int64)
    error = wide - (_targets(wide.shape, labels) if np.ndim(labels) == 2 else 256 * _one_hot(wide.shape, labels))
    return LossGradient(error, encode(error, 0))


def loss(logits: Any, labels: Any) -> float:
    """Mean cross-entropy of Q8 logits in natural units, in floating point, for reports only."""
    z = np.asarray(logits).astype(np.float64) / 256
    z -= z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    # A certain and right answer has the loss 0, not -0.
    return float(0.0 - log_p[np.arange(len(z)), np.asarray(labels)].mean())


def squared_loss(logits: Any, labels: Any) -> float:
    """Mean over the images of half the squared error of Q8 logits, in floating point, for reports only."""
    difference = squared(logits, labels).error.astype(np.float64) / 256
    return float((difference ** 2).sum(axis=1).mean() / 2)
