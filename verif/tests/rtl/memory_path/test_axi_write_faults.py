"""WriteManager behind an error: which bursts are still issued, which commands end, when the error is told, how a flush ends."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.rtl.memory_path.axi import ERROR_WRITE_RESPONSE, ERROR_WRITE_WINDOW, SETTLE
from gradloom.rtl.memory_path.axi_write import OUTSTANDING_WRITES, WriteManager

CONFIG = PRESETS["small"]
BEAT = CONFIG.beat_bytes
WINDOW = (0x1000, 0x9000)
OKAY, SLVERR, DECERR = 0, 2, 3


class Bench:
    """A WriteManager, a memory that answers bursts by their number, and a log of everything, by cycle.

    Parameters
    ----------
    requests : list of (address, beats, end)
    responses : dict of burst number to code
    stalls : share of the cycles in which AW, W and B stand still
    latency : cycles from a burst's last beat to its answer
    """

    def __init__(self, requests, responses=None, *, stalls=0.0, latency=3, seed=0):
        self.dut = WriteManager(CONFIG)
        self.rng = random.Random(seed)
        self.requests, self.responses = list(requests), responses or {}
        self.stalls, self.latency = stalls, latency
        self.cycle = self.data = 0
        self.bursts, self.beats, self.answers, self.completed, self.errors = [], [], [], [], []
        self.due = []

    def stands(self):
        return self.rng.random() < self.stalls

    async def step(self, ctx, *, flush=0, data=1, requests=True):
        """One cycle."""
        dut = self.dut
        ctx.set(dut.window_base, WINDOW[0])
        ctx.set(dut.window_limit, WINDOW[1])
        ctx.set(dut.flush, flush)
        wanted = bool(self.requests) and requests
        ctx.set(dut.request.valid, wanted)
        if wanted:
            for name, value in zip(("address", "beats", "end"), self.requests[0], strict=True):
                ctx.set(getattr(dut.request.p, name), value)
        ctx.set(dut.data.valid, data)
        ctx.set(dut.data.payload, self.data)
        ctx.set(dut.m_axi_awready, not self.stands())
        ctx.set(dut.m_axi_wready, not self.stands())
        answer = bool(self.due) and self.due[0][0] <= self.cycle and (ctx.get(dut.m_axi_bvalid) or not self.stands())
        ctx.set(dut.m_axi_bvalid, answer)
        ctx.set(dut.m_axi_bresp, self.responses.get(self.due[0][1], OKAY) if answer else 0)
        if wanted and ctx.get(dut.request.ready):
            self.requests.pop(0)
        if data and ctx.get(dut.data.ready):
            self.data += 1
        if ctx.get(dut.m_axi_awvalid) and ctx.get(dut.m_axi_awready):
            self.bursts.append((ctx.get(dut.m_axi_awaddr), ctx.get(dut.m_axi_awlen) + 1))
        if ctx.get(dut.m_axi_wvalid) and ctx.get(dut.m_axi_wready):
            assert ctx.get(dut.beat)
            self.beats.append((ctx.get(dut.m_axi_wdata), ctx.get(dut.m_axi_wstrb)))
            if ctx.get(dut.m_axi_wlast):
                done = len(self.due) + len(self.answers)
                self.due.append((self.cycle + self.latency, done))
        if answer:
            assert ctx.get(dut.m_axi_bready)
            self.answers.append(self.cycle)
            self.due.pop(0)
        if ctx.get(dut.completed):
            self.completed.append(self.cycle)
        if ctx.get(dut.error):
            self.errors.append((self.cycle, ctx.get(dut.error)))
        await ctx.tick()
        self.cycle += 1

    async def settle(self, ctx, cycles=60, **options):
        """Until nothing is left to do, and a while longer."""
        quiet = 0
        for _ in range(5000):
            before = (len(self.requests), len(self.bursts), len(self.beats), len(self.answers))
            await self.step(ctx, **options)
            quiet = quiet + 1 if before == (len(self.requests), len(self.bursts), len(self.beats), len(self.answers)) else 0
            if quiet == cycles:
                return
        raise AssertionError("no rest")

    async def flush(self, ctx):
        """The flush that an error brings; it must end, and no beat of it writes."""
        begun = len(self.beats)
        self.requests.clear()
        for n in range(2000):
            await self.step(ctx, flush=1)
            if n and ctx.get(self.dut.idle):
                break
        else:
            raise AssertionError("the flush does not end")
        # The beat that stood on W when the flush began may still write.
        assert all(strobes == 0 for _, strobes in self.beats[begun + 1:])
        await self.step(ctx, flush=1)

    def run(self, process):
        sim = Simulator(self.dut)
        sim.add_clock(1e-6)

        async def testbench(ctx):
            await process(ctx)

        sim.add_testbench(testbench)
        sim.run()


def commands(beats, count=4):
    """Commands of one request each, with all beats inside the window."""
    return [(WINDOW[0] + 0x800 * n, beats, 1) for n in range(count)]


@pytest.mark.parametrize("stalls", [0.0, 0.3])
@pytest.mark.parametrize("beats", [1, 64])
@pytest.mark.parametrize("refused", range(4))
def test_nothing_is_written_behind_a_refused_burst(refused, beats, stalls):
    """What is ahead is written and completed, then the error is told, once."""
    requests = commands(beats)
    outside = [WINDOW[0] - BEAT, WINDOW[1], 0xFFFFF000][refused % 3]
    requests[refused] = (outside, beats, 1)
    bench = Bench(requests, stalls=stalls, seed=refused)

    async def process(ctx):
        await bench.settle(ctx)
        assert bench.bursts == [request[:2] for request in requests[:refused]]
        assert bench.data - refused * beats in (0, 1) and len(bench.beats) == refused * beats
        assert bench.completed == bench.answers and len(bench.answers) == refused
        assert [code for _, code in bench.errors] == [ERROR_WRITE_WINDOW]
        if refused:
            assert bench.errors[0][0] == bench.answers[-1] + SETTLE
        bench.errors.clear()
        await bench.flush(ctx)
        bench.requests = commands(beats)
        await bench.settle(ctx)
        assert len(bench.completed) == refused + 4 and not bench.errors

    bench.run(process)


@pytest.mark.parametrize(("beats", "bad"), [(1, 0), (1, 2), (1, 3), (180, 0), (180, 1), (180, 2), (180, 3), (180, 5)])
@pytest.mark.parametrize(("code", "stalls"), [(SLVERR, 0.0), (DECERR, 0.3)])
def test_nothing_is_completed_from_an_error_answer_on(beats, bad, code, stalls):
    """On the first, a middle and the last burst of the first and of a later command, and on commands of one beat; good answers
    of the same command follow one in the middle. No burst is issued once the answer was seen."""
    of_each = -(-beats // 64)
    bench = Bench(commands(beats), {bad: code}, stalls=stalls, seed=bad)
    issued = []

    async def process(ctx):
        for _ in range(6000):
            await bench.step(ctx)
            if len(bench.answers) == bad + 1 and not issued:
                issued.append(len(bench.bursts) + ctx.get(bench.dut.m_axi_awvalid))
            if issued and bench.cycle > bench.answers[bad] + 150:
                break
        assert len(bench.bursts) == issued[0], "a burst behind the error"
        assert bench.errors == [(bench.answers[bad] + SETTLE, ERROR_WRITE_RESPONSE)]
        assert bench.completed == [bench.answers[of_each * n + of_each - 1] for n in range(bad // of_each)]
        await bench.flush(ctx)
        bench.responses = {}
        bench.completed.clear()
        bench.requests = commands(2)
        await bench.settle(ctx)
        assert len(bench.completed) == 4 and len(bench.errors) == 1

    bench.run(process)


def test_an_error_answer_counts_before_a_refused_burst_that_waits_for_it():
    requests = [*commands(1, 2), (WINDOW[1], 1, 1)]
    for bad, expected in ((0, ERROR_WRITE_RESPONSE), (1, ERROR_WRITE_RESPONSE), (2, ERROR_WRITE_WINDOW)):
        bench = Bench(requests, {bad: SLVERR}, latency=20)

        async def process(ctx, bench=bench, expected=expected):
            await bench.settle(ctx)
            assert [code for _, code in bench.errors] == [expected]

        bench.run(process)


def test_a_command_of_several_requests_is_completed_once():
    """With the last burst of the request that has ``end``."""
    requests = [(WINDOW[0], 100, 0), (WINDOW[0] + 0x800, 1, 0), (WINDOW[0] + 0x1000, 130, 1), (WINDOW[0] + 0x2000, 1, 1)]
    bench = Bench(requests, stalls=0.2)

    async def process(ctx):
        await bench.settle(ctx)
        assert len(bench.bursts) == 2 + 1 + 3 + 1
        assert bench.completed == bench.answers[-2:]

    bench.run(process)


@pytest.mark.parametrize("moment", range(0, 90, 3))
def test_a_flush_ends_whatever_is_under_way(moment):
    """Also with no data at hand and with W standing still; afterwards everything is as new."""
    bench = Bench(commands(70), stalls=0.5, seed=moment)

    async def process(ctx):
        for n in range(moment):
            await bench.step(ctx, data=int(n < moment // 2))
        await bench.flush(ctx)
        assert len(bench.answers) == len(bench.bursts)
        assert len(bench.beats) == sum(beats for _, beats in bench.bursts)
        assert not bench.errors
        bench.beats.clear()
        first = bench.data
        bench.requests = commands(3)
        await bench.settle(ctx)
        assert bench.beats == [(first + n, 2**BEAT - 1) for n in range(12)]

    bench.run(process)


def test_no_more_bursts_wait_for_their_answers_than_are_remembered():
    bench = Bench([(WINDOW[0] + 64 * n, 1, 1) for n in range(40)], latency=10**6)

    async def process(ctx):
        await bench.settle(ctx)
        assert len(bench.bursts) == OUTSTANDING_WRITES
        bench.due = [(0, n) for _, n in bench.due]
        bench.latency = 0
        await bench.settle(ctx)
        assert len(bench.completed) == 40

    bench.run(process)
