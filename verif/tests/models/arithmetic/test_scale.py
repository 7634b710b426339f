"""Delayed scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import pint, scale


@given(st.integers(1, (1 << 45) - 1), st.integers(-20, 30), st.sampled_from([8, 16]))
@settings(max_examples=300, deadline=None)
def test_the_maximum_lands_in_the_top_binade(peak, e, f):
    """After the rule, the largest magnitude of the same data is in [2048, 4095] (4033..4095 clamp)."""
    data = np.array([peak, -peak // 3, peak // 7])
    shift = e + 10
    following = scale.next_exponent(e, pint.encode(data, shift, f=f).stat, f)
    again = pint.encode(data, shift + following - e, f=f)
    # Too small to be seen, or beyond 64 bits: the rule then needs more than one step.
    lost = (shift > f + 1 and peak < 1 << (shift - f - 1)) or peak.bit_length() + f + 1 - shift > 63
    if scale.EXPONENT_MIN < following < scale.EXPONENT_MAX and not lost:
        assert 2048 <= int(np.abs(again.value).max()) <= 4096
        assert again.stat.bit_length() == f + 1 + scale.VALUE_BITS


@pytest.mark.parametrize(("e", "stat", "f", "following"), [
    (-8, 4095 << 9, 8, -8), (-8, 4096 << 9, 8, -7), (-8, 2047 << 9, 8, -9), (-8, 1, 8, -28),
    (-8, 4095 << 17, 16, -8), (-8, (1 << 63) - 1, 8, 34), (3, 0, 8, -1), (-61, 0, 8, -64), (-64, 0, 8, -64),
    (-60, 1, 8, -64), (100, (1 << 63) - 1, 8, 127),
])
def test_rule(e, stat, f, following):
    assert scale.next_exponent(e, stat, f) == following


def test_same_value_under_either_f():
    """F changes the statistic and its reading alike."""
    data = np.array([123456, -98765])
    assert scale.next_exponent(0, pint.encode(data, 5, f=8).stat, 8) == \
        scale.next_exponent(0, pint.encode(data, 5, f=16).stat, 16)
