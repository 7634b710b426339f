"""Semaphores at the ends of their counters, with several signals and a grant of one of them in one cycle."""

import random

import pytest
from amaranth.hdl import Cat
from amaranth.sim import Simulator

from gradloom.contracts.isa import SEMAPHORES
from gradloom.rtl.sequencer.semaphores import Semaphores

REQUESTERS = 9
"""Sequencer and engines of the largest machine."""


def simulate(testbench):
    dut = Semaphores(REQUESTERS)
    sim = Simulator(dut)
    sim.add_clock(1e-8)

    async def run(ctx):
        await testbench(ctx, dut)

    sim.add_testbench(run)
    sim.run()


def put(ctx, ports, values):
    """Masks of the first requesters, 0 of the others: at once, as the simulator takes a while for each."""
    ctx.set(Cat(*ports), sum(value << SEMAPHORES * n for n, value in enumerate(values)))


async def drive(ctx, dut, *, signals=(), requests=()):
    """One cycle with these masks, of the first requesters. Returns its grant, and the overflow of the next."""
    put(ctx, dut.signal, signals)
    put(ctx, dut.needs, requests)
    ctx.set(dut.request, (1 << len(requests)) - 1)
    grant = ctx.get(dut.grant)
    await ctx.tick()
    seen = grant, ctx.get(dut.overflow)
    ctx.set(dut.request, 0)
    put(ctx, dut.signal, ())
    return seen


async def fill(ctx, dut, counts):
    """Signal every semaphore from 0 up to its count, which no overflow tells of."""
    for level in range(0, max(counts), REQUESTERS):
        signals = [sum((level + n < count) << bit for bit, count in enumerate(counts)) for n in range(REQUESTERS)]
        assert (await drive(ctx, dut, signals=signals)) == (0, 0)


async def drain(ctx, dut):
    """Counts, by grants until all are 0."""
    counts = [0] * SEMAPHORES
    while ready := ctx.get(dut.ready):
        assert (await drive(ctx, dut, requests=[ready])) == (1, 0)
        for n in range(SEMAPHORES):
            counts[n] += ready >> n & 1
    return counts


def masks(values):
    """For each requester the semaphores whose number of signals is above the requester's."""
    return [sum((value > n) << bit for bit, value in enumerate(values)) for n in range(REQUESTERS)]


@pytest.mark.parametrize("seed", range(3))
def test_signals_and_a_grant_in_one_cycle(seed):
    """From 0, 1, 2, 127, 128, 253, 254 and 255 as far as 255; taken or not."""
    rng = random.Random(seed)

    async def testbench(ctx, dut):
        counts = [(0, 1, 2, 127, 128, 253, 254, 255)[n % 8] for n in range(SEMAPHORES)]
        taken = [int(count > 0 and (n // 8) % 2) for n, count in enumerate(counts)]
        signals = [min(255 - count + take, rng.choice([0, 1, 2, 8, 9]) if n // 16 else 9)
                   for n, (count, take) in enumerate(zip(counts, taken, strict=True))]
        await fill(ctx, dut, counts)
        seen = await drive(ctx, dut, signals=masks(signals), requests=[sum(take << n for n, take in enumerate(taken))])
        assert seen == (1, 0)
        assert await drain(ctx, dut) == [count - take + more for count, take, more in zip(counts, taken, signals, strict=True)]

    simulate(testbench)


@pytest.mark.parametrize("first", range(4))
def test_overflow_is_a_sum_above_255_of_any_semaphore(first):
    """From each of these counts, and told in the next cycle."""
    async def testbench(ctx, dut):
        counts = [(0, 247, 254, 255)[(n + first) % 4] for n in range(SEMAPHORES)]
        await fill(ctx, dut, counts)
        for bit, count in enumerate(counts):
            for more in range(REQUESTERS + 1):
                put(ctx, dut.signal, [1 << bit] * more)
                put(ctx, dut.needs, [1 << bit])
                for take in (0, 1) if count else (0,):
                    ctx.set(dut.request, take)
                    await ctx.tick()
                    assert ctx.get(dut.overflow) == (count + more - take > 255), (count, more, take)
                    # As it was before.
                    ctx.set(dut.counters[bit], count)
                    ctx.set(dut.taken, 0)
            ctx.set(dut.request, 0)
            put(ctx, dut.signal, ())

    simulate(testbench)


def test_a_signal_grants_from_the_next_cycle_on():
    """And one token is one grant, of the lowest requester."""
    async def testbench(ctx, dut):
        for bit in (0, 1, 15, 16, 31):
            wanted = [1 << bit] * 3
            assert (await drive(ctx, dut, signals=[0, 1 << bit], requests=wanted)) == (0, 0)
            assert (await drive(ctx, dut, requests=wanted)) == (1, 0)
            assert (await drive(ctx, dut, requests=wanted)) == (0, 0)
            # With a token there, one that comes is kept for the next cycle.
            await drive(ctx, dut, signals=[1 << bit])
            assert (await drive(ctx, dut, signals=[1 << bit], requests=wanted)) == (1, 0)
            assert (await drive(ctx, dut, requests=[0, *wanted][1:])) == (1, 0)
            assert ctx.get(dut.ready) == 0

    simulate(testbench)


def test_a_request_takes_all_of_its_semaphores_or_none():
    async def testbench(ctx, dut):
        await drive(ctx, dut, signals=[0b0111])
        assert (await drive(ctx, dut, requests=[0b1001, 0b1000, 0b0110])) == (0b100, 0)
        assert ctx.get(dut.ready) == 0b0001
        assert (await drive(ctx, dut, requests=[0b0011, 0])) == (0b10, 0)
        assert ctx.get(dut.ready) == 0b0001

    simulate(testbench)
