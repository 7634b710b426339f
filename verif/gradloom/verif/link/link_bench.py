"""The RTL of the link beside its model: the same bytes into both, and the same must come out."""

import random
from collections.abc import Iterable

from gradloom.contracts.config import Config
from gradloom.contracts.frame_format import Kind, bit_step
from gradloom.host.link.frames import FrameReader, ReceivedFrame, encode
from gradloom.sim.link.link_device import CLOCK, LinkSimulation
from gradloom.verif.link.board_model import BoardModel, MemoryBackend

__all__ = ["LinkBench", "frames"]


_LONGEST_POLL, _PATIENCE = 16 << 16, 20_000
"""Cycles of a poll that never sees what it waits for, at most, and between two looks at it."""


class LinkBench:
    """The simulated link, its model, and a session of numbers for raw frames.

    Parameters
    ----------
    seed : :class:`int`
        Of the memory's contents.
    """

    MEMORY_BYTES = 1 << 16

    def __init__(self, config: Config, seed: int = 0) -> None:
        self.config = config
        self.simulation = LinkSimulation(config, memory_bytes=self.MEMORY_BYTES)
        self.backend = MemoryBackend(self.MEMORY_BYTES)
        self.model = BoardModel(self.backend, config.beat_bytes, memory_bytes=self.MEMORY_BYTES, config=config.digest(),
                                clock=CLOCK, bit_step=bit_step(115_200, CLOCK))
        self.backend.memory[:] = random.Random(seed).randbytes(self.MEMORY_BYTES)
        self.simulation.write(0, bytes(self.backend.memory))
        self.session = self.number = self.ack = 0

    def __enter__(self) -> "LinkBench":
        return self

    def __exit__(self, *reason: object) -> None:
        self.simulation.__exit__(*reason)  # type: ignore[arg-type]

    def exchange(self, items: Iterable[int]) -> list[ReceivedFrame]:
        """Feed both, let both come to rest; what came out, which must be the same bytes."""
        items = list(items)
        self.simulation.feed(items)
        self.model.feed(items)
        out, wanted = self.simulation.settle(), self.model.take()
        # A script that polls one of the link's own registers moves nothing on any bus, up to 65,536 times.
        for _ in range(_LONGEST_POLL // _PATIENCE):
            if len(out) >= len(wanted):
                break
            self.simulation.run(_PATIENCE)
            out += self.simulation.settle()
        assert out == wanted, f"the link gave {frames(out)}, its model {frames(wanted)}"
        return frames(out)

    def send(self, kind: int, body: bytes = b"", *, session: int | None = None, number: int | None = None,
             ack: int | None = None) -> list[ReceivedFrame]:
        """A frame with any header."""
        header = (self.session if session is None else session, self.number if number is None else number,
                  self.ack if ack is None else ack)
        return self.exchange(encode(bytes([*header, kind]) + body))

    def open(self, session: int = 7) -> None:
        """Open a session."""
        welcome, = self.send(Kind.HELLO, session=session)
        self.session, self.number, self.ack = session, 0, 0
        first = self.send(Kind.OPEN, session=session, number=welcome.number)[0]
        assert (first.session, first.number, first.body) == (session, 0, bytes([1, welcome.number]))

    def ask(self, request: bytes) -> ReceivedFrame:
        """A request in its turn, and its answer."""
        answer, = self.send(request[0], request[1:])
        self.number, self.ack = (self.number + 1) % 256, (self.ack + 1) % 256
        return answer

    def compare(self) -> None:
        """Memory, registers and their writes are the same, and no rule of a bus was broken."""
        self.simulation.obey()
        assert self.simulation.read(0, self.MEMORY_BYTES) == self.backend.memory
        assert self.simulation.register_writes() == self.backend.writes
        for address in (MemoryBackend.COUNTS_READS, MemoryBackend.COUNTS_WRITES):
            assert self.simulation.register(address) == self.backend.registers.get(address, 0)


def frames(data: bytes) -> list[ReceivedFrame]:
    """The frames in bytes that are nothing else."""
    reader = FrameReader()
    found = [frame for frame in map(ReceivedFrame.parse, reader.feed(data)) if frame is not None]
    assert not reader.bad
    return found
