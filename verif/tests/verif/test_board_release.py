"""Archives of a release hold what ``gradloom flash`` takes, of the fastest build of each board."""

import dataclasses
import hashlib
import zipfile

import pytest

from gradloom.host.boards.flash_command import built
from gradloom.verif import board_builds
from gradloom.verif.board_builds import Case
from gradloom.verif.board_release import fastest, main
from gradloom.verif.board_reports import REPORT

CASE = Case("one", ("--board", "ulx3s-85f"), 5, (1, 2, 3))


@pytest.fixture
def builds(tmp_path, monkeypatch):
    """Two builds of one case that reach their clock, and one that does not."""
    monkeypatch.setattr(board_builds, "CASES", (CASE, Case("none", ("--board", "ulx3s-85f"), 5)))
    for seed, reached in ((1, 31.0), (2, 33.0), (3, 24.0)):
        folder = tmp_path / "builds" / f"one-{seed}"
        folder.mkdir(parents=True)
        bitstream = bytes([seed]) * 1000
        (folder / "top.bit").write_bytes(bitstream)
        files = {"top.bit": hashlib.sha256(bitstream).hexdigest()}
        report = dataclasses.replace(REPORT, reached_mhz=reached, seed=seed, files=files)
        (folder / "report.json").write_text(report.json())
        (folder / "report.html").write_text("a page")
    return tmp_path / "builds"


def test_the_fastest_is_packed_as_flash_takes_it(builds, tmp_path, capsys):
    assert main(["--builds", str(builds), "--out", str(tmp_path / "out")]) == 0
    (archive,) = (tmp_path / "out").glob("*.zip")
    assert archive.name.startswith("gradloom-") and archive.name.endswith(f"-ulx3s-85f-nano-{7:016x}.zip")
    sums = (tmp_path / "out" / "SHA256SUMS").read_text()
    assert sums == f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n"
    with zipfile.ZipFile(archive) as found:
        found.extractall(tmp_path / "unpacked")
    bitstream, report = built(tmp_path / "unpacked" / archive.stem, "ulx3s-85f")
    assert bitstream.read_bytes() == bytes([2]) * 1000 and report.reached_mhz == 33.0
    assert str(archive) in capsys.readouterr().out


def test_the_same_builds_give_the_same_bytes(builds, tmp_path):
    for name in ("first", "second"):
        main(["--builds", str(builds), "--out", str(tmp_path / name)])
    assert (tmp_path / "first" / "SHA256SUMS").read_text() == (tmp_path / "second" / "SHA256SUMS").read_text()


def test_a_bitstream_of_another_build_is_refused(builds, tmp_path, capsys):
    (builds / "one-1" / "top.bit").write_bytes(b"another")
    assert main(["--builds", str(builds), "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert "is not the one that" in told and told.count("\n") == 1 and not (tmp_path / "out").exists()


def test_without_a_build_there_is_no_release(tmp_path, capsys):
    assert main(["--builds", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "no build in" in capsys.readouterr().err


def test_a_build_that_misses_its_clock_is_none(builds):
    assert [report.seed for _, report in fastest([dataclasses.replace(CASE, seeds=(1, 3))], builds)] == [1]
