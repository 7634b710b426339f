"""What the host needs of a machine: simulated, on a board, or the golden model; and the names of what a network can train on."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gradloom.boards.board import BOARDS
from gradloom.host.devices.board_choice import board_choice
from gradloom.host.files import UserError

if TYPE_CHECKING:
    from gradloom.host.devices.network_device import Outcome

__all__ = ["DEVICES", "Device", "MachineError", "Readable", "csr_batch", "device_name", "fetch", "is_emulator"]

DEVICES = ("rtl", "golden", "emulator", "emulator:cuda")
"""Names of devices; ``emulator:cuda:N`` is the N-th GPU."""


def device_name(text: str) -> str:
    """The text, if it names a device.

    Raises
    ------
    :exc:`UserError`
        If it does not.
    """
    named = isinstance(text, str) and (text in DEVICES or re.fullmatch(r"emulator:cuda:\d{1,3}", text))
    if named or (isinstance(text, str) and board_choice(text) is not None):
        return text
    raise UserError(f"there is no device {text!r}: give one of {', '.join(DEVICES)}, emulator:cuda:N, BOARD[:PORT], sim:BOARD or "
                    f"netlist:BOARD[:FOLDER] (boards: {', '.join(BOARDS)})")


def is_emulator(device: str) -> bool:
    """Whether a device is the emulator, wherever it computes."""
    return device.partition(":")[0] == "emulator"


class MachineError(RuntimeError):
    """The machine stopped a program with an error.

    ``outcomes`` has those of the steps that were done before, where the device knows them: their warnings are still to be told.
    """

    outcomes: "Sequence[Outcome]" = ()


class Readable(Protocol):
    """Memory to read."""

    def read(self, addr: int, n: int) -> bytes:
        """Read ``n`` bytes."""


class Device(Protocol):
    """Memory, registers and time of one machine."""

    def write(self, addr: int, data: bytes) -> None:
        """Write bytes to the machine's memory."""

    def read(self, addr: int, n: int) -> bytes:
        """Read ``n`` bytes of the machine's memory."""

    def csr_write(self, offset: int, value: int) -> None:
        """Write a 32-bit register (:mod:`gradloom.contracts.regmap`)."""

    def csr_read(self, offset: int) -> int:
        """Read a 32-bit register."""

    def run(self, max_cycles: int) -> int:
        """Let the machine run until it interrupts or for ``max_cycles``; returns the cycles that passed, fewer than ``max_cycles``
        if it interrupted before."""

    def close(self) -> None:
        """Give up the machine."""


def csr_batch(device: Device, accesses: Sequence[tuple[int, int | None]]) -> list[int]:
    """Register accesses in order, (offset, value to write or :class:`None` to read); values of the reads.

    A device with a ``csr_batch`` of its own, such as a board on a cable, does them in as few round trips as it can.
    """
    own: Callable[[Sequence[tuple[int, int | None]]], list[int]] | None = getattr(device, "csr_batch", None)
    if own is not None:
        return own(accesses)
    values = []
    for offset, value in accesses:
        if value is None:
            values.append(device.csr_read(offset))
        else:
            device.csr_write(offset, value)
    return values


def fetch(device: Device, accesses: Sequence[tuple[int, int | None]], ranges: Sequence[tuple[int, int]]
          ) -> tuple[list[int], list[bytes]]:
    """Register accesses as of :func:`csr_batch`, and the bytes of ranges (address, length) of the memory.

    A device with a ``fetch`` of its own does all in one round trip.
    """
    own: Callable[..., tuple[list[int], list[bytes]]] | None = getattr(device, "fetch", None)
    if own is not None:
        return own(accesses, ranges)
    return csr_batch(device, accesses), [device.read(address, n) for address, n in ranges]
