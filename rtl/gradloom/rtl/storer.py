"""The Storer: on-chip memories to DRAM."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.rtl.axi import REQUEST
from gradloom.rtl.buses import StoreBus
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.config import Config
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.isa import Opcode, Source
from gradloom.rtl.runs import BASES, RUN_FIELDS, BeatCounter, RunGenerator, misaligned

__all__ = ["Storer"]

ILLEGAL_FIELD = 0x20
ENTRY_BEATS = {Source.PBUF: 4, Source.XOUT: 8, Source.LOGIT: 2}
"""Beats of an entry; one of every other memory."""
STORE_LATENCY = 2
"""Cycles from ``en`` to the data on the store bus."""
FIFO_BEATS = 16
"""Covers the round trip of a read, so that one beat a cycle can leave."""


class Storer(wiring.Component):
    """Executes STORE: n2 x n1 runs of n0 beats go to DRAM, taken from successive on-chip addresses from ``addr0`` on.

    The first request is offered 3 cycles after ``start``; the memory is read ahead as far as the data FIFO has room.
    ``done`` comes when every write has been answered.

    Fault 0x20, before anything is written: n0, n1 or n2 is 0, an unknown source, or an address that is no multiple of
    the beat.

    Members
    -------
    port : ``In(CommandPort())``
    bases : ``In(ArrayLayout(32, 8))``
        Base registers, read in the cycle after ``start``.
    bus : ``Out(StoreBus(config))``
    request : ``Out(stream.Signature(REQUEST))``
    data : ``Out(stream.Signature(16 * config.group))``
    writes_idle : ``In(1)``
        ``idle`` of the write manager.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "port": In(CommandPort()),
            "bases": In(BASES),
            "bus": Out(StoreBus(config)),
            "request": Out(stream.Signature(REQUEST)),
            "data": Out(stream.Signature(16 * config.group)),
            "writes_idle": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        cmd = decode(Opcode.STORE, self.port.cmd)

        m.submodules.runs = runs = RunGenerator()
        m.submodules.counter = counter = BeatCounter(levels=3)
        m.submodules.fifo = fifo = Fifo(16 * config.group, FIFO_BEATS)
        first = Signal(32, reset_less=True)
        illegal = Signal()
        start = Signal(2)
        m.d.sync += start.eq(Cat(self.port.start, start))
        with m.If(start[0]):
            m.d.sync += first.eq(self.bases[cmd.breg] + cmd.offset)
        m.d.comb += [
            illegal.eq((cmd.n0 == 0) | (cmd.n1 == 0) | (cmd.n2 == 0) | (cmd.src > max(Source))
                       | misaligned(config, first, cmd.stride1, cmd.stride2)),
            self.port.fault.eq(Mux(start[1] & illegal, ILLEGAL_FIELD, 0)),
            runs.start.eq(start[1] & ~illegal),
            runs.first.eq(first),
            *(getattr(runs, name).eq(getattr(cmd, name)) for name in RUN_FIELDS),
        ]
        connect(m, runs.request, flipped(self.request))

        reading = Signal()
        room = Signal(range(FIFO_BEATS + 1), init=FIFO_BEATS)
        arriving = Signal(STORE_LATENCY)
        addr = Signal(16, reset_less=True)
        sub = Signal(4, reset_less=True)
        sub_last = Signal(4)
        with m.Switch(cmd.src):
            for source, beats in ENTRY_BEATS.items():
                with m.Case(source):
                    m.d.comb += sub_last.eq(beats - 1)
        leaves = fifo.o.valid & fifo.o.ready
        m.d.comb += [
            self.bus.en.eq(reading & (room != 0)),
            self.bus.src.eq(cmd.src),
            self.bus.addr.eq(addr),
            self.bus.sub.eq(sub),
            counter.clear.eq(runs.start),
            counter.step.eq(self.bus.en),
            counter.n[0].eq(cmd.n0),
            counter.n[1].eq(cmd.n1),
            counter.n[2].eq(cmd.n2),
            fifo.i.valid.eq(arriving[-1]),
            fifo.i.payload.eq(self.bus.data),
            self.data.valid.eq(fifo.o.valid),
            self.data.payload.eq(fifo.o.payload),
            fifo.o.ready.eq(self.data.ready),
        ]
        m.d.sync += [
            room.eq(room + leaves - self.bus.en),
            arriving.eq(Cat(self.bus.en, arriving)),
        ]
        with m.If(runs.start):
            m.d.sync += [reading.eq(1), addr.eq(cmd.addr0), sub.eq(0)]
        with m.Elif(self.bus.en):
            with m.If(counter.last[2]):
                m.d.sync += reading.eq(0)
            with m.If(sub == sub_last):
                m.d.sync += [sub.eq(0), addr.eq(addr + 1)]
            with m.Else():
                m.d.sync += sub.eq(sub + 1)

        # A taken request shows in `writes_idle` from the next cycle on, and data leave only after their request.
        running = Signal()
        finished = Signal()
        m.d.comb += finished.eq(running & ~reading & ~runs.busy & (room == FIFO_BEATS) & self.writes_idle)
        m.d.sync += self.port.done.eq(finished)
        with m.If(runs.start):
            m.d.sync += running.eq(1)
        with m.Elif(finished):
            m.d.sync += running.eq(0)
        return m
