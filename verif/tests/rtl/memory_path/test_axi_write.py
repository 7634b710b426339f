"""WriteManager against cocotbext-axi's memory: data, splitting, stalls, window, error responses, flush."""

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiWriteBus

from gradloom.contracts.config import PRESETS
from gradloom.rtl.memory_path.axi_write import WriteManager
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import MEMORY_BYTES, WINDOW, BurstLog, FaultyWrite, ManagerBench, put, stall, start_clock


class Bench(ManagerBench):
    """A started dut, its memory, and a shadow of what the memory must hold."""

    def __init__(self, dut, seed):
        super().__init__(dut, seed, len(dut.m_axi_wdata) // 8)
        self.shadow = bytearray(self.rng.randbytes(MEMORY_BYTES))
        self.beats = []
        self.strobes = set()
        self.offered = 1.0

    async def begin(self, share=0.0):
        await start_clock(self.dut, window_base=WINDOW[0], window_limit=WINDOW[1], flush=0, request__valid=0,
                          data__valid=0)
        self.ram = FaultyWrite(AxiWriteBus.from_prefix(self.dut, "m_axi"), self.dut.clk, self.dut.rst, size=MEMORY_BYTES)
        self.ram.write(0, bytes(self.shadow))
        if share:
            for channel in (self.ram.aw_channel, self.ram.w_channel, self.ram.b_channel):
                channel.set_pause_generator(stall(self.rng, share))
        self.log = BurstLog(self.dut, "aw", self.beat)
        cocotb.start_soon(self._watch())
        self.feeder = cocotb.start_soon(self._feed())
        await RisingEdge(self.dut.clk)
        return self

    def reset_client(self):
        """The client forgets its data, as an engine does when it is reset under a flush."""
        self.feeder.cancel()
        self.beats.clear()
        self.dut.data__valid.value = 0
        self.feeder = cocotb.start_soon(self._feed())

    async def _watch(self):
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            if int(dut.error.value):
                self.errors.append(int(dut.error.value))
            if int(dut.m_axi_wvalid.value) and int(dut.m_axi_wready.value):
                self.strobes.add(int(dut.m_axi_wstrb.value))

    async def _feed(self):
        while True:
            while not self.beats or self.rng.random() >= self.offered:
                await RisingEdge(self.dut.clk)
            await put(self.dut, "data", int.from_bytes(self.beats.pop(0), "little"))

    async def issue(self, requests, shadow=True):
        for address, count in requests:
            data = self.rng.randbytes(count * self.beat)
            if shadow:
                self.shadow[address:address + len(data)] = data
            self.beats += [data[n:n + self.beat] for n in range(0, len(data), self.beat)]
            await put(self.dut, "request", address | count << 32)

    def check(self):
        assert self.ram.read(0, MEMORY_BYTES) == bytes(self.shadow)


@cocotb.test()
async def random_requests_with_stalls(dut):
    bench = await Bench(dut, 1).begin(0.3)
    bench.offered = 0.7
    await bench.issue(bench.requests(25, 300))
    await bench.idle()
    bench.check()
    assert not bench.errors
    assert bench.strobes == {(1 << bench.beat) - 1}


@cocotb.test()
async def short_runs_pipeline(dut):
    bench = await Bench(dut, 2).begin()
    before = bench.cycle
    await bench.issue([(0x2000 + 64 * n, 2) for n in range(100)])
    await bench.idle()
    bench.check()
    assert bench.cycle - before < 330, "200 beats in runs of 2 must leave at close to one beat a cycle"


@cocotb.test()
async def idle_waits_for_the_response(dut):
    bench = await Bench(dut, 3).begin()
    bench.ram.b_channel.pause = True
    await bench.issue([(0x3000 - 3 * bench.beat, 70)])
    for _ in range(200):
        await RisingEdge(dut.clk)
        assert not int(dut.idle.value)
    bench.ram.b_channel.pause = False
    await bench.idle()
    assert bench.log.bursts == [(0x3000 - 3 * bench.beat, 3), (0x3000, 64), (0x3000 + 64 * bench.beat, 3)]
    bench.check()


@cocotb.test()
async def outside_the_window(dut):
    bench = await Bench(dut, 4).begin(0.2)
    beat = bench.beat
    for first, beats, written in ((WINDOW[1] - 2 * beat, 3, False), (WINDOW[0] - beat, 1, False),
                                  (0xFFFFFFF0, 1, False), (WINDOW[1] - 2 * beat, 2, True), (WINDOW[0], 1, True)):
        bench.errors.clear()
        if written:
            await bench.issue([(first, beats)])
            await bench.idle()
            assert not bench.errors
        else:
            # The burst up to the window's end is still written; the error is reported behind it.
            kept = max(0, (WINDOW[1] - first) // beat) if first >= WINDOW[0] else 0
            data = bench.rng.randbytes(kept * beat)
            bench.shadow[first:first + len(data)] = data
            await put(dut, "request", first | beats << 32)
            await ClockCycles(dut.clk, 100)
            assert bool(bench.errors) == (kept == 0)
            bench.beats += [data[n:n + beat] for n in range(0, len(data), beat)]
            await bench.until(lambda: bench.errors)
            assert bench.errors == [0x33]
            bench.check()
            dut.flush.value = 1
            for _ in range(3):
                await RisingEdge(dut.clk)
            await bench.idle()
            dut.flush.value = 0
            await RisingEdge(dut.clk)
        for address, count in bench.log.bursts:
            assert WINDOW[0] <= address and address + count * beat <= WINDOW[1]
        bench.check()


@cocotb.test()
async def error_response(dut):
    bench = await Bench(dut, 5).begin(0.3)
    bench.ram.bad = range(0x6000, 0x6000 + bench.beat)
    task = cocotb.start_soon(bench.issue([(0x6000 - 40 * bench.beat, 400)], shadow=False))
    await bench.until(lambda: bench.errors)
    assert bench.errors == [0x32]
    await task
    dut.flush.value = 1
    bench.beats.clear()
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    await bench.idle()
    assert bench.errors == [0x32]


@cocotb.test()
async def flush_mid_burst(dut):
    bench = await Bench(dut, 6).begin(0.4)
    for _ in range(6):
        bench.shadow[:] = bench.ram.read(0, MEMORY_BYTES)
        target = bench.rng.randrange(WINDOW[0] // bench.beat, WINDOW[1] // bench.beat - 400) * bench.beat
        data = bench.rng.randbytes(400 * bench.beat)
        bench.beats = [data[n:n + bench.beat] for n in range(0, len(data), bench.beat)]
        await put(dut, "request", target | 400 << 32)
        for _ in range(bench.rng.randint(20, 500)):
            await RisingEdge(dut.clk)
        dut.flush.value = 1
        bench.beats.clear()
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        await bench.idle()
        # What was written is a prefix of the data in each place, and nothing else changed.
        after = bench.ram.read(0, MEMORY_BYTES)
        end = next((n for n in range(0, len(data), bench.beat)
                    if after[target + n:target + n + bench.beat] != data[n:n + bench.beat]), len(data))
        bench.shadow[target:target + end] = data[:end]
        bench.check()
        bench.reset_client()
        await RisingEdge(dut.clk)
        dut.flush.value = 0
        work = bench.requests(3, 100)
        await bench.issue(work)
        await bench.idle()
        bench.check()
    assert not bench.errors
    assert 0 in bench.strobes


@cocotb.test()
async def cut_short_is_not_completed(dut):
    """Of a command whose last beats a flush makes up nobody hears that it is complete."""
    bench = await Bench(dut, 7).begin()
    completions = []

    async def listen():
        while True:
            await RisingEdge(dut.clk)
            if int(dut.completed.value):
                completions.append(bench.cycle)

    cocotb.start_soon(listen())
    for given in (4, 2):
        bench.beats += [bytes(bench.beat)] * given
        await put(dut, "request", 0x6000 | 4 << 32 | 1 << 49)
        await ClockCycles(dut.clk, 30)
        assert len(completions) == 1
    dut.flush.value = 1
    bench.beats.clear()
    await ClockCycles(dut.clk, 2)
    await bench.idle()
    await ClockCycles(dut.clk, 2)
    assert len(completions) == 1


@pytest.mark.parametrize("preset", ["nano", "eta"])
def test_axi_write(preset, tmp_path):
    assert run_cocotb(lambda: WriteManager(PRESETS[preset]), __file__, tmp_path) == 7
