"""The run generator and the nested counters at the ends of their numbers: up to 65535 iterations, negative strides, addresses that
wrap at 2^32."""

import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.memory_path.strided_address import BeatCounter, StridedAddressGenerator


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


MOST = pytest.mark.long("as 65535 inner iterations")
SHAPES = [(1, 1), (255, 1), (256, 2), (257, 3), (1, 257), (3, 256), (2049, 1), (1, 2049), (45, 45)]


@pytest.mark.parametrize(("n1", "n2"), [*SHAPES, (65535, 1), pytest.param(1, 65535, marks=MOST)])
def test_runs(n1, n2):
    """Every address in order, modulo 2^32, ``end`` with the last one; a stalled request does not change."""
    rng = random.Random(n1 * n2)
    first, stride1, stride2 = (rng.choice([1, 2**31 - 64, 2**32 - 64, 2**32 - 4, rng.getrandbits(32)]) for _ in range(3))
    n0 = rng.choice([1, 65535, rng.randint(1, 65535)])
    dut = StridedAddressGenerator()

    async def testbench(ctx):
        ctx.set(dut.first, first)
        ctx.set(dut.loops, {"n0": n0, "n1": n1, "n2": n2, "stride1": stride1, "stride2": stride2})
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.request.ready, 1)
        taken = ctx.tick().sample(dut.request.valid, dut.request.p.address, dut.request.p.beats, dut.request.p.end)
        for n, (i2, i1) in enumerate(itertools.product(range(n2), range(n1))):
            if n < 200 and rng.random() < 0.2:
                ctx.set(dut.request.ready, 0)
                await ctx.tick()
                ctx.set(dut.request.ready, 1)
            _, _, valid, address, beats, end = await taken
            assert (valid, address, beats) == (1, (first + i2 * stride2 + i1 * stride1) % 2**32, n0), (i2, i1)
            assert end == (n == n1 * n2 - 1)
        assert not ctx.get(dut.busy) and not ctx.get(dut.request.valid)

    simulate(dut, testbench)


@pytest.mark.parametrize("n", [(1, 1, 1), (255, 1, 2), (256, 2, 1), (257, 1, 1), (1, 300, 1), (2, 1, 513), (7, 5, 3), (2049, 1, 1)])
def test_counter(n):
    """``last`` of level i in the last iteration of loops 0 to i, twice around; ``clear`` begins anew, also beside a step."""
    rng = random.Random(repr(n))
    dut = BeatCounter(levels=3)

    async def testbench(ctx):
        for level, count in enumerate(n):
            ctx.set(dut.n[level], count)

        async def walk(steps):
            for i2, i1, i0 in itertools.islice(itertools.cycle(itertools.product(*(range(count) for count in reversed(n)))), steps):
                if rng.random() < 0.2:
                    ctx.set(dut.step, 0)
                    await ctx.tick()
                ctx.set(dut.step, 1)
                ends = [i0 == n[0] - 1, i1 == n[1] - 1, i2 == n[2] - 1]
                assert ctx.get(dut.last) == sum(all(ends[:level + 1]) << level for level in range(3)), (i2, i1, i0)
                await ctx.tick()

        total = n[0] * n[1] * n[2]
        await walk(2 * total)
        await walk(rng.randrange(total))
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        ctx.set(dut.step, 0)
        await walk(min(total, 300))

    simulate(dut, testbench)
