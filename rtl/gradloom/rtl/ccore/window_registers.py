"""What window processing units share: the windows of a WPU for all clusters, the weights of a cluster for all WPUs.

The array is systolic along its columns: column c works c cycles behind column 0, so that the sums of a PE row pass from PE to PE
(:class:`gradloom.rtl.ccore.mac.Mac`). Codes are delayed here, where they are narrowest.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, ValueCastable
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.ccore.mac import factor_of, factor_shape
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.pint import CODE_BITS

__all__ = ["COLUMN_LATENCY", "WeightRegisters", "WindowRegisters"]

COLUMN_LATENCY = 2
"""Cycles from a token to its window and weights in column 0: decoded, then in the window registers."""


def _factor(m: Module, config: Config, code: Value | ValueCastable, name: str, column: int) -> Signal:
    """The factor of ``code`` in a column, 1 + ``column`` cycles later."""
    late = delayed(m, Value.cast(code), f"{name}_code", column)
    factor = Signal(factor_shape(config), name=name, reset_less=True)
    m.d.sync += factor.eq(factor_of(config.mac, late))
    return factor


class WindowRegisters(wiring.Component):
    """Window registers of one WPU: a pair of columns now and the pair before, and the six windows on them.

    Members
    -------
    shift, clear, sel : ``In(1)``, ``In(1)``, ``In(3)``
        Of a token. ``shift``: take the pair ``x``; with ``clear`` the pair before counts as 0. ``sel``: pattern and parity of the
        window (docs/machine.md, section 4).
    x : ``In(ArrayLayout({x0, x1}, 3 cols))``
        Codes of the even and the odd column, index r * ``cols`` + c, with the token.
    a : ``Out(ArrayLayout(ArrayLayout(factor, 3), 3 cols))``
        Windows; column c ``COLUMN_LATENCY`` + c cycles after the token.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        pe = data.ArrayLayout(factor_shape(config), PE_TAPS)
        pair = data.StructLayout({"x0": CODE_BITS, "x1": CODE_BITS})
        super().__init__({"shift": In(1), "clear": In(1), "sel": In(3), "x": In(data.ArrayLayout(pair, PE_ROWS * config.cols)),
                          "a": Out(data.ArrayLayout(pe, PE_ROWS * config.cols))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cols, factor = self.config.cols, factor_shape(self.config)
        shift = Line(m, self.shift, "shift", reset=True)
        # What each tap sees: one of four registers. Two bits a tap are chosen once, so that a bit of a tap is one LUT6.
        p0, p1, c0, c1 = range(4)
        taps = Signal(data.ArrayLayout(2, PE_TAPS))
        with m.Switch(self.sel):
            for number, seen in enumerate(((p0, p1, c0), (p1, c0, c1), (c1, c0, c0), (c0, p1, p1), (c0,) * 3, (c1,) * 3)):
                with m.Case(number):
                    m.d.comb += [taps[k].eq(register) for k, register in enumerate(seen)]
            with m.Default():
                m.d.comb += [taps[k].eq(register) for k, register in enumerate((c0, c1, c1))]
        clear, seen_by = Line(m, self.clear, "clear"), Line(m, taps.as_value(), "taps")
        for c in range(cols):
            shift_here, clear_here, taps_here = shift[1 + c], clear[1 + c], seen_by[COLUMN_LATENCY + c]
            for r in range(PE_ROWS):
                i = r * cols + c
                pair = self.x[i]
                x = Cat(_factor(m, self.config, pair.x0, f"x0_{i}", c), _factor(m, self.config, pair.x1, f"x1_{i}", c))
                prev, cur = (Signal(data.ArrayLayout(factor, 2), name=f"{name}_{i}", reset_less=True) for name in ("prev", "cur"))
                with m.If(shift_here):
                    m.d.sync += [prev.eq(Mux(clear_here, 0, cur)), cur.eq(x)]
                registers = Array((*prev, *cur))
                places = [taps_here.word_select(k, 2) for k in range(PE_TAPS)]
                if self.config.family == "ecp5":
                    # Taps 1 and 2 never see p0: five inputs, two LUT4s a bit instead of three.
                    m.d.comb += [self.a[i][0].eq(registers[places[0]]),
                                 *(self.a[i][k].eq(Mux(places[k][1], Mux(places[k][0], cur[1], cur[0]), prev[1])) for k in (1, 2))]
                else:
                    m.d.comb += [self.a[i][k].eq(registers[places[k]]) for k in range(PE_TAPS)]
        return m


class WeightRegisters(wiring.Component):
    """Double-buffered weights of one cluster.

    Members
    -------
    load, w : ``In(3)``, ``In(ArrayLayout(8, 3 cols))``
        PE rows whose shadow weights load; codes of the taps, index k * cols + c.
    swap : ``In(1)``
        Of a token: it and later ones use the weights that were loaded before this cycle.
    active : ``Out(ArrayLayout(ArrayLayout(factor, 3), 3 cols))``
        Index r * cols + c; column c ``COLUMN_LATENCY`` + c cycles after the token.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        pe = data.ArrayLayout(factor_shape(config), PE_TAPS)
        super().__init__({"load": In(PE_ROWS), "w": In(data.ArrayLayout(CODE_BITS, PE_TAPS * config.cols)), "swap": In(1),
                          "active": Out(data.ArrayLayout(pe, PE_ROWS * config.cols))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cols = self.config.cols
        load, swap = Line(m, self.load, "load", reset=True), Line(m, self.swap, "swap", reset=True)
        for c in range(cols):
            load_here, swap_here = load[1 + c], swap[1 + c]
            taps = Cat(_factor(m, self.config, self.w[k * cols + c], f"w{k}_{c}", c) for k in range(PE_TAPS))
            for r in range(PE_ROWS):
                shadow, active = (Signal(len(taps), name=f"{name}_{r}_{c}", reset_less=True) for name in ("shadow", "active"))
                with m.If(load_here[r]):
                    m.d.sync += shadow.eq(taps)
                with m.If(swap_here):
                    m.d.sync += active.eq(shadow)
                m.d.comb += self.active[r * cols + c].eq(active)
        return m
