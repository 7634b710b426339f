"""The weight network: block addresses, transposition, tap order, valid taps, and its handshake with the tokens."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest, Pattern
from gradloom.rtl.ccore.weight_network import WeightNetwork
from gradloom.verif.ccore.conv_fields import encode_conv
from gradloom.verif.ccore.conv_reference import decode_code
from gradloom.verif.inside import inside

DEPTH = 24


def reference(blocks: np.ndarray, fields: dict[str, int], step: int, r: int) -> np.ndarray:
    """Weights [cluster][tap][channel] of a PE row (docs/machine.md, section 4); ``blocks`` [bank][address][gout][gin]."""
    g = blocks.shape[2]
    taps = np.zeros((g, 3, g), np.int64)
    k1 = fields["pattern"] == Pattern.K1
    if step >= fields[f"rlim{r}"] if k1 else r >= fields["nr"]:
        return taps
    for k in range(fields["nk"]):
        if k1:
            bank, address = k, fields["wbase"] + r * fields["koff"] + step * fields["wstep"]
        else:
            line, bank = divmod(fields[f"wob{r}"] + (2 - k if fields["flip"] else k), 3)
            address = fields["wbase"] + step * fields["wstep"] + fields[f"woa{r}"] + line
        block = decode_code(blocks[bank, address])
        taps[:, k] = block.T if fields["transpose"] else block
    return taps


@pytest.mark.parametrize(("group", "cols"), [(1, 1), (2, 2), (4, 4), (4, 2)])
def test_weight_network(group, cols):
    config = Config(name="test", clusters=group, cols=cols, wpus=1, wbuf_depth=DEPTH)
    dut = WeightNetwork(config)
    rng = np.random.default_rng(cols)
    blocks = rng.integers(0, 256, (3, DEPTH, group, group), np.uint8)

    def random_fields() -> dict[str, int]:
        fields = {"pattern": int(rng.integers(4)), "transpose": int(rng.integers(2)), "flip": int(rng.integers(2)),
                  "nr": int(rng.integers(1, 4)), "nk": int(rng.integers(1, 4)), "steps": int(rng.integers(1, 5)),
                  "wstep": int(rng.integers(3)), "wbase": int(rng.integers(4, 7)), "koff": int(rng.integers(4))}
        for r in range(3):
            fields |= {f"wob{r}": int(rng.integers(3)), f"woa{r}": int(rng.integers(-4, 5)), f"rlim{r}": int(rng.integers(5))}
        if fields["pattern"] == Pattern.K1:
            fields["flip"] = 0
        first, last = sorted(int(lap) for lap in rng.integers(0, config.laps, 2))
        return fields | {"lap": first, "lap_end": last}

    def laps_of(fields: dict[str, int]) -> range:
        return range(fields["lap"], fields["lap_end"] + 1)

    async def check_commands(ctx, commands: list[dict[str, int]], eager: bool) -> None:
        """Start every command as soon as the network is free, swap when it is ready, or ``eager`` and sometimes later."""
        steps = [(fields, step, lap) for fields in commands for step in range(fields["steps"]) for lap in laps_of(fields)]
        loads, swaps, started, started_at = [], [], 0, -9
        for cycle in range(2000):
            start = started < len(commands) and cycle > started_at + 1 and ctx.get(dut.free)
            if start:
                ctx.set(dut.cmd, encode_conv(commands[started]))
                started, started_at = started + 1, cycle
            ctx.set(dut.start, int(start))
            swap = ctx.get(dut.ready) and (eager or rng.integers(0, 3) == 0)
            ctx.set(dut.swap, int(swap))
            if strobe := ctx.get(dut.wl):
                r = strobe.bit_length() - 1
                assert strobe == 1 << r
                fields, step, lap = steps[len(loads) // 3]
                loads.append((cycle, len(loads) // 3, r))
                expected = reference(blocks, fields, step, r)[:, :, lap * cols:(lap + 1) * cols]
                values = [[[ctx.get(dut.w[m][k * cols + c]) for c in range(cols)] for k in range(3)] for m in range(group)]
                assert np.array_equal(decode_code(np.array(values)), expected), fields
            if swap:
                swaps.append(cycle)
                if len(swaps) == len(steps):
                    break
            await ctx.tick()
        # A swap token reaches the array one cycle after the network's latency.
        arrivals = [cycle + WeightNetwork.LATENCY + 1 for cycle in swaps]
        for _ in range(4):
            await ctx.tick()
            cycle += 1
            ctx.set(dut.swap, 0)
            assert not ctx.get(dut.ready), "nothing is left to swap in"
            if strobe := ctx.get(dut.wl):
                loads.append((cycle, len(loads) // 3, strobe.bit_length() - 1))
        assert [(step, r) for _, step, r in loads] == [(step, r) for step in range(len(steps)) for r in range(3)]
        for cycle, step, _ in loads:
            assert cycle < arrivals[step], "shadow registers are whole before the swap"
            assert step == 0 or cycle >= arrivals[step - 1], "and not overwritten before the previous one"
        if eager:
            # Between two commands of one step each a start comes every 5 cycles.
            first = {sum(fields["steps"] * len(laps_of(fields)) for fields in commands[:i]) for i in range(len(commands))}
            assert all(distance == 3 or (i + 1 in first and distance <= 6) for i, distance in enumerate(np.diff(swaps)))

    async def faults_of(ctx, fields: dict[str, int]) -> int:
        ctx.set(dut.cmd, encode_conv(fields))
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        faults = 0
        for _ in range(8):
            ctx.set(dut.swap, ctx.get(dut.ready))
            faults += ctx.get(dut.fault)
            await ctx.tick()
        return faults

    async def testbench(ctx):
        ctx.set(dut.load[0].valid, 1)
        ctx.set(dut.load[0].dest, Dest.WBUF)
        for bank, address in np.ndindex(3, DEPTH):
            padded = blocks[bank, address].tobytes().ljust(2, b"\0")
            for sub in range(config.block_beats):
                ctx.set(dut.load[0].bank, bank)
                ctx.set(dut.load[0].addr, address)
                ctx.set(dut.load[0].sub, sub)
                ctx.set(dut.load[0].data, int.from_bytes(padded[2 * group * sub:2 * group * (sub + 1)], "little"))
                await ctx.tick()
        ctx.set(dut.load[0].valid, 0)
        for i in range(30):
            await check_commands(ctx, [random_fields() for _ in range(1 + i % 4)], eager=i % 3 == 0)
        assert not ctx.get(dut.fault)
        for tap_valid in (True, False):
            # Only a valid tap beyond the buffer is a fault: block 2 of a row that begins at the last address.
            fields = {"nr": 1, "nk": 3 if tap_valid else 2, "steps": 1, "wbase": DEPTH - 1, "wob0": 1}
            assert await faults_of(ctx, fields) == tap_valid
        for r, wob, nk in itertools.product(range(3), range(3), (1, 2, 3)):
            # Of one PE row alone the blocks from bank ``wob`` of the last address on, so that those behind bank 2 lie beyond; or
            # of an address beyond, whose low bits are good ones.
            place = {"nr": r + 1, "nk": nk, "steps": 1, f"wob{r}": wob, f"woa{r}": DEPTH - 1}
            assert await faults_of(ctx, place) == int(wob + nk > 3), place
            assert await faults_of(ctx, place | {f"woa{r}": 256}) == 1
            assert await faults_of(ctx, place | {f"woa{r}": -1}) == 1, place
        for k, r in itertools.product(range(1, 4), range(3)):
            # Kernel 1: a step of one PE row alone.
            place = {"pattern": Pattern.K1, "nk": k, "steps": 1, f"rlim{r}": 1, "nr": 3}
            for base, koff, beyond in ((DEPTH - 1, 0, False), (DEPTH, 0, True), (0, DEPTH, r > 0), (0, (DEPTH + 1) // 2, r > 1)):
                assert await faults_of(ctx, place | {"wbase": base, "koff": koff}) == beyond, (place, base, koff)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


def test_many_steps():
    """Steps around every power of two up to 65535, of kernel 1, whose PE rows have weights in so many of them: the counter is
    preset to the last three. Behind them the network is free."""
    config = Config(name="test", clusters=1, cols=1, wpus=1, wbuf_depth=DEPTH)
    dut = WeightNetwork(config)
    simulator = Simulator(dut)
    [steps] = inside(simulator, "step", 16)

    async def testbench(ctx):
        for name, value in {"valid": 1, "dest": Dest.WBUF, "bank": 0, "addr": 0, "data": 3}.items():
            ctx.set(getattr(dut.load[0], name), value)
        await ctx.tick()
        ctx.set(dut.load[0].valid, 0)
        for count in ((1 << k) + around for k in range(3, 17) for around in (-1, 0, 1) if (1 << k) + around < 65536):
            ctx.set(dut.cmd, encode_conv({"pattern": Pattern.K1, "nk": 1, "steps": count, "rlim0": count - 1, "rlim1": count,
                                          "rlim2": count >> 1}))
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(steps, count - 3)
            found = []
            for _ in range(24):
                ctx.set(dut.swap, ctx.get(dut.ready))
                if strobe := ctx.get(dut.wl):
                    found.append((strobe.bit_length() - 1, ctx.get(dut.w[0][0])))
                await ctx.tick()
            assert found == [(r, 3 * (r == 1 or (r == 0 and step < 2))) for step in range(3) for r in range(3)], count
            assert ctx.get(dut.free) and not ctx.get(dut.ready)

    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("cycles", range(1, 8))
def test_a_reset_loads_nothing(cycles):
    """So many cycles behind a start: no PE row takes weights behind it, until the next command does."""
    dut, reset = WeightNetwork(Config(name="test", clusters=1, cols=1, wpus=1, wbuf_depth=DEPTH)), Signal()

    async def testbench(ctx):
        ctx.set(dut.cmd, encode_conv({"pattern": Pattern.K3, "nr": 3, "nk": 3, "steps": 2}))
        for loaded in ([], [0, 1, 2]):
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            if not loaded:
                await ctx.tick().repeat(cycles)
                ctx.set(reset, 1)
                await ctx.tick()
                ctx.set(reset, 0)
            found = []
            for _ in range(8):
                if strobe := ctx.get(dut.wl):
                    found.append(strobe.bit_length() - 1)
                await ctx.tick()
            assert found == loaded
            assert ctx.get(dut.ready) == bool(loaded)

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
