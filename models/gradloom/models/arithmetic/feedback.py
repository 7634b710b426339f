"""Weights with error feedback: a PINT(8, 3) code and the eight bits below it (docs/arithmetic.md, section 4).

A weight and its rest are one number of 16 bits, which the next step moves on from; forward and backward passes see the code,
the number rounded to nearest. Steps far below the code's unit add up without a random walk.
"""

from typing import Any, NamedTuple

import numpy as np

from gradloom.models.arithmetic.arith import align
from gradloom.models.arithmetic.pint import MAX_VALUE, MIN_VALUE, Encoded, code_of, segment, statistic

__all__ = ["FEEDBACK_F", "LARGEST", "RANDOM_BITS", "REST_BITS", "Feedback", "encode", "join", "rests_of", "split"]

REST_BITS = 8
"""Bits of a rest, in units of 2^-8 of its segment's step."""
RANDOM_BITS = 8
"""Random bits of an element, below the rest's."""
FEEDBACK_F = REST_BITS + RANDOM_BITS
"""Fraction bits of the statistics, less one."""
_TOP_STEP = 6
"""Logarithm of the step of the top segment."""
LARGEST = (MAX_VALUE << REST_BITS) + (127 << _TOP_STEP)
"""The largest number that :func:`join` makes of an encoded weight."""


class Feedback(NamedTuple):
    """New weights and what rounding them left.

    Members
    -------
    w : Encoded
        Rounded to nearest.
    rest : uint8 array
        Two's complement.
    """

    w: Encoded
    rest: np.ndarray


def rests_of(rest: Any) -> np.ndarray:
    """Signed rests (int64, -128..127) of the stored bytes."""
    return np.asarray(rest, np.uint8).astype(np.int8).astype(np.int64)


def join(values: Any, rest: Any) -> np.ndarray:
    """Numbers of 16 significant bits, in units of 2^-8: w 2^8 + rest 2^s.

    Parameters
    ----------
    values : integers, decoded weights
    rest : uint8 array of the same shape

    Returns
    -------
    int64 array, at most 22 bits signed

    s is the segment of what was rounded: a negative rest means that it lay below the value, on a bound in the segment below.
    """
    w, left = np.asarray(values).astype(np.int64), rests_of(rest)
    return (w << REST_BITS) + (left << segment(w - (left < 0)))


def split(values: Any, joined: Any) -> np.ndarray:
    """Rests (uint8) of numbers that :func:`join` made of these values."""
    w, wide = np.asarray(values).astype(np.int64), np.asarray(joined).astype(np.int64)
    return ((wide - (w << REST_BITS)) >> segment(wide, REST_BITS)).astype(np.int8).view(np.uint8)


def encode(a: Any, sh: Any, rnd: Any) -> Feedback:
    """Encode wide integers in PINT(8, 3) and a rest.

    Parameters
    ----------
    a : int64 array, exponent e_a
    sh : int
        ``e_out - e_a``; the alignment saturates
    rnd : integer array
        8-bit random numbers, which round the rest

    What lies beyond the format's range ends at its ends: 4032 and a rest of 127, -4096 and 0.
    """
    f = FEEDBACK_F
    g = align(a, f + 1 - np.asarray(sh, dtype=np.int64))
    stat, limit = statistic(g), -MIN_VALUE << f + 1
    g = np.clip(g, -limit, limit - 1)
    s = segment(g, f + 1)
    q = ((g >> s) + 2 * np.asarray(rnd).astype(np.int64) + 1) >> (RANDOM_BITS + 1)
    # In the top segment a number that would round to 4096 stays the largest one.
    q = np.where(s == _TOP_STEP, np.minimum(q, LARGEST >> _TOP_STEP), q)
    half = 1 << REST_BITS - 1
    v = (((q + half) >> REST_BITS) << s).astype(np.int32)
    rest = ((q + half) & 255) - half
    return Feedback(Encoded(v, code_of(v), stat), rest.astype(np.int8).view(np.uint8))
