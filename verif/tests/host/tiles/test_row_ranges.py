"""Row ranges of rows over the images of a batch."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.contracts.config import PRESETS
from gradloom.host.compilation.windows import Shape
from gradloom.host.tiles.conv_mapping import ConvMapping
from gradloom.host.tiles.phase_sweeps import forward_sweep
from gradloom.host.tiles.row_ranges import RowRange, row_ranges

ETA = PRESETS["eta"]


def sweep(y: int, *, kernel: int = 3, stride: int = 1) -> ConvMapping:
    return forward_sweep(Shape(1, 1, y, 8, -(-y // stride), -(-8 // stride), kernel, kernel, stride, kernel // 2), ETA)


def stored(row_range: RowRange) -> list[tuple[int, int]]:
    """(image, row) of every row on chip, in order."""
    return [(i, row) for part in row_range.inputs for i in range(*part.images) for row in range(*part.rows)]


@given(y=st.integers(1, 40), images=st.integers(1, 9), groups=st.integers(1, 30), kernel=st.sampled_from([1, 3, 7]),
       stride=st.sampled_from([1, 2]))
@settings(max_examples=200, deadline=None)
def test_spans_cover_the_batch_and_hold_what_they_read(y, images, groups, kernel, stride):
    shape = sweep(y, kernel=kernel, stride=stride)
    found = row_ranges(shape, ETA, (1, 1 + images), groups)
    assert found[0].first == shape.upi and found[-1].last == (1 + images) * shape.upi
    assert all(a.last == b.first for a, b in itertools.pairwise(found))
    assert all(some.units % ETA.wpus == 0 for some in found[:-1]) and all(some.groups(ETA) <= groups for some in found)
    for row_range in found:
        units = [divmod(unit, shape.upi) for unit in range(row_range.first, row_range.last)]
        assert [(i, row) for part in row_range.outputs for i in range(*part.images) for row in range(*part.rows)] == units
        rows = stored(row_range)
        assert len(rows) == row_range.rows == len(set(rows)) and rows == sorted(rows)
        firsts = [(some.images[0], some.rows[0]) for some in row_range.inputs]
        assert [some.skipped for some in row_range.inputs] == [rows.index(first) for first in firsts]
        for window, (image, unit) in itertools.product(range(len(shape.windows)), units):
            for r in range(1 if shape.k1 else shape.windows[window].rows):
                row = unit * shape.ystep + shape.y0[window] + r
                assert not 0 <= row < shape.rows or (image, row) in rows


@given(y=st.integers(2, 40), images=st.integers(1, 6), groups=st.integers(1, 14), kernel=st.sampled_from([3, 7]),
       stride=st.sampled_from([1, 2]), data=st.data())
@settings(max_examples=200, deadline=None)
def test_fields_lead_to_the_rows(y, images, groups, kernel, stride, data):
    """The machine's walk (docs/machine.md section 4): bank and address of every row that a window asks for."""
    shape = sweep(y, kernel=kernel, stride=stride)
    row_range = data.draw(st.sampled_from(row_ranges(shape, ETA, (0, images), groups)))
    window = data.draw(st.integers(0, len(shape.windows) - 1))
    f, n, rows = row_range.row_fields(ETA, window, 100), ETA.row_banks, stored(row_range)
    bank, addr, place = f["ib0"], f["ia0"], f["u0"]
    for unit in range(f["units"]):
        image, row = (row_range.first + unit) // shape.upi, f["y0"] + place * (1 + f["p2"])
        for r in range(shape.windows[window].rows):
            if 0 <= row + r < f["yin"]:
                b, a = (bank + r, addr) if bank + r < n else (bank + r - n, addr + f["xe"])
                assert ((a - 100) // f["xe"] * n + b, (a - 100) % f["xe"]) == (rows.index((image, row + r)), 0)
        last = place == f["upi"] - 1
        bank, addr, place = bank + f["cb" if last else "sb"], addr + f["ca" if last else "sa"] & 0xFFFF, 0 if last else place + 1
        if bank >= n:
            bank, addr = bank - n, addr + f["xe"]


def test_a_span_may_end_within_an_image():
    """512 rows of 16 images: 171 row groups, and not 11 for each image."""
    found = row_ranges(sweep(32), ETA, (0, 16), 11)
    assert sum(row_range.groups(ETA) for row_range in found) == 171 and len(found) == 16
    second = found[1]
    assert second.left_out == second.first % 32 > 0
    assert np.ptp([row_range.groups(ETA) for row_range in found]) <= 1


@pytest.mark.parametrize("groups", [1, 7, 11, 32])
def test_no_row_group_asks_one_bank_twice(groups):
    assert not any(row_range.conflicts(ETA) for row_range in row_ranges(sweep(32), ETA, (0, 16), groups))
