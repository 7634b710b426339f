"""Set-up of a RUN: shift registers, seeds, channel offsets and the place of the first unit, at the ends of their fields."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import FIRST_SHIFT_WORD, MAX_WORDS, Opcode, PsumLayout
from gradloom.rtl.acore.shift_setup import AMOUNT_BITS, SHIFT_REGISTER_BITS, ShiftSetup
from gradloom.rtl.command import HEAD_BITS, decode
from gradloom.verif.acore.acore_commands import command, shift_word
from gradloom.verif.acore.tail_memory import head
from gradloom.verif.plain_arith import saturate, wrap


class Dut(wiring.Component):
    """A set-up whose fields are those of its command."""

    def __init__(self, config: Config) -> None:
        self.cmd = Signal(HEAD_BITS)
        self.setup = ShiftSetup(config, decode(Opcode.RUN, self.cmd))
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.setup = self.setup
        return m


def place(fields: dict[str, int]) -> tuple[int, int]:
    """(row0, stride) of docs/machine.md, section 5."""
    width, layout = fields["pj"], fields["layout"]
    stride = {PsumLayout.ROWS: (width + 1) // 2, PsumLayout.SPLIT: width}.get(PsumLayout(layout), width + 1 & ~1)
    if fields["pool"]:
        return fields["pyi"] * ((fields["pxi"] + 1) // 2) & 0xFFFF, stride
    return stride * (fields["prg0"] >> 1 if layout == PsumLayout.ROWS else fields["prg0"]) & 0xFFFF, stride


def registers(ctx, setup: ShiftSetup) -> tuple[list[int], ...]:
    """Shift registers, and their limited copies."""
    return tuple([ctx.get(array[i]) for i in range(8)] for array in (setup.sh, setup.sh_7, setup.sh_12))


def limited(values: list[int]) -> tuple[list[int], ...]:
    return tuple([saturate(value, bits + 1) for value in values] for bits in AMOUNT_BITS)


def test_limits_lose_nothing():
    """One bit more than the amount is enough: limited first, a value and its negative saturate to what they do anyway."""
    for bits in AMOUNT_BITS:
        for value in range(-1 << SHIFT_REGISTER_BITS - 1, 1 << SHIFT_REGISTER_BITS - 1, 1 if bits < 8 else 5):
            early = saturate(value, bits + 1)
            assert (saturate(early, bits), saturate(-early, bits)) == (saturate(value, bits), saturate(-value, bits)), value
        assert saturate(-saturate(1 << bits, bits), bits) != saturate(-1 << bits, bits), "a bit less would not be"


@pytest.mark.parametrize("group", [1, 4])
def test_setup(group):
    """Random lists of shifts, of all lengths: the sums of their registers, modulo 2^18; products and offsets of all sizes. What is
    asked for in several cycles, as while the microcode has another reader, begins with the last of them."""
    config = Config(name="setup", clusters=group, cols=group, wpus=1)
    dut, rng = Dut(config), random.Random(group)
    setup = dut.setup
    exponents = {tid: rng.choice((-64, 127, 0, -32768, 32767, rng.randrange(-20, 20))) for tid in range(2048)}
    seeds = {tid: rng.getrandbits(32) for tid in range(2048)}

    async def bench(ctx):
        for trial in range(60):
            words = (0, 1, MAX_WORDS - FIRST_SHIFT_WORD, rng.randrange(MAX_WORDS - FIRST_SHIFT_WORD + 1))[trial % 4]
            extreme = trial % 3 == 0
            shifts = [{"dst": rng.randrange(8), "neg": rng.randrange(2), "first": int(rng.random() < 0.3),
                       "tid": rng.getrandbits(11),
                       "const": rng.choice((-32768, 32767)) if extreme else rng.randrange(-40, 40)} for _ in range(words)]
            fields = {"layout": rng.randrange(4), "pool": rng.choice((0, 0, 1, 2)),
                      "prg0": rng.choice((65535, rng.getrandbits(16), 0, 1)),
                      **{name: rng.choice((4095, 4094, rng.getrandbits(12), 1)) for name in ("pj", "pyi", "pxi")},
                      **{name: rng.getrandbits(11) for name in ("t1", "t2")},
                      "s_ch": rng.choice(((1 << 24) - 1, rng.getrandbits(24), 1 << rng.randrange(24)))}
            expected = [0] * 8
            for shift in shifts:
                e = exponents[shift["tid"]]
                before = 0 if shift["first"] else expected[shift["dst"]]
                expected[shift["dst"]] = wrap(before + shift["const"] + (-e if shift["neg"] else e), SHIFT_REGISTER_BITS)
            tail = [shift_word(**shift) for shift in shifts]
            ctx.set(dut.cmd, head(command(Opcode.RUN, tail, **fields)))

            def show(number: int, tail: list[int] = tail) -> None:
                """What lies behind the list is not its."""
                ctx.set(setup.listed, number < len(tail))
                ctx.set(setup.word, tail[number] if number < len(tail) else rng.getrandbits(32))

            ctx.set(setup.start, 1)
            show(0)
            shifted = 0
            for cycle in range(-rng.randrange(3), 40):
                exponent = exponents[ctx.get(setup.exponents.tid)] if ctx.get(setup.exponents.en) else 0x1234
                seed = seeds[ctx.get(setup.seed.tid)] if ctx.get(setup.seed.en) else 0x12345678
                await ctx.tick()
                ctx.set(setup.start, cycle < 0)
                show(max(cycle + 1, 0))
                ctx.set(setup.exponents.e, exponent)
                ctx.set(setup.seed.value, seed)
                if cycle > 0 and not shifted and ctx.get(setup.shifted):
                    shifted = cycle
                    assert registers(ctx, setup) == (expected, *limited(expected)), (trial, shifts)
                if cycle > 0 and ctx.get(setup.done):
                    break
                assert not ctx.get(setup.done)
            assert ctx.get(setup.done) and shifted == max(1, words + 1 if words else 1), (trial, words, shifted)
            assert registers(ctx, setup) == (expected, *limited(expected)), (trial, shifts)
            assert [ctx.get(setup.seeds[i]) for i in range(2)] == [seeds[fields["t1"]], seeds[fields["t2"]]]
            assert [ctx.get(setup.offsets[c]) for c in range(group)] == [c * fields["s_ch"] & 0xFFFFFF for c in range(group)]
            assert (ctx.get(setup.row0), ctx.get(setup.stride)) == place(fields), fields
            await ctx.tick().repeat(rng.randint(1, 3))

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
