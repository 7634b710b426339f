"""Running sum of magnitudes, shaped as a DSP48E1: an accumulator that adds or subtracts (ETA, Algorithm 2, sum of \\|x\\|)."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import shared_module
from gradloom.rtl.core_reads import PLANE_SUM_BITS
from gradloom.rtl.ecp5 import MagnitudeSum

__all__ = ["SUM_BITS", "AbsAccumulator"]

SUM_BITS = PLANE_SUM_BITS


class AbsAccumulator(wiring.Component):
    """Adds the magnitude of one of two values to a sum, modulo 2^48.

    Registers as in a DSP48E1: values (A:B, C), the choice between them and a fresh start (OPMODE) and the sign (ALUMODE) in
    cycle 1, sum (P) in cycle 2. On the Xilinx 7 series the unit is one slice and a LUT (:mod:`gradloom.rtl.xc7`). On ECP5 the
    choice comes before the registers, and the sign and the fresh start are within the adder (:mod:`gradloom.rtl.ecp5`).

    Parameters
    ----------
    width : :class:`int`
        Bits of a value, at most 48.
    family : :class:`str`
        One of :data:`gradloom.contracts.config.FAMILIES`.

    Members
    -------
    a, c : ``In(signed(width))``
        Cycle 0.
    second : ``In(1)``
        Cycle 0: ``c`` counts; else ``a``.
    open : ``In(1)``
        Cycle 0: the sum starts anew with this value.
    add : ``In(1)``
        Cycle 1: the sum changes.
    sum : ``Out(48)``
        Cycle 2.
    """

    def __init__(self, width: int, *, family: str = "any") -> None:
        self.width, self.family = width, family
        super().__init__({"a": In(signed(width)), "c": In(signed(width)), "second": In(1), "open": In(1), "add": In(1),
                          "sum": Out(SUM_BITS)})

    def elaborate(self, platform: object) -> Module:
        return self._of_cells() if self.family == "ecp5" else self._of_one_slice()

    def _of_cells(self) -> Module:
        m = Module()
        value, total = Signal(signed(self.width), reset_less=True), Signal(SUM_BITS, reset_less=True)
        fresh = Signal(reset_less=True)
        adder = shared_module.add(m, "adder", "gradloom_ecp5_magnitude", MagnitudeSum(SUM_BITS), SUM_BITS)
        m.d.sync += [value.eq(Mux(self.second, self.c, self.a)), fresh.eq(self.open)]
        m.d.comb += [adder.x.eq(value), adder.negative.eq(value[-1]), adder.total.eq(total), adder.fresh.eq(fresh),
                     self.sum.eq(total)]
        with m.If(self.add):
            m.d.sync += total.eq(adder.s)
        return m

    def _of_one_slice(self) -> Module:
        m = Module()
        a, c = (Signal(signed(self.width), name=f"{name}_reg", reset_less=True) for name in "ac")
        second, fresh, negative = (Signal(name=name, reset_less=True) for name in ("second_reg", "fresh", "negative"))
        total = Signal(SUM_BITS, reset_less=True)
        chosen = Signal(signed(SUM_BITS))
        wide = Signal(SUM_BITS + 1)
        m.d.sync += [a.eq(self.a), c.eq(self.c), second.eq(self.second), fresh.eq(self.open),
                     negative.eq(Mux(self.second, self.c[-1], self.a[-1]))]
        # |x| = (x ^ sign) + sign; the sign enters the adder as its carry.
        m.d.comb += [chosen.eq(Mux(second, c, a)),
                     wide.eq(Cat(negative, Mux(fresh, 0, total)) + Cat(negative, chosen ^ negative.replicate(SUM_BITS)))]
        with m.If(self.add):
            m.d.sync += total.eq(wide[1:])
        m.d.comb += self.sum.eq(total)
        return m
