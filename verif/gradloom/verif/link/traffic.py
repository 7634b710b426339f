"""Random use of a board by a host, whose every effect is known beforehand."""

import random

from gradloom.host.link.board_device import BoardDevice
from gradloom.host.link.frames import read, write
from gradloom.host.link.link import Link
from gradloom.host.link.transport import Transport
from gradloom.verif.link.board_model import MemoryBackend

__all__ = ["MEMORY_BYTES", "Traffic"]

MEMORY_BYTES = 1 << 16
_REGISTERS = 0x100


class Traffic:
    """A host that writes, reads, fills, gathers and runs scripts at random, and knows what must come of it.

    Members
    -------
    memory
        What the memory must hold.
    writes
        Every write of a register that was asked for, in order: (address, value).
    """

    def __init__(self, transport: Transport, rng: random.Random, beat: int, *, longest: int = 200, session: int = 0) -> None:
        self.rng, self.beat, self.longest = rng, beat, longest
        self.memory = bytearray(MEMORY_BYTES)
        self.writes: list[tuple[int, int]] = []
        self._values: dict[int, int] = {}
        self._counted = 0
        self.transport = transport
        self.device = BoardDevice(Link(transport, session=session))

    def step(self) -> None:
        """One random operation; raises :exc:`AssertionError` if something came back wrong."""
        rng, device = self.rng, self.device
        kind = rng.choice(["write", "write", "read", "read", "script", "script", "csr", "fill", "gather"])
        n = rng.choice([1, 2, 3, rng.randint(1, self.longest)])
        address = rng.randrange(MEMORY_BYTES - n)
        if kind == "write":
            data = bytes(rng.choice([0x7E, 0x7D, rng.randrange(256)]) for _ in range(n))
            device.write(address, data)
            self.memory[address:address + n] = data
        elif kind == "read":
            assert device.read(address, n) == self.memory[address:address + n], f"{n} bytes at {address:#x}"
        elif kind == "fill":
            n, address, value = n * self.beat, address // 64 * 32, rng.randrange(256)
            device.fill(address, n, value)
            self.memory[address:address + n] = bytes([value]) * n
        elif kind == "gather":
            size = rng.randint(1, 20) * self.beat
            numbers = [rng.randrange(16) for _ in range(rng.randint(1, 5))]
            device.gather(numbers, size, 0x1000, 0x8000, size + self.beat)
            for place, number in enumerate(numbers):
                image = self.memory[0x1000 + number * size:][:size]
                at = 0x8000 + place * (size + self.beat)
                self.memory[at:at + size] = image
        elif kind == "csr":
            device.csr_write(*self._register_write())
        else:
            self._script()

    def _register_write(self) -> tuple[int, int]:
        address, value = 4 * self.rng.randrange(_REGISTERS), self.rng.randrange(1 << 32)
        self.writes.append((address, value))
        self._values[address] = value
        return address, value

    def _script(self) -> None:
        accesses, wanted = [], []
        for _ in range(self.rng.randint(1, 6)):
            if self.rng.random() < 0.5:
                accesses.append(write(*self._register_write()))
            elif self.rng.random() < 0.3:
                accesses.append(read(MemoryBackend.COUNTS_READS))
                wanted.append(self._counted)
                self._counted += 1
            else:
                address = 4 * self.rng.randrange(_REGISTERS)
                accesses.append(read(address))
                wanted.append(self._values.get(address, 0))
        assert self.device.csr_batch(accesses) == wanted

    def finish(self) -> None:
        """Wait until everything is done."""
        self.device.csr_batch([])
