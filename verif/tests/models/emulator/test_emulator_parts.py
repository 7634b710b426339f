"""The emulator's parts against the golden model's, beyond what networks reach: widths, groups, fall-backs, saturation."""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.models.arithmetic import arith, conv, dither, frn, pint, pool  # noqa: E402
from gradloom.models.arithmetic.pool import PoolWalk  # noqa: E402
from gradloom.models.emulator import conv as emulator_conv  # noqa: E402
from gradloom.models.emulator import frn as emulator_frn  # noqa: E402
from gradloom.models.emulator import numbers  # noqa: E402
from gradloom.models.emulator import pool as emulator_pool  # noqa: E402
from gradloom.models.emulator.operands import Operand, Weights  # noqa: E402
from gradloom.models.layers import Geometry  # noqa: E402

FULL = np.array(sorted(set(pint.decode(np.arange(256)).tolist())))


def codes(rng, shape):
    """Values of all sizes, the extremes among them."""
    return pint.encode(rng.integers(-4097, 4097, shape) >> rng.integers(0, 12, shape), 0).value


def tensor(array):
    return numbers.channels_last(torch.tensor(array, dtype=torch.float32))


# Numbers


@pytest.mark.parametrize("f", [8, 16])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64])
def test_encoder(dtype, f):
    bits = {torch.float64: 52, torch.int32: 31, torch.int64: 63}[dtype]
    rng = np.random.default_rng(bits + f)
    for sh in (-200, -64, -40, -3, 0, 1, 2, 7, 12, 19, 30, 31, 33, 40, 52, 63, 64, 100):
        wide = rng.integers(-(1 << bits), 1 << bits, (2, 3, 5, 7)) >> rng.integers(0, bits, (2, 3, 5, 7))
        wide[0, 0, 0, :4] = -1, 0, (1 << bits) - 1, -(1 << bits)
        draw = rng.integers(0, 1 << f, wide.shape) if f == 16 else None
        expected = pint.encode(wide, sh, f=f, rnd=draw)
        given = torch.tensor(wide, dtype=dtype).contiguous(memory_format=torch.channels_last)
        low, high = (end.item() for end in torch.aminmax(given))
        assert numbers.stat_of(low, high, f + 1 - sh).bit_length() == expected.stat.bit_length()
        found = numbers.encode(given, sh, f, None if draw is None else torch.tensor(2 * draw + 1, dtype=torch.int32))
        assert found.dtype == torch.float32 and np.array_equal(found.numpy(), expected.value), sh


def test_every_half_of_the_range_rounds_as_the_encoder_does():
    wide = np.arange(-4200 * 8, 4200 * 8).reshape(1, 1, 1, -1)
    found = numbers.encode(torch.tensor(wide, dtype=torch.float64), 3, 8, None)
    assert np.array_equal(found.numpy(), pint.encode(wide, 3).value)


def test_tables():
    assert np.array_equal(numbers.value_table("cpu").numpy(), pint.decode(np.arange(256)))
    assert np.array_equal(numbers.codes(torch.tensor(FULL, dtype=torch.float32), numbers.PINT8), pint.code_of(FULL))


def test_split():
    v = torch.tensor(FULL, dtype=torch.float32)
    high, low = numbers.split(v)
    assert torch.equal(high + low, v) and bool((high % 64 == 0).all())
    assert high.abs().max() <= 4096 and low.abs().max() <= 32


def test_align_of_tensors_and_numbers():
    rng = np.random.default_rng(1)
    x = rng.integers(-(1 << 63), (1 << 63) - 1, 400) >> rng.integers(0, 64, 400)
    n = rng.integers(-80, 81, 400)
    expected = arith.align(x, n)
    assert np.array_equal(numbers.align(torch.tensor(x), torch.tensor(n)).numpy(), expected)
    for value, shift, result in zip(x.tolist(), n.tolist(), expected.tolist(), strict=True):
        assert numbers.align_int(value, shift) == result
        assert numbers.align(torch.tensor([value]), shift).item() == result


def test_sums_that_overflow_are_faults():
    largest = torch.tensor([(1 << 63) - 1])
    assert numbers.add("sum", largest, torch.tensor([-1])).item() == (1 << 63) - 2
    with pytest.raises(arith.ArithmeticFault, match=r"^total: a sum does not fit 64 bits$"):
        numbers.add("total", largest, torch.tensor([1]))


def test_random_increments():
    index = np.arange(1 << 24)[:: 4097]
    for seed in (0, 1, 0xFFFFFFFF, 0x89ABCDEF):
        found = numbers.random_increments(seed, torch.tensor(index, dtype=torch.int32), 16)
        assert np.array_equal(found.numpy(), 2 * dither.random_bits(seed, index, 16) + 1)


def test_power_of_two():
    exponent = torch.arange(-1022, 1024)
    assert all(value == 2.0**e for value, e in zip(numbers.power_of_two(exponent).tolist(), exponent.tolist(), strict=True))


# Convolutions

GEOMETRIES = [
    Geometry((16, 8, 8), (24, 8, 8), (3, 3), 1, 1),
    Geometry((5, 9, 7), (3, 5, 4), (3, 3), 2, 1),
    Geometry((3, 10, 11), (7, 10, 11), (5, 5), 1, 2),
    Geometry((4, 6, 5), (9, 3, 3), (1, 1), 2, 0),
    Geometry((4, 6, 6), (3, 4, 4), (2, 2), 2, 1),
    Geometry((6, 4, 5), (11, 1, 1), (4, 5), 1, 0),
    Geometry((8, 1, 1), (5, 1, 1), (1, 1), 1, 0),
]


def operands(g, images, fill):
    rng = np.random.default_rng(7)
    shapes = (images, *g.in_shape), (g.out_shape[0], g.in_shape[0], *g.kernel), (images, *g.out_shape)
    if fill == "random":
        return [codes(rng, shape) for shape in shapes]
    return [np.full(shape, value) for shape, value in zip(shapes, fill, strict=True)]


def assert_convolutions(g, x, w, dx, *, narrow=False):
    """Either way to multiply, whichever this machine takes."""
    for takes_bytes in (True, False):
        with mock.patch.object(emulator_conv, "takes_bytes", return_value=takes_bytes):
            _assert_convolutions(g, x, w, dx, narrow=narrow)


def _assert_convolutions(g, x, w, dx, *, narrow):
    inputs, errors = Operand(tensor(x), narrow=narrow), Operand(tensor(dx), narrow=narrow)
    weights = Weights(torch.tensor(w, dtype=torch.float32))
    found = emulator_conv.forward(inputs, weights, g, "layer")
    assert np.array_equal(found.numpy(), conv.forward(x, w, g.stride, g.pad))
    found = emulator_conv.backward(errors, weights, g, "layer")
    assert np.array_equal(found.numpy(), conv.backward(dx, w, x.shape, g.stride, g.pad))
    found = emulator_conv.weight_gradient(inputs, errors, weights, g, "layer")
    assert found.dtype == torch.float64
    assert np.array_equal(found.numpy(), conv.weight_gradient(x, dx, g.kernel, g.stride, g.pad))


@pytest.mark.parametrize("images", [1, 2, 5, 16])
@pytest.mark.parametrize("fill", ["random", (-4096, -4096, -4096), (4032, -4096, 4032), (31, 4032, 4032)], ids=str)
@pytest.mark.parametrize("g", GEOMETRIES, ids=str)
def test_convolutions(g, fill, images):
    assert_convolutions(g, *operands(g, images, fill))


@pytest.mark.parametrize("limit", ["_TERMS", "_CHUNK", "_SUMS"])
def test_limits_of_bytes(monkeypatch, limit):
    """With smaller limits: float64 for long sums, a few images and a few outputs at a time."""
    monkeypatch.setattr(emulator_conv, limit, 40)
    for g in GEOMETRIES:
        assert_convolutions(g, *operands(g, 5, "random"))


@pytest.mark.parametrize("g", GEOMETRIES, ids=str)
def test_bytes_alone(g):
    """Values of 8-bit formats, -128 among them, are one piece."""
    rng = np.random.default_rng(5)
    shapes = (3, *g.in_shape), (g.out_shape[0], g.in_shape[0], *g.kernel), (3, *g.out_shape)
    x, w, dx = (rng.integers(-128, 128, shape) for shape in shapes)
    assert_convolutions(g, x, w, dx, narrow=True)


def test_bytes_are_what_a_cpu_takes():
    assert emulator_conv.bytes_are_exact("cpu")
    assert not emulator_conv.bytes_are_exact("meta")


@pytest.mark.parametrize("slow", [True, False])
def test_bytes_that_take_longer_are_not_taken(monkeypatch, slow):
    """By a clock that the product alone moves on, or that moves on by itself."""
    now = 0.0

    def product(a, b):
        nonlocal now
        now += slow
        return torch.zeros((len(a), b.shape[1]), dtype=torch.int32)

    monkeypatch.setattr(emulator_conv, "_product", product)
    monkeypatch.setattr(emulator_conv, "time", SimpleNamespace(perf_counter=lambda: now))
    assert emulator_conv.bytes_are_fast.__wrapped__("cpu") is not slow
    assert emulator_conv.bytes_are_fast.__wrapped__("cuda"), "a GPU is judged by sizes alone"


@pytest.mark.parametrize(
    ("left", "right"),
    [((22, 1, 1, 11), (1, 27, 27, 1)), ((64, 1, 1, 11), (1, 5, 1, 1)), ((1, 6, 2, 1), (6, 4, 1, 6)), ((7, 3, 3, 1), (3, 1, 1, 9))],
)
def test_products_of_a_single_row_or_column(left, right):
    """Its stride to a next one means nothing; views have any."""
    rng = np.random.default_rng(7)
    a, b = (torch.empty_strided((r, c), (down, along), dtype=torch.int8) for r, c, down, along in (left, right))
    values = [rng.integers(-128, 128, tuple(each.shape)) for each in (a, b)]
    for each, value in zip((a, b), values, strict=True):
        each.copy_(torch.tensor(value))
    assert np.array_equal(emulator_conv._product(a, b).numpy(), values[0] @ values[1])


@pytest.mark.parametrize("fault", ["saturates", "rounds", "refuses", "lacks"])
def test_products_that_are_not_exact_are_noticed(monkeypatch, fault):
    """Sums of pairs that stick at 16 bits, a lost bit, no such product: bytes are not used, and float64 takes over."""
    def product(a, b):
        if fault == "refuses":
            raise RuntimeError("not implemented")
        exact = a.to(torch.float64) @ b.to(torch.float64)
        if fault == "rounds":
            return (exact - (exact == 1 << 30).to(torch.float64)).to(torch.int32)
        pairs = torch.stack([(a.to(torch.int32)[:, :, None] * b.to(torch.int32)[None])[:, i::2].sum(1) for i in (0, 1)])
        return pairs.clamp(-(1 << 15), (1 << 15) - 1).sum(0).to(torch.int32)

    if fault == "lacks":
        monkeypatch.delattr(torch, "_int_mm")
    else:
        monkeypatch.setattr(emulator_conv, "_product", product)
    monkeypatch.setattr(emulator_conv, "bytes_are_exact", emulator_conv.bytes_are_exact.__wrapped__)
    assert not emulator_conv.bytes_are_exact("cpu") and not emulator_conv.takes_bytes("cpu")
    _assert_convolutions(GEOMETRIES[0], *operands(GEOMETRIES[0], 2, "random"), narrow=False)


def test_small_sums_are_kept_in_int32(monkeypatch):
    monkeypatch.setattr(emulator_conv, "takes_bytes", lambda device: True)
    g = GEOMETRIES[0]
    x, w, _ = operands(g, 1, (4032, 32, 1))
    assert Weights(torch.tensor(w, dtype=torch.float32)).norm(1) == 16 * 9 * 32
    for scale, dtype in ((1, torch.int32), (64, torch.float64)):
        found = emulator_conv.forward(Operand(tensor(x)), Weights(torch.tensor(w * scale, dtype=torch.float32)), g, "layer")
        assert found.dtype == dtype and np.array_equal(found.numpy(), conv.forward(x, w * scale, g.stride, g.pad))


def test_sums_that_do_not_fit_are_faults():
    g = Geometry((2100, 1, 1), (1, 1, 1), (1, 1), 1, 0)
    x, w, _ = operands(g, 1, (-4096, -4096, 1))
    words = r"^layer 'wide': forward sum: values 35232153600\.\.35232153600 do not fit 36 bits$"
    with pytest.raises(arith.ArithmeticFault, match=words):
        emulator_conv.forward(Operand(tensor(x)), Weights(torch.tensor(w, dtype=torch.float32)), g, "wide")


# FRN


@pytest.mark.parametrize("scale", [0, 3, 20, 35])
@pytest.mark.parametrize("eps_shift", [-70, -20, -3, 12, 40, 70])
@pytest.mark.parametrize("residual_shift", [None, -40, -2, 11, 18, 19, 45])
def test_frn_forward(scale, eps_shift, residual_shift):
    rng = np.random.default_rng(scale)
    x = rng.integers(-(1 << scale), 1 << scale, (2, 3, 5, 4))
    x[0, 0] = 0
    x[0, 1] = (1 << scale) - 1
    gamma, beta, tau = (rng.integers(-(1 << 15), 1 << 15, 3) for _ in range(3))
    added = codes(rng, x.shape)
    residual = None if residual_shift is None else arith.align(added.astype(np.int64), residual_shift)
    for threshold in (True, False):
        expected = frn.forward(x, gamma, beta, tau, eps_shift, sh_z=19, residual=residual, threshold=threshold)
        found = emulator_frn.forward(
            torch.tensor(x, dtype=torch.float64), torch.tensor(gamma), torch.tensor(beta), torch.tensor(tau) if threshold else None,
            eps_shift, f=8, increment=None,
            residual=None if residual_shift is None else tensor(added), residual_shift=residual_shift or 0)
        assert np.array_equal(found.q.numpy(), expected.q) and np.array_equal(found.le.numpy(), expected.le)
        assert np.array_equal(found.xhat.numpy(), expected.xhat_value)
        out = np.maximum(expected.y, tau[:, None, None] << 8) if threshold else expected.y
        assert np.array_equal(found.out.numpy(), out)
        assert (found.bit is None) == (not threshold)
        if found.bit is not None:
            assert np.array_equal(found.bit.numpy(), expected.bit)


def test_frn_norms_beyond_float64():
    """Planes whose norms need a longer division than float64's."""
    x = np.full((1, 2, 64, 64), 1 << 30)
    x[0, 1, 0, 0] = 12345
    q, le = frn.reciprocal_norm(4096, np.abs(x).sum((2, 3)) + 1)
    one, zero = torch.tensor([4096, 4096]), torch.tensor([0, 0])
    found = emulator_frn.forward(torch.tensor(x, dtype=torch.float64), one, zero, zero, -70, f=8, increment=None)
    assert np.array_equal(found.q.numpy(), q) and np.array_equal(found.le.numpy(), le)


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 2, 80, 90)])
def test_frn_backward(shape):
    rng = np.random.default_rng(4)
    dz, xhat, bit = codes(rng, shape), codes(rng, shape), rng.integers(0, 2, shape)
    dz[0, 0], xhat[0, 0] = -4096, 4032
    gamma = rng.integers(-(1 << 15), 1 << 15, shape[1])
    q, le = rng.integers(1 << 15, 1 << 16, shape[:2]), rng.integers(1, 79, shape[:2])
    for bits in (bit, None):
        given = np.ones(shape, np.int64) if bits is None else bits
        expected = frn.backward(dz, xhat, given, gamma, q, le, sh0=-9)
        found = emulator_frn.backward(tensor(dz), tensor(xhat), None if bits is None else tensor(bits), torch.tensor(gamma),
                                      torch.tensor(q), torch.tensor(le))
        assert np.array_equal(found.masked.numpy(), dz * given)
        for key in ("sg", "sb", "st"):
            assert np.array_equal(getattr(found, key).numpy(), getattr(expected, key)), key
        low, high = (end.item() for end in torch.aminmax(found.dx))
        assert numbers.stat_of(low, high, 9 + 9).bit_length() == expected.dx.stat.bit_length()
        assert np.array_equal(numbers.encode(found.dx, -9, 8, None).numpy(), expected.dx.value)


# Pools


@pytest.mark.parametrize("g", [
    Geometry((3, 7, 6), (3, 4, 3), (3, 3), 2, 1),
    Geometry((3, 8, 8), (3, 4, 4), (2, 2), 2, 0),
    Geometry((2, 9, 9), (2, 3, 3), (2, 2), 4, 1),
    Geometry((5, 4, 4), (5, 1, 1), (4, 4), 4, 0),
    Geometry((1, 20, 20), (1, 12, 12), (15, 15), 1, 3),
], ids=str)
def test_pools(g):
    rng = np.random.default_rng(9)
    # Few different values: many equal maxima.
    x = rng.choice([-4096, -3, 0, 2, 4032], (2, *g.in_shape))
    dz = codes(rng, (2, *g.out_shape))
    value, index = pool.max_forward(x, g.kernel, g.stride, g.pad)
    largest = PoolWalk(g.kernel, g.stride, g.pad, maximum=True)
    found, chosen = emulator_pool.walked(tensor(x), largest, g.out_shape[1:])
    assert np.array_equal(found.numpy(), value) and np.array_equal(chosen.numpy(), index)
    back, _ = emulator_pool.walked(tensor(dz), largest.adjoint, g.in_shape[1:], chosen)
    assert np.array_equal(back.numpy(), pool.max_backward(dz, index, x.shape, g.kernel, g.stride, g.pad))
    for mean in (True, False):
        walk = PoolWalk(g.kernel, g.stride, g.pad, mean=mean)
        for values, each, shape in ((x, walk, g.out_shape), (dz, walk.adjoint, g.in_shape)):
            wide, none = emulator_pool.walked(tensor(values), each, shape[1:])
            assert np.array_equal(wide.numpy(), pool.walked(values, each, shape)[0]) and none is None
