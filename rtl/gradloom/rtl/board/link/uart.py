"""Bytes on two wires: 8 data bits, no parity, one stop bit, low bit first, at a rate that may change while it runs.

``bit_step`` is the share of a bit that passes in a clock, in units of 1/65536: 65536 * baud / clock, so that rates that do not
divide the clock (3 Mbaud at 50 MHz: 16.67 clocks) are met to a clock in each bit.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from gradloom.contracts.frame_format import STEP_BITS

__all__ = ["UartReceiver", "UartTransmitter"]

BREAK_BITS = 10
"""The line is low for 2^BREAK_BITS bits: a break. No byte of a sender a hundred times as slow looks so."""


class UartReceiver(wiring.Component):
    """Samples each bit in its middle.

    Members
    -------
    rx : ``In(1)``
        The line, 1 at rest; not synchronous.
    bit_step : ``In(16)``
    o : ``Out(stream.Signature(8))``
        A byte that is not taken before the next one is complete is lost.
    error : ``Out(1)``
        One cycle: a byte whose stop bit is 0 (not handed out), or one that was lost.
    line_break : ``Out(1)``
        The line has been 0 for 1024 bits.
    """

    def __init__(self) -> None:
        super().__init__({"rx": In(1, init=1), "bit_step": In(STEP_BITS), "o": Out(stream.Signature(8)), "error": Out(1),
                          "line_break": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line = Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, line, init=1)
        phase = Signal(STEP_BITS)
        turn = Signal()
        following = Signal(STEP_BITS)
        m.d.comb += Cat(following, turn).eq(phase + self.bit_step)
        m.d.sync += phase.eq(following)

        low = Signal(BREAK_BITS)
        with m.If(line):
            m.d.sync += low.eq(0)
        with m.Elif(turn & ~self.line_break):
            m.d.sync += low.eq(low + 1)
        m.d.comb += self.line_break.eq(low.all())

        bits = Signal(8)
        marker = Signal(8)  # a 1 that moves on with each bit
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.FSM():
            with m.State("REST"):
                m.d.sync += marker.eq(1)
                with m.If(~line):
                    m.d.sync += phase.eq(1 << STEP_BITS - 1)
                    m.next = "START"
            with m.State("START"), m.If(turn):
                m.next = "REST"
                with m.If(~line):
                    m.next = "BITS"
            with m.State("BITS"), m.If(turn):
                m.d.sync += [bits.eq(Cat(bits[1:], line)), marker.eq(marker << 1)]
                with m.If(marker[7]):
                    m.next = "STOP"
            with m.State("STOP"), m.If(turn):
                m.d.comb += self.error.eq(~line | (self.o.valid & ~self.o.ready))
                with m.If(line):
                    m.d.sync += [self.o.payload.eq(bits), self.o.valid.eq(1)]
                    m.next = "REST"
                with m.Else():
                    m.next = "LOW"
            with m.State("LOW"), m.If(line):  # a start bit needs an edge
                m.next = "REST"
        return m


class UartTransmitter(wiring.Component):
    """Sends a byte at a time.

    Members
    -------
    i : ``In(stream.Signature(8))``
    bit_step : ``In(16)``
        Changed while ``idle`` only.
    tx : ``Out(1)``
        The line.
    idle : ``Out(1)``
        The last stop bit has left.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(8)), "bit_step": In(STEP_BITS), "tx": Out(1, init=1), "idle": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        phase = Signal(STEP_BITS)
        turn = Signal()
        following = Signal(STEP_BITS)
        # Low bit first; a marker behind the stop bit, so that only it is left when all have been sent.
        frame = Signal(10)
        m.d.comb += [Cat(following, turn).eq(phase + self.bit_step), self.idle.eq(frame == 0), self.i.ready.eq(self.idle)]
        m.d.sync += phase.eq(following)
        with m.If(self.i.valid & self.idle):
            m.d.sync += [frame.eq(Cat(self.i.payload, 1, 1)), self.tx.eq(0), phase.eq(0)]
        with m.Elif(turn & ~self.idle):
            m.d.sync += frame.eq(frame >> 1)
            with m.If(frame != 1):
                m.d.sync += self.tx.eq(frame[0])
        return m
