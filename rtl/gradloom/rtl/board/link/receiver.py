"""From bytes to frames whose FCS is good, and the ring in which requests wait."""

import itertools

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gradloom.contracts.frame_format import ESCAPE, ESCAPE_BIT, FCS_BYTES, FLAG, REQUEST_HEADER, RING_BYTES
from gradloom.rtl.board.link.crc32 import GOOD, Crc32

__all__ = ["RING_BITS", "RING_WORD", "FrameReceiver", "RequestRing"]

RING_BITS = exact_log2(RING_BYTES)
RING_WORD = StructLayout({"data": 8, "last": 1})
"""A byte in a ring; ``last`` marks the end of a frame."""

_BEHIND = FCS_BYTES + 1
"""Bytes that are held back: a flag shows that the last four were the FCS, and the one before the end of the contents."""
_SHORTEST = len(REQUEST_HEADER) + FCS_BYTES


class FrameReceiver(wiring.Component):
    """Finds frames in bytes, takes back their stuffing and checks their FCS.

    Finds its feet again at the next flag, whatever came before.

    Members
    -------
    i : ``In(stream.Signature(8))``
        Waits while ``hold``.
    hold : ``In(1)``
    error : ``In(1)``
        A byte was lost: the frame around it is none.
    session, number, ack, kind : ``Out(8)``
        Header of the frame; valid with ``good``.
    good : ``Out(1)``
        One cycle: a frame has ended whose FCS is good.
    bad : ``Out(1)``
        One cycle: something else has.
    data : ``Out(8)``, write : ``Out(1)``, last : ``Out(1)``
        Bytes of the frame from its kind on, before it is known whether it is good; the ``last`` one comes with ``good``.
    """

    def __init__(self) -> None:
        super().__init__({
            "i": In(stream.Signature(8)), "hold": In(1), "error": In(1),
            **{field.name: Out(8) for field in REQUEST_HEADER},
            "good": Out(1), "bad": Out(1), "data": Out(8), "write": Out(1), "last": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = Crc32()
        byte = self.i.payload
        taken, flag, escape, content = (Signal(name=name) for name in ("taken", "flag", "escape", "content"))
        escaped = Signal()
        broken = Signal()
        plain = Signal(8)
        m.d.comb += [
            self.i.ready.eq(~self.hold), taken.eq(self.i.valid & ~self.hold),
            flag.eq(byte == FLAG), escape.eq(byte == ESCAPE),
            content.eq(taken & ~flag & ~escape),
            plain.eq(Cat(byte[:5], byte[5] ^ escaped, byte[6:])),
            crc.byte.eq(plain), crc.enable.eq(content), crc.clear.eq(taken & flag),
        ]
        assert ESCAPE_BIT == 1 << 5

        count = Signal(range(_SHORTEST + 1))  # bytes so far, no further than that of the shortest frame
        held = [Signal(8, name=f"held{n}") for n in range(_BEHIND)]
        with m.If(content):
            m.d.sync += [held[0].eq(plain), *(later.eq(earlier) for earlier, later in itertools.pairwise(held))]
            with m.If(count != _SHORTEST):
                m.d.sync += count.eq(count + 1)
            for n, field in enumerate(REQUEST_HEADER):
                with m.If(count == n):
                    m.d.sync += getattr(self, field.name).eq(plain)
        with m.If(taken):
            m.d.sync += escaped.eq(escape)
        with m.If(self.error | (taken & escape & escaped)):
            m.d.sync += broken.eq(1)

        whole = Signal()
        m.d.comb += [
            whole.eq((count == _SHORTEST) & ~broken & ~escaped & (crc.state == GOOD)),
            self.good.eq(taken & flag & whole),
            self.bad.eq(taken & flag & ~whole & ((count != 0) | escaped)),
            self.data.eq(held[-1]), self.last.eq(self.good),
            self.write.eq((count == _SHORTEST) & (content | self.good)),
        ]
        with m.If(taken & flag):
            m.d.sync += [count.eq(0), escaped.eq(0), broken.eq(0)]
        return m


class RequestRing(wiring.Component):
    """Holds requests until they are executed; a frame is in it when it is kept, and leaves no trace when it is not.

    Members
    -------
    data : ``In(8)``, write : ``In(1)``, last : ``In(1)``
        Next byte of a frame that is not yet kept.
    keep, drop : ``In(1)``
        With the ``last`` byte: keep the frame; or forget it.
    full : ``Out(1)``
        The frame does not fit: it cannot be kept. Counts the byte of this cycle.
    o : ``Out(stream.Signature(RING_WORD))``
        Frames that were kept, a byte a cycle.
    clear : ``In(1)``
        Empty.
    """

    def __init__(self) -> None:
        super().__init__({"data": In(8), "write": In(1), "last": In(1), "keep": In(1), "drop": In(1), "full": Out(1),
                          "o": Out(stream.Signature(RING_WORD)), "clear": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=RING_WORD, depth=RING_BYTES, init=[])
        put, get = memory.write_port(), memory.read_port()
        write_at, kept, read_at = Signal(RING_BITS), Signal(RING_BITS), Signal(RING_BITS)
        behind, following = Signal(RING_BITS), Signal(RING_BITS)
        over = Signal()
        m.d.comb += [
            behind.eq(write_at + 1),
            self.full.eq(over | (self.write & (behind == read_at))),
            put.en.eq(self.write & ~self.full), put.addr.eq(write_at), put.data.data.eq(self.data), put.data.last.eq(self.last),
            following.eq(read_at + (self.o.valid & self.o.ready)),
            # Never in one cycle, so that the block RAM needs no logic for a collision.
            get.addr.eq(following), get.en.eq(~put.en), self.o.payload.eq(get.data),
        ]
        with m.If(self.write):
            m.d.sync += [write_at.eq(behind), over.eq(self.full)]
        with m.If(self.keep):
            m.d.sync += [kept.eq(behind), over.eq(0)]
        with m.If(self.drop):
            m.d.sync += [write_at.eq(kept), over.eq(0)]
        m.d.sync += [read_at.eq(following),
                     self.o.valid.eq(Mux(put.en, self.o.valid & ~self.o.ready, following != kept))]
        with m.If(self.clear):
            m.d.sync += [write_at.eq(0), kept.eq(0), read_at.eq(0), over.eq(0), self.o.valid.eq(0)]
        return m
