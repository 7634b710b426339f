"""The matrix core: memories of two operands, an array of lanes x rows x columns, sums; GEMM command by command."""

from types import SimpleNamespace
from typing import Any, cast

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import GEMM, Operand
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl import shared_module
from gradloom.rtl.command import CommandPort, decode_command
from gradloom.rtl.delay import Line
from gradloom.rtl.matrix.array_column import ArrayColumn
from gradloom.rtl.matrix.gemm_walk import GemmWalk, Loops
from gradloom.rtl.matrix.operand_store import OperandStore
from gradloom.rtl.matrix.sums import Sums
from gradloom.rtl.memory_path.buses import LoadBus, StoreBus
from gradloom.rtl.registers.register_ports import MacUse

__all__ = ["MAC_LATENCY", "READ_LATENCY", "MatrixCore"]

READ_LATENCY = 1
"""Cycles from an address to the word."""
MAC_LATENCY = 3
"""From factors to the sum (:class:`gradloom.rtl.ccore.mac.Mac`)."""


class MatrixCore(wiring.Component):
    """Executes GEMM (docs/matrix.md), a step a cycle: from ``start`` the first step is made in the next cycle.

    Stationary operand: a step's sums go through the columns, a column a cycle, and what leaves the last one is added up over k.
    After the last step come ``columns`` cycles of the array and those of :class:`~gradloom.rtl.matrix.sums.Sums` until ``done``:
    commands do not overlap. Stationary output: after the last k all columns have finished ``columns`` cycles later; then the sums
    leave in ``columns`` cycles, those of the last column first.

    Fault 0x20, before anything is computed: ni, nj or nk is 0, or what this array does not have: ``transpose`` of a block that is
    not square, ``errors`` or ``merge`` without lanes, ``keep`` or ``stay`` unless the output is stationary and ni and nj are 1.
    Fault 0x10: a sum left 32 bits.

    Members
    -------
    port : ``In(CommandPort())``
    load : ``In(LoadBus(config))``, load_ready : ``Out(1)``
        Beats for W, X and E, as the Loader refuses every other memory; ``bank`` 1: a byte for each word
        (:class:`~gradloom.rtl.matrix.operand_store.OperandStore`).
    store : ``In(StoreBus(config))``
        Beats of P.
    macs : ``Out(MacUse())``
    """

    def __init__(self, config: MatrixConfig) -> None:
        self.config = config
        # The buses are as wide as a beat, whichever machine it is.
        buses = cast(Config, config)
        super().__init__({
            "port": In(CommandPort()), "load": In(LoadBus(buses)), "load_ready": Out(1), "store": In(StoreBus(buses)),
            "macs": Out(MacUse()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        stays = config.stationary == "output"
        cmd = decode_command(GEMM, self.port.cmd)
        m.submodules.walk = walk = GemmWalk()
        m.submodules.sums = sums = Sums(config)
        m.d.comb += [walk.loops[name].eq(getattr(cmd, name)) for name in Loops.members]
        w, x, e = self._stores(m)
        m.d.comb += [store.at.eq(walk.place.w) for store in (w, e) if store is not None] + [x.at.eq(walk.place.x)]
        if config.turns_weights:
            m.d.comb += w.turn.eq(cmd.transpose)

        issue = Signal()
        own = Value.cast(1) if stays else cmd.errors if config.lanes > 1 else Value.cast(0)
        begins = walk.place.first & ~cmd.keep
        step = Line(m, Cat(issue, own, begins), "step", reset=True)
        shift = Signal()
        carried: Value = Value.cast(0)
        rows = Line(m, w.word[0].as_value(), "row_codes") if stays else None
        columns = []
        for c in range(config.columns):
            kind = (config.lanes, config.rows, stays)
            column = shared_module.add(m, f"column{c}", "gradloom_array_column", ArrayColumn(*kind[:2], stays=stays), kind)
            m.d.comb += [column.step.eq(step[READ_LATENCY + c]), column.x.as_value().eq(x.word[c].as_value()),
                         column.shift.eq(shift)]
            if rows is not None:
                m.d.comb += column.e.as_value().eq(rows[c])
            else:
                m.d.comb += column.w.as_value().eq(w.word[c].as_value())
                if e is not None:
                    m.d.comb += column.e.as_value().eq(e.word[c].as_value())
            m.d.comb += column.cin.as_value().eq(carried)
            carried = column.cout.as_value()
            columns.append(column)
        m.d.comb += sums.sums.as_value().eq(carried)

        through = READ_LATENCY + config.columns - 1 + MAC_LATENCY
        """Cycles from a step to its sums behind the last column."""
        place = Signal(16, reset_less=True)
        """Of the sums of the column that leaves the array."""
        self._control(m, cmd, walk, sums, issue, shift, place, through)
        if stays:
            m.d.comb += [sums.leaving.valid.eq(shift), sums.leaving.last.eq(shift), sums.leaving.p.eq(place)]
        else:
            leaving = Line(m, Cat(walk.place.first, walk.place.last, walk.place.p), "leaving")[through]
            m.d.comb += [sums.leaving.valid.eq(step[through][0]), sums.leaving.first.eq(leaving[0]),
                         sums.leaving.last.eq(leaving[1]), sums.leaving.p.eq(leaving[2:])]
        if config.lanes > 1:
            m.d.comb += sums.leaving.merge.eq(cmd.merge)
        m.d.comb += [
            sums.leaving.acc.eq(cmd.acc),
            self.macs.use.eq(issue), self.macs.last.eq(issue & walk.place.end), self.macs.tag.eq(cmd.tag),
        ]
        m.d.comb += [sums.en.eq(self.store.en), sums.addr.eq(self.store.addr), self.store.data.eq(sums.beat)]
        return m

    def _stores(self, m: Module) -> tuple[OperandStore, OperandStore, OperandStore | None]:
        """Memories of W, X and E, behind the load bus."""
        config = self.config
        common = {"beat_bytes": config.beat_bytes, "lutram_bits": config.lutram_bits}
        if config.stationary == "output":
            w = OperandStore(columns=1, places=config.rows, depth=config.w_depth, **common)
        else:
            w = OperandStore(columns=config.columns, places=config.rows, depth=config.w_depth, by_place=True,
                             turns=config.turns_weights, **common)
        x = OperandStore(columns=config.columns, places=config.lanes, depth=config.x_depth, **common)
        e = OperandStore(columns=config.columns, places=config.lanes, depth=config.x_depth, **common) if config.lanes > 1 else None
        stores = {Operand.W: w, Operand.X: x} | ({Operand.E: e} if e is not None else {})
        for operand, store in stores.items():
            m.submodules[f"{operand.name.lower()}_store"] = store
            chosen = self.load.dest == operand
            m.d.comb += [store.write.valid.eq(self.load.valid & chosen), store.write.turned.eq(self.load.bank[0]),
                         store.write.addr.eq(self.load.addr), store.data.eq(self.load.data)]
            with m.If(chosen):
                m.d.comb += self.load_ready.eq(store.ready)
        return w, x, e

    def _illegal(self, cmd: SimpleNamespace) -> Value:
        config = self.config
        kept = cmd.keep | cmd.stay
        refused = (cmd.ni == 0) | (cmd.nj == 0) | (cmd.nk == 0)
        if not config.turns_weights:
            refused |= cmd.transpose
        if config.lanes == 1:
            refused |= cmd.errors | cmd.merge
        return refused | (kept & ((cmd.ni != 1) | (cmd.nj != 1)) if config.stationary == "output" else kept)

    def _control(self, m: Module, cmd: SimpleNamespace, walk: GemmWalk, sums: Sums, issue: Signal, shift: Signal, place: Signal,
                 through: int) -> None:
        """From ``start`` to ``done``."""
        config = self.config
        left = Signal(range(max(through + sums.latency - 1, config.columns)))
        """Cycles until what is waited for."""
        overflow, ended = Signal(), Signal()
        m.d.comb += walk.step.eq(issue)
        with m.If(sums.overflow):
            m.d.sync += overflow.eq(1)

        def wait(cycles: int) -> None:
            """The next state lasts so many."""
            m.d.sync += left.eq(cycles - 1)

        def with_waiting_over() -> Any:
            m.d.sync += left.eq(left - 1)
            return m.If(left == 0)

        with m.FSM():
            with m.State("IDLE"), m.If(self.port.start):
                m.d.comb += walk.start.eq(1)
                with m.If(self._illegal(cmd)):
                    m.next = "REFUSED"
                with m.Else():
                    m.next = "STEP"
            with m.State("REFUSED"):
                m.d.comb += self.port.fault.eq(ErrorCode.ILLEGAL_FIELD)
                m.next = "HALTED"
            with m.State("STEP"):
                m.d.comb += issue.eq(1)
                if config.stationary == "output":
                    m.d.sync += [place.eq(walk.place.p), ended.eq(walk.place.end)]
                    with m.If(walk.place.last):
                        wait(through - 1)
                        m.next = "SETTLE"
                else:
                    with m.If(walk.place.end):
                        wait(through + sums.latency - 1)
                        m.next = "FLUSH"
            if config.stationary == "output":
                with m.State("SETTLE"), with_waiting_over():
                    wait(config.columns)
                    m.next = "LEAVE"
                    with m.If(cmd.stay):
                        m.next = "DONE"
                with m.State("LEAVE"):
                    m.d.comb += shift.eq(1)
                    m.d.sync += place.eq(place + cmd.pc)
                    with with_waiting_over():
                        m.next = "STEP"
                        with m.If(ended):
                            wait(sums.latency - 1)
                            m.next = "FLUSH"
            with m.State("FLUSH"), with_waiting_over():
                m.next = "DONE"
            with m.State("DONE"):
                with m.If(overflow):
                    m.d.comb += self.port.fault.eq(ErrorCode.PSUM_OVERFLOW)
                    m.next = "HALTED"
                with m.Else():
                    m.d.comb += self.port.done.eq(1)
                    m.next = "IDLE"
            with m.State("HALTED"):
                pass
