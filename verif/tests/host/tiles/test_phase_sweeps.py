"""The sweep of a layer whose kernel's rows are channels: its windows on the array."""

import numpy as np
import pytest

from gradloom.contracts.config import PE_TAPS, PRESETS
from gradloom.host.compilation.windows import Shape
from gradloom.host.tiles.phase_sweeps import stacked_sweep

ETA = PRESETS["eta"]


def stem(kx: int, stride: int, across: int = 1, columns: int = 16) -> Shape:
    """A first layer of two channel groups, of whose rows every ``stride`` hold the columns of one in turns."""
    return Shape(2, 1, 9 * stride, columns + kx, 9, columns, 1, kx, stride, 0, across=across)


@pytest.mark.parametrize(
    ("kx", "stride", "columns"),
    [
        (7, 2, [(0, 0), (2, 4, 6), (1, 3, 5)]),
        (7, 1, [(0, 0), (1, 2, 3), (4, 5, 6)]),
        (8, 2, [(0, 0), (1, 1), (2, 4, 6), (3, 5, 7)]),
        (9, 2, [(1, 1), (0, 2, 4), (6, 8), (3, 5, 7)]),
        (5, 2, [(0, 2, 4), (1, 3)]),
        (3, 1, [(0, 1, 2)]),
        (1, 1, [(0, 0)]),
    ],
)
def test_columns_of_windows(kx, stride, columns):
    """Of the kernel, by taps. What threes leave over is taken for two positions at a time, first."""
    sweep = stacked_sweep(stem(kx, stride), ETA)
    assert [sweep.columns[w.col : w.col + w.cols] for w in sweep.windows] == columns
    assert [w.pair for w in sweep.windows] == [taps[0] == taps[-1] for taps in columns]
    assert len(sweep.columns) == sum(map(len, columns)), "each has its place in the weight buffer"


def test_positions_whose_columns_are_not_neighbours():
    sweep = stacked_sweep(stem(7, 1, across=2), ETA)
    assert [(w.col, w.cols, w.pair) for w in sweep.windows] == [(0, 3, False), (3, 3, False), (6, 1, False)]


@pytest.mark.parametrize("columns", [16, 17])
@pytest.mark.parametrize(("kx", "stride"), [(7, 2), (7, 1), (9, 2)])
def test_products_are_those_of_the_kernel(kx, stride, columns):
    """What the taps of all windows see, by the machine's rules (docs/machine.md, section 4), adds up to the convolution."""
    shape = stem(kx, stride, columns=columns)
    sweep, rng = stacked_sweep(shape, ETA), np.random.default_rng(kx)
    rows, weights = rng.integers(-9, 9, (shape.yi, 2 * sweep.xe)), rng.integers(-9, 9, kx)
    found, wanted = np.zeros((9, columns), np.int64), np.zeros((9, columns), np.int64)
    for y, x in np.ndindex(wanted.shape):
        wanted[y, x] = sum(int(weights[k]) * rows[y * stride + k % stride, x + k // stride] for k in range(kx))
    for number, window in enumerate(sweep.windows):
        f = sweep.row_fields(ETA, number, 0, 1)
        taps = [int(weights[k]) for k in sweep.columns[window.col : window.col + window.cols]] + [0] * (PE_TAPS - window.cols)
        for y, j in np.ndindex(9, f["cols"]):
            row = rows[y * sweep.ystep + f["y0"]]
            if window.pair:
                assert f["s2"] and not f["par0"] and not f["preload"]
                for tap, x in enumerate((2 * j, 2 * j + 1)):
                    if x < columns:
                        found[y, x] += taps[tap] * row[2 * (f["e0"] + j) + tap]
            else:
                start = 2 * f["e0"] + f["par0"] + j
                found[y, j] += sum(tap * row[start + k] for k, tap in enumerate(taps) if tap)
    assert np.array_equal(found, wanted)


def test_cycles_of_a_step():
    """112 rows are 38 row groups; of three windows one takes half of the positions."""
    sweep = stacked_sweep(Shape(3, 8, 224, 115, 112, 112, 1, 7, 2, 0, across=1), ETA)
    assert sweep.step_cycles(ETA, 1) == 38 * (56 + 112 + 112)
    assert [sweep.positions(n) for n in range(3)] == [56, 112, 112]
