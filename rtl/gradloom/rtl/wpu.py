"""Window processing unit: 3 rows x G PEs x 3 MACs, reduced to at most four sums a cycle (ETA, figure 8)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import emit
from gradloom.rtl.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.mac import operand_shape
from gradloom.rtl.pe import Pe

__all__ = ["WPU_CTL", "WPU_DSEL", "WPU_OUTPUTS", "Wpu"]

WPU_OUTPUTS = 4

WPU_CTL = data.StructLayout({
    "shift": 1, "clear": 1, "sel": 3, "use": 1, "wg": 1, "swap": 1, "clr": 1, "snap": 1})
"""One token: see :class:`Wpu`."""

WPU_DSEL = data.StructLayout({"r": 2, "k": 2})
"""PE row and tap of the drain registers to read."""


class Wpu(wiring.Component):
    """Array of 3 x G PEs; one token a cycle, no stalls.

    Members
    -------
    ctl : ``In(WPU_CTL)``
        One token a cycle. ``shift``, ``clear``: new columns; ``sel``: window (docs/machine.md, section 4);
        ``use``: the sums, resp. the accumulation, count; ``wg``: accumulate products with ``e``;
        ``swap``: this token and later ones use the weights that the shadow registers held before this cycle;
        ``clr``: the accumulators start anew with this token's products (only with ``wg`` and ``use``);
        ``snap``: copy the accumulators, this token included, to the drain registers.
    x : ``In(ArrayLayout({x0, x1}, 3 G))``
        Columns, index r * G + c, with ``ctl``.
    wl, w : ``In(3)``, ``In(ArrayLayout(operand, 3 G))``
        PE rows whose shadow weights load; the taps, index k * G + c.
    e : ``In(ArrayLayout(operand, 3))``
        Error per tap, with ``ctl``.
    out : ``Out(ArrayLayout(signed(psum_width), 4))``
        Sums of the token presented ``LATENCY`` cycles earlier. ``sel`` 0, 1: out0 the total; 2, 3: four sums,
        one per output parity; 4, 5: out_k of output group k. The rest, and all without ``use``, is undefined.
    dsel, d : ``In(WPU_DSEL)``, ``Out(ArrayLayout(signed(wg_width), G))``
        Drain registers of PE row r and tap k, per column, one cycle after ``dsel``. A ``snap`` shows to a
        ``dsel`` presented ``SNAP_LATENCY`` cycles after it or later; until then the one before does.
    ovf : ``Out(1)``
        Some accumulation overflowed ``OVF_LATENCY`` cycles ago.
    """

    LATENCY = 10
    """Cycles from a token to its sums: 3 in the PE, 7 adder levels of 72 products; narrower arrays wait."""
    SNAP_LATENCY = 5
    OVF_LATENCY = 5

    def __init__(self, config: Config) -> None:
        self.config = config
        g = config.cols
        operand = operand_shape(config)
        super().__init__({
            "ctl": In(WPU_CTL),
            "x": In(data.ArrayLayout(data.StructLayout({"x0": operand, "x1": operand}), PE_ROWS * g)),
            "wl": In(PE_ROWS),
            "w": In(data.ArrayLayout(operand, PE_TAPS * g)),
            "e": In(data.ArrayLayout(operand, PE_TAPS)),
            "out": Out(data.ArrayLayout(signed(config.psum_width), WPU_OUTPUTS)),
            "dsel": In(WPU_DSEL),
            "d": Out(data.ArrayLayout(signed(config.wg_width), g)),
            "ovf": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        g = self.config.cols
        ctl = self.ctl

        def delayed(value: Value, cycles: int, name: str, reset_less: bool = True) -> list[Value]:
            """``value`` after 0 .. ``cycles`` cycles."""
            stages = [value]
            for i in range(cycles):
                stage = Signal(Value.cast(value).shape(), name=f"{name}{i + 1}", reset_less=reset_less)
                m.d.sync += stage.eq(stages[-1])
                stages.append(stage)
            return stages

        wg = delayed(ctl.wg, 1, "wg")
        errors = Signal.like(self.e, reset_less=True)
        acc = delayed(ctl.wg & ctl.use, 3, "acc", reset_less=False)
        clr = delayed(ctl.clr, 3, "clr")
        snap = delayed(ctl.snap, 4, "snap", reset_less=False)
        m.d.sync += errors.eq(self.e)
        sel = delayed(ctl.sel, 1, "sel")

        pes = [[emit.add(m, f"pe_{r}_{c}", "gradloom_pe", Pe(self.config.mac, self.config.wg_width),
                         (self.config.mac, self.config.wg_width)) for c in range(g)] for r in range(PE_ROWS)]
        for r, row in enumerate(pes):
            for c, pe in enumerate(row):
                x = self.x[r * g + c]
                m.d.comb += [
                    pe.shift.eq(ctl.shift), pe.clear.eq(ctl.clear), pe.swap.eq(ctl.swap),
                    pe.x0.eq(x.x0), pe.x1.eq(x.x1), pe.load.eq(self.wl[r]),
                    pe.sel.eq(sel[1]), pe.wg.eq(wg[1]), pe.e.eq(errors),
                    pe.acc.eq(acc[3]), pe.clr.eq(clr[3]), pe.snap.eq(snap[4])]
                m.d.comb += [pe.w[k].eq(self.w[k * g + c]) for k in range(PE_TAPS)]
        overflow = Signal()
        m.d.sync += overflow.eq(Cat(pe.ovf for row in pes for pe in row).any())
        m.d.comb += self.ovf.eq(overflow)

        level = 3  # cycles after the token of the values at hand

        def add(name: str, *terms: Value) -> Signal:
            """One registered adder (or plain register) of the reduction tree."""
            total = sum(terms[1:], terms[0])
            result = Signal(total.shape(), name=name, reset_less=True)
            m.d.sync += result.eq(total)
            return result

        sums = {(r, k): [pe.product[k] for pe in pes[r]] for r in range(PE_ROWS) for k in range(PE_TAPS)}
        width = g
        while width > 1:
            level += 1
            width //= 2
            sums = {(r, k): [add(f"s{r}{k}_{width}_{i}", *terms[2 * i:2 * i + 2]) for i in range(width)]
                    for (r, k), terms in sums.items()}
        s = {key: terms[0] for key, terms in sums.items()}

        # K1 sums over rows, BP2 over the taps that one output parity sees, K3 over BP2's four sums.
        mode = delayed(ctl.sel[1:], level + 3, "mode")
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
        b0 = add("b0", Mux(k1, q0 + q1, p0))
        b1 = add("b1", Mux(k1, p2 + p0, p1))
        b2 = add("b2", Mux(k1, q2 + q3, p2))
        b3 = add("b3", p3, p4)

        k3 = mode[level + 2] == 0
        o0 = add("o0", b0, Mux(k3, b1, 0))
        o1 = add("o1", b1)
        o2 = add("o2", b2)
        o3 = add("o3", b3, Mux(k3, b2, 0))

        k3 = mode[level + 3] == 0
        outputs = [add("out0", o0, Mux(k3, o3, 0)), add("out1", o1), add("out2", o2), add("out3", o3)]
        for i, value in enumerate(outputs):
            m.d.comb += self.out[i].eq(delayed(value, self.LATENCY - level - 4, f"pad{i}_")[-1])

        drains = Array(Cat(pes[min(r, PE_ROWS - 1)][c].drain[min(k, PE_TAPS - 1)] for c in range(g))
                       for r in range(4) for k in range(4))
        selected = Signal(g * self.config.wg_width, reset_less=True)
        m.d.sync += selected.eq(drains[Cat(self.dsel.k, self.dsel.r)])
        m.d.comb += self.d.as_value().eq(selected)
        return m
