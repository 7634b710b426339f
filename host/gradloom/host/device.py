"""What the host needs of a machine: simulated, on a board, or the golden model."""

from typing import Protocol

__all__ = ["Device", "MachineError"]


class MachineError(RuntimeError):
    """The machine stopped a program with an error."""


class Device(Protocol):
    """Memory, registers and time of one machine."""

    def write(self, addr: int, data: bytes) -> None:
        """Write bytes to the machine's memory."""

    def read(self, addr: int, n: int) -> bytes:
        """Read ``n`` bytes of the machine's memory."""

    def csr_write(self, offset: int, value: int) -> None:
        """Write a 32-bit register (:mod:`gradloom.rtl.regmap`)."""

    def csr_read(self, offset: int) -> int:
        """Read a 32-bit register."""

    def run(self, max_cycles: int) -> int:
        """Let the machine run until it interrupts or for ``max_cycles``; returns the cycles that passed."""

    def close(self) -> None:
        """Give up the machine."""
