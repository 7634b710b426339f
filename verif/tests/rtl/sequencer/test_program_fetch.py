"""The program fetch alone: words in order from any jump on, as far ahead as its FIFO holds, however late the memory answers."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.pipeline import FETCH_AHEAD, FETCH_CHUNK
from gradloom.rtl.sequencer.program_fetch import PAIR, ProgramFetch
from gradloom.rtl.sequencer.program_window import ProgramWindow


def content(address):
    """The pair of words at an address: all of its 64 bits change from one to the next."""
    return (address * 0x9E3779B97F4A7C15 + 0x0123456789ABCDEF) % 2**64


class Bench:
    """A fetch, a memory, and a consumer."""

    def __init__(self, preset, *, seed=0, latency=6, stalls=0.2):
        self.dut = ProgramFetch(PRESETS[preset])
        self.beat = self.dut.beat_bytes
        self.rng, self.latency, self.stalls = random.Random(seed), latency, stalls
        self.cycle, self.due, self.requests, self.got = 0, [], [], []
        self.place = (0, 0)

    async def step(self, ctx, *, jump=None, take=1.0, answer=True):
        """One cycle; ``jump`` is (address, limit)."""
        dut, beat = self.dut, self.beat
        ctx.set(dut.jump, jump is not None)
        if jump:
            ctx.set(dut.address, jump[0])
            ctx.set(dut.limit, jump[1])
        ctx.set(dut.request.ready, self.rng.random() >= self.stalls)
        held = bool(self.due) and self.due[0][0] == -1
        now = answer and bool(self.due) and self.due[0][0] <= self.cycle and (held or self.rng.random() >= self.stalls)
        ctx.set(dut.response.valid, now)
        if now:
            self.due[0] = (-1, *self.due[0][1:])
            _, address, last = self.due[0]
            data = bytes(content(place & -PAIR) >> 8 * (place % PAIR) & 0xFF for place in range(address, address + beat))
            ctx.set(dut.response.p.data, int.from_bytes(data, "little"))
            ctx.set(dut.response.p.last, last)
        ctx.set(dut.pairs.ready, self.rng.random() < take)
        if ctx.get(dut.request.valid) and ctx.get(dut.request.ready):
            address, beats = ctx.get(dut.request.p.address), ctx.get(dut.request.p.beats)
            assert beats and address % beat == 0
            assert address // FETCH_CHUNK == (address + beats * beat - 1) // FETCH_CHUNK, "a request crosses a chunk"
            self.requests.append((address, beats))
            self.due += [(self.cycle + self.latency, address + n * beat, n == beats - 1) for n in range(beats)]
        if ctx.get(dut.pairs.valid) and ctx.get(dut.pairs.ready) and not jump:
            self.got.append(ctx.get(dut.pairs.payload))
        popped = now and ctx.get(dut.response.ready)
        await ctx.tick()
        self.cycle += 1
        if popped:
            self.due.pop(0)
        if jump:
            self.got.clear()
            self.place = jump

    def due_pairs(self):
        """From the place of the jump to the end of the beat that holds the last byte."""
        return (-(-self.place[1] // self.beat) * self.beat - self.place[0]) // PAIR

    def check(self):
        assert self.got == [content(self.place[0] + PAIR * n) for n in range(len(self.got))]
        assert len(self.got) <= self.due_pairs()

    def run(self, process):
        sim = Simulator(self.dut)
        sim.add_clock(1e-8)

        async def testbench(ctx):
            await process(ctx)

        sim.add_testbench(testbench)
        sim.run()


PRESET_NAMES = ["nano", "small", "eta", "eta2x"]


@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_jumps_to_every_place_of_a_chunk(preset):
    """To each multiple of 8 of a chunk, for 1 to 20 pairs, also while answers of earlier requests are under way."""
    bench = Bench(preset)

    async def process(ctx):
        for start in range(0, 2 * FETCH_CHUNK, PAIR):
            length = PAIR * bench.rng.randint(1, 20)
            await bench.step(ctx, jump=(0x1000 + start, 0x1000 + start + length))
            if bench.rng.random() < 0.4:
                for _ in range(bench.rng.randrange(12)):
                    await bench.step(ctx)
                bench.check()
                continue
            for _ in range(400):
                await bench.step(ctx)
                if len(bench.got) == bench.due_pairs():
                    break
            for _ in range(12):
                await bench.step(ctx)
            bench.check()
            assert len(bench.got) == bench.due_pairs()

    bench.run(process)


@pytest.mark.parametrize("preset", ["nano", "eta"])
def test_reads_ahead_as_far_as_the_fifo_holds_and_then_goes_on(preset):
    bench = Bench(preset, stalls=0.0)
    total = 3 * FETCH_AHEAD // 2

    async def process(ctx):
        await bench.step(ctx, jump=(0x1000, 0x1000 + PAIR * total))
        for _ in range(FETCH_AHEAD * 5):
            await bench.step(ctx, take=0.0)
            if len(bench.requests) == 4 * FETCH_AHEAD // FETCH_CHUNK and not bench.due:
                break
        for _ in range(50):
            await bench.step(ctx, take=0.0)
        asked = sum(beats * bench.beat for _, beats in bench.requests)
        assert asked == 4 * FETCH_AHEAD, "a FIFO of words, no more and no less"
        for _ in range(6 * total):
            await bench.step(ctx, take=0.7)
            if len(bench.got) == total:
                break
        bench.check()
        assert len(bench.got) == total

    bench.run(process)


def test_very_many_jumps_before_the_first_answer():
    """Answers of the old places are dropped, however many there are."""
    bench = Bench("eta", stalls=0.0)

    async def process(ctx):
        for n in range(12):
            await bench.step(ctx, jump=(0x10000 * (n + 1), 0x10000 * (n + 1) + 0x2000), answer=False)
            for _ in range(40):
                await bench.step(ctx, answer=False)
        assert len(bench.requests) == 4 * FETCH_AHEAD // PAIR - 1, "as many as are counted"
        await bench.step(ctx, jump=(0x7008, 0x7088), answer=False)
        for _ in range(6000):
            await bench.step(ctx)
            if len(bench.got) == 16:
                break
        bench.check()
        assert len(bench.got) == 16

    bench.run(process)


@pytest.mark.parametrize("preset", PRESET_NAMES)
def test_the_end_of_the_addresses(preset):
    """A program may end with the last byte below 2^32."""
    bench = Bench(preset)

    async def process(ctx):
        await bench.step(ctx, jump=(2**32 - 64 - PAIR, 2**32 - PAIR))
        for _ in range(200):
            await bench.step(ctx)
        bench.check()
        assert len(bench.got) == bench.due_pairs()
        assert all(address + beats * bench.beat <= 2**32 for address, beats in bench.requests)

    bench.run(process)


@pytest.mark.parametrize("seed", range(3))
def test_window(seed):
    """Pairs come out in order, two of them ahead; a clear forgets them and the one that comes in its cycle."""
    rng = random.Random(seed)
    dut = ProgramWindow()

    async def testbench(ctx):
        held = []
        for _ in range(3000):
            new = rng.getrandbits(64)
            take, valid, clear = rng.random() < 0.6, rng.random() < 0.7, rng.random() < 0.05
            ctx.set(dut.take, take)
            ctx.set(dut.clear, clear)
            ctx.set(dut.pairs.valid, valid)
            ctx.set(dut.pairs.payload, new)
            assert (ctx.get(dut.valid), ctx.get(dut.full)) == (len(held) > 0, len(held) == 2)
            ahead = ctx.get(dut.ahead.as_value())
            for n, pair in enumerate(held):
                assert ahead >> 64 * n & 2**64 - 1 == pair
            ready = ctx.get(dut.pairs.ready)
            assert ready == (len(held) - (take and len(held) > 0) < 2)
            if take and held:
                held.pop(0)
            if valid and ready:
                held.append(new)
            if clear:
                held.clear()
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(testbench)
    sim.run()
