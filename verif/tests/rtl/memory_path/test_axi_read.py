"""ReadManager against cocotbext-axi's memory: order, splitting, stalls, window, error responses, flush."""

import itertools

import cocotb
import pytest
from amaranth.sim import Simulator
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiReadBus

from gradloom.contracts.config import PRESETS
from gradloom.rtl.memory_path.axi_read import ReadManager
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import MEMORY_BYTES, WINDOW, BurstLog, FaultyRead, ManagerBench, put, stall, start_clock


class Bench(ManagerBench):
    """A started dut, its memory, and what each client received."""

    def __init__(self, dut, seed):
        super().__init__(dut, seed, len(dut.m_axi_rdata) // 8)
        self.image = self.rng.randbytes(MEMORY_BYTES)
        self.received = [[], []]
        self.ready = [1.0, 1.0]

    async def begin(self, share=0.0):
        await start_clock(self.dut, window_base=WINDOW[0], window_limit=WINDOW[1], flush=0,
                          request__0__valid=0, request__1__valid=0, response__0__ready=1, response__1__ready=1)
        self.ram = FaultyRead(AxiReadBus.from_prefix(self.dut, "m_axi"), self.dut.clk, self.dut.rst, size=MEMORY_BYTES)
        self.ram.write(0, self.image)
        if share:
            self.ram.ar_channel.set_pause_generator(stall(self.rng, share))
            self.ram.r_channel.set_pause_generator(stall(self.rng, share))
        self.log = BurstLog(self.dut, "ar", self.beat)
        cocotb.start_soon(self._watch())
        await RisingEdge(self.dut.clk)
        return self

    async def _watch(self):
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            for client in range(2):
                port = [getattr(dut, f"response__{client}__{name}") for name in ("valid", "ready", "payload")]
                if int(port[0].value) and int(port[1].value):
                    payload = int(port[2].value)
                    self.received[client].append(((payload & (1 << 8 * self.beat) - 1).to_bytes(self.beat, "little"),
                                                  payload >> 8 * self.beat))
                port[1].value = int(self.rng.random() < self.ready[client])
            if int(dut.error.value):
                self.errors.append((int(dut.error.value), int(dut.error_client.value)))

    def expect(self, requests):
        beats = []
        for address, count in requests:
            for n in range(count):
                at = address + n * self.beat
                beats.append((self.image[at:at + self.beat], int(n == count - 1)))
        return beats

    async def issue(self, client, requests):
        for address, count in requests:
            await put(self.dut, f"request__{client}", address | count << 32)


@cocotb.test()
async def two_clients_with_stalls(dut):
    bench = await Bench(dut, 1).begin(0.3)
    bench.ready = [0.4, 0.9]
    work = [bench.requests(12, 300), bench.requests(25, 300)]
    tasks = [cocotb.start_soon(bench.issue(client, work[client])) for client in range(2)]
    for task in tasks:
        await task
    expected = [bench.expect(requests) for requests in work]
    await bench.until(lambda: [len(beats) for beats in bench.received] == [len(beats) for beats in expected])
    assert bench.received == expected
    assert not bench.errors
    await bench.idle()


@cocotb.test()
async def short_runs_pipeline(dut):
    bench = await Bench(dut, 2).begin()
    work = [(0x2000 + 64 * n, 2) for n in range(100)]
    before = bench.cycle
    await bench.issue(1, work)
    await bench.until(lambda: len(bench.received[1]) == 200)
    assert bench.received[1] == bench.expect(work)
    assert bench.cycle - before < 280, "200 beats in runs of 2 must come at close to one beat a cycle"


@cocotb.test()
async def address_latency_and_boundaries(dut):
    bench = await Bench(dut, 3).begin()
    beat = bench.beat
    await put(dut, "request__1", (0x3000 - 3 * beat) | 70 << 32)
    await RisingEdge(dut.clk)
    assert int(dut.m_axi_arvalid.value) == 0
    await RisingEdge(dut.clk)
    assert int(dut.m_axi_arvalid.value) == 1, "the address is due 2 cycles after the request"
    await bench.until(lambda: len(bench.received[1]) == 70)
    assert bench.log.bursts == [(0x3000 - 3 * beat, 3), (0x3000, 64), (0x3000 + 64 * beat, 3)]
    assert bench.received[1] == bench.expect([(0x3000 - 3 * beat, 70)])


@cocotb.test()
async def a_slow_program_fetch_does_not_stall_the_loader(dut):
    bench = await Bench(dut, 4).begin()
    bench.ready = [0.0, 1.0]
    cocotb.start_soon(bench.issue(0, [(0x4000, 300)]))
    work = [(0x8000, 500)]
    await bench.issue(1, work)
    await bench.until(lambda: len(bench.received[1]) == 500, 1500)
    assert bench.received[1] == bench.expect(work)
    bench.ready[0] = 1.0
    await bench.until(lambda: len(bench.received[0]) == 300)
    assert bench.received[0] == bench.expect([(0x4000, 300)])


@cocotb.test()
async def outside_the_window(dut):
    bench = await Bench(dut, 5).begin(0.2)
    beat = bench.beat
    for first, beats, fetched in ((WINDOW[1] - 2 * beat, 3, False), (WINDOW[0] - beat, 2, False), (0xFFFFFFF0, 4, False),
                                  (WINDOW[1] - 2 * beat, 2, True), (WINDOW[0], 1, True)):
        bench.errors.clear()
        bench.log.bursts.clear()
        await bench.issue(1, [(first, beats)])
        if fetched:
            await bench.idle()
            assert not bench.errors
        else:
            await bench.until(lambda: bench.errors)
            assert bench.errors == [(0x31, 1)]
            dut.flush.value = 1
            for _ in range(3):
                await RisingEdge(dut.clk)
            await bench.idle()
            dut.flush.value = 0
            await RisingEdge(dut.clk)
        for address, count in bench.log.bursts:
            assert WINDOW[0] <= address and address + count * beat <= WINDOW[1]


@cocotb.test()
async def error_response_then_flush_then_restart(dut):
    bench = await Bench(dut, 6).begin(0.3)
    bench.ram.bad = range(0x6000, 0x6010)
    for client in (1, 0):
        bench.errors.clear()
        cocotb.start_soon(bench.issue(client, [(0x6000 - 40 * bench.beat, 400)]))
        await bench.until(lambda: bench.errors)
        assert bench.errors[0] == (0x30, client)
        dut.flush.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        dut.request__0__valid.value = 0
        dut.request__1__valid.value = 0
        await bench.idle()
        await RisingEdge(dut.clk)
        dut.flush.value = 0
        bench.received = [[], []]
        bench.errors.clear()
        work = bench.requests(6, 200)
        work = [(address, beats) for address, beats in work if address > 0x8000]
        await bench.issue(client, work)
        expected = bench.expect(work)
        await bench.until(lambda client=client, expected=expected: len(bench.received[client]) == len(expected))
        assert bench.received[client] == expected
        assert not bench.errors


@cocotb.test()
async def flush_mid_burst(dut):
    bench = await Bench(dut, 7).begin(0.4)
    for round_ in range(6):
        bench.received = [[], []]
        tasks = [cocotb.start_soon(bench.issue(client, bench.requests(5, 200))) for client in range(2)]
        for _ in range(bench.rng.randint(1, 120)):
            await RisingEdge(dut.clk)
        dut.flush.value = 1
        await RisingEdge(dut.clk)
        for client, task in enumerate(tasks):
            task.cancel()
            getattr(dut, f"request__{client}__valid").value = 0
        await RisingEdge(dut.clk)
        await bench.idle()
        await RisingEdge(dut.clk)
        dut.flush.value = 0
        bench.received = [[], []]
        work = [bench.requests(3, 100) for _ in range(2)]
        for client in range(2):
            await bench.issue(client, work[client])
        expected = [bench.expect(requests) for requests in work]
        await bench.until(lambda expected=expected: [*map(len, bench.received)] == [*map(len, expected)])
        assert bench.received == expected, f"round {round_}"
    assert not bench.errors


@pytest.mark.parametrize("preset", ["nano", "eta"])
def test_axi_read(preset, tmp_path):
    assert run_cocotb(lambda: ReadManager(PRESETS[preset]), __file__, tmp_path) == 7


def test_clients_take_turns_while_both_have_bursts():
    """However many the Loader has, every second one is the program fetch's, as long as its response buffer has room."""
    dut, beats = ReadManager(PRESETS["nano"]), 4
    places, clients = (0x1000, 0x2000), []

    async def bench(ctx):
        asked, under_way = [0, 0], 0
        for name, value in {"window_base": 0, "window_limit": 0x10000, "m_axi_arready": 1, "m_axi_rlast": 0}.items():
            ctx.set(getattr(dut, name), value)
        for client in range(2):
            ctx.set(dut.request[client].valid, 1)
            ctx.set(dut.response[client].ready, 1)
        for _ in range(400):
            for client, place in enumerate(places):
                ctx.set(dut.request[client].p.address, place + asked[client] * beats * PRESETS["nano"].beat_bytes)
                ctx.set(dut.request[client].p.beats, beats)
                asked[client] += ctx.get(dut.request[client].ready)
            if ctx.get(dut.m_axi_arvalid):
                clients.append(places.index(ctx.get(dut.m_axi_araddr) & 0xF000))
                under_way += beats
            ctx.set(dut.m_axi_rvalid, under_way > 0)
            ctx.set(dut.m_axi_rlast, under_way % beats == 1)
            under_way -= under_way > 0 and ctx.get(dut.m_axi_rready)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(clients) > 80
    assert all(one != next_one for one, next_one in itertools.pairwise(clients)), clients
