"""Specifications of the cable's gate: what the board executes."""

import types

from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.frame_format import ESCAPE, FCS_BYTES, FLAG, REQUEST_HEADER, UNNUMBERED, Kind
from gradloom.rtl.board.link import receiver, session
from gradloom.verif.formal.inside import add_opened

__all__ = ["FrameSpec", "SessionSpec"]

_SHORTEST = len(REQUEST_HEADER) + FCS_BYTES


class SessionSpec(wiring.Component):
    """A request is kept if and only if its frame is good, a session is open and the frame's, its number is that of the requests
    kept in this session, and it fits; a session begins only when OPEN brought back what the latest WELCOME told.

    ``prove`` over 2 cycles covers every state.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a second request is kept in a second session.
    """

    def __init__(self, design: types.ModuleType = session, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({**{field.name: In(8) for field in REQUEST_HEADER}, "good": In(1), "full": In(1), "quiet": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dut = self.design.Session()
        waiting, = add_opened(m, platform, dut, "offered")
        for name in self.signature.members:
            m.d.comb += getattr(dut, name).eq(getattr(self, name))
        m.d.comb += [Assume(~ResetSignal()), Assume(~(dut.opening & self.good))]  # the receiver holds frames back meanwhile

        begun, kept = Signal(), Signal(8)
        current, offer, token = Signal(8), Signal(8), Signal(8)
        offered, promised = Signal(), Signal()
        request = self.good & (self.kind < UNNUMBERED)
        mine = begun & (self.session == current)
        wanted = request & mine & (self.number == kept) & ~self.full
        with m.If(dut.keep):
            m.d.sync += kept.eq(kept + 1)
        with m.If(self.good & (self.kind == Kind.HELLO)):
            m.d.sync += [offer.eq(self.session), token.eq(token + 1), offered.eq(1)]
        with m.If(self.good & (self.kind == Kind.OPEN) & offered & (self.session == offer) & (self.number == token)):
            m.d.sync += [promised.eq(1), offered.eq(0)]
        with m.If(dut.begin):
            m.d.sync += [begun.eq(1), current.eq(offer), kept.eq(0), promised.eq(0)]
        if not self.cover:
            m.d.comb += [
                # The twins of the state; without them induction begins anywhere.
                Assert((dut.open == begun) & (dut.expected == kept) & (dut.opening == promised) & (dut.token == token)),
                Assert(~begun | (dut.current == current)), Assert(waiting == offered),
                Assert(~(offered | promised) | (dut.proposed == offer)),
                Assert(dut.keep == wanted), Assert(dut.begin == (promised & self.quiet)),
                Assert(~dut.acknowledge | (self.good & mine)), Assert(~dut.again | (self.good & mine & (self.kind == Kind.SYNC))),
                Assert((dut.keep + dut.refused + dut.crowded) == request),
            ]
        sessions, second = Signal(2), Signal()
        m.d.sync += [sessions.eq(sessions + dut.begin), second.eq(second | (dut.keep & (sessions == 1)))]
        if self.cover:
            m.d.comb += Cover(dut.keep & (sessions == 2) & (kept == 1) & second)
        return m


class FrameSpec(wiring.Component):
    """A frame is good if and only if it is long enough, no byte of it was lost, its escapes are followed by a byte, and its FCS is
    that of the bit-serial shift register of CRC-32; its header is the first four bytes.

    ``prove`` over 2 cycles covers every state.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a piece between flags that is no frame, with an escape in it (no solver finds a FCS).
    """

    def __init__(self, design: types.ModuleType = receiver, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"byte": In(8), "valid": In(1), "hold": In(1), "error": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dut = self.design.FrameReceiver()
        crc, count, inside, broken = add_opened(m, platform, dut, "crc.state", "count", "escaped", "broken")
        m.d.comb += [dut.i.payload.eq(self.byte), dut.i.valid.eq(self.valid), dut.hold.eq(self.hold), dut.error.eq(self.error),
                     Assume(~ResetSignal())]
        taken = self.valid & dut.i.ready
        flag, escape = self.byte == FLAG, self.byte == ESCAPE
        length, escaped, spoilt, any_escape = Signal(8), Signal(), Signal(), Signal()
        state = Signal(32, init=0xFFFFFFFF)
        header = [Signal(8, name=f"header{n}") for n in range(4)]
        content = Mux(escaped, self.byte ^ 0x20, self.byte)
        with m.If(taken & flag):
            m.d.sync += [length.eq(0), escaped.eq(0), spoilt.eq(0), state.eq(0xFFFFFFFF), any_escape.eq(0)]
        with m.Elif(taken & escape):
            m.d.sync += [spoilt.eq(spoilt | escaped | self.error), escaped.eq(1), any_escape.eq(1)]
        with m.Elif(taken):
            m.d.sync += [length.eq(Mux(length == _SHORTEST, length, length + 1)), escaped.eq(0),
                         state.eq(_serial(m, state, content)), spoilt.eq(spoilt | self.error)]
            for n, byte in enumerate(header):
                with m.If(length == n):
                    m.d.sync += byte.eq(content)
        with m.Elif(self.error):
            m.d.sync += spoilt.eq(1)
        # The complement of the FCS is what the register holds before it: then the register ends in one known state (RFC 1662, C.3).
        good = taken & flag & (length == _SHORTEST) & ~escaped & ~spoilt & (state == 0xDEBB20E3)
        if self.cover:
            m.d.comb += Cover(dut.bad & any_escape & ~escaped)
        else:
            # The twins of the state; without them induction begins anywhere.
            m.d.comb += [Assert(dut.good == good), Assert(~(dut.good & dut.bad)), Assert(crc == state), Assert(inside == escaped),
                         Assert(broken == spoilt), Assert((count == length) & (length <= _SHORTEST))]
            for n, (field, byte) in enumerate(zip(REQUEST_HEADER, header, strict=True)):
                m.d.comb += Assert((length <= n) | (getattr(dut, field.name) == byte))
        return m


def _serial(m: Module, state: Value, byte: Value) -> Value:
    """The register behind eight bits, low bit first, one after the other."""
    for n in range(8):
        feedback = state[0] ^ byte[n]
        shifted = Signal(32, name=f"shifted{n}")
        m.d.comb += shifted.eq(Cat(state[1:], 0) ^ Mux(feedback, 0xEDB88320, 0))
        state = shifted
    return state
