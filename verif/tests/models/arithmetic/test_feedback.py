"""Weights of 16 bits: a code and the rest below it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradloom.models.arithmetic import feedback, pint

_FRACTION = 16
_WIDE = st.integers(-5000 << _FRACTION, 5000 << _FRACTION)
_SMALL = st.integers(-520 << _FRACTION, 520 << _FRACTION)


def _exact(a: int, random: int) -> tuple[int, int]:
    """Value and signed rest by plain integers: the number of 16 bits first, then its nearest value."""
    a = min(max(a, -4096 << _FRACTION), (4096 << _FRACTION) - 1)
    t = a >> _FRACTION
    step = 1 if -8 <= t < 8 else 8 if -512 <= t < 512 else 64
    number = ((2 * a * 256 // step >> _FRACTION - 8) + 2 * random + 1) // 512
    if step == 64:
        number = min(number, 63 * 256 + 127)
    nearest = (number + 128) // 256
    return nearest * step, number - 256 * nearest


@given(a=st.one_of(_WIDE, _SMALL), random=st.integers(0, 255))
def test_rounds_the_number_of_sixteen_bits(a, random):
    found = feedback.encode(np.array([a]), _FRACTION, np.array([random]))
    assert (int(found.w.value[0]), int(feedback.rests_of(found.rest)[0])) == _exact(a, random)


@given(a=st.one_of(_WIDE, _SMALL), random=st.integers(0, 255), other=st.integers(0, 255))
def test_what_is_kept_is_the_number(a, random, other):
    """Joined again and encoded, nothing moves, whatever is drawn: also at the bounds, whose value belongs to the segment above."""
    first = feedback.encode(np.array([a]), _FRACTION, np.array([random]))
    joined = feedback.join(first.w.value, first.rest)
    again = feedback.encode(joined << _FRACTION - 8, _FRACTION, np.array([other]))
    np.testing.assert_array_equal(again.w.code, first.w.code)
    np.testing.assert_array_equal(again.rest, first.rest)
    np.testing.assert_array_equal(feedback.split(first.w.value, joined), first.rest)


def test_small_steps_add_up():
    """A thousand steps of a fiftieth of the top segment's unit: stochastic weights walk by hundreds, these arrive within a unit."""
    rng = np.random.default_rng(0)
    value, rest = np.full(2000, 1024), np.zeros(2000, np.uint8)
    for _ in range(1000):
        wide = (feedback.join(value, rest) << 8) + round(64 / 50 * 65536)
        found = feedback.encode(wide, 16, rng.integers(0, 256, 2000))
        value, rest = found.w.value, found.rest
    reached = feedback.join(value, rest) / 256
    assert abs(reached.mean() - (1024 + 1280)) < 1
    assert np.abs(reached - (1024 + 1280)).max() < 32


def test_the_ends_hold():
    found = feedback.encode(np.array([4095 << 16, 1 << 40, -4096 << 16, -(1 << 40)]), 16, np.full(4, 255))
    np.testing.assert_array_equal(found.w.value, [4032, 4032, -4096, -4096])
    np.testing.assert_array_equal(feedback.rests_of(found.rest), [127, 127, 0, 0])
    assert feedback.join(4032, np.uint8(127)) == feedback.LARGEST


def test_statistic_is_that_of_stochastic_rounding():
    a = np.array([-581495, 12, 400000])
    assert feedback.encode(a, 10, np.zeros(3)).w.stat == pint.encode(a, 10, f=16, rnd=np.zeros(3)).stat
