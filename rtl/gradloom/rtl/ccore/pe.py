"""Processing element: three MACs of one PE row and input channel with their drain registers (ETA, IV-B2 and figure 6), of one
cluster, or of two where a MAC unit is that of two (:mod:`gradloom.rtl.ccore.mac`).
"""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import PE_TAPS
from gradloom.rtl import shared_module
from gradloom.rtl.ccore.lean_mac import LeanMac
from gradloom.rtl.ccore.mac import PRODUCT_BITS, SUM_BITS, Mac, clusters_of, mac_factor

__all__ = ["Pe", "row_bits"]


def row_bits(cols: int) -> int:
    """Bits of a sum of products along a row of PEs."""
    return PRODUCT_BITS + (cols - 1).bit_length()


class Pe(wiring.Component):
    """Three MACs. Forward and backward a sum goes on to the next PE of the row, for weight gradients it stays.

    Cycles after the window: 1 factors, 2 products, 3 sums, 4 drain registers. The controls of cycle i must be presented i cycles
    after the window. A sum is lost when another token than one with ``wg`` comes by: both live in the same register.

    Parameters
    ----------
    mac : :class:`str`
        One of :data:`gradloom.contracts.config.MACS`.
    wg_width : :class:`int`
        Bits of a sum.
    family : :class:`str`
        One of :data:`gradloom.contracts.config.FAMILIES`.
    cols : :class:`int`
        PEs of a row, and ``first``: it is the first of them; for ``family = "ecp5"``, whose sums along the row are narrower.

    Members
    -------
    a : ``In(ArrayLayout(factor, 3))``
    w, e : ``In(ArrayLayout(ArrayLayout(factor, 3), clusters))``
        Cycle 0: window, weights, errors.
    wg : ``In(1)``
        Cycle 0: errors in place of the weights.
    take, keep, chain : ``In(1)``
        Cycle 2, of all three MACs (:class:`gradloom.rtl.ccore.mac.Mac`).
    kept : ``In(1)``
        Cycle 3: the sums were kept and changed, so that ``ovf`` counts.
    snap : ``In(1)``
        Cycle 3: copy the sums to the drain registers.
    ask : ``In(3)``
        Taps whose drain registers are read.
    cin, cout : ``In``, ``Out(ArrayLayout(ArrayLayout(signed(48), clusters), 3))``
        Cycle 2, cycle 3: the cascade, from the PE before and to the next one, tap by tap.
    sum : ``Out(ArrayLayout(ArrayLayout(signed(48), clusters), 3))``
        Cycle 3; modulo 2^48.
        With ``family = "ecp5"`` sums have ``wg_width`` bits, those of the cascade :func:`row_bits`
        (:class:`gradloom.rtl.ccore.lean_mac.LeanMac`).
    drain : ``Out(ArrayLayout(ArrayLayout(signed(wg_width), 3), clusters))``
        One cycle after ``ask``: the drain register of a tap that was asked, else 0. So readers gather registers with OR alone.
    ovf : ``Out(1)``
        Cycle 3: a sum left its width.
    """

    def __init__(self, mac: str, wg_width: int = 48, *, family: str = "any", cols: int = 1, first: bool = False) -> None:
        self.mac = mac
        self.wg_width = wg_width
        self.lean = family == "ecp5"
        self.first = first
        self.clusters = clusters_of(mac)
        sum_bits, self.chain_bits = (wg_width, row_bits(cols)) if self.lean else (SUM_BITS, SUM_BITS)
        taps = data.ArrayLayout(mac_factor(mac), PE_TAPS)
        factors = data.ArrayLayout(taps, self.clusters)
        kept = data.ArrayLayout(data.ArrayLayout(signed(wg_width), PE_TAPS), self.clusters)
        sums, along = (data.ArrayLayout(data.ArrayLayout(signed(bits), self.clusters), PE_TAPS)
                       for bits in (sum_bits, self.chain_bits))
        super().__init__({
            "a": In(taps), "w": In(factors), "e": In(factors), "wg": In(1), "take": In(1), "keep": In(1), "chain": In(1),
            "kept": In(1), "snap": In(1), "ask": In(PE_TAPS), "cin": In(along), "cout": Out(along), "sum": Out(sums),
            "drain": Out(kept), "ovf": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = [(i, k) for i in range(self.clusters) for k in range(PE_TAPS)]
        before = Signal(len(places), reset_less=True)
        drain, asked = (Signal.like(self.drain, name=name, reset_less=True) for name in ("held", "asked"))
        overflow = Signal(len(places))
        m.d.comb += [self.drain.eq(asked), self.ovf.eq(self.kept & overflow.any())]
        with m.If(self.snap):
            m.d.sync += [drain[i][k].eq(self.sum[k][i]) for i, k in places]
        m.d.sync += [asked[i][k].eq(Mux(self.ask[k], drain[i][k], 0)) for i, k in places]
        for k in range(PE_TAPS):
            if self.lean:
                lean = LeanMac(self.wg_width, self.chain_bits, first=self.first)
                mac = shared_module.add(m, f"mac{k}", "gradloom_lean_mac", lean, (self.wg_width, self.chain_bits, self.first))
            else:
                mac = shared_module.add(m, f"mac{k}", "gradloom_mac", Mac(self.mac), self.mac)
            m.d.comb += [mac.a.eq(self.a[k]), mac.wg.eq(self.wg), mac.take.eq(self.take), mac.keep.eq(self.keep),
                         mac.chain.eq(self.chain), mac.cin.eq(self.cin[k]), self.cout[k].eq(mac.cout), self.sum[k].eq(mac.sum)]
            m.d.comb += [pair for i in range(self.clusters)
                         for pair in (mac.w[i].eq(self.w[i][k]), mac.e[i].eq(self.e[i][k]))]
        for n, (i, k) in enumerate(places):
            # A product is far smaller than a quarter of the range: a sum that jumps over its edge lands beside it.
            sign, next_bit = (self.sum[k][i][self.wg_width - 1 - back] for back in range(2))
            m.d.sync += before[n].eq(sign)
            m.d.comb += overflow[n].eq((before[n] ^ sign) & (sign ^ next_bit))
        return m
