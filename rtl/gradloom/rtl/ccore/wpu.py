"""Window processing unit: 3 rows x ``cols`` PEs x 3 MACs, reduced to at most four sums a cycle (ETA, figure 8); of two clusters,
where a MAC unit is that of two (:mod:`gradloom.rtl.ccore.mac`)."""

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl import shared_module
from gradloom.rtl.ccore.mac import clusters_of, factor_of, factor_shape
from gradloom.rtl.ccore.pe import Pe, row_bits
from gradloom.rtl.ccore.window_registers import COLUMN_LATENCY
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.ecp5 import ChosenSum
from gradloom.rtl.pint import CODE_BITS

__all__ = ["WPU_ASK", "WPU_CTL", "WPU_OUTPUTS", "Wpu"]

WPU_OUTPUTS = 4

WPU_CTL = data.StructLayout({
    "shift": 1, "clear": 1, "sel": 3, "use": 1, "wg": 1, "swap": 1, "clr": 1, "snap": 1})
"""One token: ``shift``, ``clear``, ``sel``, ``swap`` are those of :mod:`gradloom.rtl.ccore.window_registers`; the rest see
:class:`Wpu`."""

WPU_ASK = data.ArrayLayout(PE_TAPS, PE_ROWS)
"""Drain registers to read, a bit for each PE row and tap."""


class Wpu(wiring.Component):
    """Array of 3 x ``cols`` PEs; one token a cycle, no stalls. Column c works c cycles behind column 0.

    Members
    -------
    ctl : ``In(WPU_CTL)``
        One token a cycle. ``sel``: how sums are combined (docs/machine.md, section 4);
        ``use``: the sums, resp. the accumulation, count; ``wg``: accumulate products with ``e``;
        ``clr``: the accumulators start anew with this token's products (only with ``wg`` and ``use``);
        ``snap``: copy the accumulators, this token included, to the drain registers. Accumulators are lost when a token without
        ``wg`` comes by, or a cycle without a token that has ``wg`` = 0.
    a : ``In(ArrayLayout(ArrayLayout(factor, 3), 3 cols))``
    w : ``In(ArrayLayout(ArrayLayout(ArrayLayout(factor, 3), 3 cols), clusters))``
        Windows and weights, index r * cols + c; column c ``COLUMN_LATENCY`` + c cycles after the token.
    e : ``In(ArrayLayout(ArrayLayout(8, 3), clusters))``
        Code of the error per tap, with ``ctl``.
    out : ``Out(ArrayLayout(ArrayLayout(signed(psum_width), 4), clusters))``
        Sums of the token presented ``latency(cols)`` cycles earlier. ``sel`` 0, 1 (K3): out1 the total; 2, 3 (BP2): out_i the sum
        of output parity i; 4, 5 (K1): out_(k + 1) of output group k; 6 (PAIR): out1 and out2 of the even and the odd output column.
        The rest, and all with ``wg`` or without ``use``, is undefined.
    ask, d : ``In(WPU_ASK)``, ``Out(ArrayLayout(ArrayLayout(ArrayLayout(signed(wg_width), 9), cols), clusters))``
        Drain registers of column c, index 3 r + k, 1 + c cycles after they were asked for; 0 if they were not. A ``snap`` shows to
        an ``ask`` presented ``SNAP_LATENCY`` cycles after it or later; until then the one before does.
    ovf : ``Out(1)``
        Some accumulation overflowed ``ovf_latency(cols)`` cycles ago.
    """

    SNAP_LATENCY = COLUMN_LATENCY + 4

    @staticmethod
    def latency(cols: int) -> int:
        """Cycles from a token to its sums: factors, products and sums of the last column, and four adders."""
        return COLUMN_LATENCY + 3 + (cols - 1) + 4

    @staticmethod
    def ovf_latency(cols: int) -> int:
        """Cycles from a token to its overflow."""
        return COLUMN_LATENCY + 3 + cols

    def __init__(self, config: Config) -> None:
        self.config = config
        cols = config.cols
        self.clusters = clusters_of(config.mac)
        factors = data.ArrayLayout(data.ArrayLayout(factor_shape(config), PE_TAPS), PE_ROWS * cols)
        drains = data.ArrayLayout(data.ArrayLayout(signed(config.wg_width), PE_ROWS * PE_TAPS), cols)

        def each(shape: ShapeLike) -> data.ArrayLayout:
            return data.ArrayLayout(shape, self.clusters)

        super().__init__({
            "ctl": In(WPU_CTL), "a": In(factors), "w": In(each(factors)), "e": In(each(data.ArrayLayout(CODE_BITS, PE_TAPS))),
            "out": Out(each(data.ArrayLayout(signed(config.psum_width), WPU_OUTPUTS))), "ask": In(WPU_ASK), "ovf": Out(1),
            "d": Out(each(drains))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, cols, ctl = self.config, self.config.cols, self.ctl
        wg, snap = Line(m, ctl.wg, "wg"), Line(m, ctl.snap, "snap", reset=True)
        take = Line(m, ~ctl.wg | ctl.use, "take")
        keep = Line(m, ctl.wg & ~ctl.clr, "keep")
        kept = Line(m, ctl.wg & ctl.use & ~ctl.clr, "kept")
        errors = Signal(data.ArrayLayout(data.ArrayLayout(factor_shape(config), PE_TAPS), self.clusters), reset_less=True)
        m.d.sync += [errors[i][k].eq(factor_of(config.mac, self.e[i][k])) for i in range(self.clusters) for k in range(PE_TAPS)]
        error = Line(m, errors, "error")
        ask = Line(m, self.ask, "ask", reset=True)

        pes = [[self._pe(m, f"pe_{r}_{c}", c) for c in range(cols)] for r in range(PE_ROWS)]
        overflow: Value | None = None
        for c in range(cols):
            here = COLUMN_LATENCY + c
            for r in range(PE_ROWS):
                pe = pes[r][c]
                m.d.comb += [
                    pe.a.eq(self.a[r * cols + c]), pe.e.eq(error[here - 1]), pe.wg.eq(wg[here]),
                    pe.take.eq(take[here + 2]), pe.keep.eq(keep[here + 2]), pe.chain.eq(~wg[here + 2]), pe.kept.eq(kept[here + 3]),
                    pe.snap.eq(snap[here + 3]), pe.ask.eq(ask[c].word_select(r, PE_TAPS)),
                    *(pe.w[i].eq(self.w[i][r * cols + c]) for i in range(self.clusters)),
                    *(self.d[i][c][PE_TAPS * r + k].eq(pe.drain[i][k])
                      for i in range(self.clusters) for k in range(PE_TAPS)),
                    pe.cin.eq(pes[r][c - 1].cout if c else 0)]
            so_far = Signal(name=f"overflow{c}", reset_less=True)
            column = Cat(pes[r][c].ovf for r in range(PE_ROWS)).any()
            m.d.sync += so_far.eq(column if overflow is None else column | overflow)
            overflow = so_far
        m.d.comb += self.ovf.eq(overflow)
        for i in range(self.clusters):
            self._sums(m, pes, i)
        return m

    def _pe(self, m: Module, name: str, column: int) -> Pe:
        config = self.config
        size = config.mac, config.wg_width
        if config.family == "any":
            return shared_module.add(m, name, "gradloom_pe", Pe(*size), size)
        place = {"family": config.family, "cols": config.cols, "first": column == 0}
        return shared_module.add(m, name, "gradloom_pe", Pe(*size, **place), (*size, *place.values()))

    def _sums(self, m: Module, pes: list[list[Pe]], cluster: int) -> None:
        """Eight adders for a cluster: the sums of BP2's output parities, the sums over rows of K1 and PAIR, and for K3 the sum
        of three of them.

        One operand of an adder is a register: on the Xilinx 7 series it feeds the carry chain directly, and the choice of the other
        one shares the adder's LUTs.
        """
        cols = self.config.cols
        bits = row_bits(cols)
        s = {(r, k): pes[r][-1].sum[k][cluster][:bits].as_signed() for r in range(PE_ROWS) for k in range(PE_TAPS)}
        level = self.latency(cols) - 4
        mode = Line(m, self.ctl.sel[1:], f"mode{cluster}_" if cluster else "mode")

        def named(name: str) -> str:
            return f"{name}_{cluster}" if cluster else name

        def registered(name: str, value: Value) -> Signal:
            result = Signal(value.shape(), name=named(name), reset_less=True)
            m.d.sync += result.eq(value)
            return result

        def chosen_sum(name: str, a: Value, own: Value, b: Value, c: Value | None = None) -> Signal:
            """``a`` and ``b`` or ``c``, registered: of a LUT4 a bit."""
            result = Signal((a + Mux(own, b, 0 if c is None else c)).shape(), name=named(name), reset_less=True)
            size = len(result), 0 if c is None else len(result)
            adder = shared_module.add(m, f"adder_{named(name)}", "gradloom_ecp5_sum", ChosenSum(*size), size)
            m.d.comb += [adder.a.eq(a), adder.b.eq(b), adder.own.eq(own), *([adder.c.eq(c)] if c is not None else [])]
            m.d.sync += result.eq(adder.s)
            return result

        left = registered("left", s[0, 0] + s[2, 0])
        middle = registered("middle", s[0, 1] + s[2, 1])
        right = registered("right", s[0, 2] + s[2, 2])
        centre = [registered(f"centre{k}", s[1, k]) for k in range(PE_TAPS)]

        added = registered("added", Mux(mode[level] == Pattern.BP2, 0, s[1, 1]))

        rows = mode[level + 1][1]  # K1 and PAIR
        of_cells = self.config.family == "ecp5"
        one = (chosen_sum("one", centre[0], rows, left, centre[2]) if of_cells else
               registered("one", centre[0] + Mux(rows, left, centre[2])))
        two = registered("two", middle + added)
        if of_cells:
            three = chosen_sum("three", right, rows, centre[2], left)
        else:
            wanted = Signal(right.shape())  # by name: Yosys then takes `right` for the carry chain
            m.d.comb += wanted.eq(Mux(rows, centre[2], left))
            three = registered("three", right + wanted)
        rest = registered("rest", two + three)

        k3 = mode[level + 3] == Pattern.K3
        total = (chosen_sum("total", delayed(m, one, named("one")), k3, rest) if of_cells else
                 registered("total", delayed(m, one, named("one")) + Mux(k3, rest, 0)))
        # With a reset: registers, no LUTs as shift registers.
        zero = Line(m, centre[1], named("zero"), reset=True)
        sums = (zero[3], total, delayed(m, two, named("two"), 2), delayed(m, three, named("three"), 2))
        m.d.comb += [self.out[cluster][i].eq(value.as_signed()) for i, value in enumerate(sums)]
