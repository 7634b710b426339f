"""The Storer: on-chip memories to DRAM."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode, Source
from gradloom.contracts.matrix_isa import stored_memories
from gradloom.contracts.pipeline import STORES_IN_FLIGHT
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import REQUEST
from gradloom.rtl.memory_path.buses import StoreBus
from gradloom.rtl.memory_path.strided_address import (
    BeatCounter,
    StridedAddressGenerator,
    loops_of,
    misaligned,
    unknown_memory,
)

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
    The next command is taken when all beats have been read, while writes still wait for their answers; ``done`` comes
    when every write of the command has been answered.

    Fault 0x20, before anything is written: n0, n1 or n2 is 0, an unknown source, or an address that is no multiple of
    the beat. It is raised when all earlier commands are done; no later command is taken.

    Members
    -------
    port : ``In(CommandPort())``
        The Sequencer has added the base register to the command's offset already, in the order of the program.
    bus : ``Out(StoreBus(config))``
    request : ``Out(stream.Signature(REQUEST))``
    data : ``Out(stream.Signature(16 * config.group))``
    completed : ``In(1)``
        From the write manager: a command's last write has been answered.
    """

    IN_FLIGHT = STORES_IN_FLIGHT
    """Commands under way: read, but not all answered."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "port": In(CommandPort()),
            "bus": Out(StoreBus(config)),
            "request": Out(stream.Signature(REQUEST)),
            "data": Out(stream.Signature(16 * config.group)),
            "completed": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        cmd = decode(Opcode.STORE, self.port.cmd)

        m.submodules.runs = runs = StridedAddressGenerator()
        m.submodules.counter = counter = BeatCounter(levels=3)
        m.submodules.fifo = fifo = Fifo(16 * config.group, FIFO_BEATS)
        illegal = Signal()
        refused = Signal()
        reading = Signal()
        start = Signal(2)
        m.d.sync += start.eq(Cat(self.port.start, start))
        m.d.comb += [
            illegal.eq((cmd.n0 == 0) | (cmd.n1 == 0) | (cmd.n2 == 0) | unknown_memory(cmd.src, stored_memories(config))
                       | misaligned(config, cmd.offset, cmd.stride1, cmd.stride2)),
            self.port.free.eq(~start.any() & ~runs.busy & ~reading & ~refused),
            runs.start.eq(start[1] & ~illegal),
            runs.first.eq(cmd.offset),
            runs.loops.eq(loops_of(cmd)),
        ]
        connect(m, runs.request, flipped(self.request))

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

        # Answers may come in successive cycles, `done` must not.
        answered = Signal(range(self.IN_FLIGHT + 1))
        # Asked for only beside a refused command, so at most IN_FLIGHT - 1 are under way then.
        under_way = Signal(range(self.IN_FLIGHT))
        finish = Signal()
        m.d.comb += finish.eq((answered != 0) & ~self.port.done)
        m.d.sync += [
            answered.eq(answered + self.completed - finish),
            under_way.eq(under_way + runs.start - self.port.done),
            self.port.done.eq(finish),
        ]
        reported = Signal()
        with m.If(start[1] & illegal):
            m.d.sync += refused.eq(1)
        with m.If(refused & (under_way == 0) & ~reported):
            m.d.comb += self.port.fault.eq(ILLEGAL_FIELD)
            m.d.sync += reported.eq(1)
        return m
