"""Loader and Storer between a plain stream and their bus: transfers of very many beats, and answers in successive cycles."""

import itertools

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator
from amaranth.utils import exact_log2

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Dest, Opcode, Source
from gradloom.rtl.memory_path.loader import Loader
from gradloom.rtl.memory_path.storer import Storer
from gradloom.verif.memory_bench import command_bits

CONFIG = PRESETS["small"]
SIZES = [(2047, 1, 1), (2048, 1, 1), (2049, 1, 1), (4097, 1, 1), (1, 257, 1), (1, 1, 257), (3, 1, 300), (255, 2, 2)]
MOST = pytest.param((65535, 1, 1), marks=pytest.mark.long("as 4097 beats, up to the largest number of a field"))


def simulate(dut, testbench, reset=None):
    sim = Simulator(dut if reset is None else ResetInserter(reset)(dut))
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


async def start(ctx, port, opcode, **fields):
    assert ctx.get(port.free)
    ctx.set(port.cmd, command_bits(opcode, **fields))
    ctx.set(port.start, 1)
    await ctx.tick()
    ctx.set(port.start, 0)


@pytest.mark.parametrize("shape", [*SIZES, MOST])
def test_a_load_ends_with_its_last_beat(shape):
    """It takes n0 n1 n2 beats, places them at successive addresses modulo 2^16, and takes none of the next command's too early."""
    n0, n1, n2 = shape
    total = n0 * n1 * n2
    dut = Loader(CONFIG)

    async def testbench(ctx):
        ctx.set(dut.ready, 1)
        ctx.set(dut.request.ready, 1)
        await start(ctx, dut.port, Opcode.LOAD, dest=Dest.AB, n0=n0, n1=n1, n2=n2, addr0=0xFF80, stride1=4, stride2=4)
        await ctx.tick().repeat(4)
        ctx.set(dut.response.valid, 1)
        ctx.set(dut.response.p.data, 5)
        cycle = ctx.tick().sample(dut.bus.valid, dut.bus.dest, dut.bus.addr, dut.bus.data, dut.port.done, dut.response.ready)
        placed = taken = 0
        while True:
            _, _, valid, dest, addr, data, done, ready = await cycle
            taken += ready
            if valid:
                assert (dest, addr, data) == (Dest.AB, (0xFF80 + placed) % 2**16, 5)
                placed += 1
            if done:
                break
            assert placed <= total
        assert placed == taken == total
        ctx.set(dut.response.valid, 0)
        for _ in range(10):
            assert not ctx.get(dut.port.done) and not ctx.get(dut.bus.valid)
            await ctx.tick()

    simulate(dut, testbench)


@pytest.mark.parametrize("shape", [*SIZES, MOST])
def test_a_store_reads_each_beat_once(shape):
    """From successive addresses modulo 2^16, while W takes one beat a cycle, no more than are asked for."""
    n0, n1, n2 = shape
    total = n0 * n1 * n2
    dut = Storer(CONFIG)

    async def testbench(ctx):
        ctx.set(dut.request.ready, 1)
        await start(ctx, dut.port, Opcode.STORE, src=Source.OB, n0=n0, n1=n1, n2=n2, addr0=0xFF80, stride1=4, stride2=4)
        ctx.set(dut.data.ready, 1)
        cycle = ctx.tick().sample(dut.bus.en, dut.bus.src, dut.bus.addr, dut.data.valid)
        read = sent = quiet = 0
        while quiet < 20:
            _, _, en, src, addr, valid = await cycle
            if en:
                assert (src, addr) == (Source.OB, (0xFF80 + read) % 2**16)
                read += 1
            sent += valid
            quiet = 0 if en or valid else quiet + 1
        assert read == sent == total
        assert ctx.get(dut.port.free)
        ctx.set(dut.completed, 1)
        await ctx.tick()
        ctx.set(dut.completed, 0)
        await ctx.tick()
        assert ctx.get(dut.port.done)

    simulate(dut, testbench)


@pytest.mark.parametrize("engine", [Loader, Storer])
def test_a_long_transfer_does_not_end_early(engine):
    """Every bit of n0, n1 and n2 counts: with one of them just above a power of two up to 2^15, requests and beats go on for longer
    than with the bits below it. A cycle of reset ends the transfer."""
    dut, reset = engine(CONFIG), Signal()
    load = engine is Loader

    async def testbench(ctx):
        ctx.set(dut.request.ready, 1)
        if load:
            ctx.set(dut.ready, 1)
            ctx.set(dut.response.valid, 1)
        else:
            ctx.set(dut.data.ready, 1)
        for level, bit in itertools.product(range(3), range(7, 16)):
            shape = {f"n{n}": (1 << bit) + 1 if n == level else 1 for n in range(3)}
            place = {"dest": Dest.AB} if load else {"src": Source.OB}
            await start(ctx, dut.port, Opcode.LOAD if load else Opcode.STORE, **place, **shape)
            beats = runs = 0
            for _ in range(60):
                beats += ctx.get(dut.response.ready if load else dut.bus.en)
                if ctx.get(dut.request.valid):
                    runs += 1
                    assert ctx.get(dut.request.p.beats) == shape["n0"] and ctx.get(dut.request.p.end) == (level == 0)
                assert not ctx.get(dut.port.done)
                await ctx.tick()
            assert beats > 50 and (runs == 1 if level == 0 else runs > 50), shape
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            for _ in range(6):
                assert ctx.get(dut.port.free) and not ctx.get(dut.port.done) and not ctx.get(dut.request.valid)
                assert not ctx.get(dut.bus.valid if load else dut.bus.en)
                await ctx.tick()

    simulate(dut, testbench, reset)


@pytest.mark.parametrize("pattern", ["1", "11", "111", "1111", "1101", "1011", "10101", "100111"])
def test_a_store_ends_once_for_each_answer_and_never_in_two_cycles_on_end(pattern):
    """Answers that come in successive cycles end their commands in every other one."""
    dut = Storer(CONFIG)
    count = pattern.count("1")

    async def testbench(ctx):
        ctx.set(dut.request.ready, 1)
        ctx.set(dut.data.ready, 1)
        for _ in range(count):
            while not ctx.get(dut.port.free):
                await ctx.tick()
            await start(ctx, dut.port, Opcode.STORE, src=Source.OA, n0=1, n1=1, n2=1)
        await ctx.tick().repeat(20)
        ends = []
        for cycle, answered in enumerate(pattern + "0" * 20):
            ctx.set(dut.completed, int(answered))
            if ctx.get(dut.port.done):
                ends.append(cycle)
            await ctx.tick()
        expected = []
        for cycle, answered in enumerate(pattern):
            if answered == "1":
                expected.append(max(cycle + 2, expected[-1] + 2 if expected else 0))
        assert ends == expected

    simulate(dut, testbench)


LOAD = {"dest": Dest.AB, "n0": 2, "n1": 2, "n2": 2, "stride1": 8, "stride2": 16, "xb": 1, "bstep": 1}
STORE = {"src": Source.OA, "n0": 2, "n1": 2, "n2": 2, "stride1": 8, "stride2": 16}


def refused_fields():
    """(engine, fields of a command, whether it is illegal): each rule of its own, at its bound and at every bit beyond."""
    for engine, good, unknown in ((Loader, LOAD, {"dest": max(Dest) + 1}), (Storer, STORE, {"src": max(Source) + 1})):
        [kind] = unknown
        yield engine, good, False
        for change in ({"n0": 0}, {"n1": 0}, {"n2": 0}, unknown, {kind: 15}):
            yield engine, good | change, True
        for name, bit in itertools.product(("offset", "stride1", "stride2"), range(exact_log2(CONFIG.beat_bytes) + 1)):
            yield engine, good | {name: 1 << bit}, 1 << bit < CONFIG.beat_bytes
    for dest in Dest:
        rows, blocks = dest in (Dest.IBUF, Dest.EBUF), dest == Dest.WBUF
        yield Loader, LOAD | {"dest": dest, "xb": 0}, rows
        for bank in (2, 3, CONFIG.row_banks - 1, CONFIG.row_banks, 15):
            yield Loader, LOAD | {"dest": dest, "bank0": bank}, (rows and bank >= CONFIG.row_banks) or (blocks and bank >= 3)


@pytest.mark.parametrize("engine", [Loader, Storer])
def test_what_makes_no_sense_is_refused_before_a_request(engine):
    """One fault, no request, no ``done``, and not free until a reset; what is legal asks for its first run."""
    dut, reset = engine(CONFIG), Signal()
    opcode = Opcode.LOAD if engine is Loader else Opcode.STORE

    async def testbench(ctx):
        if engine is Loader:
            ctx.set(dut.ready, 1)
        for of, fields, illegal in refused_fields():
            if of is not engine:
                continue
            await start(ctx, dut.port, opcode, **fields)
            faults, requests = [], 0
            for _ in range(8):
                if code := ctx.get(dut.port.fault):
                    faults.append(code)
                requests += ctx.get(dut.request.valid)
                assert not ctx.get(dut.port.free) and not ctx.get(dut.port.done), fields
                await ctx.tick()
            assert (faults, requests > 0) == ([0x20] * illegal, not illegal), fields
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)

    simulate(dut, testbench, reset)


@pytest.mark.parametrize("ahead", range(4))
def test_an_illegal_store_is_told_once_when_all_ahead_are_done(ahead):
    dut = Storer(CONFIG)

    async def testbench(ctx):
        ctx.set(dut.request.ready, 1)
        ctx.set(dut.data.ready, 1)
        for n in range(ahead + 1):
            while not ctx.get(dut.port.free):
                await ctx.tick()
            await start(ctx, dut.port, Opcode.STORE, src=Source.OA, n0=int(n < ahead), n1=1, n2=1)
        faults, left, cycle, last_done = [], ahead, 0, -1
        for cycle in range(200):
            ctx.set(dut.completed, int(left > 0 and cycle % 20 == 19))
            left -= left > 0 and cycle % 20 == 19
            if ctx.get(dut.port.done):
                last_done = cycle
            if ctx.get(dut.port.fault):
                faults.append(cycle)
            assert not (cycle > 4 and ctx.get(dut.port.free))
            await ctx.tick()
        assert len(faults) == 1 and faults[0] > last_done
        assert left == 0

    simulate(dut, testbench)
