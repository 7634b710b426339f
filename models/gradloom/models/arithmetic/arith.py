"""Wide integers: alignment, saturation, checks and the rounded reciprocal (docs/arithmetic.md, section 2).

Everything wide is 64-bit two's complement (``int64``). A number that does not fit is never passed on
silently: it saturates where a rule says so, and raises :class:`ArithmeticFault` everywhere else.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["INT64_MAX", "INT64_MIN", "NEAR_BITS", "PRODUCT_BITS", "ArithmeticFault", "add", "align", "check_fits", "located",
           "multiply", "reciprocal", "saturate", "signed_bits", "wrap"]

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)
PRODUCT_BITS = 48
"""Signed bits of a wide number that is multiplied; by 16 magnitude bits, the product fits 64."""
RECIPROCAL_BITS = 15
"""Fraction bits of a reciprocal beyond ceil(log2 n)."""
NEAR_BITS = 2
"""A sum that leaves fewer than so many of its accumulator's bits unused is near the limit (docs/arithmetic.md, section 2)."""


class ArithmeticFault(OverflowError):
    """A sum or a product left its width; the machine reports the same event as an overflow status.

    Parameters
    ----------
    name : :class:`str`
        Of the number: "forward sum", "velocity", ...
    bits : :class:`int`
        Its width.
    detail : :class:`str`
        What did not fit.

    Attributes
    ----------
    layer, phase : :class:`str` or :class:`None`
        Where it happened, as :func:`located` knows it; the phase as cycle tables call it ("FP", "BP", "norm BP", "WG + WU").
    """

    def __init__(self, name: str, bits: int, detail: str) -> None:
        super().__init__(name, bits, detail)
        self.name, self.bits, self.detail = name, bits, detail
        self.layer: str | None = None
        self.phase: str | None = None

    def __str__(self) -> str:
        place = "" if self.layer is None else f"layer {self.layer!r}: "
        return f"{place}{self.name}: {self.detail}"


@contextlib.contextmanager
def located(layer: str, phase: str) -> Iterator[None]:
    """Say where a fault within this context happened; of nested contexts the innermost counts."""
    try:
        yield
    except ArithmeticFault as fault:
        if fault.layer is None:
            fault.layer, fault.phase = layer, phase
        raise


def _int64(x: Any) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"Wide integers must have an integer type, not '{array.dtype}'")
    return array.astype(np.int64)


def align(x: Any, n: Any) -> np.ndarray:
    """``x * 2**n`` in 64 bits: a left shift saturates, a right shift floors (``n <= -64`` gives 0 or -1).

    Parameters
    ----------
    x : array of integers
    n : int or array of integers, broadcast against ``x``

    Returns
    -------
    int64 array of the broadcast shape
    """
    wide = _int64(x)
    # Beyond 63 nothing changes: every nonzero number has saturated, every sign has filled the word.
    shift = np.clip(_int64(n), -63, 63)
    if not shift.size or shift.max() <= 0:
        return wide >> -shift
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    shifted = wide << left
    if _length(wide) + int(shift.max()) > 63:
        limit = np.where(wide < 0, INT64_MIN, INT64_MAX)
        shifted = np.where((shifted >> left) == wide, shifted, limit)
    return shifted >> right if right.any() else shifted


def _length(x: np.ndarray) -> int:
    """Bits of the largest magnitude."""
    return max(int(x.max()).bit_length(), (-1 - int(x.min())).bit_length()) if x.size else 0


def saturate(x: Any, bits: int) -> np.ndarray:
    """``x`` clamped to a signed number of ``bits`` bits."""
    return np.clip(_int64(x), -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def wrap(x: Any, bits: int) -> np.ndarray:
    """``x`` modulo ``2**bits`` read as a signed number, as an accumulator of 1..64 bits holds it."""
    spare = 64 - bits
    return (_int64(x) << spare) >> spare


def check_fits(name: str, x: Any, bits: int) -> np.ndarray:
    """``x`` unchanged, or :class:`ArithmeticFault` if an element needs more than ``bits`` signed bits."""
    wide = _int64(x)
    signed_bits(name, wide, bits)
    return wide


def signed_bits(name: str, x: np.ndarray, bits: int) -> int:
    """Signed bits that the elements of an int64 array need, or :class:`ArithmeticFault` if they are more than ``bits``."""
    if not x.size:
        return 1
    low, high = int(x.min()), int(x.max())
    needed = 1 + max(end if end >= 0 else -1 - end for end in (low, high)).bit_length()
    if needed > bits:
        raise ArithmeticFault(name, bits, f"values {low}..{high} do not fit {bits} bits")
    return needed


def add(name: str, first: Any, *others: Any) -> np.ndarray:
    """Sum of wide integers, or :class:`ArithmeticFault` if a partial sum leaves 64 bits."""
    total = _int64(first)
    for other in others:
        term = _int64(other)
        sums = total + term
        if np.any(((total ^ sums) & (term ^ sums)) < 0):
            raise ArithmeticFault(name, 64, "a sum does not fit 64 bits")
        total = sums
    return total


def multiply(name: str, x: Any, factor: Any) -> np.ndarray:
    """``x * factor``, ``|factor| <= 2^16``, or :class:`ArithmeticFault` if ``x`` needs more than 48 bits."""
    return check_fits(name, x, PRODUCT_BITS) * _int64(factor)


def reciprocal(n: int) -> tuple[int, int]:
    """Rounded reciprocal of a count: ``1 / n`` is about ``inv * 2**-(15 + k)``.

    Returns
    -------
    inv : int
        ``2**(15 + k) / n`` rounded half up, 2^15 <= inv <= 2^16 (17 bits)
    k : int
        ``ceil(log2(n))``; a power of two has ``inv = 2**15``, an exact shift
    """
    if n < 1:
        raise ValueError(f"A count must be a positive integer, not '{n}'")
    k = (n - 1).bit_length()
    return ((2 << (RECIPROCAL_BITS + k)) + n) // (2 * n), k
