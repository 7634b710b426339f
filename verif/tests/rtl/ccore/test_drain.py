"""Drain: sums over WPUs reach the blocks' places in the weight-gradient buffer, and are added to what other images gave."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.rtl.ccore.drain import Drain

LATENCY = 3


@pytest.mark.parametrize(("group", "cols", "wpus"), [(1, 1, 1), (2, 2, 3), (4, 4, 2), (4, 2, 3), (8, 4, 1)])
def test_places_and_sums(group, cols, wpus):
    config = Config(name="drain", clusters=group, wpus=wpus, cols=cols, dw_depth=96)
    dut, rng, block = Drain(config, latency=LATENCY), np.random.default_rng(group), config.block_beats
    asks, lanes = block // config.laps, min(2 * config.laps, group)
    expected = np.zeros((config.dw_depth, min(2, group), group), np.int64)

    async def drain(ctx, rows, taps, base, gap, add, lap=0):
        registers = rng.integers(-2**40, 2**40, (PE_ROWS, PE_TAPS, group, wpus, cols))
        place, before, channels = base, expected.copy(), slice(lap * cols, (lap + 1) * cols)
        for r in range(PE_ROWS):
            for k in range(taps if rows >> r & 1 else 0):
                values = registers[r, k].sum(axis=1).reshape(block, min(2, group), cols)
                expected[place:place + block, :, channels] = values + (expected[place:place + block, :, channels] if add else 0)
                place += (gap + 1) * block
        for name, value in {"snap": 1, "drows": rows, "nk": taps, "dwbase": base, "dgap": gap, "dacc": add, "lap": lap}.items():
            ctx.set(dut.token[name], value)
        history, done = [[0] * asks] * (cols + 1), False
        # The A-Core reads in every cycle that is not the drain's: what was there before, or what is there now.
        reads: list[int | None] = [None] * 3
        while not done:
            busy = ctx.get(dut.read.request.wait)
            assert not busy or add
            if reads[0] is not None:
                found = [[ctx.get(dut.read.data[lane][c]) for c in range(group)] for lane in range(expected.shape[1])]
                assert found in (before[reads[0]].tolist(), expected[reads[0]].tolist())
            # Column c has what was asked for 2 + c cycles ago.
            for c, asked in enumerate(history[1:]):
                assert sum(ask.bit_count() for ask in asked) <= 1
                for m, w in np.ndindex(group, wpus):
                    if asked[m // lanes]:
                        r, k = divmod(asked[m // lanes].bit_length() - 1, PE_TAPS)
                        ctx.set(dut.d[m % lanes][w][c], int(registers[r, k, m, w, c]))
            history = [[ctx.get(dut.ask[b].as_value()) for b in range(asks)], *history[:-1]]
            done = ctx.get(dut.done)
            await ctx.tick()
            ctx.set(dut.token.snap, 0)
            ctx.set(dut.read.request.en, not busy)
            reads = [*reads[1:], None if busy else int(rng.integers(config.dw_depth))]
            ctx.set(dut.read.request.addr, reads[-1] or 0)
        ctx.set(dut.read.request.en, 0)

    async def bench(ctx):
        for lap in range(config.laps):
            await drain(ctx, 0b111, 3, 0, 0, 0, lap)
        for trial in range(6):
            taps, rows = int(rng.integers(1, 4)), int(rng.integers(1, 8))
            gap = 1 if taps * rows.bit_count() * 2 * block < config.dw_depth else 0
            base = trial * config.laps
            await drain(ctx, rows, taps, base, gap, 0, trial % config.laps)
            await drain(ctx, rows, taps, base, gap, 1, trial % config.laps)
            await drain(ctx, rows, taps, base, gap, 0, (trial + 1) % config.laps)
        ctx.set(dut.read.request.en, 1)
        for beat, values in enumerate(expected):
            ctx.set(dut.read.request.addr, beat)
            await ctx.tick().repeat(2)
            found = [[ctx.get(dut.read.data[lane][c]) for c in range(group)] for lane in range(len(values))]
            assert found == values.tolist(), beat

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("group", "cols", "wpus"), [
    (1, 1, 1), (2, 2, 3), (4, 2, 2),
    pytest.param(4, 2, 3, marks=pytest.mark.long("three WPUs with half the channels, as many channels with two WPUs"))])
def test_each_sum_overflows_alone(group, cols, wpus):
    """The sum of one lane and column leaves its width in one of several beats, by the WPUs or by what it is added to: a flag for
    that beat alone, not later than ``done``; the largest and the smallest sum that fit give none. Behind it others are good."""
    config = Config(name="drain", clusters=group, wpus=wpus, cols=cols, dw_depth=96, wg_width=40)
    dut, block, top = Drain(config, latency=LATENCY), config.block_beats, 2**39
    asks, lanes = block // config.laps, min(2 * config.laps, group)

    async def drain(ctx, terms: dict[tuple[int, int], list[int]], at: int, add: int) -> list[int]:
        """Cycles of a flag, counted from the beat's ask; ``terms`` of (lane, column) by WPU: in beat ``at``, else 0."""
        for name, value in {"snap": 1, "drows": 1, "nk": 3, "dwbase": 0, "dgap": 0, "dacc": add, "lap": 0}.items():
            ctx.set(dut.token[name], value)
        beats, history, flags, found = 0, [None] * (cols + 2), [], []
        while True:
            asked = any(ctx.get(dut.ask[b].as_value()) for b in range(asks))
            # Column c gets its value 2 + c cycles behind the ask.
            for c in range(cols):
                beat = history[1 + c]
                for lane, w in itertools.product(range(lanes), range(wpus)):
                    values = terms.get((lane, c)) if beat == at else None
                    ctx.set(dut.d[lane][w][c], values[w] if values else 0)
            history = [beats if asked else None, *history[:-1]]
            beats += asked
            if asked and beats - 1 == at:
                found.append(len(flags))
            flags.append(ctx.get(dut.ovf))
            assert not ctx.get(dut.fault)
            if ctx.get(dut.done):
                break
            await ctx.tick()
            ctx.set(dut.token.snap, 0)
        for _ in range(4):
            await ctx.tick()
            assert not ctx.get(dut.ovf), "an overflow behind done"
        assert beats == 3 * asks
        return [cycle - found[0] for cycle, flag in enumerate(flags) if flag]

    async def bench(ctx):
        # Behind its ask: cols + 3 cycles to the sum, and one to the flag.
        flagged = [cols + 4]
        for lane, c in itertools.product(range(lanes), range(cols)):
            place = (lane, c)
            for sign, at in ((1, 0), (-1, asks)):
                edge = sign * top - (sign > 0)
                for w in range(wpus):
                    alone = [edge if other == w else 0 for other in range(wpus)]
                    assert not await drain(ctx, {place: alone}, at, 0)
                    assert await drain(ctx, {place: [sign] + [0] * wpus}, at, 1) == flagged, (place, sign, w)
                assert not await drain(ctx, {place: [edge] + [0] * wpus}, at, 0)
                assert not await drain(ctx, {place: [0] * wpus}, at, 1), "the edge itself fits"
                assert not await drain(ctx, {place: [-sign] + [0] * wpus}, at, 1)
                if wpus > 1:
                    for w in range(wpus):
                        # Any two WPUs, or all of them, whose sum is the first that does not fit; and the last that does.
                        two = [sign * (top >> 1) if other != w or wpus == 2 else 0 for other in range(wpus)]
                        expected = [] if sign < 0 else flagged
                        assert await drain(ctx, {place: two}, at, 0) == expected, (place, sign, w)
                        two[(w + 1) % wpus] -= 1
                        assert await drain(ctx, {place: two}, at, 0) == ([] if sign > 0 else flagged), (place, sign, w)
                    assert await drain(ctx, {place: [edge] * wpus}, at, 0) == flagged, "far beyond"
                    assert await drain(ctx, {place: [edge] * wpus}, at, 1) == flagged
                    # Neighbours cancel out: the order in which they are added does not count.
                    assert not await drain(ctx, {place: [edge, -sign * (top - 1), edge - sign][:wpus]}, at, 0)
                # Everything is 0 again.
                assert not await drain(ctx, {}, at, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def test_beats_beyond_the_buffer():
    """They are dropped, each with a fault of its own, and those before them are written."""
    config = Config(name="drain", clusters=2, wpus=1, cols=2, dw_depth=20)
    dut = Drain(config, latency=LATENCY)

    async def bench(ctx):
        for base, gap in ((12, 0), (19, 0), (20, 0), (65532, 0), (4, 3), (0, 255)):
            for lane, c in itertools.product(range(2), range(2)):
                ctx.set(dut.d[lane][0][c], 1000 + base)
            for name, value in {"snap": 1, "drows": 7, "nk": 3, "dwbase": base, "dgap": gap, "dacc": 0}.items():
                ctx.set(dut.token[name], value)
            faults, done = 0, False
            while not done:
                faults += ctx.get(dut.fault)
                done = ctx.get(dut.done)
                await ctx.tick()
                ctx.set(dut.token.snap, 0)
            addresses = [(base + beat * (gap + 1)) % 65536 for beat in range(9)]
            assert faults == sum(address >= config.dw_depth for address in addresses), (base, gap)
            ctx.set(dut.read.request.en, 1)
            for beat in range(config.dw_depth):
                ctx.set(dut.read.request.addr, beat)
                await ctx.tick().repeat(2)
                assert (ctx.get(dut.read.data[0][0]) == 1000 + base) == (beat in addresses), (base, gap, beat)
            ctx.set(dut.read.request.en, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(("group", "cols"), [(2, 2), (4, 2)])
def test_nothing_is_written_or_told_behind_a_reset(group, cols):
    """One cycle of it at any moment of a drain that adds: beats that were asked for long enough before are written, no other one
    is, and the next drain may begin (docs/machine.md, section 7)."""
    config = Config(name="drain", clusters=group, wpus=1, cols=cols, dw_depth=96)
    dut, reset = Drain(config, latency=LATENCY), Signal()
    asks, lanes = config.block_beats // config.laps, min(2 * config.laps, group)
    expected = [0] * (9 * config.block_beats)

    async def bench(ctx):
        for lane, c in np.ndindex(lanes, cols):
            ctx.set(dut.d[lane][0][c], 1)
        for moment in range(2, 28):
            for name, value in {"snap": 1, "drows": 7, "nk": 3, "dwbase": 0, "dgap": 0, "dacc": 1}.items():
                ctx.set(dut.token[name], value)
            asked = []
            for cycle in range(moment):
                if cycle == moment - 1:
                    ctx.set(reset, 1)
                if any(ctx.get(dut.ask[b].as_value()) for b in range(asks)):
                    asked.append(cycle)
                await ctx.tick()
                ctx.set(dut.token.snap, 0)
            ctx.set(reset, 0)
            # The sum of a beat comes cols + 3 cycles behind its ask, and is written at the end of that cycle.
            for number, cycle in enumerate(asked):
                for beat in range(number * config.laps, (number + 1) * config.laps):
                    expected[beat] += cycle + cols + 3 < moment
            for _ in range(LATENCY + cols + 8):
                assert not any(ctx.get(dut.ask[b].as_value()) for b in range(asks)) and ctx.get(dut.ready), moment
                assert not any(ctx.get(signal) for signal in (dut.done, dut.read.request.wait, dut.ovf, dut.fault)), moment
                await ctx.tick()
        assert len(set(expected)) > 3
        ctx.set(dut.read.request.en, 1)
        for beat, value in enumerate(expected):
            ctx.set(dut.read.request.addr, beat)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.read.data[0][0]) == value, beat

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
