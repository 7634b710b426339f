"""What carries bytes between host and board: a serial line, or a simulated board."""

import contextlib
import errno
import importlib
import time
from collections.abc import Iterator
from typing import Any, Protocol

from gradloom.contracts.frame_format import BITS_OF_BYTE, FIRST_BAUD
from gradloom.host.devices.device import MachineError
from gradloom.host.files import UserError

__all__ = ["CableError", "CountingTransport", "SerialTransport", "SimulatedBoard", "SimulatedTransport", "Transport"]

_PAUSE_CYCLES = 16
_BYTE_CYCLES = 4
"""Of a simulated board whose bytes come in behind its UART, if it does not say it (``byte_cycles``)."""
_BREAK_SECONDS = 0.05
"""A break is 1024 bits long to the board: 9 ms at 115,200 baud."""


class Transport(Protocol):
    """A way for bytes, which may lose, damage, double or delay them."""

    patience: float
    """Seconds of silence, beyond the time that the bytes take, after which something is lost."""

    @property
    def byte_time(self) -> float:
        """Seconds that a byte takes."""

    def now(self) -> float:
        """Seconds on the board's clock: a simulated one is slow."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def read(self, wait: float) -> bytes:
        """Bytes that have come; waits for the first for at most so many seconds."""

    def set_baud(self, baud: int) -> None:
        """Another rate of the line, from the next byte on."""

    def line_break(self) -> None:
        """Make the board take its first rate again, and take it here, too."""

    def close(self) -> None:
        """Give up the line."""


class CableError(MachineError):
    """The port is gone."""


def _opening_fault(url: str, error: Exception) -> str:
    """Why a port cannot be opened, and what helps."""
    number = getattr(error, "errno", None)
    if number == errno.ENOENT:
        return f"there is no port {url}: look whether the board is plugged in, and name its port"
    if number in (errno.EACCES, errno.EPERM):
        return f"there is no permission to use the port {url}: join its group (dialout on most systems) and log in again"
    if number in (errno.EBUSY, errno.EAGAIN):
        return f"the port {url} is busy: end the program that uses it, or name another board's port"
    return f"the port {url} cannot be opened ({error}): name the board's port"


class SerialTransport:
    """A serial port, or whatever else pyserial opens by its URL (``socket://host:port``, a pty).

    Parameters
    ----------
    url : :class:`str`
    baud : :class:`int`
        The board's first rate.

    Raises
    ------
    :exc:`UserError`
        If pyserial is not there, or the port cannot be opened.
    """

    patience = 0.1
    """Adapters keep bytes back for up to 16 ms, and a loaded host sleeps longer."""

    def __init__(self, url: str, baud: int = FIRST_BAUD) -> None:
        try:
            serial: Any = importlib.import_module("serial")
        except ImportError:
            raise UserError("a board on a serial port needs pyserial, which is not installed: pip install pyserial") from None
        self._url = url
        try:
            self._port: Any = serial.serial_for_url(url, baudrate=baud, timeout=0, exclusive=True)
        except (OSError, ValueError) as error:
            raise UserError(_opening_fault(url, error)) from None
        self._first = self._baud = baud
        self._timeout = 0.0

    @property
    def byte_time(self) -> float:
        return BITS_OF_BYTE / self._baud

    def now(self) -> float:
        return time.monotonic()

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        """A port that vanishes within this context is told in one sentence (pyserial's errors are :exc:`OSError`)."""
        try:
            yield
        except OSError as error:
            raise CableError(f"the port {self._url} is gone ({error}): the board was unplugged or switched off") from None

    def write(self, data: bytes) -> None:
        with self._there():
            self._port.write(data)

    def read(self, wait: float) -> bytes:
        with self._there():
            if wait != self._timeout:
                self._port.timeout = self._timeout = wait
            first = bytes(self._port.read(1))
            if not first:
                return b""
            more = self._port.in_waiting
            return first + bytes(self._port.read(more)) if more else first

    def set_baud(self, baud: int) -> None:
        with self._there():
            self._port.flush()
            self._port.baudrate = self._baud = baud

    def line_break(self) -> None:
        self.set_baud(self._first)
        # A network socket knows no break, and has no rate either.
        send_break = getattr(self._port, "send_break", None)
        if send_break is not None:
            with self._there():
                send_break(_BREAK_SECONDS)

    def close(self) -> None:
        self._port.close()


class SimulatedBoard(Protocol):
    """Something that takes and gives bytes as its clock runs (:class:`gradloom.sim.link.link_device.LinkSimulation`)."""

    @property
    def cycle(self) -> int:
        """Cycles so far."""

    def feed(self, items: bytes) -> None:
        """Bytes for the board to take as time passes."""

    def take(self) -> bytes:
        """Bytes that came out."""

    def wait(self, cycles: int) -> int:
        """Let time pass until a byte comes out, at most so many cycles."""


class SimulatedTransport:
    """A simulated board, whose clock only runs while the host waits.

    Parameters
    ----------
    board : :class:`SimulatedBoard`
    clock : :class:`int`
        Hz of the board's clock.
    """

    patience = 0.0002
    """At 50 MHz 10,000 cycles: more than any request but a long fill takes; and to ask too early costs only bytes."""

    def __init__(self, board: SimulatedBoard, clock: int = 50_000_000) -> None:
        self._board, self._clock = board, clock
        self._set_byte_cycles()

    def now(self) -> float:
        return self._board.cycle / self._clock

    def write(self, data: bytes) -> None:
        self._board.feed(data)

    def read(self, wait: float) -> bytes:
        data = self._board.take()
        if wait > 0:
            if not data:
                self._board.wait(max(1, round(wait * self._clock)))
            while (more := self._board.take()):  # as a driver does: what comes without a pause, comes together
                data += more
                self._board.wait(max(_PAUSE_CYCLES, 2 * self._byte_cycles))
        return data

    def set_baud(self, baud: int) -> None:
        """Nothing but the UART of a board that has one needs to know."""
        if getattr(self._board, "has_uart", False):
            self._board.set_bit_clocks(round(self._clock / baud))  # type: ignore[attr-defined]
            self._set_byte_cycles()

    def _set_byte_cycles(self) -> None:
        self._byte_cycles: int = getattr(self._board, "byte_cycles", _BYTE_CYCLES)
        self.byte_time = self._byte_cycles / self._clock

    def line_break(self) -> None:
        """A simulated board is made anew in its place."""

    def close(self) -> None:
        close = getattr(self._board, "close", None)
        if close is not None:
            close()


class CountingTransport:
    """Another transport, whose bytes and calls are counted."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.patience = inner.patience
        self.bytes_written = self.bytes_read = self.writes = 0

    @property
    def byte_time(self) -> float:
        return self.inner.byte_time

    def now(self) -> float:
        return self.inner.now()

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.bytes_written += len(data)
        self.inner.write(data)

    def read(self, wait: float) -> bytes:
        data = self.inner.read(wait)
        self.bytes_read += len(data)
        return data

    def set_baud(self, baud: int) -> None:
        self.inner.set_baud(baud)

    def line_break(self) -> None:
        self.inner.line_break()

    def close(self) -> None:
        self.inner.close()
