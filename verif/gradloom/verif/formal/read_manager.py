"""Specifications of the read manager: what is on AR from the requests that it took, and which client gets what comes on R."""

import types

from amaranth.hdl import Assert, Assume, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.config import PRESETS
from gradloom.rtl.memory_path import axi, axi_read
from gradloom.verif.formal.statements import constant, held, past
from gradloom.verif.formal.write_manager import BurstLog

__all__ = ["ReadDataSpec", "ReadOrderSpec"]

_CONFIG = PRESETS["nano"]
_BEAT = _CONFIG.beat_bytes


def _logs(m: Module, spec: wiring.Component, dut: wiring.Component, far: Value) -> list[BurstLog]:
    """A log for each client. ``far`` says whose burst is on AR, as the clients' addresses tell."""
    return [BurstLog(m, dut.request[client], valid=dut.m_axi_arvalid, ready=spec.arready, address=dut.m_axi_araddr,
                     length=dut.m_axi_arlen, flush=spec.flush, mine=far == client, name=f"log{client}")
            for client in range(2)]


class ReadOrderSpec(wiring.Component):
    """On AR are the bursts of both clients' requests, with exact addresses and lengths, each client's in order, inside the window,
    and none behind one that was refused or answered with an error until a flush. No burst comes during a flush.

    Client 1's requests are those in the upper half of the memory.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: bursts of both clients in turn, a request behind a refused one, a burst after a flush.
    """

    def __init__(self, design: types.ModuleType = axi_read, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({
            **{f"{name}{client}": In(width) for client in range(2)
               for name, width in (("valid", 1), ("address", 31), ("beats", 17))},
            "base": In(32), "limit": In(32), "flush": In(1), "arready": In(1), "rvalid": In(1), "rlast": In(1), "rresp": In(2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.ReadManager(_CONFIG)
        for client in range(2):
            address, beats = getattr(self, f"address{client}"), getattr(self, f"beats{client}")
            m.d.comb += [
                dut.request[client].valid.eq(getattr(self, f"valid{client}")),
                dut.request[client].p.address.eq(client << 31 | address),
                dut.request[client].p.beats.eq(beats),
                Assume(address + beats * _BEAT <= 1 << 31),
            ]
        m.d.comb += [
            dut.window_base.eq(self.base), dut.window_limit.eq(self.limit), dut.flush.eq(self.flush),
            dut.m_axi_arready.eq(self.arready), dut.m_axi_rvalid.eq(self.rvalid), dut.m_axi_rlast.eq(self.rlast),
            dut.m_axi_rresp.eq(self.rresp), Assume(~ResetSignal()),
        ]
        constant(m, self.base, self.limit)
        held(m, dut.m_axi_arvalid, self.arready, [dut.m_axi_araddr, dut.m_axi_arlen], "ar")
        logs = _logs(m, self, dut, dut.m_axi_araddr[31])
        appears, blocked = logs[0].appears | logs[1].appears, logs[0].blocked | logs[1].blocked
        end = dut.m_axi_araddr + (dut.m_axi_arlen + 1) * _BEAT
        with m.If(dut.m_axi_arvalid):
            m.d.comb += [Assert(dut.m_axi_araddr >= self.base), Assert(end <= self.limit)]
        stopped = dut.report.refused | dut.report.failed
        m.d.comb += [Assert(~(appears & stopped)), Assert(~blocked | stopped)]
        if self.cover:
            after = Signal()
            m.d.sync += after.eq(after | (blocked & self.flush))
            m.d.comb += [Cover(logs[0].appears & past(m, logs[1].appears, "other")), Cover(blocked & ~dut.report.failed),
                         Cover(appears & after), Cover(appears & (dut.m_axi_arlen == 63))]
        return m


class ReadDataSpec(wiring.Component):
    """Every beat of R goes to the client of its burst, once and in order, ``last`` with the last beat of a request; none behind an
    error, and none during a flush, which takes and drops what comes. R waits for client 1 only. An error on any beat stops the
    manager and is told with its client. ``idle`` only when all beats have come, and during a flush as soon as they have.

    For bounded checks, with requests of at most 3 beats, which two bursts may share.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: beats for both clients, an error on a last beat with other bursts under way, the end of a flush.
    """

    def __init__(self, design: types.ModuleType = axi_read, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({
            **{f"{name}{client}": In(width) for client in range(2)
               for name, width in (("valid", 1), ("address", 8), ("beats", 2), ("take", 1))},
            "flush": In(1), "arready": In(1), "rvalid": In(1), "rdata": In(16), "rresp": In(2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.ReadManager(_CONFIG)
        for client in range(2):
            beats = getattr(self, f"beats{client}")
            m.d.comb += [
                dut.request[client].valid.eq(getattr(self, f"valid{client}")),
                dut.request[client].p.address.eq(getattr(self, f"address{client}") | client << 31),
                dut.request[client].p.beats.eq(beats),
                dut.response[client].ready.eq(getattr(self, f"take{client}")),
                Assume(beats != 0),
            ]
        final = Signal()
        m.d.comb += [
            dut.window_base.eq(0), dut.window_limit.eq(1 << 31 | 1 << 7), dut.flush.eq(self.flush),
            dut.m_axi_arready.eq(self.arready), dut.m_axi_rvalid.eq(self.rvalid), dut.m_axi_rdata.eq(self.rdata),
            dut.m_axi_rresp.eq(self.rresp), dut.m_axi_rlast.eq(final), Assume(~ResetSignal()),
        ]
        held(m, self.rvalid, dut.m_axi_rready, [self.rdata, self.rresp], "r", Assume)
        logs = _logs(m, self, dut, dut.m_axi_araddr[31])

        # Of the beats that bursts on AR have asked for and that have not come: how many, how many of them the memory knows of,
        # and of each its client, whether it ends its burst, and whether that burst ends its request.
        asked, known = Signal(6), Signal(6)
        of_client, ends, lasts = Signal(40), Signal(40), Signal(40)
        beat = Signal()
        kept = asked - beat
        m.d.comb += [beat.eq(self.rvalid & dut.m_axi_rready), final.eq(ends[0]), Assume(~self.rvalid | (known != 0))]
        beats = Mux(logs[0].appears, logs[0].beats, 0) + Mux(logs[1].appears, logs[1].beats, 0)
        ended = (Mux(logs[0].appears | logs[1].appears, 1, 0) << (kept + beats - 1)[:6])
        request_ends = Mux(logs[1].appears, logs[1].last, logs[0].last)
        mine = Mux(logs[1].appears, 0b111 & ((1 << beats[:2]) - 1), 0) << kept[:6]
        m.d.sync += [
            asked.eq(kept + beats),
            known.eq(known - beat + Mux(dut.m_axi_arvalid & self.arready, dut.m_axi_arlen + 1, 0)),
            of_client.eq(of_client >> beat | mine),
            ends.eq(ends >> beat | ended),
            lasts.eq(lasts >> beat | Mux(request_ends, ended, 0)),
        ]
        self._clients(m, dut, beat=beat, client=of_client[0], last=final & lasts[0])
        flushed = past(m, self.flush, "flush_before")
        m.d.comb += [
            Assert(~dut.idle | ((asked == 0) & ~dut.m_axi_arvalid)),
            Assert(~flushed | (dut.idle == ((asked == 0) & ~dut.m_axi_arvalid))),
            Assert(dut.beat == beat),
        ]
        # A request that is taken appears, whatever a flush left behind, unless a fault stops it.
        stuck = Signal(3)
        waits = ((logs[0].left != 0) | (logs[1].left != 0)) & (asked == 0) & ~dut.m_axi_arvalid & ~dut.response[0].valid
        stopped = dut.report.refused | dut.report.failed
        m.d.sync += stuck.eq(Mux(waits & ~stopped & ~self.flush, stuck + 1, 0))
        m.d.comb += Assert(stuck < 3)
        if self.cover:
            served = Signal(2)
            m.d.sync += served.eq(served | Mux(dut.response[0].valid & self.take0, 1, 0)
                                  | Mux(dut.response[1].valid & self.take1, 2, 0))
            m.d.comb += [Cover((served == 3) & (asked == 0)), Cover(beat & (self.rresp != 0) & final & (asked > 2)),
                         Cover(flushed & self.flush & dut.idle & past(m, beat, "beat_before"))]
        return m

    def _clients(self, m: Module, dut: wiring.Component, *, beat: Signal, client: Value, last: Value) -> None:
        failed, culprit = Signal(), Signal()
        bad = beat & (self.rresp != 0) & ~self.flush
        with m.If(self.flush):
            m.d.sync += failed.eq(0)
        with m.Elif(bad & ~failed):
            m.d.sync += [failed.eq(1), culprit.eq(client)]
        dropped = self.flush | failed | (self.rresp != 0)
        m.d.comb += [
            Assert(dut.response[1].valid == (self.rvalid & client & ~dropped)),
            Assert(~dut.response[1].valid | (dut.response[1].p.data == self.rdata) & (dut.response[1].p.last == last)),
            Assert(~self.rvalid | (dut.m_axi_rready == (dropped | ~client | self.take1))),
            Assert(dut.report.failed == failed),
            Assert(~failed | (dut.error_client == culprit)),
            Assert(dut.error == Mux(dut.report.valid & ~self.flush, Mux(failed, axi.ERROR_READ_RESPONSE,
                                                                        axi.ERROR_READ_WINDOW), 0)),
        ]
        # Beats that client 0 has not taken, the oldest lowest.
        inside, stored = Signal(4), Signal(17 * 8)
        response = dut.response[0]
        put = beat & ~client & ~dropped
        get = response.valid & response.ready
        m.d.comb += [Assert(response.valid == ((inside != 0) & ~self.flush)),
                     Assert(~response.valid | ((response.p.data == stored[:16]) & (response.p.last == stored[16])))]
        placed = Signal(17 * 8)
        left = Signal(4)
        m.d.comb += left.eq(inside - get)
        for n in range(8):
            with m.If(left == n):
                m.d.comb += placed[17 * n:17 * n + 17].eq(Mux(put, last << 16 | self.rdata, 0))
        m.d.sync += [inside.eq(Mux(self.flush, 0, left + put)),
                     stored.eq(Mux(self.flush, 0, Mux(get, stored >> 17, stored) | placed))]
