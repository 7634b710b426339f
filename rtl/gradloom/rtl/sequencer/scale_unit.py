"""Exponent file and statistics: delayed scaling (ETA, section III; docs/machine.md, section 6)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.memories import make_memory

__all__ = ["ScaleOp", "ScaleUnit"]

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
    found = [_leading_one(bits[n:n + quarter]) for n in range(0, len(bits), quarter)]
    ones = [one for one, _ in found]
    high = ones[3] | ones[2]
    upper = Mux(ones[3], found[3][1], found[2][1])
    lower = Mux(ones[1], found[1][1], found[0][1])
    return Cat(ones).any(), Cat(Mux(high, upper, lower), Mux(high, ones[3], ones[1]), high)


def _bit_length(value: Value) -> Value:
    """Bits of a number of 64 bits up to its highest 1."""
    _, place = _leading_one(Cat(Const(1, 1), value[:63]))
    return Mux(value[63], 64, place)


class ScaleOp(enum.Enum, shape=2):
    """What the Sequencer asks for."""

    SCALE = 0
    """e[target] = rule of (e[target], stat[tid], f); stat[tid] = 0."""
    SET = 1
    """e[target] = value; stat[target] = 0 with ``clear``."""
    ADD = 2
    """value_out = value + e[tid], or value - e[tid] with ``clear``: one term of a shift list."""


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
    exp_en : ``In(1)``, exp_tid : ``In(11)``, exp_e : ``Out(signed(16))``
        A-Core: exponent, value in the next cycle.
    stat_valid : ``In(1)``, stat_tid : ``In(11)``, stat_value : ``In(64)``
        A-Core: stat[tid] \\|= value; any number of cycles in a row. Readable two cycles later.
    start : ``In(1)``, op : ``In(ScaleOp)``, tid, target : ``In(11)``, f : ``In(5)``, value : ``In(signed(16))``,
    clear : ``In(1)``
        Sequencer: one operation; all hold until ``done``.
    done : ``Out(1)``, value_out : ``Out(signed(16))``
        One cycle; ``value_out`` holds until the next operation.
    host_tid : ``In(11)``, host_e : ``Out(signed(16))``, host_stat : ``Out(64)``
        Host, with no operation under way: values of ``host_tid`` two cycles later.
    host_write : ``In(1)``, host_value : ``In(signed(16))``, host_clear : ``In(1)``
        Host, with no operation under way: set e[host_tid], clear stat[host_tid].
    """

    def __init__(self, tensors: int, lutram_bits: int = 0) -> None:
        self.tensors = tensors
        self.lutram_bits = lutram_bits
        super().__init__({
            "exp_en": In(1), "exp_tid": In(11), "exp_e": Out(signed(16)),
            "stat_valid": In(1), "stat_tid": In(11), "stat_value": In(64),
            "start": In(1), "op": In(ScaleOp), "tid": In(11), "target": In(11), "f": In(5),
            "value": In(signed(16)), "clear": In(1), "done": Out(1), "value_out": Out(signed(16)),
            "host_tid": In(11), "host_e": Out(signed(16)), "host_stat": Out(64),
            "host_write": In(1), "host_value": In(signed(16)), "host_clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.exponents = exponents = make_memory(signed(16), self.tensors, self.lutram_bits)
        m.submodules.stats = stats = make_memory(64, self.tensors, self.lutram_bits)

        def known(tid: Signal) -> Signal:
            return (tid != 0) & (tid < self.tensors)

        core_read = exponents.read_port()
        core_valid = Signal()
        m.d.comb += [
            core_read.en.eq(self.exp_en),
            core_read.addr.eq(self.exp_tid),
            self.exp_e.eq(Mux(core_valid, core_read.data, 0)),
        ]
        with m.If(self.exp_en):
            m.d.sync += core_valid.eq(known(self.exp_tid))

        e_write = exponents.write_port()
        stat_write = stats.write_port()
        e_read = exponents.read_port()
        # A statistic may be updated in successive cycles: the update of the previous cycle must be seen.
        core_stat = stats.read_port(transparent_for=[stat_write])
        stat_read = stats.read_port()

        update_tid = Signal(11)
        update_value = Signal(64)
        update = Signal()
        m.d.comb += [core_stat.addr.eq(self.stat_tid), core_stat.en.eq(1)]
        m.d.sync += [update.eq(self.stat_valid & known(self.stat_tid)), update_tid.eq(self.stat_tid),
                     update_value.eq(self.stat_value)]

        busy = Signal()
        number = Signal(11)
        number_valid = Signal()
        m.d.comb += [e_read.addr.eq(number), stat_read.addr.eq(self.host_tid), number.eq(self.host_tid)]
        with m.If(self.start | busy):
            m.d.comb += [
                number.eq(Mux(self.op == ScaleOp.SCALE, self.target, self.tid)),
                stat_read.addr.eq(self.tid),
            ]
        m.d.sync += number_valid.eq(known(number))
        e_now = Signal(signed(16))
        m.d.comb += [
            e_now.eq(Mux(number_valid, e_read.data, 0)),
            self.host_e.eq(e_now),
            self.host_stat.eq(stat_read.data),
        ]

        length = Signal(range(65))
        m.d.comb += length.eq(_bit_length(stat_read.data))
        length_now = Signal.like(length)
        e_then = Signal(signed(16))
        moved = Signal(signed(18))
        clamped = Signal(signed(16))
        m.d.comb += [
            moved.eq(Mux(length_now == 0, e_then - ZERO_STEP, e_then + length_now - self.f - 13)),
            clamped.eq(Mux(moved < E_MIN, E_MIN, Mux(moved > E_MAX, E_MAX, moved))),
        ]

        clearing = Signal()
        clear_tid = Signal(11)
        m.d.comb += [clear_tid.eq(self.host_tid), clearing.eq(self.host_clear),
                     e_write.addr.eq(self.host_tid), e_write.data.eq(self.host_value)]
        with m.If(self.host_write & ~busy):
            m.d.comb += e_write.en.eq(known(self.host_tid))

        # The statistics' read port shows an update two cycles after it was sent; an operation that begins then waits.
        with m.FSM():
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += busy.eq(1)
                m.next = "READ"
            with m.State("READ"), m.If(~update):
                m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += [length_now.eq(length), e_then.eq(e_now)]
                m.next = "WRITE"
            with m.State("WRITE"), m.Switch(self.op):
                with m.Case(ScaleOp.ADD):
                    m.d.sync += self.value_out.eq(Mux(self.clear, self.value - e_then, self.value + e_then))
                    m.next = "DONE"
                with m.Case(ScaleOp.SET):
                    m.d.comb += [e_write.en.eq(known(self.target)), e_write.addr.eq(self.target),
                                 e_write.data.eq(self.value), clear_tid.eq(self.target), clearing.eq(self.clear)]
                    with m.If(~self.clear | ~update):
                        m.next = "DONE"
                with m.Default():
                    m.d.comb += [e_write.en.eq(known(self.target) & ~update), e_write.addr.eq(self.target),
                                 e_write.data.eq(clamped), clear_tid.eq(self.tid), clearing.eq(1)]
                    with m.If(~update):
                        m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.d.sync += busy.eq(0)
                m.next = "IDLE"

        m.d.comb += [
            stat_write.addr.eq(Mux(update, update_tid, clear_tid)),
            stat_write.data.eq(Mux(update, core_stat.data | update_value, 0)),
            stat_write.en.eq(update | (clearing & known(clear_tid))),
        ]
        return m
