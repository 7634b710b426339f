"""The weight-gradient accumulators of a PE at the edge of their width: the last sum that fits, and the first that does not."""

import itertools

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import MACS
from gradloom.rtl.ccore.pe import Pe

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


@pytest.mark.parametrize("mac", MACS)
def test_each_accumulator_alone(mac):
    """One accumulator leaves its width, up or down, while the others stay at 0: a flag in that cycle alone, and none where the sums
    are not kept."""
    values = {64: -4096, 63: 4032}
    pe = Pe(mac, WIDTH)

    def factor(code: int) -> int:
        return 0 if not code else code | 2 << 7 if mac == "post_shift" else values[code]

    async def bench(ctx):
        for cluster, k, a in itertools.product(range(pe.clusters), range(3), (64, 63)):
            step = values[a] * values[64]
            fits = (2 ** (WIDTH - 1) - (step > 0)) // abs(step)
            for tap in range(3):
                ctx.set(pe.a[tap], factor(a))
                for i in range(pe.clusters):
                    ctx.set(pe.e[i][tap], factor(64 if (i, tap) == (cluster, k) else 0))
            # The first product replaces what the accumulators held.
            for name, value in (("wg", 1), ("take", 1), ("keep", 0), ("kept", 0)):
                ctx.set(getattr(pe, name), value)
            await ctx.tick().repeat(3)
            ctx.set(pe.keep, 1)
            flags = []
            for terms in range(1, fits + 4):
                assert ctx.get(pe.sum[k][cluster]) == step * terms
                ctx.set(pe.kept, 1)
                if terms > 1:
                    flags.append(ctx.get(pe.ovf))
                ctx.set(pe.kept, 0)
                assert not ctx.get(pe.ovf)
                await ctx.tick()
            assert flags == [int(terms == fits + 1) for terms in range(2, fits + 4)], (cluster, k, a)

    simulator = Simulator(pe)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
