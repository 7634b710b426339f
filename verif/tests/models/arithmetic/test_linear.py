"""Integers with a shared exponent against the papers' equations, in rational numbers and in floating point."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import linear, scale

WIDE = st.integers(-(1 << 40), 1 << 40)


def darkfpga(x: int, k: int, shift: int) -> int:
    """DarkFPGA, section 3.1: Clip{(x + round_value) >> shift, -sigma + 1, sigma - 1}, sigma = 2^(k-1)."""
    sigma = 2 ** (k - 1)
    return max(-(sigma - 1), min(sigma - 1, (x + (1 << (shift - 1))) >> shift))


def wage(x: float, k: int) -> float:
    """WAGE's linear mapping, section 3.1: Clip{sigma round(x / sigma), -1 + sigma, 1 - sigma}, sigma = 2^(1-k)."""
    sigma = 2.0 ** (1 - k)
    return max(-1 + sigma, min(1 - sigma, sigma * math.floor(x / sigma + 0.5)))


@given(st.lists(WIDE, min_size=1, max_size=8), st.integers(1, 45), st.sampled_from([2, 5, 8, 13]))
@settings(max_examples=300, deadline=None)
def test_shift_quantisation(numbers, shift, k):
    encoded = linear.encode(np.array(numbers), shift, bits=k, symmetric=True)
    assert encoded.value.tolist() == [darkfpga(x, k, shift) for x in numbers]
    # The same mapping in real numbers: x 2^-(shift + k - 1) is what WAGE calls x.
    real = [wage(x * 2.0 ** -(shift + k - 1), k) * 2 ** (k - 1) for x in numbers]
    assert encoded.value.tolist() == real


def fox(x: Fraction, e: int, draw: Fraction) -> Fraction:
    """Fox, equation 6, 8 bits with exponent E: up with probability (x - floor) / epsilon, epsilon = 2^(E - 6)."""
    epsilon = Fraction(2) ** (e - 6)
    low = (x / epsilon).__floor__() * epsilon
    return low + epsilon if draw < (x - low) / epsilon else low


@given(st.lists(WIDE.filter(bool), min_size=1, max_size=6), st.integers(-20, 20), st.integers(0, 0xFFFF))
@settings(max_examples=300, deadline=None)
def test_block_floating_point(numbers, e_wide, r):
    """The exponent of the largest magnitude, one more integer bit than its leading one for the sign, equation 6's rounding."""
    wide = np.array(numbers).reshape(1, -1, 1, 1)
    dry = linear.encode(wide, 0, bits=8, f=16, per_image=True)
    e = scale.next_exponent(e_wide, dry.stat, 16, 7)
    # -2^k has the exponent of 2^k - 1: two's complement holds it.
    peak = max(x if x >= 0 else -1 - x for x in numbers)
    top = e_wide + peak.bit_length() - 1
    assert e.shape == (1, 1, 1, 1)
    if peak:
        assert int(e.item()) == max(-64, min(127, top - 6))
        found = linear.encode(wide, e - e_wide, bits=8, f=16, rnd=np.full(wide.shape, r)).value.ravel()
        # r is the middle of one of 2^16 intervals, bits of x below the 17th fraction bit are floored before, and a sum that is
        # exactly 1 rounds up, which half of the last bit below the draw says.
        unit = Fraction(2) ** (int(e.item()) - 17)
        draw = 1 - Fraction(2 * r + 1, 1 << 17)
        for x, value in zip(numbers, found.tolist(), strict=True):
            exact = Fraction(x) * Fraction(2) ** e_wide
            expected = fox((exact / unit).__floor__() * unit, top, draw - Fraction(1, 1 << 18))
            assert value == max(-128, min(127, expected / Fraction(2) ** (top - 6)))


def test_stochastic_rounding_is_unbiased():
    draws = np.arange(1 << 16)
    for x in (1, 37, 100, -5, -64, 12345):
        values = linear.encode(np.full(draws.shape, x), 7, bits=13, f=16, rnd=draws).value
        assert set(values.tolist()) <= {x >> 7, (x >> 7) + 1}
        assert values.mean() == x / 128


@pytest.mark.parametrize(("bits", "symmetric", "low", "high"), [
    (8, True, -127, 127), (8, False, -128, 127), (13, False, -4096, 4095)])
def test_range_and_codes(bits, symmetric, low, high):
    assert linear.bounds(bits, symmetric=symmetric) == (low, high)
    encoded = linear.encode(np.array([-(1 << 62), 1 << 62]), 3, bits=bits, symmetric=symmetric)
    assert encoded.value.tolist() == [low, high]
    assert encoded.code.dtype == (np.uint8 if bits == 8 else np.int16)
    every = np.arange(low, high + 1)
    assert np.array_equal(linear.decode(linear.code_of(every, bits), bits), every)


def test_statistics_of_images():
    wide = np.random.default_rng(1).integers(-1000, 1000, (5, 2, 3, 3)) << np.arange(5).reshape(-1, 1, 1, 1)
    together = linear.encode(wide, 4, bits=8)
    apart = linear.encode(wide, 4, bits=8, per_image=True)
    assert apart.stat.shape == (5, 1, 1, 1) and np.array_equal(together.value, apart.value)
    assert apart.stat.ravel().tolist() == [linear.encode(image[None], 4, bits=8).stat for image in wide]
    assert int(np.bitwise_or.reduce(apart.stat, axis=None)) == together.stat
