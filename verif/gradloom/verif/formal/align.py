"""Specification of ``align``, written from docs/arithmetic.md, section 2: the exact product, then saturated; or a floor."""

import types

from amaranth.hdl import Assert, Assume, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.acore import align

__all__ = ["ALIGN_DEPTH", "LEFT", "NARROW_DEPTH", "RIGHT", "AlignNarrowSpec", "AlignSpec", "aligned"]

_LATENCY, _NARROW_LATENCY = 5, 2
ALIGN_DEPTH, NARROW_DEPTH = _LATENCY + 1, _NARROW_LATENCY + 1
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
                    # The low 64 bits of the exact product, moved back, are x exactly when it fits.
                    low = (x << amount)[:64].as_signed()
                    m.d.comb += y.eq(Mux(low >> amount == x, low, Mux(x < 0, _LEAST, _MOST)))
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


class AlignSpec(wiring.Component):
    """Every number leaves :class:`gradloom.rtl.acore.align.Align` as align(x, n) 5 cycles later, for all 128 amounts.

    The pipeline has no feedback and no enable, and the inputs are free in every cycle, so those of the neighbours, too: the bounded
    check of ``ALIGN_DEPTH`` cycles is complete.

    Parameters
    ----------
    amounts : :class:`range`
        Those of the number that is followed, a part of ``LEFT`` or ``RIGHT``; its neighbours' are free.
    """

    def __init__(self, amounts: range, design: types.ModuleType = align) -> None:
        self.amounts, self.design = amounts, design
        super().__init__({"x": In(signed(64)), "n": In(signed(7))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Align()
        m.d.comb += [dut.x.eq(self.x), dut.n.eq(self.n)]
        x, n = (_history(m, value, name, _LATENCY) for value, name in ((self.x, "x"), (self.n, "n")))
        y = aligned(m, x, n, self.amounts)
        with m.If(_grown(m, _LATENCY)):
            m.d.comb += [Assume((n >= self.amounts[0]) & (n <= self.amounts[-1])), Assert(dut.y == y)]
        return m


class AlignNarrowSpec(wiring.Component):
    """:class:`gradloom.rtl.acore.align.AlignNarrow` gives align(x, n) for every x of its width and all 128 amounts.

    ``n`` may change from one number to the next, though in the machine it stays while a command runs: ``rows`` follows by a cycle,
    as the unit asks. Complete as above.

    Parameters
    ----------
    width : :class:`int`
        Bits of ``x``.
    amounts : :class:`range`
        As above.
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
            m.d.comb += [Assume((n >= self.amounts[0]) & (n <= self.amounts[-1])), Assert(dut.y == y)]
        return m
