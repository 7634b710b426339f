"""The board's end of the cable in Python, written from ``docs/link.md``: the oracle of the RTL, and a fast board for the host."""

from collections import deque
from typing import Protocol

from gradloom.contracts.frame_format import (
    IDENTITY,
    LINK_WINDOW,
    MAX_DATA,
    MAX_ENTRIES,
    MEMORY_FIELDS,
    PROTOCOL,
    REQUEST_HEADER,
    RING_BYTES,
    UNNUMBERED,
    Access,
    Kind,
    Reply,
    Status,
    entry_word,
)
from gradloom.contracts.regmap import offset
from gradloom.host.link.frames import FrameReader, encode, pack, unpack

__all__ = ["Backend", "BoardModel", "MemoryBackend"]

_CHUNK_BEATS = 16
_HEADER = sum(field.size for field in REQUEST_HEADER)
_MOVES = (Kind.READ, Kind.WRITE, Kind.FILL, Kind.GATHER)


class Backend(Protocol):
    """What lies behind a board's link; every access returns whether it went well. Memory accesses lie within a beat, or, if none of
    the memory ever ``may_fail``, are of any size."""

    may_fail: bool

    def memory_write(self, address: int, data: bytes) -> bool: ...

    def memory_read(self, address: int, n: int) -> bytes | None: ...

    def register_write(self, address: int, value: int) -> bool: ...

    def register_read(self, address: int) -> int | None: ...


class MemoryBackend:
    """A memory, and registers that are one too, of which one counts its reads; ranges of both may fail."""

    COUNTS_READS, COUNTS_WRITES = 0x700, 0x704
    may_fail = True

    def __init__(self, size: int) -> None:
        self.memory = bytearray(size)
        self.registers: dict[int, int] = {}
        self.writes: list[tuple[int, int]] = []
        """Address and value of every write of a register."""
        self.bad_memory = range(0)
        self.bad_registers = range(0)

    def memory_write(self, address: int, data: bytes) -> bool:
        if address in self.bad_memory or address + len(data) > len(self.memory):
            return False
        self.memory[address:address + len(data)] = data
        return True

    def memory_read(self, address: int, n: int) -> bytes | None:
        if address in self.bad_memory or address + n > len(self.memory):
            return None
        return bytes(self.memory[address:address + n])

    def register_write(self, address: int, value: int) -> bool:
        if address in self.bad_registers:
            return False
        self.writes.append((address, value))
        self.registers[address] = self.registers.get(address, 0) + 1 if address == self.COUNTS_WRITES else value
        return True

    def register_read(self, address: int) -> int | None:
        if address in self.bad_registers:
            return None
        value = self.registers.get(address, 0)
        if address == self.COUNTS_READS:
            self.registers[address] = value + 1
        return value


class _Refused(Exception):
    def __init__(self, status: Status) -> None:
        self.status = status


class BoardModel:
    """Takes bytes and gives bytes as the link does, but in no time.

    Parameters
    ----------
    backend : :class:`Backend`
    beat : :class:`int`
        Bytes of a beat.
    memory_base, memory_bytes : :class:`int`
        What requests may touch.
    config, clock : :class:`int`
        Of the identity.
    bit_step : :class:`int`
        First value of the link's register BAUD.
    """

    def __init__(self, backend: Backend, beat: int, *, memory_base: int = 0, memory_bytes: int = 1 << 16, config: int = 0,
                 clock: int = 50_000_000, bit_step: int = 151) -> None:
        self.backend, self.beat = backend, beat
        self.memory_base, self.memory_bytes = memory_base, memory_bytes
        self.identity = pack(IDENTITY, protocol=PROTOCOL, beat_bytes=beat, data_bytes=MAX_DATA, ring_bytes=RING_BYTES,
                             board=int.from_bytes(b"SIM0", "little"), config=config, memory_base=memory_base,
                             memory_bytes=memory_bytes % (1 << 32), clock=clock, build=0)
        self.first_step = bit_step
        self._out = bytearray()
        self.reset()

    def reset(self) -> None:
        """As the board's reset: memory and registers stay."""
        self._reader = FrameReader()
        self._faults = [0, 0, 0, 0]
        self.step = self._wanted = self.first_step
        self.session = self.expected = self.proposed = self.token = 0
        self.open = self._offered = self._irq = self._rise = False
        self._lost = False
        self._requests: deque[bytes] = deque()
        self._begin()

    def _begin(self) -> None:
        """Answers and their numbers, as a new session has them."""
        self._requests.clear()
        self._kept: deque[bytes] = deque()
        self._first = 0

    # The line

    def feed(self, items: bytes | list[int]) -> None:
        """Bytes; a value above 255 is one that the line lost."""
        for item in items:
            if item > 0xFF:
                self._lose()
                continue
            bad = self._reader.bad
            lost, self._lost = self._lost, self._lost and item != 0x7E
            for content in self._reader.feed(bytes([item])):
                if lost or len(content) < _HEADER:
                    self._faults[0] += 1
                else:
                    self._frame(content)
            self._faults[0] += self._reader.bad - bad

    def _lose(self) -> None:
        self._faults[3] += 1
        self._lost = True

    def take(self) -> bytes:
        """Bytes to the host."""
        data, self._out = bytes(self._out), bytearray()
        return data

    def _tell(self, session: int, number: int, body: bytes) -> None:
        self._out += encode(bytes([session, number]) + body)

    # Sessions

    def _frame(self, content: bytes) -> None:
        header, body = unpack(REQUEST_HEADER, content), content[_HEADER:]
        session, number, kind = header["session"], header["number"], header["kind"]
        ours = self.open and session == self.session
        if kind < UNNUMBERED:
            if not ours or number != self.expected:
                self._faults[1] += 1
            elif sum(len(request) for request in self._requests) + 1 + len(body) >= RING_BYTES:
                self._faults[2] += 1
            else:
                self.expected = (self.expected + 1) % 256
                self._acknowledge(header["ack"])
                self._requests.append(bytes([kind]) + body)
        elif kind == Kind.HELLO:
            self.proposed, self.token, self._offered = session, (self.token + 1) % 256, True
            self._tell(session, self.token, bytes([Reply.WELCOME]) + self.identity)
        elif kind == Kind.OPEN:
            if self._offered and (session, number) == (self.proposed, self.token):
                self.session, self.open, self.expected, self._offered = session, True, 0, False
                self._begin()
                self._rise = self._irq
                self._state(number)
            elif ours:
                self._state(number)
        elif kind == Kind.SYNC:
            self._state(number)
            if ours:
                self._acknowledge(header["ack"])
                for place, answer in enumerate(self._kept):
                    self._tell(self.session, (self._first + place) % 256, answer)
        elif kind == Kind.ACK and ours:
            self._acknowledge(header["ack"])
        self._execute()

    def _state(self, tag: int) -> None:
        self._tell(self.session, self.expected, bytes([Reply.STATE, self.open, tag]))

    def _acknowledge(self, ack: int) -> None:
        gone = (ack - self._first) % 256
        if gone <= len(self._kept):
            for _ in range(gone):
                self._kept.popleft()
            self._first = (self._first + gone) % 256

    def set_irq(self, level: int) -> None:
        """Level of the interrupt line."""
        self._rise |= self.open and bool(level) and not self._irq
        self._irq = bool(level)
        self._execute()

    # Requests

    def _execute(self) -> None:
        while (self._requests or self._rise) and sum(map(len, self._kept)) < RING_BYTES // 2:
            if self._rise:
                self._rise = False
                data, entries, status = self._script(entry_word(Access.READ, offset("STATUS")).to_bytes(2, "little"))
                reply = Reply.INTERRUPT
            else:
                data, entries, status = self._do(self._requests.popleft())
                reply = Reply.ANSWER
            self._kept.append(bytes([reply]) + data + bytes([entries % 256, status]))
            self._tell(self.session, (self._first + len(self._kept) - 1) % 256, self._kept[-1])
            self.step = self._wanted  # when the answer has left

    def _do(self, request: bytes) -> tuple[bytes, int, Status]:
        kind, body = request[0], request[1:]
        if kind == Kind.SCRIPT:
            return self._script(body)
        if kind not in _MOVES:
            return b"", 0, Status.OPERATION
        data, done = bytearray(), 0
        try:
            size = sum(field.size for field in MEMORY_FIELDS)
            rest = body[size:]
            self._fields(body, size)
            while True:
                fields = unpack(MEMORY_FIELDS, body[:size])
                rest = self._move(Kind(kind), fields["bytes"], fields["source"], fields["target"], rest, data)
                if kind != Kind.GATHER:
                    return bytes(data), 0, Status.LENGTH if rest else Status.OK
                done += 1
                if not rest:
                    return b"", done, Status.OK
                self._fields(rest, size - 4)
                body, rest = body[:4] + rest[:size - 4], rest[size - 4:]
        except _Refused as refused:
            return bytes(data), done, refused.status

    @staticmethod
    def _fields(body: bytes, size: int) -> None:
        if len(body) < size:
            raise _Refused(Status.LENGTH)

    def _move(self, kind: Kind, n: int, source: int, target: int, rest: bytes, data: bytearray) -> bytes:
        """Cut into bursts within 16 beats at either end. Returns the bytes of the frame that are left."""
        beat = self.beat
        reads, writes = kind in (Kind.READ, Kind.GATHER), kind != Kind.READ
        if kind in (Kind.READ, Kind.WRITE):
            if not 1 <= n <= MAX_DATA:
                raise _Refused(Status.LENGTH)
        elif n % beat or target % beat or (kind == Kind.GATHER and source % beat):
            raise _Refused(Status.ALIGNMENT)
        value = source & 0xFF
        while n:
            ends = ([source] if reads else []) + ([target] if writes else [])
            if any(end & ~(self.memory_bytes - 1) != self.memory_base for end in ends):
                raise _Refused(Status.ADDRESS)
            size = min([n] + [_CHUNK_BEATS * beat - end % (_CHUNK_BEATS * beat) for end in ends])
            if not self.backend.may_fail and all(end + n <= self.memory_base + self.memory_bytes for end in ends):
                size = n
            got = self._read(source, size) if reads else b""
            if got is None:
                raise _Refused(Status.READ_RESPONSE)
            if kind == Kind.READ:
                data += got
            else:
                if kind == Kind.WRITE:
                    got, rest = rest[:size], rest[size:]
                    if len(got) < size:
                        raise _Refused(Status.LENGTH)
                elif kind == Kind.FILL:
                    got = bytes([value]) * size
                if not self._write(target, got):
                    raise _Refused(Status.WRITE_RESPONSE)
            n, source, target = n - size, (source + size) & 0xFFFFFFFF, (target + size) & 0xFFFFFFFF
        return rest

    def _beats(self, address: int, n: int) -> list[tuple[int, int]]:
        """Address and bytes within each beat."""
        if not self.backend.may_fail:
            return [(address, n)]
        found = []
        while n:
            size = min(n, self.beat - address % self.beat)
            found.append((address, size))
            address, n = address + size, n - size
        return found

    def _read(self, address: int, n: int) -> bytes | None:
        pieces = [self.backend.memory_read(*beat) for beat in self._beats(address, n)]
        return None if any(piece is None for piece in pieces) else b"".join(piece or b"" for piece in pieces)

    def _write(self, address: int, data: bytes) -> bool:
        return all([self.backend.memory_write(at, data[at - address:at - address + size])
                    for at, size in self._beats(address, len(data))])

    def _script(self, body: bytes) -> tuple[bytes, int, Status]:
        answer, done = bytearray(), 0
        while body:
            if done == MAX_ENTRIES or len(body) < 2:
                return bytes(answer), done, Status.LENGTH
            entry = int.from_bytes(body[:2], "little")
            address, access = (entry & 0x3FFF) << 2, entry >> 14
            words = {Access.READ: 0, Access.WRITE: 1, Access.POLL: 3}.get(access)  # type: ignore[call-overload]
            if words is None:
                return bytes(answer), done, Status.ENTRY
            if len(body) < 2 + 4 * words:
                return bytes(answer), done, Status.LENGTH
            values = [int.from_bytes(body[2 + 4 * k:6 + 4 * k], "little") for k in range(words)]
            body = body[2 + 4 * words:]
            if access == Access.WRITE:
                if not self._register_write(address, values[0]):
                    return bytes(answer), done, Status.REGISTER
            else:
                mask, wanted, limit = values if access == Access.POLL else (0, 0, 0)
                differs = True
                for _ in range((limit & 0xFFFF) + 1):
                    value = self._register_read(address)
                    if value is None:
                        return bytes(answer), done, Status.REGISTER
                    last, differs = value, bool((value ^ wanted) & mask)
                    if not differs:
                        break
                answer += last.to_bytes(4, "little")
                if differs:
                    return bytes(answer), done, Status.POLL
            done += 1
        return bytes(answer), done, Status.OK if done else Status.LENGTH

    def _register_write(self, address: int, value: int) -> bool:
        if address < LINK_WINDOW:
            return self.backend.register_write(address, value)
        if not address & 4:
            self._wanted = value & 0xFFFF
        return True

    def _register_read(self, address: int) -> int | None:
        if address < LINK_WINDOW:
            return self.backend.register_read(address)
        return sum((count & 0xFF) << 8 * place for place, count in enumerate(self._faults)) if address & 4 else self.step
