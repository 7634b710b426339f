"""Outputs of the lanes: addresses, which beats are written, lanes that are not valid, bitmaps of eight beats, logits."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.rtl.acore.outputs import OUTPUTS, Outputs
from gradloom.rtl.config import Config


@pytest.mark.parametrize("group", [1, 4])
def test_outputs(group):
    """Random beats of every output against their description, from first addresses just below powers of two on; modulo 2^16."""
    config = Config(name="outputs", clusters=group, cols=group, wpus=1)
    dut, rng = Outputs(config), random.Random(group)
    names = (*OUTPUTS, "logit")

    async def bench(ctx):
        for trial in range(10):
            addresses = {name: (1 << rng.randint(2, 16)) - rng.randint(1, 3) for name in names}
            step = rng.choice((0, 1, 3, 65535))
            ctx.set(dut.logit_step, step)
            for name in names:
                ctx.set(getattr(dut, f"{name}_go"), 1)
                ctx.set(getattr(dut, f"{name}_first"), addresses[name])
                ctx.set(getattr(dut, f"{name}_beat"), {"v": 0})
            await ctx.tick()
            ctx.set(dut.logit_step, rng.getrandbits(16))
            for name in names:
                ctx.set(getattr(dut, f"{name}_go"), 0)
                # A first address counts with ``go`` alone.
                ctx.set(getattr(dut, f"{name}_first"), rng.getrandbits(16))
            slot, gathered = 0, 0
            for _ in range(20):
                for name in names:
                    shares = {"v": 0.8, "v1": 0.7, "first": 0.3, "last": 0.15}
                    beat = {key: int(rng.random() < share) for key, share in shares.items()}
                    bits = OUTPUTS.get(name, 24)
                    values = [[rng.getrandbits(bits) for _ in range(2)] for _ in range(group)]
                    ctx.set(getattr(dut, f"{name}_beat"), beat | {"v0": 1})
                    data = getattr(dut, f"{name}_data")
                    if name == "logit":
                        signed = [pair[0] - (pair[0] >> 23 << 24) for pair in values]
                        ctx.set(data, signed)
                        wdata = sum((value & 0xFFFFFFFF) << 32 * c for c, value in enumerate(signed))
                        write = beat["v"] and beat["first"]
                    else:
                        ctx.set(data, values)
                        masked = name in ("ob", "om") or (name == "xout" and group == 1)
                        wdata = sum(values[c][lane] << bits * (lane * group + c) for lane in range(2) for c in range(group)
                                    if not lane or beat["v1"] or not masked)
                        write = beat["v"]
                    if name == "om":
                        wdata = gathered | wdata << 2 * group * slot
                        write = beat["v"] and (slot == 7 or beat["last"])
                        if beat["v"]:
                            slot, gathered = (0, 0) if write else (slot + 1, wdata)
                    found = tuple(ctx.get(getattr(dut, f"{name}_{part}")) for part in ("we", "waddr", "wdata"))
                    assert found[0] == write, (name, trial)
                    assert found[1] == addresses[name], (name, trial)
                    if write:
                        assert found[2] == wdata, (name, trial)
                    addresses[name] = addresses[name] + (step if name == "logit" else 1) * write & 0xFFFF
                await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
