"""Exponent file and statistics: delayed scaling (ETA, section III; docs/machine.md, section 6)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.memories import make_memory
from gradloom.rtl.tensor_ports import ExponentRead, HostScale, ScaleOp, ScaleRequest, StatisticUpdate

__all__ = ["ScaleUnit"]

E_MIN, E_MAX = -64, 127
ZERO_STEP = 4
"""How far the exponent of an all-zero tensor falls."""


def _leading_one(bits: Value) -> tuple[Value, Value]:
    """Whether a bit of 4^n is 1, and the place of the highest one. A tree, as a memory's output lies before it: six levels of LUTs
    for 64 bits, where a chain of cases takes some thirty."""
    if len(bits) == 4:
        high = bits[3] | bits[2]
        return bits.any(), Cat(Mux(high, bits[3], bits[1]), high)
    quarter = len(bits) // 4
    quarters = [_leading_one(bits[n:n + quarter]) for n in range(0, len(bits), quarter)]
    ones = [one for one, _ in quarters]
    high = ones[3] | ones[2]
    upper = Mux(ones[3], quarters[3][1], quarters[2][1])
    lower = Mux(ones[1], quarters[1][1], quarters[0][1])
    return Cat(ones).any(), Cat(Mux(high, upper, lower), Mux(high, ones[3], ones[1]), high)


def _bit_length(value: Value) -> Value:
    """Bits of a number of 64 bits up to its highest 1."""
    _, place = _leading_one(Cat(Const(1, 1), value[:63]))
    return Mux(value[63], 64, place)


class ScaleUnit(wiring.Component):
    """Exponents e[tid] (signed 16), statistics stat[tid] (64 bits).

    e[0] reads 0 and is never written; exponents beyond ``tensors`` read 0, nothing there is written. Two read ports for
    exponents, one for the A-Core and one shared by Sequencer and host. The statistics' write port serves the A-Core
    first. The memories survive a reset.

    Parameters
    ----------
    tensors, lutram_bits : :class:`int`
        As in :class:`gradloom.contracts.config.Config`.

    Members
    -------
    exponents : ``In(ExponentRead())``
        The A-Core's reads.
    statistics : ``In(StatisticUpdate())``
        The A-Core's updates.
    request : ``In(ScaleRequest())``
        The Sequencer's operations.
    host : ``In(HostScale())``
        The host's access, with no operation under way.
    """

    def __init__(self, tensors: int, lutram_bits: int = 0) -> None:
        self.tensors = tensors
        self.lutram_bits = lutram_bits
        super().__init__({
            "exponents": In(ExponentRead()), "statistics": In(StatisticUpdate()), "request": In(ScaleRequest()),
            "host": In(HostScale()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request = self.request
        m.submodules.exponents = exponents = make_memory(signed(16), self.tensors, self.lutram_bits)
        m.submodules.stats = stats = make_memory(64, self.tensors, self.lutram_bits)

        def known(tid: Signal) -> Signal:
            return (tid != 0) & (tid < self.tensors)

        core_read = exponents.read_port()
        core_valid = Signal()
        m.d.comb += [
            core_read.en.eq(self.exponents.en),
            core_read.addr.eq(self.exponents.tid),
            self.exponents.e.eq(Mux(core_valid, core_read.data, 0)),
        ]
        with m.If(self.exponents.en):
            m.d.sync += core_valid.eq(known(self.exponents.tid))

        e_write = exponents.write_port()
        stat_write = stats.write_port()
        e_read = exponents.read_port()
        # A statistic may be updated in successive cycles: the update of the previous cycle must be seen.
        core_stat = stats.read_port(transparent_for=[stat_write])
        stat_read = stats.read_port()

        update_tid = Signal(11)
        update_value = Signal(64)
        update = Signal()
        m.d.comb += [core_stat.addr.eq(self.statistics.tid), core_stat.en.eq(1)]
        m.d.sync += [update.eq(self.statistics.valid & known(self.statistics.tid)), update_tid.eq(self.statistics.tid),
                     update_value.eq(self.statistics.value)]

        busy = Signal()
        number = Signal(11)
        number_valid = Signal()
        m.d.comb += [e_read.addr.eq(number), stat_read.addr.eq(self.host.tid), number.eq(self.host.tid)]
        with m.If(request.start | busy):
            m.d.comb += [
                number.eq(Mux(request.op == ScaleOp.SCALE, request.target, request.tid)),
                stat_read.addr.eq(request.tid),
            ]
        m.d.sync += number_valid.eq(known(number))
        e_now = Signal(signed(16))
        m.d.comb += [
            e_now.eq(Mux(number_valid, e_read.data, 0)),
            self.host.e.eq(e_now),
            self.host.stat.eq(stat_read.data),
        ]

        length = Signal(range(65))
        m.d.comb += length.eq(_bit_length(stat_read.data))
        length_now = Signal.like(length)
        e_then = Signal(signed(16))
        moved = Signal(signed(18))
        clamped = Signal(signed(16))
        m.d.comb += [
            moved.eq(Mux(length_now == 0, e_then - ZERO_STEP, e_then + length_now - request.f - 13)),
            clamped.eq(Mux(moved < E_MIN, E_MIN, Mux(moved > E_MAX, E_MAX, moved))),
        ]

        clearing = Signal()
        clear_tid = Signal(11)
        m.d.comb += [clear_tid.eq(self.host.tid), clearing.eq(self.host.clear),
                     e_write.addr.eq(self.host.tid), e_write.data.eq(self.host.value)]
        with m.If(self.host.write & ~busy):
            m.d.comb += e_write.en.eq(known(self.host.tid))

        # The statistics' read port shows an update two cycles after it was sent; an operation that begins then waits.
        with m.FSM():
            with m.State("IDLE"), m.If(request.start):
                m.d.sync += busy.eq(1)
                m.next = "READ"
            with m.State("READ"), m.If(~update):
                m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += [length_now.eq(length), e_then.eq(e_now)]
                m.next = "WRITE"
            with m.State("WRITE"), m.Switch(request.op):
                with m.Case(ScaleOp.ADD):
                    m.d.sync += request.result.eq(Mux(request.clear, request.value - e_then, request.value + e_then))
                    m.next = "DONE"
                with m.Case(ScaleOp.SET):
                    m.d.comb += [e_write.en.eq(known(request.target)), e_write.addr.eq(request.target),
                                 e_write.data.eq(request.value), clear_tid.eq(request.target), clearing.eq(request.clear)]
                    with m.If(~request.clear | ~update):
                        m.next = "DONE"
                with m.Default():
                    m.d.comb += [e_write.en.eq(known(request.target) & ~update), e_write.addr.eq(request.target),
                                 e_write.data.eq(clamped), clear_tid.eq(request.tid), clearing.eq(1)]
                    with m.If(~update):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += request.done.eq(1)
                m.d.sync += busy.eq(0)
                m.next = "IDLE"

        m.d.comb += [
            stat_write.addr.eq(Mux(update, update_tid, clear_tid)),
            stat_write.data.eq(Mux(update, core_stat.data | update_value, 0)),
            stat_write.en.eq(update | (clearing & known(clear_tid))),
        ]
        return m
