"""Drain: sums over WPUs reach the blocks' places in the weight-gradient buffer, and are added to what other images gave."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from gradloom.rtl.ccore.drain import Drain
from gradloom.rtl.config import PE_ROWS, PE_TAPS, Config

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
            busy = ctx.get(dut.busy)
            assert not busy or add
            if reads[0] is not None:
                found = [[ctx.get(dut.q[lane][c]) for c in range(group)] for lane in range(expected.shape[1])]
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
            ctx.set(dut.en, not busy)
            reads = [*reads[1:], None if busy else int(rng.integers(config.dw_depth))]
            ctx.set(dut.addr, reads[-1] or 0)
        ctx.set(dut.en, 0)

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
        ctx.set(dut.en, 1)
        for beat, values in enumerate(expected):
            ctx.set(dut.addr, beat)
            await ctx.tick().repeat(2)
            found = [[ctx.get(dut.q[lane][c]) for c in range(group)] for lane in range(len(values))]
            assert found == values.tolist(), beat

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
