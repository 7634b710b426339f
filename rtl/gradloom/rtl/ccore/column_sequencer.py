"""Walk the columns of a row group: the C-Core's tokens, one a cycle (``docs/machine.md`` section 4)."""

from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl.ccore.row_sequencer import COMMAND_LAYOUT, SHARE_BITS, row_group_layout
from gradloom.rtl.core_reads import SLOT_BITS

__all__ = ["ColumnSequencer", "array_control_layout"]


def array_control_layout(config: Config) -> data.StructLayout:
    """One token of the array and what goes with it.

    ``shift``, ``clear``, ``sel``, ``use``, ``wg``, ``swap``, ``clr``, ``snap``: see :class:`gradloom.rtl.ccore.wpu.Wpu`; no
    effect when no token is issued. ``mask``: WPUs with a unit. ``read``, ``bank``, ``addr`` per WPU and PE row (index
    w * 3 + r): the input beat to shift in, not read: zero. ``ea``, ``lane``: error beat and column. ``store``: the sums
    go to address ``pa`` (K1: that of groups 0 and 1); ``fresh``: they overwrite; ``odd``: parity of the window;
    ``group``: of the row group; ``half`` of the partial-sum buffer. ``taps``: output groups with errors. ``sum``: the absolute
    sums count for image slot ``slot`` per WPU; ``opens``: it is the WPU's first window of that slot; ``begin``: the
    first of a step, from which all sums start anew. ``last``: of the command, whose tag is ``tag``. With ``snap``: ``drows``,
    ``nk``, ``dwbase``, ``dgap``, ``dacc`` for the drain. ``ebank``: error bank of a WPU that all taps share (not K1).
    ``lap``: which channels of a group are shifted in, and drained.

    With ``family = "ecp5"`` there is ``asks``: what is read if anything is, a cycle's decisions earlier than ``read``.
    """
    sources = PE_ROWS * config.wpus
    early = {"asks": sources} if config.family == "ecp5" else {}
    return data.StructLayout({
        "shift": 1, "clear": 1, "sel": 3, "use": 1, "wg": 1, "swap": 1, "clr": 1, "snap": 1,
        "mask": config.wpus, "read": sources, "bank": data.ArrayLayout(4, sources),
        "addr": data.ArrayLayout(16, sources), "ea": 16, "lane": 1,
        "store": 1, "pa": 16, "fresh": 1, "odd": 1, "group": 1, "half": 1, "taps": PE_TAPS,
        "sum": 1, "begin": 1, "slot": data.ArrayLayout(SLOT_BITS, config.wpus), "opens": config.wpus,
        "last": 1, "tag": 16, "drows": PE_ROWS, "nk": 2, "dwbase": 16, "dgap": 8, "dacc": 1, "ebank": 2, "lap": 1} | early)


class _Row(NamedTuple):
    """Of a row group: fields of its command and of itself, WPUs with a unit, then by WPU and PE row whether there is a row to read,
    its bank and address, and by WPU the image slot and whether it had no unit of that slot before."""

    command: View
    flags: View
    mask: Signal
    present: Signal
    bank: View
    addr: View
    slots: View
    opens: Signal


class ColumnSequencer(wiring.Component):
    """Tokens of the groups that :class:`gradloom.rtl.ccore.row_sequencer.RowSequencer` offers, no bubble between rows, steps or
    commands.

    A row is ``cols`` windows, and one token before them when it needs two entries (``preload``). The first token of a step
    carries ``swap`` and waits for its weights; a token with ``snap`` waits for the drain registers. Of a shared row only the last
    WPU takes all windows.

    Members
    -------
    group, valid, ready
        Stream of row groups.
    weights : ``In(1)``
        The shadow weights are those of the next step.
    drained : ``In(1)``
        The drain registers may be overwritten by a ``snap`` of this cycle.
    token : ``Out(array_control_layout)``
        This cycle's token, all fields combinational from registers.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"group": In(row_group_layout(config)), "valid": In(1), "ready": Out(1),
                          "weights": In(1), "drained": In(1), "token": Out(array_control_layout(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        row = self._row_registers()
        f, row_flags = row.command, row.flags
        of_cells = config.family == "ecp5"

        active = Signal()
        head = Signal()
        window0 = Signal()
        j = Signal(12)
        entry = Signal(signed(14))
        parity = Signal()
        row_end = Signal()
        fire = Signal()
        window = Signal()
        final = Signal()
        snap = Signal()
        ending = Signal()  # the window is the row's last one: known a cycle before, where an adder and a comparison take too long
        m.d.comb += [
            window.eq(~(head & f.preload)),
            final.eq(window & (ending if of_cells else j == (f.cols - 1)[:12])),
            snap.eq(final & row_flags.last & f.wg & f.drain),
            fire.eq(active & (~(head & row_flags.step) | f.wg | self.weights) & (~snap | self.drained)),
            row_end.eq(fire & final),
            self.ready.eq(~active | row_end)]

        # Not in the condition below, or the decision to take the group would go through all of these adders.
        group, command, token = self.group, self.group.command, self.token
        begins = self._row(m, row)
        with m.If(self.ready):
            m.d.sync += active.eq(self.valid)
        with m.If(self.ready & self.valid):
            m.d.sync += [head.eq(1), window0.eq(1), j.eq(0), entry.eq(group.e), parity.eq(group.par), f.eq(command), *begins,
                         *(row_flags[name].eq(group[name]) for name in row_flags.shape().members)]
            if of_cells:
                m.d.sync += ending.eq(command.cols == 1)
        with m.Elif(fire):
            m.d.sync += [head.eq(0), entry.eq(entry + token.shift)]
            with m.If(window):
                m.d.sync += [window0.eq(0), j.eq(j + 1)]
                if of_cells:
                    m.d.sync += ending.eq((j + 2)[:12] == f.cols)
                with m.If(~f.s2):
                    m.d.sync += parity.eq(~parity)
        use = Signal()
        m.d.comb += use.eq(fire & window)
        self._input(m, row, fire, head, window0, j, entry, parity)
        self._sums(m, row, use, window0, j)
        self._control(m, row, fire, head, window0, use, snap, row_end, parity)
        return m

    def _row_registers(self) -> "_Row":
        """Of the row group whose columns are walked."""
        config = self.config
        sources = PE_ROWS * config.wpus
        return _Row(
            Signal(COMMAND_LAYOUT, name="f"),
            Signal(data.StructLayout({"pa": 16, "odd": 1, "ea": 16, "fresh": 1, "lap": 1, "sum": 1, "begin": 1, "first": 1,
                                      "step": 1, "last": 1, "shared": 1, "part": SHARE_BITS}), name="row_flags"),
            Signal(config.wpus, name="mask"), Signal(sources, name="present"), Signal(data.ArrayLayout(4, sources), name="bank"),
            Signal(data.ArrayLayout(16, sources), name="addr"), Signal(data.ArrayLayout(SLOT_BITS, config.wpus), name="slots"),
            Signal(config.wpus, name="opens"))

    def _row(self, m: Module, registers: "_Row") -> list:
        """Where every (WPU, PE row) of the group that is offered reads: bank, address, and whether there is anything. Returns what
        takes it over."""
        config, group, command = self.config, self.group, self.group.command
        mask, present, bank, addr, slots, opens = registers[2:]
        of_cells = config.family == "ecp5"
        k1_row, bp2_row = command.pattern == Pattern.K1, command.pattern == Pattern.BP2
        begins = []
        for w in range(config.wpus):
            unit = group.unit[w]
            # Not a multiplier: Yosys takes one of the few of ECP5.
            first = (unit.b[:2] << 1) + unit.b[:2] if of_cells else PE_ROWS * unit.b[:2]
            begins += [mask[w].eq(unit.valid), slots[w].eq(unit.slot), opens[w].eq(unit.opens)]
            for r in range(PE_ROWS):
                i = PE_ROWS * w + r
                offset = Mux(k1_row, 0, Mux(bp2_row, 1 if r == 0 else 0, r))
                row = Signal(signed(16), name=f"row{i}")
                sum_ = Signal(5, name=f"bank_sum{i}")
                wrap = Signal(name=f"wrap{i}")
                m.d.comb += [row.eq(unit.row + offset), sum_.eq(unit.b + offset), wrap.eq(~k1_row & (sum_ >= config.row_banks))]
                begins += [
                    present[i].eq(unit.valid & group.rows[r] & (row >= 0) & (row < command.yin)),
                    bank[i].eq(Mux(k1_row, first + r, Mux(wrap, sum_ - config.row_banks, sum_))),
                    addr[i].eq(unit.a + Mux(wrap, command.xe, 0))]
        return begins

    def _input(self, m: Module, registers: "_Row", fire: Value, head: Signal, window0: Signal, j: Signal, entry: Signal,
               parity: Signal) -> None:
        """What is shifted into the windows. ``shift``, and with it ``read``, follows from the decision to issue a token, and the
        input network's requests follow from that in the same cycle: nothing long may lie in any of them."""
        token, (f, row_flags, mask, present, bank, addr, _, _) = self.token, registers
        wpus, sources = self.config.wpus, PE_ROWS * self.config.wpus
        # A shared row: the first part has nothing before it, and parts but the last end before the last one does.
        before, past = Signal(), Signal()
        m.d.comb += [before.eq(row_flags.shared & (entry == 0)), past.eq(row_flags.shared & (j >= row_flags.part))]
        first_part = Cat(before.replicate(PE_ROWS), Const(0, sources - PE_ROWS))
        other_parts = Cat(past.replicate(wpus - 1), Const(0, 1))

        inside = Signal()
        bp2 = f.pattern == Pattern.BP2
        m.d.comb += inside.eq((entry >= 0) & (entry < f.xe))
        m.d.comb += [
            token.shift.eq(fire & (head | window0 | f.s2 | (parity == bp2))),
            token.clear.eq(fire & head),
            token.mask.eq(mask & ~other_parts),
            token.read.eq(present & (token.shift & inside).replicate(sources) & ~first_part),
            token.bank.eq(bank),
            token.lap.eq(row_flags.lap)]
        m.d.comb += [token.addr[i].eq(addr[i] + entry) for i in range(sources)]
        if self.config.family == "ecp5":
            m.d.comb += token.asks.eq(present)

    def _sums(self, m: Module, registers: "_Row", use: Signal, window0: Signal, j: Signal) -> None:
        """Where the sums of a window go, its error, and what is added up over its plane."""
        token, (f, row_flags, _, _, _, _, slots, opens) = self.token, registers
        k1 = f.pattern == Pattern.K1
        wide = f.pattern[0]  # BP2 and PAIR: several sums at one address
        m.d.comb += [
            token.ea.eq(row_flags.ea + (j >> 1)),
            token.lane.eq(j[0]),
            token.store.eq(use & ~f.wg),
            token.pa.eq(row_flags.pa + Mux(wide, j, Mux(k1, Cat(Const(0, 1), j[1:]), j >> 1))),
            token.fresh.eq(row_flags.fresh),
            token.odd.eq(j[0]),
            token.group.eq(row_flags.odd),
            token.half.eq(f.half),
            token.taps.eq(Cat(f.nk > k for k in range(PE_TAPS))),
            token.sum.eq(use & row_flags.sum),
            token.begin.eq(row_flags.begin & row_flags.step & window0),
            token.slot.eq(slots),
            token.opens.eq(opens & window0.replicate(self.config.wpus)),
            token.ebank.eq(f.ebank)]

    def _control(self, m: Module, registers: "_Row", fire: Value, head: Signal, window0: Signal, use: Signal, snap: Signal,
                 row_end: Signal, parity: Signal) -> None:
        """What the array does with the window, and what the drain takes over."""
        token, f, row_flags = self.token, registers.command, registers.flags
        m.d.comb += [
            token.sel.eq(Cat(parity, f.pattern)),
            token.use.eq(use),
            token.wg.eq(f.wg),
            token.swap.eq(fire & head & row_flags.step & ~f.wg),
            token.clr.eq(f.clear & row_flags.first & window0),
            token.snap.eq(fire & snap),
            token.last.eq(row_end & row_flags.last),
            token.tag.eq(f.tag),
            token.drows.eq(f.drows),
            token.nk.eq(f.nk),
            token.dwbase.eq(f.dwbase),
            token.dgap.eq(f.dgap),
            token.dacc.eq(f.dacc)]
