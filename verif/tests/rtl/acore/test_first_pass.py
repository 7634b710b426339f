"""First pass of the A-Core: sums of every plane while the next command is swept."""

import itertools
import random
from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal, Value
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.rtl.acore.first_pass import ChannelSums, FirstPass
from gradloom.rtl.acore.plane_ports import PLANE_BITS, TOTAL_BITS
from gradloom.verif.inside import inside
from gradloom.verif.plain_arith import decode

WIDTHS = {"planes": 8, "nb": 16, "xe": 12, "xodd": 1, "xsrc": 2, "sa0": 16, "sb0": 16, "sm0": 16}


@pytest.mark.parametrize(("group", "rival", "channels", "lanes"), [
    *((group, rival, 1, 2) for group, rival in [(1, 0.0), (2, 0.0), (4, 0.0), (2, 0.5), (2, 0.95), (4, 0.95)]),
    (1, 0.5, 1, 1), (4, 0.5, 4, 2), (2, 0.95, 2, 1), pytest.param(4, 0.0, 2, 1, marks=pytest.mark.long("two APUs of one lane"))])
def test_sums(group, rival, channels, lanes):
    """``channels`` and ``lanes``: of an APU, which takes a beat in turns."""
    config = Config(name="first", clusters=group, cols=group, wpus=1, max_planes=5, apu_channels=channels, apu_lanes=lanes)
    fields = SimpleNamespace(**{name: Signal(width, name=name) for name, width in WIDTHS.items()})
    dut = FirstPass(config, fields)
    rng = random.Random(group)

    async def bench(ctx):
        def sample(bits: int) -> int:
            return rng.choice((rng.getrandbits(bits), (1 << bits) - 1, 0))

        memories = {name: [sample(16 * group) for _ in range(128)] for name in ("aa", "ab", "am")}

        # A rival reads the streams first: mostly from address to address, now and then it rests; what it takes is not there.
        taken: dict[str, int] = {}
        offset, bases, ones = 0, {"aa": 0, "ab": 0}, (1 << 16 * group) - 1

        async def cycle() -> None:
            nonlocal offset, bases, taken
            if not rng.randrange(40):
                bases = {name: rng.randrange(2) for name in bases}
            reads = rng.random() < rival
            ctx.set(dut.sweep.reads, reads)
            odd = {name: (base + offset) & 1 for name, base in bases.items()}
            ctx.set(dut.sweep.aa_odd, odd["aa"])
            ctx.set(dut.sweep.ab_odd, odd["ab"])
            offset += reads
            now = {name: ctx.get(getattr(dut.reads, name).addr) for name in memories}
            await ctx.tick()
            for name, address in now.items():
                # The address was issued in the cycle before; where the rival issued one of the same parity, its beat comes.
                met = taken.get(name) == address & 1
                ctx.set(getattr(dut.reads, name).data, memories[name][address % 128] ^ met * ones)
            taken = odd if reads else {}

        async def check(expected) -> None:
            planes, totals = expected
            for turn in range(channels):
                if channels > 1:
                    ctx.set(dut.gradient_sums.channel, turn)
                    ctx.set(dut.gradient_sums.total_channel, turn)
                read = range(turn, group, channels)
                for plane, sums in enumerate(planes):
                    ctx.set(dut.gradient_sums.plane, plane)
                    await cycle()
                    assert [ctx.get(dut.gradient_sums.sums[c]) for c in read] == [sums[c] for c in read]
                for c in read:
                    total = ctx.get(dut.gradient_sums.totals[c])
                    assert (total.product, total.kept, total.cut) == totals[c]

        previous = None
        for _ in range(12):
            xe, py, xodd = rng.randint(1, 4), rng.randint(1, 4), rng.randint(0, 1)
            f = {"planes": rng.randint(1, 5), "nb": xe * py, "xe": xe, "xodd": xodd, "sa0": rng.randrange(40),
                 "sb0": rng.randrange(40), "sm0": rng.randrange(90), "xsrc": 2}
            for name, value in f.items():
                ctx.set(getattr(fields, name), value)
            keep = rng.randint(0, 1)
            ctx.set(dut.keep, keep)
            ctx.set(dut.start, 1)
            await cycle()
            ctx.set(dut.start, 0)
            assert not ctx.get(dut.ready)
            # The sums of the command before stay readable.
            if previous is not None:
                await check(previous)
            while not ctx.get(dut.ready):
                await cycle()
            if previous is not None:
                await check(previous)
            planes, totals = [], [[0, 0, 0] for _ in range(group)]
            for plane in range(f["planes"]):
                sums = [0] * group
                for beat in range(f["nb"]):
                    at = plane * f["nb"] + beat
                    bits = memories["am"][(f["sm0"] + plane * -(-f["nb"] // 8) + beat // 8) % 128]
                    for lane in range(2):
                        if xodd and lane and beat % xe == xe - 1:
                            continue
                        for c in range(group):
                            shift = 8 * (lane * group + c)
                            a, b = (decode(memories[name][(f[start] + at) % 128] >> shift & 255)
                                    for name, start in (("aa", "sa0"), ("ab", "sb0")))
                            bit = keep or bits >> ((beat % 8 * 2 + lane) * group + c) & 1
                            d = a if bit else 0
                            sums[c] += d * b
                            totals[c][0] += d * b
                            totals[c][1] += d
                            totals[c][2] += a - d
                planes.append(sums)
            previous = planes, [tuple(total) for total in totals]
            ctx.set(dut.take, 1)
            await cycle()
            ctx.set(dut.take, 0)
            await check(previous)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("lane", [0, 1, 2])
def test_sums_to_their_last_bit(lane):
    """Sums that go on from 2^k - 1, 2^k and their negatives, up to those of 128 planes of 65535 beats of the largest values: of
    products over a plane and over all, of values that are kept and of those that are cut; one lane, or both (2)."""
    dut = ChannelSums()
    lanes = (lane,) if lane < 2 else (0, 1)
    most = {"product": 128 * 65535 * 2 << 24, "kept": 128 * 65535 * 2 << 12, "cut": 128 * 65535 * 2 << 12}
    codes = {0x40: -4096, 0x3F: 4032, 1: 1, 0x7F: -1}

    async def bench(ctx):
        for k in range(6, 50):
            presets = (1 << k, (1 << k) - 1, -(1 << k))
            for preset, (a, b), bit in itertools.product(presets, ((0x40, 0x40), (0x40, 1), (0x7F, 1)), (0, 1)):
                plane = preset if abs(preset) < 65535 * 2 << 24 else 0
                totals = {name: preset if abs(preset) <= limit else 0 for name, limit in most.items()}
                # A register is set to what long planes would have left in it.
                ctx.set(dut.plane, plane)
                ctx.set(dut.totals, totals)
                ctx.set(dut.a, [a if i in lanes else 0x55 for i in range(2)])
                ctx.set(dut.b, [b if i in lanes else 0x2A for i in range(2)])
                ctx.set(dut.bit, 3 * bit)
                ctx.set(dut.lanes, sum(1 << i for i in lanes))
                ctx.set(dut.add, 0)
                await ctx.tick().repeat(4)
                ctx.set(dut.add, 1)
                await ctx.tick()
                ctx.set(dut.add, 0)
                product = codes[a] * codes[b] * bit * len(lanes)
                assert ctx.get(dut.plane) == plane + product, (preset, a, b)
                found = ctx.get(dut.totals)
                values = codes[a] * len(lanes)
                assert found.product == totals["product"] + product, (preset, a, b)
                assert found.kept == totals["kept"] + values * bit, (preset, a, b)
                assert found.cut == totals["cut"] + values * (1 - bit), (preset, a, b)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("group", [1, 2])
def test_large_sums_arrive_whole(group):
    """What the sums of a plane and of all planes have at the end is what the next stage reads, in every bit, in either bank."""
    config = Config(name="first", clusters=group, cols=group, wpus=1, max_planes=5)
    fields = SimpleNamespace(**{name: Signal(width, name=name) for name, width in WIDTHS.items()})
    dut, rng = FirstPass(config, fields), random.Random(group)
    simulator = Simulator(dut)
    of = dut.gradient_sums
    planes, totals = inside(simulator, "plane", PLANE_BITS), inside(simulator, "totals", len(Value.cast(of.totals[0])))
    widths = {"product": TOTAL_BITS, "kept": 38, "cut": 38}

    async def bench(ctx):
        for name, value in {"planes": 1, "nb": 12, "xe": 12, "xsrc": 2}.items():
            ctx.set(getattr(fields, name), value)
        for _ in range(12):
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            # The first beat's sums have begun anew, and the last one's have not come.
            await ctx.tick().repeat(10)
            for register in planes:
                ctx.set(register, rng.randrange(-(1 << PLANE_BITS - 1), 1 << PLANE_BITS - 1))
            for register in totals:
                ctx.set(register, sum(rng.getrandbits(width) << at for width, at in zip(widths.values(), (0, 50, 88), strict=True)))
            while not ctx.get(dut.ready):
                await ctx.tick()
            ctx.set(dut.take, 1)
            await ctx.tick()
            ctx.set(dut.take, 0)
            await ctx.tick()
            assert sorted(ctx.get(of.sums[c]) for c in range(group)) == sorted(ctx.get(register) for register in planes)
            found = [ctx.get(Value.cast(of.totals[c])) for c in range(group)]
            assert set(found) <= {ctx.get(register) for register in totals} and len(set(found)) == group

    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def test_what_a_plane_gives_at_most_fits():
    """Products of 2^24, two a beat, 65535 beats a plane and 128 planes; the memory of the planes' sums is as wide as they are."""
    plane = 65535 * 2 << 24
    assert plane.bit_length() < PLANE_BITS
    assert (128 * plane).bit_length() < TOTAL_BITS
