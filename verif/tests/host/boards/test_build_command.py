"""gradloom build and gradloom boards: what they say, their exit codes, the time that is left."""

import json

import pytest

from gradloom.boards import build
from gradloom.boards.tools import BuildError
from gradloom.host import cli
from gradloom.host.boards import boards_command, build_command
from gradloom.host.boards.build_command import BuildProgress
from gradloom.host.link.cables import Cable
from gradloom.verif.board_reports import REPORT
from gradloom.verif.cli_desk import refused


@pytest.fixture
def built(monkeypatch, tmp_path):
    """The requests of builds that were asked for; each leaves its report, as the true one does."""
    monkeypatch.chdir(tmp_path)
    requests = []

    def fake(folder, request, *, fresh, report):
        requests.append((folder, request, fresh))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(REPORT.json())
        report("sources", "begins")
        return REPORT

    monkeypatch.setattr(build, "build", fake)
    return requests


def test_build(built, capsys, tmp_path):
    options = ["--config", "nano", "--freq", "12.5", "--seed", "3", "--block-ram", "64"]
    assert cli.main(["build", "--board", "ulx3s-85f", *options]) == 0
    out, err = capsys.readouterr()
    folder, request, fresh = built[0]
    assert (request.config.name, request.clock, request.seed, request.block_ram, fresh) == ("nano", 12_500_000, 3, 64 << 10, False)
    assert "31.25 MHz reached (routed)" in out and "[1/5] sources: begins  (time left unknown)" in err
    assert "<svg" in (folder / "report.html").read_text() and str(folder) == "build/ulx3s-85f"


def test_time_of_an_earlier_build(built, capsys):
    """The second build in a folder says how long the first took."""
    arguments = ["build", "--board", "ulx3s-85f", "--config", "nano"]
    assert cli.main(arguments) == cli.main(arguments) == 0
    assert "[1/5] sources: begins  (about 5 min left)" in capsys.readouterr().err


def test_failed_build(built, monkeypatch, capsys):
    def fail(folder, request, **options):
        raise BuildError("routing failed: no way (the whole output: routing.log)")

    monkeypatch.setattr(build, "build", fail)
    assert cli.main(["build", "--board", "ulx3s-85f", "--config", "nano"]) == 1
    assert capsys.readouterr().err == "gradloom: error: routing failed: no way (the whole output: routing.log)\n"


@pytest.mark.parametrize(("arguments", "words"), [
    (["--board", "ulx3s"], "there is no board 'ulx3s': give one of"),
    (["--board", "ulx3s-85f", "--config", "none"], "there is no configuration 'none'"),
    (["--board", "ulx3s-85f", "--config", "nano", "--block-ram", "100"], "must be a power of two of KiB, not 100 KiB"),
    (["--board", "ulx3s-85f", "--config", "nano", "--freq", "13"], "cannot be made of one of 25000000 Hz"),
    (["--board", "ulx3s-85f", "--config", "nano", "--freq", "0"], "--freq"),
    (["--board", "ulx3s-85f", "--out", "file"], "file"),
    ([], "--board")])
def test_refused(monkeypatch, tmp_path, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "emit_verilog", lambda config: {"gradloom.v": ""})
    (tmp_path / "file").write_text("mine")
    refused(capsys, ["build", *arguments], words)
    assert (tmp_path / "file").read_text() == "mine"


def test_time_left():
    """By the shares of an average build until there is an earlier one of this machine."""
    earlier = {"sources": 10.0, "synthesis": 60.0, "placement": 120.0, "routing": 600.0, "bitstream": 10.0}
    progress = BuildProgress(build.STAGES, earlier)
    progress._begun["routing"] = 1000.0
    assert progress.left("routing", 1010.0) == "about 10 min left"
    unknown = BuildProgress(build.STAGES)
    unknown._start, unknown._begun = 0.0, {"sources": 0.0, "placement": 220.0}
    # 22 % took 220 s, so 78 % take 780.
    assert unknown.left("sources", 5.0) == "time left unknown" and unknown.left("placement", 220.0) == "about 13 min left"
    assert unknown.left("placement", 1e6) == "less than a minute left"


def test_boards(monkeypatch, capsys):
    monkeypatch.setattr(boards_command, "cables", lambda board: [Cable("/dev/ttyUSB3", "K001")])
    assert cli.main(["boards"]) == 0
    out = capsys.readouterr().out
    assert "ulx3s-85f  LFE5U-85F" in out and "/dev/ttyUSB3 (K001)" in out
    assert cli.main(["boards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cables"] == [{"port": "/dev/ttyUSB3", "serial": "K001"}]


def test_missing_package(monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "gradloom.boards.build", None)
    refused(capsys, ["build", "--board", "ulx3s-85f"], "pip install 'gradloom[boards]'")


def test_report_of_another_version(tmp_path):
    """What cannot be read is no report."""
    for text in ("{", "{}", '{"paths": 3}', "[]"):
        (tmp_path / "report.json").write_text(text)
        assert build_command.earlier_report(tmp_path) is None
