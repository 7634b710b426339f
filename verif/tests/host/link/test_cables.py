"""Adapters of a board among all serial ports."""

import sys
import types

import pytest

from gradloom.boards.board import BOARDS
from gradloom.host.files import UserError
from gradloom.host.link.cables import Cable, cable_of, cables

BOARD = BOARDS["ulx3s-85f"]


def port(device, vid=0x0403, pid=0x6015, serial="K1"):
    return types.SimpleNamespace(device=device, vid=vid, pid=pid, serial_number=serial)


@pytest.fixture
def plugged(monkeypatch):
    from serial.tools import list_ports

    found: list[types.SimpleNamespace] = []
    monkeypatch.setattr(list_ports, "comports", lambda: found)
    return found


def test_only_those_of_the_board(plugged):
    plugged += [port("/dev/ttyUSB1", serial=None), port("/dev/ttyS0", vid=None, pid=None), port("/dev/ttyUSB0"),
                port("/dev/ttyACM0", pid=0x6010)]
    assert cables(BOARD) == [Cable("/dev/ttyUSB0", "K1"), Cable("/dev/ttyUSB1", "")]


def test_one_is_taken(plugged):
    plugged.append(port("/dev/ttyUSB0"))
    assert cable_of(BOARD) == Cable("/dev/ttyUSB0", "K1")


def test_chosen_by_port_or_serial_number(plugged):
    plugged += [port("/dev/ttyUSB0"), port("/dev/ttyUSB1", serial="K2")]
    assert cable_of(BOARD, "K2") == cable_of(BOARD, "/dev/ttyUSB1") == Cable("/dev/ttyUSB1", "K2")
    # A port that no list knows: a socket, a pty.
    assert cable_of(BOARD, "socket://host:1") == Cable("socket://host:1", "")


def test_none_or_several(plugged):
    with pytest.raises(UserError, match="no cable of a ulx3s-85f is plugged in"):
        cable_of(BOARD)
    plugged += [port("/dev/ttyUSB0"), port("/dev/ttyUSB1", serial="K2")]
    with pytest.raises(UserError, match=r"/dev/ttyUSB0 \(K1\), /dev/ttyUSB1 \(K2\): choose one"):
        cable_of(BOARD)


def test_without_pyserial(monkeypatch):
    monkeypatch.setitem(sys.modules, "serial.tools", None)
    with pytest.raises(UserError, match=r"needs pyserial, which is not installed: pip install 'gradloom\[boards\]'"):
        cables(BOARD)
