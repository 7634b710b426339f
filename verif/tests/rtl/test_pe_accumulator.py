"""The weight-gradient accumulators of a PE at the edge of their width: the last sum that fits, and the first that does not."""

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.pe import Pe

WIDTH = 30


@pytest.mark.parametrize("mac", ["decode_once", "post_shift"])
@pytest.mark.parametrize(("a", "b"), [(64, 64), (64, 63)], ids=["up", "down"])
def test_edge_of_the_accumulator(mac, a, b):
    """Codes 64 and 63 are -4096 and 4032: 31, resp. 32 products are the most that fit 30 bits."""
    step = {64: -4096, 63: 4032}[a] * {64: -4096, 63: 4032}[b]
    fits = (2 ** (WIDTH - 1) - (step > 0)) // abs(step)
    pe = Pe(mac, WIDTH)
    operands = {code: code if mac == "post_shift" else {64: -4096, 63: 4032}[code] for code in (a, b)}

    async def bench(ctx):
        for port in (pe.x0, pe.x1):
            ctx.set(port, operands[a])
        for k in range(3):
            ctx.set(pe.e[k], operands[b])
        for name, value in (("shift", 1), ("sel", 4), ("wg", 1)):
            ctx.set(getattr(pe, name), value)
        await ctx.tick().repeat(6)
        assert [ctx.get(pe.product[k]) for k in range(3)] == [step] * 3
        ctx.set(pe.acc, 1)
        ctx.set(pe.clr, 1)
        await ctx.tick()
        ctx.set(pe.clr, 0)
        ctx.set(pe.snap, 1)
        for terms in range(1, fits + 2):
            overflow = ctx.get(pe.ovf)
            await ctx.tick()
            held = terms * step
            wrapped = (held + 2 ** (WIDTH - 1)) % 2**WIDTH - 2 ** (WIDTH - 1)
            assert [ctx.get(pe.drain[k]) for k in range(3)] == [wrapped] * 3
            assert overflow == (terms > fits), f"{terms} terms"

    simulator = Simulator(pe)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
