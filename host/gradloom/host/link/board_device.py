"""A board as a device: memory and registers over a :class:`~gradloom.host.link.link.Link`."""

import functools
from collections.abc import Callable, Sequence

from gradloom.contracts.frame_format import BITS_OF_BYTE, FIRST_BAUD, MAX_DATA, MAX_ENTRIES, Status
from gradloom.contracts.regmap import offset, register
from gradloom.host.link.frames import (
    RegisterAccess,
    fill_request,
    gather_request,
    read,
    read_request,
    script_request,
    write,
    write_request,
)
from gradloom.host.link.link import Answer, Link, LinkError, check

__all__ = ["BoardDevice"]

_SCRIPT_BYTES = 1000
"""Longest script in bytes: as long as the longest write, so that either kind keeps the line busy."""
_PIECES = 120
"""Pieces of one gather."""


def _registers(accesses: Sequence[tuple[int, int | None]]) -> list[RegisterAccess]:
    return [read(offset) if value is None else write(offset, value) for offset, value in accesses]


class BoardDevice:
    """Implements :class:`~gradloom.host.devices.device.Device`.

    Writes are sent without waiting for their answers; a failed one raises at the next read or :meth:`run`. Writes of registers are
    gathered into scripts. What the host asked for is done in its order.

    Parameters
    ----------
    link : :class:`~gradloom.host.link.link.Link`
        Closed with the device.
    kind : :class:`str`
        What its cycles are called: "simulated" or "on-board".
    baud : :class:`int`
        Bits a second of the cable that :meth:`cost` reckons with.
    wait : :class:`float`
        Seconds of the board's time that :meth:`run` waits at least: a board tells its end by itself, so looking at it earlier only
        costs.
    """

    def __init__(self, link: Link, *, kind: str = "on-board", baud: int = FIRST_BAUD, wait: float = 0.5) -> None:
        self.link, self.kind, self._baud, self._wait = link, kind, baud, wait
        identity = link.identity
        self._base, self._limit = identity.memory_base, identity.memory_base + identity.memory_bytes
        self._script: list[RegisterAccess] = []
        self._script_bytes = 0

    # Memory

    @property
    def memory_limit(self) -> int:
        """The first byte behind the memory."""
        return self._limit

    def write(self, addr: int, data: bytes) -> None:
        """Write bytes to the memory."""
        self._check(addr, len(data))
        self._send_script()
        for place in range(0, len(data), MAX_DATA):
            self._submit(write_request(addr + place, data[place:place + MAX_DATA]), f"write of memory at {addr + place:#x}")

    def read(self, addr: int, n: int) -> bytes:
        """Read bytes of the memory."""
        self._check(addr, n)
        self._send_script()
        pieces = self._submit_read(addr, n)
        self.link.drain()
        return b"".join(pieces)

    def fetch(self, accesses: Sequence[tuple[int, int | None]], ranges: Sequence[tuple[int, int]]) -> tuple[list[int], list[bytes]]:
        """Register accesses as of :meth:`csr_batch`, then ranges (address, length) of the memory, in one round trip."""
        for addr, n in ranges:
            self._check(addr, n)
        values = self._submit_script(_registers(accesses))
        pieces = [self._submit_read(addr, n) for addr, n in ranges]
        self.link.drain()
        return values, [b"".join(each) for each in pieces]

    def _submit_read(self, addr: int, n: int) -> list[bytes]:
        """Asks for a range; the list holds its pieces when all is answered."""
        pieces: list[bytes] = []

        def take(place: int, size: int, answer: Answer) -> None:
            what = f"read of memory at {addr + place:#x}"
            check(answer, what)
            if len(answer.data) != size:
                raise LinkError(f"{what}: {len(answer.data)} bytes came, {size} were asked for")
            pieces.append(answer.data)

        for place in range(0, n, MAX_DATA):
            size = min(MAX_DATA, n - place)
            self.link.submit(read_request(addr + place, size), functools.partial(take, place, size))
        return pieces

    def fill(self, addr: int, n: int, value: int = 0) -> None:
        """Set bytes of the memory to ``value`` without sending them; address and ``n`` are multiples of the beat."""
        self._check(addr, n)
        self._send_script()
        self._submit(fill_request(addr, n, value), f"fill of memory at {addr:#x}")

    def gather(self, numbers: Sequence[int], size: int, source: int, target: int, stride: int) -> None:
        """Copy within the memory, as a batch is made of a data set that lies there.

        Parameters
        ----------
        numbers : sequence of :class:`int`
            Image k of the batch is number ``numbers[k]`` of the data set.
        size : :class:`int`
            Bytes of an image; like the addresses and the stride a multiple of the beat.
        source, target : :class:`int`
            Address of image 0 of the data set, and of the batch.
        stride : :class:`int`
            Bytes from image to image of the batch.
        """
        pieces = [(source + number * size, target + place * stride) for place, number in enumerate(numbers)]
        for first, second in pieces:
            self._check(first, size)
            self._check(second, size)
        self._send_script()
        for place in range(0, len(pieces), _PIECES):
            self._submit(gather_request(size, pieces[place:place + _PIECES]), f"gather of images at {target:#x}")

    def _check(self, addr: int, n: int) -> None:
        if n < 0 or addr < self._base or addr + n > self._limit:
            raise IndexError(f"{n} bytes at {addr:#x} lie outside the board's memory, {self._base:#x} to {self._limit - 1:#x}")

    def _submit(self, request: bytes, what: str) -> None:
        self.link.submit(request, lambda answer: check(answer, what))

    # Registers

    def csr_write(self, offset: int, value: int) -> None:
        """Write a register; a start at once, others at the latest before the next access of anything else."""
        access = write(offset, value)
        self._add(access)
        if self._quiets(access):
            self._send_script()

    def csr_read(self, offset: int) -> int:
        """Read a register, with all writes before it in one round trip."""
        return self.script([read(offset)])[0]

    def csr_batch(self, accesses: Sequence[tuple[int, int | None]]) -> list[int]:
        """Register accesses in order, (offset, value to write or :class:`None` to read); values of the reads. One round trip."""
        return self.script(_registers(accesses))

    def script(self, accesses: Sequence[RegisterAccess]) -> list[int]:
        """Register accesses in order, polls among them, in one round trip; values of the reads and polls."""
        values = self._submit_script(accesses)
        self.link.drain()
        return values

    def _submit_script(self, accesses: Sequence[RegisterAccess]) -> list[int]:
        """Asks for accesses; the list holds their values when all is answered."""
        values: list[int] = []
        for access in accesses:
            self._add(access, values)
        self._send_script(values)
        return values

    def _add(self, access: RegisterAccess, values: list[int] | None = None) -> None:
        size = len(access.encode())
        if len(self._script) == MAX_ENTRIES or self._script_bytes + size > _SCRIPT_BYTES:
            self._send_script(values)
        self._script.append(access)
        self._script_bytes += size

    def _send_script(self, values: list[int] | None = None) -> None:
        accesses, self._script, self._script_bytes = self._script, [], 0
        if not accesses:
            return
        self.link.submit(script_request(accesses), self._script_answer(accesses, values if values is not None else []))

    def _script_answer(self, accesses: list[RegisterAccess], values: list[int]) -> Callable[[Answer], None]:
        quiets = any(self._quiets(access) for access in accesses)

        def take(answer: Answer) -> None:
            if answer.status != Status.OK and answer.entries < len(accesses):
                at = accesses[answer.entries]
                check(answer, f"{at.access.name.lower()} of register {at.address:#06x}")
            check(answer, "script of register accesses")
            words = [int.from_bytes(answer.data[place:place + 4], "little") for place in range(0, len(answer.data), 4)]
            if len(words) != sum(access.answers for access in accesses):
                raise LinkError(f"a script gave {len(words)} values")
            values.extend(words)
            if quiets:  # answers and interrupts come in their order: an interrupt before this one is of an earlier program
                self.link.interrupt = None
        return take

    @staticmethod
    def _quiets(access: RegisterAccess) -> bool:
        """Whether a register access takes back the interrupt."""
        marks = {offset("CONTROL"): register("CONTROL").field("start").mask, offset("STATUS"): register("STATUS").field("irq").mask}
        return not access.answers and bool(access.words[0] & marks.get(access.address, 0))

    # Programs

    def run(self, max_cycles: int) -> int:
        """Wait until the machine interrupts, or for ``max_cycles`` and at least ``wait`` seconds; returns the cycles by the board's
        clock, as far as the host knows them, below ``max_cycles`` if it interrupted."""
        self._send_script()
        self.link.drain()
        clock, began = self.link.identity.clock, self.link.transport.now()
        interrupted = self.link.wait_interrupt(max(self._wait, max_cycles / clock)) is not None
        cycles = max(1, round((self.link.transport.now() - began) * clock))
        return min(cycles, max_cycles - 1) if interrupted else max(cycles, max_cycles)

    def cable_seconds(self, count: int) -> float:
        """What so many bytes take at the cable's rate, ten bits each, if nothing overlaps."""
        return BITS_OF_BYTE * count / self._baud

    def cost(self, cycles: int, ahead: int) -> str:
        """What a run of so many machine cycles took, or would take, of a board: time of the machine and of the cable. So many bytes
        there travelled while the machine computed."""
        clock, seen = self.link.identity.clock, self.link.statistics
        seconds = self.cable_seconds(seen.bytes_sent + seen.bytes_received)
        return (f"{cycles / clock:.1f} s at {clock / 1e6:g} MHz; cable: {seen.bytes_sent:,} bytes there ({ahead:,} of images "
                f"while it computed), {seen.bytes_received:,} back, {seen.round_trips:,} round trips, "
                f"{seconds:.1f} s at {self._baud / 1e6:g} Mbaud if nothing overlaps")

    def close(self) -> None:
        """Finish what is under way and give up the board."""
        try:
            self._send_script()
            self.link.drain()
        finally:
            self.link.close()
