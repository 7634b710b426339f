"""Loader with its read manager against cocotbext-axi's memory: where every beat of a LOAD lands, when, and what is refused."""

import itertools
import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiReadBus

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Dest, Opcode
from gradloom.rtl.command import CommandPort
from gradloom.rtl.memory_path.axi import read_members
from gradloom.rtl.memory_path.axi_read import ReadManager
from gradloom.rtl.memory_path.buses import LoadBus
from gradloom.rtl.memory_path.loader import Loader
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import BurstLog, FaultyRead, run_command, stall, start_clock, stream_commands

SIZE = 1 << 18
SUBS = {Dest.PBUF: 4, Dest.XIN: 8}


class LoaderBench(wiring.Component):
    """Loader and ReadManager as the machine connects them."""

    def __init__(self, config):
        self.config = config
        super().__init__(read_members(config) | {"port": In(CommandPort()), "bus": Out(LoadBus(config)),
                                                 "ready": In(1), "error": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.loader = loader = Loader(self.config)
        m.submodules.manager = manager = ReadManager(self.config)
        connect(m, loader.request, manager.request[1])
        connect(m, manager.response[1], loader.response)
        connect(m, flipped(self.port), loader.port)
        connect(m, flipped(self.bus), loader.bus)
        m.d.comb += [loader.ready.eq(self.ready), self.error.eq(manager.error),
                     manager.waiting.eq(loader.bus.valid & ~loader.ready),
                     manager.window_base.eq(0), manager.window_limit.eq(SIZE)]
        for name, member in read_members(self.config).items():
            inner, outer = getattr(manager, name), getattr(self, name)
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        return m


def expected_writes(config, image, fields):
    """(dest, bank, addr, sub, data) of every beat, from the loops of docs/machine.md section 3."""
    beat = config.beat_bytes
    dest = Dest(fields["dest"])
    bank, addr, sub, in_row = fields["bank0"], fields["addr0"], 0, 0
    row = addr
    writes = []
    for i2 in range(fields["n2"]):
        if dest in (Dest.IBUF, Dest.EBUF):
            bank, row, in_row = fields["bank0"], fields["addr0"] + i2 * fields["ostep"], 0
        for i1 in range(fields["n1"]):
            if dest == Dest.WBUF:
                bank, addr, sub = fields["bank0"], fields["addr0"] + (i2 * fields["n1"] + i1) * fields["ostep"], 0
            for i0 in range(fields["n0"]):
                at = (fields["offset"] + i2 * fields["stride2"] + i1 * fields["stride1"] + i0 * beat) % 2**32
                data = int.from_bytes(image[at:at + beat], "little")
                if dest in (Dest.IBUF, Dest.EBUF):
                    writes.append((dest, bank, (row + in_row) % 2**16, 0, data))
                    in_row += 1
                    if in_row == fields["xb"]:
                        in_row = 0
                        bank += fields["bstep"]
                        if bank >= config.row_banks:
                            bank -= config.row_banks
                            row += fields["xe"]
                    continue
                writes.append((dest, bank, addr % 2**16, sub, data))
                sub += 1
                if sub == (config.block_beats if dest == Dest.WBUF else SUBS.get(dest, 1)):
                    sub = 0
                    if dest == Dest.WBUF and not fields["linear"]:
                        bank += 1
                        if bank == 3:
                            bank, addr = 0, addr + 1
                    else:
                        addr += 1
    return writes


def random_fields(rng, config):
    beat = config.beat_bytes
    n0, n1, n2 = rng.randint(1, 40), rng.randint(1, 6), rng.randint(1, 4)
    dest = rng.choice(list(Dest))
    banks = 3 if dest == Dest.WBUF else config.row_banks
    if rng.random() < 0.2:
        n0, n1, n2 = rng.randint(100, 300), 1, 1
    stride1, stride2 = rng.randint(-400, 400) * beat, rng.randint(-800, 800) * beat
    offsets = [i2 * stride2 + i1 * stride1 for i2 in range(n2) for i1 in range(n1)]
    first = rng.randrange(-min(offsets) // beat, (SIZE - max(offsets)) // beat - n0)
    return {"dest": dest, "linear": rng.randint(0, 1), "breg": rng.randrange(8), "bank0": rng.randrange(banks),
            "bstep": rng.choice([1, 3]), "xe": rng.randrange(4096), "offset": first * beat,
            "n0": n0, "n1": n1, "n2": n2, "stride1": stride1, "stride2": stride2, "addr0": rng.randrange(2**16),
            "xb": rng.choice([1, 2, 3, rng.randint(1, 40)]), "ostep": rng.randrange(300)}


class Bench:
    def __init__(self, dut, seed):
        self.dut = dut
        self.config = PRESETS[{2: "nano", 4: "small", 16: "eta", 32: "eta2x"}[len(dut.bus__data) // 8]]
        self.rng = random.Random(seed)
        self.image = self.rng.randbytes(SIZE)
        self.writes = []
        self.ends = []
        self.most = 0
        self.cycle = self.done = self.fault = self.last = self.first_request = 0

    async def begin(self, share=0.0, refused=0.0):
        """``share`` of the cycles in which the memory stands still, ``refused`` of the beats that find the bus blocked."""
        self.refused = refused
        await start_clock(self.dut, port__start=0, ready=1)
        self.ram = FaultyRead(AxiReadBus.from_prefix(self.dut, "m_axi"), self.dut.clk, self.dut.rst, size=SIZE)
        self.ram.write(0, self.image)
        if share:
            self.ram.ar_channel.set_pause_generator(stall(self.rng, share))
            self.ram.r_channel.set_pause_generator(stall(self.rng, share))
        self.log = BurstLog(self.dut, "ar", self.config.beat_bytes)
        cocotb.start_soon(self._watch())
        return self

    async def _watch(self):
        dut, offered = self.dut, None
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            if int(dut.bus__valid.value):
                now = tuple(int(getattr(dut, f"bus__{name}").value) for name in ("dest", "bank", "addr", "sub", "data"))
                assert offered is None or now == offered, "a refused beat changed"
                offered = now
                if int(dut.ready.value):
                    self.writes.append(now)
                    self.last, offered = self.cycle, None
            dut.ready.value = self.rng.random() >= self.refused
            if int(dut.port__done.value):
                self.done = self.cycle
                self.ends.append(self.cycle)
            if int(dut.port__fault.value):
                self.fault = int(dut.port__fault.value)

    async def load(self, fields, limit=20000):
        """Run one command; returns its cycles from start to done (0 after a fault)."""
        self.writes.clear()
        return await run_command(self, Opcode.LOAD, fields, limit)


@cocotb.test()
async def random_commands(dut):
    bench = await Bench(dut, 1).begin(0.2)
    for n in range(60):
        bench.refused = 0.4 * (n % 2)
        fields = random_fields(bench.rng, bench.config)
        await bench.load(fields)
        assert bench.writes == expected_writes(bench.config, bench.image, fields), fields
        assert bench.done == bench.last + 2
        assert not int(dut.error.value)


@cocotb.test()
async def one_beat_a_cycle(dut):
    bench = await Bench(dut, 2).begin()
    beat = bench.config.beat_bytes
    plain = {"dest": Dest.AA, "offset": 0, "xb": 1}
    for n0, n1 in ((600, 1), (16, 40), (4, 150)):
        cycles = await bench.load(plain | {"n0": n0, "n1": n1, "n2": 1, "stride1": 2 * n0 * beat})
        assert len(bench.writes) == n0 * n1
        assert cycles < 1.25 * n0 * n1 + 40, f"{cycles} cycles for {n1} runs of {n0} beats"


@cocotb.test()
async def illegal_fields(dut):
    bench = await Bench(dut, 3).begin()
    beat = bench.config.beat_bytes
    legal = {"dest": Dest.IBUF, "n0": 2, "n1": 2, "n2": 2, "stride1": beat, "stride2": beat, "xb": 1, "bstep": 1}
    for bad in ({"n0": 0}, {"n1": 0}, {"n2": 0}, {"dest": 9}, {"dest": 15}, {"xb": 0}, {"dest": Dest.EBUF, "xb": 0},
                {"bank0": bench.config.row_banks}, {"dest": Dest.WBUF, "bank0": 3}, {"offset": 1}, {"stride1": beat + 1},
                {"stride2": -1}):
        bursts = len(bench.log.bursts)
        assert await bench.load(legal | bad) == 0
        assert bench.fault == 0x20, bad
        for _ in range(20):
            await RisingEdge(dut.clk)
            assert not int(dut.port__free.value)
        assert not bench.writes and len(bench.log.bursts) == bursts
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        await RisingEdge(dut.clk)
    assert await bench.load(legal) > 0
    assert len(bench.writes) == 8


@cocotb.test()
async def overlapping_commands(dut):
    """Commands follow as soon as the Loader is free; beats and `done` keep their order."""
    bench = await Bench(dut, 4).begin(0.2, refused=0.2)
    commands = [random_fields(bench.rng, bench.config) for _ in range(60)]
    for n in range(0, 60, 3):
        commands[n] |= {"n0": 1, "n1": 1, "n2": 1}
    await stream_commands(bench, Opcode.LOAD, commands, Loader.IN_FLIGHT)
    assert bench.most == Loader.IN_FLIGHT
    assert bench.writes == [write for fields in commands
                            for write in expected_writes(bench.config, bench.image, fields)]
    assert all(later - earlier >= 2 for earlier, later in itertools.pairwise(bench.ends))


@cocotb.test()
async def latency_is_paid_once(dut):
    bench = await Bench(dut, 5).begin()
    commands = [{"dest": Dest.AA, "offset": 0, "n0": 16, "n1": 1, "n2": 1, "xb": 1, "addr0": 16 * n} for n in range(40)]
    cycles = await stream_commands(bench, Opcode.LOAD, commands, Loader.IN_FLIGHT)
    assert cycles < 40 * 17 + 40, f"{cycles} cycles for 40 commands of 16 beats"


@cocotb.test()
async def refusal_behind_commands_under_way(dut):
    """The fault belongs to the oldest command: it waits for the earlier ones, and nothing follows."""
    bench = await Bench(dut, 6).begin(0.3, refused=0.5)
    good = {"dest": Dest.AB, "offset": 0, "n0": 30, "n1": 1, "n2": 1, "xb": 1}
    await stream_commands(bench, Opcode.LOAD, [good, good, good | {"n0": 0}, good], Loader.IN_FLIGHT)
    assert bench.fault == 0x20 and len(bench.ends) == 2 and len(bench.writes) == 60


@pytest.mark.parametrize("preset", [
    "nano", pytest.param("small", marks=pytest.mark.long("beats between nano's and eta's")), "eta",
    pytest.param("eta2x", marks=pytest.mark.long("wider beats than eta's")),
])
def test_loader(preset, tmp_path):
    assert run_cocotb(lambda: LoaderBench(PRESETS[preset]), __file__, tmp_path) == 6
