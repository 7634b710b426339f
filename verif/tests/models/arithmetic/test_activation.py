"""Bias, ReLU, linear layers, logits and the shortcut's error, against floating point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import activation, arith, pint

SHAPE = (2, 3, 4, 5)


def sums(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(1 << 26), 1 << 26, SHAPE)


def errors(seed: int, shape=SHAPE) -> np.ndarray:
    return pint.encode(np.random.default_rng(seed).integers(-4096, 4032, shape), 0).value.astype(np.int64)


@pytest.mark.parametrize("e_x", [-30, -24, -16])
def test_bias_is_added_in_the_sums_exponent(e_x):
    x, master = sums(), np.array([1 << 24, -12345678, 77])
    biased = activation.add_bias(x, master, e_x)
    real = x * 2.0**e_x + (master * 2.0**-24).reshape(1, -1, 1, 1)
    difference = real - biased * 2.0**e_x
    # A right shift floors.
    assert np.all((difference >= 0) & (difference < 2.0**e_x))
    assert e_x > -24 or not difference.any()


def test_relu_forward_and_backward():
    x, e_x, e_z = sums(1), -20, -6
    x[0, 0, 0, :3] = 0, 1, -1
    z, bit = activation.relu_forward(x, e_z - e_x)
    assert bit[0, 0, 0, :3].tolist() == [False, True, False]
    real = np.maximum(x * 2.0**e_x, 0)
    assert np.all(np.abs(z.value * 2.0**e_z - real) <= 32 * 2.0**e_z)
    assert z.stat == pint.encode(x * bit, e_z - e_x).stat
    dz = errors(2)
    dx, sb = activation.relu_backward(dz, bit)
    # The derivative of sum(max(x, 0) dz).
    assert dx.value.tolist() == (dz * (real > 0)).tolist()
    assert sb.tolist() == (dz * (real > 0)).sum(axis=(2, 3)).tolist()


def test_linear_forward_and_backward():
    x = sums(3)
    assert activation.linear_forward(x, 12).code.tolist() == pint.encode(x, 12).code.tolist()
    assert activation.linear_backward(x).tolist() == x.sum(axis=(2, 3)).tolist()


@pytest.mark.parametrize("e_x", [-30, -8, 0])
def test_logits_are_q8_and_saturate(e_x):
    x = np.array([[0, 1, -1, 1000000, -1000000, 1 << 34, -(1 << 34)]]).reshape(1, 7, 1, 1)
    result = activation.logits(x, e_x)
    exact = [min(max(int(v) << (e_x + 8) if e_x >= -8 else int(v) >> (-8 - e_x), -(1 << 23)), (1 << 23) - 1)
             for v in x.ravel()]
    assert result.dtype == np.int32 and result.tolist() == [exact]


@given(st.integers(-20, 20), st.integers(-5, 15), st.booleans())
@settings(max_examples=60, deadline=None)
def test_shortcut_error_is_autograds_sum(sh_shortcut, sh, masked):
    """The derivative of a tensor with two consumers is the sum of both; only the encoding rounds."""
    x, d = sums(4), errors(5)
    bit = np.random.default_rng(6).integers(0, 2, SHAPE) if masked else None
    encoded = activation.error_out(x, sh, shortcut=d, sh_shortcut=sh_shortcut, bit=bit)
    exact = x + np.floor((d if bit is None else d * bit) * 2.0**sh_shortcut).astype(np.int64)
    assert encoded.code.tolist() == pint.encode(exact, sh).code.tolist()
    assert encoded.stat == pint.encode(exact, sh).stat


def test_identity_shortcut_loses_nothing():
    """Alone (no other error), b * dz arrives unchanged at its own exponent."""
    d, bit = errors(7), np.random.default_rng(8).integers(0, 2, SHAPE)
    encoded = activation.error_out(np.zeros(SHAPE, dtype=np.int64), 0, shortcut=d, bit=bit)
    assert encoded.value.tolist() == (d * bit).tolist()


def test_error_without_shortcut():
    assert activation.error_out(sums(9), 14).code.tolist() == pint.encode(sums(9), 14).code.tolist()


def test_overflow_is_a_fault():
    with pytest.raises(arith.ArithmeticFault, match="bias: a sum does not fit 64 bits"):
        activation.add_bias(np.ones((1, 1, 1, 1), dtype=np.int64), [1 << 26], -80)
    with pytest.raises(arith.ArithmeticFault, match="shortcut error: a sum does not fit 64 bits"):
        activation.error_out(np.ones(1, dtype=np.int64), 0, shortcut=[1], sh_shortcut=63)
