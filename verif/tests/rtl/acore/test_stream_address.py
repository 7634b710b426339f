"""Position within the planes of a RUN: element indices of planes and weight gradients, ends of long planes, far partial sums."""

import itertools
import random
from types import SimpleNamespace

import pytest
from amaranth.hdl import Signal, signed
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.isa import COMMANDS, Opcode, PsumLayout, XSource
from gradloom.rtl.acore.stream_address import PlaneAddressGenerator
from gradloom.verif.inside import inside


@pytest.mark.parametrize("machine", ["nano", "ulx3s", "eta", "eta2x"])
def test_indices_of_weight_gradients(machine):
    """The order is tile, PE row, tap, tile beside, beat of the block."""
    config = PRESETS[machine]
    fields = SimpleNamespace(**{f.name: Signal(signed(f.width) if f.signed else f.width, name=f.name)
                                for f in COMMANDS[Opcode.RUN].fields})
    dut = PlaneAddressGenerator(config, fields)
    rng = random.Random(3)

    async def bench(ctx):
        sizes = [(rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4), rng.randint(0, 3)) for _ in range(12)]
        if config.block_beats == 1:
            # Tiles beside each other, up to the end of their field.
            sizes += [(1, 1, 2, 127), (1, 2, 1, 128), (2, 1, 1, 255)]
        for nr, nk, planes, side in sizes:
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


def walker(config: Config) -> tuple[PlaneAddressGenerator, SimpleNamespace]:
    """A walk, and the fields of its command."""
    fields = SimpleNamespace(**{f.name: Signal(signed(f.width) if f.signed else f.width, name=f.name)
                                for f in COMMANDS[Opcode.RUN].fields})
    return PlaneAddressGenerator(config, fields), fields


async def begin(ctx, dut: PlaneAddressGenerator, fields: SimpleNamespace, values: dict[str, int]) -> None:
    for field in vars(fields).values():
        ctx.set(field, 0)
    for name, value in values.items():
        ctx.set(getattr(fields, name), value)
    ctx.set(dut.step, 0)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    ctx.set(dut.step, 1)


@pytest.mark.parametrize("weights", [False, True])
def test_indices_around_every_power_of_two(weights):
    """From just below 2^k on, planes and their rows, odd ones too, and tiles of weight gradients; modulo 2^24. Steps from plane to
    plane, resp. from tap to tap and so on, of 2^k, too."""
    config = PRESETS["small"]
    dut, fields = walker(config)
    rng = random.Random(4)

    async def bench(ctx):
        for k in range(1, 25):
            first, step = (1 << k) - rng.randint(1, 9), (1 << k - 1) + rng.randrange(-1, 2) & 0xFFFFFF
            xodd, layout = rng.randrange(2), rng.choice((PsumLayout.ROWS, PsumLayout.K1_UP))
            values = {"planes": 3, "nb": 6, "xe": 3, "py": 2, "xodd": xodd, "layout": layout, "psr": 1, "idx0": first & 0xFFFFFF,
                      "s_k": step, "pj": 3}
            if weights:
                others = {name: rng.getrandbits(24) for name in ("idx1", "idx2", "s_lane")}
                values |= others | {"xsrc": XSource.DW, "nr": 3, "nk": 2, "nb": 6, "xe": 6, "xodd": 0, "s_t": (1 << k) - 1 & 0xFFF}
            await begin(ctx, dut, fields, values)
            for plane, beat in itertools.product(range(3), range(6)):
                if weights:
                    row, tap = divmod(beat, 2)
                    index = values[f"idx{row}"] + plane * values["s_t"] + tap * step
                else:
                    row, column = divmod(beat, 3)
                    every = 2 if layout == PsumLayout.K1_UP else 1
                    index = first + plane * step + every * row * (6 - xodd) + 2 * column
                assert ctx.get(dut.idx) == index & 0xFFFFFF, (k, plane, beat, values)
                await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


def test_long_planes():
    """Planes of up to 65535 beats end where they should: the counters of beats, columns, planes and streams are preset to just
    below their ends and below every power of two, and go on from there."""
    dut, fields = walker(PRESETS["small"])
    simulator = Simulator(dut)
    [beats], [planes] = inside(simulator, "beat", 16), inside(simulator, "plane", 7)
    [columns], [offsets], [bits] = (inside(simulator, name, width) for name, width in (
        ("column", 12), ("offset", 16), ("bits_addr", 16)))

    async def bench(ctx):
        for k in range(3, 17):
            nb, xe, count = (1 << k) - 1, (1 << min(k, 12)) - 1, min(128, 1 << k - 1)
            await begin(ctx, dut, fields, {"planes": count, "nb": nb, "xe": xe, "py": 1, "pj": 2})
            ctx.set(beats, nb - 3)
            ctx.set(columns, xe - 3)
            ctx.set(planes, count - 1)
            ctx.set(offsets, (1 << k) - 2)
            ctx.set(bits, (1 << k) - 1)
            for beat in range(3):
                found = ctx.get(dut.beat)
                assert (found.last, found.final, found.first) == (int(beat == 2), int(beat == 2), 0), (k, beat)
                assert ctx.get(dut.row_last) == int(beat == 2), (k, beat)
                assert found.plane == count - 1
                assert ctx.get(dut.offset) == (1 << k) - 2 + beat & 0xFFFF, (k, beat)
                assert ctx.get(dut.bits_addr) == (1 << k) - 1, (k, beat)
                await ctx.tick()
            assert ctx.get(dut.bits_addr) == 1 << k & 0xFFFF
            assert ctx.get(dut.beat).first

    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("wpus", [1, 3])
def test_far_partial_sums(wpus):
    """Addresses of partial sums at the ends of their fields: every layout, columns up to 4095, bases and rows up to 16 bits."""
    config = Config(name="far", clusters=1, cols=1, wpus=wpus)
    dut, fields = walker(config)
    simulator = Simulator(dut)
    [columns] = inside(simulator, "column", 12)

    async def bench(ctx):
        for k, layout, row0 in itertools.product(range(2, 13), PsumLayout, (0, 1 << 15, (1 << 16) - 1)):
            column, pk, psc = (1 << k) - 2, k % 3, int(layout == PsumLayout.SPLIT) & k
            pbase = (1 << 16) - (1 << k) - 1
            ctx.set(dut.row0, row0)
            await begin(ctx, dut, fields, {"planes": 2, "nb": 9000, "xe": 4095, "py": 3, "layout": layout, "pk": pk, "psc": psc,
                                           "pbase": pbase, "pw0": wpus - 1, "prg0": k & 1})
            ctx.set(columns, column)
            for at in range(column, min(column + 3, 4094)):
                place = ctx.get(dut.psum)
                base, third = pbase + row0, pk == 2
                first = {PsumLayout.ROWS: base + at, PsumLayout.SPLIT: base + at, PsumLayout.K1: base + 2 * at + third,
                         PsumLayout.K1_UP: base + 2 * (at >> 1) + third}[layout]
                assert place.addr0 == first & 0xFFFF, (k, layout, at)
                assert place.addr1 == first + psc & 0xFFFF, (k, layout, at)
                assert place.wpu == wpus - 1
                if layout == PsumLayout.ROWS:
                    assert (place.bank0, place.bank1) == (2 * (k & 1), 2 * (k & 1) + 1)
                await ctx.tick()

    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
