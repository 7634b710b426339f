"""Window processing unit: 3 rows x G PEs x 3 MACs, reduced to at most four sums a cycle (ETA, figure 8)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import emit
from gradloom.rtl.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.mac import PRODUCT_BITS, factor_of, factor_shape
from gradloom.rtl.operands import COLUMN_LATENCY
from gradloom.rtl.pe import Pe
from gradloom.rtl.pint import CODE_BITS

__all__ = ["WPU_CTL", "WPU_DSEL", "WPU_OUTPUTS", "Wpu"]

WPU_OUTPUTS = 4

WPU_CTL = data.StructLayout({
    "shift": 1, "clear": 1, "sel": 3, "use": 1, "wg": 1, "swap": 1, "clr": 1, "snap": 1})
"""One token: ``shift``, ``clear``, ``sel`` and ``swap`` are those of :mod:`gradloom.rtl.operands`, the rest see :class:`Wpu`."""

WPU_DSEL = data.StructLayout({"r": 2, "k": 2})
"""PE row and tap of the drain registers to read."""


class Wpu(wiring.Component):
    """Array of 3 x G PEs; one token a cycle, no stalls. Column c works c cycles behind column 0.

    Members
    -------
    ctl : ``In(WPU_CTL)``
        One token a cycle. ``sel``: how sums are combined (docs/machine.md, section 4);
        ``use``: the sums, resp. the accumulation, count; ``wg``: accumulate products with ``e``;
        ``clr``: the accumulators start anew with this token's products (only with ``wg`` and ``use``);
        ``snap``: copy the accumulators, this token included, to the drain registers. Accumulators are lost when a token without
        ``wg`` comes by, or a cycle without a token that has ``wg`` = 0.
    a, w : ``In(ArrayLayout(ArrayLayout(factor, 3), 3 G))``
        Windows and weights, index r * G + c; column c ``COLUMN_LATENCY`` + c cycles after the token.
    e : ``In(ArrayLayout(8, 3))``
        Code of the error per tap, with ``ctl``.
    out : ``Out(ArrayLayout(signed(psum_width), 4))``
        Sums of the token presented ``latency(G)`` cycles earlier. ``sel`` 0, 1: out0 the total; 2, 3: four sums,
        one per output parity; 4, 5: out_k of output group k. The rest, and all with ``wg`` or without ``use``, is undefined.
    dsel, d : ``In(WPU_DSEL)``, ``Out(ArrayLayout(signed(wg_width), G))``
        Drain registers of PE row r and tap k, column c 1 + c cycles after ``dsel``. A ``snap`` shows to a
        ``dsel`` presented ``SNAP_LATENCY`` cycles after it or later; until then the one before does.
    ovf : ``Out(1)``
        Some accumulation overflowed ``ovf_latency(G)`` cycles ago.
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
        g = config.cols
        factors = data.ArrayLayout(data.ArrayLayout(factor_shape(config), PE_TAPS), PE_ROWS * g)
        super().__init__({
            "ctl": In(WPU_CTL), "a": In(factors), "w": In(factors), "e": In(data.ArrayLayout(CODE_BITS, PE_TAPS)),
            "out": Out(data.ArrayLayout(signed(config.psum_width), WPU_OUTPUTS)),
            "dsel": In(WPU_DSEL), "d": Out(data.ArrayLayout(signed(config.wg_width), g)), "ovf": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, g, ctl = self.config, self.config.cols, self.ctl
        wg, snap = Line(m, ctl.wg, "wg"), Line(m, ctl.snap, "snap", reset=True)
        take = Line(m, ~ctl.wg | ctl.use, "take")
        keep = Line(m, ctl.wg & ~ctl.clr, "keep")
        errors = Signal(data.ArrayLayout(factor_shape(config), PE_TAPS), reset_less=True)
        m.d.sync += [errors[k].eq(factor_of(config.mac, self.e[k])) for k in range(PE_TAPS)]
        error = Line(m, errors, "error")

        pes = [[emit.add(m, f"pe_{r}_{c}", "gradloom_pe", Pe(config.mac, config.wg_width), (config.mac, config.wg_width))
                for c in range(g)] for r in range(PE_ROWS)]
        overflow: Value | None = None
        for c in range(g):
            here = COLUMN_LATENCY + c
            for r in range(PE_ROWS):
                pe = pes[r][c]
                m.d.comb += [
                    pe.a.eq(self.a[r * g + c]), pe.w.eq(self.w[r * g + c]), pe.e.eq(error[here - 1]), pe.wg.eq(wg[here]),
                    pe.take.eq(take[here + 2]), pe.keep.eq(keep[here + 2]), pe.chain.eq(~wg[here + 2]), pe.snap.eq(snap[here + 3]),
                    pe.cin.eq(pes[r][c - 1].cout if c else 0)]
            found = Signal(name=f"overflow{c}", reset_less=True)
            column = Cat(pes[r][c].ovf for r in range(PE_ROWS)).any()
            m.d.sync += found.eq(column if overflow is None else column | overflow)
            overflow = found
        m.d.comb += self.ovf.eq(overflow)
        self._sums(m, pes)
        self._drain(m, pes)
        return m

    def _sums(self, m: Module, pes: list[list[Pe]]) -> None:
        """K1 sums over rows, BP2 over the taps that one output parity sees, K3 over BP2's four sums."""
        g = self.config.cols

        def add(name: str, *terms: Value) -> Signal:
            """One registered adder (or plain register) of the reduction tree."""
            total = sum(terms[1:], terms[0])
            result = Signal(total.shape(), name=name, reset_less=True)
            m.d.sync += result.eq(total)
            return result

        bits = PRODUCT_BITS + (g - 1).bit_length()
        s = {(r, k): pes[r][-1].sum[k][:bits].as_signed() for r in range(PE_ROWS) for k in range(PE_TAPS)}
        level = self.latency(g) - 4
        mode = Line(m, self.ctl.sel[1:], "mode")
        p0 = add("p0", s[1, 1])
        p1 = add("p1", s[1, 0], s[1, 2])
        p2 = add("p2", s[2, 1], s[0, 1])
        p3 = add("p3", s[2, 0], s[2, 2])
        p4 = add("p4", s[0, 0], s[0, 2])
        q0 = add("q0", s[0, 0], s[2, 0])
        q1 = add("q1", s[1, 0])
        q2 = add("q2", s[0, 2], s[2, 2])
        q3 = add("q3", s[1, 2])

        k1 = mode[level + 1] == 2
        b0 = add("b0", Mux(k1, q0, p0).as_signed(), Mux(k1, q1, 0).as_signed())
        b1 = add("b1", Mux(k1, p2, p1).as_signed(), Mux(k1, p0, 0).as_signed())
        b2 = add("b2", Mux(k1, q2, p2).as_signed(), Mux(k1, q3, 0).as_signed())
        b3 = add("b3", p3, p4)

        k3 = mode[level + 2] == 0
        o0 = add("o0", b0, Mux(k3, b1, 0))
        o1 = add("o1", b1)
        o2 = add("o2", b2)
        o3 = add("o3", b3, Mux(k3, b2, 0))

        k3 = mode[level + 3] == 0
        for i, value in enumerate((add("out0", o0, Mux(k3, o3, 0)), add("out1", o1), add("out2", o2), add("out3", o3))):
            m.d.comb += self.out[i].eq(value)

    def _drain(self, m: Module, pes: list[list[Pe]]) -> None:
        for c in range(self.config.cols):
            dsel = delayed(m, self.dsel.as_value(), f"dsel{c}", c)
            taps = Array(pes[min(r, PE_ROWS - 1)][c].drain[min(k, PE_TAPS - 1)] for r in range(4) for k in range(4))
            selected = Signal(signed(self.config.wg_width), name=f"selected{c}", reset_less=True)
            m.d.sync += selected.eq(taps[Cat(dsel[2:4], dsel[:2])])
            m.d.comb += self.d[c].eq(selected)
