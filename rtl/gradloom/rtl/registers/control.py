"""Start, end, faults and restart of the machine (docs/machine.md, section 7)."""

import functools
import operator
from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.engines import LOAD_UNITS, STORE_UNITS, Unit
from gradloom.contracts.regmap import ErrorCode, register
from gradloom.rtl.registers.register_ports import COUNTER_WIDTH

__all__ = ["Control"]

UNITS = len(Unit)


class Control(wiring.Component):
    """Outside the ``engine`` clock domain, whose reset it drives.

    A program ends with END or with its first fault. Either way the Sequencer is frozen, the AXI4 managers are flushed
    until no burst is under way, and one cycle of ``engine_reset`` brings engines, queues and semaphores back to their
    initial state; then the machine is idle. Faults of one cycle are taken in the order: Sequencer and semaphores,
    engines by their numbers, reads, writes, watchdog, abort.

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
    fault : ``In(ArrayLayout(8, 9))``
        Fault codes, by :class:`gradloom.contracts.engines.Unit`; all of an engine that the machine lacks is 0.
    read_error : ``In(ArrayLayout(8, 4))``, write_error : ``In(ArrayLayout(8, 2))``, read_client : ``In(1)``
        AXI4 managers, by channel; reads of client 0 on channel 0 are the Sequencer's.
    idle : ``In(1)``
        All AXI4 managers are idle.
    tag : ``In(ArrayLayout(16, 9))``, offset : ``In(ArrayLayout(32, 9))``
        Of the command at hand, by unit.
    busy, waiting : ``In(9)``
        By unit.
    progress : ``In(1)``
        Something moved in this cycle.
    watchdog, steps : ``In(32)``, loop : ``In(1)``, last_step : ``Out(1)``
    halt : ``Out(1)``
        Freezes the Sequencer; no command starts.
    flush : ``Out(1)``
    engine_reset : ``Out(1)``
        From a register, which the machine's own reset sets: 1 from its second cycle to the one behind it.
    irq : ``Out(1)``
    running : ``Out(1)``
    status, error, error_offset, error_state : ``Out(32)``
        Register values; those of an error come a cycle after it stands in ``status``, while the machine still runs.
    counting : ``Out(1)``, cycles : ``Out(48)``, clear : ``In(1)``
        ``counting`` from the first cycle of the program to its end; CYCLES and its clear.
    """

    def __init__(self) -> None:
        super().__init__({
            "start": In(1), "abort": In(1), "irq_acknowledge": In(1), "irq_enable": In(1), "hold": In(1),
            "seq_start": Out(1), "seq_done": In(1), "seq_error": In(8), "overflow": In(1),
            "fault": In(ArrayLayout(8, UNITS)),
            "read_error": In(ArrayLayout(8, len(LOAD_UNITS))), "read_client": In(1),
            "write_error": In(ArrayLayout(8, len(STORE_UNITS))), "idle": In(1),
            "tag": In(ArrayLayout(16, UNITS)), "offset": In(ArrayLayout(32, UNITS)),
            "busy": In(UNITS), "waiting": In(UNITS), "progress": In(1),
            "watchdog": In(32), "steps": In(32), "loop": In(1), "last_step": Out(1),
            "halt": Out(1), "flush": Out(1), "engine_reset": Out(1), "irq": Out(1), "running": Out(1),
            "status": Out(32), "error": Out(32), "error_offset": Out(32), "error_state": Out(32),
            "counting": Out(1), "cycles": Out(COUNTER_WIDTH), "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        done, failed, pending = Signal(), Signal(), Signal()
        stopping = Signal()
        # FLUSH and RESET, and RESET, in registers of their own: what is granted, and all that follows from it, begins with the
        # first, and the second reaches every register of the engines. It is all that resets them: 1 from the machine's own reset
        # to the cycle behind it, so that no gate lies between, and no wire from wherever the machine's reset is made.
        ending = Signal()
        resetting = Signal(init=1)
        m.d.comb += [self.halt.eq(ending), self.flush.eq(ending), self.engine_reset.eq(resetting)]
        m.d.sync += resetting.eq(0)

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

        fetch_error, load_error = Mux(self.read_client, 0, self.read_error[0]), Mux(self.read_client, self.read_error[0], 0)
        causes: list[tuple[Value, Unit]] = [
            (self.seq_error, Unit.SEQ),
            (Mux(self.overflow, ErrorCode.MALFORMED_COMMAND, 0), Unit.SEQ),
            *((self.fault[unit], unit) for unit in Unit if unit != Unit.SEQ),
            (fetch_error, Unit.SEQ), (load_error, Unit.LOAD),
            *((self.read_error[n], unit) for n, unit in enumerate(LOAD_UNITS) if n),
            *((self.write_error[n], unit) for n, unit in enumerate(STORE_UNITS)),
            (Mux(expired, ErrorCode.WATCHDOG, 0), Unit.SEQ),
            (Mux(aborting, ErrorCode.ABORTED, 0), Unit.SEQ),
        ]
        # Causes come late, and that there is one ends the program. Which is the first one, and its tag and offset, is looked for in
        # the cycle after, among all as they were.
        faulty, telling = Signal(), Signal()
        m.d.comb += faulty.eq(Cat(code for code, _ in causes).any())
        codes = [Signal(8, name=f"code{n}", reset_less=True) for n in range(len(causes))]
        tags, offsets = Signal.like(self.tag, reset_less=True), Signal.like(self.offset, reset_less=True)
        at_hand = Signal(32, reset_less=True)
        m.d.sync += [*(kept.eq(code) for kept, (code, _) in zip(codes, causes, strict=True)),
                     tags.eq(self.tag), offsets.eq(self.offset), at_hand.eq(self.waiting << 16 | self.busy), telling.eq(0)]
        raised, first = Signal(len(causes)), Signal(len(causes))
        m.d.comb += [raised.eq(Cat(code != 0 for code in codes)), first.eq(raised & ~(raised - 1))]

        def chosen(bits: Iterable[Value], values: Iterable[ValueLike]) -> Value:
            return functools.reduce(operator.or_, (Mux(bit, value, 0) for bit, value in zip(bits, values, strict=True)))

        culprit = [Cat(bit for bit, (_, of) in zip(first, causes, strict=True) if of == unit).any() for unit in Unit]
        code, engine = chosen(first, codes)[:8], chosen(culprit, [Const(unit, 4) for unit in Unit])
        with m.If(telling):
            m.d.sync += [self.error.eq(Cat(code, engine, Const(0, 4), chosen(culprit, tags))),
                         self.error_offset.eq(chosen(culprit, offsets)), self.error_state.eq(at_hand)]

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
                with m.If(faulty):
                    m.d.sync += [failed.eq(1), telling.eq(1)]
                with m.If(faulty | self.seq_done):
                    m.d.sync += ending.eq(1)
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.comb += [self.running.eq(1), self.counting.eq(1), stopping.eq(1)]
                with m.If(self.idle):
                    m.d.sync += resetting.eq(1)
                    m.next = "RESET"
            with m.State("RESET"):
                # One more cycle of flush: a request that a client made in the last cycle is not taken before its reset.
                m.d.comb += self.running.eq(1)
                m.d.sync += [done.eq(~failed), pending.eq(1), ending.eq(0)]
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
