"""Barista's figures: table I with one fitted rate, equations 6 and 7, the shape of figure 3, and what "+33 %" is."""

import pytest

from gradloom.systems.barista import (
    CPU_RATES,
    Gemm,
    Mesh,
    block_rams,
    buffer_bits,
    compute_cycles,
    dsp_blocks,
    efficiency,
    gemm_times,
    gemms,
    host_bits,
    mean_efficiency,
    memory_bits,
    saved_energy,
    step,
)
from gradloom.systems.networks import ALEXNET_CIFAR, RESNET20

IMPLEMENTED = Mesh(16, 16, 64)
TABLE_I = [(Mesh(32, 32, 74), 0.59, 0.565), (Mesh(32, 32, 64), 0.29, 0.286), (Mesh(36, 36, 64), 0.078, 0.078),
           (Mesh(32, 32, 64), 0.076, 0.077), (Mesh(32, 32, 64), 0.073, 0.077)]
"""Mesh of each of AlexNet's layers, GOP/s/W published and computed."""


@pytest.mark.parametrize("place", range(5))
def test_table_i_with_one_fitted_rate(place):
    mesh, published, computed = TABLE_I[place]
    found = efficiency(gemms(ALEXNET_CIFAR.layers[place], first=not place), mesh)
    assert round(found, 3) == computed
    assert found == pytest.approx(published, rel=0.06)


def test_equation_2_by_hand():
    """Two tiles of C, three of P: 2 (3 (64 + 14) + 121)."""
    assert compute_cycles(Gemm(8, 192, 16), Mesh(8, 8, 64)) == 2 * (3 * (64 + 14) + 121)


def test_data_of_equations_1_and_4():
    gemm, mesh = Gemm(8, 192, 16), Mesh(8, 8, 64)
    assert memory_bits(gemm, mesh) == 32 * 2 * (16 * 192 + 64)
    assert host_bits(gemm, mesh) == 32 * (8 * 192 + 16 * 192 + 8 * 16)
    times = gemm_times(gemm, mesh)
    assert times.overall == times.compute + times.memory + times.host > times.kernel


def test_slices_and_block_rams_of_the_implemented_mesh():
    """18.8 % of the DSP slices and 14.1 % of the block RAM are published; equation 7 gives 0.2 %."""
    assert dsp_blocks(IMPLEMENTED) == 1280 and round(100 * 1280 / 6840, 1) == 18.7
    assert round(100 * buffer_bits(IMPLEMENTED) / 75.9e6, 2) == 0.21
    assert block_rams(IMPLEMENTED) == 288 and round(100 * 288 / 2160, 1) == 13.3


def test_the_shape_of_figure_3():
    meshes = [Mesh(size, size, 4 * size) for size in (4, 8, 16)] + [Mesh(36, 36, 72)] + [
        Mesh(size, size, 4 * size) for size in (64, 128, 256)]
    found = [round(mean_efficiency(RESNET20.layers, mesh, host=False), 2) for mesh in meshes]
    assert found == [0.18, 0.50, 1.17, 2.13, 2.89, 2.18, 1.51]


def test_a_third_more_is_a_mean_of_rates():
    """By the energy of all layers it is a twentieth."""
    after = (0.59, 0.29, *CPU_RATES[2:])
    assert round(sum(after) / 5, 2) == 0.24 and round(sum(CPU_RATES) / 5, 2) == 0.18 and round(0.24 / 0.18, 2) == 1.33
    assert round(saved_energy([shape.macs for shape in ALEXNET_CIFAR.layers], CPU_RATES, after), 2) == 0.05


def test_a_step_is_the_products_of_its_layers():
    found = step(ALEXNET_CIFAR, Mesh(32, 32, 64), 2)
    seconds = 2 * sum(gemm_times(gemm, Mesh(32, 32, 64)).overall for place, shape in enumerate(ALEXNET_CIFAR.layers)
                      for gemm in gemms(shape, first=not place))
    assert found.seconds == pytest.approx(seconds, rel=1e-12)
    assert step(ALEXNET_CIFAR, Mesh(32, 32, 64), 2, host=False).seconds < found.seconds
