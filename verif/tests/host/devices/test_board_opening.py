"""A board by its name: which names there are, whose machine, which port; and what is said of a board that is not the one meant."""

import dataclasses
import sys
import types

import pytest

from gradloom.boards.board import BOARDS
from gradloom.host import cli
from gradloom.host.devices import board_opening
from gradloom.host.devices.board_choice import BoardChoice, board_choice, machine_config
from gradloom.host.devices.board_opening import check_identity, find_port
from gradloom.host.devices.device import device_name
from gradloom.host.files import UserError
from gradloom.host.link.frames import Identity
from gradloom.rtl.config import PRESETS

NAME = "ulx3s-85f"
BOARD = BOARDS[NAME]
IDENTITY = Identity(protocol=1, beat_bytes=4, data_bytes=992, ring_bytes=2048, board=BOARD.letters, config=BOARD.config.digest(),
                    memory_base=0, memory_bytes=1 << 25, clock=BOARD.clock, build=7)


def test_names():
    assert board_choice(NAME) == BoardChoice(BOARD, simulated=False)
    assert board_choice(f"{NAME}:socket://host:7000") == BoardChoice(BOARD, simulated=False, port="socket://host:7000")
    assert board_choice(f"sim:{NAME}") == BoardChoice(BOARD, simulated=True)
    assert board_choice("rtl") is None and board_choice("emulator:cuda:1") is None
    assert device_name(f"{NAME}:/dev/ttyUSB0") == f"{NAME}:/dev/ttyUSB0"


@pytest.mark.parametrize(("name", "message"), [
    ("sim:ulx", f"there is no board 'ulx' to simulate: give sim: and one of {NAME}"),
    ("sim:", "there is no board '' to simulate"),
    ("ulx", f"there is no device 'ulx': give one of rtl, golden, emulator, emulator:cuda, emulator:cuda:N, BOARD[:PORT] or "
            f"sim:BOARD (boards: {NAME})")])
def test_no_such_board(name, message):
    with pytest.raises(UserError) as told:
        device_name(name)
    assert message in str(told.value)


def test_the_machine_is_the_boards():
    assert machine_config("rtl", None) == PRESETS["small"] and machine_config("golden", "nano") == PRESETS["nano"]
    assert machine_config(NAME, None) == machine_config(f"sim:{NAME}", BOARD.machine) == BOARD.config
    # What is flashed on a board says WELCOME.
    assert machine_config(NAME, "nano") == PRESETS["nano"]
    with pytest.raises(UserError, match=r"^--config nano \(digest 0x\w{8}\) is not the machine of ulx3s-85f, which is small "
                                        r"\(0x\w{8}\): leave --config out$"):
        machine_config(f"sim:{NAME}", "nano")


@pytest.mark.parametrize("command", ["train", "verify", "eval", "diff"])
def test_commands_refuse_another_machine(command, capsys):
    rest = {"eval": ["--weights", "none"], "diff": ["--device", "golden"]}.get(command, [])
    assert cli.main([command, "--device", f"sim:{NAME}", "--config", "nano", *rest]) == 2
    assert "--config nano (digest" in capsys.readouterr().err


def adapters(monkeypatch, *serials, other=True):
    """Serial ports of the computer: boards with these USB serial numbers, and a port that is no board's."""
    ports = [types.SimpleNamespace(vid=BOARD.usb[0], pid=BOARD.usb[1], serial_number=number, device=f"/dev/ttyUSB{n}")
             for n, number in enumerate(serials)]
    if other:
        ports.append(types.SimpleNamespace(vid=None, pid=None, serial_number=None, device="/dev/ttyS0"))
    module = types.SimpleNamespace(comports=lambda: ports)
    monkeypatch.setattr(board_opening, "_serial", lambda name: module)


def test_the_only_board_is_found(monkeypatch):
    adapters(monkeypatch, "D00Q1")
    assert find_port(board_choice(NAME)) == "/dev/ttyUSB0"


def test_one_of_two_boards_is_chosen_by_its_number(monkeypatch):
    adapters(monkeypatch, "D00Q1", "D00Q2")
    assert find_port(board_choice(f"{NAME}:D00Q2")) == "/dev/ttyUSB1"
    assert find_port(board_choice(f"{NAME}:/dev/ttyACM3")) == "/dev/ttyACM3"
    with pytest.raises(UserError, match=r"^2 boards are attached, with USB serial numbers D00Q1, D00Q2: choose one with --device "
                                        r"ulx3s-85f:D00Q1$"):
        find_port(board_choice(NAME))


@pytest.mark.parametrize("command", ["train", "verify"])
def test_no_board_is_told_before_any_work(command, monkeypatch, capsys):
    adapters(monkeypatch)
    assert cli.main([command, "--device", NAME]) == 2
    assert ("error: no ulx3s-85f is attached (no serial adapter 0403:6015): plug it in, or name its port with --device "
            "ulx3s-85f:PORT") in capsys.readouterr().err


def test_without_pyserial(monkeypatch):
    monkeypatch.setitem(sys.modules, "serial.tools.list_ports", None)
    with pytest.raises(UserError, match=r"^a board on a serial port needs pyserial, which is not installed: pip install"):
        find_port(board_choice(NAME))


@pytest.mark.parametrize(("changes", "message"), [
    ({"board": "U45F"}, "the board at the port says that it is 'U45F', ulx3s-85f is 'U85F': name the board that is there"),
    ({"config": 5}, "the bitstream on ulx3s-85f was built for the machine of digest 0x00000005, small has"),
    ({"build": 8}, "the bitstream on ulx3s-85f is of build 0000000000000008, not 0000000000000007: flash it anew"),
    ({"memory_bytes": 1000}, "1,001 bytes of memory are needed, the bitstream on ulx3s-85f has 1,000: take a smaller --batch")])
def test_another_board_than_meant(changes, message):
    choice = board_choice(NAME)
    check_identity(IDENTITY, choice, BOARD.config, 1000, build=7)
    with pytest.raises(UserError) as told:
        check_identity(dataclasses.replace(IDENTITY, **changes), choice, BOARD.config, 1001, build=7)
    assert str(told.value).startswith(message)
