"""A machine of 16-bit beats as it is packaged, behind AXI4 ports of 32 bits: every byte golden, every rule of AXI4 kept, every
error told as at its own ports."""

import functools
import re
import sys
import types

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import ErrorCode, offset, register
from gradloom.host.devices.device import MachineError
from gradloom.rtl.axi32 import PORT_BYTES, TOP32, emit_axi32
from gradloom.sim.rtl_device import DramModel, RtlDevice
from gradloom.sim.verilog import machine_verilog
from gradloom.verif.checkout import DOCS
from gradloom.verif.system_bench import make_case, open_runner, verify_step, verify_steps

NANO = PRESETS["nano"]
STALLS = DramModel(latency=7, write_latency=9, stall=0.3, seed=2)


@functools.cache
def packaged() -> dict[str, str]:
    return machine_verilog(NANO)[0] | emit_axi32(NANO)


def simulate(machine, **given) -> RtlDevice:
    assert machine is NANO
    device = RtlDevice(packaged(), top=TOP32, own_beat=NANO.beat_bytes, **given)
    assert device.beat_bytes == PORT_BYTES
    return device


@pytest.mark.parametrize("dram", [None, STALLS], ids=["quiet", "stalls"])
def test_steps_are_golden(dram):
    """Two steps, every tensor and the parameters compared."""
    verify_steps(make_case("tiny-residual", 2, 2), NANO, dram=dram, simulate=simulate)


def test_errors_pass():
    """A single byte that answers with an error, in either half of a word, read or written; then the steps are golden again."""
    case = make_case("tiny-branches", 2, 2)
    runner = open_runner(case, NANO, slots=1, simulate=simulate)
    try:
        for (layer, name), code in ((("input", "z"), ErrorCode.READ_RESPONSE), (("left", "z"), ErrorCode.WRITE_RESPONSE)):
            for place, decode_error in ((0, False), (3, True)):
                state = case.initial()
                runner.load(state)
                verify_step(case, runner, state, 0)
                first = runner.steady.memory[layer, name].address + place
                runner.device.fail(first, first + 1, decode_error=decode_error)
                with pytest.raises(MachineError):
                    runner.train(case.images[1:], case.labels[1:], case.hypers[1:])
                assert runner.device.csr_read(offset("ERROR")) & register("ERROR").field("code").mask == code
                runner.device.fail_nowhere()
        state = case.initial()
        runner.load(state)
        for step in range(2):
            verify_step(case, runner, state, step)
    finally:
        runner.close()


class Buffer:
    """What PYNQ's ``allocate`` gives, in the simulated memory."""

    physical_address = 3 << 20

    def __init__(self, machine: RtlDevice) -> None:
        self.machine, self.freed = machine, False

    def __setitem__(self, place: slice, data: np.ndarray) -> None:
        self.machine.write(self.physical_address + place.start, data.tobytes())

    def __getitem__(self, place: slice) -> np.ndarray:
        return np.frombuffer(self.machine.read(self.physical_address + place.start, place.stop - place.start), np.uint8)

    def freebuffer(self) -> None:
        self.freed = True


def test_the_device_of_the_page_on_zynq(monkeypatch):
    """The code in docs/packages.md trains a step, with the simulated machine behind what it takes from PYNQ."""
    size = 4 << 20
    with simulate(NANO, dram_bytes=Buffer.physical_address + size) as machine:
        buffer = Buffer(machine)
        registers = types.SimpleNamespace(read=machine.csr_read, write=machine.csr_write)
        overlay = types.SimpleNamespace(ip_dict={"gradloom_0": {"phys_addr": 0x43C00000, "addr_range": 1 << 16}})
        monkeypatch.setitem(sys.modules, "pynq", types.SimpleNamespace(
            Overlay=lambda bitstream: overlay, MMIO=lambda base, length: registers, allocate=lambda **given: buffer))
        page: dict = {}
        exec("\n".join(re.findall(r"^```python\n(.*?)^```", (DOCS / "packages.md").read_text(), re.MULTILINE | re.DOTALL)), page)
        case = make_case("tiny-relu", 1, 1)
        runner = page["open_runner"](case.network, case.batch, page["ZynqDevice"]("nano.bit", memory_bytes=size))
        state = case.initial()
        runner.load(state)
        verify_step(case, runner, state, 0)
        runner.close()
    assert buffer.freed
