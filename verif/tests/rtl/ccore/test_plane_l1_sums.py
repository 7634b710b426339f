"""First-pass sums: absolute values of random windows against plain addition, slots that WPUs leave out, reads, beyond the store."""

import dataclasses
import itertools

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.contracts.config import FAMILIES, Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl.ccore.abs_accumulator import AbsAccumulator
from gradloom.rtl.ccore.column_sequencer import array_control_layout
from gradloom.rtl.ccore.plane_l1_sums import SUM_BITS, PlaneSumControl, PlaneSumStore
from gradloom.rtl.core_reads import PlaneSumRequest

LATENCY = 4
WIDTH = 32
PLANES = 5
WPUS = 3


class Sums(wiring.Component):
    """The control and the stores of one cluster."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "token": In(array_control_layout(config)),
            "total": In(data.ArrayLayout(data.ArrayLayout(signed(config.psum_width), 4), config.wpus)),
            "read": In(PlaneSumRequest()), "q": Out(data.ArrayLayout(SUM_BITS, config.wpus)),
            "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.control = control = PlaneSumControl(self.config, latency=LATENCY)
        wiring.connect(m, wiring.flipped(self.read), control.request)
        m.d.comb += [control.token.eq(self.token), self.fault.eq(control.fault)]
        for w in range(self.config.wpus):
            m.submodules[f"store{w}"] = store = PlaneSumStore(self.config)
            m.d.comb += [store.control.eq(control.control[w]), store.total.eq(self.total[w]), store.read.eq(control.read[w])]
            # As the C-Core's sum over WPUs: the second cycle of a read.
            registered = Signal(SUM_BITS, name=f"q{w}")
            m.d.sync += registered.eq(store.q)
            m.d.comb += self.q[w].eq(registered)
        return m


def windows(rng: np.random.Generator, wpus: int, pattern: Pattern, half: int, units: int, upi: int, cols: int) -> list[dict | None]:
    """Tokens of the last step of a command, idle cycles between them, with the totals that are written per WPU and bank."""
    stream: list[dict | None] = []
    for group in range(-(-units // wpus)):
        members = range(group * wpus, min(units, (group + 1) * wpus))
        for j in range(cols):
            while rng.integers(4) == 0:
                stream.append(None)
            extreme = rng.integers(4) == 0
            totals = np.full((wpus, 4), -2 ** (WIDTH - 1)) if extreme else rng.integers(-2 ** 31, 2 ** 31, (wpus, 4))
            stream.append({
                "sel": 2 * pattern + j % 2, "half": half, "odd": j % 2, "group": group % 2, "mask": (1 << len(members)) - 1,
                "begin": int(group == 0 and j == 0), "slots": [unit // upi for unit in members],
                "opens": sum(1 << w for w, unit in enumerate(members) if j == 0 and unit % upi < wpus), "totals": totals})
    return stream


def add_up(stream: list[dict | None], pattern: Pattern, wpus: int) -> dict[tuple[int, int, int], int]:
    """(output group, slot, WPU) -> sum."""
    sums: dict[tuple[int, int, int], int] = {}
    for token in filter(None, stream):
        for w, slot in enumerate(token["slots"]):
            for k in range(3 if pattern == Pattern.K1 else 1):
                bank = (k + 2 * token["odd"]) % 4 if pattern == Pattern.K1 else 2 * token["group"] + token["odd"]
                sums[k, slot, w] = sums.get((k, slot, w), 0) + abs(int(token["totals"][w][bank]))
    return sums


def machine(wpus: int, family: str = "any") -> Config:
    return Config(name="test", clusters=1, cols=1, wpus=wpus, psum_width=WIDTH, max_planes=PLANES, family=family)


async def run(ctx, dut: Sums, rng: np.random.Generator, stream: list[dict | None]) -> int:
    """All tokens of a command. Returns the faults."""
    faults, wpus = 0, dut.config.wpus
    for cycle in range(len(stream) + LATENCY + 5):
        token = stream[cycle] if cycle < len(stream) else None
        ctx.set(dut.token.sum, int(token is not None))
        for name in ("sel", "half", "odd", "group", "mask", "begin", "opens"):
            ctx.set(getattr(dut.token, name), token[name] if token else int(rng.integers(2)))
        for w, slot in enumerate(token["slots"] if token else ()):
            ctx.set(dut.token.slot[w], slot)
        written = cycle - LATENCY - 1
        due = stream[written] if 0 <= written < len(stream) else None
        for w in range(wpus):
            for bank in range(4):
                ctx.set(dut.total[w][bank], int(due["totals"][w][bank]) if due else 99)
        faults += ctx.get(dut.fault)
        await ctx.tick()
    return faults


async def read(ctx, dut: Sums, half: int, k: int, plane: int) -> list[int]:
    request = dut.read
    for signal, value in ((request.en, 1), (request.half, half), (request.k, k), (request.plane, plane)):
        ctx.set(signal, value)
    await ctx.tick()
    ctx.set(request.en, 0)
    ctx.set(request.k, (k + 1) % 3)
    await ctx.tick()
    return [ctx.get(dut.q[w]) for w in range(dut.config.wpus)]


def simulate(dut: Sums, testbench, reset: Signal | None = None) -> None:
    simulator = Simulator(dut if reset is None else ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("pattern", [Pattern.K3, Pattern.K1])
@pytest.mark.parametrize("wpus", [1, 3])
def test_a_plane_in_several_commands(wpus, pattern):
    """Commands with ``sacc``, in whatever half, add to what came before; the last one's half holds the sum of all."""
    dut, rng = Sums(machine(wpus)), np.random.default_rng(10 + wpus)

    async def testbench(ctx):
        for halves in ((0, 1, 0), (1, 1), (0, 1, 1, 0, 1)):
            expected: dict[tuple[int, int, int], int] = {}
            for number, half in enumerate(halves):
                units = wpus + int(rng.integers(4))
                stream = windows(rng, wpus, pattern, half, units, units, int(rng.integers(1, 5)))
                if number:
                    stream = [token and token | {"begin": 0, "opens": 0} for token in stream]
                assert await run(ctx, dut, rng, stream) == 0
                for key, value in add_up(stream, pattern, wpus).items():
                    expected[key] = expected.get(key, 0) + value
            for k in range(3 if pattern == Pattern.K1 else 1):
                assert await read(ctx, dut, halves[-1], k, 0) == [expected[k, 0, w] for w in range(wpus)]

    simulate(dut, testbench)


@pytest.mark.parametrize(("wpus", "family"), [(1, "any"), (3, "any"), (1, "ecp5")])
def test_sums(wpus, family):
    dut = Sums(machine(wpus, family))
    rng = np.random.default_rng(wpus)

    async def testbench(ctx):
        expected: list[dict] = [{}, {}]
        kinds = [Pattern.K3, Pattern.K1]
        for trial in range(24):
            pattern, half = kinds[trial % 2], int(rng.integers(2))
            upi = int(rng.integers(1, 6))
            units = int(rng.integers(1, upi * PLANES + 1))
            stream = windows(rng, wpus, pattern, half, units, upi, int(rng.integers(1, 5)))
            assert await run(ctx, dut, rng, stream) == 0
            expected[half] = add_up(stream, pattern, wpus)
            for read_half in range(2):
                groups = 3 if any(k for k, _, _ in expected[read_half]) else 1
                for k, plane in np.ndindex(groups, PLANES):
                    values = await read(ctx, dut, read_half, k, plane)
                    assert values == [expected[read_half].get((k, plane, w), 0) for w in range(wpus)], (k, plane, read_half)
        beyond = windows(rng, wpus, Pattern.K3, 0, PLANES + 1, 1, 1)
        assert await run(ctx, dut, rng, beyond) == 1

    simulate(dut, testbench)


def test_every_bit_of_a_sum_is_stored():
    """Of each output group: sums of 2^k for every k of the 48 bits."""
    dut = Sums(dataclasses.replace(machine(1), psum_width=SUM_BITS, wg_width=SUM_BITS))

    async def testbench(ctx):
        rng = np.random.default_rng(0)
        for bit in range(SUM_BITS):
            token = {"sel": 2 * Pattern.K1, "half": 0, "odd": 0, "group": 0, "mask": 1, "begin": 1, "slots": [0], "opens": 1,
                     "totals": np.full((1, 4), -(1 << bit))}
            assert await run(ctx, dut, rng, [token]) == 0
            for k in range(3):
                assert await read(ctx, dut, 0, k, 0) == [1 << bit], (bit, k)

    simulate(dut, testbench)


def test_each_slot_beyond_is_a_fault():
    """Of a WPU that has a unit in a window that counts, whichever WPU that is; slots of others may be anything."""
    dut = Sums(machine(WPUS))

    async def testbench(ctx):
        for w, slot, summed, member in itertools.product(range(WPUS), (PLANES - 1, PLANES, 8, 128, 255), (0, 1), (0, 1)):
            for other in range(WPUS):
                ctx.set(dut.token.slot[other], slot if other == w else PLANES - 1)
            ctx.set(dut.token.mask, (1 << WPUS) - 1 if member else (1 << WPUS) - 1 & ~(1 << w))
            ctx.set(dut.token.sum, summed)
            await ctx.tick()
            assert ctx.get(dut.fault) == int(summed and member and slot >= PLANES), (w, slot, summed, member)

    simulate(dut, testbench)


def test_no_sum_is_left_behind_a_reset():
    """Nor told, of windows that were in any stage in that cycle: no store holds a sum of any slot (docs/machine.md, section 7)."""
    dut, reset = Sums(machine(WPUS)), Signal()

    async def testbench(ctx):
        for w in range(WPUS):
            for bank in range(4):
                ctx.set(dut.total[w][bank], 7)
        for moment in range(LATENCY + 4):
            ctx.set(dut.token.mask, (1 << WPUS) - 1)
            ctx.set(dut.token.sum, 1)
            ctx.set(dut.token.half, moment % 2)
            for cycle in range(moment + 1):
                for w in range(WPUS):
                    ctx.set(dut.token.slot[w], PLANES if cycle == moment else cycle % PLANES)
                await ctx.tick()
            assert ctx.get(dut.fault)
            for w in range(WPUS):
                ctx.set(dut.token.slot[w], 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.token.sum, 0)
            for _ in range(LATENCY + 4):
                assert not ctx.get(dut.fault)
                await ctx.tick()
            for half, plane in np.ndindex(2, PLANES):
                assert await read(ctx, dut, half, 0, plane) == [0] * WPUS, (moment, half, plane)

    simulate(dut, testbench, reset)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", [32, 48])
def test_magnitude_to_its_last_bit(width, family):
    """Sums of magnitudes around every power of two up to 2^48, of either value, up and down; it starts anew where told."""
    dut, rng = AbsAccumulator(width, family=family), np.random.default_rng(width)
    lowest = -2 ** (width - 1)

    async def testbench(ctx):
        # (value, second, open, add); sums are preset by adding 2^47 or less from a fresh start.
        cases = []
        for k in range(1, 49):
            for around in (-1, 0, 1):
                target, fresh = (1 << k) + around, 1
                total = 0
                while width == 48 and total < min(target, 2 ** 48):
                    part = min(target - total, 2 ** 47)
                    total += part
                    negative = part == 2 ** 47 or int(rng.integers(2))
                    cases.append((-part if negative else part, int(rng.integers(2)), fresh, 1))
                    fresh = 0
                cases += [(int(rng.integers(lowest, -lowest)), int(rng.integers(2)), 0, int(rng.integers(2)))]
        cases += [(lowest, second, fresh, 1) for second in (0, 1) for fresh in (1, 0, 0)]
        expected = 0
        for value, second, fresh, add in cases:
            for name, content in (("a", value), ("c", value), ("second", second), ("open", fresh)):
                ctx.set(getattr(dut, name), content)
            ctx.set(dut.a if second else dut.c, int(rng.integers(lowest, -lowest)))
            await ctx.tick()
            ctx.set(dut.add, add)
            for name in ("a", "c", "second", "open"):
                ctx.set(getattr(dut, name), 0)
            await ctx.tick()
            ctx.set(dut.add, 0)
            if add:
                expected = ((0 if fresh else expected) + abs(value)) % 2 ** 48
            assert ctx.get(dut.sum) == expected, (value, second, fresh, add)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
