"""Convolutions against plain loops, as adjoints of each other, and independent of the order of their sums."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import arith, conv

SHAPES = [  # batch, C, Y, X, M, Ky, Kx, stride, pad
    (2, 3, 5, 4, 4, 3, 3, 1, 1),
    (1, 2, 7, 5, 3, 3, 3, 2, 1),
    (2, 1, 6, 6, 2, 3, 3, 2, 0),
    (1, 5, 9, 7, 3, 5, 5, 1, 2),
    (1, 3, 8, 9, 2, 7, 7, 2, 3),
    (2, 4, 5, 5, 3, 1, 1, 1, 0),
    (2, 4, 5, 6, 3, 1, 1, 2, 0),
    (3, 2, 4, 3, 5, 4, 3, 1, 0),
    (1, 1, 1, 1, 1, 1, 1, 1, 0),
    (1, 2, 6, 5, 2, 2, 2, 2, 1),
]


def draw(rng: np.random.Generator, shape: tuple[int, ...], bound: int = 4096) -> np.ndarray:
    return rng.integers(-bound, bound, shape)


def taps(shape: tuple[int, ...]):
    """(b, m, c, yo, xo, i, j, y, x) of every product inside the input."""
    batch, c, y, x, m, ky, kx, stride, pad = shape
    yo, xo = conv.output_size(y, ky, stride, pad), conv.output_size(x, kx, stride, pad)
    for b, o, n, r, s, i, j in itertools.product(*map(range, (batch, m, c, yo, xo, ky, kx))):
        yi, xi = r * stride + i - pad, s * stride + j - pad
        if 0 <= yi < y and 0 <= xi < x:
            yield b, o, n, r, s, i, j, yi, xi


def operands(shape: tuple[int, ...], seed: int = 1):
    batch, c, y, x, m, ky, kx, stride, pad = shape
    rng = np.random.default_rng(seed)
    size = conv.output_size(y, ky, stride, pad), conv.output_size(x, kx, stride, pad)
    return draw(rng, (batch, c, y, x)), draw(rng, (m, c, ky, kx)), draw(rng, (batch, m, *size))


@pytest.mark.parametrize("shape", SHAPES)
def test_all_phases_against_loops(shape):
    x, w, err = operands(shape)
    stride, pad = shape[-2:]
    y, dx, dw = np.zeros_like(err), np.zeros_like(x), np.zeros_like(w)
    for b, o, n, r, s, i, j, yi, xi in taps(shape):
        y[b, o, r, s] += w[o, n, i, j] * x[b, n, yi, xi]
        dx[b, n, yi, xi] += w[o, n, i, j] * err[b, o, r, s]
        dw[o, n, i, j] += x[b, n, yi, xi] * err[b, o, r, s]
    forward = conv.forward(x, w, stride, pad, kernel=w.shape[2:])
    assert forward.dtype == np.int64
    np.testing.assert_array_equal(forward, y)
    np.testing.assert_array_equal(conv.backward(err, w, x.shape, stride, pad), dx)
    np.testing.assert_array_equal(conv.weight_gradient(x, err, w.shape[2:], stride, pad), dw)


@st.composite
def shapes(draw_from):
    ky, kx = draw_from(st.integers(1, 5)), draw_from(st.integers(1, 5))
    pad = draw_from(st.integers(0, 2))
    y = draw_from(st.integers(max(1, ky - 2 * pad), 9))
    x = draw_from(st.integers(max(1, kx - 2 * pad), 9))
    batch, c, m = (draw_from(st.integers(1, 4)) for _ in range(3))
    return batch, c, y, x, m, ky, kx, draw_from(st.integers(1, 3)), pad


@given(shapes(), st.integers(0, 1 << 30))
@settings(max_examples=150, deadline=None)
def test_adjointness(shape, seed):
    """<conv(x), e> = <x, backward(e)> = <w, weight_gradient(x, e)>, exactly: both are autograd's."""
    x, w, err = operands(shape, seed)
    stride, pad = shape[-2:]
    product = int((conv.forward(x, w, stride, pad) * err).sum())
    assert product == int((x * conv.backward(err, w, x.shape, stride, pad)).sum())
    assert product == int((w * conv.weight_gradient(x, err, w.shape[2:], stride, pad)).sum())


@given(shapes(), st.integers(0, 1 << 30))
@settings(max_examples=50, deadline=None)
def test_order_of_channels_and_images_does_not_matter(shape, seed):
    x, w, err = operands(shape, seed)
    stride, pad = shape[-2:]
    rng = np.random.default_rng(seed)
    channels, images = rng.permutation(x.shape[1]), rng.permutation(x.shape[0])
    np.testing.assert_array_equal(
        conv.forward(x, w, stride, pad), conv.forward(x[:, channels], w[:, channels], stride, pad))
    np.testing.assert_array_equal(
        conv.weight_gradient(x, err, w.shape[2:], stride, pad),
        conv.weight_gradient(x[images], err[images], w.shape[2:], stride, pad))


def test_batch_in_parts():
    shape = (5, 3, 6, 5, 4, 3, 3, 2, 1)
    x, _, err = operands(shape)
    parts = [slice(0, 2), slice(2, 5)]
    whole = conv.weight_gradient(x, err, 3, 2, 1)
    np.testing.assert_array_equal(whole, sum(conv.weight_gradient(x[p], err[p], 3, 2, 1) for p in parts))


def test_chunks_give_the_same_sums(monkeypatch):
    x, w, err = operands((5, 3, 6, 5, 4, 3, 3, 1, 1))

    def phases():
        return (conv.forward(x, w, 1, 1), conv.backward(err, w, x.shape, 1, 1),
                conv.weight_gradient(x, err, 3, 1, 1))

    whole = phases()
    monkeypatch.setattr(conv, "_CHUNK", 1)
    for a, b in zip(whole, phases(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_fully_connected_is_a_kernel_of_the_whole_plane():
    rng = np.random.default_rng(5)
    x, w, err = draw(rng, (3, 4, 2, 5)), draw(rng, (7, 4, 2, 5)), draw(rng, (3, 7, 1, 1))
    flat, matrix = x.reshape(3, -1), w.reshape(7, -1)
    np.testing.assert_array_equal(conv.forward(x, w, 1, 0)[:, :, 0, 0], flat @ matrix.T)
    np.testing.assert_array_equal(
        conv.backward(err, w, x.shape, 1, 0).reshape(3, -1), err[:, :, 0, 0] @ matrix)
    np.testing.assert_array_equal(
        conv.weight_gradient(x, err, (2, 5), 1, 0).reshape(7, -1), err[:, :, 0, 0].T @ flat)


def test_positions_without_a_window_get_no_error():
    err, w = np.full((1, 1, 2, 2), 3), np.ones((1, 1, 2, 2), dtype=np.int64)
    dx = conv.backward(err, w, (1, 1, 6, 6), 3, 0)
    assert dx[0, 0, 2].tolist() == dx[0, 0, :, 5].tolist() == [0] * 6


def test_overflow_is_a_fault():
    x = np.full((1, 2048, 1, 1), 4032)
    w = np.full((1, 2048, 1, 1), 4032)
    assert int(conv.forward(x, w, 1, 0)[0, 0, 0, 0]) == 2048 * 4032**2
    wide = 2113  # the first number of products 4032^2 that 36 bits do not hold
    x, w = np.full((1, wide + 1, 1, 1), 4032), np.full((1, wide + 1, 1, 1), 4032)
    with pytest.raises(arith.ArithmeticFault, match=r"forward sums: .* do not fit 36 bits"):
        conv.forward(x, w, 1, 0)
    assert int(conv.forward(x, w, 1, 0, width=None)[0, 0, 0, 0]) == (wide + 1) * 4032**2
    with pytest.raises(arith.ArithmeticFault, match=r"backward sums: .* do not fit 36 bits"):
        conv.backward(x, w.transpose(1, 0, 2, 3), (1, 1, 1, 1), 1, 0)
    big = np.full((1, 1, 1, 1), 1 << 24)
    with pytest.raises(arith.ArithmeticFault, match=r"weight gradients: .* do not fit 48 bits"):
        conv.weight_gradient(big, big, 1, 1, 0)


def test_operands_beyond_float_precision_stay_exact():
    x = np.full((1, 1, 1, 1), (1 << 31) + 1)
    assert int(conv.forward(x, x, 1, 0, width=None)[0, 0, 0, 0]) == ((1 << 31) + 1) ** 2


def test_mismatches_are_refused():
    x, w, err = operands(SHAPES[0])
    with pytest.raises(ValueError, match="The input has 2 channels, the weights have 3"):
        conv.forward(x[:, :2], w, 1, 1)
    with pytest.raises(ValueError, match=r"The weights have a kernel of \(3, 3\), not \(5, 5\)"):
        conv.forward(x, w, 1, 1, kernel=5)
    with pytest.raises(ValueError, match="Errors of 5 x 4 do not belong to an input of 5 x 4"):
        conv.backward(err, w, x.shape, 2, 1)
    with pytest.raises(ValueError, match="Errors of 5 x 4 do not belong to an input of 5 x 4"):
        conv.weight_gradient(x, err, 3, 2, 1)
    with pytest.raises(ValueError, match="A kernel of 7 does not fit an input of 4 with padding 1"):
        conv.output_size(4, 7, 1, 1)
