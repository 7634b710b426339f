"""Contracts of registers and addresses at the ports of the whole machine, where no single part can hold them."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import PERF_MAC_USE, REGISTERS, Access, Effect, offset, perf_index, register
from gradloom.host.devices.runner import ProgramRunner
from gradloom.models.golden import step as golden
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.system_bench import make_case, verify_step

NANO = PRESETS["nano"]
PATTERNS = (0xFFFFFFFF, 0, 0x55555555, 0xAAAAAAAA, 0x0F1E2D3C)


@pytest.fixture
def machine():
    with RtlDevice(NANO, dram_bytes=1 << 16) as device:
        yield device


def set_exponent(machine: RtlDevice, tid: int, value: int) -> None:
    machine.csr_write(offset("EXP_INDEX"), tid)
    machine.csr_write(offset("EXP_VALUE"), value & 0xFFFF)


def exponent(machine: RtlDevice, tid: int) -> int:
    machine.csr_write(offset("EXP_INDEX"), tid)
    value = machine.csr_read(offset("EXP_VALUE"))
    return value - (1 << 32) if value >> 31 else value


def test_registers_hold_every_bit(machine):
    """What the host may write while the machine is idle reads as it was written, each register for itself."""
    held = [entry for entry in REGISTERS if entry.access is Access.RW_IDLE or entry.name == "PERF_INDEX"]
    widths = {name: sum(bits.mask for bits in register(name).fields) for name in ("EXP_INDEX", "PERF_INDEX")}
    for pattern in PATTERNS:
        for number, entry in enumerate(held):
            machine.csr_write(entry.offset, pattern ^ number)
        for number, entry in enumerate(held):
            assert machine.csr_read(entry.offset) == (pattern ^ number) & widths.get(entry.name, 0xFFFFFFFF), entry.name


def test_writes_do_what_the_map_says(machine):
    """After a reset, and when ones were written: commands read 0, bits of the machine stay, and one is cleared by its one alone."""
    for entry in REGISTERS:
        assert machine.csr_read(entry.offset) == (entry.constant(NANO) if entry.constant else entry.reset), entry.name
    masks = {(name, effect): sum(bits.mask for bits in register(name).fields if bits.effect is effect)
             for name in ("CONTROL", "STATUS") for effect in Effect}
    machine.csr_write(offset("CONTROL"), 0xFFFFFFFF)
    machine.run(1000)
    assert machine.irq and machine.csr_read(offset("CONTROL")) == masks["CONTROL", Effect.HELD]
    ended, irq = machine.csr_read(offset("STATUS")), masks["STATUS", Effect.CLEARS_ONES]
    assert ended & irq == irq and ended & masks["STATUS", Effect.IGNORED]
    machine.csr_write(offset("STATUS"), 0xFFFFFFFF & ~irq)
    assert machine.csr_read(offset("STATUS")) == ended
    machine.csr_write(offset("STATUS"), 0xFFFFFFFF)
    assert machine.csr_read(offset("STATUS")) == ended & ~irq


def test_exponents_of_every_tensor(machine):
    """Each entry holds its own value; number 0 and those that the machine has not read 0 and take none."""
    values = {tid: (tid * 40503 & 0xFFFF) - (1 << 15) for tid in range(1, NANO.tensors)}
    for tid, value in values.items():
        set_exponent(machine, tid, value)
    for tid in (0, *(NANO.tensors + (1 << n) for n in range(11) if NANO.tensors + (1 << n) < 2048), 1024 + 5, 2047):
        set_exponent(machine, tid, 99)
        assert exponent(machine, tid) == 0, tid
    assert {tid: exponent(machine, tid) for tid in values} == values


def test_an_access_goes_on_to_the_next_exponent(machine):
    machine.csr_write(offset("EXP_INDEX"), 7)
    for value in (3, 4, 5):
        machine.csr_write(offset("EXP_VALUE"), value)
    assert machine.csr_read(offset("EXP_INDEX")) == 10
    machine.csr_write(offset("EXP_INDEX"), 7)
    assert [machine.csr_read(offset("EXP_VALUE")) for _ in range(3)] == [3, 4, 5]
    assert machine.csr_read(offset("EXP_INDEX")) == 10


@pytest.mark.parametrize("base", [1 << 12, (1 << 31) - (1 << 14), 0xFFF00000])
def test_memory_lies_anywhere(base):
    """A step's bytes do not depend on where its memory lies, up to the last MiB of the 32-bit space."""
    case = make_case("tiny-relu", 1, 2)
    runner = ProgramRunner(case.network, NANO, case.batch, 2, lambda size: RtlDevice(NANO, dram_bytes=size), base=base)
    try:
        state = case.initial()
        runner.load(state)
        for step in range(2):
            verify_step(case, runner, state, step)
        assert runner.evaluate(case.images[0], case.labels[0]).loss == golden.evaluate(
            case.network, state, case.images[0], case.labels[0]).loss
    finally:
        runner.close()


def test_counters_of_every_tag():
    """Tags of a table are told apart by all of their bits, and reading the high half goes on to the next tag."""
    case = make_case("tiny-relu", 1, 1)
    runner = ProgramRunner(case.network, NANO, case.batch, 1, lambda size: RtlDevice(NANO, dram_bytes=size))
    try:
        runner.load(case.initial())
        runner.train(case.images, case.labels, case.hypers)
        device = runner.device
        used = {8 * number + phase for number in range(1 + len(case.network.layers)) for phase in range(8)}
        total = 0
        device.csr_write(offset("PERF_INDEX"), perf_index(PERF_MAC_USE, 0))
        for tag in range(512):
            assert device.csr_read(offset("PERF_INDEX")) == perf_index(PERF_MAC_USE, tag)
            count = device.csr_read(offset("PERF_LOW")) | device.csr_read(offset("PERF_HIGH")) << 32
            assert tag in used or count == 0, tag
            total += count
        assert total == device.csr_read(offset("MAC_USE_LOW")) > 0
    finally:
        runner.close()
