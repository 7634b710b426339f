"""The AXI4 write manager of the Storer."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import BURST_BEATS
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import (
    ERROR_WRITE_RESPONSE,
    ERROR_WRITE_WINDOW,
    REQUEST,
    BurstSplitter,
    FaultReport,
    constant_address_signals,
    write_members,
)
from gradloom.rtl.memory_path.window import in_window

__all__ = ["OUTSTANDING_WRITES", "WriteManager"]

OUTSTANDING_WRITES = 16
"""Bursts whose response may be due."""


class WriteManager(wiring.Component):
    """Writes the Storer's requests in bursts of full beats.

    An address reaches AW 2 cycles after its request, a beat of data reaches W 1 cycle after it is taken; one beat a
    cycle. A burst's data are taken once its address is on AW, in the order of the requests.

    A burst outside the window is not issued; after any error no further burst is issued until a flush, while the data
    of issued bursts are still taken.

    Members
    -------
    m_axi_aw*, m_axi_w*, m_axi_b*
        AXI4, see :func:`gradloom.rtl.memory_path.axi.write_members`.
    request : ``In(stream.Signature(REQUEST))``
    data : ``In(stream.Signature(16 * config.group))``
    window_base, window_limit : ``In(32)``
        Bursts must lie in ``[window_base, window_limit)``.
    flush : ``In(1)``
        Requests are forgotten, no data is taken, and issued bursts end with beats that write nothing (strobes 0). To be
        held until ``idle``, and while the client is reset.
    idle : ``Out(1)``
        No request is stored, and every burst has its response.
    completed : ``Out(1)``
        The last burst of a command has its response in this cycle (requests with ``end``); none after an error response.
    beat : ``Out(1)``
        A beat leaves on W in this cycle.
    error : ``Out(8)``
        Non-zero in one cycle: 0x32 (SLVERR or DECERR), 0x33 (window), when the commands ahead of the faulty one have
        ended (:class:`gradloom.rtl.memory_path.axi.FaultReport`). Not during a flush.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.splitter = BurstSplitter(config)
        self.report = FaultReport()
        super().__init__(write_members(config) | {
            "request": In(stream.Signature(REQUEST)),
            "data": In(stream.Signature(16 * config.group)),
            "window_base": In(32),
            "window_limit": In(32),
            "flush": In(1),
            "idle": Out(1),
            "completed": Out(1),
            "beat": Out(1),
            "error": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.splitter = splitter = self.splitter
        m.submodules.lengths = lengths = Fifo(range(BURST_BEATS + 1), OUTSTANDING_WRITES)
        m.submodules.due = due = Fifo(1, OUTSTANDING_WRITES)
        m.d.comb += [
            splitter.request.valid.eq(self.request.valid),
            splitter.request.payload.eq(self.request.payload),
            self.request.ready.eq(splitter.request.ready),
            splitter.clear.eq(self.flush),
            *constant_address_signals(self, "aw", self.config),
        ]

        m.submodules.report = report = self.report
        bad_window = Signal()
        bad_response = Signal()
        stopped = report.refused | report.failed

        burst = splitter.burst.p
        inside = Signal()
        take = Signal()
        issue = Signal()
        m.d.comb += [
            inside.eq(in_window(base=self.window_base, limit=self.window_limit, address=burst.address, end=burst.behind)),
            take.eq(splitter.burst.valid & due.i.ready
                    & (~self.m_axi_awvalid | self.m_axi_awready) & ~stopped & ~bad_response & ~self.flush),
            issue.eq(take & inside),
            bad_window.eq(take & ~inside),
            splitter.burst.ready.eq(take),
            due.i.valid.eq(issue),
            due.i.payload.eq(burst.end),
            lengths.i.valid.eq(issue),
            lengths.i.payload.eq(burst.beats),
        ]
        with m.If(self.m_axi_awready):
            m.d.sync += self.m_axi_awvalid.eq(0)
        with m.If(issue):
            m.d.sync += [
                self.m_axi_awvalid.eq(1),
                self.m_axi_awaddr.eq(burst.address),
                self.m_axi_awlen.eq(burst.beats - 1),
            ]

        sent = Signal(range(BURST_BEATS))
        free = ~self.m_axi_wvalid | self.m_axi_wready
        send = Signal()
        last = Signal()
        m.d.comb += [
            self.data.ready.eq(free & lengths.o.valid & ~self.flush),
            send.eq(free & lengths.o.valid & (self.data.valid | self.flush)),
            last.eq(sent == lengths.o.payload - 1),
            lengths.o.ready.eq(send & last),
            self.beat.eq(self.m_axi_wvalid & self.m_axi_wready),
        ]
        with m.If(self.m_axi_wready):
            m.d.sync += self.m_axi_wvalid.eq(0)
        with m.If(send):
            m.d.sync += [
                self.m_axi_wvalid.eq(1),
                self.m_axi_wdata.eq(self.data.payload),
                self.m_axi_wstrb.eq((~self.flush).replicate(self.config.beat_bytes)),
                self.m_axi_wlast.eq(last),
                sent.eq(Mux(last, 0, sent + 1)),
            ]

        answered = self.m_axi_bvalid & self.m_axi_bready
        m.d.comb += [
            self.m_axi_bready.eq(1),
            bad_response.eq(answered & (self.m_axi_bresp != 0) & ~self.flush),
            due.o.ready.eq(answered),
            self.completed.eq(answered & due.o.payload & ~report.failed & ~bad_response & ~self.flush),
            self.idle.eq(~due.o.valid & ~self.m_axi_awvalid & ~splitter.busy),
        ]
        m.d.comb += [
            report.window.eq(bad_window),
            report.response.eq(bad_response),
            report.drained.eq(~due.o.valid),
            report.clear.eq(self.flush),
            self.error.eq(Mux(report.valid & ~self.flush, Mux(report.of_response, ERROR_WRITE_RESPONSE, ERROR_WRITE_WINDOW), 0)),
        ]
        return m
