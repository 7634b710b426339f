"""The A-Core's scalar pipeline: every destination, operand and term; divisions; the queue to the parameter buffer."""

import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.microcode import ScalarDestination as To
from gradloom.contracts.microcode import ScalarFactor as Factor
from gradloom.contracts.microcode import ScalarOperand as Operand
from gradloom.contracts.microcode import ScalarTerm as Term
from gradloom.contracts.pipeline import dividers
from gradloom.rtl.acore.scalars import Scalars
from gradloom.verif.plain_arith import align, saturate, wrap

CONFIG = Config(name="scalars", clusters=2, wpus=1, cols=2, max_planes=4)
GROUP = CONFIG.group
WIDE = Config(name="wide", clusters=8, wpus=3, cols=8, max_planes=4)
"""A machine with four dividers."""


class Bench:
    """Answers the memories around the unit: ``entries[address][channel]``, ``sums[plane]``, ``norms[plane]``."""

    def __init__(self, ctx, dut: Scalars, rng: random.Random) -> None:
        self.ctx, self.dut, self.rng, self.group = ctx, dut, rng, dut.config.group
        channels = range(self.group)
        self.entries = [[rng.getrandbits(64) for _ in channels] for _ in range(16)]
        self.sums = [[rng.randint(-(1 << 42), (1 << 42) - 1) >> rng.randint(0, 40) for _ in channels] for _ in range(4)]
        self.norms = [[rng.getrandbits(rng.randint(1, 48)) for _ in channels] for _ in range(4)]
        self.ready, self.overflow = 1.0, 0
        self._pending: list[int | None] = [None] * 4
        self._shift = 0

    async def tick(self, op: dict[str, int] | None = None) -> None:
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.issue, op is not None)
        ctx.set(dut.shift, self._shift)
        self._shift = op.get("shift", 0) if op else self.rng.randint(-64, 63)
        ctx.set(dut.op, {name: value for name, value in (op or {}).items() if name != "shift"})
        ready = self.rng.random() < self.ready
        ctx.set(dut.writes.ready, ready)
        if ready and ctx.get(dut.writes.valid):
            channels = ctx.get(dut.writes.channel)
            assert channels.bit_count() == 1, "one channel at a time"
            self.entries[ctx.get(dut.writes.addr)][channels.bit_length() - 1] = ctx.get(dut.writes.data)
        self.overflow |= ctx.get(dut.overflow)
        entry = self.entries[op["entry"]] if op else [0] * self.group
        plane = op["plane"] if op else 0
        self._pending = [plane if op else None, *self._pending[:3]]
        await ctx.tick()
        ctx.set(dut.entry, sum(value << (64 * c) for c, value in enumerate(entry)))
        ctx.set(dut.sums, self.sums[plane])
        ctx.set(dut.norms, self.norms[self._pending[3]] if self._pending[3] is not None else [(1 << 48) - 1] * self.group)

    async def settle(self) -> None:
        for _ in range(2000):
            await self.tick()
            if not self.ctx.get(self.dut.busy):
                return
        raise AssertionError("busy for 2000 cycles")

    async def each(self, *, planes: int = 1, burst: int = 1, spacing: int = 0, **op: int) -> None:
        """The same scalar for all channels of ``planes`` planes: ``burst`` in successive cycles, then so many without one."""
        base = op.pop("entry", 0)
        for plane in range(planes):
            for channel in range(self.group):
                while not self.ctx.get(self.dut.room):
                    await self.tick()
                await self.tick({"channel": channel, "plane": plane, "entry": base + plane, **op})
                for _ in range(0 if (channel + 1) % burst else spacing):
                    await self.tick()

    def master(self, address: int, channel: int) -> tuple[int, int]:
        value = self.entries[address][channel]
        return wrap(value, 32), wrap(value >> 32, 32)


def simulate(body, seed: int, config: Config = CONFIG) -> None:
    dut = Scalars(config)

    async def testbench(ctx):
        await body(Bench(ctx, dut, random.Random(seed)))

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


def test_update_of_a_parameter():
    """R32 from a sum, velocity, then {velocity, master} as one entry; random operands over the whole range of 48 bits."""
    async def body(bench: Bench) -> None:
        ctx, dut, rng = bench.ctx, bench.dut, bench.rng
        for _ in range(40):
            inv, momentum, lm = rng.randint(1 << 15, 1 << 16), rng.getrandbits(8), rng.getrandbits(8)
            shift, rate = rng.randint(-50, -10), rng.randint(-20, 4)
            for name, value in (("inv", inv), ("momentum", momentum), ("lm", lm)):
                ctx.set(getattr(dut, name), value)
            bench.entries[3] = [rng.randint(-(1 << 47), (1 << 47) - 1) >> rng.randint(0, 40) & (1 << 64) - 1 for _ in range(GROUP)]
            for c in range(GROUP):
                bench.entries[0][c] = rng.getrandbits(32) << 32 | rng.getrandbits(27)
            expected = []
            for c in range(GROUP):
                p, v = bench.master(0, c)
                gradient = saturate(align(wrap(bench.entries[3][c]) * inv, shift), 32)
                v = saturate((momentum * v >> 8) + gradient, 32)
                p = saturate(p - align(v * lm, rate), 28)
                expected.append((v & 0xFFFFFFFF) << 32 | p & 0xFFFFFFFF)
            await bench.each(operand=Operand.ENTRY, entry=3, factor=Factor.INV, shift=shift, destination=To.R32)
            await bench.settle()
            await bench.each(operand=Operand.VELOCITY, factor=Factor.MOMENTUM, shift=-8, term=Term.R, destination=To.R32)
            await bench.settle()
            await bench.each(operand=Operand.R, factor=Factor.LM, shift=rate, minus=1, term=Term.MASTER, destination=To.PARAMETER)
            await bench.settle()
            assert bench.entries[0] == expected
        assert not bench.overflow

    simulate(body, 1)


def test_sums_saturate_with_a_fault():
    """A total is added to its entry; 64 bits, saturated."""
    async def body(bench: Bench) -> None:
        ctx, dut, rng = bench.ctx, bench.dut, bench.rng
        totals = [{"product": rng.randint(-(1 << 49), (1 << 49) - 1), "kept": rng.randint(-(1 << 37), (1 << 37) - 1),
                   "cut": rng.randint(-(1 << 37), (1 << 37) - 1)} for _ in range(GROUP)]
        ctx.set(dut.totals, totals)
        for number, name in enumerate(("product", "kept", "cut")):
            bench.entries[4] = [rng.getrandbits(60) for _ in range(GROUP)]
            expected = [value + totals[c][name] & (1 << 64) - 1 for c, value in enumerate(bench.entries[4])]
            await bench.each(operand=Operand.ENTRY, entry=4, total=number, term=Term.TOTAL, destination=To.ENTRY)
            await bench.settle()
            assert bench.entries[4] == expected
        assert not bench.overflow
        sign = totals[1]["kept"] > 0
        bench.entries[4][1] = (1 << 63) - 1 if sign else 1 << 63
        await bench.each(operand=Operand.ENTRY, entry=4, total=1, term=Term.TOTAL, destination=To.ENTRY)
        await bench.settle()
        assert bench.entries[4][1] == ((1 << 63) - 1 if sign else 1 << 63)
        assert bench.overflow

    simulate(body, 2)


def test_operand_beyond_48_bits():
    """What does not fit the multiplier is reported; without a factor an operand passes whole."""
    async def body(bench: Bench) -> None:
        ctx, dut = bench.ctx, bench.dut
        ctx.set(dut.inv, 1 << 15)
        for value, factor, fault in (((1 << 47) - 1, Factor.INV, 0), (-(1 << 47), Factor.INV, 0), (1 << 47, Factor.NONE, 0),
                                     (-(1 << 63), Factor.NONE, 0), (1 << 47, Factor.INV, 1), (-(1 << 47) - 1, Factor.INV, 1)):
            bench.overflow = 0
            bench.entries[5] = [value & (1 << 64) - 1] * GROUP
            await bench.each(operand=Operand.ENTRY, entry=5, factor=factor, destination=To.R)
            await bench.settle()
            assert bench.overflow == fault
            if not fault:
                assert [ctx.get(dut.r[c]) for c in range(GROUP)] == [value << 15 if factor else value] * GROUP

    simulate(body, 3)


def test_plane_registers():
    """scale and le from an entry, mean from a plane's sum, rounded to nearest, in either half."""
    async def body(bench: Bench) -> None:
        ctx, dut, rng = bench.ctx, bench.dut, bench.rng
        gamma = [rng.randint(-(1 << 15), (1 << 15) - 1) for _ in range(GROUP)]
        ctx.set(dut.gamma, gamma)
        ctx.set(dut.inv, inv := 40000)
        expected = {}
        for bank in (1, 0):
            ctx.set(dut.bank, bank)
            shift = rng.randint(-26, -16)
            await bench.each(planes=4, operand=Operand.Q, entry=8, factor=Factor.GAMMA, shift=-16, destination=To.SCALE)
            await bench.each(planes=4, operand=Operand.PLANE, factor=Factor.INV, shift=shift, term=Term.ONE, destination=To.MEAN)
            await bench.settle()
            for plane in range(4):
                for c in range(GROUP):
                    entry = bench.entries[8 + plane][c]
                    expected[bank, plane, c] = (gamma[c] * (entry & 0xFFFF) >> 16, entry >> 16 & 0xFF,
                                                saturate(align(bench.sums[plane][c] * inv, shift) + 1 >> 1, 24))
            bench.sums.reverse()
            bench.entries[8:12] = bench.entries[12:16]
        for (bank, plane, c), values in expected.items():
            ctx.set(dut.planes.at, plane | bank << 7)
            await ctx.tick()
            register = ctx.get(dut.planes.scalars[c])
            assert (register.scale, register.le, register.mean) == values

    simulate(body, 4)


@pytest.mark.parametrize("config", [CONFIG, WIDE], ids=lambda config: config.name)
def test_division(config):
    """{le, q} of n / (norm + epsilon) for every channel and plane, in the plane registers and in the entries unless dry."""
    async def body(bench: Bench) -> None:
        ctx, dut, rng = bench.ctx, bench.dut, bench.rng
        count = dividers(config)
        for dry in (0, 1):
            n, shift = rng.randint(1, 1 << 14), rng.randint(-20, 10)
            ctx.set(dut.n, n)
            ctx.set(dut.dry, dry)
            before = [list(entry) for entry in bench.entries]
            await bench.each(operand=Operand.N, shift=shift, destination=To.EPSILON)
            await bench.settle()
            await bench.each(planes=4, entry=8, burst=count, spacing=13 - count, operand=Operand.NORM, term=Term.EPSILON,
                             destination=To.DIVIDE)
            await bench.settle()
            for plane in range(4):
                ctx.set(dut.planes.at, plane)
                await ctx.tick()
                for c in range(bench.group):
                    total, le = bench.norms[plane][c] + max(1, align(n, shift)), 0
                    while (n << le) // total < 1 << 15:
                        le += 1
                    q = (n << le) // total
                    register = ctx.get(dut.planes.scalars[c])
                    assert (register.scale & 0xFFFF, register.le) == (q, le)
                    assert bench.entries[8 + plane][c] == (before[8 + plane][c] if dry else le << 16 | q)
        assert not bench.overflow

    simulate(body, 5, config)


@pytest.mark.parametrize("config", [CONFIG, WIDE], ids=lambda config: config.name)
def test_early(config):
    """How long a SCALAR that needs what an earlier one gives stays away: its first value until LATENCY - G cycles behind the last
    one of the earlier, what needs epsilon two cycles; others not at all."""
    async def body(bench: Bench) -> None:
        ctx, dut = bench.ctx, bench.dut

        async def cycles(**op: int) -> int:
            """Until the scalar is not early, beginning with the cycle after an issue."""
            ctx.set(dut.op, op)
            found = 0
            while ctx.get(dut.early):
                await bench.tick()
                ctx.set(dut.op, op)
                found += 1
            return found

        for writes, reads, expected in ((1, 1, dut.LATENCY - bench.group), (3, 3, dut.LATENCY - bench.group), (1, 2, 0), (0, 0, 0),
                                        (2, 0, 0), (0, 2, 0)):
            await bench.each(operand=Operand.N, r=writes, destination=To.R)
            assert await cycles(operand=Operand.R, r=reads, destination=To.ENTRY) == expected
            await bench.settle()
        await bench.tick({"channel": 0, "plane": 0, "entry": 0, "operand": Operand.N, "destination": To.EPSILON})
        assert await cycles(operand=Operand.N, term=Term.EPSILON, destination=To.R) == 2
        await bench.settle()

    simulate(body, 7, config)


def test_registers_of_a_channel():
    """Each keeps what was written to it; the lanes see register 0."""
    async def body(bench: Bench) -> None:
        ctx, dut, rng = bench.ctx, bench.dut, bench.rng
        written: dict[int, list[int]] = {}
        for r in (0, 1, 2, 3, 2, 0, 1):
            bench.entries[r] = [rng.getrandbits(64) for _ in range(GROUP)]
            written[r] = [wrap(value) for value in bench.entries[r]]
            await bench.each(operand=Operand.ENTRY, entry=r, r=r, destination=To.R)
        await bench.settle()
        assert [ctx.get(dut.r[c]) for c in range(GROUP)] == written[0]
        for r in range(4):
            await bench.each(operand=Operand.R, entry=8 + r, r=r, destination=To.ENTRY)
        await bench.settle()
        assert [[wrap(value) for value in bench.entries[8 + r]] for r in range(4)] == [written[r] for r in range(4)]

    simulate(body, 8)


def test_a_busy_parameter_buffer_loses_nothing():
    async def body(bench: Bench) -> None:
        ctx, dut, rng = bench.ctx, bench.dut, bench.rng
        ctx.set(dut.totals, [{"product": 5, "kept": 0, "cut": 0}] * GROUP)
        bench.ready = 0.1
        for _ in range(8):
            bench.entries[:14] = [[rng.getrandbits(60) for _ in range(GROUP)] for _ in range(14)]
            expected = [[value + 5 for value in entry] for entry in bench.entries[:14]]
            for entry in range(14):
                await bench.each(operand=Operand.ENTRY, entry=entry, term=Term.TOTAL, destination=To.ENTRY)
            await bench.settle()
            assert bench.entries[:14] == expected

    simulate(body, 6)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("destination", "bits"), [(To.R32, 32), (To.PARAMETER, 28), (To.MEAN, 25), (To.R, 64), (To.ENTRY, 64)])
def test_saturation_of_each_destination(destination, bits, sign):
    """One below the limit, the limit, one and much beyond it, in each channel alone: saturated at that width (a mean is half of
    25 bits), and a fault only where 64 bits are left."""
    async def body(bench: Bench) -> None:
        ctx, dut = bench.ctx, bench.dut
        edge = sign * (1 << bits - 1) - (sign > 0)
        for channel, beyond in itertools.product(range(GROUP), (-1, 0, 1, (1 << 62) - 1)):
            value = edge + sign * beyond
            # Of two terms, as an entry has 64 bits.
            parts = [sign * 7] * GROUP, [0] * GROUP
            parts[0][channel], parts[1][channel] = (edge, value - edge) if bits == 64 else (value, 0)
            bench.overflow = 0
            bench.entries[5], bench.entries[6] = ([part & (1 << 64) - 1 for part in row] for row in parts)
            await bench.each(operand=Operand.ENTRY, entry=6, destination=To.R, r=1)
            await bench.settle()
            await bench.each(operand=Operand.ENTRY, entry=5, term=Term.R, r=1, destination=destination)
            await bench.settle()
            if destination in (To.R, To.R32):
                await bench.each(operand=Operand.R, r=1, entry=7, destination=To.ENTRY)
                await bench.settle()
                found = [wrap(bench.entries[7][c]) for c in range(GROUP)]
            elif destination == To.MEAN:
                ctx.set(dut.planes.at, 0)
                await ctx.tick()
                found = [ctx.get(dut.planes.scalars[c]).mean for c in range(GROUP)]
            else:
                found = [wrap(bench.entries[5][c], 32 if destination == To.PARAMETER else 64) for c in range(GROUP)]
            expected = [sign * 7] * GROUP
            expected[channel] = saturate(value, bits)
            if destination == To.MEAN:
                expected = [t >> 1 for t in expected]
            assert found == expected, (channel, beyond)
            assert bench.overflow == int(bits == 64 and beyond > 0), (channel, beyond)

    simulate(body, 9)


def test_shifts_of_every_distance():
    """A product by all amounts of the field, up and down: floored to the right, saturated to the left without a fault."""
    async def body(bench: Bench) -> None:
        rng = bench.rng
        for shift in range(-64, 64):
            values = [rng.choice((1, -1, (1 << 63) - 1, -(1 << 63), 1 << rng.randrange(63))) for _ in range(GROUP)]
            bench.entries[5] = [value & (1 << 64) - 1 for value in values]
            await bench.each(operand=Operand.ENTRY, entry=5, shift=shift, destination=To.ENTRY)
            await bench.settle()
            assert [wrap(value) for value in bench.entries[5]] == [align(value, shift) for value in values], (shift, values)
        assert not bench.overflow

    simulate(body, 10)


def test_each_overflow_alone():
    """A factor's operand beyond 48 bits, or a sum beyond 64, of one channel alone, between good ones in successive cycles; with a
    term, a factor and a sign that could hide it."""
    async def body(bench: Bench) -> None:
        ctx, dut = bench.ctx, bench.dut
        ctx.set(dut.inv, 1 << 15)
        ctx.set(dut.momentum, 1)
        ctx.set(dut.lm, 1)
        ctx.set(dut.gamma, [1] * GROUP)
        factors = (Factor.INV, Factor.MOMENTUM, Factor.LM, Factor.GAMMA)
        for channel, factor, sign in itertools.product(range(GROUP), factors, (1, -1)):
            for extra in (0, 1):
                bench.overflow = 0
                bench.entries[5] = [0] * GROUP
                bench.entries[5][channel] = sign * ((1 << 47) - (sign > 0) + extra) & (1 << 64) - 1
                await bench.each(operand=Operand.ENTRY, entry=5, factor=factor, shift=-20, destination=To.MEAN)
                await bench.settle()
                assert bench.overflow == extra, (channel, factor, sign)
        for channel, minus, sign, extra in itertools.product(range(GROUP), (0, 1), (1, -1), (0, 1)):
            # entry +- product; the product of either sign is the largest that align gives, or the smallest.
            bench.overflow = 0
            edge = sign * (1 << 63) - (sign > 0)
            bench.entries[6] = [0] * GROUP
            bench.entries[6][channel] = edge & (1 << 64) - 1
            bench.entries[5] = [0] * GROUP
            bench.entries[5][channel] = (-1 if minus else 1) * sign * extra & (1 << 64) - 1
            await bench.each(operand=Operand.ENTRY, entry=6, destination=To.R, r=2)
            await bench.settle()
            assert not bench.overflow
            await bench.each(operand=Operand.ENTRY, entry=5, minus=minus, term=Term.R, r=2, destination=To.R)
            await bench.settle()
            assert bench.overflow == extra, (channel, minus, sign)

    simulate(body, 11)
