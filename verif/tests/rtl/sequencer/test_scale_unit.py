"""Exponent file, statistics and seeds against the rules of docs/machine.md, section 6."""

import random

from amaranth.sim import Simulator

from gradloom.rtl.sequencer.scale_unit import ScaleUnit
from gradloom.rtl.sequencer.seed_unit import SeedUnit
from gradloom.rtl.tensor_ports import ScaleOp
from gradloom.verif.program_case import next_exponent, tensor_seed

TENSORS = 40


def simulate(dut, testbench):
    sim = Simulator(dut)
    sim.add_clock(1e-8)
    sim.add_testbench(testbench)
    sim.run()


class ScaleDriver:
    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut

    async def operate(self, op, **values):
        ctx, dut = self.ctx, self.dut
        for name in ("tid", "target", "f", "value", "clear"):
            ctx.set(getattr(dut.request, name), values.get(name, 0))
        ctx.set(dut.request.op, op)
        ctx.set(dut.request.start, 1)
        for _ in range(40):
            if ctx.get(dut.request.done):
                break
            await ctx.tick()
        else:
            raise AssertionError("the operation never ends")
        await ctx.tick()
        ctx.set(dut.request.start, 0)
        return ctx.get(dut.request.result)

    async def exponent(self, tid):
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.exponents.en, 1)
        ctx.set(dut.exponents.tid, tid)
        await ctx.tick()
        ctx.set(dut.exponents.en, 0)
        return ctx.get(dut.exponents.e)

    async def host(self, tid):
        """What the host reads while no operation is under way; what the Sequencer's numbers are then does not count."""
        ctx, dut = self.ctx, self.dut
        for other in (dut.request.tid, dut.request.target):
            ctx.set(other, tid ^ 1)
        ctx.set(dut.host.tid, tid)
        await ctx.tick().repeat(2)
        return ctx.get(dut.host.e), ctx.get(dut.host.stat)

    async def observe(self, tid, value):
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.statistics.valid, 1)
        ctx.set(dut.statistics.tid, tid)
        ctx.set(dut.statistics.value, value)
        await ctx.tick()
        ctx.set(dut.statistics.valid, 0)


def test_scale_follows_the_rule_for_random_statistics():
    rng = random.Random(1)
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        driver = ScaleDriver(ctx, dut)
        cases = [(e, stat, f) for f in (8, 16) for e in (-64, -60, -12, 0, 120, 127)
                 for stat in (0, 1, 1 << 20, 1 << 62, (1 << 63) - 1, 1 << 63)]
        cases += [(rng.randint(-64, 127), rng.getrandbits(rng.randrange(64)), rng.randrange(32)) for _ in range(100)]
        for e, stat, f in cases:
            tid, target = rng.randrange(1, TENSORS), rng.randrange(1, TENSORS)
            await driver.operate(ScaleOp.SET, target=target, value=e)
            await driver.operate(ScaleOp.SET, target=tid, value=e, clear=1)
            await driver.observe(tid, stat)
            await driver.operate(ScaleOp.SCALE, tid=tid, target=target, f=f)
            assert await driver.exponent(target) == next_exponent(e, stat, f)
            assert (await driver.host(tid))[1] == 0

    simulate(dut, testbench)


def test_statistics_are_ored_in_successive_cycles_beside_an_operation():
    rng = random.Random(2)
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        driver = ScaleDriver(ctx, dut)
        expected = [0] * TENSORS
        ctx.set(dut.request.op, ScaleOp.SCALE)
        ctx.set(dut.request.tid, TENSORS - 1)
        ctx.set(dut.request.target, TENSORS - 1)
        for n in range(300):
            ctx.set(dut.request.start, n % 50 >= 20)
            tid, value = rng.randrange(TENSORS - 1) if n % 3 else 5, 1 << rng.randrange(64)
            if n % 7 == 6:
                await ctx.tick()
                continue
            await driver.observe(tid, value)
            expected[tid] |= value
        ctx.set(dut.request.start, 0)
        await ctx.tick().repeat(10)
        expected[0] = 0
        for tid in range(TENSORS):
            assert (await driver.host(tid))[1] == expected[tid]

    simulate(dut, testbench)


def test_number_0_and_numbers_beyond_the_file_read_0():
    """For all who read, and nothing is written there, nor where the number's low bits would be an entry."""
    dut = ScaleUnit(TENSORS)
    beyond = [0, TENSORS, *(5 + (1 << n) for n in range(6, 11)), 2047]

    async def testbench(ctx):
        driver = ScaleDriver(ctx, dut)
        for tid in range(1, TENSORS):
            await driver.operate(ScaleOp.SET, target=tid, value=100 - 7 * tid, clear=1)
            await driver.observe(tid, 1 << tid)
        for tid in beyond:
            await driver.operate(ScaleOp.SET, target=tid, value=-7, clear=1)
            await driver.observe(tid, 255)
            await driver.operate(ScaleOp.SCALE, tid=tid, target=tid)
            assert await driver.operate(ScaleOp.ADD, tid=tid, value=-30) == -30
            assert await driver.operate(ScaleOp.ADD, tid=tid, value=-30, clear=1) == -30
            assert await driver.exponent(tid) == 0
            assert (await driver.host(tid))[0] == 0
            for write in (dut.host.write, dut.host.clear):
                ctx.set(dut.host.value, 99)
                ctx.set(write, 1)
                await ctx.tick()
                ctx.set(write, 0)
            assert (await driver.host(tid))[0] == 0
        assert (await driver.host(0))[1] == 0
        for tid in range(1, TENSORS):
            assert await driver.exponent(tid) == 100 - 7 * tid
            assert await driver.host(tid) == (100 - 7 * tid, 1 << tid)

    simulate(dut, testbench)


def test_terms_of_a_shift_list_and_host_access():
    dut = ScaleUnit(TENSORS)

    async def testbench(ctx):
        driver = ScaleDriver(ctx, dut)
        ctx.set(dut.host.tid, 3)
        ctx.set(dut.host.value, -300)
        ctx.set(dut.host.write, 1)
        await ctx.tick()
        ctx.set(dut.host.write, 0)
        assert await driver.exponent(3) == -300
        assert (await driver.host(3))[0] == -300
        assert await driver.operate(ScaleOp.ADD, tid=3, value=10) == -290
        assert await driver.operate(ScaleOp.ADD, tid=3, value=10, clear=1) == 310
        await driver.observe(3, 99)
        ctx.set(dut.host.clear, 1)
        await ctx.tick().repeat(2)
        ctx.set(dut.host.clear, 0)
        assert (await driver.host(3)) == (-300, 0)

    simulate(dut, testbench)


def test_seeds_match_the_hash_and_take_at_most_40_cycles():
    rng = random.Random(3)
    dut = SeedUnit(TENSORS)

    async def testbench(ctx):
        for run_seed, step in ((0, 0), (1, 0), (0xFFFFFFFF, 7), (0x12345678, 1000),
                               (rng.getrandbits(32), rng.getrandbits(32))):
            ctx.set(dut.request.begin, 1)
            ctx.set(dut.run_seed, run_seed)
            ctx.set(dut.step, step)
            await ctx.tick()
            ctx.set(dut.request.begin, 0)
            # The step's part of the hash is ready long before the first command of a program can be read.
            await ctx.tick().repeat(30)
            for tid in (0, 1, 8, 13, TENSORS - 1):
                ctx.set(dut.request.tid, tid)
                ctx.set(dut.request.start, 1)
                cycles = 1
                while not ctx.get(dut.request.done):
                    await ctx.tick()
                    cycles += 1
                    assert cycles <= 40
                await ctx.tick()
                ctx.set(dut.request.start, 0)
                ctx.set(dut.read.en, 1)
                ctx.set(dut.read.tid, tid)
                await ctx.tick()
                assert ctx.get(dut.read.value) == tensor_seed(run_seed, step, tid)
        ctx.set(dut.read.tid, TENSORS)
        await ctx.tick()
        assert ctx.get(dut.read.value) == 0

    simulate(dut, testbench)


def test_a_step_that_begins_early_gives_its_own_seeds():
    dut = SeedUnit(TENSORS)

    async def testbench(ctx):
        for step in (3, 4):
            ctx.set(dut.step, step)
            ctx.set(dut.request.begin, 1)
            await ctx.tick()
            ctx.set(dut.request.begin, 0)
            await ctx.tick().repeat(2)
        ctx.set(dut.request.tid, 9)
        ctx.set(dut.request.start, 1)
        await ctx.tick().until(dut.request.done)
        ctx.set(dut.request.start, 0)
        ctx.set(dut.read.en, 1)
        ctx.set(dut.read.tid, 9)
        await ctx.tick()
        assert ctx.get(dut.read.value) == tensor_seed(0, 4, 9)

    simulate(dut, testbench)
