"""Specifications of the write manager: what is on AW, what is on W and B, from the requests and data that it took."""

import types

from amaranth.hdl import Assert, Assume, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.config import PRESETS
from gradloom.rtl.memory_path import axi, axi_write
from gradloom.verif.formal.run import planted_bug
from gradloom.verif.formal.statements import constant, held, past

__all__ = ["BurstLog", "WriteDataSpec", "WriteOrderSpec", "small_manager"]

_CONFIG = PRESETS["nano"]
_BEAT = _CONFIG.beat_bytes
_SHIFT = _BEAT.bit_length() - 1


_SMALL = {"axi_read": ("from gradloom.contracts.pipeline import FETCH_BEATS, OUTSTANDING_READS\n",
                      "OUTSTANDING_READS, FETCH_BEATS = 3, 4\n"),
          "axi_write": ("OUTSTANDING_WRITES = 16", "OUTSTANDING_WRITES = 2"), "axi": ("SETTLE = 8", "SETTLE = 2")}


def small_manager(module: str, *changes: str) -> types.ModuleType:
    """A copy of a manager's module whose buffers fill and whose errors are told within the cycles of a bounded check.

    Parameters
    ----------
    module : :class:`str`
        ``axi_read`` or ``axi_write``.
    changes : :class:`str`
        As of :func:`gradloom.verif.formal.run.planted_bug`: a bug.
    """
    package = "gradloom.rtl.memory_path"
    design = planted_bug(f"{package}.{module}", *_SMALL[module], *changes)
    design.__dict__["FaultReport"] = planted_bug(f"{package}.axi", *_SMALL["axi"]).FaultReport
    return design


class BurstLog:
    """The bursts that have to appear on an address channel: all beats of each request, in order, cut where a multiple of 64 beats
    begins. Behind a burst that does not appear nothing does, until a flush.

    Attributes
    ----------
    appears : :class:`amaranth.hdl.Signal`
        A burst is on the channel that was not there in the cycle before.
    beats : :class:`amaranth.hdl.Signal`
        Its beats, as the channel tells them.
    left : :class:`amaranth.hdl.Signal`
        Beats of the request at hand that have not appeared.
    blocked : :class:`amaranth.hdl.Signal`
        A burst was passed over.
    last, end : :class:`amaranth.hdl.Value`
        It is the last of its request, and that request the last of its command.
    """

    def __init__(self, m: Module, request: wiring.PureInterface, *, valid: Value, ready: Value, address: Value, length: Value,
                 flush: Value, mine: Value | int = 1, name: str = "log") -> None:
        self.appears = Signal(name=f"{name}_appears")
        self.beats = Signal(9, name=f"{name}_beats")
        fresh = ~past(m, valid & ~ready, f"{name}_old")
        m.d.comb += [self.appears.eq(valid & fresh & mine), self.beats.eq(length + 1)]
        # A request is taken no sooner than its predecessor's last burst leaves the splitter; that burst is on the channel one
        # cycle later, so the log follows requests one cycle late.
        taken = past(m, request.valid & request.ready, f"{name}_taken")
        payload = past(m, request.payload.as_value(), f"{name}_payload")
        new_address, new_beats, new_end = payload[:32], payload[32:49], payload[49]

        at, end = Signal(32, name=f"{name}_at"), Signal(name=f"{name}_end")
        self.left = left = Signal(17, name=f"{name}_left")
        self.blocked = Signal(name=f"{name}_blocked")
        room, expected = Signal(7, name=f"{name}_room"), Signal(17, name=f"{name}_expected")
        after = Signal(17, name=f"{name}_after")
        self.last = left == expected
        self.end = self.last & end
        m.d.comb += [
            room.eq(axi.BURST_BEATS - at[_SHIFT:][:6]), expected.eq(Mux(left < room, left, room)),
            after.eq(left - Mux(self.appears, self.beats, 0)),
            Assert(~request.ready | ~flush),
            Assert(~self.appears | ~past(m, flush, f"{name}_flushed")),
        ]
        with m.If(self.appears):
            m.d.comb += [Assert(~self.blocked), Assert(left != 0), Assert(address == at), Assert(self.beats == expected)]
            m.d.sync += [at.eq(at + (expected << _SHIFT)), left.eq(after)]
        with m.If(taken):
            m.d.sync += [at.eq(new_address >> _SHIFT << _SHIFT), left.eq(new_beats), end.eq(new_end)]
            with m.If(after != 0):
                m.d.sync += self.blocked.eq(1)
        with m.If(flush):
            m.d.sync += [left.eq(0), self.blocked.eq(0)]


class WriteOrderSpec(wiring.Component):
    """On AW are the bursts of the requests, with exact addresses and lengths, in order, inside the window, and none behind one that
    was refused or answered with an error until a flush. No burst comes during a flush.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: the second burst of a request, a request behind a refused one, a burst after the flush of a refusal.
    """

    def __init__(self, design: types.ModuleType = axi_write, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"valid": In(1), "address": In(32), "beats": In(17), "base": In(32), "limit": In(32), "flush": In(1),
                          "awready": In(1), "bvalid": In(1), "bresp": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.WriteManager(_CONFIG)
        m.d.comb += [
            dut.request.valid.eq(self.valid), dut.request.p.address.eq(self.address), dut.request.p.beats.eq(self.beats),
            dut.window_base.eq(self.base), dut.window_limit.eq(self.limit), dut.flush.eq(self.flush),
            dut.m_axi_awready.eq(self.awready), dut.m_axi_bvalid.eq(self.bvalid), dut.m_axi_bresp.eq(self.bresp),
            Assume(~ResetSignal()),
        ]
        constant(m, self.base, self.limit)
        held(m, dut.m_axi_awvalid, self.awready, [dut.m_axi_awaddr, dut.m_axi_awlen], "aw")
        log = BurstLog(m, dut.request, valid=dut.m_axi_awvalid, ready=self.awready, address=dut.m_axi_awaddr,
                       length=dut.m_axi_awlen, flush=self.flush)
        failed = Signal()
        with m.If(self.flush):
            m.d.sync += failed.eq(0)
        with m.Elif(self.bvalid & (self.bresp != 0)):
            m.d.sync += failed.eq(1)
        end = dut.m_axi_awaddr + (dut.m_axi_awlen + 1) * _BEAT
        with m.If(dut.m_axi_awvalid):
            m.d.comb += [Assert(dut.m_axi_awaddr >= self.base), Assert(end <= self.limit)]
        m.d.comb += [Assert(~(log.appears & failed)), Assert(~log.blocked | dut.report.refused | failed)]
        if self.cover:
            refusals = Signal(2)
            m.d.sync += refusals.eq(Mux(refusals == 3, 3, refusals + (log.blocked & self.flush)))
            m.d.comb += [Cover(log.appears & log.last & past(m, log.appears, "second")), Cover(log.blocked & ~failed),
                         Cover(log.appears & (refusals != 0)), Cover(log.appears & (dut.m_axi_awlen == 63))]
        return m


class WriteDataSpec(wiring.Component):
    """W carries the data taken, each once and in order, ``wlast`` after each burst's beats and no beat without its burst; strobes
    are full, and 0 for what a flush makes up. A flush lets a beat leave whenever one is due. ``idle`` only when every
    burst is answered, and during a flush as soon as it is; ``completed`` once for each command whose last burst is answered, none
    behind an error and none during a flush.

    For bounded checks, with requests of at most 3 beats, which two bursts may share.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a completed command of two bursts, the end of a flush that made up beats.
    """

    def __init__(self, design: types.ModuleType = axi_write, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"valid": In(1), "address": In(32), "beats": In(17), "end": In(1), "data_valid": In(1), "data": In(16),
                          "flush": In(1), "awready": In(1), "wready": In(1), "bvalid": In(1), "bresp": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.WriteManager(_CONFIG)
        m.d.comb += [
            dut.request.valid.eq(self.valid), dut.request.p.address.eq(self.address),
            dut.request.p.beats.eq(self.beats), dut.request.p.end.eq(self.end),
            dut.data.valid.eq(self.data_valid), dut.data.payload.eq(self.data),
            dut.window_base.eq(0), dut.window_limit.eq(0x1000), dut.flush.eq(self.flush),
            dut.m_axi_awready.eq(self.awready), dut.m_axi_wready.eq(self.wready),
            dut.m_axi_bvalid.eq(self.bvalid), dut.m_axi_bresp.eq(self.bresp),
            Assume(~ResetSignal()), Assume((self.beats > 0) & (self.beats <= 3)), Assume(self.address[13:] == 0),
        ]
        held(m, dut.m_axi_wvalid, self.wready, [dut.m_axi_wdata, dut.m_axi_wstrb, dut.m_axi_wlast], "w")
        log = BurstLog(m, dut.request, valid=dut.m_axi_awvalid, ready=self.awready, address=dut.m_axi_awaddr,
                       length=dut.m_axi_awlen, flush=self.flush)
        sent = dut.m_axi_wvalid & self.wready
        flushed = past(m, self.flush, "flush_before")
        # Of the beats that bursts on AW have promised and that have not left on W: how many, and the wlast of each.
        promised, lasts = Signal(6), Signal(40)
        kept = promised - sent
        added = Mux(log.appears, log.beats, 0)
        m.d.sync += [
            promised.eq(kept + added),
            lasts.eq((lasts >> sent) | Mux(log.appears, 1 << (kept + added - 1)[:6], 0)),
        ]
        fresh = Signal()
        m.d.comb += fresh.eq(dut.m_axi_wvalid & ~past(m, dut.m_axi_wvalid & ~self.wready, "w_old"))
        taken = past(m, self.data_valid & dut.data.ready, "data_taken")
        m.d.comb += [
            Assert(~dut.m_axi_wvalid | ((promised > 0) & (dut.m_axi_wlast == lasts[0]))),
            Assert(~(self.flush & dut.data.ready)),
            Assert(~taken | fresh), Assert(~fresh | taken | flushed),
            Assert(~taken | (dut.m_axi_wdata == past(m, self.data, "data_before"))),
            Assert(~fresh | (dut.m_axi_wstrb == Mux(flushed, 0, (1 << _BEAT) - 1))),
            Assert(~flushed | (promised == 0) | dut.m_axi_wvalid),
            Assert(dut.beat == sent),
        ]
        self._answers(m, dut, log, finished=sent & dut.m_axi_wlast, promised=promised, flushed=flushed, fresh=fresh)
        return m

    def _answers(self, m: Module, dut: wiring.Component, log: BurstLog, *, finished: Value, promised: Signal, flushed: Signal,
                 fresh: Signal) -> None:
        """B: a burst is answered when its address and its data were taken (AXI4, section A3.3.1)."""
        due, addresses, data = Signal(4), Signal(4), Signal(4)
        ends, two = Signal(16), Signal(16)
        failed = Signal()
        answered = Signal()
        m.d.comb += answered.eq(self.bvalid & dut.m_axi_bready)
        m.d.sync += [
            due.eq(due + log.appears - answered),
            addresses.eq(addresses + (dut.m_axi_awvalid & self.awready) - answered),
            data.eq(data + finished - answered),
            ends.eq((ends >> answered) | Mux(log.appears & log.end, 1 << (due - answered)[:4], 0)),
            two.eq((two >> answered) | Mux(log.appears & past(m, log.appears & ~log.last, "first"), 1 << (due - answered)[:4], 0)),
        ]
        with m.If(self.flush):
            m.d.sync += failed.eq(0)
        with m.Elif(answered & (self.bresp != 0)):
            m.d.sync += failed.eq(1)
        completed = answered & ends[0] & ~failed & (self.bresp == 0) & ~self.flush
        m.d.comb += [
            Assume(~self.bvalid | ((addresses > 0) & (data > 0))),
            Assert(dut.m_axi_bready),
            Assert(dut.completed == completed),
            Assert(~(log.appears & failed)),
            Assert(dut.report.failed == failed),
            Assert(~log.blocked | dut.report.refused | failed),
            Assert(~dut.idle | ((promised == 0) & ~dut.m_axi_awvalid & (due == 0))),
            Assert(~flushed | (dut.idle == (~dut.m_axi_awvalid & (due == 0)))),
            Assert(dut.error == Mux(dut.report.valid & ~self.flush, Mux(failed, axi.ERROR_WRITE_RESPONSE,
                                                                        axi.ERROR_WRITE_WINDOW), 0)),
        ]
        if self.cover:
            made_up = Signal()
            m.d.sync += made_up.eq(made_up | (fresh & flushed & dut.m_axi_wlast))
            m.d.comb += [Cover(completed & two[0]), Cover(made_up & self.flush & dut.idle), Cover(failed & (due > 0))]
