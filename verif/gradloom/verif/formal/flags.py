"""Specifications of overflow flags on their way to a command's report, written from docs/machine.md (sections 4, 5 and 7) and
:class:`gradloom.rtl.command.CommandPort`: a flag that was raised inside a command stays until it has been reported, once.

What raises the flags is free: any of them in any cycle.
"""

import contextlib
import types
from collections.abc import Iterable

from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.data import View

from gradloom.contracts.config import Config
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.acore import lanes, scalar_stage
from gradloom.rtl.acore.apu import ADD2, CODE2
from gradloom.rtl.acore.stream_address import Beat
from gradloom.rtl.ccore import ccore
from gradloom.rtl.delay import delayed
from gradloom.verif.formal.free_parts import free, with_free_inputs
from gradloom.verif.formal.inside import add_opened
from gradloom.verif.formal.register_memory import replaced

__all__ = ["CCoreFlagSpec", "LanesFlagSpec", "PrepareFlagSpec"]

_CONFIG = Config(name="flags", clusters=2, cols=2, wpus=2, ibuf_depth=16, ebuf_depth=16, wbuf_depth=16, psum_depth=16, dw_depth=18)


def _with_free(stack: contextlib.ExitStack, design: types.ModuleType, names: Iterable[str]) -> dict[str, list]:
    """Replace parts of a design by free ones, until the stack is closed; returns those that are made, by name."""
    made: dict[str, list] = {}
    for name in names:
        made[name] = []
        stack.enter_context(replaced(design, name, free(getattr(design, name), made[name])))
    return made


class CCoreFlagSpec(wiring.Component):
    """The first overflow or illegal command since the core was idle is reported at once, under its code, and nothing else until
    the core is idle again: an overflow of any sum of any cluster and WPU a cycle after its flag.

    By induction over two cycles.
    """

    _PARTS = ("RowSequencer", "ColumnSequencer", "InputNetwork", "WeightNetwork", "PsumControl", "PlaneSumControl", "Drain", "Wpu",
              "Cluster", "WindowRegisters", "Gather")

    def __init__(self, design: types.ModuleType = ccore, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with contextlib.ExitStack() as stack:
            made = _with_free(stack, self.design, self._PARTS)
            dut = self.design.CCore(_CONFIG)
            told_inside, = add_opened(m, platform, dut, "faulted")
        wpus, clusters, (drain,) = made["Wpu"], made["Cluster"], made["Drain"]
        units = _CONFIG.clusters * _CONFIG.wpus
        assert len(clusters) == _CONFIG.clusters and len(wpus) in (units, units // 2)
        psum, wg = Signal(), Signal()
        m.d.sync += [psum.eq(Cat(cluster.overflow for cluster in clusters).any()), wg.eq(Cat(wpu.ovf for wpu in wpus).any())]
        faults = [made[name][0].fault for name in ("InputNetwork", "WeightNetwork", "PsumControl", "PlaneSumControl", "Drain")]
        told, code, idle = Signal(), Signal(8), Signal()
        # An illegal command is told when it is the oldest; its kind is the order's to keep, so the report is free to come.
        illegal = Cat(*faults, made["PsumControl"][0].clash).any()
        with_free_inputs(m, dut)
        m.d.comb += [Assume(~ResetSignal()), idle.eq(~dut.busy),
                     code.eq(Mux(psum, self.design.FAULT_PSUM, Mux(wg | drain.ovf, self.design.FAULT_WG, 0)))]
        with m.If(dut.port.fault != 0):
            m.d.sync += told.eq(1)
        with m.Elif(idle & (code == 0) & ~illegal):
            m.d.sync += told.eq(0)
        m.d.comb += Assert(told == told_inside)
        with m.If(told):
            m.d.comb += Assert(dut.port.fault == 0)
        with m.Elif(illegal):
            m.d.comb += Assert(dut.port.fault == self.design.FAULT_ILLEGAL)
        with m.Else():
            m.d.comb += Assert((dut.port.fault == code) | ((dut.port.fault == self.design.FAULT_ILLEGAL) & dut.port.done))
        if self.cover:
            again = Signal()
            m.d.sync += again.eq(again | (told & (code != 0)))
            m.d.comb += Cover(again & ~told & (dut.port.fault == self.design.FAULT_WG))
        return m


class PrepareFlagSpec(wiring.Component):
    """A gradient sum that overflows while a command is prepared goes on with that command as its fault, and with no other one.

    By induction over one cycle. An overflow comes while the scalars work, and they work for the command that is prepared only.
    """

    def __init__(self, design: types.ModuleType = scalar_stage, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with contextlib.ExitStack() as stack:
            made = _with_free(stack, self.design, ("Scalars", "ShiftSetup"))
            dut = self.design.ScalarStage(_CONFIG)
            add_opened(m, platform, dut)
        with_free_inputs(m, dut)
        overflow, busy = made["Scalars"][0].overflow, made["Scalars"][0].busy
        raised, taken, given = Signal(), Signal(), Signal()
        m.d.comb += [Assume(~ResetSignal()), taken.eq(dut.valid & dut.ready), given.eq(dut.o.valid & dut.o.ready),
                     Assume(~overflow | (busy & ~dut.ready))]
        with m.If(taken):
            m.d.sync += raised.eq(0)
        with m.Elif(overflow):
            m.d.sync += raised.eq(1)
        ours = ErrorCode.GRADIENT_SUM_OVERFLOW
        m.d.comb += [Assert(~raised | (dut.code != 0)), Assert((dut.code != ours) | raised)]
        with m.If(given):
            m.d.comb += [Assert(~raised | (dut.o.command.fault != 0)), Assert((dut.o.command.fault != ours) | raised)]
        if self.cover:
            since = Signal(range(4))
            with m.If(taken):
                m.d.sync += since.eq(0)
            with m.Elif(overflow | (since != 0)):
                m.d.sync += since.eq(Mux(since == 3, 3, since + 1))
            m.d.comb += Cover(given & (dut.o.command.fault == ours) & (since == 3))
        return m


class LanesFlagSpec(wiring.Component):
    """With ``done`` a command tells the fault that it brought along; else an overflow exactly if one of its beats was bad, the
    first, the last or any between. A beat is bad by what the lanes said of it, there where its outputs leave (E stage ``CODE2``).

    By induction over five cycles. A command's beats come behind its ``go``, and finals are more than three cycles apart
    (:class:`gradloom.rtl.acore.sweep.Sweep`).
    """

    def __init__(self, design: types.ModuleType = lanes, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with contextlib.ExitStack() as stack:
            _with_free(stack, self.design, ("Apu", "ResultWriter"))
            dut = self.design.Lanes(_CONFIG)
            sticky, begins, beat, bad, brought = add_opened(
                m, platform, dut, "sticky", f"e_go_{CODE2}", f"e_beat_{CODE2}", f"bad_e5_{CODE2 - ADD2}", "e_fault")
        with_free_inputs(m, dut)
        last = View(Beat, beat)
        any_bad, fault = Signal(), Signal(8)
        m.d.comb += [Assume(~ResetSignal()), Assume(~(begins & last.v)),
                     fault.eq(Mux(brought != 0, brought, Mux(any_bad | bad, ErrorCode.GRADIENT_SUM_OVERFLOW, 0)))]
        with m.If(begins):
            m.d.sync += any_bad.eq(0)
        with m.Elif(last.v & bad):
            m.d.sync += any_bad.eq(1)
        finals, faults = [last.v & last.final], [fault]
        for i in range(3):
            finals.append(delayed(m, finals[-1], f"final_then{i}", reset=True))
            faults.append(delayed(m, faults[-1], f"fault_then{i}"))
        m.d.comb += [Assume(~finals[0] | ~Cat(finals[1:]).any()), Assert(sticky == any_bad), Assert(dut.done == finals[3]),
                     Assert(dut.fault == Mux(finals[3], faults[3], 0))]
        if self.cover:
            first = Signal()
            with m.If(begins):
                m.d.sync += first.eq(0)
            with m.Elif(last.v):
                m.d.sync += first.eq(1)
            once = Signal()
            m.d.sync += once.eq(once | (last.v & bad & ~first & ~last.final))
            m.d.comb += Cover(once & finals[3] & (dut.fault == ErrorCode.GRADIENT_SUM_OVERFLOW))
        return m
