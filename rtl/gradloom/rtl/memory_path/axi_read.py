"""The AXI4 read manager: program fetch and Loader share the read half of the memory port."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import FETCH_BEATS, OUTSTANDING_READS
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import (
    ERROR_READ_RESPONSE,
    ERROR_READ_WINDOW,
    REQUEST,
    BurstSplitter,
    FaultReport,
    constant_address_signals,
    read_members,
    response_layout,
)
from gradloom.rtl.memory_path.window import in_window

__all__ = ["ReadManager"]


class ReadManager(wiring.Component):
    """Serves the read requests of two clients, 0 = program fetch and 1 = Loader, in bursts, round robin from burst
    to burst.

    An address reaches AR 2 cycles after its request; one burst a cycle. Data come in the order of the client's
    requests. Client 1 sees R combinationally: while it is not ready it stalls both clients (the Loader of channel 0, the only
    one beside a program fetch, always is while it has requests under way). Client 0 may stall at will: its bursts are issued
    only when its response buffer (1 cycle) has room for all of their beats.

    A burst outside the window is not issued; after any error no further burst is issued until a flush, and after an error
    response no further beat is handed on.

    Parameters
    ----------
    fetches : :class:`bool`
        There is a client 0; else its streams are silent.

    Members
    -------
    m_axi_ar*, m_axi_r*
        AXI4, see :func:`gradloom.rtl.memory_path.axi.read_members`.
    request : ``In(stream.Signature(REQUEST)).array(2)``
    response : ``Out(stream.Signature(response_layout(config))).array(2)``
    window_base, window_limit : ``In(32)``
        Bursts must lie in ``[window_base, window_limit)``.
    flush : ``In(1)``
        Requests are forgotten, and the data of bursts under way are taken and dropped. To be held until ``idle``, and
        while the clients are reset.
    waiting : ``In(1)``
        Client 1 holds a beat that its memory does not take yet.
    idle : ``Out(1)``
        No request is stored and no burst under way.
    beat : ``Out(1)``
        A beat is taken from R in this cycle.
    error : ``Out(8)``
        Non-zero in one cycle: 0x30 (SLVERR or DECERR), 0x31 (window), when the commands ahead of the faulty one have
        ended (:class:`gradloom.rtl.memory_path.axi.FaultReport`). Not during a flush.
    error_client : ``Out(1)``
        The client of that burst.
    """

    def __init__(self, config: Config, *, fetches: bool = True) -> None:
        self.config = config
        self.fetches = fetches
        self.clients = (0, 1) if fetches else (1,)
        self.splitters = [BurstSplitter(config) for _ in self.clients]
        self.report = FaultReport()
        super().__init__(read_members(config) | {
            "request": In(stream.Signature(REQUEST)).array(2),
            "response": Out(stream.Signature(response_layout(config))).array(2),
            "window_base": In(32),
            "window_limit": In(32),
            "flush": In(1),
            "waiting": In(1),
            "idle": Out(1),
            "beat": Out(1),
            "error": Out(8),
            "error_client": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.under_way = under_way = Fifo(StructLayout({"client": 1, "last": 1}), OUTSTANDING_READS)
        splitters = self.splitters
        for client, splitter in zip(self.clients, splitters, strict=True):
            m.submodules[f"splitter{client}"] = splitter
            m.d.comb += [
                splitter.request.valid.eq(self.request[client].valid),
                splitter.request.payload.eq(self.request[client].payload),
                self.request[client].ready.eq(splitter.request.ready),
                splitter.clear.eq(self.flush),
            ]

        m.submodules.report = report = self.report
        bad_window = Signal()
        bad_response = Signal()
        stopped = report.refused | report.failed

        fetching = Signal()
        previous = Signal()
        client = Signal()
        bursts = [splitter.burst.p for splitter in splitters]
        burst = Signal.like(splitters[-1].burst.payload)
        inside = Signal()
        take = Signal()
        issue = Signal()
        m.d.comb += [
            client.eq(Mux(previous, ~fetching, splitters[-1].burst.valid) if self.fetches else 1),
            burst.eq(Mux(client, bursts[-1], bursts[0]) if self.fetches else bursts[-1]),
            # Of both clients' bursts, as the choice between them comes late.
            inside.eq(Mux(client, *(in_window(base=self.window_base, limit=self.window_limit, address=of.address, end=of.behind)
                                    for of in (bursts[-1], bursts[0])))),
            take.eq((fetching | splitters[-1].burst.valid) & under_way.i.ready & (~self.m_axi_arvalid | self.m_axi_arready)
                    & ~stopped & ~bad_response & ~self.flush),
            issue.eq(take & inside),
            bad_window.eq(take & ~inside),
            under_way.i.valid.eq(issue),
            under_way.i.p.client.eq(client),
            under_way.i.p.last.eq(burst.last),
            *(splitter.burst.ready.eq(take & (client == n)) for n, splitter in zip(self.clients, splitters, strict=True)),
            *constant_address_signals(self, "ar", self.config),
        ]
        with m.If(self.m_axi_arready):
            m.d.sync += self.m_axi_arvalid.eq(0)
        with m.If(take):
            m.d.sync += previous.eq(client)
        with m.If(issue):
            m.d.sync += [
                self.m_axi_arvalid.eq(1),
                self.m_axi_araddr.eq(burst.address),
                self.m_axi_arlen.eq(burst.beats - 1),
            ]
        head = under_way.o.p
        dropped = self.flush | report.failed | (self.m_axi_rresp != 0)
        arrives = self.m_axi_rvalid & under_way.o.valid & ~dropped
        m.d.comb += [
            self.m_axi_rready.eq(under_way.o.valid & (dropped | ~head.client | self.response[1].ready)),
            self.beat.eq(self.m_axi_rvalid & self.m_axi_rready),
            under_way.o.ready.eq(self.beat & self.m_axi_rlast),
            self.response[1].valid.eq(arrives & head.client),
            self.response[1].p.data.eq(self.m_axi_rdata),
            self.response[1].p.last.eq(self.m_axi_rlast & head.last),
            self.idle.eq(~self.m_axi_arvalid & ~under_way.o.valid & ~Cat(splitter.busy for splitter in splitters).any()),
        ]
        if self.fetches:
            self._fetch(m, fetching, issued=Mux(issue & ~client, burst.beats, 0), arrives=arrives & ~head.client)

        m.d.comb += [
            bad_response.eq(self.beat & (self.m_axi_rresp != 0) & ~self.flush),
            report.window.eq(bad_window),
            report.response.eq(bad_response),
            report.client.eq(Mux(bad_response, head.client, client)),
            report.drained.eq(~under_way.o.valid),
            report.waiting.eq(self.waiting),
            report.clear.eq(self.flush),
            self.error.eq(Mux(report.valid & ~self.flush, Mux(report.of_response, ERROR_READ_RESPONSE, ERROR_READ_WINDOW), 0)),
            self.error_client.eq(report.of_client),
        ]
        return m

    def _fetch(self, m: Module, fetching: Signal, *, issued: Value, arrives: Value) -> None:
        """The response buffer of client 0. Its room is reserved when a burst is issued, so R never waits for it."""
        m.submodules.fetch = fetch = Fifo(response_layout(self.config), FETCH_BEATS, block=not self.config.lutram_bits)
        reserved = Signal(range(FETCH_BEATS + 1))
        burst, response = self.splitters[0].burst, self.response[0]
        m.d.comb += [
            fetching.eq(burst.valid & (reserved + burst.p.beats <= FETCH_BEATS)),
            fetch.clear.eq(self.flush),
            fetch.i.valid.eq(arrives),
            fetch.i.p.eq(self.response[1].p),
            response.valid.eq(fetch.o.valid & ~self.flush),
            response.payload.eq(fetch.o.payload),
            fetch.o.ready.eq(response.ready),
        ]
        leaves = fetch.o.valid & fetch.o.ready
        m.d.sync += reserved.eq(reserved + issued - leaves)
        with m.If(self.flush):
            m.d.sync += reserved.eq(0)
