"""Specification of ``align`` of narrow operands, written from docs/arithmetic.md, section 2."""

import types

from amaranth.hdl import Assert, Assume, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.acore import align

__all__ = ["LEFT", "NARROW_DEPTH", "RIGHT", "AlignNarrowSpec", "aligned"]

_NARROW_LATENCY = 2
NARROW_DEPTH = _NARROW_LATENCY + 1
"""Cycles to the first result of which nothing is from before power-up."""
LEFT, RIGHT = range(64), range(-64, 0)
"""The two cases of the amount."""
_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)


def aligned(m: Module, x: Value, n: Value, amounts: range) -> Signal:
    """align(x, n) of at most 64 bits for n among ``amounts``: one exact product, or one floor, for each of them."""
    y = Signal(signed(64), name="expected")
    with m.Switch(n):
        for amount in amounts:
            with m.Case(f"{amount & 127:07b}"):
                if amount < 0:
                    m.d.comb += y.eq(x >> -amount)
                else:
                    exact = x << amount
                    m.d.comb += y.eq(Mux(exact > _MOST, _MOST, Mux(exact < _LEAST, _LEAST, exact)))
    return y


def _history(m: Module, value: Value, name: str, cycles: int) -> Value:
    for i in range(cycles):
        register = Signal(value.shape(), name=f"{name}_{i}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


def _grown(m: Module, cycles: int) -> Value:
    """The pipeline holds nothing from before the first cycle."""
    age = Signal(range(cycles + 1))
    with m.If(age != cycles):
        m.d.sync += age.eq(age + 1)
    return age == cycles


class AlignNarrowSpec(wiring.Component):
    """:class:`gradloom.rtl.acore.align.AlignNarrow` gives align(x, n) for every x of its width and all 128 amounts.

    ``n`` may change from one number to the next, though in the machine it stays while a command runs: ``rows`` follows by a cycle,
    as the unit asks. The pipeline has no feedback and no enable, and the inputs are free in every cycle, so those of the
    neighbours, too: the bounded check of ``NARROW_DEPTH`` cycles is complete.

    Parameters
    ----------
    width : :class:`int`
        Bits of ``x``.
    amounts : :class:`range`
        ``LEFT`` or ``RIGHT``: those of the number that is followed; its neighbours' are free.
    """

    def __init__(self, width: int, amounts: range, design: types.ModuleType = align) -> None:
        self.width, self.amounts, self.design = width, amounts, design
        super().__init__({"x": In(signed(width)), "n": In(signed(7))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.AlignNarrow(self.width)
        settings = self.design.narrow_settings(self.n, self.width)
        m.d.comb += [dut.x.eq(self.x), dut.power.eq(settings["power"]), dut.over.eq(settings["over"])]
        m.d.sync += dut.rows.eq(settings["rows"])
        x, n = (_history(m, value, name, _NARROW_LATENCY) for value, name in ((self.x, "x"), (self.n, "n")))
        y = aligned(m, x, n, self.amounts)
        with m.If(_grown(m, _NARROW_LATENCY)):
            m.d.comb += [Assume((n < 0) == (self.amounts[0] < 0)), Assert(dut.y == y)]
        return m
