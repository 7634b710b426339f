"""Partial sums: layouts, read-modify-write, masks, overflow, and the A-Core's reads of the other half."""

import dataclasses
import itertools

import numpy as np
import pytest
from amaranth.hdl import Module, Mux, ResetInserter, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.contracts.config import FAMILIES, Config
from gradloom.contracts.isa import Pattern
from gradloom.rtl.ccore.column_sequencer import array_control_layout
from gradloom.rtl.ccore.psum import PsumControl, PsumStore
from gradloom.rtl.core_reads import PsumRequest
from gradloom.verif.ccore.collisions import colliding

LATENCY = 5
WIDTH = 32
DEPTH = 20
CONFIG = Config(name="test", clusters=1, cols=1, wpus=2, psum_width=WIDTH, psum_depth=DEPTH)


class Pair(wiring.Component):
    """The control and the store of WPU 1 of 2."""

    def __init__(self, family: str) -> None:
        config = dataclasses.replace(CONFIG, family=family)
        self.control = PsumControl(config, latency=LATENCY)
        self.store = PsumStore(config)
        super().__init__({
            "token": In(array_control_layout(CONFIG)), "sums": In(self.store.sums.shape()),
            "read": In(PsumRequest()), "q": Out(ArrayLayout(signed(WIDTH), 2)), "ovf": Out(1), "fault": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.control, m.submodules.store = control, store = self.control, self.store
        half = Signal()
        wiring.connect(m, wiring.flipped(self.read), control.read)
        m.d.sync += half.eq(self.read.half)
        m.d.comb += [
            control.token.eq(self.token),
            store.control.eq(control.control), store.enable.eq(control.mask[1]), store.sums.eq(self.sums),
            *(self.q[lane].eq(Mux(half, store.q[lane][1], store.q[lane][0])) for lane in range(2)), self.ovf.eq(store.ovf),
            self.fault.eq(control.fault)]
        return m


def places(pattern: Pattern, addr: int, odd: int, group: int) -> dict[tuple[int, int], int]:
    """(bank, address) -> output of one window (docs/machine.md, section 4)."""
    if pattern == Pattern.K3:
        return {(2 * group + odd, addr): 1}
    if pattern == Pattern.BP2:
        return {(k, addr): k for k in range(4)}
    if pattern == Pattern.PAIR:
        return {(2 * group + k, addr): 1 + k for k in range(2)}
    return {((k + 2 * odd) % 4, addr + (k == 2)): 1 + k for k in range(3)}


def simulate(testbench, reset: Signal | None = None, *, family: str = "any") -> None:
    dut = Pair(family)
    with colliding():
        simulator = Simulator(dut if reset is None else ResetInserter(reset)(dut))
    simulator.add_clock(1e-6)

    async def run(ctx):
        await testbench(ctx, dut)
    simulator.add_testbench(run)
    simulator.run()


async def sweep(ctx, dut, pattern: Pattern, tokens: list[dict | None], observe=None) -> list[str]:
    """Issue tokens, give their sums ``LATENCY`` cycles later. Returns the events in the cycles after the last token."""
    ctx.set(dut.token.sel, 2 * pattern)
    events = []
    for cycle in range(len(tokens) + LATENCY + 3):
        token = tokens[cycle] if cycle < len(tokens) else None
        for name in ("pa", "odd", "group", "fresh", "mask", "half"):
            ctx.set(getattr(dut.token, name), token[name] if token else 0)
        ctx.set(dut.token.store, int(token is not None))
        due = tokens[cycle - LATENCY] if 0 <= cycle - LATENCY < len(tokens) else None
        for k in range(4):
            ctx.set(dut.sums[k], due["sums"][k] if due else 12345)
        for name in ("ovf", "fault"):
            if ctx.get(getattr(dut, name)):
                events.append((name, cycle))
        if observe:
            await observe(ctx)
        await ctx.tick()
    return events


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pattern", list(Pattern))
def test_read_modify_write(pattern, family):
    rng = np.random.default_rng(int(pattern))
    memory = [{}, {}]

    def tokens(*halves: int) -> list[dict | None]:
        stream, recent = [], [set(), set()]
        for _ in range(150):
            addr, odd, group = int(rng.integers(DEPTH - 1)), int(rng.integers(2)), int(rng.integers(2))
            if pattern == Pattern.K1:
                addr &= ~1
            where = set(places(pattern, addr, odd, group))
            # The same address at the earliest 3 cycles later.
            if where & (recent[-1] | recent[-2]) or rng.integers(4) == 0:
                stream.append(None)
                recent.append(set())
                continue
            recent.append(where)
            half = int(rng.choice(halves))
            token = {"half": half,
                     "pa": addr, "odd": odd, "group": group, "fresh": int(rng.integers(4) == 0), "mask": int(rng.integers(4)),
                     "sums": [int(x) for x in rng.integers(-2**20, 2**20, 4)]}
            stream.append(token)
            if token["mask"] & 2:
                for place, k in places(pattern, addr, odd, group).items():
                    old = 0 if token["fresh"] else memory[half].get(place, 0)
                    memory[half][place] = old + token["sums"][k]
        return stream

    async def testbench(ctx, dut):
        assert not await sweep(ctx, dut, pattern, tokens(0, 1))
        settled = dict(memory[0])
        reads = []

        async def observe(ctx):
            """Random reads of half 0 while half 1 is at work."""
            if reads:
                for lane, place in enumerate(reads[-1]):
                    assert ctx.get(dut.q[lane]) == settled.get(place, 0)
            banks = rng.permutation(4)[:2]
            pair = [(int(bank), int(rng.integers(DEPTH))) for bank in banks]
            reads.append(pair)
            ctx.set(dut.read.en, 1)
            ctx.set(dut.read.half, 0)
            for lane, (bank, addr) in enumerate(pair):
                ctx.set(getattr(dut.read, f"bank{lane}"), bank)
                ctx.set(getattr(dut.read, f"addr{lane}"), addr)

        await sweep(ctx, dut, pattern, tokens(1), observe)
        for half in (0, 1):
            for bank, addr in np.ndindex(4, DEPTH):
                ctx.set(dut.read.en, 1)
                ctx.set(dut.read.half, half)
                ctx.set(dut.read.bank0, bank)
                ctx.set(dut.read.addr0, addr)
                ctx.set(dut.read.bank1, bank ^ 1)
                await ctx.tick()
                assert ctx.get(dut.q[0]) == memory[half].get((bank, addr), 0)

    simulate(testbench, family=family)


@pytest.mark.parametrize("family", FAMILIES)
def test_first_steps_overwrite_whatever_the_a_core_reads(family):
    """Fresh sums and others by turns, while the A-Core reads any word of either half, but not of the half of a sum that goes on:
    sums are right, and so are words that the A-Core reads and nobody writes."""
    rng, written = np.random.default_rng(5), {}

    async def testbench(ctx, dut):
        stream = []
        for number in range(300):
            fresh, place = number % 6 < 3, (int(rng.integers(4)), number // 6 % 3 * 6 + number % 3)
            token = {"half": number // 12 % 2, "pa": place[1], "odd": place[0] & 1, "group": place[0] >> 1, "fresh": int(fresh),
                     "mask": 2, "sums": [int(x) for x in rng.integers(-2**20, 2**20, 4)]}
            if not fresh:
                token |= {name: stream[-6][name] for name in ("half", "pa", "odd", "group")}
            stream += [token, None]
            place = token["half"], 2 * token["group"] + token["odd"], token["pa"]
            written[place] = token["sums"][1] + (0 if fresh else written[place])

        kept = DEPTH - 1
        for half in range(2):
            sums = [100 * half + bank for bank in range(4)]
            token = {"half": half, "pa": kept, "odd": 0, "group": 0, "fresh": 1, "mask": 2, "sums": sums}
            assert not await sweep(ctx, dut, Pattern.BP2, [token])
        cycle, asked, checked = 0, None, 0

        async def observe(ctx):
            nonlocal cycle, asked, checked
            if asked:
                assert ctx.get(dut.q[0]) == asked[0]
                checked += 1
            # Its old value is read in the cycle before the sums come.
            own = stream[cycle + 1 - LATENCY] if 0 <= cycle + 1 - LATENCY < len(stream) else None
            half, bank, other = (int(rng.integers(limit)) for limit in (2, 4, 3))
            other += other >= bank
            reads = own is None or bool(own["fresh"]) or own["half"] != half
            addr = kept if rng.integers(2) else int(rng.integers(kept))
            for name, value in (("half", half), ("en", reads), ("bank0", bank), ("bank1", other), ("addr0", addr),
                                ("addr1", cycle % DEPTH)):
                ctx.set(getattr(dut.read, name), value)
            asked = [100 * half + bank] if reads and addr == kept else None
            cycle += 1

        assert not await sweep(ctx, dut, Pattern.K3, stream, observe)
        assert checked > 100
        for (half, bank, addr), value in written.items():
            for name, content in (("en", 1), ("half", half), ("bank0", bank), ("addr0", addr)):
                ctx.set(getattr(dut.read, name), content)
            await ctx.tick()
            assert ctx.get(dut.q[0]) == value, (half, bank, addr)

    simulate(testbench, family=family)


@pytest.mark.parametrize("sign", [1, -1])
def test_overflow(sign):
    limit = 2**(WIDTH - 1) - (sign > 0)

    async def testbench(ctx, dut):
        def token(value, **changes):
            return {"pa": 3, "odd": 0, "group": 0, "fresh": 0, "half": 0, "mask": 2, "sums": [value] * 4} | changes
        fills = [token(sign * limit, fresh=1), None, None, token(0)]
        assert not await sweep(ctx, dut, Pattern.BP2, fills)
        masked = [token(sign, mask=1)]
        assert not await sweep(ctx, dut, Pattern.BP2, masked), "a WPU without unit overflows silently"
        events = await sweep(ctx, dut, Pattern.K3, [token(sign)])
        assert [name for name, _ in events] == ["ovf"]
        ctx.set(dut.read.en, 1)
        ctx.set(dut.read.addr0, 3)
        await ctx.tick()
        assert ctx.get(dut.q[0]) == -sign * (2**(WIDTH - 1) - (sign < 0)), "sums wrap"

    simulate(testbench)


@pytest.mark.parametrize(("sign", "family"), [(1, "any"), (-1, "any"), (-1, "ecp5")])
def test_overflow_of_each_bank_alone(sign, family):
    """The sum of one bank, in either half and by each pattern that writes to it, with a good window before and behind it: one
    cycle of overflow, at its own time. The same sums one smaller give none, nor do banks that the window does not write."""
    limit = 2**(WIDTH - 1) - (sign > 0)

    async def testbench(ctx, dut):
        async def fill(half: int, values: list[int]) -> None:
            token = {"pa": 4, "odd": 0, "group": 0, "fresh": 1, "half": half, "mask": 2, "sums": values}
            assert not await sweep(ctx, dut, Pattern.BP2, [token, None, None])

        def window(value: int, outputs: list[int], half: int, **changes: int) -> dict:
            sums = [value if k in outputs else 0 for k in range(4)]
            return {"pa": 4, "odd": 0, "group": 0, "fresh": 0, "half": half, "mask": 2, "sums": sums} | changes

        for number, (pattern, odd, group, bank) in enumerate(itertools.product(Pattern, (0, 1), (0, 1), range(4))):
            half = number % 3 & 1
            # K1 writes the group in the next place to the address behind it.
            written = {place: k for place, k in places(pattern, 4, odd, group).items() if place[1] == 4}
            place = {"odd": odd, "group": group, "half": half}
            await fill(half, [sign * limit * (b == bank) for b in range(4)])
            output = written.get((bank, 4))
            own = [output] if output is not None else list(range(4))
            for step in (0, sign):
                tokens = [window(0, own, **place), None, None, window(step, own, **place), None, None, window(0, own, **place)]
                events = await sweep(ctx, dut, pattern, tokens)
                # Two cycles behind the sums of the fourth token.
                assert events == [("ovf", 3 + LATENCY + 2)] * (step != 0 and output is not None), (half, pattern, place, bank)

    simulate(testbench, family=family)


def test_address_beyond():
    async def testbench(ctx, dut):
        base = {"odd": 0, "group": 0, "half": 0, "fresh": 1, "mask": 3, "sums": [7] * 4}
        tokens = [base | {"pa": DEPTH - 1}, None, base | {"pa": DEPTH + 12}]
        events = await sweep(ctx, dut, Pattern.K3, tokens)
        assert [name for name, _ in events] == ["fault"]
        events = await sweep(ctx, dut, Pattern.K1, [base | {"pa": DEPTH - 1}])
        assert [name for name, _ in events] == ["fault"]
        for addr in range(DEPTH):
            ctx.set(dut.read.en, 1)
            ctx.set(dut.read.addr0, addr)
            await ctx.tick()
            assert ctx.get(dut.q[0]) == (7 if addr == DEPTH - 1 else 0)

    simulate(testbench)


def test_nothing_is_written_or_told_behind_a_reset():
    """One cycle of it, with a window in every stage and one beyond the buffer before them: docs/machine.md, section 7."""
    limit, reset = 2**(WIDTH - 1) - 1, Signal()

    async def testbench(ctx, dut):
        control = dut.control

        async def quiet(cycles: int) -> None:
            for cycle in range(cycles):
                assert not ctx.get(control.control.we) and not ctx.get(control.clash), cycle
                assert not ctx.get(dut.ovf) and not ctx.get(dut.fault), cycle
                await ctx.tick()

        # The A-Core reads the same half throughout: only a window that goes on tells of a clash.
        for name, value in (("store", 1), ("sel", 2 * Pattern.BP2), ("mask", 2)):
            ctx.set(getattr(dut.token, name), value)
        for k in range(4):
            ctx.set(dut.sums[k], limit)
        ctx.set(dut.read.en, 1)
        for moment in range(1, LATENCY + 4):
            ctx.set(dut.token.store, 1)
            for n in range(moment):
                ctx.set(dut.token.pa, 0 if n < moment - 1 else DEPTH)
                await ctx.tick()
            assert ctx.get(dut.fault)
            ctx.set(dut.token.pa, 0)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            ctx.set(dut.token.store, 0)
            await quiet(LATENCY + 4)
        # Without it they are.
        ctx.set(dut.token.store, 1)
        ctx.set(dut.token.pa, 0)
        await ctx.tick().repeat(LATENCY + 8)
        assert ctx.get(control.control.we) == 0b1111 and ctx.get(control.clash) and ctx.get(dut.ovf)

    simulate(testbench, reset)
