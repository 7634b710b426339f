"""Align, both forms, over edges and random operands; saturation."""

import itertools
import random

import pytest
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.rtl.acore.align import (
    Align,
    AlignNarrow,
    ProductAlign,
    lean_sum,
    narrow_settings,
    product_fraction,
    product_over,
    saturated,
)
from gradloom.rtl.delay import Line
from gradloom.verif.plain_arith import align, saturate, wrap


def check(dut, inputs: list[str], cases: list[tuple[int, ...]], expected, latency: int) -> None:
    """One case a cycle; ``y`` comes ``latency`` cycles later."""
    async def bench(ctx):
        results = []
        for case in [*cases, *[cases[0]] * latency]:
            for name, value in zip(inputs, case, strict=True):
                ctx.set(getattr(dut, name), value)
            results.append(ctx.get(dut.y))
            await ctx.tick()
        for case, y in zip(cases, results[latency:], strict=True):
            assert y == expected(*case), case

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def operands(width: int) -> list[tuple[int, int]]:
    """(x, n): edges at every shift, random ones, just what fits and one bit more."""
    rng = random.Random(width)
    top = (1 << (width - 1)) - 1
    cases = [(x, n) for x in (0, 1, -1, top, -top - 1, top >> 1) for n in range(-64, 64)]
    cases += [(rng.randint(-top - 1, top) >> rng.randint(0, width - 1), rng.randint(-64, 63)) for _ in range(1500)]
    return cases + [(sign * (1 << (63 - n)) + around, n) for n in range(64 - width, 63) for sign in (1, -1) for around in (-1, 0)
                    if -top - 1 <= sign * (1 << (63 - n)) + around <= top]


def test_align():
    check(Align(), ["x", "n"], operands(64), align, Align.LATENCY)


class NarrowAtOnce(wiring.Component):
    """AlignNarrow whose settings come from a shift that is presented with x."""

    def __init__(self, width: int, *, lut: bool) -> None:
        self.dut, self.lut = AlignNarrow(width, lut=lut), lut
        super().__init__({"x": In(signed(width)), "n": In(signed(7)), "y": Out(signed(64))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        settings = narrow_settings(self.n.as_unsigned(), dut.width, lut=self.lut)
        m.d.comb += [dut.x.eq(self.x), dut.power.eq(settings["power"]), dut.over.eq(settings["over"]), self.y.eq(dut.y)]
        m.d.sync += dut.rows.eq(settings["rows"])
        return m


@pytest.mark.parametrize(("width", "lut"), [(13, False), (22, False), (32, False), (13, True), (22, True)])
def test_align_narrow(width, lut):
    check(NarrowAtOnce(width, lut=lut), ["x", "n"], operands(width), align, AlignNarrow.LATENCY)


class ProductAtOnce(wiring.Component):
    """ProductAlign, saturated or modulo 2^64, whose settings come from a factor and a shift that are presented with x."""

    def __init__(self, *, lut: bool, saturates: bool = True) -> None:
        self.lut, self.saturates = lut, saturates
        super().__init__({"x": In(signed(48)), "factor": In(17), "n": In(signed(7)), "y": Out(signed(64))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = ProductAlign(lut=self.lut)
        n = Line(m, self.n.as_unsigned(), "n")
        coarse, fine = n[ProductAlign.COARSE], n[ProductAlign.COARSE + 1]
        limit = Cat((~dut.negative).replicate(63), dut.negative)
        if self.lut:
            m.d.comb += [dut.octet.eq(coarse[3:6]), dut.fraction.eq(product_fraction(fine)), dut.low.eq(n[ProductAlign.COARSE + 2])]
        factor = self.factor if self.lut else self.factor << self.n.as_unsigned()[:3]
        m.d.comb += [dut.x.eq(self.x), dut.factor.eq(factor), dut.coarse.eq(coarse[5:]),
                     dut.fine.eq(fine[3:5].replicate(2)), dut.over.eq(product_over(fine)),
                     self.y.eq((Mux(dut.beyond, limit, dut.y) if self.saturates else dut.y).as_signed())]
        return m


@pytest.mark.parametrize("lut", [False, True])
def test_product_align(lut):
    rng = random.Random(7)
    factors = (0, 1, 1 << 15, 1 << 16, (1 << 17) - 1)
    cases = [(x, rng.choice((*factors, rng.getrandbits(17))), n) for x, n in operands(48)]
    # What just fits, or not, behind a factor of one bit.
    cases += [(sign * (1 << i) + around, 1 << 16, n) for n in range(64) for i in range(max(0, 44 - n), min(47, 50 - n))
              for sign in (1, -1) for around in (-1, 0)]
    check(ProductAtOnce(lut=lut), ["x", "factor", "n"], cases, lambda x, factor, n: align(x * factor, n), ProductAlign.LATENCY)
    check(ProductAtOnce(lut=lut, saturates=False), ["x", "factor", "n"], cases,
          lambda x, factor, n: wrap(x * factor << n if n >= 0 else x * factor >> -n), ProductAlign.LATENCY)


def test_lean_sum():
    class Dut(wiring.Component):
        a: In(signed(5))
        b: In(signed(4))
        y: Out(signed(8))

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.y.eq(lean_sum(self.a, self.b))
            return m

    dut = Dut()

    async def bench(ctx):
        for a, b in itertools.product(range(-16, 16), range(-8, 8)):
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            assert ctx.get(dut.y) == a + b

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("width", [0, 1, 33])
def test_align_width(width):
    with pytest.raises(ValueError, match=rf"^width must lie in 2\.\.32, not {width}$"):
        AlignNarrow(width)


def test_saturated():
    wide = Signal(signed(8))
    assert len(saturated(wide, 8)) == 8
    assert saturated(wide, 9) is wide

    class Dut(wiring.Component):
        x: In(signed(8))
        y: Out(signed(5))

        def elaborate(self, platform):
            m = Module()
            m.d.comb += self.y.eq(saturated(self.x, 5))
            return m

    dut = Dut()

    async def bench(ctx):
        for x in range(-128, 128):
            ctx.set(dut.x, x)
            assert ctx.get(dut.y) == saturate(x, 5)

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()
