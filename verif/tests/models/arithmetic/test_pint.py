"""PINT codes and encoder: shared vectors, every legal format exhaustively, rounding laws."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import pint
from gradloom.verif.checkout import VECTORS

LEGAL = [(k, d) for k in range(4, 9) for d in range(1, k - 2)]
WIDE = st.integers(-(1 << 63), (1 << 63) - 1)


def scalar_decode(code: int, k: int, d: int) -> int:
    """Equation 9 on bit strings: most significant bit first, flag, then m."""
    bits = format(code, f"0{k}b")
    m = int(bits[1:], 2) - ((1 << (k - 1)) if bits[1] == "1" else 0)
    if bits[0] == "1":
        return m * 2**d
    high = bits[1 : k - d]
    return m if set(high) in ({"0"}, {"1"}) else m * 2 ** (k - 2)


def scalar_encode(x: Fraction, k: int, d: int, threshold: Fraction) -> int:
    """Value of PINT(k, d): floor(x / step + threshold) steps, the step chosen by the integer part of x."""
    t = math.floor(x)
    limit = 4 ** (k - 2)
    if not -limit <= t < limit:
        return -limit if t < 0 else limit - 2 ** (k - 2)
    step = 1 if -(2**d) <= t < 2**d else 2**d if -(2 ** (k - 2 + d)) <= t < 2 ** (k - 2 + d) else 2 ** (k - 2)
    return min(math.floor(x / step + threshold) * step, limit - 2 ** (k - 2))


def test_shared_codes():
    for name, values in json.loads((VECTORS / "codes.json").read_text()).items():
        k, d = map(int, name.split(","))
        assert pint.decode(np.arange(1 << k), k, d).tolist() == values


def test_shared_encoder_vectors():
    records = json.loads((VECTORS / "encoder.json").read_text())
    assert {record["F"] for record in records} == {4, 8, 16}
    for record in records:
        f = record["F"]
        rnd = None if record["x24"] is None else record["x24"] >> (24 - f)
        encoded = pint.encode(record["A"], record["sh"], f=f, rnd=rnd)
        result = int(encoded.value), int(encoded.code), encoded.stat
        assert result == (record["v"], record["code"], record["stat"])


@pytest.mark.parametrize(("k", "d"), LEGAL)
def test_every_code_of_every_format(k, d):
    codes = np.arange(1 << k)
    values = pint.decode(codes, k, d)
    assert values.tolist() == [scalar_decode(code, k, d) for code in codes.tolist()]
    assert values.min() == -(4 ** (k - 2)) and values.max() == (2 ** (k - 2) - 1) * 2 ** (k - 2)
    # Two codes are never emitted: the flagged forms of 0 and of -2^d.
    emitted = pint.code_of_kd(values, k, d)
    assert pint.decode(emitted, k, d).tolist() == values.tolist()
    assert set(codes.tolist()) - set(emitted.tolist()) == {1 << (k - 1), (1 << k) - 1}
    assert len(np.unique(values)) == (1 << k) - 2


@pytest.mark.parametrize(("k", "d"), LEGAL)
def test_encoder_of_every_format_on_a_whole_grid(k, d):
    """Inputs with F + 1 = 3 fraction bits, also beyond the range, to nearest and with each random number.

    The largest format compares every seventh input.
    """
    f = 2
    limit = (4 ** (k - 2)) << (f + 1)
    g = np.arange(-limit - 40, limit + 40)
    for rnd in (None, 0, 1, 2, 3):
        encoded = pint.encode_kd(g, f + 1, k, d, f=f, rnd=rnd)
        threshold = Fraction(1, 2) if rnd is None else Fraction(2 * rnd + 1, 1 << (f + 1))
        stride = 1 if k < 8 else 7
        expected = []
        for number in g[::stride].tolist():
            x = Fraction(number, 1 << (f + 1))
            expected.append(scalar_encode(_truncated(x, k, d, f), k, d, threshold))
        assert encoded.value[::stride].tolist() == expected
        assert pint.decode(encoded.code, k, d).tolist() == encoded.value.tolist()
        assert encoded.value.dtype == np.int32 and encoded.code.dtype == np.uint8


def _truncated(x: Fraction, k: int, d: int, f: int) -> Fraction:
    """x with F + 1 fraction bits *of its segment's step*: the encoder drops the others before it rounds."""
    t = math.floor(x)
    s = 0 if -(2**d) <= t < 2**d else d if -(2 ** (k - 2 + d)) <= t < 2 ** (k - 2 + d) else k - 2
    unit = Fraction(1 << s, 1 << (f + 1))
    return math.floor(x / unit) * unit


def test_code_of_every_value():
    values = pint.decode(np.arange(256))
    codes = pint.code_of(values)
    assert codes.dtype == np.uint8
    assert codes.tolist() == [{0x80: 0x00, 0xFF: 0x78}.get(code, code) for code in range(256)]
    assert pint.encode(values, 0).value.tolist() == values.tolist()
    assert pint.encode(values, 0).code.tolist() == codes.tolist()


def test_unrepresentable_values_and_formats_are_refused():
    with pytest.raises(ValueError, match=r"Not every value is representable in PINT\(8, 3\)"):
        pint.code_of([0, 9])
    for k, d in ((8, 0), (8, 6), (3, 1), (17, 3)):
        assert not pint.is_legal(k, d)
        with pytest.raises(ValueError, match=r"must have 4 <= k <= 16 and 1 <= d <= k - 3"):
            pint.decode(0, k, d)
    with pytest.raises(ValueError, match=r"F must be 1..16 random bits, not '0'"):
        pint.encode(0, 0, f=0)


@given(WIDE, WIDE, st.integers(-70, 70), st.sampled_from([8, 16]), st.none() | st.integers(0, 255))
@settings(max_examples=400, deadline=None)
def test_encoder_is_monotone(a, b, sh, f, rnd):
    low, high = pint.encode(sorted((a, b)), sh, f=f, rnd=rnd).value.tolist()
    assert low <= high


@given(st.integers(-(1 << 40), 1 << 40), st.integers(0, 40), st.none() | st.integers(0, 255))
@settings(max_examples=500, deadline=None)
def test_rounding_error_is_bounded(a, sh, rnd):
    x = Fraction(a, 1 << sh)
    if not pint.MIN_VALUE <= x < 4096:
        return
    t = math.floor(x)
    step = 1 if -8 <= t < 8 else 8 if -512 <= t < 512 else 64
    error = abs(int(pint.encode(a, sh, rnd=rnd).value) - x)
    if x > pint.MAX_VALUE:
        assert error < 64
    elif rnd is None:
        assert error <= step * (Fraction(1, 2) + Fraction(1, 512))
    else:
        assert error < step * (1 + Fraction(1, 512))


@pytest.mark.parametrize("f", [4, 8])
def test_stochastic_rounding_is_unbiased(f):
    rng = np.random.default_rng(3)
    a = rng.integers(-4000 << 20, 4000 << 20, 200)
    draws = np.arange(1 << f)[:, None]
    mean = pint.encode(a[None, :], 20, f=f, rnd=draws).value.mean(axis=0)
    x = a / (1 << 20)
    step = np.where((x >= -8) & (x < 8), 1, np.where((x >= -512) & (x < 512), 8, 64))
    assert np.all(np.abs(mean - x) <= step * 2.0 ** -f)


@given(st.lists(WIDE, min_size=1, max_size=30), st.integers(-20, 60))
@settings(max_examples=100, deadline=None)
def test_statistics_are_an_or(values, sh):
    whole = pint.encode(np.array(values), sh).stat
    parts = [pint.encode(value, sh).stat for value in values]
    combined = 0
    for part in parts:
        combined |= part
    assert whole == combined
    # The leading one of the OR is that of the largest magnitude.
    assert whole.bit_length() == max(part.bit_length() for part in parts) <= 63


def test_shift_is_broadcast():
    a = np.arange(-3000, 3000, 7).reshape(2, -1)
    both = pint.encode(a, np.array([[1], [3]]))
    assert both.value[0].tolist() == pint.encode(a[0], 1).value.tolist()
    assert both.value[1].tolist() == pint.encode(a[1], 3).value.tolist()


def test_empty_tensor():
    empty = pint.encode(np.empty((0, 3), dtype=np.int64), 4)
    assert empty.value.shape == (0, 3) and empty.stat == 0


@pytest.mark.parametrize(("a", "value"), [((1 << 63) - 1, 4032), (-(1 << 63), -4096)])
@pytest.mark.parametrize("sh", [-300, -1, 0, 20])
def test_extremes_saturate(a, value, sh):
    assert int(pint.encode(a, sh).value) == value
    assert int(pint.encode(a, sh, f=16, rnd=65535).value) == value
