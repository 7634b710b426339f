"""Specification of the command queue."""

import types

from amaranth.hdl import Array, Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.sequencer import queue
from gradloom.verif.formal.statements import constant, past

__all__ = ["QueueSpec"]

_WORDS = 6
_DEPTH = 8
_BITS = 0x8001_0701
"""The length, and a bit of each field: every bit of a word goes the same way."""
_PATIENCE = 5
"""Cycles in which a command goes from the input to its request."""


class QueueSpec(wiring.Component):
    """Commands start in their order, each once, with all their words, after a grant of the semaphores they wait for, as many at
    once as the engine takes. ``signal``, ``tag`` and ``offset`` are those of the oldest one under way. ``idle`` is neither early
    nor late, and a command that came whole asks for its semaphores as soon as the engine takes it.

    One command of free choice, of 3 to 6 words, is followed. For bounded checks.

    Parameters
    ----------
    in_flight : :class:`int`
        Commands that the engine may have under way.
    bits : :class:`int`
        Those of a word that may be 1.
    cover : :class:`bool`
        Reaches instead: the end of the second command with a third one waiting, ``idle`` after two commands.
    """

    def __init__(self, design: types.ModuleType = queue, *, in_flight: int, bits: int = _BITS,
                 cover: bool = False) -> None:
        self.design, self.in_flight, self.bits, self.cover = design, in_flight, bits, cover
        super().__init__({"valid": In(1), "pair": In(64), "follow": In(2), "allow": In(1), "done": In(1), "free": In(1),
                          "fault": In(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.CommandQueue(depth=_DEPTH, words=_WORDS, in_flight=self.in_flight)
        port = dut.port
        grant = Signal()
        m.d.comb += [
            dut.i.valid.eq(self.valid), dut.i.payload.eq(self.pair), grant.eq(dut.request & self.allow), dut.grant.eq(grant),
            port.done.eq(self.done), port.free.eq(self.free), port.fault.eq(self.fault), Assume(~ResetSignal()),
            Assume((self.pair & ~(self.bits << 32 | self.bits)) == 0),
        ]
        constant(m, self.follow)

        # What comes in: the followed command is kept.
        place, length = Signal(3), Signal(8)
        begun, whole = Signal(4), Signal(4)
        offset, words = Signal(32), [Signal(64, name=f"pair{n}") for n in range(_WORDS // 2)]
        put = self.valid & dut.i.ready
        ends = (place != 0) & (place == (Mux(place == 1, self.pair[8:16], length) + 1) >> 1)
        with m.If(put):
            m.d.sync += [place.eq(Mux(ends, 0, place + 1)), whole.eq(whole + ends)]
            with m.If(place == 0):
                m.d.sync += begun.eq(begun + 1)
            with m.If(place == 1):
                m.d.sync += length.eq(self.pair[8:16])
                m.d.comb += Assume((self.pair[8:16] >= 3) & (self.pair[8:16] <= _WORDS))
            with m.If(whole == self.follow):
                with m.If(place == 0):
                    m.d.sync += offset.eq(self.pair[:32])
                with m.Else():
                    m.d.sync += Array(words)[place - 1].eq(self.pair)
        command = Cat(words)

        # What the engine sees.
        granted, ended, started = Signal(4), Signal(4), Signal(4)
        m.d.sync += [granted.eq(granted + grant), ended.eq(ended + self.done), started.eq(started + port.start)]
        m.d.comb += [Assume(~self.done | ((started != ended) & ~past(m, self.done, "done_before"))),
                     Assert(port.start == past(m, grant, "granted_before")), Assert(dut.fault == self.fault)]
        under_way = Signal(4)
        m.d.comb += under_way.eq(granted - ended)
        more = self.free & ~port.start & (under_way != self.in_flight)
        takes = (under_way == 0) | self.done if self.in_flight == 1 else more
        m.d.comb += [
            Assert(~dut.request | ((granted != whole) & takes)),
            Assert(dut.busy == (under_way != 0)),
            Assert(~dut.waiting | ((under_way == 0) & (granted != whole) & ~grant)),
            Assert(dut.idle == (ended == begun)),
            Assert((dut.signal == 0) | self.done),
        ]
        whole_length = command[8:16]
        known = [whole_length > n for n in range(_WORDS)]
        with m.If(dut.request & (granted == self.follow)):
            m.d.comb += Assert(dut.needs == command[32:64])
        # The engine reads its command from ``start`` until another one may start.
        held = Signal()
        m.d.sync += held.eq(port.start | (held & ~(self.done if self.in_flight == 1 else self.free)))
        with m.If((port.start & (started == self.follow)) | (~port.start & held & (started == self.follow + 1))):
            m.d.comb += [Assert(~known[n] | (port.cmd[32 * n:32 * n + 32] == command[32 * n:32 * n + 32])) for n in range(_WORDS)]
        with m.If((under_way != 0) & (ended == self.follow)):
            m.d.comb += [Assert(dut.tag == command[16:32]), Assert(dut.offset == offset),
                         Assert(dut.signal == Mux(self.done, command[64:96], 0))]
        self._progress(m, dut, takes & (granted != whole))
        if self.cover:
            m.d.comb += [Cover((ended == 1) & self.done & (whole == 3)), Cover((ended == 2) & dut.idle)]
        return m

    def _progress(self, m: Module, dut: wiring.Component, able: Value) -> None:
        stuck = Signal(4)
        m.d.sync += stuck.eq(Mux(able & ~dut.request, stuck + 1, 0))
        m.d.comb += [Assert(stuck < _PATIENCE), Assert(~dut.waiting | dut.request | (self.in_flight > 1))]
