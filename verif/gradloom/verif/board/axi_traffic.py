"""Random AXI4 traffic at a board's memory parts, compared with a byte array, and the rules that a subordinate must keep."""

import dataclasses
import random
from collections import deque
from collections.abc import Mapping

from gradloom.verif.board.packed import Ports

__all__ = ["DECERR", "Burst", "Manager", "Scoreboard", "Traffic", "stream"]

DECERR = 3
_ALIGNED_BEATS = 64


@dataclasses.dataclass
class Burst:
    """One burst; ``expected`` are the bytes of a read, ``strobes`` and ``data`` a beat each of a write."""

    write: bool
    address: int
    beats: int
    data: list[int] = dataclasses.field(default_factory=list)
    strobes: list[int] = dataclasses.field(default_factory=list)
    expected: bytes = b""
    beyond: bool = False
    begun: int = 0
    done: int = 0


class Scoreboard:
    """What the memory should hold, and which bytes bursts under way are about.

    A read never meets a write that is under way, nor do writes of two managers, so that every byte has one right value.
    """

    def __init__(self, image: bytes) -> None:
        self.image = bytearray(image)
        self._under_way: dict[int, tuple[int, int, bool, object]] = {}

    def begin(self, burst: Burst, beat: int, owner: object) -> bool:
        """Notes a burst unless it would meet one of another kind."""
        low, high = burst.address, burst.address + burst.beats * beat
        for first, limit, write, other in self._under_way.values():
            if low < limit and first < high and (burst.write or write) and not (burst.write and write and owner is other):
                return False
        self._under_way[id(burst)] = (low, high, burst.write, owner)
        burst.beyond = high > len(self.image)
        if not burst.write:
            burst.expected = bytes(self.image[low:high])
        elif not burst.beyond:
            for n, (data, strobes) in enumerate(zip(burst.data, burst.strobes, strict=True)):
                for i in range(beat):
                    if strobes >> i & 1:
                        self.image[low + n * beat + i] = data >> 8 * i & 255
        return True

    def end(self, burst: Burst) -> None:
        del self._under_way[id(burst)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """What a manager asks for.

    Parameters
    ----------
    bursts : :class:`int`
    seed : :class:`int`
    places : sequence of :class:`range`
        Byte addresses: each burst begins in one of them.
    writes : :class:`float`
        Share of writes.
    rate : :class:`float`
        Probability of a new burst in a cycle.
    longest : :class:`int`
        Beats.
    partial : :class:`bool`
        Random strobes, some none at all.
    stalls : mapping of channel to :class:`float`
        Share of cycles in which a channel stands still.
    outstanding : :class:`int`
        Bursts of each kind under way at once.
    """

    bursts: int
    seed: int
    places: tuple[range, ...]
    writes: float = 0.5
    rate: float = 0.6
    longest: int = 64
    partial: bool = True
    stalls: Mapping[str, float] = dataclasses.field(default_factory=dict)
    outstanding: int = 32

    def generate(self, beat: int) -> list[Burst]:
        rng = random.Random(self.seed)
        found = []
        for _ in range(self.bursts):
            address = rng.choice(rng.choice(self.places)) // beat * beat
            room = _ALIGNED_BEATS - address // beat % _ALIGNED_BEATS
            beats = min(rng.choice((1, 2, 3, rng.randint(1, self.longest), self.longest)), room, self.longest)
            burst = Burst(rng.random() < self.writes, address, beats)
            if burst.write:
                burst.data = [rng.getrandbits(8 * beat) for _ in range(beats)]
                full = (1 << beat) - 1
                burst.strobes = [full if not self.partial or rng.random() < 0.4 else rng.choice((rng.getrandbits(beat), 0))
                                 for _ in range(beats)]
            found.append(burst)
        return found


def stream(beat: int, *, address: int, size: int, write: bool, seed: int = 1) -> list[Burst]:
    """One run of bytes as the longest bursts."""
    rng, length = random.Random(seed), _ALIGNED_BEATS * beat
    found = [Burst(write, at, _ALIGNED_BEATS) for at in range(address, address + size, length)]
    for burst in found:
        if write:
            burst.data = [rng.getrandbits(8 * beat) for _ in range(_ALIGNED_BEATS)]
            burst.strobes = [(1 << beat) - 1] * _ALIGNED_BEATS
    return found


class Manager:
    """An AXI4 manager at the ports ``prefix``; it checks every answer.

    Payloads are those of :class:`gradloom.rtl.board.memory.axi_bus.AxiSignature`.
    """

    def __init__(self, prefix: str, beat: int, bursts: list[Burst], board: Scoreboard, *, rate: float = 1.0, seed: int = 1,
                 stalls: Mapping[str, float] | None = None, outstanding: int = 32) -> None:
        self.prefix, self.beat, self.board, self.rate, self.outstanding = prefix, beat, board, rate, outstanding
        self.todo = deque(bursts)
        self.rng = random.Random(seed)
        self.stalls = dict(stalls or {})
        self.addresses: dict[str, deque[Burst]] = {"ar": deque(), "aw": deque()}
        self.data: deque[tuple[Burst, int]] = deque()
        self.reads: deque[Burst] = deque()
        self.writes: deque[Burst] = deque()
        self.sent: deque[Burst] = deque()
        self.offered = {"ar": False, "aw": False, "w": False}
        self.held: dict[str, int | None] = {"r": None, "b": None}
        self.cycle = self.beats = 0
        self.worst = 0
        """Cycles from a burst's address to its end, at most."""

    @classmethod
    def of(cls, prefix: str, beat: int, traffic: Traffic, board: Scoreboard) -> "Manager":
        return cls(prefix, beat, traffic.generate(beat), board, rate=traffic.rate, seed=traffic.seed + 1, stalls=traffic.stalls,
                   outstanding=traffic.outstanding)

    def done(self) -> bool:
        return not (self.todo or self.reads or self.writes)

    def _moves(self, channel: str) -> bool:
        return not (channel in self.stalls and self.rng.random() < self.stalls[channel])

    def _new_bursts(self) -> None:
        if self.todo and (self.rate >= 1 or self.rng.random() < self.rate):
            burst = self.todo[0]
            queue = self.writes if burst.write else self.reads
            if len(queue) < self.outstanding and self.board.begin(burst, self.beat, self):
                burst.begun = self.cycle
                queue.append(self.todo.popleft())
                self.addresses["aw" if burst.write else "ar"].append(burst)
                if burst.write:
                    self.data.extend((burst, n) for n in range(burst.beats))

    def drive(self, ports: Ports) -> None:
        self._new_bursts()
        prefix = self.prefix
        for channel, queue in self.addresses.items():
            offer = bool(queue) and (self.offered[channel] or self._moves(channel))
            self.offered[channel] = offer
            ports[f"{prefix}__{channel}__valid"] = offer
            ports[f"{prefix}__{channel}__payload"] = queue[0].address | queue[0].beats - 1 << 32 if offer else 0
        offer = bool(self.data) and (self.offered["w"] or self._moves("w"))
        if offer and self.data[0][1] == 0 and self.data[0][0] in self.addresses["aw"] and not self.offered["aw"]:
            offer = False  # data only with or after their address
        self.offered["w"] = offer
        ports[f"{prefix}__w__valid"] = offer
        if offer:
            burst, n = self.data[0]
            last = n == burst.beats - 1
            ports[f"{prefix}__w__payload"] = burst.data[n] | burst.strobes[n] << 8 * self.beat | last << 9 * self.beat
        for channel in ("r", "b"):
            ports[f"{prefix}__{channel}__ready"] = self._moves(channel)

    def sample(self, ports: Ports) -> None:
        prefix = self.prefix
        self.cycle += 1
        for channel, queue in self.addresses.items():
            if self.offered[channel] and ports[f"{prefix}__{channel}__ready"]:
                queue.popleft()
                self.offered[channel] = False
        if self.offered["w"] and ports[f"{prefix}__w__ready"]:
            burst, n = self.data.popleft()
            self.offered["w"] = False
            self.beats += 1
            if n == burst.beats - 1:
                self.sent.append(burst)
        for channel in ("r", "b"):
            valid, payload = ports[f"{prefix}__{channel}__valid"], ports[f"{prefix}__{channel}__payload"]
            held = self.held[channel]
            kept = held is None or (valid and payload == held)
            assert kept, f"{prefix} cycle {self.cycle}: {channel} changed before it was taken"
            taken = valid and ports[f"{prefix}__{channel}__ready"]
            self.held[channel] = payload if valid and not taken else None
            if taken:
                (self._read if channel == "r" else self._answer)(payload)

    def _where(self, burst: Burst) -> str:
        kind = "write" if burst.write else "read"
        return f"{self.prefix} cycle {self.cycle}: {kind} of {burst.beats} beats at {burst.address:#x}"

    def _read(self, payload: int) -> None:
        assert self.reads, f"{self.prefix} cycle {self.cycle}: read data that nobody asked for"
        burst = self.reads[0]
        data, response = payload & (1 << 8 * self.beat) - 1, payload >> 8 * self.beat & 3
        last = payload >> 8 * self.beat + 2
        where = f"{self._where(burst)}, beat {burst.done}"
        assert response == (DECERR if burst.beyond else 0), f"{where}: response {response}"
        if not burst.beyond:
            expected = int.from_bytes(burst.expected[burst.done * self.beat:][:self.beat], "little")
            assert data == expected, f"{where}: {data:#x}, expected {expected:#x}"
        burst.done += 1
        self.beats += 1
        assert last == (burst.done == burst.beats), f"{where}: last is {last}"
        if last:
            self._end(self.reads.popleft())

    def _answer(self, payload: int) -> None:
        assert self.writes, f"{self.prefix} cycle {self.cycle}: an answer to no write"
        burst = self.writes[0]
        assert self.sent and self.sent.popleft() is burst, f"{self._where(burst)}: answered before its last beat"
        assert payload == (DECERR if burst.beyond else 0), f"{self._where(burst)}: response {payload}"
        self._end(self.writes.popleft())

    def _end(self, burst: Burst) -> None:
        self.board.end(burst)
        self.worst = max(self.worst, self.cycle - burst.begun)
