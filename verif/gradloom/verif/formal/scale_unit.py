"""Specification of exponents and statistics, written from docs/machine.md, section 6."""

import types
from collections.abc import Callable

from amaranth.hdl import Array, Assert, Assume, Cover, Module, Mux, ResetSignal, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.sequencer import scale_unit
from gradloom.verif.formal.inside import add_opened
from gradloom.verif.formal.register_memory import RegisterMemory, replaced

__all__ = ["TENSORS", "ScaleUnitSpec", "next_exponent"]

TENSORS = 3
"""Numbers 1 and 2 exist, 0 and those beyond do not: an operation's own tensor, another one, and none. The unit treats all numbers
alike but for these comparisons, and addresses are no operands of anything else."""
_IDLE, _READ, _WAIT, _WRITE, _DONE = range(5)
_SCALE, _SET, _ADD = range(3)


def next_exponent(m: Module, e: Value, stat: Value, f: Value) -> Signal:
    """The rule of SCALE, signed(16)."""
    length, moved, result = Signal(7, name="bl"), Signal(signed(20), name="moved_to"), Signal(signed(16), name="e_next")
    for i in range(64):
        with m.If(stat[i]):
            m.d.comb += length.eq(i + 1)
    m.d.comb += [moved.eq(Mux(length == 0, e - 4, e + length - (f + 1) - 12)),
                 result.eq(Mux(moved < -64, -64, Mux(moved > 127, 127, moved)))]
    return result


class ScaleUnitSpec(wiring.Component):
    """Whatever operations and statistics come, in whatever cycles, the files hold what one after the other makes of them.

    The abstract model: ``e`` and ``stat`` of every number; a statistic counts in the cycle in which it is sent, an operation in
    that of ``done``. Assumed, as the contract says: an operation's inputs hold from ``start`` to ``done``; the A-Core is done with
    a tensor that is scaled, or whose statistic is cleared; the host writes only while neither an operation nor the A-Core is under
    way. By induction; the memories are registers here (:class:`gradloom.verif.formal.register_memory.RegisterMemory`), so that
    the induction can speak of their rows.
    """

    def __init__(self, design: types.ModuleType = scale_unit, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({
            "exp_en": In(1), "exp_tid": In(11), "stat_valid": In(1), "stat_tid": In(11), "stat_value": In(64),
            "start": In(1), "op": In(2), "tid": In(11), "target": In(11), "f": In(5), "value": In(signed(16)), "clear": In(1),
            "host_tid": In(11), "host_write": In(1), "host_value": In(signed(16)), "host_clear": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memories: list[RegisterMemory] = []

        def make(shape, depth, lutram_bits) -> RegisterMemory:
            memories.append(RegisterMemory(shape, depth))
            return memories[-1]

        with replaced(self.design, "make_memory", make):
            dut = self.design.ScaleUnit(TENSORS)
            state, update, update_tid, update_value, busy, e_then, length_now = add_opened(
                m, platform, dut, "fsm_state", "update", "update_tid", "update_value", "busy", "e_then", "length_now")
        e_rows, stat_rows = (memory.rows for memory in memories)
        core_stat = memories[1]._reads[0][0].data

        bundles = ((dut.exponents, "exp", ("en", "tid")), (dut.statistics, "stat", ("valid", "tid", "value")),
                   (dut.host, "host", ("tid", "write", "value", "clear")))
        m.d.comb += [getattr(bundle, name).eq(getattr(self, f"{prefix}_{name}"))
                     for bundle, prefix, names in bundles for name in names]
        m.d.comb += [getattr(dut.request, name).eq(getattr(self, name))
                     for name in ("start", "tid", "target", "f", "value", "clear")]
        m.d.comb += [Value.cast(dut.request.op).eq(self.op), Assume(~ResetSignal()), Assume(self.op <= _ADD)]

        def known(tid: Value) -> Value:
            return (tid == 1) | (tid == 2)

        scaling, setting = self.op == _SCALE, self.op == _SET
        cleared = Mux(scaling, self.tid, self.target)
        clears = scaling | (setting & self.clear)
        writes = scaling | setting

        # What the contract asks of the others.
        held = [self.start, self.op, self.tid, self.target, self.f, self.value, self.clear]
        for number, value in enumerate(held):
            before = Signal(Value.cast(value).shape(), name=f"held{number}")
            m.d.sync += before.eq(value)
            m.d.comb += Assume((state == _IDLE) | (value == before))
        under_way = self.start | (state != _IDLE)
        host = self.host_write | self.host_clear
        m.d.comb += [
            Assume((state == _IDLE) | self.start),
            Assume(~(under_way & clears & self.stat_valid & (self.stat_tid == cleared))),
            Assume(~(host & (under_way | update | self.stat_valid))),
        ]
        # The model.
        e = Array(Signal(signed(16), name=f"model_e{t}") for t in range(TENSORS))
        stat = Array(Signal(64, name=f"model_stat{t}") for t in range(TENSORS))
        number = Mux(scaling, self.target, self.tid)
        e_used = Mux(known(number), e[number[:2]], 0)
        stat_used = Mux(known(self.tid), stat[self.tid[:2]], 0)
        ruled = next_exponent(m, e_used, stat_used, self.f)
        ended = Mux(scaling, ruled, self.value)
        for t in (1, 2):
            with m.If(self.stat_valid & (self.stat_tid == t)):
                m.d.sync += stat[t].eq(stat[t] | self.stat_value)
            with m.If(dut.request.done & writes & (self.target == t)):
                m.d.sync += e[t].eq(ended)
            with m.If(dut.request.done & clears & (cleared == t)):
                m.d.sync += stat[t].eq(0)
            with m.If(self.host_write & (self.host_tid == t)):
                m.d.sync += e[t].eq(self.host_value)
            with m.If(self.host_clear & (self.host_tid == t)):
                m.d.sync += stat[t].eq(0)
        m.d.comb += Assume(~scaling | (self.tid < TENSORS))

        # The files. In the cycle of `done` they hold the operation's result already.
        for t in (1, 2):
            sent = Mux(update & (update_tid == t), update_value, 0)
            after = dut.request.done & writes & (self.target == t)
            empty = dut.request.done & clears & (cleared == t)
            # SET may write its exponent while it waits to clear.
            early = (state == _WRITE) & setting & (self.target == t) & (e_rows[t] == self.value)
            m.d.comb += [Assert((e_rows[t] == Mux(after, ended, e[t])) | early),
                         Assert((stat_rows[t] | sent) == Mux(empty, 0, stat[t])),
                         Assert(~(update & (update_tid == t)) | (core_stat == stat_rows[t]))]
        m.d.comb += [Assert(e_rows[0] == 0), Assert(stat_rows[0] == 0), Assert(e[0] == 0), Assert(stat[0] == 0),
                     Assert(~update | known(update_tid)), Assert(state <= _DONE), Assert(busy == (state != _IDLE)),
                     Assert(dut.request.done == (state == _DONE))]
        # An operation on its way: a statistic that was sent before it is in the file when it reads.
        length = Signal(7)
        for i in range(64):
            with m.If(stat_used[i]):
                m.d.comb += length.eq(i + 1)
        mine = update & (update_tid == cleared) & clears
        m.d.comb += [
            Assert(~mine | (state <= _READ)),
            Assert((state != _WAIT) | ((dut.host.e == e_used) & (~scaling | (dut.host.stat == stat_used)))),
            Assert((state != _WRITE) | ((e_then == e_used) & (~scaling | (length_now == length)))),
        ]
        # It takes 5 cycles, and one more for each in which a statistic is on its way.
        spent = Signal(4)
        waits = update & ((state == _READ) | (state == _WRITE))
        m.d.sync += spent.eq(Mux((state == _IDLE) | (state == _DONE), 0, spent + ~waits))
        m.d.comb += Assert(Mux(state == _IDLE, spent == 0, (spent == state - 1) | ((state == _DONE) & (spent == 2))))

        self._terms(m, dut, e_used)
        self._reads(m, dut, e, stat, known, under_way & writes, update)
        if self.cover:
            m.d.comb += [Cover(dut.request.done & scaling & (stat_used[40]) & (e_used == 5)),
                         Cover((state == _WRITE) & update & clears & (update_tid != cleared)), Cover(mine)]
        return m

    def _terms(self, m: Module, dut: wiring.Component, e_used: Value) -> None:
        """``value_out`` in the cycle of ``done`` and until the next operation."""
        out, there = Signal(signed(16)), Signal()
        result = Mux(self.clear, self.value - e_used, self.value + e_used)[:16].as_signed()
        with m.If(dut.request.done & (self.op == _ADD)):
            m.d.comb += Assert(dut.request.result == result)
            m.d.sync += [out.eq(result), there.eq(1)]
        with m.Elif(self.start):
            m.d.sync += there.eq(0)
        m.d.comb += Assert(~there | (dut.request.result == out))

    def _reads(self, m: Module, dut: wiring.Component, e: Array, stat: Array, known: Callable, changing: Value,
               update: Value) -> None:
        """The A-Core's read, one cycle later, and the host's, two later."""
        sure, value = Signal(), Signal(signed(16))
        now = Signal(signed(16))
        m.d.comb += now.eq(Mux(known(self.exp_tid), e[self.exp_tid[:2]], 0))
        with m.If(self.exp_en):
            # While an operation or the host changes an exponent, a read of it gives the old or the new one.
            m.d.sync += [sure.eq(~(changing & (self.exp_tid == self.target)) & ~self.host_write), value.eq(now)]
        m.d.comb += Assert(~sure | (dut.exponents.e == value))
        # The host asks for two cycles while nothing changes.
        busy = self.start | self.stat_valid | self.host_write | self.host_clear | dut.request.done
        quiet = [~busy]
        for i in range(2):
            quiet.append(_past(m, quiet[-1], f"quiet{i}"))
        asked = [self.host_tid]
        for i in range(2):
            asked.append(_past(m, asked[-1], f"asked{i}"))
        m.d.comb += Assert(~(quiet[1] & update))
        with m.If(quiet[1] & quiet[2] & (asked[1] == asked[2])):
            tid = asked[1]
            m.d.comb += [Assert(dut.host.e == Mux(known(tid), e[tid[:2]], 0)),
                         Assert(~known(tid) | (dut.host.stat == stat[tid[:2]]))]


def _past(m: Module, value: Value, name: str) -> Signal:
    """``value`` of the cycle before."""
    register = Signal(Value.cast(value).shape(), name=name)
    m.d.sync += register.eq(value)
    return register
