"""The multiply-accumulate unit of the array, shaped as a DSP48E1, in three forms with one result (ETA, IV-B1, figure 4(a)).

``decode_once``: a factor is the 13-bit integer of :func:`gradloom.rtl.pint.decode`. ``double_pumped``: the same, and a unit holds
the MACs of two clusters, which on the Xilinx 7 series are one slice at twice the clock. ``post_shift``: a factor is {segment, m},
and the 7 x 7 product is shifted by three times the sum of the segments, 0/3/6/9/12. Factors are made once, where a code enters
the array.
"""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import MACS, Config
from gradloom.rtl.pint import V_BITS, decode, segment

__all__ = ["PRODUCT_BITS", "SUM_BITS", "Mac", "clusters_of", "factor_of", "factor_shape", "mac_factor", "multiply"]

PRODUCT_BITS = 26
"""Bits of a product: |v| <= 4096, so it lies in -4096 * 4032 .. 4096 * 4096."""

SUM_BITS = 48
"""Bits of a sum, those of a DSP48E1; narrower accumulators are its low bits."""

_M_BITS = 7


def _is_once(mac: str) -> bool:
    if mac not in MACS:
        raise ValueError(f"mac must be {', '.join(map(repr, MACS[:-1]))} or {MACS[-1]!r}, not {mac!r}")
    return mac != "post_shift"


def clusters_of(mac: str) -> int:
    """Clusters whose MACs are one unit."""
    return 2 if mac == "double_pumped" else 1


def mac_factor(mac: str) -> Shape:
    """Shape of a factor of the MAC ``mac``; 0 is the factor of the value 0."""
    return signed(V_BITS) if _is_once(mac) else unsigned(_M_BITS + 2)


def factor_shape(config: Config) -> Shape:
    """Shape of a factor of a machine's MACs."""
    return mac_factor(config.mac)


def factor_of(mac: str, code: Value) -> Value:
    """The factor of an 8-bit code, combinational."""
    return decode(code) if _is_once(mac) else Cat(code[:_M_BITS], segment(code))


def multiply(m: Module, domain: str, product: Signal, mac: str, a: Value, b: Value) -> None:
    """Drive ``product``, signed(26), in ``domain`` with the product of two factors."""
    if _is_once(mac):
        m.d[domain] += product.eq(a * b)
        return
    narrow = Signal(signed(2 * _M_BITS), name=f"{product.name}_m")
    shift = Signal(3, name=f"{product.name}_shift")
    m.d.comb += [narrow.eq(a[:_M_BITS].as_signed() * b[:_M_BITS].as_signed()),
                 shift.eq(a[_M_BITS:] + b[_M_BITS:])]
    with m.Switch(shift):
        for step in range(4):
            with m.Case(step):
                m.d[domain] += product.eq(narrow << (3 * step))
        with m.Default():
            m.d[domain] += product.eq(narrow << 12)


class Mac(wiring.Component):
    """Product of ``a`` and ``w`` or ``e``, added to the sum of the MAC before it in the chain, or to its own; for one cluster, or
    for two that share ``a`` and all controls.

    Registers as in a DSP48E1: factors (B, A, D) and the choice between two of them (INMODE) in cycle 1, product (M) in cycle 2,
    sum (P) in cycle 3. On the Xilinx 7 series ``cin`` is its cascade, its pre-adder chooses, and the unit is one slice with nothing
    beside it (:mod:`gradloom.rtl.xc7`).

    Members
    -------
    a : ``In(factor)``
    w, e : ``In(ArrayLayout(factor, clusters))``
        Cycle 0.
    wg : ``In(1)``
        Cycle 0: the product is that of ``a`` and ``e``; else of ``a`` and ``w``.
    take : ``In(1)``
        Cycle 2: the sum changes.
    keep, chain : ``In(1)``
        Cycle 2: the product is added to the sum, resp. to ``cin``; to 0 if neither. Never both. ``chain`` is ``~wg`` of two cycles
        before, and without it what does not ``take`` has ``wg`` (:mod:`gradloom.rtl.xc7` counts on both for two clusters).
    cin : ``In(ArrayLayout(signed(48), clusters))``
        Cycle 2: ``cout`` of the MAC before, or 0.
    sum, cout : ``Out(ArrayLayout(signed(48), clusters))``
        Cycle 3; modulo 2^48. ``cout`` is the same for the cascade.
    """

    def __init__(self, mac: str) -> None:
        self.mac = mac
        factor, total = (data.ArrayLayout(shape, clusters_of(mac)) for shape in (mac_factor(mac), signed(SUM_BITS)))
        super().__init__({"a": In(mac_factor(mac)), "w": In(factor), "e": In(factor), "wg": In(1), "take": In(1), "keep": In(1),
                          "chain": In(1), "cin": In(total), "sum": Out(total), "cout": Out(total)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        factor = mac_factor(self.mac)
        a, wg = Signal(factor, name="a_reg", reset_less=True), Signal(name="wg_reg", reset_less=True)
        m.d.sync += [a.eq(self.a), wg.eq(self.wg)]
        for i in range(clusters_of(self.mac)):
            w, e, chosen = (Signal(factor, name=f"{name}{i}", reset_less=True) for name in ("w_reg", "e_reg", "chosen"))
            product = Signal(signed(PRODUCT_BITS), name=f"product{i}", reset_less=True)
            total = Signal(signed(SUM_BITS), name=f"total{i}", reset_less=True)
            m.d.sync += [w.eq(self.w[i]), e.eq(self.e[i])]
            m.d.comb += chosen.eq(Mux(wg, e, w))
            multiply(m, "sync", product, self.mac, a, chosen)
            with m.If(self.take):
                m.d.sync += total.eq(Mux(self.keep, total, Mux(self.chain, self.cin[i], 0)) + product)
            m.d.comb += [self.sum[i].eq(total), self.cout[i].eq(total)]
        return m
