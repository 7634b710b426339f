"""The table of cycles of a machine that lacks counters: the registers that it reads, and what several sessions add up to."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import offset
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.models.network import load_network

BUSY = {"LOAD": 5, "CCORE": 3 << 32 | 7, "ACORE": 0, "STORE": 9}


class Counting(SoftwareDevice):
    """Registers of totals, as a machine has them, and a list of what is read."""

    def __init__(self, config, size):
        super().__init__(config, size)
        self.read_offsets = []
        for name, value in BUSY.items():
            self._registers |= {offset(f"BUSY_{name}_LOW"): value & 0xFFFFFFFF, offset(f"BUSY_{name}_HIGH"): value >> 32}

    def csr_read(self, offset_):
        self.read_offsets.append(offset_)
        return super().csr_read(offset_)


@pytest.mark.parametrize("counters", ["totals", "none"])
def test_cycles_of_a_machine_with_fewer_counters(counters):
    config = dataclasses.replace(PRESETS["nano"], counters=counters)
    devices = []
    runner = ProgramRunner(load_network("verif/tests/networks/tiny-relu.toml"), config, 1, 1,
                           lambda size: devices.append(Counting(config, size)) or devices[-1])
    runner.cycles = 1000
    devices[0].read_offsets.clear()
    first = runner.cycle_table(None)
    assert first["total"] == 1000 and first["by_layer_phase"] == []
    assert first["engines"] == ({name.lower(): busy for name, busy in BUSY.items()} if counters == "totals" else {})
    assert offset("PERF_LOW") not in devices[0].read_offsets and bool(devices[0].read_offsets) == (counters == "totals")
    second = runner.cycle_table(first)
    assert second["total"] == 2000 and second["engines"] == {name: 2 * busy for name, busy in first["engines"].items()}
