"""The weight-gradient accumulators of a PE at the edge of their width: the last sum that fits, and the first that does not."""

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.ccore.pe import Pe
from gradloom.rtl.config import MACS

WIDTH = 30


@pytest.mark.parametrize("mac", MACS)
@pytest.mark.parametrize(("a", "b"), [(64, 64), (64, 63)], ids=["up", "down"])
def test_edge_of_the_accumulator(mac, a, b):
    """Codes 64 and 63 are -4096 and 4032: 31, resp. 32 products are the most that fit 30 bits."""
    values = {64: -4096, 63: 4032}
    step = values[a] * values[b]
    fits = (2 ** (WIDTH - 1) - (step > 0)) // abs(step)
    pe = Pe(mac, WIDTH)
    factors = {code: code | 2 << 7 if mac == "post_shift" else values[code] for code in (a, b)}

    async def bench(ctx):
        for k in range(3):
            ctx.set(pe.a[k], factors[a])
            for cluster in range(pe.clusters):
                ctx.set(pe.e[cluster][k], factors[b])
        ctx.set(pe.wg, 1)
        await ctx.tick().repeat(2)
        ctx.set(pe.take, 1)
        await ctx.tick()
        assert [ctx.get(pe.sum[k][i]) for k in range(3) for i in range(pe.clusters)] == [step] * 3 * pe.clusters
        ctx.set(pe.keep, 1)
        ctx.set(pe.snap, 1)
        ctx.set(pe.ask, 0b111)
        for terms in range(1, fits + 3):
            ctx.set(pe.kept, int(terms > 1))
            overflow = ctx.get(pe.ovf)
            await ctx.tick()
            held = (terms - 1) * step  # the drain register shows a cycle after the sum is in it
            wrapped = (held + 2 ** (WIDTH - 1)) % 2**WIDTH - 2 ** (WIDTH - 1)
            if terms > 1:
                assert [ctx.get(pe.drain[i][k]) for i in range(pe.clusters) for k in range(3)] == [wrapped] * 3 * pe.clusters
            assert overflow == (terms == fits + 1), f"{terms} terms"

    simulator = Simulator(pe)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
