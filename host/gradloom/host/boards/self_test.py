"""A board's memory from the host: data pins, address pins, a range, and whether it is refreshed."""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from gradloom.boards.build_report import BuildReport
from gradloom.host.devices.device import MachineError
from gradloom.host.link.frames import Identity

__all__ = ["Memory", "check_identity", "check_memory"]

_RETENTION = 0.5
"""Seconds that data must stay: several times of what a part keeps them without a refresh."""


class Memory(Protocol):
    """What is tested: a board on its cable."""

    def write(self, addr: int, data: bytes) -> None: ...

    def read(self, addr: int, n: int) -> bytes: ...


def check_identity(identity: Identity, letters: str, report: BuildReport) -> None:
    """Whether a board is what was built.

    Raises
    ------
    :exc:`~gradloom.host.devices.device.MachineError`
        Naming what differs.
    """
    if identity.board != letters:
        raise MachineError(f"the board calls itself {identity.board!r}, not {letters!r}: choose another --board, or another port")
    if identity.config != report.config:
        raise MachineError(f"the board carries the machine CONFIG 0x{identity.config:08x}, and 0x{report.config:08x} was built "
                           f"({report.machine}): flash it again")
    if identity.build != int(report.build, 16):
        raise MachineError(f"the board carries build {identity.build:016x}, and {report.build} was built: flash it again")


def _words(data: bytes) -> Iterator[int]:
    return (int.from_bytes(data[n:n + 2], "little") for n in range(0, len(data), 2))


def _pins(wanted: bytes, found: bytes) -> str:
    """Which of the 16 bits of the words differ."""
    wrong = 0
    for left, right in zip(_words(wanted), _words(found), strict=True):
        wrong |= left ^ right
    return ", ".join(str(bit) for bit in range(16) if wrong >> bit & 1)


def _noise(label: str, n: int) -> bytes:
    return hashlib.shake_128(label.encode()).digest(n)


def check_memory(memory: Memory, base: int, size: int, *, sample: int = 1 << 16, sleep: Callable[[float], None] = time.sleep,
                 report: Callable[[str], None] = lambda text: None) -> None:
    """Write patterns and look for them.

    Parameters
    ----------
    base, size : :class:`int`
        First byte and bytes of the memory; ``size`` is a power of two.
    sample : :class:`int`
        Bytes of the range that is filled with noise, at both ends of the memory.
    sleep : callable
        Lets so many seconds of the board's time pass.
    report : callable
        Takes a line before each pattern.

    Raises
    ------
    :exc:`~gradloom.host.devices.device.MachineError`
        Naming the pattern and what it found.
    """
    report("data pins")
    # At one address, so that no address pin can be taken for one of data.
    walking = [((1 << bit) ^ flip).to_bytes(2, "little") for flip in (0, 0xFFFF) for bit in range(16)]
    read = []
    for word in walking:
        memory.write(base, word)
        read.append(memory.read(base, 2))
    if read != walking:
        pins = _pins(b"".join(walking), b"".join(read))
        raise MachineError(f"data pins {pins} of the memory do not keep what was written: look at its clock's phase "
                           "and at these pins")
    report("address pins")
    places = [0, *(1 << bit for bit in range(4, size.bit_length() - 1))]
    for place in places:
        memory.write(base + place, _noise(f"address {place}", 16))
    for place in places:
        found = memory.read(base + place, 16)
        if found != _noise(f"address {place}", 16):
            other = next((each for each in places if found == _noise(f"address {each}", 16)), None)
            alias = "nothing that was written" if other is None else f"what was written at 0x{other:x}"
            raise MachineError(f"byte 0x{place:x} of the memory holds {alias}: an address pin is stuck, or the part has another "
                               "geometry than the board's data say")
    sample = min(sample, size // 2)
    ends = (base, base + size - sample)
    for seconds, text in ((0.0, "noise at both ends"), (_RETENTION, "refresh")):
        report(text)
        if not seconds:
            for place in ends:
                memory.write(place, _noise(f"noise {place}", sample))
        sleep(seconds)
        for place in ends:
            wanted, found = _noise(f"noise {place}", sample), memory.read(place, sample)
            if found != wanted:
                wrong = sum(left != right for left, right in zip(wanted, found, strict=True))
                why = "it is not refreshed" if seconds else f"bits {_pins(wanted, found)} of its words are unsure"
                raise MachineError(f"{wrong} of {sample} bytes of the memory from 0x{place:x} on are wrong"
                                   f"{f' after {seconds:g} s' if seconds else ''}: {why}")
