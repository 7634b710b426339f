"""Processing element: windows of one input channel, three weights, three MACs (ETA, IV-B2 and figure 6)."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.config import PE_TAPS
from gradloom.rtl.mac import PRODUCT_BITS, factor_of, factor_shape, mac_operand, multiply

__all__ = ["Pe"]


class Pe(wiring.Component):
    """Window registers (a pair of columns now and the pair before), double-buffered weights, three MACs.

    Pipeline, in cycles after the token: 1 window and weights, 2 operands, 3 products, 4 accumulators, 5 drain
    registers. The controls of stage i must be presented i cycles after the token, so the WPU delays them once
    for all its PEs.

    Parameters
    ----------
    mac : :class:`str`
        ``"decode_once"`` or ``"post_shift"``.
    wg_width : :class:`int`
        Bits of an accumulator.

    Members
    -------
    shift, clear, swap : ``In(1)``
        Stage 0. Take the pair ``x0``, ``x1``; with ``clear`` the pair before counts as 0.
        ``swap``: the shadow weights become active.
    x0, x1 : ``In(operand)``
        Stage 0: even and odd column.
    load, w : ``In(1)``, ``In(ArrayLayout(operand, 3))``
        Weights into the shadow registers; independent of tokens.
    sel : ``In(3)``
        Stage 1: pattern and parity of the window (docs/machine.md, section 4).
    wg, e : ``In(1)``, ``In(ArrayLayout(operand, 3))``
        Stage 1: operands in place of the weights.
    acc, clr : ``In(1)``
        Stage 3: add the products to the accumulators, with ``clr`` replace them.
    snap : ``In(1)``
        Stage 4: copy the accumulators to the drain registers.
    product : ``Out(ArrayLayout(signed(26), 3))``
        Stage 3.
    drain : ``Out(ArrayLayout(signed(wg_width), 3))``
    ovf : ``Out(1)``
        Stage 4: an accumulation overflowed.
    """

    def __init__(self, mac: str, wg_width: int = 48) -> None:
        self.mac = mac
        self.wg_width = wg_width
        operand = mac_operand(mac)
        taps = data.ArrayLayout(operand, PE_TAPS)
        super().__init__({
            "shift": In(1), "clear": In(1), "swap": In(1),
            "x0": In(operand), "x1": In(operand),
            "load": In(1), "w": In(taps),
            "sel": In(3), "wg": In(1), "e": In(taps),
            "acc": In(1), "clr": In(1), "snap": In(1),
            "product": Out(data.ArrayLayout(signed(PRODUCT_BITS), PE_TAPS)),
            "drain": Out(data.ArrayLayout(signed(wg_width), PE_TAPS)),
            "ovf": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        mac = self.mac
        pair = data.ArrayLayout(mac_operand(mac), 2)
        taps = data.ArrayLayout(mac_operand(mac), PE_TAPS)

        # Whole groups of operands share a register: fewer, wider signals simulate faster.
        prev, cur = (Signal(pair, name=name, reset_less=True) for name in ("prev", "cur"))
        shadow, active = (Signal(taps, name=name, reset_less=True) for name in ("shadow", "active"))
        with m.If(self.shift):
            m.d.sync += [prev.eq(Mux(self.clear, 0, cur)), cur.eq(Cat(self.x0, self.x1))]
        with m.If(self.load):
            m.d.sync += shadow.eq(self.w)
        with m.If(self.swap):
            m.d.sync += active.eq(shadow)

        window = Signal(taps)
        factor = Signal(taps)
        m.d.comb += factor.eq(Mux(self.wg, self.e, active))
        (p0, p1), (c0, c1) = prev, cur
        with m.Switch(self.sel):
            for sel, values in enumerate(((p0, p1, c0), (p1, c0, c1), (c1, c0, c0), (c0, p1, p1), (c0,) * 3)):
                with m.Case(sel):
                    m.d.comb += window.eq(Cat(values))
            with m.Default():
                m.d.comb += window.eq(Cat(c1, c1, c1))

        overflow = Signal(PE_TAPS, reset_less=True)
        for k in range(PE_TAPS):
            a, b = (Signal(factor_shape(mac), name=f"{name}{k}", reset_less=True) for name in "ab")
            m.d.sync += [a.eq(factor_of(mac, window[k])), b.eq(factor_of(mac, factor[k]))]
            product = Signal(signed(PRODUCT_BITS), name=f"product{k}", reset_less=True)
            multiply(m, "sync", product, mac, a, b)
            m.d.comb += self.product[k].eq(product)

            total = Signal(signed(self.wg_width + 1), name=f"total{k}")
            sum_, drain = (Signal(signed(self.wg_width), name=f"{name}{k}", reset_less=True)
                           for name in ("sum", "drain"))
            m.d.comb += [total.eq(Mux(self.clr, 0, sum_) + product), self.drain[k].eq(drain)]
            m.d.sync += overflow[k].eq(self.acc & (total[-1] ^ total[-2]))
            with m.If(self.acc):
                m.d.sync += sum_.eq(total)
            with m.If(self.snap):
                m.d.sync += drain.eq(sum_)
        m.d.comb += self.ovf.eq(overflow.any())
        return m
