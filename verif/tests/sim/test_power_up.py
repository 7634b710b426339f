"""Registers and memories wake up at random when asked, tables keep their contents, and the reset brings what has one."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import offset
from gradloom.sim.power_up import without_initial_values
from gradloom.sim.rtl_device import RtlDevice
from gradloom.sim.verilog import machine_verilog

MODULE = """module part(clk);
  reg [3:0] count = 4'h3;
  reg \\odd$1  = 1'h0;
  reg plain;
  reg \\$auto$verilog_backend.cc:2355:dump_module$1  = 0;
  reg [7:0] ram [1:0];
  initial begin
    ram[0] = 8'h00;
    ram[1] = 8'h00;
  end
  reg [7:0] \\ta$ble  [1:0];
  initial begin
    \\ta$ble [0] = 8'h00;
    \\ta$ble [1] = 8'h10;
  end
endmodule
"""


def test_what_is_taken_away():
    text = without_initial_values(MODULE)
    assert "reg [3:0] count;" in text and "reg \\odd$1 ;" in text and "reg plain;" in text
    assert "dump_module$1  = 0;" in text, "what only wakes Verilog's processes stays"
    assert "ram[0] = " not in text and "\\ta$ble [1] = 8'h10;" in text and "\\ta$ble [0] = 8'h00;" in text


def test_only_tables_of_a_machine_keep_their_contents():
    text = without_initial_values("".join(machine_verilog(PRESETS["nano"])[0].values()))
    kept = {block.split("[")[0].strip() for block in text.split("  initial begin\n")[1:] if "] = " in block.split("\n")[0]}
    assert kept == {"\\program", "\\table"}, "the microprograms, and the exponentials of the softmax"


def test_seeds_wake_different_machines():
    """Exponents have no reset: a host writes them before a machine's first step."""
    def exponents(power_up: int) -> list[int]:
        with RtlDevice(PRESETS["nano"], power_up=power_up) as device:
            found = []
            for tensor in range(8):
                device.csr_write(offset("EXP_INDEX"), tensor)
                found.append(device.csr_read(offset("EXP_VALUE")))
            return found
    assert exponents(0) == [0] * 8
    assert exponents(1) == exponents(1) != exponents(2) != exponents(0) != exponents(1)


@pytest.mark.parametrize("seed", [-1, 1 << 31])
def test_seeds_out_of_range(seed):
    with pytest.raises(ValueError, match=r"^power_up must be a seed below 2\^31, or 0, not "):
        RtlDevice(PRESETS["nano"], power_up=seed)
