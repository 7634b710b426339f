"""Serial ports as pyserial opens them (a stand-in with its face, on a pty), simulated boards, counted bytes."""

import errno
import os
import select
import sys
import threading
import types

import pytest

from gradloom.host.files import UserError
from gradloom.host.link.frames import read_request, write_request
from gradloom.host.link.link import Link
from gradloom.host.link.transport import CableError, CountingTransport, SerialTransport, SimulatedTransport
from gradloom.verif.link.board_model import BoardModel, MemoryBackend
from gradloom.verif.link.model_transport import ModelTransport


class Port:
    """What :class:`SerialTransport` uses of pyserial's ``Serial``."""

    def __init__(self, url, baudrate, timeout, exclusive):
        self.file = os.open(url, os.O_RDWR | os.O_NOCTTY)
        self.baudrate, self.timeout, self.breaks = baudrate, timeout, 0

    def write(self, data):
        os.write(self.file, data)

    def read(self, n):
        ready = select.select([self.file], [], [], self.timeout)[0]
        return os.read(self.file, n) if ready else b""

    @property
    def in_waiting(self):
        return 4096 if select.select([self.file], [], [], 0)[0] else 0

    def flush(self):
        pass

    def send_break(self, seconds):
        self.breaks += 1

    def close(self):
        os.close(self.file)


def no_such_port(url, **options):
    raise OSError("No such file or directory")


@pytest.fixture
def board_port(monkeypatch):
    """A board behind a pty: the name of its other end."""
    import tty

    master, slave = os.openpty()
    tty.setraw(slave)
    board, stop = BoardModel(MemoryBackend(1 << 16), 2), threading.Event()

    def serve():
        while not stop.is_set():
            if select.select([master], [], [], 0.05)[0]:
                board.feed(os.read(master, 4096))
                if data := board.take():
                    os.write(master, data)

    thread = threading.Thread(target=serve)
    thread.start()
    monkeypatch.setitem(sys.modules, "serial", types.SimpleNamespace(serial_for_url=Port))
    yield os.ttyname(slave)
    stop.set()
    thread.join()
    os.close(master)
    os.close(slave)


def test_a_link_over_a_port(board_port):
    transport = SerialTransport(board_port, 115_200)
    link = Link(transport)
    link.set_baud(1_000_000)
    assert transport._port.baudrate == 1_000_000 and transport.byte_time == 1e-5
    data = bytes(range(256)) * 3
    assert link.ask(write_request(0x101, data)).status == 0
    assert link.ask(read_request(0x101, len(data))).data == data
    transport.line_break()
    assert (transport._port.baudrate, transport._port.breaks) == (115_200, 1)
    assert link.ask(read_request(0x101, 2)).data == data[:2]
    link.close()


def test_without_pyserial(monkeypatch):
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(UserError, match=r"^a board on a serial port needs pyserial, which is not installed: pip install pyserial$"):
        SerialTransport("/dev/ttyUSB0")


def test_a_port_that_cannot_be_opened(monkeypatch):
    monkeypatch.setitem(sys.modules, "serial", types.SimpleNamespace(serial_for_url=no_such_port))
    with pytest.raises(UserError, match=r"^the port /dev/none cannot be opened .No such file or directory.: name the board's port"):
        SerialTransport("/dev/none")


@pytest.mark.parametrize(("number", "message"), [
    (errno.ENOENT, "there is no port /dev/x: look whether the board is plugged in, and name its port"),
    (errno.EACCES, "there is no permission to use the port /dev/x: join its group (dialout on most systems) and log in again"),
    (errno.EBUSY, "the port /dev/x is busy: end the program that uses it, or name another board's port"),
    (errno.EAGAIN, "the port /dev/x is busy: end the program that uses it, or name another board's port")])
def test_why_a_port_cannot_be_opened(number, message, monkeypatch):
    def refuse(url, **options):
        raise OSError(number, "whatever pyserial says")

    monkeypatch.setitem(sys.modules, "serial", types.SimpleNamespace(serial_for_url=refuse))
    with pytest.raises(UserError) as told:
        SerialTransport("/dev/x")
    assert str(told.value) == message


def test_a_port_in_use_and_one_that_is_none(tmp_path):
    """What the system and pyserial truly raise: a port that another program holds, and a place where there is none."""
    pytest.importorskip("serial")
    ours, theirs = os.openpty()
    try:
        name = os.ttyname(theirs)
        holder = SerialTransport(name)
        with pytest.raises(UserError, match=rf"^the port {name} is busy: "):
            SerialTransport(name)
        holder.close()
        with pytest.raises(UserError, match=r"^there is no port .*none: "):
            SerialTransport(str(tmp_path / "none"))
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_port_that_vanishes_while_it_is_used():
    """The cable is pulled: one sentence, whether the host reads or writes."""
    pytest.importorskip("serial")
    ours, theirs = os.openpty()
    line = SerialTransport(os.ttyname(theirs))
    os.close(theirs)
    os.close(ours)
    message = r"^the port /dev/pts/\d+ is gone \(.*\): the board was unplugged or switched off$"
    with pytest.raises(CableError, match=message):
        line.read(0.1)
    with pytest.raises(CableError, match=message):
        line.write(b"x")
    line.close()


def test_bytes_and_calls_are_counted():
    line = CountingTransport(ModelTransport(BoardModel(MemoryBackend(1 << 16), 2)))
    link = Link(line)
    link.ask(read_request(0, 100))
    assert (line.bytes_written, line.bytes_read) == (link.statistics.bytes_sent, link.statistics.bytes_received)
    assert line.writes == link.statistics.frames_sent
    link.close()
    assert line.inner.closed


def test_a_simulated_board_only_runs_while_the_host_waits():
    class Board:
        cycle, out = 0, b""

        def feed(self, items):
            self.out += bytes(items)

        def take(self):
            data, self.out = (self.out, b"") if self.cycle >= 100 else (b"", self.out)
            return data

        def wait(self, cycles):
            self.cycle += cycles
            return cycles

    transport = SimulatedTransport(board := Board(), clock=1_000_000)
    transport.write(b"abc")
    assert transport.read(0.0) == b"" and board.cycle == 0
    assert transport.read(1e-4) == b"abc" and transport.now() >= 1e-4
    transport.set_baud(9600)
    transport.line_break()
    transport.close()
