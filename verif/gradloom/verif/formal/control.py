"""Specification of start, end, faults and restart (docs/machine.md, section 7)."""

import types

from amaranth.hdl import Array, Assert, Assume, Cat, Const, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.contracts.engines import LOAD_UNITS, STORE_UNITS, Unit
from gradloom.contracts.regmap import ErrorCode, register
from gradloom.rtl.registers import control
from gradloom.verif.formal.statements import constant, past

__all__ = ["ControlSpec"]

_UNITS = len(Unit)
_INPUTS = {"start": 1, "abort": 1, "irq_acknowledge": 1, "irq_enable": 1, "hold": 1, "seq_done": 1, "seq_error": 8, "overflow": 1,
           "read_client": 1, "idle": 1, "busy": _UNITS, "waiting": _UNITS, "progress": 1, "watchdog": 32, "steps": 32, "loop": 1,
           "clear": 1}
_TABLES = {"fault": (8, _UNITS), "read_error": (8, len(LOAD_UNITS)), "write_error": (8, len(STORE_UNITS)), "tag": (16, _UNITS),
           "offset": (32, _UNITS)}


class ControlSpec(wiring.Component):
    """A start runs the program when ``hold`` falls; END or the first fault flushes until all managers are idle, then resets the
    engines in one cycle. The first fault is kept, of several in a cycle the Sequencer's, then engines by their number, reads,
    writes, watchdog, abort; an abort counts whenever it came. For bounded checks.

    Parameters
    ----------
    cover : :class:`bool`
        Reaches instead: a second program that ends well behind one that a fault of an engine stopped; the watchdog.
    """

    def __init__(self, design: types.ModuleType = control, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({name: In(width) for name, width in _INPUTS.items()}
                         | {f"{name}{n}": In(width) for name, (width, count) in _TABLES.items() for n in range(count)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Control()
        m.d.comb += [*(getattr(dut, name).eq(getattr(self, name)) for name in _INPUTS), Assume(~ResetSignal()),
                     *(getattr(dut, name)[n].eq(getattr(self, f"{name}{n}")) for name, (_, count) in _TABLES.items()
                       for n in range(count))]
        constant(m, self.watchdog)
        idle, hold, run, flush, reset = states = [Signal(name=name, init=name == "at_rest") for name in
                                                  ("at_rest", "held", "runs", "flushes", "resets")]
        fresh = Signal(init=1)
        m.d.sync += fresh.eq(0)
        code, unit = self._first(m)
        found = Signal()
        begins, goes = idle & self.start, hold & ~self.hold
        m.d.comb += found.eq(run & (code != 0))
        stops = found | (run & self.seq_done)
        ends = flush & self.idle
        m.d.sync += [idle.eq((idle & ~begins) | reset), hold.eq(begins | (hold & ~goes)), run.eq(goes | (run & ~stops)),
                     flush.eq(stops | (flush & ~ends)), reset.eq(ends)]
        m.d.comb += [
            Assert(sum(states) == 1), Assert(dut.running == ~idle), Assert(dut.seq_start == goes),
            Assert(dut.counting == (run | flush)), Assert(dut.flush == (flush | reset)), Assert(dut.halt == (flush | reset)),
            Assert(dut.engine_reset == (reset | fresh)),
        ]

        error, offset, state = Signal(32), Signal(32), Signal(32)
        done, failed, pending = Signal(), Signal(), Signal()
        tags, offsets = ([getattr(self, f"{name}{n}") for n in range(_UNITS)] for name in ("tag", "offset"))
        with m.If(begins):
            m.d.sync += [error.eq(0), offset.eq(0), state.eq(0), done.eq(0), failed.eq(0)]
        # Told a cycle later, as everything was.
        seen = past(m, Cat(code, unit, Const(0, 4), Array(tags)[unit], Array(offsets)[unit],
                           self.busy, Const(0, 16 - _UNITS), self.waiting), "seen")
        with m.If(found):
            m.d.sync += failed.eq(1)
        with m.If(past(m, found, "found_before")):
            m.d.sync += Cat(error, offset, state).eq(seen)
        with m.If(reset):
            m.d.sync += done.eq(~failed)
        m.d.sync += pending.eq((pending & ~begins | reset) & ~self.irq_acknowledge)
        status = {"idle": idle, "running": ~idle, "done": done, "error": failed, "stopping": flush, "irq": pending}
        m.d.comb += [
            Assert(dut.error == error), Assert(dut.error_offset == offset), Assert(dut.error_state == state),
            Assert(dut.status == sum(value[0] << register("STATUS").field(name).lsb for name, value in status.items())),
            Assert(dut.irq == (pending & self.irq_enable)),
        ]

        cycles, left = Signal(48), Signal(32)
        m.d.sync += [cycles.eq(Mux(self.clear, 0, cycles + (run | flush))), left.eq(left - self.loop)]
        with m.If(begins):
            m.d.sync += left.eq(self.steps)
        m.d.comb += [Assert(dut.cycles == cycles), Assert(dut.last_step == ((left == 1) | (left == 0))),
                     # The Sequencer loops while it runs.
                     Assume(~self.loop | run)]
        if self.cover:
            second = Signal()
            m.d.sync += second.eq(second | (begins & failed & (error[8:12] == Unit.STORE)))
            m.d.comb += [Cover(second & done & idle), Cover(idle & (error[:8] == ErrorCode.WATCHDOG) & (self.watchdog == 2))]
        return m

    def _first(self, m: Module) -> tuple[Signal, Signal]:
        """Code and unit of the fault that counts; code 0 without any."""
        running = Signal(name="running_model")
        m.d.comb += running.eq(~m.submodules.dut.status[register("STATUS").field("idle").lsb])
        quiet, aborted = Signal(32), Signal()
        counting = m.submodules.dut.counting
        m.d.sync += [quiet.eq(Mux(counting & ~self.progress, quiet + 1, 0)), aborted.eq(running & (aborted | self.abort))]
        faults: list[tuple[Value, Value | int]] = [(self.seq_error, Unit.SEQ), (Mux(self.overflow, ErrorCode.MALFORMED_COMMAND, 0),
                                                                                Unit.SEQ)]
        faults += [(getattr(self, f"fault{n}"), n) for n in range(1, _UNITS)]
        faults += [(getattr(self, f"read_error{n}"), Mux(self.read_client, Unit.LOAD, Unit.SEQ) if n == 0 else unit)
                   for n, unit in enumerate(LOAD_UNITS)]
        faults += [(getattr(self, f"write_error{n}"), unit) for n, unit in enumerate(STORE_UNITS)]
        faults += [(Mux((self.watchdog != 0) & (quiet >= self.watchdog), ErrorCode.WATCHDOG, 0), Unit.SEQ),
                   (Mux(aborted, ErrorCode.ABORTED, 0), Unit.SEQ)]
        code, unit = Signal(8), Signal(4)
        chosen: tuple[Value, Value] = (Const(0, 8), Const(0, 4))
        for fault, culprit in reversed(faults):
            chosen = (Mux(fault != 0, fault, chosen[0]), Mux(fault != 0, culprit, chosen[1]))
        m.d.comb += [code.eq(chosen[0]), unit.eq(chosen[1])]
        return code, unit
