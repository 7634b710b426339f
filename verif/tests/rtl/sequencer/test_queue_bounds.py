"""The command queue when it is empty, full, and in between: what it says of itself in every cycle."""

import itertools

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.isa import Opcode, pairs
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.tails import Tails
from gradloom.verif.program_case import command

IN_FLIGHT = [1, 2, 4]


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-8)

    async def run(ctx):
        await testbench(ctx)

    sim.add_testbench(run)
    sim.run()


def words_of(offset, words):
    """What the Sequencer hands on for a command: its offset, then pairs of words."""
    return [pair[0] | pair[1] << 32 for pair in [(offset, 0), *itertools.zip_longest(words[::2], words[1::2], fillvalue=0)]]


def load(n):
    return command(Opcode.LOAD, tag=n, offset=7 * n, signal=n + 1, wait=n + 2)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
@pytest.mark.parametrize("pause", [0, 1, 2, 9])
def test_idle_from_the_first_word_to_the_last_done(in_flight, pause):
    """A barrier and END rely on it: between two words, collected, granted, running, and in the cycle of ``done`` it is not idle."""
    dut = CommandQueue(depth=64, words=10, in_flight=in_flight)

    async def testbench(ctx):
        async def cycle(idle=0):
            await ctx.tick()
            assert ctx.get(dut.idle) == idle

        ctx.set(dut.port.free, 1)
        assert ctx.get(dut.idle) == 1
        for n in range(3):
            for pair in words_of(n, load(n)):
                ctx.set(dut.i.valid, 1)
                ctx.set(dut.i.payload, pair)
                assert ctx.get(dut.i.ready)
                await cycle()
                ctx.set(dut.i.valid, 0)
                for _ in range(pause):
                    await cycle()
            for _ in range(8):
                assert not ctx.get(dut.busy)
                await cycle()
            assert ctx.get(dut.request) and ctx.get(dut.waiting) and ctx.get(dut.needs) == n + 2
            ctx.set(dut.grant, 1)
            assert not ctx.get(dut.waiting)
            await cycle()
            ctx.set(dut.grant, 0)
            assert ctx.get(dut.port.start) and ctx.get(dut.busy) and not ctx.get(dut.request)
            for _ in range(5):
                await cycle()
                assert ctx.get(dut.busy) and not ctx.get(dut.port.start) and not ctx.get(dut.signal)
            assert (ctx.get(dut.tag), ctx.get(dut.offset)) == (n, n)
            ctx.set(dut.port.done, 1)
            assert ctx.get(dut.signal) == n + 1 and ctx.get(dut.busy) and not ctx.get(dut.idle)
            await cycle(1)
            ctx.set(dut.port.done, 0)
            assert not ctx.get(dut.busy) and not ctx.get(dut.signal)

    simulate(dut, testbench)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
@pytest.mark.parametrize("depth", [16, 64])
def test_full(in_flight, depth):
    """Without a grant the queue takes one command and the offset of the next beside its ``depth`` words, and nothing more; all come
    out in order."""
    dut = CommandQueue(depth=depth, words=10, in_flight=in_flight)
    pairs_of_all = [pair for n in range(40) for pair in words_of(n, load(n))]
    capacity = len(words_of(0, load(0))) + 1 + depth // 2

    async def testbench(ctx):
        ctx.set(dut.port.free, 1)
        taken, started, ended, under_way = 0, [], 0, 0
        for cycle in range(4000):
            ctx.set(dut.i.valid, taken < len(pairs_of_all))
            if taken < len(pairs_of_all):
                ctx.set(dut.i.payload, pairs_of_all[taken])
            ctx.set(dut.grant, 0)
            done = under_way > 0 and cycle % 5 == 0
            ctx.set(dut.port.done, done)
            if cycle == 200:
                assert taken == capacity and not ctx.get(dut.i.ready)
            grant = cycle > 200 and ctx.get(dut.request)
            assert not grant or under_way < in_flight or (in_flight == 1 and done)
            ctx.set(dut.grant, grant)
            taken += ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            await ctx.tick()
            under_way += grant - done
            ended += done
            if ctx.get(dut.port.start):
                started.append(ctx.get(dut.port.cmd) >> 16 & 0xFFFF)
            if ended == 40:
                break
        assert started == list(range(40))
        ctx.set(dut.port.done, 0)
        ctx.set(dut.grant, 0)
        assert ctx.get(dut.idle)

    simulate(dut, testbench)


@pytest.mark.parametrize("words", [22, 10])
def test_words_of_the_longest_and_the_shortest_command(words):
    """Every word of an even and an odd number arrives in its place; those behind the head of a longer command change none of it."""
    dut = CommandQueue(depth=128, words=words, tails=Tails() if words > 10 else None)
    lengths = [3, 4, 5, 9, 10, *([21, 22, 23, 40, 41] if words > 10 else [])]

    async def testbench(ctx):
        for length in lengths:
            sent = [Opcode.RUN | length << 8 | 5 << 16, 0, 0x100, *(0xA5000000 + length * 256 + n for n in range(3, length))]
            for pair in words_of(length, sent):
                ctx.set(dut.i.valid, 1)
                ctx.set(dut.i.payload, pair)
                await ctx.tick()
            ctx.set(dut.i.valid, 0)
            for _ in range(pairs(length) + 4):
                await ctx.tick()
            assert ctx.get(dut.request)
            ctx.set(dut.grant, 1)
            await ctx.tick()
            ctx.set(dut.grant, 0)
            assert [ctx.get(dut.port.cmd) >> 32 * n & 0xFFFFFFFF for n in range(min(length, words))] == sent[:words]
            await ctx.tick()
            ctx.set(dut.port.done, 1)
            assert ctx.get(dut.signal) == 0x100
            await ctx.tick()
            ctx.set(dut.port.done, 0)
            assert ctx.get(dut.idle)

    simulate(dut, testbench)


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_faults_are_handed_on(in_flight):
    dut = CommandQueue(depth=64, words=10, in_flight=in_flight)

    async def testbench(ctx):
        for code in (0x20, 0x12, 0):
            ctx.set(dut.port.fault, code)
            assert ctx.get(dut.fault) == code

    simulate(dut, testbench)
