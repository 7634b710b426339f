"""Devices that multiply, without PyTorch: the twin, a simulated machine, and what neither takes."""

import numpy as np
import pytest

from gradloom.contracts.matrix_config import load_machine
from gradloom.host.files import UserError
from gradloom.host.offload.matrix_device import MachineProducts, RtlDevice, TwinDevice, open_matrix_device
from gradloom.models.matrix.gemm import product
from gradloom.sim import rtl_device


def codes(*shape):
    return np.random.default_rng(shape).integers(-128, 128, shape).astype(np.int8)


def test_a_machine_gives_the_twins_sums_and_counts_what_it_took():
    device = open_matrix_device("rtl", "fox-4")
    assert isinstance(device, RtlDevice)
    before, twin = device.cycles, TwinDevice()
    try:
        for m, k, n in ((3, 5, 7), (40, 1, 2), (1, 70, 33)):
            assert np.array_equal(device.product(codes(m, k), codes(k, n)), twin.product(codes(m, k), codes(k, n)))
        assert device.cycles - before > device.steps > 0 and device.seconds > 0 and twin.seconds > 0
        with pytest.raises(UserError, match=r"^sums of 131,072 terms do not fit in 32 bits: at most 131,071 do$"):
            device.product(codes(1, 131_072), codes(131_072, 1))
    finally:
        device.close()


def test_a_product_larger_than_the_memory_is_refused_before_anything_moves():
    config = load_machine("fox-4")
    with rtl_device.RtlDevice(config, dram_bytes=1 << 16) as simulated:
        device = MachineProducts(config, simulated, 1 << 16)
        moved = simulated.memory_accesses
        told = r"^a product of \(300, 100\) and \(100, 200\) needs [\d,]+ bytes of the machine's memory, which has 65,536: take"
        with pytest.raises(UserError, match=told):
            device.product(codes(300, 100), codes(100, 200))
        assert simulated.memory_accesses == moved
        assert np.array_equal(device.product(codes(4, 5), codes(5, 6)), product(codes(4, 5), codes(5, 6)))


@pytest.mark.parametrize(("name", "config", "told"), [
    ("fpga", None, "there is no device 'fpga' that multiplies for PyTorch: give 'twin', 'rtl', or an object"),
    ("twin", "fox-4", "the software twin is no machine and has no configuration: leave config out"),
    ("rtl", "nano", "nano trains networks as a whole and has no products of its own: give a matrix machine, such as fox-8"),
    ("rtl", "fox-3", "rows must be a power of two, not 3")])
def test_what_is_no_device_is_told(name, config, told):
    with pytest.raises(UserError, match=told):
        open_matrix_device(name, config)


def test_a_device_of_another_configuration_is_told():
    told = r"^the device was built for configuration digest 0x[0-9a-f]{8}, fox-2 has 0x[0-9a-f]{8}: build it anew$"
    with rtl_device.RtlDevice(load_machine("fox-4"), dram_bytes=1 << 16) as simulated, pytest.raises(UserError, match=told):
        MachineProducts(load_machine("fox-2"), simulated, 1 << 16)
