"""A simulated board whose memory the host reaches at once, beside the cable: registers alone travel."""

from collections.abc import Sequence

from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.link import Link

__all__ = ["DirectMemoryDevice"]


class DirectMemoryDevice(BoardDevice):
    """Reads and writes the SDRAM model itself. A netlist takes some twenty times as long for a cycle as RTL, and a byte on the
    cable takes 170 cycles.

    Parameters
    ----------
    memory : :class:`memoryview`
        The bytes of the memory, which begins at the base that the board says.
    link, baud, wait
        As of :class:`~gradloom.host.link.board_device.BoardDevice`.
    """

    def __init__(self, link: Link, memory: memoryview, *, baud: int, wait: float) -> None:
        super().__init__(link, kind="simulated", baud=baud, wait=wait)
        self._memory = memory

    def _settle(self, addr: int, n: int) -> int:
        """The place of an address, when all that was asked for before has been done."""
        self._check(addr, n)
        self._send_script()
        if self.link.pending:
            self.link.drain()
        return addr - self._base

    def write(self, addr: int, data: bytes) -> None:
        place = self._settle(addr, len(data))
        self._memory[place:place + len(data)] = data

    def read(self, addr: int, n: int) -> bytes:
        place = self._settle(addr, n)
        return bytes(self._memory[place:place + n])

    def fetch(self, accesses: Sequence[tuple[int, int | None]], ranges: Sequence[tuple[int, int]]) -> tuple[list[int], list[bytes]]:
        return self.csr_batch(accesses), [self.read(addr, n) for addr, n in ranges]

    def fill(self, addr: int, n: int, value: int = 0) -> None:
        self.write(addr, bytes([value]) * n)

    def gather(self, numbers: Sequence[int], size: int, source: int, target: int, stride: int) -> None:
        for place, number in enumerate(numbers):
            self.write(target + place * stride, self.read(source + number * size, size))
