"""Walk the output rows (units) of a CONV tile, one row group of ``wpus`` units a cycle, step after step.

Rows that are left over may be shared: such a row is a row group, and the units of its WPUs are parts of it
(``docs/machine.md`` section 4).
"""

from types import SimpleNamespace
from typing import NamedTuple

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, Config
from gradloom.contracts.isa import COMMANDS, HEADER_FIELDS, Opcode, Pattern
from gradloom.rtl.command import decode
from gradloom.rtl.core_reads import SLOT_BITS

__all__ = ["COMMAND_LAYOUT", "CONV_BITS", "SHARE_BITS", "RowSequencer", "row_group_layout"]

CONV_BITS = 32 * COMMANDS[Opcode.CONV].words
"""Bits of a CONV command."""

SHARE_BITS = 8
"""Bits of the windows of a WPU's part of a shared row."""

_COPIED = ("tag", "pattern", "wg", "s2", "half", "clear", "drain", "preload", "nk", "cols", "yin", "xe", "dwbase", "dgap", "dacc",
           "ebank")
COMMAND_LAYOUT = data.StructLayout({field.name: field.width for field in (*HEADER_FIELDS, *COMMANDS[Opcode.CONV].fields)
                                    if field.name in _COPIED} | {"drows": PE_ROWS})
"""Fields of a command that travel with its row groups (:func:`row_group_layout`)."""


def row_group_layout(config: Config) -> data.StructLayout:
    """One row group of one step.

    ``unit`` per WPU: ``valid``, input row of PE row offset 0 (``row``, negative: padding), bank counter ``b`` and row
    address ``a`` (the step's offset included), image slot ``slot`` and whether this WPU had no unit of that slot before
    (``opens``; never with ``sacc``). ``rows``: PE rows with an operand in this step. ``e``, ``par``: first entry and parity of a
    row. ``pa``: base address in the partial-sum banks, ``odd`` the group's parity. ``ea``: address of the error row. ``fresh``:
    sums overwrite. ``lap``: of the step. ``sum``: their absolute values are summed (the last lap of a command with ``sums``),
    from 0 on with ``begin`` (not ``sacc``). ``first``, ``step``, ``last``: first group of the command, of a lap of a step, last
    of the command. ``shared``: the units are parts of one row, of ``part`` windows each but for the last WPU's. ``command``: what
    later stages need of the command, so that the next one may be walked meanwhile, of a shared row what it needs instead;
    ``drows``: PE rows that are drained.
    """
    return data.StructLayout({
        "unit": data.ArrayLayout(data.StructLayout({"valid": 1, "row": signed(15), "b": 4, "a": 16, "slot": SLOT_BITS,
                                                    "opens": 1}), config.wpus),
        "rows": PE_ROWS, "e": signed(13), "par": 1, "pa": 16, "odd": 1, "ea": 16,
        "fresh": 1, "lap": 1, "sum": 1, "begin": 1, "first": 1, "step": 1, "last": 1, "shared": 1, "part": SHARE_BITS,
        "command": COMMAND_LAYOUT})


class _Unit(NamedTuple):
    """A unit of the walk: its output row in the image, input row of PE row offset 0, bank counter, address, image slot."""

    y: Value
    row: Value
    b: Value
    a: Value
    slot: Value


class _Part(NamedTuple):
    """Of shared rows: whether one was taken in this step, the address of the next one's parts, their entries, and the address of
    the present one's."""

    further: Signal
    a: Signal
    entries: Signal
    place: Value


class RowSequencer(wiring.Component):
    """Row groups in order: for each step and lap, all groups of the tile. One group a cycle into a one-deep output register.

    Members
    -------
    cmd : ``In(CONV_BITS)``
        CONV command, stable from ``start`` until ``free``.
    start : ``In(1)``
        First cycle of a legal command, while ``free``; the first group is at the output two cycles later, unless groups of
        the command before still wait there.
    free : ``Out(1)``
        Every group of the command has been walked.
    group : ``Out(row_group_layout)``, ``valid : Out(1)``, ``ready : In(1)``
        The next group.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"cmd": In(CONV_BITS), "start": In(1), "free": Out(1),
                          "group": Out(row_group_layout(config)), "valid": Out(1), "ready": In(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        wpus = self.config.wpus
        f = decode(Opcode.CONV, self.cmd)

        self.walking = walking = Signal(name="walking")
        self.step = step = Signal(16, name="step")
        self.row_group, self.rows_left, self.lap = Signal(16, name="group"), Signal(16, name="left"), Signal(name="lap")
        left, lap = self.rows_left, self.lap
        self.unit = _Unit(Signal(12, name="y"), Signal(signed(15), name="row"), Signal(4, name="b"), Signal(16, name="a"),
                          Signal(SLOT_BITS, name="slot"))
        self.a_step, self.pa, self.ea = Signal(16, name="a_step"), Signal(16, name="pa"), Signal(16, name="ea")
        self.entry, self.parity = Signal(signed(13), name="entry"), Signal(name="parity")
        self.first, self.step_first = Signal(name="first"), Signal(name="step_first")
        self.out = Signal(row_group_layout(self.config), name="out")
        m.d.comb += [self.free.eq(~walking), self.group.eq(self.out)]

        last_lap = lap == f.lap_end if self.config.laps > 1 else Const(1)
        taken = Signal()
        step_end = Signal()
        last_step = Signal()
        sharing = f.shared & (left < wpus)
        if self.config.family == "ecp5" and wpus == 1:
            sharing = Const(0)  # such a command is illegal, but synthesis does not know
        m.d.comb += [taken.eq(walking & (~self.valid | self.ready)), step_end.eq(Mux(sharing, left == 1, left <= wpus)),
                     last_step.eq((step == (f.steps - 1)[:16]) & last_lap)]

        # Not in the condition below, or the decision to take a group would go through all of these adders.
        units, words, part = self._units(m, f), self._words(m, f), self._part(m, f)
        with m.If(taken):
            self._take(m, f, units, part, sharing, step_end, last_step)
            self._next_group(m, f, units, words, sharing)
            with m.If(step_end):
                self._next_step(m, f, last_lap, last_step)
        self._begin(m, f, part, taken & step_end)
        with m.If(taken):
            m.d.sync += self.valid.eq(1)
        with m.Elif(self.ready):
            m.d.sync += self.valid.eq(0)
        return m

    def _units(self, m: Module, f: SimpleNamespace) -> list["_Unit"]:
        """The unit of each WPU, and the one after them: a chain in whose every link the bank counter passes an addition, a
        comparison and a choice."""
        k1 = f.pattern == Pattern.K1
        modulus = Mux(k1, self.config.wpus, self.config.row_banks)
        # A register, as a group is walked a cycle after ``start`` at the earliest.
        last_row = Signal(12)
        m.d.sync += last_row.eq(f.upi - 1)

        def advance(w: int, y: Value, row: Value, b: Value, a: Value, slot: Value) -> _Unit:
            """The unit after the given one."""
            wrap = y == last_row
            y_next, row_next = Signal(12, name=f"y{w}"), Signal(signed(15), name=f"row{w}")
            b_sum, b_next, a_next = Signal(5, name=f"bs{w}"), Signal(4, name=f"b{w}"), Signal(16, name=f"a{w}")
            slot_next = Signal(SLOT_BITS, name=f"slot{w}")
            over = Signal(name=f"over{w}")
            m.d.comb += [
                y_next.eq(Mux(wrap, 0, y + 1)),
                row_next.eq(Mux(wrap, f.y0, row + Mux(f.p2, 2, 1))),
                b_sum.eq(b + Mux(wrap, f.cb, f.sb)),
                over.eq(b_sum >= modulus),
                b_next.eq(Mux(over, b_sum - modulus, b_sum)),
                a_next.eq(a + Mux(wrap, f.ca, f.sa) + Mux(over, f.xe, 0)),
                slot_next.eq(slot + wrap)]
            return _Unit(y_next, row_next, b_next, a_next, slot_next)

        units = [self.unit]
        for w in range(self.config.wpus):
            units.append(advance(w, *units[w]))
        return units

    @staticmethod
    def _words(m: Module, f: SimpleNamespace) -> Signal:
        """Words of the partial-sum banks that a row takes, or two of K3 and PAIR side by side."""
        half_cols, words = Signal(12), Signal(13)
        m.d.comb += half_cols.eq((f.cols + 1) >> 1)
        with m.Switch(f.pattern):
            with m.Case(Pattern.BP2, Pattern.PAIR):
                m.d.comb += words.eq(f.cols)
            with m.Case(Pattern.K1):
                m.d.comb += words.eq(half_cols << 1)
            with m.Default():
                m.d.comb += words.eq(half_cols)
        return words

    def _part(self, m: Module, f: SimpleNamespace) -> "_Part":
        """Parts of shared rows lie one after the other, those of a row at one address of different banks."""
        further, part_a, entries = Signal(), Signal(16), Signal(9)
        place = Mux(further, part_a, self.unit.a + f.soff)
        m.d.comb += entries.eq(Mux(f.s2, f.scols, (f.scols + 1) >> 1) + 1)
        return _Part(further, part_a, entries, place)

    def _take(self, m: Module, f: SimpleNamespace, units: list["_Unit"], part: "_Part", sharing: Value, step_end: Value,
              last_step: Value) -> None:
        """The present group goes to the output."""
        wpus, step, lap, step_first = self.config.wpus, self.step, self.lap, self.step_first
        left, group, k1 = self.rows_left, self.row_group, f.pattern == Pattern.K1
        out = self.out
        row, slot, place = self.unit.row, self.unit.slot, part.place
        for w, unit in enumerate(units[:wpus]):
            m.d.sync += [out.unit[w].valid.eq((left > w) | sharing), out.unit[w].row.eq(Mux(sharing, row, unit[1])),
                         out.unit[w].b.eq(Mux(sharing, f.sbank + PE_ROWS * w, unit[2])),
                         out.unit[w].a.eq(Mux(sharing, place, unit[3])), out.unit[w].slot.eq(Mux(sharing, slot, unit[4])),
                         out.unit[w].opens.eq(((unit[0] < wpus) & ~sharing | step_first) & ~f.sacc)]
        limits = (f.rlim0, f.rlim1, f.rlim2)
        m.d.sync += [
            *(out.rows[r].eq(Mux(k1, step < limits[r], f.nr > r)) for r in range(PE_ROWS)),
            out.e.eq(self.entry), out.par.eq(self.parity), out.pa.eq(self.pa), out.odd.eq(group[0]), out.ea.eq(self.ea),
            out.fresh.eq((step == 0) & (lap == f.lap) & ~f.acc), out.lap.eq(lap), out.first.eq(self.first), out.step.eq(step_first),
            out.sum.eq(f.sums & last_step & ~f.wg & ~f.pattern[0]),  # K3 and K1
            out.begin.eq(~f.sacc),
            out.last.eq(step_end & last_step),
            out.shared.eq(sharing), out.part.eq((f.cols - f.scols) >> max(0, wpus - 2)),
            *(out.command[name].eq(getattr(f, name)) for name in _COPIED),
            *(out.command.drows[r].eq(Mux(k1, limits[r] != 0, f.nr > r)) for r in range(PE_ROWS))]
        further, part_a, entries = part.further, part.a, part.entries
        with m.If(sharing):
            m.d.sync += [out.command.cols.eq(f.scols), out.command.xe.eq(entries), out.command.preload.eq(1),
                         further.eq(1), part_a.eq(place + entries)]

    def _next_group(self, m: Module, f: SimpleNamespace, units: list["_Unit"], words: Signal, sharing: Value) -> None:
        wpus, left, group, pa, ea = self.config.wpus, self.rows_left, self.row_group, self.pa, self.ea
        k1 = f.pattern == Pattern.K1
        following = tuple(Mux(sharing, one, every) for one, every in zip(units[1], units[wpus], strict=True))
        m.d.sync += [*(register.eq(value) for register, value in zip(units[0], following, strict=True)),
                     left.eq(left - Mux(sharing, 1, wpus)),
                     group.eq(group + 1), ea.eq(ea + f.ee), self.first.eq(0), self.step_first.eq(0)]
        # K3 and PAIR: two row groups share their addresses.
        with m.If(group[0] | (f.pattern == Pattern.BP2) | k1):
            m.d.sync += pa.eq(pa + words)

    def _next_step(self, m: Module, f: SimpleNamespace, last_lap: Value, last_step: Value) -> None:
        """Where the next lap of the present step, or the next step, reads its rows; or the end of the command."""
        step, lap, parity, entry, a_step, a = self.step, self.lap, self.parity, self.entry, self.a_step, self.unit.a
        m.d.sync += [a.eq(a_step), lap.eq(lap + 1)]
        with m.If(last_lap):
            m.d.sync += [step.eq(step + 1), lap.eq(f.lap)]
            with m.If(f.colstep):
                m.d.sync += [parity.eq(~parity), entry.eq(entry + parity)]
            with m.Else():
                m.d.sync += [a.eq(a_step + f.istep), a_step.eq(a_step + f.istep)]
        with m.If(last_step):
            m.d.sync += self.walking.eq(0)

    def _begin(self, m: Module, f: SimpleNamespace, part: "_Part", again: Value) -> None:
        """A command begins; it, or with ``again`` a step, begins with its first unit."""
        (y, row, b, a, slot), step, lap, a_step = self.unit, self.step, self.lap, self.a_step
        left, group, pa, ea, step_first, further = self.rows_left, self.row_group, self.pa, self.ea, self.step_first, part.further
        with m.If(self.start):
            m.d.sync += [self.walking.eq(1), step.eq(0), lap.eq(f.lap), a.eq(f.ia0), a_step.eq(f.ia0), self.first.eq(1),
                         self.entry.eq(f.e0), self.parity.eq(f.par0)]
        with m.If(self.start | again):
            m.d.sync += [left.eq(f.units), y.eq(f.u0), row.eq(f.y0 + (f.u0 << f.p2)), b.eq(f.ib0), slot.eq(0), group.eq(0),
                         pa.eq(f.pbase), ea.eq(f.ebase), step_first.eq(1), further.eq(0)]
