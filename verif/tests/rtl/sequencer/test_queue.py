"""Command queues and semaphores."""

import itertools
import random

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from gradloom.contracts.isa import HEADER_WORDS, SEMAPHORES, Opcode
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.semaphores import Semaphores
from gradloom.rtl.sequencer.tails import Tails
from gradloom.verif.program_case import command

LONGEST = 10_000
"""Cycles, more than any of these tests takes."""
PERIOD = 1e-8


class Bench(wiring.Component):
    """Two queues on one set of semaphores."""

    def __init__(self):
        self.semaphores = Semaphores(2)
        self.queues = [CommandQueue(depth=64, words=22), CommandQueue(depth=64, words=9)]
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.semaphores = self.semaphores
        for n, queue in enumerate(self.queues):
            m.submodules[f"queue{n}"] = queue
            m.d.comb += [
                self.semaphores.request[n].eq(queue.request),
                self.semaphores.needs[n].eq(queue.needs),
                queue.grant.eq(self.semaphores.grant[n]),
                self.semaphores.signal[n].eq(queue.signal),
            ]
        return m


def run(dut, *testbenches):
    """Until all testbenches are at their end, which takes some thousand cycles."""
    running = len(testbenches)

    def counted(testbench):
        async def body(ctx):
            nonlocal running
            await testbench(ctx)
            running -= 1
        return body

    sim = Simulator(dut)
    sim.add_clock(PERIOD)
    for testbench in testbenches:
        sim.add_testbench(counted(testbench))
    for cycles in range(0, LONGEST, LONGEST // 100):
        if running:
            sim.run_until(cycles * PERIOD)
    assert not running, f"it does not end within {LONGEST} cycles"


async def feed(ctx, queue, offset, words):
    ctx.set(queue.i.valid, 1)
    for pair in [(offset, 0), *itertools.zip_longest(words[::2], words[1::2], fillvalue=0)]:
        ctx.set(queue.i.payload, pair[0] | pair[1] << 32)
        while not ctx.get(queue.i.ready):
            await ctx.tick()
        await ctx.tick()
    ctx.set(queue.i.valid, 0)


def load(n, **header):
    return command(Opcode.LOAD, offset=n, n0=1, tag=n, **header)


def run_command(tag, rng):
    """What is behind the header means nothing to a queue."""
    words = command(Opcode.RUN, tail=[0] * rng.randrange(20), tag=tag)
    return [*words[:HEADER_WORDS], *(rng.getrandbits(32) for _ in words[HEADER_WORDS:])]


def test_commands_arrive_whole_in_order_and_stable():
    """Their heads at once, all words pair by pair."""
    rng = random.Random(4)
    dut = CommandQueue(depth=64, words=22, tails=Tails())
    commands = [run_command(n, rng) for n in range(30)]

    async def source(ctx):
        for n, words in enumerate(commands):
            await feed(ctx, dut, 100 + n, words)

    async def engine(ctx):
        ctx.set(dut.grant, 0)
        for n, words in enumerate(commands):
            while not ctx.get(dut.request):
                await ctx.tick()
            for _ in range(rng.randrange(3)):
                await ctx.tick()
            ctx.set(dut.grant, 1)
            await ctx.tick()
            ctx.set(dut.grant, 0)
            assert ctx.get(dut.port.start)
            assert ctx.get(dut.busy)
            for cycle in range(rng.randrange(60)):
                seen = [ctx.get(dut.port.cmd) >> 32 * k & 0xFFFFFFFF for k in range(22)]
                assert seen == words[:22]
                assert (ctx.get(dut.tag), ctx.get(dut.offset)) == (n, 100 + n)
                assert ctx.get(dut.request) == 0
                assert not ctx.get(dut.idle)
                assert ctx.get(dut.port.start) == (cycle == 0)
                pair = rng.randrange(len(words) // 2)
                ctx.set(dut.port.tail_at, {"pair": pair, "slot": ctx.get(dut.port.slot)})
                await ctx.tick()
                assert ctx.get(dut.port.tail) == words[2 * pair] | words[2 * pair + 1] << 32
            ctx.set(dut.port.done, 1)
            await ctx.delay(1e-9)
            held = ctx.get(dut.request)
            await ctx.tick()
            ctx.set(dut.port.done, 0)
            assert not ctx.get(dut.busy) or held
        assert ctx.get(dut.idle)

    run(dut, source, engine)


def test_back_to_back_commands_cost_one_cycle():
    dut = CommandQueue(depth=128, words=9)
    starts = []

    async def source(ctx):
        for n in range(6):
            await feed(ctx, dut, 0, load(n))

    async def engine(ctx):
        ctx.set(dut.grant, 0)
        await ctx.tick().repeat(40)
        running = 0  # cycles since start, that one included
        for cycle in range(200):
            done = running == 12
            running = 0 if done else running
            ctx.set(dut.port.done, done)
            ctx.set(dut.grant, 0)
            await ctx.delay(1e-9)
            ctx.set(dut.grant, ctx.get(dut.request))
            await ctx.tick()
            if ctx.get(dut.port.start):
                starts.append(cycle)
                running = 1
            elif running:
                running += 1
        assert ctx.get(dut.idle)

    run(dut, source, engine)
    assert len(starts) == 6
    assert {late - early for early, late in itertools.pairwise(starts)} == {12}


def test_semaphores_order_two_engines():
    rng = random.Random(5)
    dut = Bench()
    producer, consumer = dut.queues
    events = []
    count = 40

    async def source(ctx):
        for n in range(count):
            # Semaphore 2 starts at 0: the producer may be two commands ahead of the consumer.
            await feed(ctx, producer, 0, load(n, wait=0b100 if n >= 2 else 0, signal=0b1010))

    async def other_source(ctx):
        for n in range(count):
            await feed(ctx, consumer, 0, load(n, wait=0b1010, signal=0b100))

    def engine(queue, name):
        async def process(ctx):
            for _ in range(count):
                while not ctx.get(queue.port.start):
                    await ctx.tick()
                events.append((name, "start", ctx.get(queue.tag)))
                await ctx.tick().repeat(rng.randrange(1, 30))
                ctx.set(queue.port.done, 1)
                events.append((name, "end", ctx.get(queue.tag)))
                await ctx.tick()
                ctx.set(queue.port.done, 0)
        return process

    async def end(ctx):
        for _ in range(10000):
            await ctx.tick()
            if len(events) == 4 * count and ctx.get(producer.idle) and ctx.get(consumer.idle):
                break
        await ctx.tick()
        assert ctx.get(dut.semaphores.ready) == 0b100  # the two that the producer did not take at the beginning

    run(dut, source, other_source, end, engine(producer, "p"), engine(consumer, "c"))
    place = {event: n for n, event in enumerate(events)}
    assert len(place) == 4 * count
    for n in range(count):
        assert place["c", "start", n] > place["p", "end", n]
        if n >= 2:
            assert place["p", "start", n] > place["c", "end", n - 2]


def test_a_command_that_waits_leaves_the_fifo_to_the_next_ones():
    """Its words and the offset of the one behind it are out of the FIFO before it is granted."""
    depth, taken = 8, 0
    dut = CommandQueue(depth=depth, words=4)
    words = [3 << 8, 1, 0, 0]  # three words, a semaphore that never comes

    async def testbench(ctx):
        nonlocal taken
        ctx.set(dut.i.valid, 1)
        for _ in range(40):
            place = taken % 3  # offset, two pairs
            ctx.set(dut.i.payload, 8 * taken if place == 0 else words[2 * place - 2] | words[2 * place - 1] << 32)
            ready = ctx.get(dut.i.ready)
            await ctx.tick()
            taken += ready

    run(dut, testbench)
    assert taken == 3 + 1 + depth // 2


def test_semaphores_against_a_model():
    rng = random.Random(6)
    requesters = 5
    dut = Semaphores(requesters)
    overflows = 0

    def mask():
        return rng.getrandbits(SEMAPHORES)

    def put(ctx, counters):
        ctx.set(dut.taken, 0)
        ctx.set(dut.one, sum((count >= 1) << n for n, count in enumerate(counters)))
        ctx.set(dut.two, sum((count >= 2) << n for n, count in enumerate(counters)))
        for counter, count in zip(dut.counters, counters, strict=True):
            ctx.set(counter, count)

    async def testbench(ctx):
        nonlocal overflows
        # Some begin near their end, which is hundreds of cycles away.
        counters = [200 * (n % 4 == 0) for n in range(SEMAPHORES)]
        put(ctx, counters)
        for cycle in range(1000):
            requests = [rng.random() < 0.6 for _ in range(requesters)]
            waits = [mask() & mask() & mask() for _ in range(requesters)]
            signals = [mask() & (mask() if rng.random() < 0.5 else 0) & mask() for _ in range(requesters)]
            for r in range(requesters):
                ctx.set(dut.needs[r], waits[r])
                ctx.set(dut.signal[r], signals[r])
            ctx.set(dut.request, sum(request << r for r, request in enumerate(requests)))
            ready = sum((counter > 0) << n for n, counter in enumerate(counters))
            expected = next((1 << r for r in range(requesters) if requests[r] and not waits[r] & ~ready), 0)
            assert ctx.get(dut.grant) == expected, cycle
            assert ctx.get(dut.ready) == ready
            overflow = False
            for n in range(SEMAPHORES):
                counters[n] += sum(signal >> n & 1 for signal in signals)
                counters[n] -= any(expected >> r & waits[r] >> n & 1 for r in range(requesters))
                overflow |= counters[n] > 255
            overflows += overflow
            await ctx.tick()
            assert ctx.get(dut.overflow) == overflow
            if overflow:  # the counters are wrong until a reset
                counters = [min(count, 255) for count in counters]
                put(ctx, counters)

    run(dut, testbench)
    assert overflows


def test_overlapping_commands_signal_in_order():
    """With ``in_flight`` commands under way the queue starts the next one, and every ``done`` is the oldest's."""
    rng = random.Random(9)
    dut = CommandQueue(depth=128, words=9, in_flight=3)
    count = 60
    masks = [rng.getrandbits(16) for _ in range(count)]
    started, finished = [], []

    async def source(ctx):
        for n in range(count):
            await feed(ctx, dut, 1000 + n, load(n, signal=masks[n]))

    async def engine(ctx):
        most = 0
        just_started = False
        while len(finished) < count:
            free = rng.random() < 0.6
            done = len(started) > len(finished) and rng.random() < 0.1
            ctx.set(dut.port.free, free)
            ctx.set(dut.port.done, done)
            ctx.set(dut.grant, 0)
            await ctx.delay(1e-9)
            request = ctx.get(dut.request)
            assert not request or (free and not just_started and len(started) - len(finished) < 3)
            if len(started) > len(finished):
                assert ctx.get(dut.busy)
                assert (ctx.get(dut.tag), ctx.get(dut.offset)) == (len(finished), 1000 + len(finished))
            assert ctx.get(dut.signal) == (masks[len(finished)] if done else 0)
            grant = request and rng.random() < 0.7
            ctx.set(dut.grant, grant)
            await ctx.tick()
            if done:
                finished.append(len(finished))
            just_started = bool(ctx.get(dut.port.start))
            assert just_started == bool(grant)
            if just_started:
                assert ctx.get(dut.port.cmd) >> 16 & 0xFFFF == len(started)
                started.append(len(started))
            most = max(most, len(started) - len(finished))
        ctx.set(dut.port.done, 0)
        await ctx.delay(1e-9)
        assert most == 3 and ctx.get(dut.idle)

    run(dut, source, engine)
