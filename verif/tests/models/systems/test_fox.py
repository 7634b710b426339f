"""Fox's figures: all six configurations of tables III and IV, memory, roofline, and the speed-ups of table VI's times."""

import pytest

from gradloom.systems.fox import (
    PLATFORMS,
    TABLE_VI,
    Core,
    gemm_cycles,
    holds_a,
    memory_bound,
    needed_a,
    peak_macs,
    resources,
    step,
    swa_copy_bytes,
)
from gradloom.systems.networks import VGG16_CIFAR
from gradloom.systems.vocabulary import ConvShape, Workload

DSPS = 4272
"""Slices of the ZCU111, each of two 8-bit multiply-accumulates at 550 MHz (section III-B4)."""
TABLES_III_AND_IV = [
    ("zcu111", Core(16, whole=False), 240, 2128, 149, 269), ("zcu111", Core(16), 336, 3040, 277, 269),
    ("zcu111", Core(32, whole=False), 480, 4160, 533, 1037), ("zcu111", Core(32), 672, 6080, 1045, 1037),
    ("pynq-z1", Core(8, whole=False), 120, 1064, 45, 81), ("pynq-z1", Core(8), 168, 1520, 77, 81)]
"""Board, core, rows and columns of A_max (240 x 2198 is printed in the first one), block RAMs, DSP slices."""


@pytest.mark.parametrize(("board", "core", "rows", "columns", "brams", "dsps"), TABLES_III_AND_IV)
def test_tables_iii_and_iv(board, core, rows, columns, brams, dsps):
    found = resources(core, PLATFORMS[board])
    assert (found.brams, found.dsps) == (brams, dsps)
    assert holds_a(core, rows, columns)


def test_the_printed_a_max_of_the_first_row_does_not_fit():
    assert not holds_a(Core(16, whole=False), 240, 2198)


def test_memory_of_vgg16():
    """The largest A 2.36 MB (2.35 printed), the copy of stochastic weight averaging 61 MB; of table I's layers alone 60.94."""
    assert max(needed_a(shape) for shape in VGG16_CIFAR.layers) == 2_359_296
    assert round(swa_copy_bytes(VGG16_CIFAR) / 1e6) == 61
    table_i = Workload(name="table-i", layers=VGG16_CIFAR.layers[:-1])
    assert round(swa_copy_bytes(table_i) / 1e6, 2) == 60.94


def test_the_roofline_of_figure_5():
    zcu111 = PLATFORMS["zcu111"]
    assert memory_bound(512 * 9, zcu111) == 46.08e12
    assert memory_bound(64, zcu111) == 640e9
    assert peak_macs(Core(32), 200e6) == pytest.approx(205e9, rel=0.002)
    assert round(DSPS * 2 * 550e6 / 1e12, 2) == 4.70
    with pytest.raises(ValueError, match="no bandwidth for pynq-z1"):
        memory_bound(64, PLATFORMS["pynq-z1"])


def test_speed_ups_of_table_vi():
    found = {key: before / after for key, (before, after) in TABLE_VI.items()}
    assert [round(value, 2) for value in found.values()] == [17.62, 5.53, 4.33]
    gpu_iterations_a_second = 16
    assert round(gpu_iterations_a_second * 38.6) == 618


LOGREG = Workload(name="logreg", layers=(ConvShape(name="fc", outputs=10, inputs=784),))


@pytest.mark.parametrize(("board", "model", "batch"), TABLE_VI)
def test_the_core_is_a_small_part_of_table_vi(board, model, batch):
    """At most 9 %: the times are those of software, and no equation of the core gives them."""
    core = Core(8 if board == "pynq-z1" else 32)
    busy = step(VGG16_CIFAR if model == "vgg16" else LOGREG, core, PLATFORMS[board], batch).seconds
    assert busy / TABLE_VI[board, model, batch][1] < 0.09


def test_cycles_of_a_product():
    assert gemm_cycles(64, 64, 100, Core(32)) == 64 * 64 / 8 + 4 * 100
    assert gemm_cycles(33, 1, 10, Core(32)) == 33 / 8 + 2 * 10


def test_layers_that_do_not_fit_are_named():
    notes = step(VGG16_CIFAR, Core(8), PLATFORMS["pynq-z1"], 1).notes
    assert notes[1].startswith("A of conv3_1, conv3_2, conv3_3, conv4_1") and notes[1].endswith("would go in parts")
    assert len(step(VGG16_CIFAR, Core(32), PLATFORMS["zcu111"], 1).notes) == 1
