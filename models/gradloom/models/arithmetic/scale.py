"""Scales from statistics: exponents follow the statistics of the step before (docs/arithmetic.md, section 6)."""

from typing import Any

import numpy as np

__all__ = ["EXPONENT_MAX", "EXPONENT_MIN", "VALUE_BITS", "next_exponent"]

EXPONENT_MIN = -64
EXPONENT_MAX = 127
VALUE_BITS = 12
"""Magnitude bits of a PINT(8, 3) value: the largest element is brought into [2048, 4095]."""
ZERO_STEP = 4
"""By how much an all-zero tensor lowers its exponent, so that a later small element is seen."""


def next_exponent(e: Any, stat: Any, f: int, bits: int = VALUE_BITS) -> Any:
    """Exponent for the next step, or for the same one where the statistics come from a dry run.

    Parameters
    ----------
    e : int
        Exponent that was used; an array of one for every image, or one for all, where ``stat`` is an array
    stat : int or int64 array (B, 1, 1, 1)
        OR of the encoder's magnitudes of all elements, or of an image's (``F + 1`` fraction bits)
    f : int
        F of the encoder: 8 for nearest rounding, 16 for stochastic
    bits : int
        Magnitude bits of a value
    """
    if isinstance(stat, np.ndarray):
        given = np.broadcast_to(e, stat.shape).ravel().tolist()
        found = [next_exponent(e_image, s, f, bits) for e_image, s in zip(given, stat.ravel().tolist(), strict=True)]
        return np.array(found, np.int64).reshape(stat.shape)
    following = e - ZERO_STEP if stat == 0 else e + stat.bit_length() - (f + 1) - bits
    return min(max(EXPONENT_MIN, following), EXPONENT_MAX)
