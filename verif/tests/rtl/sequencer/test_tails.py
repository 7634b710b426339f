"""Where a queue keeps the words of long commands: each in its slot, as long as the engine may read them."""

import itertools
import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from gradloom.contracts.isa import MAX_WORDS, Engine, Opcode, pairs
from gradloom.rtl.command import HEAD_WORDS, TAIL_SLOTS, CommandPort, has_tail, head_words
from gradloom.rtl.sequencer.queue import CommandQueue
from gradloom.rtl.sequencer.tails import Tails
from gradloom.verif.ccore.collisions import colliding

IN_FLIGHT = 4


class Dut(wiring.Component):
    """A queue that can be reset."""

    def __init__(self, family: str = "ecp5") -> None:
        self.tails = Tails(family=family)
        self.queue = CommandQueue(depth=64, words=HEAD_WORDS, in_flight=IN_FLIGHT, tails=self.tails)
        self.flush = Signal()
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = ResetInserter(self.flush)(self.queue)
        return m


def simulate(dut: Dut, *testbenches) -> None:
    """Where a word is read while it is written, all its bits are wrong."""
    with colliding():
        simulator = Simulator(dut)
        simulator.add_clock(1e-8)
        for testbench in testbenches:
            simulator.add_testbench(testbench)
        simulator.run()


def long_command(rng: random.Random, number: int, length: int) -> list[int]:
    return [Opcode.RUN | length << 8 | (number & 0xFFFF) << 16, 0, 0, *(rng.getrandbits(32) for _ in range(length - 3))]


def sent(number: int, words: list[int]) -> list[int]:
    """What the Sequencer hands on: the offset, then pairs of words."""
    return [pair[0] | pair[1] << 32
            for pair in [(number, 0), *itertools.zip_longest(words[::2], words[1::2], fillvalue=0)]]


async def read(ctx, queue: CommandQueue, pair: int, slot: int) -> tuple[int, int]:
    ctx.set(queue.port.tail_at, {"pair": pair, "slot": slot})
    await ctx.tick()
    both = ctx.get(queue.port.tail)
    return both & 0xFFFFFFFF, both >> 32


def test_who_has_long_commands():
    """A head holds the fields of every engine's commands, and only the A-Core's port has the words behind them."""
    assert [head_words(engine) for engine in Engine] == [5, 10, 17, 22, 10] and HEAD_WORDS == 22
    assert [engine for engine in Engine if has_tail(engine)] == [Engine.SEQ, Engine.ACORE]
    assert {"slot", "tail_at", "tail"} & set(CommandPort().members) == set()
    assert {"slot", "tail_at", "tail"} < set(CommandPort(tail=True).members)


@pytest.mark.parametrize("family", ["any", "ecp5"])
def test_every_word_of_every_length(family):
    """From the cycle of its start on, every word of a command is read, the last odd one too; the first ones are there at once."""
    dut, rng = Dut(family), random.Random(1)
    queue = dut.queue

    async def bench(ctx):
        ctx.set(queue.port.free, 1)
        for length in range(3, MAX_WORDS + 1):
            words = long_command(rng, length, length)
            for pair in sent(length, words):
                ctx.set(queue.i.valid, 1)
                ctx.set(queue.i.payload, pair)
                await ctx.tick()
            ctx.set(queue.i.valid, 0)
            while not ctx.get(queue.request):
                await ctx.tick()
            ctx.set(queue.grant, 1)
            await ctx.tick()
            ctx.set(queue.grant, 0)
            assert ctx.get(queue.port.start)
            head = ctx.get(queue.port.cmd)
            assert [head >> 32 * n & 0xFFFFFFFF for n in range(min(length, HEAD_WORDS))] == words[:HEAD_WORDS]
            slot = ctx.get(queue.port.slot)
            found = [word for pair in range(pairs(length)) for word in await read(ctx, queue, pair, slot)]
            assert found[:length] == words, length
            ctx.set(queue.port.done, 1)
            await ctx.tick()
            ctx.set(queue.port.done, 0)

    simulate(dut, bench)


@pytest.mark.parametrize("flushes", [0, 1])
def test_words_stay_until_the_third_start_behind(flushes):
    """Commands come, start and end at random, words of random ones of those whose words are promised are read in every cycle, as
    the next ones are collected. A reset in between, also while a command is collected, leaves nothing behind."""
    dut, rng = Dut(), random.Random(2 + flushes)
    queue, last = dut.queue, 0

    async def bench(ctx):
        nonlocal last
        number, started, under_way = 0, [], 0
        commands: dict[int, list[int]] = {}
        coming: list[int] = []
        asked = None
        reads = checked = 0
        ctx.set(queue.port.free, 1)
        for cycle in range(6000):
            if not coming:
                number += 1
                commands[number] = long_command(rng, number, rng.choice((MAX_WORDS, HEAD_WORDS, 3, rng.randint(3, MAX_WORDS))))
                coming = sent(number, commands[number])
            busy = cycle // 200 % 3
            ctx.set(queue.i.valid, busy == 0 or rng.random() < 0.5)
            ctx.set(queue.i.payload, coming[0])
            free = busy == 0 or rng.random() < 0.3
            ctx.set(queue.port.free, free)
            done = under_way > 0 and not ctx.get(queue.port.start) and rng.random() < (0.5 if busy == 0 else 0.1)
            ctx.set(queue.port.done, done)
            ctx.set(queue.grant, 0)
            grant = ctx.get(queue.request) and (busy == 0 or rng.random() < 0.5)
            ctx.set(queue.grant, grant)
            if ctx.get(queue.port.start):
                of = ctx.get(queue.port.cmd) >> 16 & 0xFFFF
                started.append((of, ctx.get(queue.port.slot)))
            assert not asked or ctx.get(queue.port.tail) & asked[1] == asked[0], (cycle, asked)
            reads += asked is not None
            asked = None
            # The third start behind ends the promise.
            if started:
                of, slot = rng.choice(started[-3:])
                words = commands[of]
                pair = rng.randrange(pairs(len(words)))
                odd = 2 * pair + 1 < len(words)
                asked = words[2 * pair] | (words[2 * pair + 1] << 32 if odd else 0), (1 << 64 if odd else 1 << 32) - 1
                ctx.set(queue.port.tail_at, {"pair": pair, "slot": slot})
            flush = flushes and rng.random() < 0.01
            ctx.set(dut.flush, flush)
            if ctx.get(queue.i.valid) and ctx.get(queue.i.ready):
                coming.pop(0)
            under_way += int(grant) - int(done)
            await ctx.tick()
            if flush:
                started, under_way, coming, asked = [], 0, [], None
                checked += 1
        last = number
        assert reads > 3000 and bool(checked) == bool(flushes)

    simulate(dut, bench)
    assert last > 150 and TAIL_SLOTS == 4
