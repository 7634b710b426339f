"""Start, end and faults: which of several faults counts, when each signal falls, and what the registers show of it."""

import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.engines import LOAD_UNITS, STORE_UNITS, Unit
from gradloom.contracts.regmap import ErrorCode, register
from gradloom.rtl.registers.control import Control

NEVER = 0
"""Of WATCHDOG."""


def simulate(testbench):
    dut = Control()
    sim = Simulator(dut)
    sim.add_clock(1e-6)

    async def run(ctx):
        await testbench(ctx, dut)

    sim.add_testbench(run)
    sim.run()


async def begin(ctx, dut, *, steps=1, watchdog=NEVER, hold=0):
    """Start a program; returns in its first cycle, or while it is held."""
    ctx.set(dut.idle, 1)
    ctx.set(dut.steps, steps)
    ctx.set(dut.watchdog, watchdog)
    ctx.set(dut.hold, hold)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    if not hold:
        assert (ctx.get(dut.running), ctx.get(dut.seq_start), ctx.get(dut.counting)) == (1, 1, 0)
        await ctx.tick()
        assert (ctx.get(dut.running), ctx.get(dut.seq_start), ctx.get(dut.counting)) == (1, 0, 1)


async def end(ctx, dut):
    """Through the flush and the reset of the engines; the fault or the end is in the present cycle."""
    await ctx.tick()
    for signal in (dut.fault, dut.read_error, dut.write_error):
        for n in range(len(signal)):
            ctx.set(signal[n], 0)
    for signal in (dut.seq_error, dut.seq_done, dut.overflow, dut.abort):
        ctx.set(signal, 0)
    assert (ctx.get(dut.halt), ctx.get(dut.flush), ctx.get(dut.engine_reset)) == (1, 1, 0)
    await ctx.tick()
    assert (ctx.get(dut.halt), ctx.get(dut.flush), ctx.get(dut.engine_reset), ctx.get(dut.running)) == (1, 1, 1, 1)
    await ctx.tick()
    assert (ctx.get(dut.halt), ctx.get(dut.flush), ctx.get(dut.engine_reset), ctx.get(dut.running)) == (0, 0, 0, 0)


def fields(value, name):
    return {bits.name: (value & bits.mask) >> bits.lsb for bits in register(name).fields}


def _cause(name, unit, *place):
    """(name, culprit, function that raises it with a code, codes of its own or None)."""
    def raise_it(ctx, dut, code):
        signal = getattr(dut, place[0])
        ctx.set(signal[place[1]] if len(place) > 1 else signal, code)

    return name, unit, raise_it


CAUSES = [
    _cause("sequencer", Unit.SEQ, "seq_error"),
    ("overflow", Unit.SEQ, lambda ctx, dut, code: ctx.set(dut.overflow, 1)),
    *(_cause(f"fault of {unit.name}", unit, "fault", unit) for unit in Unit if unit != Unit.SEQ),
    *(_cause(f"read {n}", unit, "read_error", n) for n, unit in enumerate(LOAD_UNITS)),
    *(_cause(f"write {n}", unit, "write_error", n) for n, unit in enumerate(STORE_UNITS)),
]
"""In the order of docs/machine.md, section 7."""
CODES = {"overflow": ErrorCode.MALFORMED_COMMAND}


@pytest.mark.parametrize("first", range(len(CAUSES)))
def test_of_several_faults_in_one_cycle_the_first_counts(first):
    """Each fault alone, with every single one behind it, and with all of them; tag and offset are those of its engine."""
    behind = [[], *([n] for n in range(first + 1, len(CAUSES))), list(range(first + 1, len(CAUSES)))]
    name, unit, _ = CAUSES[first]

    async def testbench(ctx, dut):
        ctx.set(dut.read_client, 1)
        for n in Unit:
            ctx.set(dut.tag[n], 0x1100 + n)
            ctx.set(dut.offset[n], 0x22220000 + n)
        for others in behind:
            await begin(ctx, dut)
            for n in (first, *others):
                CAUSES[n][2](ctx, dut, 0x40 + n)
            await end(ctx, dut)
            error = fields(ctx.get(dut.error), "ERROR")
            assert error == {"code": CODES.get(name, 0x40 + first), "engine": unit, "tag": 0x1100 + unit}, others
            assert ctx.get(dut.error_offset) == 0x22220000 + unit
            assert fields(ctx.get(dut.status), "STATUS") == {
                "idle": 1, "running": 0, "done": 0, "error": 1, "stopping": 0, "irq": 1}

    simulate(testbench)


@pytest.mark.parametrize(("client", "unit"), [(0, Unit.SEQ), (1, Unit.LOAD)])
def test_reads_of_the_program_are_the_sequencers(client, unit):
    """On channel 0 alone."""
    async def testbench(ctx, dut):
        ctx.set(dut.read_client, client)
        for n in Unit:
            ctx.set(dut.tag[n], n + 1)
        for channel, culprit in ((0, unit), (1, Unit.LOAD1), (2, Unit.LOAD2), (3, Unit.LOAD3)):
            await begin(ctx, dut)
            ctx.set(dut.read_error[channel], 0x30)
            await end(ctx, dut)
            assert fields(ctx.get(dut.error), "ERROR") == {"code": 0x30, "engine": culprit, "tag": culprit + 1}

    simulate(testbench)


def test_a_fault_counts_before_the_watchdog_the_watchdog_before_an_abort_and_all_before_the_end():
    async def testbench(ctx, dut):
        for fault, expected in ((0x33, 0x33), (0, ErrorCode.WATCHDOG)):
            await begin(ctx, dut, watchdog=4)
            await ctx.tick().repeat(3)
            ctx.set(dut.abort, 1)
            await ctx.tick()
            ctx.set(dut.write_error[1], fault)
            ctx.set(dut.seq_done, 1)
            await end(ctx, dut)
            assert ctx.get(dut.error) & 0xFF == expected
        await begin(ctx, dut)
        ctx.set(dut.abort, 1)
        await ctx.tick()
        ctx.set(dut.seq_done, 1)
        await end(ctx, dut)
        assert ctx.get(dut.error) & 0xFFF == ErrorCode.ABORTED
        assert ctx.get(dut.error_offset) == 0

    simulate(testbench)


def test_only_the_first_error_of_a_start_is_kept_and_the_next_start_forgets_it():
    async def testbench(ctx, dut):
        ctx.set(dut.busy, 0b101)
        ctx.set(dut.waiting, 0b10)
        ctx.set(dut.tag[3], 9)
        ctx.set(dut.offset[3], 0x77)
        await begin(ctx, dut)
        ctx.set(dut.fault[3], 0x11)
        await ctx.tick()
        # All is told as it was in the cycle of the fault.
        ctx.set(dut.fault[3], 0)
        ctx.set(dut.fault[2], 0x10)
        ctx.set(dut.busy, 0)
        ctx.set(dut.waiting, 0)
        ctx.set(dut.tag[3], 8)
        ctx.set(dut.offset[3], 0x66)
        ctx.set(dut.idle, 0)
        await ctx.tick()
        kept = ctx.get(dut.error), ctx.get(dut.error_offset), ctx.get(dut.error_state)
        assert kept == (9 << 16 | 3 << 8 | 0x11, 0x77, 0b10 << 16 | 0b101)
        await ctx.tick().repeat(4)
        ctx.set(dut.seq_error, 2)
        ctx.set(dut.idle, 1)
        await ctx.tick().repeat(4)
        ctx.set(dut.seq_error, 0)
        ctx.set(dut.fault[2], 0)
        assert (ctx.get(dut.error), ctx.get(dut.error_offset), ctx.get(dut.error_state)) == kept
        await begin(ctx, dut)
        assert (ctx.get(dut.error), ctx.get(dut.error_offset), ctx.get(dut.error_state)) == (0, 0, 0)
        assert fields(ctx.get(dut.status), "STATUS") == {
            "idle": 0, "running": 1, "done": 0, "error": 0, "stopping": 0, "irq": 0}
        ctx.set(dut.seq_done, 1)
        await end(ctx, dut)
        assert fields(ctx.get(dut.status), "STATUS") == {
            "idle": 1, "running": 0, "done": 1, "error": 0, "stopping": 0, "irq": 1}

    simulate(testbench)


def test_the_flush_lasts_until_every_manager_is_idle():
    """And a cycle longer, the cycle of the reset; both stop what runs, and a flush shows as stopping."""
    async def testbench(ctx, dut):
        await begin(ctx, dut)
        ctx.set(dut.idle, 0)
        ctx.set(dut.seq_done, 1)
        for _ in range(20):
            await ctx.tick()
            assert (ctx.get(dut.halt), ctx.get(dut.flush), ctx.get(dut.engine_reset), ctx.get(dut.irq)) == (1, 1, 0, 0)
            assert fields(ctx.get(dut.status), "STATUS")["stopping"] == 1
            assert ctx.get(dut.counting) == 1
        ctx.set(dut.idle, 1)
        await ctx.tick()
        assert (ctx.get(dut.halt), ctx.get(dut.flush), ctx.get(dut.engine_reset), ctx.get(dut.counting)) == (1, 1, 1, 0)
        assert fields(ctx.get(dut.status), "STATUS")["stopping"] == 0
        await ctx.tick()
        assert (ctx.get(dut.halt), ctx.get(dut.flush), ctx.get(dut.engine_reset), ctx.get(dut.running)) == (0, 0, 0, 0)

    simulate(testbench)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_watchdog(limit):
    """It ends the program ``limit`` cycles after the last progress; 0 is no limit."""
    async def testbench(ctx, dut):
        await begin(ctx, dut, watchdog=limit)
        for pause in (*range(min(limit, 5)), limit - 1):
            ctx.set(dut.progress, 0)
            for _ in range(pause):
                await ctx.tick()
            ctx.set(dut.progress, 1)
            await ctx.tick()
            assert ctx.get(dut.halt) == 0
        ctx.set(dut.progress, 0)
        await ctx.tick().repeat(limit)
        assert ctx.get(dut.halt) == 0
        await end(ctx, dut)
        assert ctx.get(dut.error) & 0xFFF == ErrorCode.WATCHDOG
        await begin(ctx, dut, watchdog=NEVER)
        await ctx.tick().repeat(300)
        assert ctx.get(dut.halt) == 0

    simulate(testbench)


def test_quiet_cycles_of_an_idle_machine_do_not_count():
    async def testbench(ctx, dut):
        ctx.set(dut.watchdog, 5)
        await ctx.tick().repeat(50)
        await begin(ctx, dut, watchdog=5)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.halt) == 0

    simulate(testbench)


def test_an_abort_is_kept_while_the_program_is_held_and_not_from_before_its_start():
    async def testbench(ctx, dut):
        ctx.set(dut.abort, 1)
        await ctx.tick()
        ctx.set(dut.abort, 0)
        await ctx.tick()
        await begin(ctx, dut, hold=1)
        for _ in range(5):
            await ctx.tick()
            assert (ctx.get(dut.running), ctx.get(dut.seq_start), ctx.get(dut.counting)) == (1, 0, 0)
        ctx.set(dut.hold, 0)
        await ctx.delay(1e-9)
        assert ctx.get(dut.seq_start)
        await ctx.tick().repeat(10)
        assert ctx.get(dut.halt) == 0
        ctx.set(dut.seq_done, 1)
        await end(ctx, dut)
        await begin(ctx, dut, hold=1)
        ctx.set(dut.abort, 1)
        await ctx.tick()
        ctx.set(dut.abort, 0)
        await ctx.tick().repeat(7)
        ctx.set(dut.hold, 0)
        await ctx.tick()
        assert ctx.get(dut.counting)
        await end(ctx, dut)
        assert ctx.get(dut.error) & 0xFFF == ErrorCode.ABORTED

    simulate(testbench)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 255, 256, 257])
def test_last_step(steps):
    """It is the last one behind STEPS - 1 loops; 0 steps are one."""
    async def testbench(ctx, dut):
        await begin(ctx, dut, steps=steps)
        for step in range(max(1, steps)):
            assert ctx.get(dut.last_step) == (step == max(1, steps) - 1), step
            ctx.set(dut.loop, 1)
            await ctx.tick()
            ctx.set(dut.loop, 0)
            await ctx.tick()

    simulate(testbench)


@pytest.mark.parametrize("at", [0, 2**32 - 2, 2**48 - 2])
def test_cycles(at):
    """From the first cycle of the program to the last one of its flush, modulo 2^48; ``clear`` goes before."""
    async def testbench(ctx, dut):
        await ctx.tick().repeat(3)
        assert ctx.get(dut.cycles) == 0
        ctx.set(dut.cycles, at)
        await begin(ctx, dut)
        await ctx.tick().repeat(4)
        ctx.set(dut.seq_done, 1)
        await end(ctx, dut)
        assert ctx.get(dut.cycles) == (at + 6) % 2**48
        await ctx.tick().repeat(3)
        assert ctx.get(dut.cycles) == (at + 6) % 2**48
        await begin(ctx, dut)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        await ctx.tick()
        assert ctx.get(dut.cycles) == 1

    simulate(testbench)


def test_interrupt():
    """It needs its enable, stays until it is acknowledged, and a start takes it back; other writes do not."""
    async def testbench(ctx, dut):
        for enable, by_start in itertools.product((0, 1), (0, 1)):
            ctx.set(dut.irq_enable, enable)
            await begin(ctx, dut)
            ctx.set(dut.seq_done, 1)
            await ctx.tick().repeat(2)
            ctx.set(dut.seq_done, 0)
            assert not ctx.get(dut.irq)
            await ctx.tick()
            for _ in range(3):
                assert ctx.get(dut.irq) == enable
                assert fields(ctx.get(dut.status), "STATUS")["irq"] == 1
                await ctx.tick()
            if by_start:
                await begin(ctx, dut)
                ctx.set(dut.seq_done, 1)
                assert not ctx.get(dut.irq)
                await end(ctx, dut)
            ctx.set(dut.irq_acknowledge, 1)
            await ctx.tick()
            ctx.set(dut.irq_acknowledge, 0)
            assert not ctx.get(dut.irq) and not fields(ctx.get(dut.status), "STATUS")["irq"]

    simulate(testbench)


def test_a_start_while_running_changes_nothing():
    rng = random.Random(1)

    async def testbench(ctx, dut):
        await begin(ctx, dut, steps=3)
        for _ in range(20):
            ctx.set(dut.start, rng.randrange(2))
            ctx.set(dut.steps, 1)
            await ctx.tick()
            assert (ctx.get(dut.running), ctx.get(dut.seq_start), ctx.get(dut.last_step)) == (1, 0, 0)

    simulate(testbench)
