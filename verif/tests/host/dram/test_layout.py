"""DRAM formats: every pack against the formula of docs/machine.md section 2, and back."""

import itertools

import numpy as np
import pytest

from gradloom.host.dram import layout

GROUPS = (1, 2, 4, 8)
SHAPES = [(b, c, y, x) for b in (1, 3) for c in (1, 2, 5, 8, 9) for y in (1, 3, 4) for x in (1, 2, 5, 7)]


def _codes(shape, seed=1):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("g", GROUPS)
def test_features(g):
    for shape in SHAPES:
        b, c, y, x = shape
        codes = _codes(shape)
        data = layout.pack_feature(codes, g)
        groups, columns = -(-c // g), x + x % 2
        assert len(data) == b * groups * layout.plane_beats(y, x) * 2 * g
        assert np.array_equal(layout.unpack_feature(data, shape, g), codes)
        for n, ch, row, col in itertools.product(range(b), range(groups * g), range(y), range(columns)):
            place = (((n * groups + ch // g) * y + row) * columns + col) * g + ch % g
            assert data[place] == (codes[n, ch, row, col] if ch < c and col < x else 0)


@pytest.mark.parametrize("g", GROUPS)
def test_bitmaps(g):
    for shape in SHAPES:
        b, c, y, x = shape
        bits = _codes(shape) & 1
        data = layout.pack_bitmap(bits, g)
        groups, columns, plane = -(-c // g), x + x % 2, layout.bitmap_beats(y, x) * 2 * g
        assert len(data) == b * groups * plane
        assert np.array_equal(layout.unpack_bitmap(data, shape, g), bits)
        for n, ch, row, col in itertools.product(range(b), range(c), range(y), range(x)):
            place = (row * columns + col) * g + ch % g
            byte = data[(n * groups + ch // g) * plane + place // 8]
            assert byte >> place % 8 & 1 == bits[n, ch, row, col]


@pytest.mark.parametrize("g", GROUPS)
@pytest.mark.parametrize("wide", [False, True])
def test_blocks_and_weight_gradients(g, wide):
    for shape in [(1, 1, 1, 1), (5, 3, 3, 3), (9, 8, 2, 5), (4, 13, 5, 3), (3, 2, 3, 7)]:
        m, c, ky, kx = shape
        for columns in {kx, kx + kx % 2}:
            value = np.random.default_rng(2).integers(-(2**40), 2**40, shape) if wide else _codes(shape)
            pack, unpack = (
                (layout.pack_dw, layout.unpack_dw) if wide else (layout.pack_blocks, layout.unpack_blocks)
            )
            data = pack(value, g, kx=columns)
            size = 8 if wide else 1
            block = (2 if g == 1 else g * g) * size
            assert block % (2 * g) == 0
            assert len(data) == -(-m // g) * -(-c // g) * ky * columns * block
            assert np.array_equal(unpack(data, shape, g, kx=columns), value)
            for o, i, row, col in itertools.product(range(m), range(c), range(ky), range(kx)):
                place = (((o // g * -(-c // g) + i // g) * ky + row) * columns + col) * block + (
                    o % g * g + i % g
                ) * size
                assert (
                    int.from_bytes(data[place : place + size], "little", signed=wide) == value[o, i, row, col]
                )


@pytest.mark.parametrize("g", GROUPS)
def test_entries(g):
    rng = np.random.default_rng(3)
    for c, count in itertools.product((1, 5, 8, 9), (1, 3)):
        pairs = [
            tuple(rng.integers(-(2**31), 2**31, c).astype(np.int32) for _ in range(2)) for _ in range(count)
        ]
        data = layout.pack_parameters(pairs, g)
        assert len(data) == -(-c // g) * count * 8 * g
        found = layout.unpack_parameters(data, c, count, g)
        for (master, velocity), (master_found, velocity_found) in zip(pairs, found, strict=True):
            assert np.array_equal(master, master_found) and np.array_equal(velocity, velocity_found)
        word = int.from_bytes(data[8 * (count - 1) * g :][:8], "little", signed=False)
        assert word == (int(pairs[-1][1][0]) & 0xFFFFFFFF) << 32 | int(pairs[-1][0][0]) & 0xFFFFFFFF
        sums = [rng.integers(-(2**62), 2**62, c) for _ in range(count)]
        data = layout.pack_sums(sums, g)
        assert len(data) == -(-c // g) * count * 8 * g
        assert all(
            np.array_equal(a, b) for a, b in zip(sums, layout.unpack_sums(data, c, count, g), strict=True)
        )


@pytest.mark.parametrize("g", GROUPS)
def test_reciprocals_logits_and_labels(g):
    rng = np.random.default_rng(4)
    for b, c in itertools.product((1, 3), (1, 5, 8, 9)):
        q, le = rng.integers(1 << 15, 1 << 16, (b, c)), rng.integers(-20, 60, (b, c))
        data = layout.pack_reciprocals(q, le, g)
        assert len(data) == b * -(-c // g) * 8 * g
        assert all(
            np.array_equal(x, y)
            for x, y in zip((q, le), layout.unpack_reciprocals(data, (b, c), g), strict=True)
        )
        logits = rng.integers(-(2**23), 2**23, (b, c)).astype(np.int32)
        data = layout.pack_logits(logits, g)
        assert len(data) == b * -(-c // g) * 4 * g and len(data) % (2 * g) == 0
        assert np.array_equal(layout.unpack_logits(data, (b, c), g), logits)
        labels = rng.integers(0, 1 << 16, b)
        data = layout.pack_labels(labels, g)
        assert [int.from_bytes(data[2 * g * n :][:2], "little") for n in range(b)] == list(labels)
        assert len(data) == 2 * g * b


def test_hyperparameters():
    assert layout.pack_hyper(200, -3, 230, 255) == bytes([200, 0xFD, 230, 255]) + bytes(12)
