"""DarkFPGA's figures from its equations: table 2's network on the tiles of figure 8, table 4's slices, its bandwidth."""

import pytest

from gradloom.systems.darkfpga import (
    DEVICE_BANDWIDTH,
    SPACE,
    Tiles,
    auxiliary_bandwidth,
    auxiliary_passes,
    auxiliary_seconds,
    conv_bandwidth,
    gemm_seconds,
    peak_bandwidth,
    resources,
    space,
    step,
)
from gradloom.systems.networks import VGG_LIKE
from gradloom.systems.vocabulary import step_macs

CHOSEN = Tiles(128, 32)
FIGURE_8 = {(128, 32): (332, 1421), (128, 16): (621, 761), (64, 64): (377, 1251), (64, 32): (664, 711), (64, 16): (1241, 380),
            (32, 32): (1329, 355), (32, 16): (2483, 190), (16, 16): (4964, 95)}
"""Milliseconds and GOPS of a step by tiles; published are bars without numbers, but for 331 and 1417 of (128, 32)."""


@pytest.mark.parametrize("tiles", FIGURE_8)
def test_the_sweep_of_figure_8(tiles):
    found = step(VGG_LIKE, Tiles(*tiles))
    milliseconds, gops = FIGURE_8[tiles]
    assert found.seconds * 1e3 == pytest.approx(milliseconds, rel=0.002)
    assert found.gops == pytest.approx(gops, abs=1)


def test_the_published_step():
    found = step(VGG_LIKE, CHOSEN)
    assert found.seconds * 1e3 == pytest.approx(331, rel=0.005)
    assert found.gops == pytest.approx(1417, rel=0.005)
    assert found.images_per_second == pytest.approx(386.7, rel=0.005)


def test_ratios_of_table_3():
    """Over 200 times the CPU's speed, 10 times TensorFlow's on it, and 1936 times its energy efficiency."""
    seconds = step(VGG_LIKE, CHOSEN).seconds
    assert round(66.439 / seconds) == 200 and round(3.270 / seconds, 1) == 9.8
    assert 8712 / (13.5 * seconds) == pytest.approx(1936, rel=0.005)


def test_gemm_and_auxiliary_passes():
    gemm = sum(gemm_seconds(shape, phase, CHOSEN, 128) for place, shape in enumerate(VGG_LIKE.layers)
               for phase in ("FP", "BP", "WG") if place or phase != "BP")
    assert gemm * 1e3 == pytest.approx(288.3, abs=0.1)
    passes = {name: round(1e3 * auxiliary_seconds(elements, CHOSEN, 128), 1)
              for name, elements in auxiliary_passes(VGG_LIKE).items()}
    assert passes == {"im2col": 25.3, "col2im": 12.5, "pools": 2.3, "quantise": 1.4, "ReLU": 2.3}


def test_tiles_fill_up_with_zeros():
    shape = VGG_LIKE.layers[0]
    assert gemm_seconds(shape, "FP", CHOSEN, 128) * CHOSEN.macs * 200e6 == 128 * 32 * 128 * 1024
    assert gemm_seconds(shape, "FP", CHOSEN, 100) == gemm_seconds(shape, "FP", CHOSEN, 128)


def test_slices_of_table_4_and_of_what_does_not_fit():
    assert resources(CHOSEN).dsps == 4202
    assert resources(Tiles(128, 64)).dsps == 8298 > 6840


def test_the_chosen_tiles_need_more_bandwidth_than_there_is():
    """147 GB/s with 32-bit results, from the first layer, whose sums have 27 terms; 56 where FP quantises them on their way."""
    first = VGG_LIKE.layers[0]
    assert round(peak_bandwidth(VGG_LIKE.layers, CHOSEN) / 1e9, 1) == 147.2
    assert peak_bandwidth(VGG_LIKE.layers, CHOSEN) == conv_bandwidth(first, CHOSEN) > DEVICE_BANDWIDTH
    assert round(conv_bandwidth(first, CHOSEN, result_bytes=1) / 1e9, 1) == 56.1
    assert auxiliary_bandwidth(CHOSEN) / 1e9 == 102.4


def test_the_best_tiles_that_keep_the_bandwidth():
    kept = [tiles for tiles in SPACE if peak_bandwidth(VGG_LIKE.layers, tiles) <= DEVICE_BANDWIDTH]
    assert max(kept, key=lambda tiles: step(VGG_LIKE, tiles).gops) == Tiles(64, 16)


def test_the_space_of_a_batch():
    assert space(128) == SPACE
    assert space(16) == (Tiles(16, 16),) == space(1)
    assert space(64)[0] == Tiles(64, 64)


def test_operations_of_a_step():
    """1421 GOPS count a multiply-accumulate as two and give the first layer no BP."""
    assert round(2 * step_macs(VGG_LIKE.layers, 128) / 1e9, 1) == 472.1


def test_a_phase_is_one_of_three():
    with pytest.raises(ValueError, match="phase must be one of FP, BP, WG, not 'WU'"):
        gemm_seconds(VGG_LIKE.layers[0], "WU", CHOSEN, 128)
