"""Frames to bytes and back (:mod:`gradloom.contracts.frame_format`)."""

import dataclasses
import zlib
from collections.abc import Iterator, Sequence

from gradloom.contracts.frame_format import (
    ANSWER_HEADER,
    ESCAPE,
    ESCAPE_BIT,
    FCS_BYTES,
    FLAG,
    IDENTITY,
    MAX_DATA,
    MEMORY_FIELDS,
    Access,
    Field,
    Kind,
    entry_word,
)

__all__ = ["FrameReader", "Identity", "ReceivedFrame", "RegisterAccess", "encode", "fill_request", "gather_request", "pack", "poll",
           "read", "read_request", "script_request", "unpack", "write", "write_request"]

_FLAG = bytes([FLAG])
_STUFFED = {byte: bytes([ESCAPE, byte ^ ESCAPE_BIT]) for byte in (FLAG, ESCAPE)}


def encode(content: bytes) -> bytes:
    """A frame on the line: flag, content and its FCS with their stuffing, flag."""
    inside = content + zlib.crc32(content).to_bytes(FCS_BYTES, "little")
    inside = inside.replace(bytes([ESCAPE]), _STUFFED[ESCAPE]).replace(_FLAG, _STUFFED[FLAG])
    return _FLAG + inside + _FLAG


class FrameReader:
    """Finds frames in a stream of bytes, whatever else is in it."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._escaped = False
        self._broken = False
        self.bad = 0
        """Pieces between flags that were no frame."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Contents, without FCS, of the frames that these bytes complete."""
        for byte in data:
            if byte == FLAG:
                content, broken = bytes(self._content), self._broken or self._escaped
                touched = bool(content) or self._escaped
                self._content.clear()
                self._escaped = self._broken = False
                if not touched:
                    continue
                body, fcs = content[:-FCS_BYTES], content[-FCS_BYTES:]
                if broken or len(body) < 1 or zlib.crc32(body).to_bytes(FCS_BYTES, "little") != fcs:
                    self.bad += 1
                else:
                    yield body
            elif byte == ESCAPE:
                self._broken |= self._escaped
                self._escaped = True
            else:
                self._content.append(byte ^ ESCAPE_BIT if self._escaped else byte)
                self._escaped = False


def pack(fields: Sequence[Field], **values: int) -> bytes:
    """Bytes of these fields, all of which must be given."""
    if set(values) != {field.name for field in fields}:
        raise ValueError(f"fields are {', '.join(field.name for field in fields)}, not {', '.join(values)}")
    return b"".join(values[field.name].to_bytes(field.size, "little") for field in fields)


def unpack(fields: Sequence[Field], data: bytes) -> dict[str, int]:
    """Values of the fields at the beginning of ``data``."""
    values, place = {}, 0
    for field in fields:
        values[field.name] = int.from_bytes(data[place:place + field.size], "little")
        place += field.size
    return values


@dataclasses.dataclass(frozen=True)
class ReceivedFrame:
    """A frame of the board."""

    session: int
    number: int
    kind: int
    body: bytes

    @classmethod
    def parse(cls, content: bytes) -> "ReceivedFrame | None":
        """:class:`None` if the frame is too short to have a header."""
        size = sum(field.size for field in ANSWER_HEADER)
        if len(content) < size:
            return None
        return cls(**unpack(ANSWER_HEADER, content), body=content[size:])


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a board says of itself."""

    protocol: int
    beat_bytes: int
    data_bytes: int
    ring_bytes: int
    board: str
    config: int
    memory_base: int
    memory_bytes: int
    clock: int
    build: int

    @classmethod
    def parse(cls, body: bytes) -> "Identity | None":
        """:class:`None` if the body is none of this protocol."""
        if len(body) != sum(field.size for field in IDENTITY):
            return None
        values = unpack(IDENTITY, body)
        board = values.pop("board").to_bytes(4, "little").decode("ascii", "replace")
        return cls(**values | {"memory_bytes": values["memory_bytes"] or 1 << 32}, board=board)


# Requests: kind and body.

def _memory(kind: Kind, n: int, source: int, target: int) -> bytes:
    return bytes([kind]) + pack(MEMORY_FIELDS, bytes=n, source=source, target=target)


def read_request(address: int, n: int) -> bytes:
    """Read ``n`` bytes, 1 to :data:`MAX_DATA`."""
    if not 1 <= n <= MAX_DATA:
        raise ValueError(f"one frame reads 1 to {MAX_DATA} bytes, not {n}")
    return _memory(Kind.READ, n, address, 0)


def write_request(address: int, data: bytes) -> bytes:
    """Write 1 to :data:`MAX_DATA` bytes."""
    if not 1 <= len(data) <= MAX_DATA:
        raise ValueError(f"one frame writes 1 to {MAX_DATA} bytes, not {len(data)}")
    return _memory(Kind.WRITE, len(data), 0, address) + data


def fill_request(address: int, n: int, value: int = 0) -> bytes:
    """Set ``n`` bytes to ``value``; address and ``n`` are multiples of the beat."""
    return _memory(Kind.FILL, n, value, address)


def gather_request(n: int, pieces: Sequence[tuple[int, int]]) -> bytes:
    """Copy ``n`` bytes from the first to the second address of each piece, in order; all are multiples of the beat."""
    return bytes([Kind.GATHER]) + n.to_bytes(4, "little") + b"".join(
        source.to_bytes(4, "little") + target.to_bytes(4, "little") for source, target in pieces)


@dataclasses.dataclass(frozen=True)
class RegisterAccess:
    """One entry of a script: ``words`` are the value, or mask, wanted value and limit of a poll."""

    access: Access
    address: int
    words: tuple[int, ...] = ()

    @property
    def answers(self) -> bool:
        """Whether it has a value in the answer."""
        return self.access != Access.WRITE

    def encode(self) -> bytes:
        return entry_word(self.access, self.address).to_bytes(2, "little") + b"".join(
            word.to_bytes(4, "little") for word in self.words)


def read(address: int) -> RegisterAccess:
    """Read a register."""
    return RegisterAccess(Access.READ, address)


def write(address: int, value: int) -> RegisterAccess:
    """Write a register; what does not fit 32 bits is cut off."""
    return RegisterAccess(Access.WRITE, address, (value & 0xFFFFFFFF,))


def poll(address: int, mask: int, wanted: int, limit: int) -> RegisterAccess:
    """Read a register until ``(value & mask) == wanted``, at most ``limit`` + 1 times (limit below 65536)."""
    if not 0 <= limit < 1 << 16:
        raise ValueError(f"the limit of a poll must lie in 0..65535, not {limit}")
    return RegisterAccess(Access.POLL, address, (mask, wanted, limit))


def script_request(accesses: Sequence[RegisterAccess]) -> bytes:
    """Do these accesses, in order."""
    return bytes([Kind.SCRIPT]) + b"".join(access.encode() for access in accesses)
