"""Outputs of the lanes: addresses, which beats are written, lanes that are not valid, bitmaps of eight beats, logits."""

import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.rtl.acore.result_writer import OUTPUTS, ResultWriter


@pytest.mark.parametrize(("group", "channels", "lanes"), [(1, 1, 2), (4, 1, 2), (1, 1, 1), (4, 4, 2), (4, 2, 1)])
def test_outputs(group, channels, lanes):
    """Random beats of every output against their description, from first addresses just below powers of two on; modulo 2^16. Of
    several channels, or with one lane, in turns, with cycles between them."""
    config = Config(name="outputs", clusters=group, cols=group, wpus=1, apu_channels=channels, apu_lanes=lanes)
    turns = config.turns
    dut, rng = ResultWriter(config), random.Random(group)
    names = (*OUTPUTS, "logit")

    parts = [c % channels + (0 if lanes == 2 else column * channels) for column in range(2) for c in range(group)]
    """The turn of a value in the order [column][channel]."""

    async def cycle(ctx, memories: dict[str, dict[int, int]]) -> None:
        """What is written goes to the memories, bitmaps as a whole, of all else a turn's values."""
        for name, memory in memories.items():
            write = getattr(dut.writes, name)
            enable, address, wdata = (ctx.get(port) for port in (write.we, write.addr, write.data))
            bits = {"logit": 32, "om": 16 * group}.get(name, OUTPUTS.get(name, 0))
            places = {"logit": parts[:group], "om": [0]}.get(name, parts)
            for place, turn in enumerate(places):
                if enable >> turn & 1:
                    mask = ((1 << bits) - 1) << bits * place
                    memory[address] = memory.get(address, 0) & ~mask | wdata & mask
        await ctx.tick()

    async def bench(ctx):
        for trial in range(10 if turns == 1 else 4):
            addresses = {name: (1 << rng.randint(2, 16)) - rng.randint(1, 3) for name in names}
            step = rng.choice((0, 1, 3, 65535))
            ctx.set(dut.logit_step, step)
            for name in names:
                ctx.set(getattr(dut, name).go, 1)
                ctx.set(getattr(dut, name).first, addresses[name])
                ctx.set(getattr(dut, name).beat, {"v": 0})
            await ctx.tick()
            ctx.set(dut.logit_step, rng.getrandbits(16))
            for name in names:
                ctx.set(getattr(dut, name).go, 0)
                # A first address counts with ``go`` alone.
                ctx.set(getattr(dut, name).first, rng.getrandbits(16))
            memories: dict[str, dict[int, int]] = {name: {} for name in names}
            slot, gathered = 0, 0
            for _ in range(20):
                beats, shares = {}, {"v": 0.8, "v1": 0.7, "first": 0.3, "last": 0.15}
                for name in names:
                    bits = OUTPUTS.get(name, 24)
                    beats[name] = ({key: int(rng.random() < share) for key, share in shares.items()},
                                   [[rng.getrandbits(bits) for _ in range(2)] for _ in range(group)])
                for turn in range(turns):
                    while turns > 1 and rng.random() < 0.2:
                        for name in names:
                            ctx.set(getattr(dut, name).beat, {"v": 0})
                        await cycle(ctx, memories)
                    for name, (beat, values) in beats.items():
                        ctx.set(getattr(dut, name).beat, beat | {"v0": 1})
                        data, column = getattr(dut, name).data, turn // channels
                        if turns > 1:
                            ctx.set(getattr(dut, name).turn, turn)
                        for apu in range(config.apus):
                            pair = values[apu * channels + turn % channels]
                            if name == "logit":
                                # The second column of a logit is none.
                                value = pair[0] if column == 0 or lanes == 2 else rng.getrandbits(24)
                                ctx.set(data[apu], value - (value >> 23 << 24))
                            else:
                                ctx.set(data[apu], pair if lanes == 2 else [pair[column]])
                    await cycle(ctx, memories)
                for name, (beat, values) in beats.items():
                    bits = OUTPUTS.get(name, 24)
                    if name == "logit":
                        signed = [pair[0] - (pair[0] >> 23 << 24) for pair in values]
                        wdata = sum((value & 0xFFFFFFFF) << 32 * c for c, value in enumerate(signed))
                        write = beat["v"] and beat["first"]
                    else:
                        masked = name in ("ob", "om") or (name == "xout" and group == 1)
                        wdata = sum(values[c][lane] << bits * (lane * group + c) for lane in range(2) for c in range(group)
                                    if not lane or beat["v1"] or not masked)
                        write = beat["v"]
                    if name == "om":
                        wdata = gathered | wdata << 2 * group * slot
                        write = beat["v"] and (slot == 7 or beat["last"])
                        if beat["v"]:
                            slot, gathered = (0, 0) if write else (slot + 1, wdata)
                    assert memories[name] == ({addresses[name]: wdata} if write else {}), (name, trial)
                    memories[name].clear()
                    addresses[name] = addresses[name] + (step if name == "logit" else 1) * write & 0xFFFF

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
