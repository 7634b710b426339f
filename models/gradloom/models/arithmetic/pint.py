"""PINT(k, d), the 8-bit number format of ETA (section III-A, equation 9, Algorithm 1), and its encoder.

A code is ``{flag, m}``, m signed ``k - 1`` bits; a tensor has one exponent e, an element is ``value * 2**e``.
See docs/arithmetic.md, sections 3 and 4. The machine uses (8, 3): 13-bit values from -4096 to 4032.
"""

from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from .arith import align

__all__ = ["MAX_VALUE", "MIN_VALUE", "NEAREST", "Encoded", "Mode", "Quantiser", "code_of", "code_of_kd", "decode", "encode",
           "encode_kd", "is_legal", "segment", "statistic"]

MIN_VALUE = -4096
MAX_VALUE = 4032


class Encoded(NamedTuple):
    """Result of an encoder.

    Members
    -------
    value : int32 array
        Decoded elements
    code : uint8 array (uint16 for k > 8)
        The same as PINT codes
    stat : int
        OR of the magnitudes of all elements before rounding, ``F + 1`` fraction bits; below 2^63
    """

    value: np.ndarray
    code: np.ndarray
    stat: int


class Mode(NamedTuple):
    """How a tensor is rounded: F, and an F-bit random number for every element, or None for nearest."""

    f: int
    rnd: np.ndarray | None

    def encode(self, a: Any, sh: Any) -> Encoded:
        """Wide integers as PINT(8, 3): :func:`encode` with this rounding."""
        return encode(a, sh, f=self.f, rnd=self.rnd)


class Quantiser(Protocol):
    """What encodes a tensor: a :class:`Mode`, or a format's."""

    def encode(self, a: Any, sh: Any) -> Encoded: ...


NEAREST = Mode(8, None)
"""Rounding to nearest, halves upwards; F counts for the statistics only."""


def is_legal(k: int, d: int) -> bool:
    """Whether PINT(k, d) is a format: both segments above the low one need a bit of their own."""
    return 4 <= k <= 16 and 1 <= d <= k - 3


def _require_legal(k: int, d: int) -> None:
    if not is_legal(k, d):
        raise ValueError(f"PINT({k}, {d}) must have 4 <= k <= 16 and 1 <= d <= k - 3")


@cache
def _values(k: int, d: int) -> np.ndarray:
    _require_legal(k, d)
    codes = np.arange(1 << k, dtype=np.int64)
    flag = codes >> (k - 1)
    field = codes & ((1 << (k - 1)) - 1)
    m = field - ((field >> (k - 2)) << (k - 1))
    high = m >> d
    low = (flag == 0) & ((high == 0) | (high == -1))
    return np.where(flag == 1, m << d, np.where(low, m, m << (k - 2))).astype(np.int32)


def decode(codes: Any, k: int = 8, d: int = 3) -> np.ndarray:
    """Values (int32) of PINT(k, d) codes (0 .. 2^k - 1).

    flag = 1: ``m * 2**d``; flag = 0 and the bits ``m[k-2:d]`` all equal: ``m``; else ``m * 2**(k-2)``.
    """
    return _values(k, d)[np.asarray(codes)]


def code_of_kd(values: Any, k: int, d: int) -> np.ndarray:
    """PINT(k, d) codes of representable values, each in the finest segment that holds it."""
    _require_legal(k, d)
    v = np.asarray(values).astype(np.int64)
    field = (1 << (k - 1)) - 1
    low = (v >= -(1 << d)) & (v < 1 << d)
    middle = (v >= -(1 << (k - 2 + d))) & (v < 1 << (k - 2 + d))
    high = np.where(middle, (1 << (k - 1)) | ((v >> d) & field), (v >> (k - 2)) & field)
    code = np.where(low, v & field, high)
    if np.any(_values(k, d)[code] != v):
        raise ValueError(f"Not every value is representable in PINT({k}, {d})")
    return code.astype(np.uint8 if k <= 8 else np.uint16)


def code_of(values: Any) -> np.ndarray:
    """PINT(8, 3) codes (uint8) of representable values; 0x80 and 0xFF never appear."""
    return code_of_kd(values, 8, 3)


@cache
def _codes(k: int, d: int) -> np.ndarray:
    """Code (uint8) of value v at v + 2^(2k-4), of representable values; k <= 8."""
    values = _values(k, d)
    table = np.zeros(1 << (2 * k - 3), dtype=np.uint8)
    table[values + (1 << (2 * k - 4))] = code_of_kd(values, k, d)
    return table


def segment(g: np.ndarray, fraction: int = 0, k: int = 8, d: int = 3) -> np.ndarray:
    """Logarithm of the step of PINT(k, d)'s segment that holds the integer part of ``g``, which has ``fraction`` bits below it."""
    low, middle = 1 << (d + fraction), 1 << (k - 2 + d + fraction)
    return np.where((g >= -low) & (g < low), 0, np.where((g >= -middle) & (g < middle), d, k - 2))


def statistic(g: np.ndarray) -> int:
    """``stat`` of aligned numbers (int64), docs/arithmetic.md section 4: all of g, of -1 - g where it is negative, joined by or."""
    return int(np.bitwise_or.reduce(g ^ (g >> 63), axis=None)) if g.size else 0


def encode_kd(a: Any, sh: Any, k: int, d: int, *, f: int = 8, rnd: Any = None) -> Encoded:
    """Encode wide integers in PINT(k, d); the arguments are those of :func:`encode`.

    Segments of the integer part t: step 1 for ``-2^d <= t < 2^d``, step ``2^d`` for
    ``-2^(k-2+d) <= t < 2^(k-2+d)``, step ``2^(k-2)`` beyond; the bounds of saturation are ``-2^(2k-4)`` and
    ``(2^(k-2) - 1) 2^(k-2)``.
    """
    _require_legal(k, d)
    if not 1 <= f <= 16:
        raise ValueError(f"F must be 1..16 random bits, not '{f}'")
    limit = 1 << (2 * k - 4)
    top = limit - (1 << (k - 2))
    g = align(a, f + 1 - np.asarray(sh, dtype=np.int64))
    stat = statistic(g)
    # Clipped to the format's range, g rounds to the bounds by itself and mostly fits 32 bits, which are faster.
    bits = 2 * k - 4 + f + 1
    narrow = np.int32 if bits <= 30 else np.int64
    g = np.clip(g, -(1 << bits), (1 << bits) - 1).astype(narrow)
    s = segment(g, f + 1, k, d).astype(narrow)
    increment = narrow(1 << f) if rnd is None else (2 * np.asarray(rnd) + 1).astype(narrow)
    v = np.minimum((((g >> s) + increment) >> narrow(f + 1)) << s, narrow(top)).astype(np.int32, copy=False)
    return Encoded(v, _codes(k, d)[v + limit] if k <= 8 else code_of_kd(v, k, d), stat)


def encode(a: Any, sh: Any, *, f: int = 8, rnd: Any = None) -> Encoded:
    """Encode wide integers in PINT(8, 3).

    Parameters
    ----------
    a : int64 array, exponent e_a
    sh : int or array broadcast against ``a``
        ``e_out - e_a``; any value, the alignment saturates
    f : int
        F, fraction bits seen by rounding and by the statistics, less one
    rnd : int array or None
        F-bit random numbers, or None for nearest (halves upwards)

    The segment is chosen from the integer part before rounding, and the *rounded* value is encoded: a value
    may round up into the next segment, where its code is exact.
    """
    return encode_kd(a, sh, 8, 3, f=f, rnd=rnd)
