"""Fifo against a list: order, latency, full and empty, one element a cycle, clear."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.fifo import Fifo


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3, 8, 11])
def test_random_traffic(depth, block):
    dut = Fifo(8, depth, block=block)
    rng = random.Random(depth)

    async def testbench(ctx):
        model = deque()
        passed = 0
        for cycle in range(3000):
            offer, take, clear = rng.random() < 0.6, rng.random() < rng.choice([0.3, 0.9]), rng.random() < 0.01
            value = rng.randrange(256)
            ctx.set(dut.i.valid, offer)
            ctx.set(dut.i.payload, value)
            ctx.set(dut.o.ready, take)
            ctx.set(dut.clear, clear)
            assert ctx.get(dut.level) == len(model), cycle
            assert ctx.get(dut.i.ready) == (len(model) < depth)
            valid = ctx.get(dut.o.valid)
            put = offer and len(model) < depth
            if valid:
                assert ctx.get(dut.o.payload) == model[0]
                if take:
                    model.popleft()
                    passed += 1
            else:
                assert not model
            if put:
                model.append(value)
            if clear:
                model.clear()
            await ctx.tick()
        assert passed > 500

    simulate(dut, testbench)


def test_latency_and_throughput():
    dut = Fifo(8, 4)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        for cycle in range(40):
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.i.payload, cycle)
            assert ctx.get(dut.i.ready)
            assert ctx.get(dut.o.valid) == (cycle >= 1)
            if cycle >= 1:
                assert ctx.get(dut.o.payload) == cycle - 1
            await ctx.tick()

    simulate(dut, testbench)


@pytest.mark.parametrize("depth", [0, -1, "4"])
def test_refused_depth(depth):
    with pytest.raises(ValueError, match=f"^FIFO depth must be a positive integer, not {depth!r}$"):
        Fifo(8, depth)
