"""Specifications of the AXI4 units for all time, or of small ones: FIFO, burst splitter, window, read and write manager."""

import types

from amaranth.hdl import Assert, Assume, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.config import PRESETS
from gradloom.rtl import fifo
from gradloom.rtl.memory_path import axi, axi_read, axi_write, window
from gradloom.verif.formal.statements import constant, held, past

__all__ = ["FifoSpec", "ReadSpec", "SplitterSpec", "WindowSpec", "WriteSpec"]

_CONFIG = PRESETS["nano"]
_BEAT = _CONFIG.beat_bytes
_SHIFT = _BEAT.bit_length() - 1


def _burst_exists(splitter: axi.BurstSplitter) -> Assert:
    """What the induction needs to know of a stored burst."""
    burst = splitter.burst.p
    return Assert(~splitter.burst.valid | ((burst.beats > 0) & (burst.beats <= 64)
                                           & (burst.behind == burst.address + burst.beats * _BEAT)))


def _stopped(m: Module, report: axi.FaultReport, appears: Value, flush: Value) -> None:
    """No burst appears on the address channel once a fault is known, nor in the second and later cycles of a flush."""
    m.d.comb += [Assert(~(appears & (report.refused | report.failed))), Assert(~(appears & past(m, flush, "flushed")))]


class WindowSpec(wiring.Component):
    """``in_window`` is the inequality over the integers."""

    def __init__(self, design: types.ModuleType = window) -> None:
        self.design = design
        super().__init__({"base": In(32), "limit": In(32), "address": In(32), "size": In(11)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = Signal()
        end = Signal(40)
        m.d.comb += [
            inside.eq(self.design.in_window(base=self.base, limit=self.limit, address=self.address, end=self.address + self.size)),
            end.eq(self.address + self.size),
            Assert(inside == ((self.address >= self.base) & (end <= self.limit))),
        ]
        return m


class FifoSpec(wiring.Component):
    """Elements leave in order, none is lost, duplicated or taken when full: one element of free choice is followed.

    Parameters
    ----------
    depth : :class:`int`
    block : :class:`bool`
        In block RAM, which is read a cycle ahead.
    """

    def __init__(self, *, depth: int, block: bool = False, design: types.ModuleType = fifo) -> None:
        self.depth, self.block, self.design = depth, block, design
        super().__init__({"valid": In(1), "payload": In(2), "ready": In(1), "clear": In(1), "follow": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Fifo(2, self.depth, block=self.block)
        m.d.comb += [dut.i.valid.eq(self.valid), dut.i.payload.eq(self.payload), dut.o.ready.eq(self.ready),
                     dut.clear.eq(self.clear), Assume(~ResetSignal())]
        put = Signal()
        get = Signal()
        level = Signal(range(self.depth + 1))
        m.d.comb += [
            put.eq(dut.i.valid & dut.i.ready),
            get.eq(dut.o.valid & dut.o.ready),
            Assert(dut.i.ready == (level < self.depth)),
            Assert(dut.o.valid == (level > 0)),
            Assert(dut.level == level),
        ]
        m.d.sync += level.eq(Mux(self.clear, 0, level + put - get))

        followed = Signal()
        element = Signal(2)
        ahead = Signal.like(level)
        with m.If(put & self.follow & ~followed):
            m.d.sync += [followed.eq(1), element.eq(self.payload), ahead.eq(level - get)]
        with m.Elif(followed & get):
            m.d.sync += ahead.eq(ahead - 1)
            with m.If(ahead == 0):
                m.d.comb += Assert(dut.o.payload == element)
                m.d.sync += followed.eq(0)
        with m.If(self.clear):
            m.d.sync += followed.eq(0)
        return m


class SplitterSpec(wiring.Component):
    """The bursts of a request are its beats, in order, in legal bursts; ``last`` comes with its last beat."""

    def __init__(self, design: types.ModuleType = axi) -> None:
        self.design = design
        super().__init__({"valid": In(1), "address": In(32), "beats": In(17), "ready": In(1), "clear": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.BurstSplitter(_CONFIG)
        burst = dut.burst.p
        m.d.comb += [
            dut.request.valid.eq(self.valid), dut.request.p.address.eq(self.address),
            dut.request.p.beats.eq(self.beats), dut.burst.ready.eq(self.ready), dut.clear.eq(self.clear),
            Assume(~ResetSignal()), Assume(self.beats != 0),
        ]
        at = Signal(32)
        left = Signal(17)
        with m.If(dut.burst.valid):
            offset = burst.address[:12]
            m.d.comb += [
                Assert((burst.beats >= 1) & (burst.beats <= 64)),
                Assert(offset + burst.beats * _BEAT <= 4096),
                Assert(burst.address == at),
                Assert(burst.behind == at + burst.beats * _BEAT),
                Assert(burst.beats <= left),
                Assert(burst.last == (burst.beats == left)),
            ]
        with m.If(dut.burst.valid & self.ready):
            m.d.sync += [at.eq(at + burst.beats * _BEAT), left.eq(left - burst.beats)]
        with m.If(self.valid & dut.request.ready):
            m.d.sync += [at.eq(self.address >> _SHIFT << _SHIFT), left.eq(self.beats)]
            m.d.comb += Assert(~(dut.burst.valid & ~(self.ready & burst.last)))
        return m


class ReadSpec(wiring.Component):
    """No address outside the window is ever on AR, no burst is longer than 64 beats, AR keeps what waits, and no burst is issued
    behind a refused one or an error answer until a flush, nor during one."""

    def __init__(self, design: types.ModuleType = axi_read) -> None:
        self.design = design
        super().__init__({
            **{f"{name}{client}": In(width) for client in range(2)
               for name, width in (("valid", 1), ("address", 32), ("beats", 17), ("take", 1))},
            "base": In(32), "limit": In(32), "flush": In(1), "arready": In(1), "rvalid": In(1), "rlast": In(1),
            "rresp": In(2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.ReadManager(_CONFIG)
        for client in range(2):
            request, response = dut.request[client], dut.response[client]
            m.d.comb += [
                request.valid.eq(getattr(self, f"valid{client}")),
                request.p.address.eq(getattr(self, f"address{client}")),
                request.p.beats.eq(getattr(self, f"beats{client}")),
                response.ready.eq(getattr(self, f"take{client}")),
            ]
        m.d.comb += [
            dut.window_base.eq(self.base), dut.window_limit.eq(self.limit), dut.flush.eq(self.flush),
            dut.m_axi_arready.eq(self.arready), dut.m_axi_rvalid.eq(self.rvalid), dut.m_axi_rlast.eq(self.rlast),
            dut.m_axi_rresp.eq(self.rresp), Assume(~ResetSignal()),
        ]
        constant(m, self.base, self.limit)
        with m.If(dut.m_axi_arvalid):
            end = dut.m_axi_araddr + (dut.m_axi_arlen + 1) * _BEAT
            m.d.comb += [Assert(dut.m_axi_araddr >= self.base), Assert(end <= self.limit)]
        held(m, dut.m_axi_arvalid, self.arready, [dut.m_axi_araddr, dut.m_axi_arlen], "ar")
        for splitter in dut.splitters:
            m.d.comb += _burst_exists(splitter)
        _stopped(m, dut.report, dut.m_axi_arvalid & ~past(m, dut.m_axi_arvalid & ~self.arready, "ar_old"), self.flush)
        return m


class WriteSpec(wiring.Component):
    """No address outside the window is ever on AW, AW and W keep what waits, and no burst is issued behind a refused one or an
    error answer until a flush, nor during one."""

    def __init__(self, design: types.ModuleType = axi_write) -> None:
        self.design = design
        super().__init__({"valid": In(1), "address": In(32), "beats": In(17), "data_valid": In(1), "data": In(16),
                          "base": In(32), "limit": In(32), "flush": In(1), "awready": In(1), "wready": In(1),
                          "bvalid": In(1), "bresp": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.WriteManager(_CONFIG)
        m.d.comb += [
            dut.request.valid.eq(self.valid), dut.request.p.address.eq(self.address),
            dut.request.p.beats.eq(self.beats), dut.data.valid.eq(self.data_valid), dut.data.payload.eq(self.data),
            dut.window_base.eq(self.base), dut.window_limit.eq(self.limit), dut.flush.eq(self.flush),
            dut.m_axi_awready.eq(self.awready), dut.m_axi_wready.eq(self.wready), dut.m_axi_bvalid.eq(self.bvalid),
            dut.m_axi_bresp.eq(self.bresp), Assume(~ResetSignal()), _burst_exists(dut.splitter),
        ]
        constant(m, self.base, self.limit)
        with m.If(dut.m_axi_awvalid):
            end = dut.m_axi_awaddr + (dut.m_axi_awlen + 1) * _BEAT
            m.d.comb += [Assert(dut.m_axi_awaddr >= self.base), Assert(end <= self.limit)]
        held(m, dut.m_axi_awvalid, self.awready, [dut.m_axi_awaddr, dut.m_axi_awlen], "aw")
        held(m, dut.m_axi_wvalid, self.wready, [dut.m_axi_wdata, dut.m_axi_wstrb, dut.m_axi_wlast], "w")
        _stopped(m, dut.report, dut.m_axi_awvalid & ~past(m, dut.m_axi_awvalid & ~self.awready, "aw_old"), self.flush)
        return m
