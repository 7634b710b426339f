"""Stochastic gradient descent in integers: with momentum (ETA equation 7; docs/arithmetic.md, section 13), and the update
rules of other formats (docs/formats.md): DarkFPGA's shifted gradient, Fox's wide masters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import feedback
from .arith import INT64_MAX, add, align, multiply, saturate
from .linear import bounds
from .pint import NEAREST, Encoded, Quantiser

__all__ = ["MASTER_BITS", "MASTER_EXPONENT", "MASTER_WIDTH", "ParameterUpdate", "WeightUpdate", "master_weights", "parameter",
           "shifted", "shortened", "weights"]

MASTER_BITS = 28
"""Signed bits of a parameter in Q.24: its int16 view ``master >> 12`` never overflows."""

MASTER_EXPONENT = -24
MASTER_WIDTH = 32
"""Stored bits of a master."""


class WeightUpdate(NamedTuple):
    """New velocities and weights, both :class:`~gradloom.models.arithmetic.pint.Encoded` in the shape of the weights, and, with
    error feedback, rests (uint8)."""

    v: Encoded
    w: Encoded
    rest: np.ndarray | None = None


class ParameterUpdate(NamedTuple):
    """New masters and velocities (int64 arrays of int32 range, Q.24)."""

    master: np.ndarray
    velocity: np.ndarray


def weights(dw: Any, w: Any, v: Any, *, inv: int, momentum: int, lm: int, shifts: Sequence[int],
            decay: bool = False, mode_v: Quantiser = NEAREST, mode_w: Quantiser = NEAREST, rest: Any = None,
            rnd: Any = None) -> WeightUpdate:
    """New velocities and weights of one layer.

    Parameters
    ----------
    dw : int64 array
        Weight gradients of the whole batch, at most 48 bits, exponent e_dx + e_input
    w, v : integers of the same shape
        Decoded weights and velocities, exponents ew and ev
    inv : int
        Reciprocal of the batch
    momentum, lm : int
        Momentum and learning-rate mantissa: mu = momentum / 256, eta = lm 2^-le_lr; 0..255
    shifts : SH0..SH4
        ``e_dx + e_input - 15 - k - ev + 16``, ``16 + ev' - ev``, ``ew - n - ev + 16``,
        ``ev' - le_lr - ew + 16``, ``16 + ew' - ew``
    decay : bool
        Add the weight decay 2^-n (in SH2)
    mode_v, mode_w : Quantiser
        Roundings of velocities and weights
    rest, rnd : uint8 array and 8-bit random numbers of the same shape, or None
        With error feedback: rests of the weights, and what rounds the new ones; ``mode_w`` plays no part then

    Raises
    ------
    ArithmeticFault
        If a gradient leaves 48 bits or a sum 64 bits
    """
    sh0, sh1, sh2, sh3, sh4 = (int(shift) for shift in shifts)
    old_w, old_v = np.asarray(w).astype(np.int64), np.asarray(v).astype(np.int64)
    terms = [align(multiply("weight gradients", dw, inv), sh0)]
    if decay:
        terms.append(align(old_w, sh2))
    t = add("velocity", (momentum * old_v) << 8, *terms)
    new_v = mode_v.encode(t, sh1)
    # Negating -2^63 would wrap; one unit less is far outside any sum that fits.
    step = np.maximum(align(lm * new_v.value.astype(np.int64), sh3), -INT64_MAX)
    if rest is None:
        return WeightUpdate(new_v, mode_w.encode(add("weight", old_w << 16, -step), sh4))
    u = add("weight", feedback.join(old_w, rest) << 16 - feedback.REST_BITS, -step)
    return WeightUpdate(new_v, *feedback.encode(u, sh4, rnd))


def parameter(master: Any, velocity: Any, total: Any, *, inv: int, shift: int, momentum: int, lm: int,
              le_lr: int) -> ParameterUpdate:
    """New masters and velocities of gamma, beta, tau or a bias.

    Parameters
    ----------
    master, velocity : int32 range (C,), Q.24
    total : int64 (C,)
        Gradient sum of the whole batch
    inv : int
        Reciprocal of the batch
    shift : int
        ``e_dz + 1 - k`` for gamma (its sum has exponent e_dz - 8), ``e_dz + 9 - k`` for the others
    momentum, lm : int
        0..255
    le_lr : int
        eta = lm 2^-le_lr; may be negative

    Raises
    ------
    ArithmeticFault
        If a sum leaves 48 bits
    """
    old, speed = np.asarray(master).astype(np.int64), np.asarray(velocity).astype(np.int64)
    gradient = saturate(align(multiply("gradient sums", total, inv), shift), 32)
    new_speed = saturate(((momentum * speed) >> 8) + gradient, 32)
    # A step of 2^62 ends at the same bound as any larger one, and cannot overflow the difference.
    step = np.clip(align(new_speed * lm, -le_lr), -(1 << 62), 1 << 62)
    return ParameterUpdate(saturate(old - step, MASTER_BITS), new_speed)


def shifted(dw: Any, w: Any, *, eta: int, bits: int, rounding: Quantiser) -> np.ndarray:
    """New int8 weights of DarkFPGA (section 3.2.4): ``W - Clip((2^eta g + random) >> g_shift)``.

    ``g_shift = leading1(or |g|) + 1``, so the largest step of a tensor is below 2^eta units of a weight, and neither the
    gradient's exponent nor the batch's size matters.

    Parameters
    ----------
    dw : int64 array
        Weight gradients
    w : integers of the same shape
        Weights
    eta : int
        Logarithm of the learning rate in units of a weight; may be negative
    bits : int
        Of weights and steps
    rounding : Quantiser
        Of the step
    """
    gradient = np.asarray(dw).astype(np.int64)
    length = int(np.bitwise_or.reduce(gradient ^ (gradient >> 63), axis=None)).bit_length()
    low, high = bounds(bits, symmetric=True)
    return np.clip(np.asarray(w).astype(np.int64) - rounding.encode(gradient, length - eta).value, low, high)


def master_weights(master: Any, velocity: Any, dw: Any, *, inv: int, shift: int, momentum: int, lm: int, le_lr: int,
                   decay_n: int | None) -> ParameterUpdate:
    """New masters and velocities of weights, Q.24 (Fox, section III: updates in full precision; here 32-bit fixed point).

    Parameters
    ----------
    master, velocity : int32 range
    dw : int64
        Weight gradients of the whole batch, at most 48 bits
    inv, momentum, lm, le_lr : int
        As of :func:`parameter`
    shift : int
        ``e_dw - 15 - k + 24``
    decay_n : int or None
        Weight decay 2^-n
    """
    old, speed = np.asarray(master).astype(np.int64), np.asarray(velocity).astype(np.int64)
    gradient = saturate(align(multiply("weight gradients", dw, inv), shift), 32)
    if decay_n is not None:
        gradient = gradient + (old >> decay_n)
    new_speed = saturate(((momentum * speed) >> 8) + gradient, 32)
    step = np.clip(align(new_speed * lm, -le_lr), -(1 << 62), 1 << 62)
    return ParameterUpdate(saturate(old - step, MASTER_BITS), new_speed)


def shortened(master: Any, bits: int, rnd: Any) -> np.ndarray:
    """Masters (int64, Q.24) rounded stochastically to ``bits`` bits of the tensor's largest magnitude.

    ``rnd`` : 16-bit random numbers.
    """
    wide = np.asarray(master).astype(np.int64)
    dropped = max(0, int(np.bitwise_or.reduce(wide ^ (wide >> 63), axis=None)).bit_length() - (bits - 1))
    increment = ((2 * np.asarray(rnd).astype(np.int64) + 1) << dropped) >> 17
    return ((wide + increment) >> dropped) << dropped
