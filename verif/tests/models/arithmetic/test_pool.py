"""Pools against plain loops and against floating-point derivatives."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import arith, conv, pint, pool
from gradloom.models.layers import Upsample
from gradloom.models.networks.geometry import infer

CASES = [  # Y, X, kernel, stride, pad
    (6, 4, 2, 2, 0),
    (7, 5, 3, 2, 1),
    (5, 5, 3, 1, 1),
    (9, 7, 3, 3, 0),
    (8, 9, 3, 2, 0),
    (4, 6, (4, 6), 1, 0),
    (1, 1, 1, 1, 0),
]


def planes(y: int, x: int, seed: int = 0, bound: int = 4096) -> np.ndarray:
    return np.random.default_rng(seed).integers(-bound, bound, (2, 3, y, x))


def windows(y: int, x: int, kernel, stride: int, pad: int):
    """(output row, output column, [(tap number, row, column) inside the input]) of every window."""
    ky, kx = (kernel, kernel) if isinstance(kernel, int) else kernel
    rows, columns = conv.output_size(y, ky, stride, pad), conv.output_size(x, kx, stride, pad)
    for r, s in itertools.product(range(rows), range(columns)):
        top, left = r * stride - pad, s * stride - pad
        held = [(i * kx + j, top + i, left + j) for i in range(ky) for j in range(kx)]
        yield r, s, [tap for tap in held if 0 <= tap[1] < y and 0 <= tap[2] < x]


def pooled_shape(case) -> tuple[int, int]:
    *_, (r, s, _) = windows(*case)
    return r + 1, s + 1


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bound", [3, 4096])
def test_max_against_loops(case, bound):
    y, x, kernel, stride, pad = case
    data = planes(y, x, bound=bound)
    value, index = pool.max_forward(data, kernel, stride, pad)
    dz = planes(*pooled_shape(case), seed=1)
    wide = pool.max_backward(dz, index, data.shape, kernel, stride, pad)
    expected = np.zeros_like(data)
    for b, c in itertools.product(range(2), range(3)):
        for r, s, taps in windows(*case):
            best = max(taps, key=lambda tap: (data[b, c, tap[1], tap[2]], -tap[0]))
            assert value[b, c, r, s] == data[b, c, best[1], best[2]]
            assert index[b, c, r, s] == best[0]
            expected[b, c, best[1], best[2]] += dz[b, c, r, s]
    np.testing.assert_array_equal(wide, expected)
    assert index.dtype == np.uint8


@pytest.mark.parametrize("case", CASES)
def test_average_against_loops(case):
    y, x, kernel, stride, pad = case
    ky, kx = (kernel, kernel) if isinstance(kernel, int) else kernel
    inv, k = arith.reciprocal(ky * kx)
    data, dz = planes(y, x), planes(*pooled_shape(case), seed=1)
    wide = pool.avg_forward(data, kernel, stride, pad)
    back = pool.avg_backward(dz, data.shape, kernel, stride, pad)
    forward_sum, backward_sum = np.zeros_like(dz), np.zeros_like(data)
    for b, c in itertools.product(range(2), range(3)):
        for r, s, taps in windows(*case):
            forward_sum[b, c, r, s] = sum(int(data[b, c, i, j]) for _, i, j in taps)
            for _, i, j in taps:
                backward_sum[b, c, i, j] += dz[b, c, r, s]
    np.testing.assert_array_equal(wide, forward_sum * inv)
    np.testing.assert_array_equal(back, backward_sum * inv)
    assert pool.avg_exponent(-5, kernel) == -5 - 15 - k
    mean = forward_sum / (ky * kx)
    # The reciprocal has 16 significant bits.
    assert np.all(np.abs(wide * 2.0 ** (-15 - k) - mean) <= np.abs(mean) * 2.0**-16)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3),
       st.integers(0, 999))
@settings(max_examples=150, deadline=None)
def test_backward_is_the_adjoint(y, x, kernel, stride, pad, seed):
    """<pool(x), e> = <x, backward(e)>: exactly, the derivative of both pools."""
    if pad >= kernel or min(y, x) + 2 * pad < kernel:
        return
    data = planes(y, x, seed)
    value, index = pool.max_forward(data, kernel, stride, pad)
    e = np.random.default_rng(seed + 1).integers(-4096, 4096, value.shape)
    back = pool.max_backward(e, index, data.shape, kernel, stride, pad)
    assert int((value * e).sum()) == int((data * back).sum())
    for mean in (True, False):
        walk = pool.PoolWalk((kernel, kernel), stride, pad, mean=mean)
        wide, none = pool.walked(data, walk, value.shape)
        back, _ = pool.walked(e, walk.adjoint, data.shape)
        assert int((wide * e).sum()) == int((data * back).sum()) and none is None


@pytest.mark.parametrize("maximum", [True, False])
def test_a_walk_is_the_functions(maximum):
    data, walk = planes(8, 9), pool.PoolWalk((3, 3), 2, 1, maximum=maximum)
    assert walk.adjoint == pool.PoolWalk((3, 3), 2, 1, maximum=maximum, spread=True) and walk.adjoint.adjoint == walk
    wide, index = pool.walked(data, walk, ())
    back, _ = pool.walked(wide, walk.adjoint, data.shape, index)
    if maximum:
        value, chosen = pool.max_forward(data, 3, 2, 1)
        np.testing.assert_array_equal(index, chosen)
        np.testing.assert_array_equal(back, pool.max_backward(value, chosen, data.shape, 3, 2, 1))
    else:
        value = pool.avg_forward(data, 3, 2, 1)
        np.testing.assert_array_equal(back, pool.avg_backward(value, data.shape, 3, 2, 1))
    np.testing.assert_array_equal(wide, value)
    assert (walk.divisor, walk.fraction) == (9, 0 if maximum else 15 + 4)


def test_a_walk_that_is_no_mean_divides_by_nothing():
    data, walk = planes(6, 4), pool.PoolWalk((2, 2), 2, mean=False)
    wide, _ = pool.walked(data, walk, ())
    # The machine multiplies all the same, by a power of two that the exponent takes back.
    np.testing.assert_array_equal(wide >> walk.fraction, data.reshape(2, 3, 3, 2, 2, 2).sum(axis=(3, 5)))
    assert (walk.divisor, walk.fraction) == (1, 15)


@pytest.mark.parametrize(("y", "x", "scale"), [(3, 5, 2), (1, 1, 4), (4, 3, 3), (2, 2, 1)])
def test_upsampling_repeats_and_its_backward_pass_adds(y, x, scale):
    """The walk of an upsample layer: exactly NumPy's repetition, and the sum of what went to a position."""
    layer = Upsample(name="u", scale=scale)
    walk = layer.walk(infer(dataclasses.replace(layer, input="a"), {"a": (3, y, x)}))
    data = planes(y, x)
    wide, none = pool.walked(data, walk, (scale * y, scale * x))
    np.testing.assert_array_equal(wide >> walk.fraction, data.repeat(scale, axis=2).repeat(scale, axis=3))
    dz = planes(scale * y, scale * x, seed=1)
    back, _ = pool.walked(dz, walk.adjoint, data.shape)
    np.testing.assert_array_equal(back >> walk.fraction, dz.reshape(2, 3, y, scale, x, scale).sum(axis=(3, 5)))
    assert none is None and (walk.fraction, walk.adjoint.fraction) == (15, 15)
    # At the exponent of what was read nothing is lost: codes are repeated.
    code = pint.encode(data, 0).code
    wide, _ = pool.walked(pint.decode(code), walk, (scale * y, scale * x))
    np.testing.assert_array_equal(pint.encode(wide, walk.fraction).code, code.repeat(scale, axis=2).repeat(scale, axis=3))


def test_global_average_of_a_power_of_two_is_a_shift():
    data = planes(4, 8)
    wide, e = pool.avg_forward(data, (4, 8), 1, 0), pool.avg_exponent(-3, (4, 8))
    total = data.sum(axis=(2, 3), keepdims=True)
    a, b = pint.encode(wide, 2 - e), pint.encode(total, 2 - (-3 - 5))
    assert a.code.tolist() == b.code.tolist() and a.stat == b.stat


def test_padding_never_wins():
    data = np.full((1, 1, 3, 3), -4096)
    value, index = pool.max_forward(data, 3, 2, 1)
    assert set(value.ravel().tolist()) == {-4096}
    # Of the corner windows, the first tap inside: below and right of the padding in the first.
    assert index.ravel().tolist() == [4, 3, 1, 0]


def test_padding_as_large_as_the_window_is_refused():
    with pytest.raises(ValueError, match=r"Padding of a pool must be 0 or more and below its kernel"):
        pool.max_forward(np.zeros((1, 1, 4, 4), dtype=np.int64), 2, 2, 2)
    with pytest.raises(ValueError, match="A kernel of 3 does not fit an input of 2 with padding 0"):
        pool.avg_forward(np.zeros((1, 1, 2, 2), dtype=np.int64), 3, 1, 0)
