"""The Loader: DRAM to the on-chip memories."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out, connect, flipped

from gradloom.contracts.config import WEIGHT_BANKS, Config
from gradloom.contracts.isa import Dest, Opcode
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import loaded_memories, turning_memories
from gradloom.contracts.pipeline import LOADS_IN_FLIGHT
from gradloom.rtl.command import CommandPort, decode
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import REQUEST, response_layout
from gradloom.rtl.memory_path.buses import LoadBus
from gradloom.rtl.memory_path.strided_address import (
    BeatCounter,
    StridedAddressGenerator,
    loops_of,
    misaligned,
    unknown_memory,
)

__all__ = ["Loader"]

ILLEGAL_FIELD = 0x20
ENTRY_BEATS = 4
"""Beats of a parameter entry (G x 64 bits)."""
WIDE_BEATS = 8
"""Beats of 2 G wide weight gradients (64 bits each)."""
PLACEMENT = StructLayout({"dest": 4, "linear": 1, "bank0": 4, "bstep": 2, "xe": 12, "xb": 16, "n0": 16, "n1": 16, "n2": 16,
                          "addr0": 16, "ostep": 16, "illegal": 1})
"""What of a command is needed when its data come."""


class Loader(wiring.Component):
    """Executes LOAD (``docs/machine.md`` section 3, "Loader addressing").

    Addresses run ahead of the data: the runs of up to ``IN_FLIGHT`` commands are requested as fast as the read manager
    takes them, while the beats that come back are placed in order, one a cycle and one cycle between two commands, so that
    the memory's latency is paid once. The first request is offered 3 cycles after ``start``; a beat is on the load bus
    1 cycle after the response and stays there until it is ``ready``; ``done`` comes 2 cycles after the last beat was taken, so
    the memories may register the bus once.

    Fault 0x20, before anything is read: n0, n1, n2 or (IBUF, EBUF) xb is 0, an unknown destination, a bank that does
    not exist, or an address that is no multiple of the beat. It is raised when all earlier commands are done; no later
    command is taken.

    Members
    -------
    port : ``In(CommandPort())``
        The Sequencer has added the base register to the command's offset already, in the order of the program.
    request : ``Out(stream.Signature(REQUEST))``
    response : ``In(stream.Signature(response_layout(config)))``
        Ready while beats are expected and the bus takes them.
    bus : ``Out(LoadBus(config))``
    ready : ``In(1)``
        The beat on the bus is taken in this cycle (:class:`gradloom.rtl.memory_path.load_arbiter.LoadArbiter`).
    """

    IN_FLIGHT = LOADS_IN_FLIGHT
    """Commands under way: requested, but not all placed."""

    def __init__(self, config: Config | MatrixConfig) -> None:
        self.config = config
        super().__init__({
            "port": In(CommandPort()),
            "request": Out(stream.Signature(REQUEST)),
            "response": In(stream.Signature(response_layout(config))),
            "bus": Out(LoadBus(config)),
            "ready": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        banks = config.row_banks
        cmd = decode(Opcode.LOAD, self.port.cmd)
        m.submodules.runs = runs = StridedAddressGenerator()
        m.submodules.placements = placements = Fifo(PLACEMENT, self.IN_FLIGHT)
        refused = Signal()
        start = Signal(2)
        m.d.sync += start.eq(Cat(self.port.start, start))
        rows = (cmd.dest == Dest.IBUF) | (cmd.dest == Dest.EBUF)
        blocks = cmd.dest == Dest.WBUF
        new = placements.i.p
        illegal = ((cmd.n0 == 0) | (cmd.n1 == 0) | (cmd.n2 == 0) | unknown_memory(cmd.dest, loaded_memories(config))
                   | (rows & ((cmd.xb == 0) | (cmd.bank0 >= banks))) | (blocks & (cmd.bank0 >= WEIGHT_BANKS))
                   | misaligned(config, cmd.offset, cmd.stride1, cmd.stride2))
        if isinstance(config, MatrixConfig):
            # Bytes of a beat for one word each, where the memory does not take them so.
            turns = Cat(cmd.dest == operand for operand in turning_memories(config)).any()
            illegal |= (cmd.bank0 > 1) | (cmd.bank0[0] & ~turns)
        m.d.comb += [
            *(new[name].eq(getattr(cmd, name)) for name in PLACEMENT.members if name != "illegal"),
            new.illegal.eq(illegal),
            placements.i.valid.eq(start[1]),
            self.port.free.eq(~start.any() & ~runs.busy & ~refused),
            runs.start.eq(start[1] & ~new.illegal),
            runs.first.eq(cmd.offset),
            runs.loops.eq(loops_of(cmd)),
        ]
        with m.If(start[1] & new.illegal):
            m.d.sync += refused.eq(1)
        connect(m, runs.request, flipped(self.request))
        self._place(m, placements)
        return m

    def _place(self, m: Module, placements: Fifo) -> None:
        """The beats of one command after the other, from the responses to the load bus."""
        config = self.config
        banks = config.row_banks
        m.submodules.counter = counter = BeatCounter(levels=3)
        cmd = Signal(PLACEMENT, reset_less=True)
        running = Signal()
        following = placements.o.p
        begin = Signal()
        beat = Signal()
        moves = Signal()
        final = Signal()
        m.d.comb += [
            moves.eq(~self.bus.valid | self.ready),
            begin.eq(placements.o.valid & ~running & moves),
            placements.o.ready.eq(begin),
            beat.eq(self.response.valid & running & moves),
            self.response.ready.eq(running & moves),
            counter.clear.eq(begin),
            counter.step.eq(beat),
            counter.n[0].eq(cmd.n0),
            counter.n[1].eq(cmd.n1),
            counter.n[2].eq(cmd.n2),
        ]
        # `done` and a refusal leave in the order of the commands, when the last beat has been written.
        ended, refusal = Signal(), Signal(2)
        m.d.sync += [ended.eq(self.bus.valid & self.ready & final), self.port.done.eq(ended),
                     refusal.eq(Cat(begin & following.illegal, refusal)),
                     self.port.fault.eq(Mux(refusal[1], ILLEGAL_FIELD, 0))]
        with m.If(begin):
            m.d.sync += [cmd.eq(following), running.eq(~following.illegal)]
        with m.Elif(beat & counter.last[2]):
            m.d.sync += running.eq(0)

        rows = (cmd.dest == Dest.IBUF) | (cmd.dest == Dest.EBUF)
        blocks = cmd.dest == Dest.WBUF
        # `origin`: where the present outer iteration (WBUF: run) starts; `row`: where the present row of a bank starts.
        origin = Signal(16, reset_less=True)
        row = Signal(16, reset_less=True)
        bank = Signal(4, reset_less=True)
        addr = Signal(16, reset_less=True)
        sub = Signal(4, reset_less=True)
        in_row = Signal(16, reset_less=True)
        with m.If(moves):
            m.d.sync += [
                self.bus.valid.eq(beat),
                final.eq(counter.last[2]),
                self.bus.dest.eq(cmd.dest),
                self.bus.bank.eq(bank),
                self.bus.addr.eq(addr),
                self.bus.sub.eq(sub),
                self.bus.data.eq(self.response.p.data),
            ]

        sub_last = Signal(4)
        with m.Switch(cmd.dest):
            with m.Case(Dest.WBUF):
                m.d.comb += sub_last.eq(config.block_beats - 1)
            with m.Case(Dest.PBUF):
                m.d.comb += sub_last.eq(ENTRY_BEATS - 1)
            with m.Case(Dest.XIN):
                m.d.comb += sub_last.eq(WIDE_BEATS - 1)

        # A bank of weights moves on where the banks wrap, unless all of them go to one.
        weaves = blocks & ~cmd.linear
        next_addr, next_in_row = Signal(16), Signal(17)
        restart = Signal()
        next_bank = Signal(5)
        wraps = Signal()
        m.d.comb += [
            next_in_row.eq(in_row + 1),
            next_addr.eq(addr + (~weaves | wraps)),
            restart.eq((rows & counter.last[1]) | (blocks & counter.last[0])),
            next_bank.eq(bank + Mux(rows, cmd.bstep, 1)),
            wraps.eq(next_bank >= Mux(rows, banks, WEIGHT_BANKS)),
        ]
        with m.If(begin):
            m.d.sync += [origin.eq(following.addr0), row.eq(following.addr0), addr.eq(following.addr0),
                         bank.eq(following.bank0), sub.eq(0), in_row.eq(0)]
        with m.Elif(beat):
            with m.If(restart):
                onward = (origin + cmd.ostep)[:16]
                m.d.sync += [origin.eq(onward), row.eq(onward), addr.eq(onward), bank.eq(cmd.bank0),
                             sub.eq(0), in_row.eq(0)]
            with m.Elif(rows):
                with m.If(next_in_row == cmd.xb):
                    next_row = Mux(wraps, row + cmd.xe, row)
                    m.d.sync += [in_row.eq(0), row.eq(next_row), addr.eq(next_row),
                                 bank.eq(Mux(wraps, next_bank - banks, next_bank))]
                with m.Else():
                    m.d.sync += [in_row.eq(next_in_row), addr.eq(next_addr)]
            with m.Elif(sub != sub_last):
                m.d.sync += sub.eq(sub + 1)
            with m.Else():
                m.d.sync += [sub.eq(0), addr.eq(next_addr)]
                with m.If(weaves):
                    m.d.sync += bank.eq(Mux(wraps, 0, next_bank))
