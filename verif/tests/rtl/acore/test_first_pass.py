"""First pass of the A-Core: sums of every plane while the next command is swept."""

import random
from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal
from amaranth.sim import Simulator

from gradloom.rtl.acore.first_pass import FirstPass
from gradloom.rtl.config import Config
from gradloom.verif.plain_arith import decode

WIDTHS = {"planes": 8, "nb": 16, "xe": 12, "xodd": 1, "xsrc": 2, "sa0": 16, "sb0": 16, "sm0": 16}


@pytest.mark.parametrize(("group", "rival"), [(1, 0.0), (2, 0.0), (4, 0.0), (2, 0.5), (2, 0.95), (4, 0.95)])
def test_sums(group, rival):
    config = Config(name="first", clusters=group, cols=group, wpus=1, max_planes=5)
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
            ctx.set(dut.taken, reads)
            odd = {name: (base + offset) & 1 for name, base in bases.items()}
            for name, parity in odd.items():
                ctx.set(getattr(dut, f"{name}_odd"), parity)
            offset += reads
            now = {name: ctx.get(getattr(dut, f"{name}_addr")) for name in memories}
            await ctx.tick()
            for name, address in now.items():
                # The address was issued in the cycle before; where the rival issued one of the same parity, its beat comes.
                met = taken.get(name) == address & 1
                ctx.set(getattr(dut, f"{name}_data"), memories[name][address % 128] ^ met * ones)
            taken = odd if reads else {}

        async def check(expected) -> None:
            planes, totals = expected
            for plane, sums in enumerate(planes):
                ctx.set(dut.plane, plane)
                await cycle()
                assert [ctx.get(dut.sums[c]) for c in range(group)] == sums
            for c in range(group):
                total = ctx.get(dut.totals[c])
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
