"""Weight and parameter updates against momentum SGD in floating point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import arith, dither, feedback, pint, scale, update

SHAPE = (4, 3, 3, 3)
BATCH = 12


def shifts(*, e_g: int, e_v: int, e_v1: int, e_w: int, e_w1: int, k: int, n: int, le: int) -> tuple[int, ...]:
    return (e_g - 15 - k - e_v + 16, 16 + e_v1 - e_v, e_w - n - e_v + 16, e_v1 - le - e_w + 16,
            16 + e_w1 - e_w)


def case(seed: int = 0):
    rng = np.random.default_rng(seed)
    w, v = (pint.encode(rng.integers(-3000, 3000, SHAPE), 0).value for _ in range(2))
    return w, v, rng.integers(-(1 << 30), 1 << 30, SHAPE)


@pytest.mark.parametrize("decay", [False, True])
def test_weights_follow_momentum_sgd(decay):
    """v' = mu v + dW / B + w 2^-n and w' = w - eta v', within one rounding each."""
    w, v, dw = case(1)
    e = {"e_g": -30, "e_v": -12, "e_v1": -11, "e_w": -13, "e_w1": -12, "n": 4, "le": 11}
    inv, k = arith.reciprocal(BATCH)
    mu, lm = 230, 205
    new_v, new_w, _ = update.weights(dw, w, v, inv=inv, momentum=mu, lm=lm, shifts=shifts(**e, k=k), decay=decay)
    real_v = mu / 256 * v * 2.0 ** e["e_v"] + dw * 2.0 ** e["e_g"] / BATCH
    if decay:
        real_v += w * 2.0 ** (e["e_w"] - e["n"])
    got_v = new_v.value * 2.0 ** e["e_v1"]
    step = np.where(np.abs(real_v) < 500 * 2.0 ** e["e_v1"], 4, 32) * 2.0 ** e["e_v1"]
    assert np.all(np.abs(got_v - real_v) <= step * 1.01 + np.abs(real_v) * 2.0**-15)
    real_w = w * 2.0 ** e["e_w"] - lm * 2.0 ** -e["le"] * got_v
    got_w = new_w.value * 2.0 ** e["e_w1"]
    step = np.where(np.abs(real_w) < 500 * 2.0 ** e["e_w1"], 4, 32) * 2.0 ** e["e_w1"]
    assert np.all(np.abs(got_w - real_w) <= step * 1.01)


def test_rests_move_on_with_the_weights():
    """With error feedback w' and its rest together lie within a 256th of a step of w and its rest less eta v', and w' is the
    nearest value; without a step both stay, whatever is drawn."""
    w, v, dw = case(2)
    e = {"e_g": -30, "e_v": -12, "e_v1": -11, "e_w": -13, "e_w1": -12, "n": 4, "le": 11}
    inv, k = arith.reciprocal(BATCH)
    rng = np.random.default_rng(3)
    rest = feedback.encode((w << 16) + rng.integers(-(1 << 14), 1 << 14, w.shape), 16, np.zeros(w.shape)).rest
    rates = {"inv": inv, "momentum": 230, "shifts": shifts(**e, k=k)}
    new_v, new_w, new_rest = update.weights(dw, w, v, lm=205, rest=rest, rnd=rng.integers(0, 256, w.shape), **rates)
    real = feedback.join(w, rest) * 2.0 ** (e["e_w"] - 8) - 205 * 2.0 ** -e["le"] * new_v.value * 2.0 ** e["e_v1"]
    inside = np.abs(real) < 4000 * 2.0 ** e["e_w1"]
    unit = 2.0 ** e["e_w1"]
    step = np.where(np.abs(real) < 7 * unit, 1, np.where(np.abs(real) < 511 * unit, 8, 64)) * unit
    got = feedback.join(new_w.value, new_rest) * 2.0 ** (e["e_w1"] - 8)
    assert inside.mean() > 0.5
    assert np.all(np.abs(got - real)[inside] <= 1.01 / 256 * step[inside] + 2.0 ** (e["e_w1"] - 8))
    assert np.all(np.abs(new_w.value * 2.0 ** e["e_w1"] - got) <= step / 2)

    still = update.weights(dw, w, v, lm=0, rest=rest, rnd=rng.integers(0, 256, w.shape),
                           **rates | {"shifts": shifts(**e | {"e_w1": e["e_w"]}, k=k)})
    np.testing.assert_array_equal(still.w.value, w)
    np.testing.assert_array_equal(still.rest, rest)


def test_stochastic_update_is_unbiased_over_seeds():
    """A step far below the weights' resolution arrives on average."""
    size = 1 << 14
    w = np.full(size, 100 & ~7)
    v = np.full(size, 512)
    idx = np.arange(size)
    mode_v, mode_w = (pint.Mode(16, dither.random_bits(dither.tensor_seed(9, 0, tid), idx, 16)) for tid in (9, 8))
    # No gradient, momentum 1/2: v' = 256; eta v' = 256 * 128 * 2^-15 = 1 at a step of 8.
    moves = (-100, 16, 0, 0 - 15 + 16, 16)
    dw = np.zeros(size, dtype=np.int64)
    rates = {"inv": 32768, "momentum": 128, "lm": 128, "shifts": moves}
    result = update.weights(dw, w, v, mode_v=mode_v, mode_w=mode_w, **rates)
    assert set(result.v.value.tolist()) == {256}
    assert set(result.w.value.tolist()) == {88, 96}
    assert abs(result.w.value.mean() - (96 - 1)) < 0.1
    nearest = update.weights(dw, w, v, **rates)
    assert set(nearest.w.value.tolist()) == {96}


def test_statistics_steer_the_next_scale():
    w, v, dw = case(2)
    e = {"e_g": -30, "e_v": -12, "e_w": -13, "e_w1": -13, "n": 0, "le": 11}
    inv, k = arith.reciprocal(BATCH)
    arguments = {"inv": inv, "momentum": 230, "lm": 128}
    first = update.weights(dw, w, v, shifts=shifts(**e, e_v1=-28, k=k), **arguments)
    e_v1 = scale.next_exponent(-28, first.v.stat, pint.NEAREST.f)
    second = update.weights(dw, w, v, shifts=shifts(**e, e_v1=e_v1, k=k), **arguments)
    assert 2048 <= np.abs(second.v.value).max() <= 4096


@given(st.integers(1, 6), st.integers(0, 1 << 20))
@settings(max_examples=40, deadline=None)
def test_parts_of_a_batch_sum_before_the_division(parts, seed):
    rng = np.random.default_rng(seed)
    pieces = rng.integers(-(1 << 40), 1 << 40, (parts, 20))
    w, v = np.zeros(20, dtype=np.int64), np.zeros(20, dtype=np.int64)
    order = rng.permutation(parts)
    moves = (-20, 16, 0, 5, 16)
    inv, _ = arith.reciprocal(parts)
    a = update.weights(pieces.sum(axis=0), w, v, inv=inv, momentum=0, lm=1, shifts=moves)
    total = np.zeros(20, dtype=np.int64)
    for part in order:
        total += pieces[part]
    b = update.weights(total, w, v, inv=inv, momentum=0, lm=1, shifts=moves)
    assert a.w.code.tolist() == b.w.code.tolist() and a.v.stat == b.v.stat


def test_no_bit_of_the_division_is_lost():
    """dW inv keeps its fraction: the sum 1 of a batch of 3, at exponent 8, is a velocity of 85.3."""
    inv, k = arith.reciprocal(3)
    moves = shifts(e_g=8, e_v=0, e_v1=0, e_w=0, e_w1=0, k=k, n=0, le=0)
    result = update.weights([1], [0], [0], inv=inv, momentum=0, lm=0, shifts=moves)
    assert result.v.value.tolist() == [88]


def test_faults():
    arguments = {"inv": 32768, "momentum": 255, "lm": 255}
    with pytest.raises(arith.ArithmeticFault, match=r"weight gradients: .* do not fit 48 bits"):
        update.weights([1 << 47], [0], [0], shifts=(0, 0, 0, 0, 0), **arguments)
    with pytest.raises(arith.ArithmeticFault, match="velocity: a sum does not fit 64 bits"):
        update.weights([1 << 40], [0], [1], shifts=(40, 0, 0, 0, 0), **arguments)
    with pytest.raises(arith.ArithmeticFault, match="weight: a sum does not fit 64 bits"):
        update.weights([0], [1], [-512], shifts=(0, 10, 0, 63, 0), **arguments)


def test_parameters_follow_momentum_sgd():
    rng = np.random.default_rng(5)
    master, velocity = rng.integers(-(1 << 26), 1 << 26, 8), rng.integers(-(1 << 20), 1 << 20, 8)
    total = rng.integers(-(1 << 30), 1 << 30, 8)
    e_dz, le, lm, mu = -20, 12, 200, 230
    inv, k = arith.reciprocal(BATCH)
    for extra, e_sum in ((1, e_dz - 8), (9, e_dz)):
        result = update.parameter(master, velocity, total >> 8, inv=inv, shift=e_dz + extra - k,
                                  momentum=mu, lm=lm, le_lr=le)
        real_v = mu / 256 * velocity * 2.0**-24 + (total >> 8) * 2.0**e_sum / BATCH
        assert np.all(np.abs(result.velocity * 2.0**-24 - real_v) <= 2 * 2.0**-24 + np.abs(real_v) * 2**-14)
        real_p = master * 2.0**-24 - lm * 2.0**-le * result.velocity * 2.0**-24
        assert np.all(np.abs(result.master * 2.0**-24 - real_p) <= 2.0**-24)


def test_parameters_saturate():
    keep = {"inv": 32768, "momentum": 255, "lm": 255}
    ends = [(1 << 31) - 1, -(1 << 31)]
    grown = update.parameter([0, 0], ends, [1 << 40, -(1 << 40)], shift=0, le_lr=20, **keep)
    assert grown.velocity.tolist() == ends
    bounds = [(1 << 27) - 1, -(1 << 27)]
    bounded = update.parameter(bounds, ends[::-1], [0, 0], shift=0, le_lr=-40, **keep)
    assert bounded.master.tolist() == bounds
    # The int16 view of a bound is a legal gamma.
    assert (bounded.master >> 12).tolist() == [(1 << 15) - 1, -(1 << 15)]
    with pytest.raises(arith.ArithmeticFault, match=r"gradient sums: .* do not fit 48 bits"):
        update.parameter([0], [0], [1 << 47], inv=1 << 16, shift=0, momentum=0, lm=0, le_lr=0)


def test_exhausted_gradient_sum_saturates_at_int32():
    result = update.parameter([0], [0], [1 << 40], inv=32768, shift=30, momentum=0, lm=0, le_lr=0)
    assert result.velocity.tolist() == [(1 << 31) - 1]
