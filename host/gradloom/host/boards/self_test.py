"""A range of a board's memory from the host: whether it keeps what is written, and is refreshed."""

import hashlib
import time
from collections.abc import Callable
from typing import Protocol

from gradloom.host.devices.device import MachineError

__all__ = ["Memory", "check_range"]

_RETENTION = 0.5
"""Seconds that data must stay: several times of what a part keeps them without a refresh."""


class Memory(Protocol):
    """What is tested: a board on its cable."""

    def write(self, addr: int, data: bytes) -> None: ...

    def read(self, addr: int, n: int) -> bytes: ...


def _bits(wanted: bytes, found: bytes) -> str:
    """Which of the 16 bits of the words differ."""
    wrong = 0
    for place, (left, right) in enumerate(zip(wanted, found, strict=True)):
        wrong |= (left ^ right) << 8 * (place % 2)
    return ", ".join(str(bit) for bit in range(16) if wrong >> bit & 1)


def check_range(memory: Memory, base: int, size: int, *, sample: int = 1 << 16, sleep: Callable[[float], None] = time.sleep,
                report: Callable[[str], None] = lambda text: None) -> None:
    """Fill both ends of a memory with noise, and look for it at once and after a while.

    Parameters
    ----------
    base, size : :class:`int`
        First byte and bytes of the memory.
    sample : :class:`int`
        Bytes at each end.
    sleep : callable
        Lets so many seconds of the board's time pass.
    report : callable
        Takes a line before each look.

    Raises
    ------
    :exc:`~gradloom.host.devices.device.MachineError`
        Naming what was found.
    """
    sample = min(sample, size // 2)
    noise = {place: hashlib.shake_128(f"noise {place}".encode()).digest(sample) for place in (base, base + size - sample)}
    for seconds, text in ((0.0, "noise at both ends"), (_RETENTION, "refresh")):
        report(text)
        if not seconds:
            for place, data in noise.items():
                memory.write(place, data)
        sleep(seconds)
        for place, wanted in noise.items():
            found = memory.read(place, sample)
            if found != wanted:
                wrong = sum(left != right for left, right in zip(wanted, found, strict=True))
                after = f" after {seconds:g} s" if seconds else ""
                why = "it is not refreshed" if seconds else f"bits {_bits(wanted, found)} of its words are unsure"
                raise MachineError(f"{wrong} of {sample} bytes of the board's memory from 0x{place:x} on are wrong{after}: {why}")
