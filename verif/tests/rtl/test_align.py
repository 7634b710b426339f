"""Align, both forms, over edges and random operands; saturation."""

import random

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.rtl.align import Align, AlignNarrow, saturated
from gradloom.verif.acore_case import align, saturate


@pytest.mark.parametrize("dut", [Align(), AlignNarrow(13), AlignNarrow(22), AlignNarrow(64)], ids=["64", "13", "22", "narrow 64"])
def test_align(dut):
    width = len(dut.x)
    rng = random.Random(width)
    top = (1 << (width - 1)) - 1
    edges = [0, 1, -1, top, -top - 1, top >> 1]
    cases = [(x, n) for x in edges for n in range(-64, 64)]
    cases += [(rng.randint(-top - 1, top) >> rng.randint(0, width - 1), rng.randint(-64, 63)) for _ in range(1500)]
    # Just what fits, and one bit more.
    cases += [(sign * (1 << (63 - n)) + around, n) for n in range(64 - width, 63) for sign in (1, -1) for around in (-1, 0)
              if -top - 1 <= sign * (1 << (63 - n)) + around <= top]

    async def bench(ctx):
        results = []
        for x, n in [*cases, *[(0, 0)] * dut.LATENCY]:
            ctx.set(dut.x, x)
            ctx.set(dut.n, n)
            results.append(ctx.get(dut.y))
            await ctx.tick()
        for (x, n), y in zip(cases, results[dut.LATENCY:], strict=True):
            assert y == align(x, n), (x, n)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("width", [0, 1, 65])
def test_align_width(width):
    with pytest.raises(ValueError, match=rf"^width must lie in 2\.\.64, not {width}$"):
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
