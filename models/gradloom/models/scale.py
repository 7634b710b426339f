"""Delayed scale: exponents follow the statistics of the step before (docs/arithmetic.md, section 6)."""

__all__ = ["EXPONENT_MAX", "EXPONENT_MIN", "VALUE_BITS", "next_exponent"]

EXPONENT_MIN = -64
EXPONENT_MAX = 127
VALUE_BITS = 12
"""Magnitude bits of a PINT(8, 3) value: the largest element is brought into [2048, 4095]."""
ZERO_STEP = 4
"""By how much an all-zero tensor lowers its exponent, so that a later small element is seen."""


def next_exponent(e: int, stat: int, f: int) -> int:
    """Exponent for the next step.

    Parameters
    ----------
    e : int
        Exponent that was used
    stat : int
        OR of the encoder's magnitudes of all elements (``F + 1`` fraction bits)
    f : int
        F of the encoder: 8 for nearest rounding, 16 for stochastic
    """
    following = e - ZERO_STEP if stat == 0 else e + stat.bit_length() - (f + 1) - VALUE_BITS
    return min(max(EXPONENT_MIN, following), EXPONENT_MAX)
