"""Sources of a board, and what the command says to wrong arguments."""

import json

import pytest

from gradloom.boards import build
from gradloom.boards.tools import BuildError
from gradloom.rtl.config import PRESETS

NANO = PRESETS["nano"]


@pytest.fixture
def no_machine(monkeypatch):
    """The machine's own Verilog is the business of other tests, and takes a minute."""
    monkeypatch.setattr(build, "emit_verilog", lambda config: {"gradloom.v": f"// {config.name} {config.digest()}\n"})


def written(folder, config=NANO, board="ulx3s-85f", clock=25_000_000, memory_bytes=1 << 16):
    number = build.write_sources(folder, board, config, memory_bytes=memory_bytes, clock=clock)
    return number, {path.name: path.read_bytes() for path in folder.iterdir()}


def test_sources(no_machine, tmp_path):
    """The same arguments give the same bytes; a slower clock is made by a PLL and gives another build number."""
    number, files = written(tmp_path / "a")
    assert (number, files) == written(tmp_path / "b")
    assert sorted(files) == ["gradloom.v", "top.il", "top.lpf", "top.ys"]
    pins = files["top.lpf"].decode()
    assert 'LOCATE COMP "clk25_0__io" SITE "G2"' in pins and 'LOCATE COMP "uart_0__rx__io" SITE "M1"' in pins
    assert 'FREQUENCY PORT "clk25_0__io" 25000000.0 HZ' in pins
    slow, slow_files = written(tmp_path / "slow", clock=12_500_000)
    assert slow != number and b"EHXPLLL" in slow_files["top.il"] and b"EHXPLLL" not in files["top.il"]


def test_build_number():
    """Whatever differs, the number does."""
    arguments = ("module gradloom", "ulx3s-85f", 1 << 16, 25_000_000)
    others = ("module gradloom()", "ulx3s-45f", 1 << 15, 12_500_000)
    changed = [(*arguments[:n], other, *arguments[n + 1:]) for n, other in enumerate(others)]
    assert len({build.build_number(*each) for each in (arguments, arguments, *changed)}) == 5


@pytest.mark.parametrize(("arguments", "status", "message"), [
    (["--config", "none.toml"], 2, "there is no configuration 'none.toml'"),
    (["--config", "nano", "--memory", "sdram", "--board", "ulx3s-45f"], 2, "there is no board 'ulx3s-45f'"),
    (["--config", "nano", "--memory", "100"], 2, "memory_bytes must be a power of two"),
    (["--config", "nano", "--clock", "13"], 2, "a clock of 13000000 Hz cannot be made of one of 25000000 Hz")])
def test_wrong_arguments(no_machine, tmp_path, capsys, arguments, status, message):
    assert build.main([*arguments, "--out", str(tmp_path / "out")]) == status
    assert message in capsys.readouterr().err


@pytest.fixture
def tools(monkeypatch):
    """Tools that write what the true ones do, for a clock that reaches 21.5 MHz."""
    def run(stage, command, folder, wanted, report):
        commands.append(command)
        if stage == "placement":
            (folder / "placed.json").write_text('{"modules": {"top": {"settings": {"seed": "7"}}}}')
        (folder / "top.json").write_text('{"modules": {"top": {"cells": {}}}}')
        (folder / "nextpnr.json").write_text(
            '{"utilization": {}, "fmax": {"clk": {"achieved": 21.5, "constraint": 25}}, "critical_paths": []}')
        (folder / "top.bit").write_bytes(b"bits")
        report(f"{stage}: runs")
        return 1.0

    def write(folder, board, config, *, memory_bytes, clock):
        for name in ("gradloom.v", "top.il", "top.lpf"):
            (folder / name).write_bytes(b"")

    commands: list[list[str]] = []
    monkeypatch.setattr(build, "write_sources", write)
    monkeypatch.setattr(build, "run_tool", run)
    monkeypatch.setattr(build, "tool_path", str)
    monkeypatch.setattr(build, "tool_version", str)
    return commands


def test_clock_not_reached(tools, tmp_path):
    """No bitstream is left that does not work; the report is."""
    with pytest.raises(BuildError, match=r"the clock of 25 MHz is not reached, 21\.50 MHz is: take a slower one with --clock"):
        build.build(tmp_path, "ulx3s-85f", NANO, report=lambda line: None)
    assert (tmp_path / "report.txt").exists() and not (tmp_path / "top.bit").exists()


def test_build(tools, tmp_path, capsys):
    """With a clock that is reached: lines of every stage, the report, exit status 0."""
    assert build.main(["--config", "nano", "--clock", "12.5", "--margin", "12", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[1:5] == [f"{stage}: runs" for stage in ("synthesis", "placement", "routing", "bitstream")]
    # Routing begins with the placement that was written, and does not place again.
    placement, routing = tools[1:3]
    assert placement[placement.index("--write") + 1] == routing[routing.index("--json") + 1] == "placed.json"
    assert "--no-place" in routing and "--no-route" in placement
    assert json.loads((tmp_path / "placed.json").read_text()) == {"modules": {"top": {"settings": {
        "seed": "7", "router2/bbMargin/x": "12", "router2/bbMargin/y": "12"}}}}
    assert "12.50 MHz, 21.50 MHz reached" in (tmp_path / "report.txt").read_text() and (tmp_path / "top.bit").exists()
