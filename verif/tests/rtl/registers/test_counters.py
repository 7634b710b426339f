"""Counters: cycles and windows by tag against dictionaries, commands of one window behind each other, errors, totals; machines with
fewer of them."""

import dataclasses
import random
from collections import Counter

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.regmap import PERF_MAC_USE, TOTALS
from gradloom.rtl.registers import counters
from gradloom.rtl.registers.counters import READ_PORTS, TABLE_WIDTH, WRITE_PORTS, Counters

SETTLE = 3
"""Cycles from the last window of a command to its sum in the table."""


def simulate(testbench, kept="all"):
    m = Module()
    m.domains.sync = ClockDomain()  # without counters nothing in it has a clock
    m.submodules.dut = dut = Counters(dataclasses.replace(PRESETS["nano"], counters=kept))
    sim = Simulator(m)
    sim.add_clock(1e-6)

    async def run(ctx):
        await testbench(ctx, dut)

    sim.add_testbench(run)
    sim.run()


async def cycle(ctx, dut, use=False, last=False, tag=0, drop=False):
    ctx.set(dut.macs.use, use)
    ctx.set(dut.macs.last, last)
    ctx.set(dut.macs.tag, tag)
    ctx.set(dut.drop, drop)
    await ctx.tick()
    ctx.set(dut.drop, 0)
    ctx.set(dut.macs.use, 0)
    ctx.set(dut.macs.last, 0)


async def command(ctx, dut, tag, windows):
    for left in range(windows, 0, -1):
        await cycle(ctx, dut, True, left == 1, tag)


async def table(ctx, dut, number, tags):
    """Entries of a table, but those that are 0."""
    found = {}
    ctx.set(dut.read.table, number)
    for tag in tags:
        ctx.set(dut.read.tag, tag)
        await ctx.tick().repeat(2)
        found[tag] = ctx.get(dut.read.value)
    return {tag: value for tag, value in found.items() if value}


@pytest.mark.parametrize("seed", range(4))
def test_windows_count_for_the_command_that_takes_them(seed):
    """Commands of few tags and of 1 to 4 windows, many of them without a cycle in between."""
    rng = random.Random(seed)
    expected = Counter()

    async def testbench(ctx, dut):
        for _ in range(2000):
            tag, windows = rng.choice([3, 3, 4, 510]), rng.choice([1, 1, 1, 2, 4])
            for left in range(windows, 0, -1):
                await cycle(ctx, dut, True, left == 1, tag)
                while rng.random() < 0.15:
                    await cycle(ctx, dut, tag=rng.choice([tag, 4, 5]))
            expected[tag] += windows
        await ctx.tick().repeat(SETTLE)
        assert await table(ctx, dut, PERF_MAC_USE, (3, 4, 5, 510)) == expected
        assert ctx.get(dut.read.totals[TOTALS.index("MAC_USE")]) == expected.total()

    simulate(testbench)


def test_tags_count_modulo_the_entries():
    async def testbench(ctx, dut):
        await command(ctx, dut, 512 + 7, 1)
        await command(ctx, dut, 7, 1)
        await command(ctx, dut, 0x8000 + 7, 3)
        await ctx.tick().repeat(SETTLE)
        assert await table(ctx, dut, PERF_MAC_USE, range(16)) == {7: 5}

    simulate(testbench)


@pytest.mark.parametrize("after", range(4))
def test_an_error_forgets_whole_commands(after):
    """``drop`` a few cycles after the last window of a command: its windows count all or not at all, and for no later command."""
    async def testbench(ctx, dut):
        await command(ctx, dut, 1, 5)
        await command(ctx, dut, 1, 1)
        await command(ctx, dut, 2, 3)
        await cycle(ctx, dut, True, False, 3)
        for n in range(after + 1):
            await cycle(ctx, dut, True, n == 0, 4 if n else 3, drop=n == after)
        expected = {1: 6, 2: 3} | ({3: 2} if after >= 2 else {})
        assert await table(ctx, dut, PERF_MAC_USE, range(8)) == expected
        await command(ctx, dut, 5, 2)
        await ctx.tick().repeat(SETTLE)
        assert await table(ctx, dut, PERF_MAC_USE, range(8)) == expected | {5: 2}

    simulate(testbench)


def test_cycles_count_for_the_command_that_ends():
    async def testbench(ctx, dut):
        expected = Counter()
        rng = random.Random(1)
        for _ in range(300):
            tag, cycles = rng.choice([1, 2]), rng.randrange(2, 6)
            ctx.set(dut.busy, 1 << Unit.CCORE)
            ctx.set(dut.tag[Unit.CCORE], tag)
            for left in range(cycles, 0, -1):
                ctx.set(dut.finish, (left == 1) << Unit.CCORE)
                await ctx.tick()
            expected[tag] += cycles
        ctx.set(dut.busy, 0)
        ctx.set(dut.finish, 0)
        await ctx.tick()
        assert await table(ctx, dut, Unit.CCORE, range(4)) == expected
        assert await table(ctx, dut, PERF_MAC_USE, range(4)) == {}
        assert ctx.get(dut.read.totals[TOTALS.index("BUSY_CCORE")]) == expected.total()

    simulate(testbench)


def test_clear():
    """``clearing``, which holds a program back, is 1 behind a clear alone, for a cycle for each entry: not from reset on."""
    async def testbench(ctx, dut):
        assert not ctx.get(dut.clearing)
        await command(ctx, dut, 9, 4)
        await ctx.tick().repeat(SETTLE)
        assert not ctx.get(dut.clearing)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for _ in range(2**dut.tag_width):
            assert ctx.get(dut.clearing)
            await ctx.tick()
        assert not ctx.get(dut.clearing)
        assert ctx.get(dut.read.totals[TOTALS.index("MAC_USE")]) == 0
        assert await table(ctx, dut, PERF_MAC_USE, range(16)) == {}
        await command(ctx, dut, 9, 1)
        await ctx.tick().repeat(SETTLE)
        assert await table(ctx, dut, PERF_MAC_USE, range(16)) == {9: 1}

    simulate(testbench)


WRAPS = [2**32 - 2, 2**32 - 1, 2**32, 2**48 - 2, 2**48 - 1]


@pytest.mark.parametrize("at", WRAPS)
def test_totals_carry_into_their_high_half_and_wrap_at_48_bits(at):
    """Beats of all ports in one cycle, cycles of each engine of the machine."""
    async def testbench(ctx, dut):
        present = [unit for unit in Unit if unit in dut.units]
        counted = {"READ_BEATS": 3, "WRITE_BEATS": 2, "MAC_USE": 1}
        counted |= {f"{kind}_{unit.name}": 1 for kind in ("BUSY", "WAIT") for unit in present}
        for n in range(len(TOTALS)):
            ctx.set(dut.read.totals[n], at)
        ctx.set(dut.read_beat, 0b1011)
        ctx.set(dut.write_beat, 0b11)
        ctx.set(dut.macs.use, 1)
        ctx.set(dut.busy, 2 ** len(Unit) - 1)
        ctx.set(dut.waiting, 2 ** len(Unit) - 1)
        await ctx.tick()
        for n, name in enumerate(TOTALS):
            assert ctx.get(dut.read.totals[n]) == (at + counted.get(name, 0)) % 2**48, name
    simulate(testbench)


def test_each_total_counts_its_own_events():
    """Of one input at a time, that of an engine that the machine lacks, too, one total grows or none."""
    inputs = [("busy", unit, f"BUSY_{unit.name}") for unit in Unit] + [("waiting", unit, f"WAIT_{unit.name}") for unit in Unit]
    inputs += [("read_beat", port, "READ_BEATS") for port in range(READ_PORTS)]
    inputs += [("write_beat", port, "WRITE_BEATS") for port in range(WRITE_PORTS)] + [("macs", 0, "MAC_USE")]

    async def testbench(ctx, dut):
        expected = Counter()
        for signal, bit, name in inputs:
            port = dut.macs.use if signal == "macs" else getattr(dut, signal)
            ctx.set(port, 1 << bit)
            await ctx.tick()
            ctx.set(port, 0)
            expected[name] += signal not in ("busy", "waiting") or bit in dut.units
            assert {name: ctx.get(total) for name, total in zip(TOTALS, dut.read.totals, strict=True)} == {
                name: expected[name] for name in TOTALS}, (signal, bit)

    simulate(testbench)


@pytest.mark.parametrize("at", [2**n - 2 for n in range(2, TABLE_WIDTH + 1)])
def test_entries_of_a_table_carry_through_all_36_bits(at, monkeypatch):
    """And wrap there; the other entries stay."""
    tables = []
    monkeypatch.setattr(counters, "Memory", lambda **options: tables.append(Memory(**options)) or tables[-1])
    dut = counters.TagTable(2)

    async def testbench(ctx):
        rows = tables[0].data
        for tag in range(4):
            ctx.set(rows[tag], at)
        ctx.set(dut.tag, 2)
        for cycles in (1, 1, 3):
            ctx.set(dut.count, 1)
            for left in range(cycles, 0, -1):
                ctx.set(dut.finish, left == 1)
                await ctx.tick()
            ctx.set(dut.finish, 0)
            ctx.set(dut.count, 0)
            await ctx.tick().repeat(2)
        for tag in range(4):
            ctx.set(dut.index, tag)
            await ctx.tick()
            assert ctx.get(dut.value) == (at + 5 if tag == 2 else at) % 2**TABLE_WIDTH

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


def test_an_error_forgets_the_cycles_of_every_engine():
    """Of commands that have not ended: the next one's of the engine are its own only."""
    async def testbench(ctx, dut):
        engines = sum(1 << unit for unit in dut.units)
        for tag in dut.tag:
            ctx.set(tag, 3)
        ctx.set(dut.busy, engines)
        await ctx.tick().repeat(5)
        ctx.set(dut.busy, 0)
        await cycle(ctx, dut, drop=True)
        for finish in (0, 0, engines):
            ctx.set(dut.busy, engines)
            ctx.set(dut.finish, finish)
            await ctx.tick()
        ctx.set(dut.busy, 0)
        ctx.set(dut.finish, 0)
        await ctx.tick().repeat(2)
        for unit in dut.units:
            assert await table(ctx, dut, unit, range(8)) == {3: 3}, unit

    simulate(testbench)


@pytest.mark.parametrize("sizes", [(255, 1), (256, 257), (1, 2049)])
def test_long_commands_add_to_their_tag(sizes):
    """And the cycles of a command that is dropped are those of none."""
    async def testbench(ctx, dut):
        ctx.set(dut.tag[Unit.STORE], 0x1234)
        for cycles in sizes:
            ctx.set(dut.busy, 1 << Unit.STORE)
            if cycles > 1:
                await ctx.tick().repeat(cycles - 1)
            ctx.set(dut.finish, 1 << Unit.STORE)
            await ctx.tick()
            ctx.set(dut.finish, 0)
            ctx.set(dut.busy, 0)
            await ctx.tick().repeat(2)
        ctx.set(dut.busy, 1 << Unit.STORE)
        await ctx.tick().repeat(9)
        await cycle(ctx, dut, drop=True)
        ctx.set(dut.finish, 1 << Unit.STORE)
        await ctx.tick()
        ctx.set(dut.finish, 0)
        ctx.set(dut.busy, 0)
        await ctx.tick().repeat(2)
        assert await table(ctx, dut, Unit.STORE, (0x34, 0x34 + 256, 0x1234 % 512)) == {0x1234 % 512: sum(sizes) + 1}

    simulate(testbench)


def test_tables_and_totals_of_absent_engines_read_0():
    """Whatever its inputs say."""
    async def testbench(ctx, dut):
        ctx.set(dut.busy, 2 ** len(Unit) - 1)
        ctx.set(dut.waiting, 2 ** len(Unit) - 1)
        for _ in range(5):
            ctx.set(dut.finish, 2 ** len(Unit) - 1)
            await ctx.tick()
            ctx.set(dut.finish, 0)
            await ctx.tick()
        ctx.set(dut.busy, 0)
        await ctx.tick().repeat(2)
        for unit in Unit:
            if unit != Unit.SEQ:
                there = unit in dut.units
                assert bool(await table(ctx, dut, unit, range(4))) == there
                for kind in ("BUSY", "WAIT"):
                    assert bool(ctx.get(dut.read.totals[TOTALS.index(f"{kind}_{unit.name}")])) == there
        for number in (0, PERF_MAC_USE + 1, 15):
            assert await table(ctx, dut, number, range(4)) == {}

    simulate(testbench)


@pytest.mark.parametrize("kept", ["totals", "none"])
def test_a_machine_with_fewer_counters(kept):
    """What it has counts as on any other; the rest is 0 and holds no program back, whatever happens."""
    async def testbench(ctx, dut):
        rng = random.Random(2)
        expected = Counter()
        for _ in range(200):
            busy, waiting, reads = rng.getrandbits(len(Unit)), rng.getrandbits(len(Unit)), rng.getrandbits(READ_PORTS)
            ctx.set(dut.busy, busy)
            ctx.set(dut.waiting, waiting)
            ctx.set(dut.finish, busy & rng.getrandbits(len(Unit)))
            ctx.set(dut.read_beat, reads)
            await cycle(ctx, dut, use=True, last=rng.random() < 0.3, tag=1)
            expected += Counter({f"BUSY_{unit.name}": busy >> unit & 1 for unit in dut.units})
            expected += Counter({f"WAIT_{unit.name}": waiting >> unit & 1 for unit in dut.units})
            expected += Counter(READ_BEATS=reads.bit_count(), MAC_USE=1)
        for signal in (dut.busy, dut.waiting, dut.finish, dut.read_beat):
            ctx.set(signal, 0)
        await ctx.tick().repeat(SETTLE)
        for n, name in enumerate(TOTALS):
            assert ctx.get(dut.read.totals[n]) == (expected[name] if kept == "totals" else 0), name
        for number in range(16):
            assert await table(ctx, dut, number, range(4)) == {}
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for _ in range(3):
            assert not ctx.get(dut.clearing)
            assert not any(ctx.get(total) for total in dut.read.totals)
            await ctx.tick()

    simulate(testbench, kept)
