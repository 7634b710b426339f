"""Start, end, faults and restart of the machine (docs/machine.md, section 7)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.rtl.csr import COUNTER_WIDTH
from gradloom.rtl.isa import Engine
from gradloom.rtl.regmap import ErrorCode, register

__all__ = ["Control"]

ENGINES = len(Engine)


class Control(wiring.Component):
    """Outside the ``engine`` clock domain, whose reset it drives.

    A program ends with END or with its first fault. Either way the Sequencer is frozen, the AXI4 managers are flushed
    until no burst is under way, and one cycle of ``engine_reset`` brings engines, queues and semaphores back to their
    initial state; then the machine is idle. Faults of one cycle are taken in the order: Sequencer and semaphores,
    engines in order, reads, writes, watchdog, abort.

    Members
    -------
    start, abort, irq_acknowledge, irq_enable : ``In(1)``
        From the registers. ``start`` is seen while idle only, ``abort`` while running only.
    hold : ``In(1)``
        Keeps a started program from beginning (counters are being cleared).
    seq_start : ``Out(1)``, seq_done : ``In(1)``, seq_error : ``In(8)``
        Sequencer.
    overflow : ``In(1)``
        Semaphores.
    fault : ``In(ArrayLayout(8, 4))``
        Fault codes of the engines from LOAD on.
    read_error, write_error : ``In(8)``, read_client : ``In(1)``
        AXI4 managers; reads of client 0 are the Sequencer's.
    idle : ``In(1)``
        Both AXI4 managers are idle.
    tag : ``In(ArrayLayout(16, 5))``, offset : ``In(ArrayLayout(32, 5))``
        Of the command at hand, by :class:`gradloom.rtl.isa.Engine`.
    busy, waiting : ``In(5)``
        By engine.
    progress : ``In(1)``
        Something moved in this cycle.
    watchdog, steps : ``In(32)``, loop : ``In(1)``, last_step : ``Out(1)``
    halt : ``Out(1)``
        Freezes the Sequencer; no command starts.
    flush, engine_reset : ``Out(1)``
    irq : ``Out(1)``
    running : ``Out(1)``
    status, error, error_offset, error_state : ``Out(32)``
        Register values.
    counting : ``Out(1)``, cycles : ``Out(48)``, clear : ``In(1)``
        ``counting`` from the first cycle of the program to its end; CYCLES and its clear.
    """

    def __init__(self) -> None:
        super().__init__({
            "start": In(1), "abort": In(1), "irq_acknowledge": In(1), "irq_enable": In(1), "hold": In(1),
            "seq_start": Out(1), "seq_done": In(1), "seq_error": In(8), "overflow": In(1),
            "fault": In(ArrayLayout(8, ENGINES - 1)),
            "read_error": In(8), "read_client": In(1), "write_error": In(8), "idle": In(1),
            "tag": In(ArrayLayout(16, ENGINES)), "offset": In(ArrayLayout(32, ENGINES)),
            "busy": In(ENGINES), "waiting": In(ENGINES), "progress": In(1),
            "watchdog": In(32), "steps": In(32), "loop": In(1), "last_step": Out(1),
            "halt": Out(1), "flush": Out(1), "engine_reset": Out(1), "irq": Out(1), "running": Out(1),
            "status": Out(32), "error": Out(32), "error_offset": Out(32), "error_state": Out(32),
            "counting": Out(1), "cycles": Out(COUNTER_WIDTH), "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        done, failed, pending = Signal(), Signal(), Signal()
        stopping = Signal()

        left = Signal(32)
        m.d.comb += self.last_step.eq(left <= 1)
        with m.If(self.loop):
            m.d.sync += left.eq(left - 1)

        quiet = Signal(32)
        expired = Signal()
        m.d.sync += quiet.eq(Mux(self.counting & ~self.progress, quiet + 1, 0))
        m.d.comb += expired.eq((self.watchdog != 0) & (quiet >= self.watchdog))

        # Kept until the program runs: the host may abort while the counters are being cleared.
        aborting = Signal()
        m.d.sync += aborting.eq(self.running & (aborting | self.abort))

        code, engine = Signal(8), Signal(4)
        causes = [
            (self.seq_error != 0, self.seq_error, Const(Engine.SEQ)),
            (self.overflow, Const(ErrorCode.MALFORMED_COMMAND, 8), Const(Engine.SEQ)),
            *((self.fault[n] != 0, self.fault[n], Const(n + 1)) for n in range(ENGINES - 1)),
            (self.read_error != 0, self.read_error, Mux(self.read_client, Engine.LOAD, Engine.SEQ)),
            (self.write_error != 0, self.write_error, Const(Engine.STORE)),
            (expired, Const(ErrorCode.WATCHDOG, 8), Const(Engine.SEQ)),
            (aborting, Const(ErrorCode.ABORTED, 8), Const(Engine.SEQ)),
        ]
        for condition, cause, culprit in reversed(causes):
            with m.If(condition):
                m.d.comb += [code.eq(cause), engine.eq(culprit)]

        with m.FSM():
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += [done.eq(0), failed.eq(0), pending.eq(0), left.eq(self.steps),
                             self.error.eq(0), self.error_offset.eq(0), self.error_state.eq(0)]
                m.next = "HOLD"
            with m.State("HOLD"):
                m.d.comb += self.running.eq(1)
                with m.If(~self.hold):
                    m.d.comb += self.seq_start.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [self.running.eq(1), self.counting.eq(1)]
                with m.If(code != 0):
                    m.d.sync += [
                        failed.eq(1),
                        self.error.eq(Cat(code, engine, Const(0, 4), self.tag[engine[:3]])),
                        self.error_offset.eq(self.offset[engine[:3]]),
                        self.error_state.eq(Cat(self.busy, Const(0, 3), self.waiting)),
                    ]
                    m.next = "FLUSH"
                with m.Elif(self.seq_done):
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.comb += [self.running.eq(1), self.counting.eq(1), self.halt.eq(1), self.flush.eq(1),
                             stopping.eq(1)]
                with m.If(self.idle):
                    m.next = "RESET"
            with m.State("RESET"):
                # One more cycle of flush: a request that a client made in the last cycle is not taken before its reset.
                m.d.comb += [self.running.eq(1), self.halt.eq(1), self.flush.eq(1), self.engine_reset.eq(1)]
                m.d.sync += [done.eq(~failed), pending.eq(1)]
                m.next = "IDLE"
        with m.If(self.irq_acknowledge):
            m.d.sync += pending.eq(0)
        m.d.sync += self.cycles.eq(Mux(self.clear, 0, self.cycles + self.counting))

        m.d.comb += [
            self.irq.eq(pending & self.irq_enable),
            *(self.status[register("STATUS").field(name).lsb].eq(value) for name, value in (
                ("idle", ~self.running), ("running", self.running), ("done", done), ("error", failed),
                ("stopping", stopping), ("irq", pending))),
        ]
        return m
