"""Wide integers against Python's unbounded ones."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import arith

WIDE = st.integers(-(1 << 63), (1 << 63) - 1)
SHIFT = st.integers(-200, 200)


def clamp(x: int, bits: int) -> int:
    return min(max(x, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)


def exact_align(x: int, n: int) -> int:
    return clamp(x << n, 64) if n >= 0 else x >> -n


@given(WIDE, SHIFT)
@settings(max_examples=500, deadline=None)
def test_align_is_the_saturated_or_floored_product(x, n):
    assert int(arith.align(x, n)) == exact_align(x, n)


@given(st.lists(st.tuples(WIDE, SHIFT), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_align_works_by_element(pairs):
    x, n = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    assert arith.align(x, n).tolist() == [exact_align(a, b) for a, b in pairs]


@pytest.mark.parametrize("n", [-64, -65, -1000, -(1 << 40)])
def test_far_right_shift_leaves_the_sign(n):
    assert arith.align([5, 0, -1, -(1 << 63)], n).tolist() == [0, 0, -1, -1]


@pytest.mark.parametrize("n", [63, 64, 100, 1 << 40])
def test_far_left_shift_saturates(n):
    assert arith.align([3, 0, -3], n).tolist() == [arith.INT64_MAX, 0, arith.INT64_MIN]


@given(WIDE, WIDE, SHIFT)
@settings(max_examples=200, deadline=None)
def test_align_is_monotone(a, b, n):
    low, high = arith.align(sorted((a, b)), n).tolist()
    assert low <= high


@given(WIDE, st.integers(0, 70), st.integers(0, 70))
@settings(max_examples=200, deadline=None)
def test_right_shifts_compose(x, m, n):
    assert int(arith.align(arith.align(x, -m), -n)) == int(arith.align(x, -m - n))


def test_align_refuses_floats():
    with pytest.raises(TypeError, match=r"Wide integers must have an integer type, not 'float64'"):
        arith.align(0.5, 1)


@given(WIDE, st.integers(1, 64))
@settings(max_examples=300, deadline=None)
def test_wrap_and_saturate(x, bits):
    modulus = 1 << bits
    wrapped = int(arith.wrap(x, bits))
    assert (wrapped - x) % modulus == 0 and -modulus // 2 <= wrapped < modulus // 2
    if bits > 1:
        assert int(arith.saturate(x, bits)) == clamp(x, bits)


@given(st.lists(st.integers(-(1 << 47), (1 << 47) - 1), min_size=1, max_size=40),
       st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_wrapped_sums_do_not_depend_on_their_order(terms, random):
    def accumulate(numbers):
        total = np.int64(0)
        for number in numbers:
            total = arith.wrap(total + np.int64(number), 36)
        return int(total)

    shuffled = list(terms)
    random.shuffle(shuffled)
    assert accumulate(terms) == accumulate(shuffled) == int(arith.wrap(sum(terms), 36))


def test_check_fits():
    assert arith.check_fits("sum", [-8, 7], 4).tolist() == [-8, 7]
    assert arith.check_fits("sum", np.empty(0, dtype=np.int64), 4).size == 0
    with pytest.raises(arith.ArithmeticFault, match=r"sum: values -8\.\.8 do not fit 4 bits"):
        arith.check_fits("sum", [-8, 8], 4)
    with pytest.raises(OverflowError):
        arith.check_fits("sum", [-9], 4)


def test_add_raises_only_on_overflow():
    top = arith.INT64_MAX
    assert arith.add("t", [top, -top], [0, -1]).tolist() == [top, arith.INT64_MIN]
    with pytest.raises(arith.ArithmeticFault, match="t: a sum does not fit 64 bits"):
        arith.add("t", [1], [top])
    with pytest.raises(arith.ArithmeticFault):
        arith.add("t", 0, [arith.INT64_MIN], -1)


def test_multiply_raises_only_on_overflow():
    top = (1 << 47) - 1
    assert arith.multiply("p", [-top - 1, top], 1 << 16).tolist() == [-(1 << 63), top << 16]
    assert arith.multiply("p", np.empty(0, dtype=np.int64), 3).size == 0
    with pytest.raises(arith.ArithmeticFault, match=r"p: values .* do not fit 48 bits"):
        arith.multiply("p", [1 << 47], 1 << 16)


def test_reciprocal_of_every_plane():
    for n in range(1, 1 << 15):
        inv, k = arith.reciprocal(n)
        assert 1 << k >= n > (1 << k) >> 1
        exact = Fraction(1 << (15 + k), n)
        assert inv - Fraction(1, 2) <= exact < inv + Fraction(1, 2)
        assert 1 << 15 <= inv <= 1 << 16


@pytest.mark.parametrize(("n", "expected"), [
    (1, (32768, 0)), (2, (32768, 1)), (3, (43691, 2)), (64, (32768, 6)), (49, (42799, 6)), (360, (46603, 9)),
])
def test_reciprocal_examples(n, expected):
    assert arith.reciprocal(n) == expected


def test_reciprocal_refuses_nothing_to_divide_by():
    with pytest.raises(ValueError, match=r"A count must be a positive integer, not '0'"):
        arith.reciprocal(0)
