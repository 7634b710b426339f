"""Walk the columns of a row group: the C-Core's tokens, one a cycle (``docs/machine.md`` section 4)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl.ccore.rowwalk import COMMAND_LAYOUT, SHARE_BITS, row_group_layout
from gradloom.rtl.core_reads import SLOT_BITS

__all__ = ["ColumnWalk", "token_layout"]


def token_layout(config: Config) -> data.StructLayout:
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


class ColumnWalk(wiring.Component):
    """Tokens of the groups that :class:`gradloom.rtl.ccore.rowwalk.RowWalk` offers, no bubble between rows, steps or commands.

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
    token : ``Out(token_layout)``
        This cycle's token, all fields combinational from registers.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"group": In(row_group_layout(config)), "valid": In(1), "ready": Out(1),
                          "weights": In(1), "drained": In(1), "token": Out(token_layout(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        group, token = self.group, self.token
        of_cells = config.family == "ecp5"
        f = Signal(COMMAND_LAYOUT)
        bp2, k1 = f.pattern == Pattern.BP2, f.pattern == Pattern.K1
        wide = f.pattern[0]  # BP2 and PAIR: several sums at one address
        sources = PE_ROWS * config.wpus

        active = Signal()
        head = Signal()
        window0 = Signal()
        j = Signal(12)
        entry = Signal(signed(14))
        parity = Signal()
        mask = Signal(config.wpus)
        present = Signal(sources)
        bank = Signal(data.ArrayLayout(4, sources))
        addr = Signal(data.ArrayLayout(16, sources))
        slots = Signal(data.ArrayLayout(SLOT_BITS, config.wpus))
        opens = Signal(config.wpus)
        row_flags = Signal(data.StructLayout({"pa": 16, "odd": 1, "ea": 16, "fresh": 1, "lap": 1, "sum": 1, "begin": 1, "first": 1,
                                              "step": 1, "last": 1, "shared": 1, "part": SHARE_BITS}))

        fire = Signal()
        window = Signal()
        final = Signal()
        snap = Signal()
        row_end = Signal()
        ending = Signal()  # the window is the row's last one: known a cycle before, where an adder and a comparison take too long
        m.d.comb += [
            window.eq(~(head & f.preload)),
            final.eq(window & (ending if of_cells else j == (f.cols - 1)[:12])),
            snap.eq(final & row_flags.last & f.wg & f.drain),
            fire.eq(active & (~(head & row_flags.step) | f.wg | self.weights) & (~snap | self.drained)),
            row_end.eq(fire & final),
            self.ready.eq(~active | row_end)]

        # Not in the condition below, or the decision to take the group would go through all of these adders.
        command = group.command
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

        # A shared row: the first part has nothing before it, and parts but the last end before the last one does.
        before, past = Signal(), Signal()
        m.d.comb += [before.eq(row_flags.shared & (entry == 0)), past.eq(row_flags.shared & (j >= row_flags.part))]
        first_part = Cat(before.replicate(PE_ROWS), Const(0, sources - PE_ROWS))
        other_parts = Cat(past.replicate(config.wpus - 1), Const(0, 1))

        inside = Signal()
        use = Signal()
        m.d.comb += [inside.eq((entry >= 0) & (entry < f.xe)), use.eq(fire & window)]
        m.d.comb += [
            token.shift.eq(fire & (head | window0 | f.s2 | (parity == bp2))),
            token.clear.eq(fire & head),
            token.sel.eq(Cat(parity, f.pattern)),
            token.use.eq(use),
            token.wg.eq(f.wg),
            token.swap.eq(fire & head & row_flags.step & ~f.wg),
            token.clr.eq(f.clear & row_flags.first & window0),
            token.snap.eq(fire & snap),
            token.mask.eq(mask & ~other_parts),
            token.read.eq(present & (token.shift & inside).replicate(sources) & ~first_part),
            token.bank.eq(bank),
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
            token.opens.eq(opens & window0.replicate(config.wpus)),
            token.last.eq(row_end & row_flags.last),
            token.tag.eq(f.tag),
            token.drows.eq(f.drows),
            token.nk.eq(f.nk),
            token.dwbase.eq(f.dwbase),
            token.dgap.eq(f.dgap),
            token.dacc.eq(f.dacc),
            token.ebank.eq(f.ebank),
            token.lap.eq(row_flags.lap)]
        m.d.comb += [token.addr[i].eq(addr[i] + entry) for i in range(sources)]
        if of_cells:
            m.d.comb += token.asks.eq(present)
        return m
