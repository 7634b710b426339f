"""The A-Core's second stage: microinstructions that overlap against the same ones in turn, its cycles against the cost model."""

import dataclasses
import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS, Config
from gradloom.contracts.isa import Opcode
from gradloom.contracts.microcode import (
    Each,
    Kind,
    Register,
    ScalarDestination,
    ScalarFactor,
    ScalarOperand,
    ScalarTerm,
    Shift,
)
from gradloom.contracts.microprograms import PROGRAMS, TABLE
from gradloom.host.cost_model.preparation import preparation
from gradloom.host.program.assembler import Instruction
from gradloom.rtl.acore.scalar_stage import ScalarStage
from gradloom.verif.acore.acore_commands import command, shift_word
from gradloom.verif.acore.prepare_bench import Bench, Reference, random_program
from gradloom.verif.plain_arith import align, saturate, wrap

MACHINES = {group: Config(name=f"g{group}", clusters=group, cols=min(group, 8), wpus=wpus, max_planes=4,
                        dw_depth=1024, microcode_depth=64)
            for group, wpus in ((1, 1), (2, 3), (4, 2), (8, 3), (16, 1))}
"""Channels of a group, with one to eight dividers."""


def simulate(body, config: Config, seed: int, rest: float = 0.0) -> None:
    dut = ScalarStage(config)

    async def testbench(ctx):
        await body(Bench(ctx, dut, Reference(config, random.Random(seed)), rest))

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


async def compare(bench: Bench, handed, planes: int) -> None:
    """Everything that a command leaves behind, with the reference."""
    ctx, dut, ref = bench.ctx, bench.dut, bench.ref
    assert handed.fault == ref.code
    assert bench.entries == ref.entries
    for name, values in zip(("gamma", "beta", "tau"), ref.parameters, strict=True):
        assert [value - (value >> 15 << 16) for value in handed[name]] == values, name
    assert [value - (value >> 63 << 64) for value in handed.r] == ref.r[0]
    for plane in range(planes):
        ctx.set(dut.planes.at, plane | handed.bank << 7)
        await bench.tick()
        for channel in range(bench.group):
            found = ctx.get(dut.planes.scalars[channel])
            for name, value in ref.planes.get((plane, channel), {}).items():
                assert found[name] == value, (plane, channel, name, found[name], value)


def scalar(**fields: int) -> dict[str, int]:
    return {"kind": Kind.SCALAR, "each": Each.CHANNEL, "reg": Register.GAMMA} | fields


async def show(bench: Bench) -> None:
    """The registers R, by way of entries 0 to 3."""
    program = [scalar(reg=r, sx=ScalarOperand.R, r=r, sdst=ScalarDestination.ENTRY, end=int(r == 3)) for r in range(4)]
    bench.store(40, program)
    bench.ref.begin(1, n=1, inv=1, dry=0)
    for micro in program:
        bench.ref.execute(micro)
    await compare(bench, await bench.run(40, planes=1, n=1, inv=1), 1)


@pytest.mark.parametrize(("group", "rest"), [
    pytest.param(group, rest, marks=[] if (group, rest) in ((1, 0.3), (2, 0.0), (4, 0.3), (8, 0.0), (16, 0.3)) else [
        pytest.mark.long("this machine and this rest each run with others")])
    for group in MACHINES for rest in (0.0, 0.3)
])
def test_microinstructions_that_overlap(group, rest):
    """Random ones, chained where the rules allow it, give what they give one after the other; ``rest``: others use the memories."""
    async def body(bench: Bench) -> None:
        ref, rng = bench.ref, bench.ref.rng
        for _ in range(30 if group < 16 else 10):
            planes, n, inv, dry = rng.randint(1, 3), rng.randint(1, (1 << 15) - 1), rng.randint(1 << 15, 1 << 16), rng.randrange(2)
            ref.begin(planes, n=n, inv=inv, dry=dry)
            program = random_program(ref, 9)
            sweep = {"kind": Kind.SWEEP} if rng.random() < 0.5 else {}
            program = [*program, sweep] if sweep else [*program[:-1], program[-1] | {"end": 1}]
            bench.store(7, program)
            handed = await bench.run(7, planes=planes, n=n, inv=inv, dry=dry)
            assert handed.sweep == bool(sweep)
            await compare(bench, handed, planes)
            await show(bench)

    simulate(body, MACHINES[group], group, rest)


@pytest.mark.parametrize("group", MACHINES)
def test_steps_of_several_registers_in_turns(group):
    """Three dependent steps of a register, with none of others, those of one and those of two between them."""
    async def body(bench: Bench) -> None:
        ref = bench.ref
        for others in (0, 1, 2):
            step = scalar(sx=ScalarOperand.R, sf=ScalarFactor.LM, st2=ScalarTerm.MASTER, sdst=ScalarDestination.R32, chain=1)
            program = [step | {"r": 1 + i} for _ in range(3) for i in range(1 + others)]
            program[-1] |= {"end": 1}
            bench.store(0, program)
            ref.begin(1, n=1, inv=1 << 15, dry=0)
            for micro in program:
                ref.execute(micro)
            await compare(bench, await bench.run(0, planes=1, n=1, inv=1 << 15), 1)
            await show(bench)

    simulate(body, MACHINES[group], group)


@pytest.mark.parametrize("group", MACHINES)
def test_a_term_of_the_epsilon_just_before(group):
    """It is of the one before it, not of the command before, whether none, one or two steps of a register stand between them."""
    async def body(bench: Bench) -> None:
        ref = bench.ref
        for others in (0, 1, 2):
            epsilon = scalar(sx=ScalarOperand.N, sdst=ScalarDestination.EPSILON)
            between = [scalar(sx=ScalarOperand.N, sdst=ScalarDestination.R, r=1, chain=1)] * others
            term = scalar(sx=ScalarOperand.N, st2=ScalarTerm.EPSILON, sdst=ScalarDestination.R, chain=1, end=1)
            program = [epsilon, *between, term]
            bench.store(0, program)
            ref.begin(1, n=100 + others, inv=1 << 15, dry=0)
            for micro in program:
                ref.execute(micro)
            await compare(bench, await bench.run(0, planes=1, n=100 + others, inv=1 << 15), 1)

    simulate(body, MACHINES[group], group)


@pytest.mark.parametrize("group", [1, 8])
def test_the_last_scalar_counts(group):
    """A fault of the last one, and what it gives to R[0], come with the command that it belongs to."""
    async def body(bench: Bench) -> None:
        ref = bench.ref
        for value, fault in ((1 << 50, 0x12), (1 << 40, 0), (-(1 << 47) - 1, 0x12), (77, 0)):
            ref.entries[3] = [0] * (group - 1) + [value & (1 << 64) - 1]
            bench.entries[3] = list(ref.entries[3])
            micro = scalar(reg=Register.SG, sx=ScalarOperand.ENTRY, sf=ScalarFactor.INV, sdst=ScalarDestination.R)
            for program in ([micro, {"kind": Kind.SWEEP}], [micro | {"end": 1}]):
                bench.store(0, program)
                ref.begin(1, n=1, inv=1 << 15, dry=0)
                ref.execute(micro)
                assert ref.code == fault
                await compare(bench, await bench.run(0, planes=1, n=1, inv=1 << 15), 1)

    simulate(body, MACHINES[group], group)


def test_a_program_that_does_not_end():
    """What runs off the program memory passes with a fault, whatever its last microinstruction is; the next command is good."""
    async def body(bench: Bench) -> None:
        depth = bench.dut.config.microcode_depth
        for last in ({"kind": Kind.SUMS}, {"kind": Kind.LOAD, "count": 1}, scalar(sdst=ScalarDestination.R)):
            bench.store(depth - 2, [{"kind": Kind.LOAD, "count": 2}, last])
            for address in (depth - 2, depth - 1):
                handed = await bench.run(address, planes=1)
                assert (handed.fault, handed.sweep, handed.op.as_bits()) == (0x20, 0, 0)
            bench.store(depth - 1, [{"kind": Kind.SWEEP, "wa": 1}])
            handed = await bench.run(depth - 2, planes=1)
            assert (handed.fault, handed.sweep, handed.op.wa) == (0, 1, 1)

    simulate(body, MACHINES[2], 1, 0.3)


def test_programs_lie_anywhere_in_the_program_memory():
    """Of a depth that is no power of two; the last one ends with the memory."""
    config = dataclasses.replace(MACHINES[1], microcode_depth=48)

    async def body(bench: Bench) -> None:
        for address in range(48):
            bench.store(address, [{"kind": Kind.LOAD, "count": 0}] * (47 - address))
            bench.store(47, [{"kind": Kind.SWEEP, "wa": 1}])
            handed = await bench.run(address, words=0, planes=1)
            assert (handed.fault, handed.sweep, handed.op.wa) == (0, 1, 1), address
            bench.store(address, [{"kind": Kind.SUMS}] * (48 - address))
            assert (await bench.run(address, words=0, planes=1)).fault == 0x20, address

    simulate(body, config, 5)


def test_loads():
    """Some entries from some register on; those that do not exist go nowhere."""
    async def body(bench: Bench) -> None:
        for first in range(4):
            for count in range(4):
                load = {"kind": Kind.LOAD, "reg": first, "count": count}
                bench.store(3, [load, {"kind": Kind.SWEEP}])
                bench.ref.begin(1, n=1, inv=1, dry=0)
                bench.ref.execute(load)
                await compare(bench, await bench.run(3, planes=1, n=1, inv=1, dry=0), 1)

    simulate(body, MACHINES[2], 2, 0.5)


@pytest.mark.parametrize("name", ["nano", "small", "ulx3s", "eta", "eta2x"])
def test_cycles_are_those_of_the_cost_model(name):
    """Every microprogram, from one command's acceptance to the next one's."""
    config = PRESETS[name]

    async def body(bench: Bench) -> None:
        for program, microinstructions in PROGRAMS.items():
            bench.store(TABLE[program], [*microinstructions[:-1], microinstructions[-1] | {"end": 1}])
        bench.ctx.set(bench.dut.o.ready, 1)
        cases = [(program, planes, words, dry) for program in PROGRAMS for planes, words, dry in
                 ((1, 0, 0), (1, 4, 0), (1, 5, 1), (3, 3, 0), (2, 11, 0))]
        if config.group == 16:
            cases = cases[::3]
        before, expected = -1, 0
        for program, planes, words, dry in cases:
            fields = {"planes": planes, "n": 100, "inv": 40000, "dry": dry, "pyi": 90 * words, "prg0": 70 * words,
                      "layout": words % 4, "pool": int("POOL" in program)}
            await bench.run(TABLE[program], words=words, **fields)
            if before >= 0:
                assert bench.accepted - before == expected, (program, planes, words, dry)
            instruction = Instruction(Opcode.RUN, {"uprog": TABLE[program], **fields}, tail=(None,) * words)  # type: ignore[arg-type]
            before, expected = bench.accepted, preparation(instruction, PROGRAMS[program], config)

    simulate(body, config, 3)


@pytest.mark.parametrize("name", ["small", "eta"])
def test_rivals_at_the_parameter_buffer_keep_the_stage_as_long_as_the_cost_model_says(name):
    """A STORE of three entries, a LOAD of as many, or both, some time behind the acceptance of a command."""
    config = PRESETS[name]
    programs = ("PARAM_UPD", "BIAS_UPD", "FRN_BWD", "LIN_BWD", "FRN_FWD")

    async def body(bench: Bench) -> None:
        for program in programs:
            bench.store(TABLE[program], [*PROGRAMS[program][:-1], PROGRAMS[program][-1] | {"end": 1}])
        bench.ctx.set(bench.dut.o.ready, 1)
        fields = {"planes": 2, "n": 100, "inv": 40000, "dry": 0}
        expected = 0
        for program in programs:
            instruction = Instruction(Opcode.RUN, {"uprog": TABLE[program], **fields}, tail=(None,) * 3)  # type: ignore[arg-type]
            for at in range(1, preparation(instruction, PROGRAMS[program], config), 7):
                stored, loaded = set(range(at, at + 12)) if at % 3 else set(), set(range(at + 9, at + 21)) if at % 4 else set()
                bench.stored, bench.loaded = {expected + cycle for cycle in stored}, {expected + cycle for cycle in loaded}
                await bench.run(TABLE[program], words=3, **fields)
                assert bench.accepted == expected, (program, at)
                expected += preparation(instruction, PROGRAMS[program], config, stored, loaded)

    simulate(body, config, 4)


@pytest.mark.parametrize("group", [1, 4])
def test_an_overflow_is_kept_to_the_end_of_its_command(group):
    """Of any channel, with good scalars behind it: the fault comes with this command, and not with the next one."""
    async def body(bench: Bench) -> None:
        good = scalar(reg=Register.SB, sx=ScalarOperand.ENTRY, sdst=ScalarDestination.R, r=2)
        bench.entries[4] = [0] * group
        for channel, factor, fault in itertools.product(range(group), (ScalarFactor.INV, ScalarFactor.NONE), (0x12, 0)):
            # A factor's operand of more than 48 bits, or twice a value that leaves 64 bits by one.
            bench.entries[3] = [0] * group
            bench.entries[3][channel] = (1 << 47 if factor else 1 << 62) - (fault == 0)
            value = scalar(reg=Register.SG, sx=ScalarOperand.ENTRY, sdst=ScalarDestination.R)
            term = {"sf": factor} if factor else {"st2": ScalarTerm.R, "r": 3}
            bench.store(0, [value | {"r": 3}, value | {"r": 1} | term, *[good] * 3, {"kind": Kind.SWEEP}])
            assert (await bench.run(0, planes=1, n=1, inv=1 << 15)).fault == fault, (channel, factor)

    simulate(body, MACHINES[group], group)


def test_shift_amounts_saturate():
    """Amounts of all registers beyond what aligns and converters take, in both directions and negated: 7, resp. 12 bits."""
    limits = [sign * ((1 << k) + around) for k in (0, 5, 6, 7, 8, 10, 11, 12, 14) for around in (-1, 0, 1) for sign in (1, -1)]

    async def body(bench: Bench) -> None:
        ctx, dut = bench.ctx, bench.dut
        # Two words a register make amounts of up to 2^16.
        for number, value in enumerate([*limits, 32767, -32768, 65534, -65536]):
            register = Shift.SH0 + number % 8
            left = number // 8 % 2
            shifted = scalar(reg=Register.SG, sx=ScalarOperand.ENTRY, ssh=register, sright=left, sdst=ScalarDestination.ENTRY)
            bench.store(0, [shifted,
                            {"kind": Kind.SWEEP, "sh1": register, "sh3": register, "shy": register, "c1": register, "c2": register,
                             "c2left": left}])
            bench.entries[3] = [3] * bench.group
            high = max(-32768, min(32767, value))
            words = [shift_word(dst=number % 8, first=1, const=high), shift_word(dst=number % 8, const=value - high)]
            handed = await bench.run(0, tail=words, planes=1, n=1, inv=1)
            for name in ("sh1", "sh3", "shy"):
                assert wrap(handed[name], 7) == saturate(value, 7), (name, value)
            assert wrap(handed.c1, 12) == saturate(value, 12), value
            assert wrap(handed.c2, 12) == saturate(-value if left else value, 12), value
            assert [wrap(entry) for entry in bench.entries[3]] == [align(3, saturate(-value if left else value, 7))] * bench.group
        assert not ctx.get(dut.fault)

    simulate(body, MACHINES[2], 5)


@pytest.mark.parametrize("opcode", [Opcode.SOFTMAX, Opcode.UCODE])
def test_softmax_and_ucode_wait_for_the_lanes(opcode):
    """They do not begin before no command is behind this stage, however long that is; nothing is handed over instead."""
    async def body(bench: Bench) -> None:
        ctx, dut = bench.ctx, bench.dut
        for waits in (0, 1, 7):
            ctx.set(dut.empty, not waits)
            words = command(opcode, [0xABCD] if opcode == Opcode.UCODE else None)
            bench.offer(words)
            assert ctx.get(dut.ready)
            await bench.tick()
            ctx.set(dut.valid, 0)
            for _ in range(waits):
                assert not ctx.get(dut.softmax_start) and not ctx.get(dut.micro_we) and not ctx.get(dut.done)
                assert not ctx.get(dut.o.valid) and not ctx.get(dut.ready)
                await bench.tick()
            ctx.set(dut.empty, 1)
            started = written = 0
            for _ in range(6):
                started += ctx.get(dut.softmax_start)
                written += ctx.get(dut.micro_we)
                assert not ctx.get(dut.o.valid)
                await bench.tick()
                # What is behind this stage counts at the beginning alone.
                ctx.set(dut.empty, 0)
            assert (started, written) == (int(opcode == Opcode.SOFTMAX), int(opcode == Opcode.UCODE))
            assert ctx.get(dut.ready) == (opcode == Opcode.UCODE)
            ctx.set(dut.softmax_done, 1)
            await bench.tick()
            ctx.set(dut.softmax_done, 0)
            assert ctx.get(dut.ready)

    simulate(body, MACHINES[2], 6)
