"""Specification of the report of a manager's first fault."""

import types

from amaranth.hdl import Assert, Assume, Cover, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.memory_path import axi
from gradloom.verif.formal.statements import past

__all__ = ["FaultReportSpec"]


class FaultReportSpec(wiring.Component):
    """The first error answer, or else the first refusal, is kept with its client until ``clear`` and told in one cycle: SETTLE
    cycles after the answer, or after the last cycle in which a burst ahead of the refused one was unanswered.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a told refusal that had waited, an error answer behind a refusal, one told after a beat had waited.
    """

    def __init__(self, design: types.ModuleType = axi, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"window": In(1), "response": In(1), "client": In(1), "drained": In(1), "waiting": In(1),
                          "clear": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.FaultReport()
        names = ("window", "response", "client", "drained", "waiting", "clear")
        m.d.comb += [*(getattr(dut, name).eq(getattr(self, name)) for name in names), Assume(~ResetSignal())]
        refused, failed, culprit = Signal(), Signal(), Signal()
        # Cycles since the fault, or since something ahead of it was last under way.
        age = Signal(range(axi.SETTLE + 1), init=axi.SETTLE)
        with m.If(age != axi.SETTLE):
            m.d.sync += age.eq(age + 1)
            with m.If((~failed & ~self.drained) | self.waiting):
                m.d.sync += age.eq(0)
        with m.If(~failed & (self.response | (self.window & ~refused))):
            m.d.sync += [culprit.eq(self.client), age.eq(0), failed.eq(self.response), refused.eq(refused | ~self.response)]
        with m.If(self.clear):
            m.d.sync += [refused.eq(0), failed.eq(0), age.eq(axi.SETTLE)]
        m.d.comb += [
            Assert(dut.refused == refused), Assert(dut.failed == failed), Assert(dut.of_response == failed),
            Assert(~(refused | failed) | (dut.of_client == culprit)),
            Assert(dut.valid == (age == axi.SETTLE - 1)),
        ]
        if self.cover:
            waited = past(m, refused & ~self.drained, "waited")
            late = Signal()
            m.d.sync += late.eq(late | waited)
            kept = Signal()
            m.d.sync += kept.eq(kept | (failed & self.waiting))
            m.d.comb += [Cover(dut.valid & ~failed & late), Cover(refused & failed & dut.valid), Cover(dut.valid & kept)]
        return m
