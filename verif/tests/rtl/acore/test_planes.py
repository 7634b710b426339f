"""Position within the planes of a RUN: element indices of weight gradients, tile by tile and tiles beside each other."""

import itertools
import random
from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal, signed
from amaranth.sim import Simulator

from gradloom.rtl.acore.planes import PlaneWalk
from gradloom.rtl.config import PRESETS
from gradloom.rtl.isa import COMMANDS, Opcode, XSource


@pytest.mark.parametrize("machine", ["nano", "ulx3s", "eta", "eta2x"])
def test_indices_of_weight_gradients(machine):
    """The order is tile, PE row, tap, tile beside, beat of the block."""
    config = PRESETS[machine]
    fields = SimpleNamespace(**{f.name: Signal(signed(f.width) if f.signed else f.width, name=f.name)
                                for f in COMMANDS[Opcode.RUN].fields})
    dut = PlaneWalk(config, fields)
    rng = random.Random(3)

    async def bench(ctx):
        for _ in range(12):
            nr, nk, planes, side = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4), rng.randint(0, 3)
            nb = nr * nk * (side + 1) * config.block_beats
            steps = {name: rng.getrandbits(24) for name in ("idx0", "idx1", "idx2", "s_k", "s_lane")} | {"s_t": rng.getrandbits(12)}
            values = {"planes": planes, "nb": nb, "xe": nb, "xsrc": XSource.DW, "nr": nr, "nk": nk, "side": side} | steps
            for name, value in values.items():
                ctx.set(getattr(fields, name), value)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.step, 1)
            found = []
            for at, place in enumerate(itertools.product(*map(range, (planes, nr, nk, side + 1, config.block_beats)))):
                plane, row, tap, beside, beat = place
                index = steps[f"idx{row}"] + (plane + beside) * steps["s_t"] + tap * steps["s_k"] + 2 * beat * steps["s_lane"]
                assert ctx.get(dut.idx) == index & 0xFFFFFF, place
                assert ctx.get(dut.offset) == at and ctx.get(dut.beat.plane) == plane
                found.append(ctx.get(dut.beat.final))
                await ctx.tick()
            assert found == [0] * (planes * nb - 1) + [1]
            ctx.set(dut.step, 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
