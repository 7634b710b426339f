"""The splitter of requests and the report of faults, cycle by cycle, at the ends of their numbers."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.rtl.memory_path.axi import SETTLE, BurstSplitter, FaultReport


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


@pytest.mark.parametrize("preset", ["nano", "eta2x"])
def test_bursts_of_a_request(preset):
    """Legal, contiguous modulo 2^32, as long as the request; ``last`` and ``end`` on the last one; 0 beats are no burst."""
    config = PRESETS[preset]
    beat = config.beat_bytes
    rng = random.Random(preset)
    lengths = [0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 2047, 2048, 2049, 4096, 32768, 65535]
    requests = [(rng.choice([0, 2**32 - beat, 2**32 - 64 * beat, 2**31 - beat, rng.getrandbits(32)]) // beat * beat, length,
                 rng.randrange(2)) for length in [*lengths, *(rng.randint(1, 200) for _ in range(60))]]
    dut = BurstSplitter(config)

    async def testbench(ctx):
        ctx.set(dut.burst.ready, 1)
        for address, beats, end in requests:
            ctx.set(dut.request.valid, 1)
            ctx.set(dut.request.p.address, address + rng.randrange(beat))
            ctx.set(dut.request.p.beats, beats)
            ctx.set(dut.request.p.end, end)
            assert ctx.get(dut.request.ready) and not ctx.get(dut.busy)
            await ctx.tick()
            ctx.set(dut.request.valid, 0)
            at, left = address, beats
            while left:
                assert ctx.get(dut.burst.valid) and ctx.get(dut.busy), "one burst a cycle, from the cycle behind the request on"
                length = ctx.get(dut.burst.p.beats)
                assert ctx.get(dut.burst.p.address) == at
                assert length == min(left, 64 - at // beat % 64)
                assert ctx.get(dut.burst.p.behind) == at + length * beat, "this one does not wrap"
                left -= length
                at = (at + length * beat) % 2**32
                assert ctx.get(dut.burst.p.last) == (left == 0)
                assert ctx.get(dut.burst.p.end) == (end and left == 0)
                if rng.random() < 0.1:
                    ctx.set(dut.burst.ready, 0)
                    shown = ctx.get(dut.burst.payload)
                    await ctx.tick()
                    assert ctx.get(dut.burst.payload) == shown and ctx.get(dut.burst.valid)
                    ctx.set(dut.burst.ready, 1)
                await ctx.tick()
            assert not ctx.get(dut.burst.valid) and not ctx.get(dut.busy)

    simulate(dut, testbench)


@pytest.mark.parametrize("begun", range(4))
def test_clear_forgets_a_request_at_any_moment(begun):
    config = PRESETS["small"]
    dut = BurstSplitter(config)

    async def testbench(ctx):
        ctx.set(dut.burst.ready, 1)
        ctx.set(dut.request.valid, 1)
        ctx.set(dut.request.p.address, 0)
        ctx.set(dut.request.p.beats, 1000)
        ctx.set(dut.request.p.end, 1)
        await ctx.tick()
        ctx.set(dut.request.p.address, 0x4000)
        ctx.set(dut.request.p.beats, 2)
        ctx.set(dut.request.p.end, 0)
        for _ in range(begun):
            await ctx.tick()
        ctx.set(dut.clear, 1)
        assert not ctx.get(dut.request.ready)
        for _ in range(3):
            await ctx.tick()
            assert not ctx.get(dut.burst.valid) and not ctx.get(dut.busy) and not ctx.get(dut.request.ready)
        ctx.set(dut.clear, 0)
        await ctx.tick()
        ctx.set(dut.request.valid, 0)
        burst = dut.burst.p
        assert [ctx.get(value) for value in (burst.address, burst.beats, burst.last, burst.end)] == [0x4000, 2, 1, 0]
        await ctx.tick()
        assert not ctx.get(dut.busy)

    simulate(dut, testbench)


def expected_report(events, drained, waiting, cycles):
    """(cycle, of_response, of_client) of the report, from the text of :class:`FaultReport`.

    ``events``: by cycle, (window, response, client).
    """
    fault = None
    for cycle in sorted(events):
        window, response, client = events[cycle]
        if response and (fault is None or not fault[1]):
            fault = cycle, 1, client
        elif window and fault is None:
            fault = cycle, 0, client
    if fault is None:
        return None
    busy = [n for n in range(cycles) if (n > fault[0] and waiting[n]) or not (fault[1] or drained[n])]
    quiet = max([fault[0], *busy])
    return quiet + SETTLE, *fault[1:]


@pytest.mark.parametrize("seed", range(8))
def test_fault_report(seed):
    """The first error counts, one of an answer before one of the window; and the report comes when all ahead is answered."""
    rng = random.Random(seed)
    dut = FaultReport()

    async def testbench(ctx):
        for _ in range(30):
            cycles = 60
            events = {cycle: (rng.randrange(2), rng.random() < 0.3, rng.randrange(2)) for cycle in rng.sample(range(8), 4)}
            drained = [0] * rng.randrange(20) if rng.random() < 0.7 else []
            drained += [1] * (cycles - len(drained))
            # A beat that stays on the load bus comes there right behind its answer.
            waiting = [0] * rng.randrange(2) + [1] * rng.choice([0, 0, 3, 12, 30])
            waiting += [0] * (cycles - len(waiting))
            expected = expected_report(events, drained, waiting, cycles)
            refused = failed = 0
            reports = []
            for cycle in range(cycles):
                window, response, client = events.get(cycle, (0, 0, rng.randrange(2)))
                for signal, value in ((dut.window, window), (dut.response, response), (dut.client, client),
                                      (dut.drained, drained[cycle]), (dut.waiting, waiting[cycle])):
                    ctx.set(signal, value)
                assert (ctx.get(dut.refused), ctx.get(dut.failed)) == (refused, failed)
                if ctx.get(dut.valid):
                    reports.append((cycle, ctx.get(dut.of_response), ctx.get(dut.of_client)))
                refused |= window and not failed and not response
                failed |= response
                await ctx.tick()
            assert reports == ([expected] if expected else []), events
            for signal in (dut.window, dut.response):
                ctx.set(signal, rng.randrange(2))
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            for signal in (dut.window, dut.response):
                ctx.set(signal, 0)
            assert (ctx.get(dut.refused), ctx.get(dut.failed), ctx.get(dut.valid)) == (0, 0, 0)

    simulate(dut, testbench)


@pytest.mark.parametrize("after", range(SETTLE + 1))
def test_a_clear_takes_a_report_back(after):
    dut = FaultReport()

    async def testbench(ctx):
        ctx.set(dut.drained, 1)
        ctx.set(dut.response, 1)
        await ctx.tick()
        ctx.set(dut.response, 0)
        for _ in range(after):
            await ctx.tick()
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for _ in range(2 * SETTLE):
            assert not ctx.get(dut.valid)
            await ctx.tick()

    simulate(dut, testbench)
