"""The frames on the cable between host and board, declared once.

The bridge on the board, the host's driver, the model of the board that checks both, and ``docs/link.md`` all read these tables.

On the line a frame lies between two flags. Inside it the flag and the escape are sent as the escape and the byte with bit 5
turned (RFC 1662, section 4.2); the frame ends with the 32-bit FCS of its bytes (section C.3: CRC-32), low byte first. All numbers
are little-endian. The rules of a session are in ``docs/link.md``.
"""

import dataclasses
import enum

__all__ = ["ACCESS_BYTES", "ANSWER_HEADER", "ANSWER_TRAILER", "BITS_OF_BYTE", "BOARD_WINDOW", "ENTRIES", "ESCAPE", "ESCAPE_BIT",
           "FCS_BYTES", "FIELDS_OF", "FIRST_BAUD", "FLAG", "IDENTITY", "LINK_REGISTERS", "LINK_WINDOW", "MAX_DATA",
           "MAX_ENTRIES", "MAX_UNANSWERED", "MEMORY_FIELDS", "PROTOCOL", "REQUEST_HEADER", "RING_BYTES", "STATE_FIELDS",
           "STATUS_DOCS", "STEP_BITS", "UNNUMBERED", "Access", "Entry", "Field", "Kind", "LinkRegister", "Reply", "Status",
           "bit_step", "entry_word"]

PROTOCOL = 1
"""Version of everything in this file."""

STEP_BITS = 16
"""Of the share of a bit that passes in a clock (:func:`bit_step`)."""
_MOST_STEP = (1 << STEP_BITS) // 8
"""Fewer than eight clocks a bit leave no room for the half clock of doubt at each of its edges."""

FLAG, ESCAPE, ESCAPE_BIT = 0x7E, 0x7D, 0x20
FCS_BYTES = 4

RING_BYTES = 2048
"""Bytes of the board's buffer of requests, and of that of answers."""
BITS_OF_BYTE = 10
"""Of a byte on the line: start bit, eight of data, stop bit."""
FIRST_BAUD = 115_200
"""Bits a second at which a board's UART begins, and to which a break on the line brings it back."""
MAX_DATA = 992
"""Most bytes of memory in one frame."""
MAX_ENTRIES = 250
"""Most register accesses of one script."""
MAX_UNANSWERED = 64
"""Most requests that the host has sent and that are not answered. A frame that comes late by fewer than 256 less this many
numbers is known for an old one."""


def bit_step(baud: int, clock: int) -> int:
    """A rate of the line as the UARTs take it: 65536 * ``baud`` / ``clock``.

    Raises
    ------
    :exc:`ValueError`
        If the clock is too slow or too fast for it.
    """
    step = round((1 << STEP_BITS) * baud / clock)
    if not 16 <= step <= _MOST_STEP:
        raise ValueError(f"a bit must last 8 to 4096 clocks, at {baud} baud and {clock} Hz it lasts {clock / baud:.1f}")
    return step


@dataclasses.dataclass(frozen=True)
class Field:
    """``size`` bytes of a frame."""

    name: str
    size: int
    doc: str


REQUEST_HEADER = (
    Field("session", 1, "number of the session, chosen by the host"),
    Field("number", 1, "counts the requests of a session from 0, modulo 256"),
    Field("ack", 1, "number of the answer that the host expects next: it has all before"),
    Field("kind", 1, "what is asked (Kind)"),
)
ANSWER_HEADER = (
    Field("session", 1, "of the request"),
    Field("number", 1, "counts the answers and interrupts of a session from 0, modulo 256"),
    Field("kind", 1, "what is told (Reply)"),
)
ANSWER_TRAILER = (
    Field("entries", 1, "script: accesses that were done; gather: pieces that were copied"),
    Field("status", 1, "how it went (Status)"),
)


class Kind(enum.IntEnum):
    """What the host asks. Requests from UNNUMBERED on have no number: they are answered at once, or not at all."""

    READ = 0x01
    WRITE = 0x02
    FILL = 0x03
    GATHER = 0x04
    SCRIPT = 0x05
    HELLO = 0x80
    OPEN = 0x81
    SYNC = 0x82
    ACK = 0x83


UNNUMBERED = 0x80


class Reply(enum.IntEnum):
    """What the board tells. Replies from UNNUMBERED on have no number of their own."""

    ANSWER = 0x01
    INTERRUPT = 0x02
    WELCOME = 0x80
    STATE = 0x81


class Status(enum.IntEnum):
    """Last byte of an answer."""

    OK = 0
    OPERATION = 1
    LENGTH = 2
    ADDRESS = 3
    ALIGNMENT = 4
    READ_RESPONSE = 5
    WRITE_RESPONSE = 6
    REGISTER = 7
    POLL = 8
    ENTRY = 9
    STOPPED = 10


STATUS_DOCS: dict[Status, str] = {
    Status.OK: "done",
    Status.OPERATION: "the board knows no such request",
    Status.LENGTH: "the frame is shorter or longer than its contents, or asks for more than a frame holds",
    Status.ADDRESS: "an address outside the board's memory; nothing from there on was touched",
    Status.ALIGNMENT: "fill or gather: an address or a length is no multiple of the beat",
    Status.READ_RESPONSE: "the memory answered a read with an error",
    Status.WRITE_RESPONSE: "the memory answered a write with an error",
    Status.REGISTER: "a register refused an access",
    Status.POLL: "a register did not get the wanted value",
    Status.ENTRY: "a script has an entry of unknown kind",
    Status.STOPPED: "a new session stopped it",
}

MEMORY_FIELDS = (
    Field("bytes", 4, "bytes to move"),
    Field("source", 4, "read: byte address; fill: bits 7:0 are the value of every byte; write: 0"),
    Field("target", 4, "write, fill: byte address; read: 0"),
)
"""After the header of READ, WRITE (then the bytes) and FILL. GATHER: ``bytes``, then ``source`` and ``target`` of every piece."""

FIELDS_OF: dict[Kind, str] = {
    Kind.READ: f"`bytes` (1 to {MAX_DATA}), `source`, `target`; the answer holds the bytes",
    Kind.WRITE: f"`bytes` (1 to {MAX_DATA}), `source`, `target`, the bytes",
    Kind.FILL: "`bytes`, `source`, `target`; any length that is a multiple of the beat",
    Kind.GATHER: "`bytes` of a piece, then `source` and `target` of each piece: memory is copied to memory",
    Kind.SCRIPT: "register accesses; the answer holds 4 bytes for each read and each poll",
    Kind.HELLO: "nothing; `session` proposes a session",
    Kind.OPEN: "nothing; `session` is that of HELLO, `number` that of the WELCOME",
    Kind.SYNC: "nothing; `number` is a tag that comes back",
    Kind.ACK: "nothing: only tells `ack`",
}


class Access(enum.IntEnum):
    """Bits 15:14 of an entry of a script."""

    READ = 1
    WRITE = 2
    POLL = 3


@dataclasses.dataclass(frozen=True)
class Entry:
    """One kind of entry: ``words`` words of 4 bytes follow the entry's 2 bytes."""

    words: int
    doc: str


ACCESS_BYTES = 2
ENTRIES: dict[Access, Entry] = {
    Access.READ: Entry(0, "answers the register's value"),
    Access.WRITE: Entry(1, "value"),
    Access.POLL: Entry(3, "mask, wanted, limit: reads until (value & mask) = wanted, at most limit + 1 times (16 bits);"
                          " answers the last value"),
}

BOARD_WINDOW = 0x8000
"""Registers from this byte address on are the board's (its memory's self-test); those below are the machine's."""
LINK_WINDOW = 0xC000
"""Registers from here on are the link's own."""


@dataclasses.dataclass(frozen=True)
class LinkRegister:
    """A register of the link at ``LINK_WINDOW + offset``."""

    name: str
    offset: int
    access: str
    doc: str


LINK_REGISTERS = (
    LinkRegister("BAUD", 0x0, "read, write",
                 "bits 15:0: 65536 * baud / clock; a new one is taken when its answer has left, and read from then on; a break"
                 " brings back the first one"),
    LinkRegister("FAULTS", 0x4, "read",
                 "four counters modulo 256, low byte first: frames with a wrong FCS or cut short, requests out of order or of"
                 " another session, requests without room, bytes with a wrong stop bit"),
)


def entry_word(access: Access, address: int) -> int:
    """The 16 bits of an entry for a register at a byte address.

    Raises
    ------
    :exc:`ValueError`
        If there is no such address.
    """
    if address % 4 or not 0 <= address < 1 << 16:
        raise ValueError(f"a register's address must be a multiple of 4 below 65536, not {address:#x}")
    return int(access) << 14 | address >> 2


STATE_FIELDS = (
    Field("open", 1, "1 if a session is open, that of the header; `number` is the request that is expected next"),
    Field("tag", 1, "`number` of the SYNC or OPEN that asked"),
)
"""Body of STATE."""

IDENTITY = (
    Field("protocol", 1, "version of the protocol"),
    Field("beat_bytes", 1, "bytes of a beat"),
    Field("data_bytes", 2, "most bytes of memory in one frame"),
    Field("ring_bytes", 2, "bytes of either ring"),
    Field("board", 4, "which board: four letters"),
    Field("config", 4, "digest of the machine's configuration (register CONFIG)"),
    Field("memory_base", 4, "first byte of memory"),
    Field("memory_bytes", 4, "bytes of memory (0: 4 GiB)"),
    Field("clock", 4, "clock in Hz"),
    Field("build", 8, "hash of what the board was built from"),
)
"""Body of WELCOME; `number` is the token that OPEN must bring back."""
