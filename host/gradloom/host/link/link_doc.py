"""``python -m gradloom.host.link.link_doc``: the page about the cable, tables from :mod:`gradloom.contracts.frame_format`."""

import sys
from collections.abc import Iterator, Sequence

from gradloom.contracts.frame_format import (
    ANSWER_HEADER,
    ANSWER_TRAILER,
    BOARD_WINDOW,
    ENTRIES,
    ESCAPE,
    FIELDS_OF,
    FLAG,
    IDENTITY,
    LINK_REGISTERS,
    LINK_WINDOW,
    MAX_DATA,
    MAX_ENTRIES,
    MAX_UNANSWERED,
    MEMORY_FIELDS,
    PROTOCOL,
    REQUEST_HEADER,
    RING_BYTES,
    STATE_FIELDS,
    STATUS_DOCS,
    UNNUMBERED,
    Field,
    Kind,
    Reply,
)

__all__ = ["text"]

_INTRODUCTION = f"""\
# The cable between host and board

This page is made by `python -m gradloom.host.link.link_doc`; edit that module and the tables of
`gradloom.contracts.frame_format`, not this file. It describes version {PROTOCOL}. Nothing of it was tried on hardware yet:
every figure is simulated, synthesised or computed.

A board has the machine, its memory, and the *link* (`rtl/gradloom/rtl/board/link`): it takes frames from a stream of bytes, and
reads and writes memory and registers as they ask. The host's side is `host/gradloom/host/link`; `BoardDevice` there is a device
like the simulated machine, so the same runner trains on either. Bytes go through a UART (`UartLink`), or by any other way that
carries them: `BoardLink` has two streams of bytes and no pins, and in simulation bytes go in behind the UART.

## Frames

A frame lies between two flags ({FLAG:#04x}). Flag and escape ({ESCAPE:#04x}) inside it are sent as {ESCAPE:#04x} and the byte with
bit 5 turned (RFC 1662). It ends with the FCS, CRC-32, low byte first. Numbers are little-endian. What is no frame, is cut short or
has another FCS changes nothing; the next flag begins anew.
"""

_SESSIONS = f"""\
## Sessions

The board executes a request if, and only if, its FCS is good, it is of the open session, it has the number that is expected next,
and there is room for it in the ring of requests ({RING_BYTES} bytes). It is then executed once. Requests are executed in their
order, one after the other, so nothing overtakes anything. Every request gets one answer. Answers and interrupts are numbered, too,
and stay in a second ring ({RING_BYTES} bytes) until the host has acknowledged them by `ack`, which every frame of the host carries.

- **Lost or broken frames.** The host notices silence, or an answer whose number is too high, and sends SYNC. The board tells in
  STATE which request it expects and sends all answers again that are not acknowledged; the host sends its requests again from there
  on. Only SYNC makes either side repeat anything.
- **Doubled and late frames.** A request that comes again has a number that is not expected any more. At most {MAX_UNANSWERED}
  requests are unanswered, so a frame that is late by fewer than {256 - MAX_UNANSWERED} numbers is told from a new one. A late `ack`
  lies outside of what is kept and is ignored. STATE carries the tag of the SYNC that asked, so a late one is ignored, too.
- **Window.** The host has at most {MAX_UNANSWERED} requests and the bytes of the ring less 32 unanswered; so the board always has
  room. The board begins a request only while less than half of the ring of answers is in use; the host acknowledges without
  asking anything (ACK) after 400 bytes.
- **A new session.** HELLO proposes a number; the board answers WELCOME with a token; OPEN must bring back both. A late HELLO or
  OPEN of an older session brings another number or token and opens nothing. While a session opens, the board takes no frame, ends
  what runs at the next burst or poll, and forgets all requests and answers of the old one. A request of another session is refused.
- **Reset of the board.** It has no session then: it refuses every request, and says so in STATE. The host raises `LinkError`: what
  was not answered was done or not, the first requests first. Nothing is sent again in a new session.
- **Reset of the host.** The new host opens a session; requests of the old one that were complete on the board may be done until
  then.

A write is applied in bursts of at most 16 beats, so one that fails (an address behind the end of memory, an error of the memory, a
length that is not that of the frame) may have written what lies before.

An interrupt is told when the machine's line rises, and when a session opens while it is high.
"""

_COSTS = f"""\
## What it costs

A frame costs 2 flags, 4 bytes of header (the board's 3) and 4 of FCS, and one more byte for each flag or escape in it (on random
data one in 128). A write of {MAX_DATA} bytes: {MAX_DATA + 12 + 10} bytes there, 11 back; a read: 22 there, {MAX_DATA + 11} back. At
3 Mbaud (10 bits a byte) that is 290 kB/s in either direction (computed), if the adapter's delay is shorter than the bytes of the
ring take, 6.7 ms. FTDI's latency timer is 16 ms unless it is set; then less than half of that is left.

| use | round trips |
|---|---|
| writes of memory and registers, fill, gather | none: their answers are looked at when the host next waits |
| read of memory of any length | one |
| register, or a script of up to {MAX_ENTRIES} accesses and about 1000 bytes | one |
| exponents of a network; all counters by layer and phase | one each: several scripts follow each other |
| start of a program with all writes before it | one |
| its end | none: the board tells it |
| registers, exponents, logits of all steps and the state behind a start | one, together |
| a start of training as `gradloom train` makes it, with the counters of every layer and phase | three |
| a batch of an evaluation | two |

Programs stay in the board's memory; of one that is there the next start writes the 4 bytes that name its first step. The forward
pass of an evaluation reads the weights where training left them. An image travels once, to behind the memory that the machine may
touch, and batches are gathered from there; those of the next start while the machine computes (START is sent at once, images
behind it). The last part of that memory, as large as the images of a start, keeps none: when a data set is larger than the rest,
what comes ahead passes through it, and is gathered before it is needed. So a data set of any size costs its cable's time only
where the machine is faster than the cable.

In a script a read takes 2 bytes there and 4 back, a write 6, a poll 14 and 4. A batch that lies in the board's memory as part of a
data set costs 8 bytes an image (GATHER) instead of the image.

The link for the machine `nano` (beats of 2 bytes) with its UART takes 1347 LUT4, 189 CCU2C, 646 flip-flops, 2 DP16KD and 4
DPR16X4 (synthesised, Yosys 0.70, `synth_ecp5`, flat): 1725 LUT by the count of [synthesis](synthesis.md), half of them in `Bridge`.

Its UART samples the middle of each bit, found to a clock; a bit lasts at least 8 clocks, so 3 Mbaud need 24 MHz. A sender may be
2 % off (simulated, at 8.3 clocks a bit).
"""


def _table(fields: Sequence[Field]) -> Iterator[str]:
    yield "| field | bytes | |"
    yield "|---|---|---|"
    yield from (f"| {field.name} | {field.size} | {field.doc} |" for field in fields)
    yield ""


def _codes(title: str, rows: Iterator[tuple[int, str, str]]) -> Iterator[str]:
    yield f"| code | {title} | |"
    yield "|---|---|---|"
    yield from (f"| {code:#04x} | {name} | {doc} |" for code, name, doc in rows)
    yield ""


_REPLIES = {
    Reply.ANSWER: "data, then the trailer",
    Reply.INTERRUPT: "4 bytes of STATUS, then the trailer",
    Reply.WELCOME: "the identity; `number` is the token",
    Reply.STATE: "where the board is; `number` is the request that it expects",
}


def text() -> str:
    """The page."""
    lines = [_INTRODUCTION, "Header of the host's frames:", "", *_table(REQUEST_HEADER), "Header of the board's frames:", "",
             *_table(ANSWER_HEADER)]
    lines += ["Trailer of answers and interrupts:", "", *_table(ANSWER_TRAILER)]
    lines += ["## Requests", "", f"Kinds from {UNNUMBERED:#04x} on have no number and are not kept.", ""]
    lines += _codes("request", ((kind, kind.name, FIELDS_OF[kind]) for kind in Kind))
    lines += ["READ, WRITE, FILL:", "", *_table(MEMORY_FIELDS),
              "GATHER has `bytes` once, and `source` and `target` for each piece.", "",
              "An entry of SCRIPT is a 16-bit word, bits 15:14 the access and bits 13:0 the register's byte address divided by 4,"
              " and words of 4 bytes:", "", "| bits 15:14 | access | words | |", "|---|---|---|---|"]
    lines += [f"| {int(access)} | {access.name} | {entry.words} | {entry.doc} |" for access, entry in ENTRIES.items()]
    lines += ["", f"Registers below {BOARD_WINDOW:#06x} are the machine's ([register map](registers.md)), those from there on the"
              f" board's, and from {LINK_WINDOW:#06x} on the link's:", "", "| offset | register | access | |", "|---|---|---|---|"]
    lines += [f"| {register.offset:#x} | {register.name} | {register.access} | {register.doc} |" for register in LINK_REGISTERS]
    lines += ["", "## Replies", ""]
    lines += _codes("reply", ((reply, reply.name, doc) for reply, doc in _REPLIES.items()))
    lines += _codes("status", ((status, status.name, doc) for status, doc in STATUS_DOCS.items()))
    lines += ["WELCOME:", "", *_table(IDENTITY), "STATE:", "", *_table(STATE_FIELDS), _SESSIONS, _COSTS.rstrip("\n")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
