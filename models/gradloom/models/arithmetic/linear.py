"""Signed integers with a shared exponent: DarkFPGA's shift quantisation and Fox's block floating point (docs/formats.md).

An element is ``value * 2**e``, the value a two's complement integer of ``bits`` bits. Rounding is to nearest with halves
upwards (DarkFPGA, section 3.1: ``(x + round_value) >> shift`` with ``round_value = 1 << (shift - 1)``), or stochastic (Fox,
equation 6; DarkFPGA, section 3.2.4) with the random bits of docs/arithmetic.md, section 7.
"""

from typing import Any

import numpy as np

from .arith import align
from .pint import Encoded

__all__ = ["bounds", "code_of", "decode", "encode"]


def bounds(bits: int, *, symmetric: bool) -> tuple[int, int]:
    """Smallest and largest value: -2^(bits-1), or one more (DarkFPGA's Clip to +-(sigma - 1)), and 2^(bits-1) - 1."""
    top = (1 << (bits - 1)) - 1
    return (-top if symmetric else -top - 1), top


def code_of(values: Any, bits: int) -> np.ndarray:
    """Codes of values: uint8 two's complement for at most 8 bits, else int16."""
    wide = np.asarray(values)
    return wide.astype(np.int8).view(np.uint8) if bits <= 8 else wide.astype(np.int16)


def decode(codes: Any, bits: int) -> np.ndarray:
    """Values (int32) of codes."""
    array = np.asarray(codes)
    return (array.astype(np.uint8).view(np.int8) if bits <= 8 else array).astype(np.int32)


def encode(a: Any, sh: Any, *, bits: int, symmetric: bool = False, f: int = 8, rnd: Any = None,
           per_image: bool = False) -> Encoded:
    """Encode wide integers; the arguments not named here are those of :func:`gradloom.models.arithmetic.pint.encode`.

    Parameters
    ----------
    bits : int
        Of a value, 2..16
    symmetric : bool
        The range is +-(2^(bits-1) - 1)
    per_image : bool
        ``stat`` is an int64 array (B, 1, 1, 1), the OR over each image alone
    """
    g = align(a, f + 1 - np.asarray(sh, dtype=np.int64))
    magnitude = g ^ (g >> 63)
    stat: Any
    if per_image:
        stat = np.bitwise_or.reduce(magnitude.reshape(len(g), -1), axis=1).reshape(-1, 1, 1, 1)
    else:
        stat = int(np.bitwise_or.reduce(magnitude, axis=None)) if g.size else 0
    low, high = bounds(bits, symmetric=symmetric)
    limit = 1 << (bits - 1 + f + 1)
    g = np.clip(g, -limit, limit - 1)
    increment = 1 << f if rnd is None else 2 * np.asarray(rnd).astype(np.int64) + 1
    value = np.clip((g + increment) >> (f + 1), low, high).astype(np.int32)
    return Encoded(value, code_of(value, bits), stat)
