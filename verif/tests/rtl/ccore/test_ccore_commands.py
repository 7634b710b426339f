"""What the C-Core tells of its commands, cycle by cycle: which are legal, busy, the first fault, the drain's cycles, and resets."""

import dataclasses

import numpy as np
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Dest, Pattern
from gradloom.rtl.ccore.ccore import FAULT_ILLEGAL, CCore
from gradloom.verif.ccore.conv_fields import encode_conv

CONFIG = Config(name="test", clusters=1, cols=1, wpus=1, ibuf_depth=32, ebuf_depth=32, wbuf_depth=8, psum_depth=32, dw_depth=36)
FORWARD = {"pattern": Pattern.K3, "nr": 3, "nk": 3, "steps": 1, "units": 2, "upi": 2, "cols": 3, "yin": 4, "xe": 3, "sb": 1,
           "preload": 1}
GRADIENT = FORWARD | {"wg": 1, "clear": 1, "drain": 1}
ADDING = GRADIENT | {"clear": 0}


class Bench:
    """A C-Core in Amaranth's simulator; ``cycle`` observes every cycle."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.dut, self.reset = CCore(config), Signal()
        self.under_way = 0
        self.faults: list[int] = []
        self.waits = 0

    async def cycle(self, ctx, **inputs: int) -> None:
        """One cycle: ``busy`` from behind the start of a command to its ``done``, and no ``done`` without one."""
        dut = self.dut
        for name in ("start", "cmd"):
            if name in inputs:
                ctx.set(getattr(dut.port, name), inputs[name])
        assert ctx.get(dut.busy) == (self.under_way > 0)
        if code := ctx.get(dut.port.fault):
            self.faults.append(code)
        self.waits += ctx.get(dut.gradients.request.wait)
        done = ctx.get(dut.port.done)
        assert not done or self.under_way
        self.under_way += inputs.get("start", 0) - done
        await ctx.tick()
        ctx.set(dut.port.start, 0)

    async def start(self, ctx, fields: dict[str, int]) -> None:
        """As soon as there is room for one more, but not in the cycle behind a start."""
        await self.cycle(ctx)
        while not ctx.get(self.dut.port.free) or self.under_way == CCore.IN_FLIGHT:
            await self.cycle(ctx)
        await self.cycle(ctx, start=1, cmd=encode_conv(fields))

    async def settle(self, ctx) -> list[int]:
        """The faults up to the end of the last command and some cycles behind it."""
        while self.under_way:
            await self.cycle(ctx)
        for _ in range(4):
            await self.cycle(ctx)
        found, self.faults = self.faults, []
        return found

    async def fill(self, ctx, seed: int) -> None:
        """Codes of small values in all buffers."""
        rng, bus = np.random.default_rng(seed), self.dut.load[0]
        ctx.set(bus.valid, 1)
        for dest, depth in ((Dest.IBUF, CONFIG.ibuf_depth), (Dest.EBUF, CONFIG.ebuf_depth), (Dest.WBUF, CONFIG.wbuf_depth)):
            ctx.set(bus.dest, dest)
            for bank, address in np.ndindex(3, depth):
                ctx.set(bus.bank, bank)
                ctx.set(bus.addr, address)
                ctx.set(bus.data, int(rng.integers(1, 32)) | int(rng.integers(1, 32)) << 8)
                await self.cycle(ctx)
        ctx.set(bus.valid, 0)

    def run(self, process) -> None:
        simulator = Simulator(ResetInserter(self.reset)(self.dut))
        simulator.add_clock(1e-6)
        simulator.add_testbench(process)
        simulator.run()


def test_gradients_are_added_only_behind_gradients():
    """A command that adds to the accumulators is illegal behind a reset, whatever ``cmd`` still shows, and behind a command of
    another kind; it is legal behind one of gradients, also if an illegal command came in between: that one swept nothing."""
    bench = Bench()

    async def process(ctx):
        for between in (None, FORWARD, ADDING | {"units": 0}, FORWARD | {"units": 0}):
            await bench.start(ctx, ADDING)
            assert await bench.settle(ctx) == [FAULT_ILLEGAL]
            await bench.start(ctx, GRADIENT)
            if between:
                await bench.start(ctx, between)
            swept = between == FORWARD
            assert await bench.settle(ctx) == [FAULT_ILLEGAL] * (between is not None and not swept)
            for _ in range(2):
                await bench.start(ctx, ADDING)
                assert await bench.settle(ctx) == [FAULT_ILLEGAL] * swept, between
            await bench.start(ctx, GRADIENT)
            assert await bench.settle(ctx) == []
            ctx.set(bench.reset, 1)
            await bench.cycle(ctx)
            ctx.set(bench.reset, 0)

    bench.run(process)


def test_a_shared_row_lies_as_far_off_as_its_command_says():
    """The distance is the command's highest field: each bit of it that leads out of the buffer is a fault."""
    bench = Bench(dataclasses.replace(CONFIG, wpus=3))
    shared = FORWARD | {"units": 1, "upi": 1, "shared": 1, "scols": 1}

    async def process(ctx):
        await bench.fill(ctx, 1)
        for bit in range(8):
            await bench.start(ctx, shared | {"soff": 1 << bit})
            assert await bench.settle(ctx) == [FAULT_ILLEGAL] * (1 << bit >= CONFIG.ibuf_depth), bit

    bench.run(process)


def test_the_first_fault_while_commands_are_under_way():
    """A command with a fault in each window, and others behind it before it ends: one code. When none is under way any more the
    next one has its own."""
    bench = Bench()
    beyond = FORWARD | {"pbase": CONFIG.psum_depth}

    async def process(ctx):
        for commands in ([beyond], [beyond, beyond], [FORWARD, beyond, FORWARD, beyond], [beyond, FORWARD | {"units": 0}],
                         [GRADIENT | {"dwbase": CONFIG.dw_depth}, FORWARD | {"units": 0}], [GRADIENT, beyond, GRADIENT]):
            for fields in commands:
                await bench.start(ctx, fields)
            assert await bench.settle(ctx) == [FAULT_ILLEGAL], commands
            for fields in (FORWARD, GRADIENT):
                await bench.start(ctx, fields)
            assert await bench.settle(ctx) == []

    bench.run(process)


def test_the_drain_says_when_it_reads_the_gradients_itself():
    """``wait`` once for each beat that is added to, else never; reads in all cycles that do not follow it are right."""
    bench = Bench()
    dut, rng = bench.dut, np.random.default_rng(1)

    async def process(ctx):
        async def read(address: int) -> int:
            ctx.set(dut.gradients.request.en, 1)
            ctx.set(dut.gradients.request.addr, address)
            await bench.cycle(ctx)
            ctx.set(dut.gradients.request.en, 0)
            await bench.cycle(ctx)
            return ctx.get(dut.gradients.data[0][0])

        await bench.fill(ctx, 1)
        for base in (0, 9, 18, 27):
            await bench.start(ctx, GRADIENT | {"dwbase": base, "ebase": base % 4})
        assert await bench.settle(ctx) == []
        before = [await read(address) for address in range(36)]
        assert len(set(before)) > 18
        for factor, added in ((1, 0), (2, 1)):
            bench.waits = 0
            await bench.start(ctx, GRADIENT | {"dwbase": 9, "dacc": added, "ebase": 9 % 4})
            asked: list[int | None] = [None] * 3
            seen = []
            while bench.under_way:
                if asked[0] is not None:
                    seen.append((asked[0], ctx.get(dut.gradients.data[0][0])))
                waits = ctx.get(dut.gradients.request.wait)
                await bench.cycle(ctx)
                # Not where the drain writes.
                address = None if waits else int(rng.choice([*range(9), *range(18, 36)]))
                ctx.set(dut.gradients.request.en, address is not None)
                ctx.set(dut.gradients.request.addr, address or 0)
                asked = [*asked[1:], address]
            ctx.set(dut.gradients.request.en, 0)
            assert await bench.settle(ctx) == []
            assert bench.waits == 9 * added
            assert seen == [(address, before[address]) for address, _ in seen] and len(seen) > 18
            assert [await read(address) for address in range(36)] == [
                value * (factor if 9 <= address < 18 else 1) for address, value in enumerate(before)]

    bench.run(process)


def test_a_reset_ends_whatever_is_under_way():
    """One cycle of it, at any moment of commands that overlap: in the next cycle the core is free, tells nothing more, and computes
    as ever."""
    bench = Bench()
    dut = bench.dut

    async def process(ctx):
        await bench.fill(ctx, 2)

        async def outcome() -> tuple[list, list[int]]:
            """What a convolution and gradients behind it tell in each cycle, and the gradients."""
            story: list = []
            for fields in (FORWARD, GRADIENT):
                while not ctx.get(dut.port.free):
                    story.append(told(ctx))
                    await bench.cycle(ctx)
                await bench.cycle(ctx, start=1, cmd=encode_conv(fields))
                story.append(told(ctx))
                await bench.cycle(ctx)
            while bench.under_way:
                story.append(told(ctx))
                await bench.cycle(ctx)
            values = []
            for address in range(9):
                ctx.set(dut.gradients.request.addr, address)
                await bench.cycle(ctx)
                await bench.cycle(ctx)
                values.append(ctx.get(dut.gradients.data[0][0]))
            return story, values

        def told(ctx) -> list[int]:
            ports = (dut.macs.use, dut.macs.last, dut.gradients.request.wait)
            return [*(ctx.get(port) for port in ports), *(ctx.get(getattr(dut.port, name)) for name in
                                                                       ("done", "fault", "free"))]

        ctx.set(dut.gradients.request.en, 1)
        for _ in range(4):
            await bench.cycle(ctx)
        expected = await outcome()
        assert any(expected[1])
        for moment in (9, 16, 23, 30, 37, 45, 52):
            waiting = [GRADIENT | {"dacc": 1}, FORWARD | {"acc": 1, "pbase": 8}, GRADIENT | {"dwbase": 18}]
            for n in range(moment):
                given = waiting and n % 2 and ctx.get(dut.port.free)
                await bench.cycle(ctx, **({"start": 1, "cmd": encode_conv(waiting.pop(0))} if given else {}))
            ctx.set(bench.reset, 1)
            await bench.cycle(ctx)
            ctx.set(bench.reset, 0)
            bench.under_way = 0
            for _ in range(0 if moment % 2 else 30):
                assert told(ctx) == [0] * 5 + [1], moment
                await bench.cycle(ctx)
            assert await outcome() == expected, moment

    bench.run(process)
