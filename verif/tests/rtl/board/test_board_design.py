"""A board's design: every port of the machine is joined, whatever its channels, and to what."""

import re

import pytest
from amaranth.back import verilog

from gradloom.contracts.config import PRESETS
from gradloom.rtl.accelerator import Accelerator
from gradloom.rtl.board.board_design import MACHINE, BoardDesign, machine_members
from gradloom.rtl.verilog import TOP
from gradloom.verif.board.sdram_bench import CLOCK, small_part


@pytest.mark.parametrize("preset", ["nano", "small", "eta"])
def test_every_port_is_joined(preset):
    """An instance may leave ports out without a word from any tool, so their names are compared with the machine's."""
    members = Accelerator(PRESETS[preset]).signature.members
    assert {name: member.flow for name, member in members.items() if name != "irq"} == {
        name: member.flow for name, member in machine_members(PRESETS[preset]).items()}
    assert MACHINE == TOP


@pytest.mark.parametrize(("memory", "uart"), [("sdram", False), ("sdram", True), ("block", True)])
def test_ports(memory, uart):
    """Both kinds of cable and of memory; the machine is an instance with all of its ports."""
    config = PRESETS["small"]
    part = small_part() if memory == "sdram" else 1 << 12
    text = verilog.convert(BoardDesign(config, part, clock=CLOCK, baud=CLOCK // 8, uart=uart), name="board", emit_src=False)
    head = re.search(r"^module board\(([^)]*)\)", text, re.MULTILINE)
    assert head is not None
    ports = set(head[1].replace(" ", "").split(","))
    line = {"rx_pin", "tx_pin"} if uart else {f"{way}__{name}" for way in ("rx", "tx") for name in ("payload", "ready", "valid")}
    pins = {"cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq_o", "dq_oe", "dq_i"} if memory == "sdram" else set()
    assert ports == {"clk", "rst", "irq", *line, *pins}
    instance = re.search(rf"^  {MACHINE} machine \(\n(.*?)\n  \);", text, re.MULTILINE | re.DOTALL)
    assert instance is not None
    assert set(re.findall(r"^    \.(\w+)\(", instance[1], re.MULTILINE)) == {"clk", "rst", "irq", *machine_members(config)}
