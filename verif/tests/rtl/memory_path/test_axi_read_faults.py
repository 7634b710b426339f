"""ReadManager behind an error: which beats are still handed on, which bursts are issued, when and whose error is told."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.pipeline import FETCH_BEATS, OUTSTANDING_READS
from gradloom.rtl.memory_path.axi import ERROR_READ_RESPONSE, ERROR_READ_WINDOW, SETTLE
from gradloom.rtl.memory_path.axi_read import ReadManager

CONFIG = PRESETS["small"]
BEAT = CONFIG.beat_bytes
WINDOW = (0x1000, 0x9000)
OKAY, EXOKAY, SLVERR, DECERR = 0, 1, 2, 3


class Bench:
    """A ReadManager and a memory whose beat at address a holds a; addresses in ``bad`` answer with a code.

    Parameters
    ----------
    requests : list of (address, beats), or two of them by client
    """

    def __init__(self, requests, bad=None, *, stalls=0.0, latency=3, seed=0, ready=(1.0, 1.0)):
        self.dut = ReadManager(CONFIG)
        self.rng = random.Random(seed)
        self.requests = [list(found) for found in requests]
        self.bad, self.stalls, self.latency, self.ready = bad or {}, stalls, latency, ready
        self.cycle = 0
        self.bursts, self.errors, self.received, self.taken = [], [], ([], []), []
        self.due = []

    async def step(self, ctx, *, flush=0):
        """One cycle."""
        dut = self.dut
        ctx.set(dut.window_base, WINDOW[0])
        ctx.set(dut.window_limit, WINDOW[1])
        ctx.set(dut.flush, flush)
        for client, waiting in enumerate(self.requests):
            ctx.set(dut.request[client].valid, bool(waiting))
            if waiting:
                ctx.set(dut.request[client].p.address, waiting[0][0])
                ctx.set(dut.request[client].p.beats, waiting[0][1])
            ctx.set(dut.response[client].ready, self.rng.random() < self.ready[client])
        ctx.set(dut.m_axi_arready, self.rng.random() >= self.stalls)
        offered = bool(self.due) and self.due[0][0] <= self.cycle
        offered = offered and (ctx.get(dut.m_axi_rvalid) or self.rng.random() >= self.stalls)
        ctx.set(dut.m_axi_rvalid, offered)
        if offered:
            _, address, last = self.due[0]
            ctx.set(dut.m_axi_rdata, address)
            ctx.set(dut.m_axi_rresp, self.bad.get(address, OKAY))
            ctx.set(dut.m_axi_rlast, last)
        for client, waiting in enumerate(self.requests):
            if waiting and ctx.get(dut.request[client].ready):
                waiting.pop(0)
            response = dut.response[client]
            if ctx.get(response.valid) and ctx.get(response.ready):
                self.received[client].append((ctx.get(response.p.data), ctx.get(response.p.last)))
        if ctx.get(dut.m_axi_arvalid) and ctx.get(dut.m_axi_arready):
            address, beats = ctx.get(dut.m_axi_araddr), ctx.get(dut.m_axi_arlen) + 1
            self.bursts.append((address, beats))
            self.due += [(self.cycle + self.latency, address + BEAT * n, n == beats - 1) for n in range(beats)]
        assert ctx.get(dut.beat) == (offered and ctx.get(dut.m_axi_rready))
        if ctx.get(dut.beat):
            self.taken.append((self.cycle, self.due.pop(0)[1]))
        if ctx.get(dut.error):
            self.errors.append((self.cycle, ctx.get(dut.error), ctx.get(dut.error_client)))
        await ctx.tick()
        self.cycle += 1

    async def settle(self, ctx, cycles=40):
        """Until nothing is left to do, and a while longer."""
        quiet = 0
        for _ in range(5000):
            before = (*map(len, self.requests), len(self.bursts), len(self.taken), *map(len, self.received))
            await self.step(ctx)
            after = (*map(len, self.requests), len(self.bursts), len(self.taken), *map(len, self.received))
            quiet = quiet + 1 if before == after else 0
            if quiet == cycles:
                return
        raise AssertionError("no rest")

    async def flush(self, ctx):
        """It must end, and hands nothing on."""
        for found in (*self.requests, *self.received):
            found.clear()
        for n in range(3000):
            await self.step(ctx, flush=1)
            if n and ctx.get(self.dut.idle):
                break
        else:
            raise AssertionError("the flush does not end")
        await self.step(ctx, flush=1)
        assert not self.due and self.received == ([], [])

    def run(self, process):
        sim = Simulator(self.dut)
        sim.add_clock(1e-6)

        async def testbench(ctx):
            await process(ctx)

        sim.add_testbench(testbench)
        sim.run()


def beats_of(requests):
    return [(address + BEAT * n, int(n == beats - 1)) for address, beats in requests for n in range(beats)]


CASES = [(1, 0), (1, 1), (1, 2), (2, 1), (64, 0), (64, 31), (64, 63), (64, 64), (64, 127), (64, 191), (150, 149)]
"""Beats of a request, and the number of the bad one among those of three requests: first, middle and last of a burst."""


@pytest.mark.parametrize(("beats", "bad"), CASES)
@pytest.mark.parametrize(("code", "client", "stalls"), [(SLVERR, 1, 0.0), (DECERR, 1, 0.3), (DECERR, 0, 0.0), (EXOKAY, 0, 0.3)])
def test_no_beat_is_handed_on_from_an_error_answer_on(beats, bad, code, client, stalls):
    """All before it are; the error is told once, :data:`SETTLE` cycles later, with its client; no burst is issued from then on."""
    requests = [(WINDOW[0] + 0x1000 * n, beats) for n in range(3)]
    expected = beats_of(requests)
    bench = Bench([requests, []] if client == 0 else [[], requests], {expected[bad][0]: code}, stalls=stalls, seed=bad)
    issued = []

    async def process(ctx):
        for _ in range(3000):
            await bench.step(ctx)
            if not issued and bench.taken and bench.taken[-1][1] == expected[bad][0]:
                issued.append(len(bench.bursts) + ctx.get(bench.dut.m_axi_arvalid))
            if issued and bench.cycle > bench.taken[bad][0] + 250:
                break
        assert bench.received[client] == expected[:bad] and not bench.received[1 - client]
        assert len(bench.bursts) == issued[0], "a burst behind the error"
        assert bench.errors == [(bench.taken[bad][0] + SETTLE, ERROR_READ_RESPONSE, client)]
        await bench.flush(ctx)
        bench.bad, bench.requests = {}, [[(WINDOW[0], 3)], [(WINDOW[0] + 64, 5)]]
        await bench.settle(ctx)
        assert [*map(len, bench.received)] == [3, 5] and len(bench.errors) == 1

    bench.run(process)


@pytest.mark.parametrize("stalls", [0.0, 0.3])
@pytest.mark.parametrize("beats", [1, 64])
@pytest.mark.parametrize("client", [0, 1])
@pytest.mark.parametrize("refused", range(3))
def test_nothing_is_read_behind_a_refused_burst(refused, client, beats, stalls):
    """By neither client. What is ahead is handed on, then the error is told, once."""
    requests = [(WINDOW[0] + 0x1000 * n, beats) for n in range(3)]
    ahead = beats_of(requests[:refused])
    if beats == 1:
        requests[refused] = [WINDOW[0] - BEAT, WINDOW[1]][refused % 2], beats
    else:
        requests[refused] = WINDOW[0] - BEAT * beats if refused == 2 else WINDOW[1] - BEAT * (beats - 1), beats
    bench = Bench([requests, []] if client == 0 else [[], requests], stalls=stalls, seed=refused)

    async def process(ctx):
        await bench.settle(ctx)
        # A request of many beats is several bursts; those inside the window are read.
        places = {address for address, _ in ahead}
        assert [beat for beat in bench.received[client] if beat[0] in places] == ahead
        assert all(WINDOW[0] <= address and address + BEAT * length <= WINDOW[1] for address, length in bench.bursts)
        assert [error[1:] for error in bench.errors] == [(ERROR_READ_WINDOW, client)]
        if bench.taken:
            assert bench.errors[0][0] == bench.taken[-1][0] + SETTLE
        bursts = len(bench.bursts)
        bench.requests = [[(WINDOW[0], 1)], [(WINDOW[0], 1)]]
        for _ in range(60):
            await bench.step(ctx)
        assert len(bench.bursts) == bursts and len(bench.errors) == 1

    bench.run(process)


@pytest.mark.parametrize("moment", range(0, 80, 5))
def test_a_flush_ends_whatever_is_under_way(moment):
    """Also with neither client ready."""
    bench = Bench([[(WINDOW[0], 200)], [(WINDOW[0] + 0x1000, 200)]], stalls=0.4, seed=moment, ready=(0.5, 0.5))

    async def process(ctx):
        for _ in range(moment):
            await bench.step(ctx)
        bench.ready = (0.0, 0.0)
        await bench.flush(ctx)
        assert not bench.errors
        bench.ready = (1.0, 1.0)
        requests = [[(WINDOW[0] + 0x800, 130)], [(WINDOW[0], 3)]]
        bench.requests = [list(found) for found in requests]
        await bench.settle(ctx)
        assert [*bench.received] == [beats_of(found) for found in requests]

    bench.run(process)


def test_no_more_bursts_are_under_way_than_are_remembered_and_no_more_beats_fetched_than_fit():
    bench = Bench([[(WINDOW[0], 300)], [(WINDOW[0] + 0x1000 + 64 * n, 1) for n in range(60)]], ready=(0.0, 1.0), latency=300)

    async def process(ctx):
        for _ in range(290):
            await bench.step(ctx)
        assert len(bench.bursts) == OUTSTANDING_READS
        await bench.settle(ctx)
        fetched = [beats for address, beats in bench.bursts if address < WINDOW[0] + 0x1000]
        assert sum(fetched) == FETCH_BEATS
        bench.ready = (1.0, 1.0)
        await bench.settle(ctx, 400)
        assert [*map(len, bench.received)] == [300, 60]

    bench.run(process)
