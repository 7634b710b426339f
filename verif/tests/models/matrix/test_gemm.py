"""The product of codes, against integers of Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.models.matrix.gemm import MOST_TERMS, product, real


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**31))
def test_sums_are_exact(m, k, n, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (m, k), np.int8), rng.integers(-128, 128, (k, n), np.int8)
    found = product(a, b)
    assert found.dtype == np.int32
    assert found.tolist() == [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) for column in b.T] for row in a]


def test_the_deepest_sum_fits():
    a = np.full((1, MOST_TERMS), -128, np.int8)
    assert product(a, a.T).tolist() == [[128 * 128 * MOST_TERMS]] and 128 * 128 * (MOST_TERMS + 1) >= 1 << 31
    deeper = np.zeros((1, MOST_TERMS + 1), np.int8)
    with pytest.raises(ValueError, match="do not fit in 32 bits"):
        product(deeper, deeper.T)


@pytest.mark.parametrize(("a", "b"), [(np.zeros((2, 3), np.int8), np.zeros((2, 3), np.int8)),
                                      (np.zeros((2, 3), np.int16), np.zeros((3, 2), np.int8)),
                                      (np.zeros(3, np.int8), np.zeros((3, 2), np.int8))])
def test_other_operands_are_refused(a, b):
    with pytest.raises(ValueError, match="give int8 matrices"):
        product(a, b)


def test_exponents_are_of_rows_and_columns():
    sums = np.array([[3, -5], [1 << 30, 1]], np.int32)
    found = real(sums, np.array([1, -2], np.int32), np.array([0, 4], np.int32))
    assert found.dtype == np.float32 and found.tolist() == [[6.0, -160.0], [2.0**28, 4.0]]
    assert real(sums, np.array(1, np.int32), np.array(-1, np.int32)).tolist() == sums.tolist()


def test_a_number_is_rounded_once():
    """To nearest even, of 24 bits."""
    sums = np.array([[(1 << 24) + 1, (1 << 24) + 3]], np.int32)
    assert real(sums, np.array(0, np.int32), np.array(0, np.int32)).tolist() == [[float(1 << 24), float((1 << 24) + 4)]]
