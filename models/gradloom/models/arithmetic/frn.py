"""L1-norm filter response normalisation with thresholded linear unit (ETA equations 12 and 13, Algorithm 2).

Forward and backward per image and channel plane; docs/arithmetic.md, section 9, derives every line. Two lines
of the paper's Algorithm 2 are wrong: line 7 must be ``z = y b + tau (1 - b)``, and line 15 gives dx, with the
mean of the *per-image, per-channel* sum.
"""

from typing import Any, NamedTuple

import numpy as np

from .arith import INT64_MAX, PRODUCT_BITS, add, align, check_fits, multiply, reciprocal, saturate
from .pint import NEAREST, Encoded, Quantiser

__all__ = ["MAX_POSITIONS", "Q_BITS", "XHAT_EXPONENT", "FrnBackward", "FrnForward", "backward", "error", "forward",
           "normalise", "reciprocal_norm"]

XHAT_EXPONENT = -8
"""Fixed exponent of the normalised activations."""
Q_BITS = 16
"""Significant bits of lambda."""
MAX_POSITIONS = (1 << 15) - 1
"""Largest plane, Y X."""


class FrnForward(NamedTuple):
    """Results of :func:`forward`.

    Members
    -------
    xhat_value : int32 (B, C, Y, X), exponent -8
    xhat_code : uint8 (B, C, Y, X)
    y : int64 (B, C, Y, X), Q20, before the threshold
    bit : bool (B, C, Y, X), the TLU's bitmap
    z : Encoded (B, C, Y, X)
    q, le : int64 (B, C), lambda = q 2^-le
    """

    xhat_value: np.ndarray
    xhat_code: np.ndarray
    y: np.ndarray
    bit: np.ndarray
    z: Encoded
    q: np.ndarray
    le: np.ndarray


class FrnBackward(NamedTuple):
    """Results of :func:`backward`.

    Members
    -------
    dx : Encoded (B, C, Y, X)
    sg : int64 (B, C), sum of b dz xhat, exponent e_dz - 8
    sb : int64 (B, C), sum of b dz, exponent e_dz
    st : int64 (B, C), sum of (1 - b) dz, exponent e_dz
    """

    dx: Encoded
    sg: np.ndarray
    sb: np.ndarray
    st: np.ndarray


def reciprocal_norm(n: int, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """``lambda = n / s`` as ``q 2^-le`` with 16 significant bits, floored.

    Parameters
    ----------
    n : int
        Positions of a plane, below 2^15
    s : array of positive int64

    Returns
    -------
    q, le : int64 arrays, 2^15 <= q < 2^16, 1 <= le <= 78
    """
    norms = np.asarray(s)
    q, le = np.empty(norms.shape, dtype=np.int64), np.empty(norms.shape, dtype=np.int64)
    for position in np.ndindex(norms.shape):
        norm = int(norms[position])
        shift = norm.bit_length() + Q_BITS - n.bit_length()
        quotient = (n << shift) // norm
        # The bit lengths leave one place open.
        if quotient >= 1 << Q_BITS:
            shift -= 1
            quotient = (n << shift) // norm
        q[position], le[position] = quotient, shift
    return q, le


def _column(parameter: Any) -> np.ndarray:
    return np.asarray(parameter).astype(np.int64).reshape(1, -1, 1, 1)


def forward(x: Any, gamma: Any, beta: Any, tau: Any, eps_shift: Any, *, sh_z: Any, residual: Any = None,
            threshold: bool = True, eps: int | None = None, mode_xhat: Quantiser = NEAREST,
            mode_z: Quantiser = NEAREST) -> FrnForward:
    """Normalise, scale, add the residual, apply the threshold, encode.

    Parameters
    ----------
    x : int64 (B, C, Y, X)
        Sums of the convolution, exponent eX
    gamma, beta, tau : integers (C,)
        Q3.12 (int16): ``master >> 12``
    eps_shift : int, or array (B, 1, 1, 1)
        ``-12 - eX``: epsilon is 2^-12 of the mean magnitude's unit
    sh_z : int, or array (B, 1, 1, 1)
        ``20 + e_z``
    residual : int64 (B, C, Y, X), optional
        Already aligned to Q20, added before the threshold
    threshold : bool
        False: no TLU (projection shortcut); every bit is 1
    eps : int, optional
        The integer epsI itself instead of ``eps_shift``
    mode_xhat, mode_z : Quantiser
        Roundings of xhat and of z

    Raises
    ------
    ArithmeticFault
        If a parameter is not int16, a sum of the convolution leaves 48 bits, or ``y`` leaves 64
    """
    wide = check_fits("normalisation", x, PRODUCT_BITS)
    n = wide.shape[2] * wide.shape[3]
    if not 1 <= n <= MAX_POSITIONS:
        raise ValueError(f"A plane must have 1..{MAX_POSITIONS} positions, not {n}")
    epsilon = np.maximum(1, align(n, eps_shift)) if eps is None else np.asarray(eps, np.int64)
    epsilon = epsilon.reshape(-1, 1)
    total = np.abs(wide).sum(axis=(2, 3))
    # epsilon may itself be saturated, when the layer's operands are tiny; so the sum saturates, too.
    q, le = reciprocal_norm(n, np.where(total > INT64_MAX - epsilon, INT64_MAX, total + epsilon))
    return normalise(wide, gamma, beta, tau, q, le, sh_z=sh_z, residual=residual, threshold=threshold,
                     mode_xhat=mode_xhat, mode_z=mode_z)


def normalise(x: Any, gamma: Any, beta: Any, tau: Any, q: np.ndarray, le: np.ndarray, *, sh_z: int, residual: Any = None,
              threshold: bool = True, mode_xhat: Quantiser = NEAREST, mode_z: Quantiser = NEAREST) -> FrnForward:
    """What follows from lambda, position by position; parameters as for :func:`forward`."""
    wide = check_fits("normalisation", x, PRODUCT_BITS)
    g, b, t = (check_fits(name, _column(p), 16)
               for name, p in (("gamma", gamma), ("beta", beta), ("tau", tau)))
    scaled = multiply("normalisation", wide, q[:, :, None, None])
    xhat = mode_xhat.encode(scaled, (le + XHAT_EXPONENT)[:, :, None, None])
    y = g * xhat.value + (b << 8)
    if residual is not None:
        y = add("residual", y, residual)
    bit = y >= t << 8 if threshold else np.ones(y.shape, dtype=bool)
    z = mode_z.encode(np.where(bit, y, t << 8), sh_z)
    return FrnForward(xhat.value, xhat.code, y, bit, z, q, le)


def backward(dz: Any, xhat: Any, bit: Any, gamma: Any, q: Any, le: Any, *, sh0: Any,
             mode: Quantiser = NEAREST) -> FrnBackward:
    """Errors of the convolution's sums and the gradient sums of gamma, beta and tau.

    Parameters
    ----------
    dz : integers (B, C, Y, X), decoded, exponent e_dz
    xhat : integers (B, C, Y, X), decoded, exponent -8
    bit : bool (B, C, Y, X); all ones for a layer without threshold
    gamma : integers (C,), Q3.12
    q, le : integers (B, C), of the forward pass
    sh0 : int, or array (B, 1, 1, 1)
        ``e_dx - e_dz + eX``; ``le`` of the plane is added to it
    mode : Quantiser
        Rounding of dx
    """
    wide = np.asarray(dz).astype(np.int64)
    normal = np.asarray(xhat).astype(np.int64)
    d = np.where(np.asarray(bit).astype(bool), wide, 0)
    sg, sb = (d * normal).sum(axis=(2, 3)), d.sum(axis=(2, 3))
    st = (wide - d).sum(axis=(2, 3))
    dx = error(d, normal, sg, gamma, q, le, n=wide.shape[2] * wide.shape[3], sh0=sh0, mode=mode)
    return FrnBackward(dx, sg, sb, st)


def error(d: np.ndarray, normal: np.ndarray, sg: np.ndarray, gamma: Any, q: Any, le: Any, *, n: int, sh0: int,
          mode: Quantiser = NEAREST) -> Encoded:
    """dx from the masked errors ``d`` and xhat of some positions of planes of ``n`` and their products' sums ``sg`` (B, C)."""
    inv, k = reciprocal(n)
    half = 1 << (15 + k + 3)
    mean = ((multiply("gradient sums", sg, inv) + half) >> (15 + k + 4))[:, :, None, None]
    u = saturate((d << 4) - np.sign(normal) * mean, 18)
    gl = (_column(gamma) * np.asarray(q).astype(np.int64)[:, :, None, None]) >> 16
    return mode.encode(u * gl, sh0 + np.asarray(le).astype(np.int64)[:, :, None, None])
