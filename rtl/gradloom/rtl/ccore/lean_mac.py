"""The MAC of ``family = "ecp5"``: a MULT18X18D with its registers and a LUT4 a bit of the sum."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import shared_module
from gradloom.rtl.ccore.mac import mac_factor
from gradloom.rtl.ecp5 import ChosenSum, Multiplier

__all__ = ["LeanMac"]


class LeanMac(wiring.Component):
    """What :class:`gradloom.rtl.ccore.mac.Mac` is for one cluster, in the same cycles, as far as an array uses it.

    A sum that begins anew takes ``cin`` as well, for want of an input of the LUT4, and so ``cout`` is 0 unless the token goes along
    the row: a register of its own.

    Parameters
    ----------
    width : :class:`int`
        Bits of a sum.
    chain : :class:`int`
        Bits of a sum that goes along the row. From there on ``sum`` means nothing behind a token of such a sum.
    first : :class:`bool`
        The first of its row: ``cin`` counts as 0.

    Members
    -------
    a, w, e, wg, take, keep
        As there; never ``take`` and ``keep`` for the sum of a token that went along the row.
    chain : ``In(1)``
        Cycle 2: the sum goes along the row.
    cin, cout : ``In``, ``Out(ArrayLayout(signed(chain), 1))``
        Cycle 2, ``cout`` of the MAC before; cycle 3, 0 unless it was ``chain``.
    sum : ``Out(ArrayLayout(signed(width), 1))``
        Cycle 3; modulo 2^width.
    """

    def __init__(self, width: int, chain: int, *, first: bool) -> None:
        self.width, self.chain_bits, self.first = width, chain, first
        factor, total, along = (data.ArrayLayout(shape, 1) for shape in (mac_factor("decode_once"), signed(width), signed(chain)))
        super().__init__({"a": In(mac_factor("decode_once")), "w": In(factor), "e": In(factor), "wg": In(1), "take": In(1),
                          "keep": In(1), "chain": In(1), "cin": In(along), "sum": Out(total), "cout": Out(along)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low = 0 if self.first else self.chain_bits
        multiplier = shared_module.add(m, "multiplier", "gradloom_ecp5_multiplier", Multiplier())
        adder = shared_module.add(m, "adder", "gradloom_ecp5_sum", ChosenSum(self.width, low), (self.width, low))
        total = Signal(signed(self.width), reset_less=True)
        along = Signal(signed(self.chain_bits), reset_less=True)
        m.d.comb += [multiplier.a.eq(self.a), multiplier.b.eq(Mux(self.wg, self.e[0], self.w[0])),
                     adder.a.eq(multiplier.product), adder.b.eq(total), adder.own.eq(self.keep)]
        if low:
            m.d.comb += adder.c.eq(self.cin[0])
        with m.If(self.take):
            m.d.sync += total.eq(adder.s)
        m.d.sync += along.eq(Mux(self.chain, adder.s[:self.chain_bits], 0))
        m.d.comb += [self.sum[0].eq(total), self.cout[0].eq(along)]
        return m
