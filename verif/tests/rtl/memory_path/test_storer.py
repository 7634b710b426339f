"""Storer with its write manager against cocotbext-axi's memory: what a STORE writes where, when it is done, and what is refused."""

import itertools
import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiWriteBus

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode, Source
from gradloom.rtl.command import CommandPort
from gradloom.rtl.memory_path.axi import write_members
from gradloom.rtl.memory_path.axi_write import WriteManager
from gradloom.rtl.memory_path.buses import StoreBus
from gradloom.rtl.memory_path.storer import Storer
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import BurstLog, FaultyWrite, run_command, stall, start_clock, stream_commands

SIZE = 1 << 18
SUBS = {Source.PBUF: 4, Source.XOUT: 8, Source.LOGIT: 2}


class StorerBench(wiring.Component):
    """Storer and WriteManager as the machine connects them."""

    def __init__(self, config):
        self.config = config
        super().__init__(write_members(config) | {"port": In(CommandPort()),
                                                  "bus": Out(StoreBus(config)), "error": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.storer = storer = Storer(self.config)
        m.submodules.manager = manager = WriteManager(self.config)
        connect(m, storer.request, manager.request)
        connect(m, storer.data, manager.data)
        connect(m, flipped(self.port), storer.port)
        connect(m, flipped(self.bus), storer.bus)
        m.d.comb += [storer.completed.eq(manager.completed), self.error.eq(manager.error),
                     manager.window_base.eq(0), manager.window_limit.eq(SIZE)]
        for name, member in write_members(self.config).items():
            inner, outer = getattr(manager, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        return m


def content(config, src, addr, sub):
    """The beat that the stand-in memories hold at this place."""
    return random.Random(f"{src} {addr} {sub}").randbytes(config.beat_bytes)


class Bench:
    def __init__(self, dut, seed):
        self.dut = dut
        self.config = PRESETS[{2: "nano", 16: "eta", 32: "eta2x"}[len(dut.m_axi_wdata) // 8]]
        self.rng = random.Random(seed)
        self.shadow = bytearray(self.rng.randbytes(SIZE))
        self.cycle = self.done = self.fault = 0
        self.ends = []
        self.most = 0
        self.answers = 0
        self.last_answer = 0

    async def begin(self, share=0.0):
        await start_clock(self.dut, port__start=0, bus__data=0)
        self.ram = FaultyWrite(AxiWriteBus.from_prefix(self.dut, "m_axi"), self.dut.clk, self.dut.rst, size=SIZE)
        self.ram.write(0, bytes(self.shadow))
        if share:
            for channel in (self.ram.aw_channel, self.ram.w_channel, self.ram.b_channel):
                channel.set_pause_generator(stall(self.rng, share))
        self.log = BurstLog(self.dut, "aw", self.config.beat_bytes)
        cocotb.start_soon(self._watch())
        return self

    async def _watch(self):
        dut = self.dut
        pipe = [0, 0]
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            if int(dut.port__done.value):
                self.done = self.cycle
                self.ends.append((self.cycle, self.answers))
            if int(dut.port__fault.value):
                self.fault = int(dut.port__fault.value)
            if int(dut.m_axi_bvalid.value):
                self.answers += 1
                self.last_answer = self.cycle
            read = 0
            if int(dut.bus__en.value):
                place = [int(getattr(dut, f"bus__{name}").value) for name in ("src", "addr", "sub")]
                read = int.from_bytes(content(self.config, *place), "little")
            # Sampled at the end of the cycle of `en`; on the bus in the second cycle after it, garbage otherwise.
            pipe = [read, pipe[0]]
            dut.bus__data.value = pipe[1] if pipe[1] else self.rng.getrandbits(8 * self.config.beat_bytes)

    async def store(self, fields, limit=20000):
        return await run_command(self, Opcode.STORE, fields, limit)

    def apply(self, fields):
        beat = self.config.beat_bytes
        subs = SUBS.get(fields["src"], 1)
        place = 0
        for i2 in range(fields["n2"]):
            for i1 in range(fields["n1"]):
                for i0 in range(fields["n0"]):
                    at = (fields["offset"] + i2 * fields["stride2"] + i1 * fields["stride1"] + i0 * beat) % 2**32
                    addr = (fields["addr0"] + place // subs) % 2**16
                    self.shadow[at:at + beat] = content(self.config, int(fields["src"]), addr, place % subs)
                    place += 1

    def fields(self):
        beat = self.config.beat_bytes
        rng = self.rng
        n0, n1, n2 = rng.randint(1, 40), rng.randint(1, 6), rng.randint(1, 4)
        if rng.random() < 0.2:
            n0, n1, n2 = rng.randint(100, 300), 1, 1
        stride1, stride2 = rng.randint(-400, 400) * beat, rng.randint(-800, 800) * beat
        offsets = [i2 * stride2 + i1 * stride1 for i2 in range(n2) for i1 in range(n1)]
        first = rng.randrange(-min(offsets) // beat, (SIZE - max(offsets)) // beat - n0)
        return {"src": rng.choice(list(Source)), "breg": rng.randrange(8), "offset": first * beat,
                "n0": n0, "n1": n1, "n2": n2, "stride1": stride1, "stride2": stride2, "addr0": rng.randrange(2**16)}

    def check(self):
        assert self.ram.read(0, SIZE) == bytes(self.shadow)


@cocotb.test()
async def random_commands(dut):
    bench = await Bench(dut, 1).begin(0.2)
    for _ in range(40):
        fields = bench.fields()
        bench.answers = 0
        bench.log.bursts.clear()
        await bench.store(fields)
        assert bench.answers == len(bench.log.bursts) and bench.last_answer < bench.done
        bench.apply(fields)
        bench.check()


@cocotb.test()
async def one_beat_a_cycle(dut):
    bench = await Bench(dut, 2).begin()
    beat = bench.config.beat_bytes
    for n0, n1 in ((600, 1), (16, 40), (4, 150)):
        fields = {"src": Source.OA, "offset": 0, "n0": n0, "n1": n1, "n2": 1, "stride1": 2 * n0 * beat, "stride2": 0, "addr0": 7}
        cycles = await bench.store(fields)
        bench.apply(fields)
        bench.check()
        assert cycles < 1.3 * n0 * n1 + 40, f"{cycles} cycles for {n1} runs of {n0} beats"


@cocotb.test()
async def illegal_fields(dut):
    bench = await Bench(dut, 3).begin()
    beat = bench.config.beat_bytes
    legal = {"src": Source.OA, "offset": 0, "n0": 2, "n1": 2, "n2": 2, "stride1": beat, "stride2": beat, "addr0": 0}
    for bad in ({"n0": 0}, {"n1": 0}, {"n2": 0}, {"src": 6}, {"src": 15}, {"offset": 1}, {"stride1": 1}, {"stride2": -1}):
        assert await bench.store(legal | bad) == 0
        assert bench.fault == 0x20, bad
        for _ in range(20):
            await RisingEdge(dut.clk)
            assert not int(dut.port__free.value)
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await RisingEdge(dut.clk)
    assert not bench.log.bursts
    assert await bench.store(legal) > 0
    bench.apply(legal)
    bench.check()


@cocotb.test()
async def overlapping_commands(dut):
    """Commands follow as soon as the Storer is free; each is done when its own bursts are answered."""
    bench = await Bench(dut, 4).begin(0.2)
    commands = [bench.fields() for _ in range(40)]
    for n in range(0, 40, 3):
        commands[n] |= {"n0": 1, "n1": 1, "n2": 1}
    alone = []
    for fields in commands:
        bench.log.bursts.clear()
        await bench.store(fields)
        alone.append(len(bench.log.bursts))
        bench.apply(fields)
    bench.check()
    bench.ends.clear()
    bench.answers = 0
    await stream_commands(bench, Opcode.STORE, commands, Storer.IN_FLIGHT)
    assert bench.most == Storer.IN_FLIGHT
    bench.check()
    assert all(later - earlier >= 2 for (earlier, _), (later, _) in itertools.pairwise(bench.ends))
    assert all(answers >= due for (_, answers), due in zip(bench.ends, itertools.accumulate(alone), strict=True))


@cocotb.test()
async def refusal_behind_commands_under_way(dut):
    """The fault belongs to the oldest command: it waits for the earlier ones, and nothing follows."""
    bench = await Bench(dut, 5).begin(0.3)
    good = {"src": Source.OB, "offset": 0, "n0": 30, "n1": 1, "n2": 1, "addr0": 3}
    await stream_commands(bench, Opcode.STORE, [good, good, good | {"n0": 0}, good], Storer.IN_FLIGHT)
    assert bench.fault == 0x20 and len(bench.ends) == 2


@pytest.mark.parametrize("preset", ["nano", "eta", pytest.param("eta2x", marks=pytest.mark.long("wider beats than eta's"))])
def test_storer(preset, tmp_path):
    assert run_cocotb(lambda: StorerBench(PRESETS[preset]), __file__, tmp_path) == 5
