"""Row and weight banks: what the load bus writes, where and when."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest
from gradloom.rtl.ccore.banks import RowBanks, WeightBanks, address_bits


def config_of(cols: int, wpus: int = 1, channels: int = 1) -> Config:
    return Config(name="test", clusters=cols, cols=cols, wpus=wpus, wbuf_depth=10, load_channels=channels)


def simulate(dut, testbench) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


async def put(ctx, bus, dest: Dest, bank: int, addr: int, sub: int, value: int) -> None:
    offer(ctx, bus, dest, bank, addr, sub, value)
    await ctx.tick()
    ctx.set(bus.valid, 0)


def offer(ctx, bus, dest: Dest, bank: int, addr: int, sub: int, value: int) -> None:
    for name, number in (("valid", 1), ("dest", int(dest)), ("bank", bank), ("addr", addr), ("sub", sub), ("data", value)):
        ctx.set(getattr(bus, name), number)


@pytest.mark.parametrize(("depth", "bits"), [(1, 1), (2, 1), (3, 2), (256, 8), (257, 9)])
def test_address_bits(depth, bits):
    assert address_bits(depth) == bits


@pytest.mark.parametrize(("cols", "wpus", "dest"), [(1, 1, Dest.IBUF), (2, 3, Dest.EBUF), (4, 2, Dest.IBUF)])
@pytest.mark.parametrize("depth", [13, 512 + 5, 2 * 512 + 200])
def test_row_banks(cols, wpus, dest, depth):
    """The last depths lie in two memories each."""
    banks = 3 * wpus
    dut = RowBanks(config_of(cols, wpus), depth=depth, dest=dest)
    rng = np.random.default_rng(7)
    content = {}

    async def testbench(ctx):
        for _ in range(200):
            target = Dest(int(rng.choice([Dest.IBUF, Dest.EBUF, Dest.WBUF, dest, dest])))
            bank, addr, value = int(rng.integers(banks)), int(rng.integers(depth)), int.from_bytes(rng.bytes(2 * cols))
            await put(ctx, dut.load[0], target, bank, addr, 0, value)
            if target == dest:
                content[bank, addr] = value
        # Readable when an engine starts one cycle after the Loader's done and reads in the cycle after that.
        bank, addr = next(iter(content))
        await put(ctx, dut.load[0], dest, bank, addr, 0, 1)
        content[bank, addr] = 1
        await ctx.tick()
        for place in [addr, *range(depth)]:
            for bank in range(banks):
                ctx.set(dut.addr[bank], place)
            await ctx.tick()
            for bank in range(banks):
                assert ctx.get(dut.q[bank]) == content.get((bank, place), 0)

    simulate(dut, testbench)


@pytest.mark.parametrize(("group", "cols"), [(4, 2), (8, 4), (16, 8)])
def test_weight_banks_of_two_laps(group, cols):
    """What a lap takes of a block: columns of it, with ``transpose`` rows, in quadrants one for each half of the clusters."""
    config = Config(name="test", clusters=group, cols=cols, wpus=1, wbuf_depth=10, dw_depth=9 * group)
    dut = WeightBanks(config)
    rng = np.random.default_rng(9)
    content = rng.integers(0, 256, (3, config.wbuf_depth, group, group), np.uint8)

    async def testbench(ctx):
        for bank, addr in np.ndindex(3, config.wbuf_depth):
            for sub in rng.permutation(config.block_beats):
                beat = int.from_bytes(content[bank, addr, 2 * sub:2 * sub + 2].tobytes(), "little")
                await put(ctx, dut.load[0], Dest.WBUF, bank, addr, int(sub), beat)
        await ctx.tick()
        for _ in range(200):
            lap, transpose, places = int(rng.integers(2)), int(rng.integers(2)), rng.integers(0, config.wbuf_depth, 3)
            ctx.set(dut.lap, lap)
            ctx.set(dut.transpose, transpose)
            for bank, addr in enumerate(places):
                ctx.set(dut.addr[bank], int(addr))
            await ctx.tick()
            taken = slice(lap * cols, (lap + 1) * cols)
            for bank, addr in enumerate(places):
                block = content[bank, addr]
                quadrants = [block[taken, half:half + cols] if transpose else block[half:half + cols, taken] for half in (0, cols)]
                expected = int.from_bytes(b"".join(quadrant.tobytes() for quadrant in quadrants), "little")
                assert ctx.get(dut.q[bank]) == expected

    simulate(dut, testbench)


@pytest.mark.parametrize("cols", [1, 2, 4, 8])
def test_weight_banks(cols):
    config = config_of(cols)
    dut = WeightBanks(config)
    rng = np.random.default_rng(8)
    content = {}

    async def testbench(ctx):
        for _ in range(40):
            bank, addr = int(rng.integers(3)), int(rng.integers(config.wbuf_depth))
            block = rng.bytes(2 * cols * config.block_beats)
            for sub in range(config.block_beats):
                beat = int.from_bytes(block[2 * cols * sub:2 * cols * (sub + 1)], "little")
                await put(ctx, dut.load[0], Dest.IBUF, bank, addr, sub, beat ^ 1)
                await put(ctx, dut.load[0], Dest.WBUF, bank, addr, sub, beat)
            content[bank, addr] = int.from_bytes(block, "little")
        await ctx.tick()
        for addr in range(config.wbuf_depth):
            for bank in range(3):
                ctx.set(dut.addr[bank], addr)
            await ctx.tick()
            for bank in range(3):
                assert ctx.get(dut.q[bank]) == content.get((bank, addr), 0) & (1 << 8 * cols * cols) - 1

    simulate(dut, testbench)


@pytest.mark.parametrize("dest", [Dest.WBUF, Dest.IBUF])
def test_channels_fill_different_banks_in_one_cycle(dest):
    """Three beats a cycle, each for a bank of its own or another memory, land where one would."""
    config = config_of(2, channels=3)
    depth = config.wbuf_depth
    dut = WeightBanks(config) if dest == Dest.WBUF else RowBanks(config, depth=depth, dest=dest)
    assert len(dut.load) == 3
    rng = np.random.default_rng(9)
    content = {}

    async def testbench(ctx):
        all_at_once = 0
        for _ in range(300):
            written = 0
            for bus, bank in zip(dut.load, rng.permutation(3), strict=True):
                target = Dest(int(rng.choice([dest, dest, dest, Dest.EBUF])))
                addr, value = int(rng.integers(depth)), int.from_bytes(rng.bytes(4))
                offer(ctx, bus, target, int(bank), addr, 0, value)
                if rng.random() < 0.2:
                    ctx.set(bus.valid, 0)
                elif target == dest:
                    content[int(bank), addr] = value
                    written += 1
            all_at_once += written == 3
            await ctx.tick()
        assert all_at_once > 30
        for bus in dut.load:
            ctx.set(bus.valid, 0)
        await ctx.tick()
        for addr in range(depth):
            for bank in range(3):
                ctx.set(dut.addr[bank], addr)
            await ctx.tick()
            for bank in range(3):
                assert ctx.get(dut.q[bank]) == content.get((bank, addr), 0)

    simulate(dut, testbench)
