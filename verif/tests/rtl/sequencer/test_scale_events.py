"""Scale and seed unit with two events in one cycle, and with tensor numbers of all their bits."""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from gradloom.rtl.sequencer.scale_unit import ScaleUnit
from gradloom.rtl.sequencer.seed_unit import SeedUnit
from gradloom.rtl.tensor_ports import ScaleOp
from gradloom.verif.program_case import next_exponent, tensor_seed

TENSORS = 2048
"""All that fit the 11 bits of a tensor number; eta has 512."""


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(testbench)
    sim.run()


class Beside:
    """The A-Core beside an operation: in every cycle it may read an exponent and send a statistic, both of tensors that the
    operation does not touch (docs/machine.md, section 6)."""

    def __init__(self, ctx, dut, rng, share):
        self.ctx, self.dut, self.rng, self.share = ctx, dut, rng, share
        self.exponents, self.stats = dict.fromkeys(range(TENSORS), 0), dict.fromkeys(range(TENSORS), 0)
        self.tids = [0, 1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 2047]
        self.value = None

    async def tick(self, mine=(), sent=None):
        """One cycle; ``mine`` are the operation's tensors, ``sent`` a statistic (tensor, value) that comes for certain."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        others = [tid for tid in self.tids if tid not in mine]
        if sent is None and rng.random() < self.share:
            sent = rng.choice(others), rng.getrandbits(64) & rng.getrandbits(64)
        ctx.set(dut.statistics.valid, sent is not None)
        tid, value = sent or (rng.choice(self.tids), rng.getrandbits(64))
        ctx.set(dut.statistics.tid, tid)
        ctx.set(dut.statistics.value, value)
        if sent and tid:
            self.stats[tid] |= value
        read = rng.choice(others) if rng.random() < 0.5 else None
        ctx.set(dut.exponents.en, read is not None)
        ctx.set(dut.exponents.tid, read if read is not None else rng.choice(self.tids))
        await ctx.tick()
        if read is not None:
            self.value = self.exponents[read], read
        if self.value is not None and self.value[1] not in mine:
            assert ctx.get(dut.exponents.e) == self.value[0], f"exponent of {self.value[1]}"

    async def operate(self, op, **values):
        ctx, dut = self.ctx, self.dut
        mine = {values.get(name, 0) for name in ("tid", "target")} - {0}
        if self.value is not None and self.value[1] in mine:
            self.value = None
        for name in ("tid", "target", "f", "value", "clear"):
            ctx.set(getattr(dut.request, name), values.get(name, 0))
        ctx.set(dut.request.op, op)
        ctx.set(dut.request.start, 1)
        for _ in range(400):
            if ctx.get(dut.request.done):
                break
            await self.tick(mine)
        else:
            raise AssertionError("the operation never ends")
        result = ctx.get(dut.request.result)
        await self.tick(mine)
        ctx.set(dut.request.start, 0)
        assert not ctx.get(dut.request.done)
        return result

    async def check(self):
        """Every tensor as the host reads it."""
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.statistics.valid, 0)
        await ctx.tick().repeat(3)
        for tid in self.tids:
            ctx.set(dut.host.tid, tid)
            await ctx.tick().repeat(2)
            assert (ctx.get(dut.host.e), ctx.get(dut.host.stat)) == (self.exponents[tid], self.stats[tid]), tid


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_operations_beside_statistics_and_reads(share):
    rng = random.Random(share)
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        core = Beside(ctx, dut, rng, share)
        for n in range(250):
            op = rng.choice(list(ScaleOp))
            tid, target = rng.choice(core.tids), rng.choice(core.tids)
            f, value, clear = rng.choice([8, 16]), rng.randint(-300, 300), rng.randrange(2)
            if rng.random() < 0.5:
                # The operation's own statistic comes right before it.
                await core.tick(sent=(tid if op == ScaleOp.SCALE else target, 1 << rng.randrange(64)))
            result = await core.operate(op, tid=tid, target=target, f=f, value=value, clear=clear)
            if op == ScaleOp.ADD:
                assert result == (value - core.exponents[tid] if clear else value + core.exponents[tid])
            elif op == ScaleOp.SET:
                core.exponents[target] = value if target else 0
                if clear:
                    core.stats[target] = 0
            else:
                core.exponents[target] = next_exponent(core.exponents[target], core.stats[tid], f) if target else 0
                core.stats[tid] = 0
            if n % 50 == 49:
                await core.check()

    simulate(dut, testbench)


@pytest.mark.parametrize("quiet", range(1, 5))
@pytest.mark.parametrize("op", [ScaleOp.SET, ScaleOp.SCALE])
def test_a_clear_waits_for_a_free_cycle_of_the_statistics(op, quiet):
    """The A-Core sends something in every cycle but one, ``quiet`` cycles behind the start and every 8 later: nothing is lost."""
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        core = Beside(ctx, dut, random.Random(quiet), 0)
        await core.tick(sent=(5, 0xFFFF))
        for name, value in {"op": op, "tid": 5, "target": 5, "value": 33, "clear": 1, "f": 8, "start": 1}.items():
            ctx.set(getattr(dut.request, name), value)
        core.tids += [5, 1029]
        for n in range(100):
            if ctx.get(dut.request.done):
                break
            await core.tick({5}, None if n % 8 == quiet else (1029, 1 << n % 64))
        assert ctx.get(dut.request.done)
        await core.tick({5})
        ctx.set(dut.request.start, 0)
        core.exponents[5], core.stats[5] = (33 if op == ScaleOp.SET else next_exponent(0, 0xFFFF, 8)), 0
        await core.check()

    simulate(dut, testbench)


def test_set_clears_only_when_it_is_told_to():
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        core = Beside(ctx, dut, random.Random(1), 0)
        for clear in (0, 1):
            await core.tick(sent=(257, 12))
            await core.operate(ScaleOp.SET, target=257, tid=1, value=clear, clear=clear)
            core.exponents[257] = clear
            if clear:
                core.stats[257] = 0
            await core.check()

    simulate(dut, testbench)


@pytest.mark.parametrize("tensors", [40, 512, 2048])
def test_the_host_reaches_every_tensor_and_none_beyond(tensors):
    dut = ScaleUnit(tensors)
    numbers = [1, 2, 39, 40, 41, 255, 256, 257, 511, 512, 513, 2047]

    async def testbench(ctx):
        for tid in numbers:
            ctx.set(dut.host.tid, tid)
            ctx.set(dut.host.value, tid - 700)
            ctx.set(dut.host.write, 1)
            ctx.set(dut.statistics.valid, 1)
            ctx.set(dut.statistics.tid, tid)
            ctx.set(dut.statistics.value, tid)
            await ctx.tick()
            ctx.set(dut.host.write, 0)
            ctx.set(dut.statistics.valid, 0)
            await ctx.tick()
        for tid in numbers:
            ctx.set(dut.host.tid, tid)
            await ctx.tick().repeat(2)
            inside = tid < tensors
            assert ctx.get(dut.host.e) == (tid - 700 if inside else 0)
            if inside:
                assert ctx.get(dut.host.stat) == tid
            ctx.set(dut.exponents.tid, tid)
            ctx.set(dut.exponents.en, 1)
            await ctx.tick()
            ctx.set(dut.exponents.en, 0)
            assert ctx.get(dut.exponents.e) == (tid - 700 if inside else 0)

    simulate(dut, testbench)


@pytest.mark.parametrize("tensors", [40, 2048])
def test_seeds_of_all_numbers_beside_reads_of_others(tensors):
    """A read gives the seed of its tensor while another one is computed, and holds it; there is none beyond the file."""
    rng = random.Random(tensors)
    dut = SeedUnit(tensors)
    numbers = [tid for tid in (0, 1, 39, 40, 44, 255, 256, 257, 300, 511, 512, 1023, 1024, 2046, 2047)]
    steps = [(7, 0), (7, 255), (7, 256), (0xFFFFFFFF, 1), (0, 2**32 - 1), (0x80000000, 0x80000000), (3, 65536)]

    async def testbench(ctx):
        known = {}

        async def look():
            tid = rng.choice(list(known)) if known and rng.random() < 0.7 else None
            ctx.set(dut.read.en, tid is not None)
            ctx.set(dut.read.tid, tid if tid is not None else rng.choice(numbers))
            await ctx.tick()
            if tid is not None:
                look.value = known[tid]
            if look.value is not None:
                assert ctx.get(dut.read.value) == look.value

        look.value = None
        for run_seed, step in steps:
            known.clear()
            look.value = None
            ctx.set(dut.run_seed, run_seed)
            ctx.set(dut.step, step)
            ctx.set(dut.request.begin, 1)
            await look()
            ctx.set(dut.request.begin, 0)
            for tid in rng.sample(numbers, 6) if step else numbers:
                ctx.set(dut.request.tid, tid)
                ctx.set(dut.request.start, 1)
                for _ in range(100):
                    if ctx.get(dut.request.done):
                        break
                    await look()
                await look()
                ctx.set(dut.request.start, 0)
                known[tid] = tensor_seed(run_seed, step, tid) if tid < tensors else 0
        for tid in numbers:
            if tid in known:
                ctx.set(dut.read.en, 1)
                ctx.set(dut.read.tid, tid)
                await ctx.tick()
                assert ctx.get(dut.read.value) == known[tid]

    simulate(dut, testbench)


def test_a_set_without_clear_waits_for_no_statistic():
    """Though the A-Core sends one in every cycle."""
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        core = Beside(ctx, dut, random.Random(3), 0)
        for name, value in {"op": ScaleOp.SET, "target": 5, "value": 33, "start": 1}.items():
            ctx.set(getattr(dut.request, name), value)
        core.tids += [5, 1029]
        cycles = 0
        while not ctx.get(dut.request.done):
            # The statistics' read port is waited for before, whatever the operation is.
            await core.tick({5}, None if cycles < 2 else (1029, 1 << cycles % 64))
            cycles += 1
            assert cycles < 10
        await core.tick({5})
        ctx.set(dut.request.start, 0)
        core.exponents[5] = 33
        await core.check()

    simulate(dut, testbench)


def test_a_reset_takes_only_what_has_not_reached_the_memory():
    """Exponents and statistics survive it. A statistic that comes in its first cycle is lost, one that came before is kept; nothing
    of either goes to another tensor, such as number 0."""
    dut, reset = ScaleUnit(TENSORS), Signal()

    async def testbench(ctx):
        ctx.set(dut.statistics.valid, 1)
        for tid, value, first in ((6, 9, 0), (5, 1 << 63, 0), (6, 1 << 62, 1)):
            ctx.set(dut.statistics.tid, tid)
            ctx.set(dut.statistics.value, value)
            ctx.set(reset, first)
            await ctx.tick()
        ctx.set(dut.statistics.valid, 0)
        ctx.set(dut.statistics.value, 0)
        await ctx.tick()
        ctx.set(reset, 0)
        for tid, value in ((5, 1 << 63), (6, 9), (0, 0)):
            ctx.set(dut.host.tid, tid)
            await ctx.tick().repeat(3)
            assert ctx.get(dut.host.stat) == value, tid

    simulate(ResetInserter(reset)(dut), testbench)
