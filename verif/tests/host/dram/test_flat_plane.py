"""Planes whose beats are planes of 1 x 2: the same bytes, and which of them conflict with others."""

import numpy as np
import pytest

from gradloom.host.dram import layout
from gradloom.host.dram.flat_plane import FlatPlane
from gradloom.host.dram.memory_map import Region

PLANES = [(1, 2), (2, 2), (3, 2), (4, 4), (3, 5), (5, 1), (1, 7)]


@pytest.mark.parametrize("g", [1, 2, 8])
@pytest.mark.parametrize(("y", "x"), PLANES)
def test_bytes_are_those_of_planes_of_their_own(g, y, x):
    flat, channels, outputs, wide = FlatPlane(y, x), 2 * g + 1, g + 1, x + x % 2
    groups = 3 * flat.beats
    codes = np.random.default_rng(1).integers(0, 256, (2, channels, y, x)).astype(np.uint8)
    padded = np.zeros((2, 3 * g, y, wide), np.uint8)
    padded[:, :channels, :, :x] = codes
    planes = padded.reshape(2, 3, g, flat.beats, 2).transpose(0, 1, 3, 2, 4).reshape(2, groups * g, 1, 2)
    assert layout.pack_feature(codes, g) == layout.pack_feature(planes, g)
    weights = np.random.default_rng(2).integers(0, 256, (outputs, channels, y, x)).astype(np.uint8)
    whole = np.zeros((outputs, 3 * g, y, wide), np.uint8)
    whole[:, :channels, :, :x] = weights
    kernels = whole.reshape(outputs, 3, g, flat.beats, 2).transpose(0, 1, 3, 2, 4).reshape(outputs, groups * g, 1, 2)
    assert layout.pack_blocks(weights, g, kx=wide) == layout.pack_blocks(kernels, g, kx=2)


@pytest.mark.parametrize(("y", "x"), PLANES)
def test_beats_of_a_plane(y, x):
    flat, index = FlatPlane(y, x), np.arange(y * x).reshape(y, x)
    assert flat.beats == y * -(-x // 2)
    for beat in range(flat.beats):
        row, column = flat.place(beat)
        assert index[row, column] == flat.index(beat)
        assert column + flat.columns(beat) == min(x, column + 2)
        if beat % flat.run:
            assert flat.index(beat) == flat.index(beat - 1) + 2, "indices of a run follow each other"
    assert flat.beats % flat.run == 0


def test_parts_of_a_tensor():
    """A plane of 3 x 5 has nine beats, three a row."""
    flat = FlatPlane(3, 5)
    z = Region("a", "z", "feature", 0, 2, 4, 9 * 16, (2, 32, 3, 5))
    assert z.part(((0, 2), (1, 2))) == ((0, 2), (1, 2)), "as it is"
    assert z.flattened(None) is z
    view = z.flattened(flat)
    assert (view.inner, view.unit, view.outer_bytes, view.space) == (36, 16, z.outer_bytes, z.space)
    assert view.at(1, 9 + 4) == z.at(1, 1) + 4 * 16
    assert view.rows(0, 1) == (0, 1)
    assert view.part(((0, 2), (13, 14))) == ((0, 2), (1, 2), (1, 2)), "one beat: its row"
    assert view.part(((0, 2), (10, 13))) == ((0, 2), (1, 2), (0, 2))
    assert view.part(((0, 2), (8, 19))) == ((0, 2), (0, 3)), "of several channel groups all of them"
    w = Region("b", "w", "blocks", 0, 3, 4, 18 * 64, (24, 32, 3, 5)).flattened(flat)
    assert (w.inner, w.unit) == (36, 128)
    assert w.part(((0, 1), (9, 12))) == ((0, 1), (1, 2))
    assert w.part(((0, 1), (10, 12), (1, 4))) == ((0, 1), (1, 2), (3, 6)), "blocks from the second one of beat 1 on"
    assert w.part(((0, 1), (8, 10), (0, 3))) == ((0, 1), (0, 2))
