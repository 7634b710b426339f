"""L1-FRN with TLU: shared vectors, autograd of the same layer in floating point, corners."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import arith, frn, pint
from gradloom.verif.checkout import VECTORS


def test_shared_vectors():
    for record in json.loads((VECTORS / "frn.json").read_text()):
        shape = (1, 1, 1, len(record["X"]))
        x, dz = np.array(record["X"]).reshape(shape), np.array(record["dz"]).reshape(shape)
        gamma, beta, tau = [record["gamma"]], [record["beta"]], [record["tau"]]
        out = frn.forward(x, gamma, beta, tau, 0, sh_z=20 + record["ez"], eps=record["epsI"])
        assert out.xhat_value.ravel().tolist() == record["xhat"]
        assert out.z.value.ravel().tolist() == record["z"]
        assert out.bit.ravel().tolist() == [bool(bit) for bit in record["bit"]]
        assert (int(out.q[0, 0]), int(out.le[0, 0])) == (record["q"], record["le"])
        back = frn.backward(dz, out.xhat_value, out.bit, gamma, out.q, out.le, sh0=record["sh0"])
        assert back.dx.value.ravel().tolist() == record["dx"]
        assert (int(back.sg[0, 0]), int(back.sb[0, 0]), int(back.st[0, 0])) == \
            (record["sg"], record["sb"], record["st"])


@given(st.integers(1, frn.MAX_POSITIONS), st.integers(1, (1 << 63) - 1) | st.integers(1, 1 << 20))
@settings(max_examples=500, deadline=None)
def test_reciprocal_is_the_floor_with_16_bits(n, s):
    q, le = (int(part) for part in frn.reciprocal_norm(n, s))
    assert 1 << 15 <= q < 1 << 16 and 1 <= le <= 78
    assert q * s <= n << le < (q + 1) * s


def float_layer(x, gamma, beta, tau, residual=0.0, threshold=True):
    """z of equations 12 and 13 with the machine's epsilon, float64."""
    norm = np.abs(x).mean(axis=(2, 3), keepdims=True) + 2.0**-12
    y = gamma.reshape(1, -1, 1, 1) * x / norm + beta.reshape(1, -1, 1, 1) + residual
    return np.maximum(y, tau.reshape(1, -1, 1, 1)) if threshold else y


def numerical_gradient(function, at: np.ndarray, step: float) -> np.ndarray:
    gradient = np.empty_like(at)
    for position in np.ndindex(at.shape):
        upper, lower = at.copy(), at.copy()
        upper[position] += step
        lower[position] -= step
        gradient[position] = (function(upper) - function(lower)) / (2 * step)
    return gradient


def case(seed: int = 0, shape=(2, 3, 6, 5), e_x: int = -14):
    rng = np.random.default_rng(seed)
    x = (rng.normal(0.1, 1.0, shape) * rng.uniform(0.3, 3, (*shape[:2], 1, 1)) * 2.0**-e_x).astype(np.int64)
    gamma = rng.integers(-6000, 6000, shape[1])
    gamma[0] = 4096
    return x, gamma, rng.integers(-2000, 2000, shape[1]), rng.integers(-3000, 1000, shape[1]), rng


@pytest.mark.parametrize("threshold", [True, False])
@pytest.mark.parametrize("with_residual", [True, False])
def test_forward_is_the_float_layer(threshold, with_residual):
    x, gamma, beta, tau, rng = case(1)
    e_x, e_z, e_r = -14, -8, -10
    residual = pint.encode(rng.integers(-4000, 4000, x.shape), 0).value.astype(np.int64)
    aligned = arith.align(residual, 20 + e_r) if with_residual else None
    out = frn.forward(x, gamma, beta, tau, -12 - e_x, sh_z=20 + e_z, residual=aligned, threshold=threshold)
    extra = residual * 2.0**e_r if with_residual else 0.0
    z = float_layer(x * 2.0**e_x, gamma / 4096, beta / 4096, tau / 4096, extra, threshold)
    xhat = x * 2.0**e_x / (np.abs(x * 2.0**e_x).mean(axis=(2, 3), keepdims=True) + 2.0**-12)
    # Half a step of the top segment (xhat: middle segment) plus the floor of lambda.
    bound = np.where(np.abs(xhat) < 2, 4, 32) / 256 + np.abs(xhat) * 2.0**-14
    assert np.all(np.abs(out.xhat_value / 256 - xhat) <= bound)
    error = np.abs(gamma / 4096).reshape(1, -1, 1, 1) * bound + np.where(np.abs(z) < 1.9, 4, 32) * 2.0**e_z
    assert np.all(np.abs(out.z.value * 2.0**e_z - z) <= error + 1e-4)
    assert out.bit.all() or threshold
    assert out.y.dtype == np.int64 and out.xhat_code.dtype == np.uint8


def test_backward_is_autograd():
    """Same sums and errors as the derivative of sum(z dz), within the rounding of the stored tensors."""
    x, gamma, beta, tau, rng = case(2)
    e_x, e_dz = -14, -11
    out = frn.forward(x, gamma, beta, tau, -12 - e_x, sh_z=20 - 9)
    dz = pint.encode(rng.integers(-2000, 2000, x.shape), 0).value.astype(np.int64)
    real = x * 2.0**e_x, gamma / 4096, beta / 4096, tau / 4096

    def objective(position, value):
        arguments = list(real)
        arguments[position] = value
        return float((float_layer(*arguments) * dz * 2.0**e_dz).sum())

    # The kink of the threshold: exclude planes where rounding of xhat flips a bit.
    gradients = [numerical_gradient(lambda v, p=p: objective(p, v), real[p], 1e-6) for p in range(4)]
    same = (out.bit == (float_layer(*real) > real[3].reshape(1, -1, 1, 1))).all(axis=(2, 3), keepdims=True)
    shift = -12
    back = frn.backward(dz, out.xhat_value, out.bit, gamma, out.q, out.le, sh0=shift)
    e_dx = shift + e_dz - e_x
    dx = back.dx.value * 2.0**e_dx
    expected = gradients[0]
    assert same.mean() > 0.6
    difference = np.where(same, dx - expected, 0)
    assert np.linalg.norm(difference) < 0.03 * np.linalg.norm(expected)
    planes = same[:, :, 0, 0].all(axis=0)
    assert planes.any()
    for sums, e, gradient in ((back.sg, e_dz - 8, gradients[1]), (back.sb, e_dz, gradients[2]),
                              (back.st, e_dz, gradients[3])):
        total = sums.sum(axis=0) * 2.0**e
        scale = np.abs(dz * 2.0**e_dz).sum(axis=(0, 2, 3))
        assert np.all(np.abs(total - gradient)[planes] < 0.02 * scale[planes])


def test_mean_is_per_image_and_channel():
    """The errors of one plane do not depend on the rest of the batch."""
    x, gamma, beta, tau, rng = case(4, (3, 2, 4, 4))
    dz = pint.encode(rng.integers(-2000, 2000, x.shape), 0).value
    out = frn.forward(x, gamma, beta, tau, 2, sh_z=11)
    whole = frn.backward(dz, out.xhat_value, out.bit, gamma, out.q, out.le, sh0=-8)
    stat = 0
    for b in range(3):
        part = slice(b, b + 1)
        one = frn.backward(
            dz[part], out.xhat_value[part], out.bit[part], gamma, out.q[part], out.le[part], sh0=-8)
        np.testing.assert_array_equal(one.dx.code, whole.dx.code[part])
        np.testing.assert_array_equal(one.sg, whole.sg[part])
        stat |= one.dx.stat
    assert stat == whole.dx.stat


def test_order_of_positions_does_not_matter():
    x, gamma, beta, tau, rng = case(6, (1, 2, 5, 5))
    dz = pint.encode(rng.integers(-2000, 2000, x.shape), 0).value
    order = rng.permutation(25)

    def shuffled(a):
        return a.reshape(1, 2, 25)[:, :, order].reshape(1, 2, 5, 5)

    out, other = (frn.forward(a, gamma, beta, tau, 2, sh_z=11) for a in (x, shuffled(x)))
    np.testing.assert_array_equal(shuffled(out.z.code), other.z.code)
    a = frn.backward(dz, out.xhat_value, out.bit, gamma, out.q, out.le, sh0=-8)
    b = frn.backward(shuffled(dz), other.xhat_value, other.bit, gamma, other.q, other.le, sh0=-8)
    np.testing.assert_array_equal(shuffled(a.dx.code), b.dx.code)
    assert a.sg.tolist() == b.sg.tolist()


def test_zero_plane():
    """No magnitude at all: epsilon alone is the norm, xhat is 0 and y is beta."""
    x = np.zeros((1, 1, 2, 2), dtype=np.int64)
    out = frn.forward(x, [4096], [100], [50], 0, sh_z=20 - 12)
    assert not out.xhat_value.any() and out.y.ravel().tolist() == [100 << 8] * 4
    assert out.bit.all() and (int(out.q[0, 0]), int(out.le[0, 0])) == (1 << 15, 15)
    back = frn.backward(np.full(x.shape, 64), out.xhat_value, out.bit, [4096], out.q, out.le, sh0=-15)
    # sgn(0) = 0: the mean does not act; gl = 4096 * 2^15 >> 16, u = 64 << 4, shift 0.
    assert (int(back.sg[0, 0]), int(back.sb[0, 0]), int(back.st[0, 0])) == (0, 256, 0)
    assert back.dx.value.ravel().tolist() == [4032] * 4


def test_threshold_is_inclusive_and_sends_tau():
    x = np.array([1000, -1000, 10, -10]).reshape(1, 1, 2, 2)
    out = frn.forward(x, [0], [64], [64], 0, sh_z=11)
    assert out.bit.all()
    out = frn.forward(x, [0], [64], [65], 0, sh_z=8)
    assert not out.bit.any() and set(out.z.value.ravel().tolist()) == {64}
    dz = np.array([8, -8, 16, 64]).reshape(1, 1, 2, 2)
    back = frn.backward(dz, out.xhat_value, out.bit, [0], out.q, out.le, sh0=0)
    assert (int(back.sg[0, 0]), int(back.sb[0, 0]), int(back.st[0, 0])) == (0, 0, 80)
    assert not back.dx.value.any()


def test_huge_epsilon_saturates_the_norm():
    x = np.full((1, 1, 2, 2), 1 << 30)
    out = frn.forward(x, [4096], [0], [0], 116, sh_z=11)
    expected = frn.reciprocal_norm(4, (1 << 63) - 1)
    assert (int(out.q[0, 0]), int(out.le[0, 0])) == tuple(int(part) for part in expected)
    assert not out.xhat_value.any()


def test_mean_correction_saturates_at_18_bits():
    """u of the largest errors: (4032 << 4) + 2^20 would need 22 bits."""
    xhat = np.array([-4096, 4032, 4032, 4032]).reshape(1, 1, 2, 2)
    dz = np.array([-4096, 4032, 4032, 4032]).reshape(1, 1, 2, 2)
    ones = np.ones(xhat.shape, dtype=bool)
    # gamma q >> 16 = 1 and shift 5 make dx = u / 32.
    back = frn.backward(dz, xhat, ones, [2], [[1 << 15]], [[0]], sh0=5)
    assert back.dx.value.ravel().tolist() == [4032, -4096, -4096, -4096]


def test_parameters_are_int16_and_planes_below_2_15():
    x = np.ones((1, 1, 2, 2), dtype=np.int64)
    with pytest.raises(arith.ArithmeticFault, match=r"gamma: values 32768..32768 do not fit 16 bits"):
        frn.forward(x, [32768], [0], [0], 0, sh_z=0)
    with pytest.raises(arith.ArithmeticFault, match=r"normalisation: .* do not fit 48 bits"):
        frn.forward(x << 47, [1], [0], [0], 0, sh_z=0)
    with pytest.raises(arith.ArithmeticFault, match="residual: a sum does not fit 64 bits"):
        frn.forward(x, [1000], [0], [0], 0, sh_z=0, residual=np.full(x.shape, arith.INT64_MAX))
    with pytest.raises(ValueError, match=r"A plane must have 1\.\.32767 positions, not 32768"):
        frn.forward(np.zeros((1, 1, 256, 128), dtype=np.int64), [1], [0], [0], 0, sh_z=0)
