"""A cluster: the A-Core's reads give the sums of the WPU that they ask for, and no other's."""

from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.rtl.ccore.cluster import Cluster

NONE = 3


def test_a_read_gives_the_sum_of_the_wpu_that_was_asked_for():
    """In either half, on either lane; 0 if the read was of the other half. An overflow is told by WPU."""
    config = Config(name="cluster", clusters=1, cols=1, wpus=3, psum_width=32, wg_width=32, psum_depth=16, max_planes=4)
    dut = Cluster(config)

    async def bench(ctx):
        control = dut.psum_control
        for half in range(2):
            # Bank 1 takes output 1 of each WPU: its sum in one cycle, its place in the next.
            ctx.set(control.fresh, 1)
            ctx.set(control.source[1], 1)
            for w in range(config.wpus):
                ctx.set(dut.sums[w][1], 100 * half + w + 1)
            await ctx.tick()
            ctx.set(control.we, 0b0010)
            ctx.set(control.write[1], 5)
            ctx.set(control.write_half, half)
            ctx.set(dut.mask, 0b111)
            await ctx.tick()
            ctx.set(control.we, 0)
        for half in range(2):
            for w in (0, 1, 2, NONE):
                for lane in range(2):
                    ctx.set(control.read[half][1], 5)
                    await ctx.tick()
                    ctx.set(control.out_bank[lane], 1)
                    ctx.set(dut.asked, [w, NONE] if half == 0 else [NONE, w])
                    await ctx.tick()
                    assert ctx.get(dut.psums[lane]) == (0 if w == NONE else 100 * half + w + 1), (half, w, lane)
        # The largest sum and one more, of one WPU.
        ctx.set(control.fresh, 1)
        ctx.set(control.half, 0)
        for w in range(config.wpus):
            ctx.set(dut.sums[w][1], 2**31 - 1)
        await ctx.tick()
        ctx.set(control.we, 0b0010)
        ctx.set(control.write_half, 0)
        ctx.set(control.read[0][1], 5)
        await ctx.tick()
        assert not ctx.get(dut.overflow)
        ctx.set(control.we, 0)
        await ctx.tick()
        ctx.set(control.fresh, 0)
        for w in range(config.wpus):
            ctx.set(dut.sums[w][1], int(w == 1))
        await ctx.tick()
        ctx.set(control.we, 0b0010)
        await ctx.tick()
        assert ctx.get(dut.overflow) == 0b010

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
