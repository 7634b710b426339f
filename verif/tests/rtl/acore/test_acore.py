"""A-Core against its plain reference: every microprogram, layouts, own microprograms, softmax, faults, random commands."""

import itertools
import json
import os
import random

import cocotb
import pytest

from gradloom.contracts.isa import COMMANDS, FIRST_SHIFT_WORD, Dest, Opcode, PsumLayout, Source, XSource
from gradloom.contracts.microcode import (
    Each,
    Kind,
    Operand,
    OutB,
    ScalarDestination,
    ScalarFactor,
    ScalarOperand,
    Shift,
    Term2,
    Term3,
    encode,
)
from gradloom.contracts.microprograms import TABLE, WORDS
from gradloom.host.cost_model.acore_stages import AcoreStages
from gradloom.host.cost_model.cost import Costs, DramCost, StagedState
from gradloom.host.program.assembler import Instruction
from gradloom.rtl.acore.acore import ACore
from gradloom.verif.acore.acore_bench import Bench, fill
from gradloom.verif.acore.acore_case import AuxReference
from gradloom.verif.acore.acore_commands import command, reciprocal, shift_sum, shift_word
from gradloom.verif.acore.acore_machines import CONFIGS, start
from gradloom.verif.acore.acore_overflows import OVERFLOW, SOURCES, Place, own_program, places
from gradloom.verif.acore.acore_scenarios import SCENARIOS
from gradloom.verif.checkout import VECTORS
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.plain_arith import align, code_of, decode
from gradloom.verif.plain_arith import encode as encode_value

FILE = VECTORS / "frn.json"
IN_TURNS = ("logits", "weights", "pools", "softmax", "overflows_alone")
"""Benches that a machine with turns passes in every run of the suite."""


def machine_name() -> str:
    """Name of the machine that ``test_acore`` built."""
    return os.environ["ACORE_MACHINE"]


def scenario(name: str, seeds: range):
    @cocotb.test(name=name)
    async def run(dut):
        for seed in seeds:
            bench = await start(dut, machine_name(), seed, clock=seed == seeds[0])
            await SCENARIOS[name](bench, seed)
    return run


forward = scenario("forward", range(4))
layouts = scenario("layouts", range(2))
shared_rows = scenario("shared_rows", range(2))
logits = scenario("logits", range(2))
backward = scenario("backward", range(3))
weights = scenario("weights", range(2))
pools = scenario("pools", range(1))
overlapping = scenario("overlapping", range(4))
rivalling = scenario("rivalling", range(3))


@cocotb.test()
async def shared_vectors(dut):
    """Forward and backward of normalisation on the vectors of an implementation that shares nothing with this project."""
    bench = await start(dut, machine_name(), 0)
    ref, group = bench.ref, bench.config.group
    ref.exponents = {9: 0}
    forwards = 0
    for vector in json.loads(FILE.read_text()):
        n = len(vector["X"])
        xe, odd = (n + 1) // 2, n & 1
        ref.pbuf.clear()
        ref.stats.clear()
        bench.stats.clear()
        for c in range(group):
            for entry, name in enumerate(("gamma", "beta", "tau")):
                ref.set_entry(entry, c, vector[name] << 12 & 0xFFFFFFFF)
            for entry in range(3, 6):
                ref.set_entry(entry, c, 0)
            ref.set_entry(8, c, vector["q"] | vector["le"] << 16)
            for i, x in enumerate(vector["X"]):
                ref.psum_override[0, 0, i & 1, i >> 1, c] = x
        ref.psum_override |= {(0, 0, n & 1, n >> 1, c): 0 for c in range(group)}
        ref.aa.clear()
        ref.ab.clear()
        ref.am.clear()
        for i in range(n):
            for c in range(group):
                at = (i & 1) * group + c
                ref.aa[i >> 1] |= code_of(vector["dz"][i]) << (8 * at)
                ref.ab[i >> 1] |= code_of(vector["xhat"][i]) << (8 * at)
                ref.am[i >> 4] |= vector["bit"][i] << ((i & 15) * group + c)
        await bench.load_all()
        fields = {"planes": 1, "nb": xe, "xe": xe, "xodd": odd, "py": 1, "pj": n, "n": n, "pl0": 8, "t2": 9, "f1": 8, "f2": 8}
        epsilon = next((s for s in range(-20, 40) if max(1, align(n, s)) == vector["epsI"]), None)

        async def codes(source: Source, count: int = n) -> list[int]:
            beats = await bench.read(source, range((count + 1) // 2))
            return [decode(beats[i >> 1] >> (8 * (i & 1) * group) & 0xFF) for i in range(count)]

        if epsilon is not None:
            forwards += 1
            await bench.run("FRN_FWD", TABLE["FRN_FWD"], fields, shift_sum(0, epsilon) + shift_sum(1, 20 + vector["ez"]))
            assert await codes(Source.OB) == vector["xhat"]
            assert await codes(Source.OA) == vector["z"]
            assert ref.entry(8, 0) == vector["q"] | vector["le"] << 16
        inv, k = reciprocal(n)
        await bench.run("FRN_BWD", TABLE["FRN_BWD"], fields | {"xsrc": XSource.NONE, "inv": inv},
                        shift_sum(1, vector["sh0"]) + shift_sum(3, 18 + k))
        assert await codes(Source.OA) == vector["dx"]
        assert [ref.entry(entry, 0) for entry in (3, 4, 5)] == [vector["sg"], vector["sb"], vector["st"]]
    assert forwards >= 10


async def upload(bench: Bench, address: int, words: list[int]) -> None:
    """Any alignment and any split over commands gives the same program."""
    rng = random.Random(address)
    while words:
        part, words = words[:(count := rng.randint(1, 37))], words[count:]
        _, fault = await bench.execute(command(Opcode.UCODE, part, address=address))
        assert fault == 0
        address += len(part)


@cocotb.test()
async def own_microprogram(dut):
    """Written through UCODE: a product of two scalars as a term, and both encoders on the same sum."""
    bench = await start(dut, machine_name(), 5)
    ref, config, group = bench.ref, bench.config, bench.config.group
    program = [
        {"kind": Kind.SCALAR, "each": Each.CHANNEL, "sx": ScalarOperand.N, "sf": ScalarFactor.LM, "ssh": Shift.SH0,
         "sdst": ScalarDestination.R},
        {"kind": Kind.SWEEP, "x": Operand.IN, "t2": Term2.R, "t3": Term3.D, "sh3": Shift.SH2, "keep": 1, "c1": Shift.SH1,
         "wb": OutB.CODE1, "c2": Shift.SH1, "wa": 1},
    ]
    address = config.microcode_depth - 2
    await upload(bench, 4 * address, [word for micro in program for word in encode(**micro)])
    fields = {"planes": 3, "nb": 6, "xe": 3, "py": 2, "pj": 6, "n": 12, "t1": 8, "t2": 9, "f1": 8, "f2": 8, "om0": 1}
    shifts = shift_sum(0, 5) + shift_sum(1, 12) + shift_sum(2, 10)
    words = command(Opcode.RUN, [shift_word(**s) for s in shifts], uprog=address, **fields)
    _, fault = await bench.execute(words)
    assert fault == 0
    ref.run("BP_OUT_ADD", fields, shifts)  # takes the geometry; its outputs are replaced
    ref.stats.clear()
    for plane, beat, lane, _, _ in ref.beats(ref.f):
        at = plane * fields["nb"] + beat
        for c in range(group):
            shift = 8 * (lane * group + c)
            total = ref.partial_sum(ref.f, plane, beat, lane, c) + align(fields["n"] * ref.lm, 5)
            _, code, stat = encode_value(total + align(decode(ref.aa[at] >> shift & 255), 10), 12)
            ref.oa[at] = ref.oa[at] & ~(255 << shift) | code << shift
            ref.stats[8] |= stat
        ref.ob[at] = ref.oa[at]
    ref.stats[9] = ref.stats[8]
    await bench.compare("own microprogram")
    # The built-in programs are still there, and can be uploaded again.
    await upload(bench, 0, WORDS)
    await bench.run("BP_OUT", TABLE["BP_OUT"], fields, shifts)


@cocotb.test()
async def turnaround(dut):
    """Commands of the same kind behind each other: cycles from one's done to the next one's."""
    bench = await start(dut, machine_name(), 12)
    ref, rng = bench.ref, random.Random(12)
    plane = {"planes": 2, "nb": 120, "xe": 6, "py": 20, "pj": 12, "n": 240, "pl0": 16, "t2": 9, "f1": 8, "f2": 8}
    backward_plane = plane | {"xsrc": XSource.NONE, "inv": reciprocal(240)[0]}
    weights = {"planes": 1, "nb": 36, "xe": 36, "xsrc": XSource.DW, "nr": 3, "nk": 3, "inv": 1 << 15, "f1": 16, "f2": 16}
    # The first pass of FRN_BWD waits for a cycle, or a beat's turns, where it meets the sweep before it at addresses of one parity.
    turns = bench.config.turns
    sweep = 240 * turns + 2
    limits = {"FRN_FWD": (plane, sweep), "BP_OUT": (plane, sweep), "BP_OUT_RES": (plane, sweep), "RELU_FWD": (plane, sweep),
              "FRN_BWD": (backward_plane, sweep + 10 + turns), "WU": (weights, 36 * turns + 2)}
    for name, (fields, limit) in limits.items():
        shifts = shift_sum(1, 12, 9, -9) + shift_sum(2, rng.randint(0, 4)) + shift_sum(3, 27)
        words = [bench.prepare(name, TABLE[name], fields, shifts) for _ in range(5)]
        assert await bench.stream(words, in_flight=4) == [0] * 5
        gaps = [after - before for before, after in itertools.pairwise(bench.ends[1:])]
        assert max(gaps) <= limit, (name, gaps)
    await bench.compare("turnaround")
    assert ref.fault == 0


@cocotb.test()
async def first_passes_beside_sweeps(dut):
    """Commands are done when the cost model says, to a cycle behind pools: streams at even addresses, at odd ones, one of either;
    sweeps of one beat; pools that read an address for several taps."""
    bench = await start(dut, machine_name(), 13)
    plane = {"planes": 2, "nb": 120, "xe": 6, "py": 20, "n": 240, "xsrc": XSource.NONE, "inv": reciprocal(240)[0], "f1": 8, "f2": 8}
    small = plane | {"planes": 8, "nb": 8, "xe": 2, "py": 4, "n": 16}
    pool = small | {"pool": 2, "pmax": 1, "inv": 1 << 15}
    pools = [("MAXPOOL_BWD", pool | {"pkern": 4, "pstride": 4, "pyi": 1, "pxi": 1}),
             ("MAXPOOL_BWD", pool | {"pkern": 2, "pstride": 2, "pyi": 2, "pxi": 2}),
             ("MAXPOOL_BWD", pool | {"pkern": 3, "pstride": 2, "ppad": 1, "pyi": 2, "pxi": 2}),
             ("AVGPOOL_BWD", pool | {"pkern": 4, "pstride": 1, "pyi": 1, "pxi": 1, "pmax": 0}),
             ("MAXPOOL_FWD", pool | {"pool": 1, "pkern": 3, "pstride": 2, "ppad": 1, "pyi": 8, "pxi": 3})]
    cases = [[("FRN_BWD", plane), ("FRN_BWD", plane | other)] * 3 for other in ({}, {"sa0": 1, "sb0": 1}, {"sa0": 1})]
    cases += [[("LIN_BWD", plane)] * 6]
    cases += [[one] * 4 + [(program, small)] * 4 for one in pools for program in ("FRN_BWD", "LIN_BWD")]
    for commands in cases:
        words = [bench.prepare(name, TABLE[name], fields, shift_sum(1, 0)) for name, fields in commands]
        assert await bench.stream(words, in_flight=ACore.IN_FLIGHT) == [0] * len(words)
        engine, costs = StagedState(ACore.IN_FLIGHT), Costs(bench.config, DramCost())
        stages, ends = AcoreStages(engine, costs), list[int]()
        for place, (name, fields) in enumerate(commands):
            run = Instruction(Opcode.RUN, fields | {"uprog": TABLE[name]}, tail=(None,))  # type: ignore[arg-type]
            ends.append(stages.begin(place, max(engine.free, engine.under_way[0] + 1) + 1, run, costs(run)))
        late = [(found - bench.ends[0]) - (end - ends[0]) for found, end in zip(bench.ends, ends, strict=True)]
        assert set(late) <= {0, -1}, (commands[0], commands[-1], late)


def put_errors(ref: AuxReference, images: int, classes: int, oa0: int) -> None:
    """What SOFTMAX writes to output A."""
    group = ref.config.group
    groups = -(-classes // group)
    for image in range(images):
        values = [ref.logit[image * groups + c // group] >> (32 * (c % group)) & 0xFFFFFFFF for c in range(classes)]
        values = [value - (value >> 31 << 32) for value in values]
        scaled = [min(max(values) - value, 32767) * 369 >> 8 for value in values]
        powers = [round(32768 * 2 ** (-(t & 255) / 256)) >> min(t >> 8, 16) for t in scaled]
        for c, power in enumerate(powers):
            error = (power << 16) // sum(powers) - 65536 * (ref.label[image] == c)
            if c % group == 0:
                ref.oa[oa0 + image * groups + c // group] = 0
            ref.oa[oa0 + image * groups + c // group] |= encode_value(error, 4)[1] << (8 * (c % group))


@cocotb.test()
async def softmax(dut):
    """Behind LOGITS, as close as it comes, too: it waits until their logits, and other outputs of the lanes, are written."""
    bench = await start(dut, machine_name(), 6)
    ref, group = bench.ref, bench.config.group
    images, classes = 5, 10
    groups = -(-classes // group)
    rng = random.Random(6)
    ref.label.update({image: rng.randrange(classes) for image in range(images)})
    await bench.load_all()
    errors = command(Opcode.SOFTMAX, images=images, classes=classes, logit0=0, oa0=4)
    plane = {"planes": 2, "nb": 24, "xe": 6, "py": 4, "pj": 12, "f2": 8}

    def logits(pbase: int) -> list[list[int]]:
        single = {"planes": images, "nb": 1, "xe": 1, "py": 1, "pj": 1, "layout": PsumLayout.K1, "om0": groups}
        return [bench.prepare("LOGITS", TABLE["LOGITS"], single | {"pbase": 40 * g + pbase, "ob0": g},
                              shift_sum(0, 0) + shift_sum(1, -14)) for g in range(groups)]

    for words in logits(0):
        assert await bench.stream([words]) == [0]
    assert await bench.stream([errors]) == [0]
    ref.oa.clear()
    put_errors(ref, images, classes, 4)
    await bench.compare("softmax")
    for others in (0, 1, 2):
        # Sweeps that write what the errors overwrite; then one behind them, which overwrites the first of them.
        before = [bench.prepare("BP_OUT", TABLE["BP_OUT"], plane, shift_sum(1, 10)) for _ in range(others)]
        commands = [*before, *logits(8 * others + 8), errors]
        put_errors(ref, images, classes, 4)
        commands.append(bench.prepare("BP_OUT", TABLE["BP_OUT"], plane | {"planes": 1, "nb": 6, "py": 1}, shift_sum(1, 10)))
        assert await bench.stream(commands, in_flight=ACore.IN_FLIGHT) == [0] * len(commands)
        await bench.compare(f"softmax behind {others} sweeps")
    ref.label[2] = classes
    await bench.load_all()
    assert await bench.stream([errors]) == [0x21]


@cocotb.test()
async def means_at_the_limits_of_u(dut):
    """u is saturated to 18 bits, mean to 24: one below each limit, the limit and one beyond it, up and down, in every channel."""
    bench = await start(dut, machine_name(), 16)
    ref, group = bench.ref, bench.config.group
    fields = {"planes": 1, "nb": 6, "xe": 6, "py": 1, "xsrc": XSource.NONE, "inv": 1 << 15, "pl0": 16, "t2": 9, "f2": 8}
    limits = [sign * ((1 << k) + around) for k in (16, 17, 23, 24, 31) for around in (-1, 0, 1) for sign in (1, -1)]
    for c in range(group):
        ref.set_entry(16, c, 0xFFFF | 8 << 16)
    for first in range(0, len(limits), group):
        for c in range(group):
            ref.set_entry(6, c, limits[(first + c) % len(limits)])
            # gl = -1
            ref.set_entry(0, c, -1 << 12 & 0xFFFFFFFF)
        await bench.load_all()
        await bench.run("FRN_ERR", TABLE["FRN_ERR"], fields, shift_sum(1, 2) + shift_sum(3, 15))


@cocotb.test()
async def loader_goes_first(dut):
    """The Loader writes PBUF in most cycles while the A-Core stores: no beat and no entry is lost."""
    bench = await start(dut, machine_name(), 7)
    ref, rng = bench.ref, random.Random(7)
    bits = 16 * bench.config.group
    pending: list[tuple[int, int, int]] = []

    async def disturb() -> None:
        if rng.random() < 0.2:
            await bench.cycle()
            return
        addr, sub, data = rng.randrange(40, 60), rng.randrange(4), rng.getrandbits(bits)
        pending.append((addr, sub, data))
        await bench.load(Dest.PBUF, addr, sub, data)

    for addr in range(40, 60):
        ref.pbuf[addr] = 0
    await bench.load_all()
    inv, k = reciprocal(8)
    fields = {"planes": 1, "nb": 1, "xe": 1, "xsrc": XSource.NONE, "inv": inv}
    shifts = shift_sum(0, -8 - k) + shift_sum(1, -4 - k) + shift_sum(2, -8)
    ref.run("PARAM_UPD", fields, shifts)
    words = command(Opcode.RUN, [shift_word(**s) for s in shifts], uprog=TABLE["PARAM_UPD"], **fields)
    _, fault = await bench.execute(words, disturb=disturb)
    assert fault == 0
    for addr, sub, data in pending:
        ref.pbuf[addr] = ref.pbuf[addr] & ~(((1 << bits) - 1) << (bits * sub)) | data << (bits * sub)
    await bench.compare("PBUF with two writers")


@cocotb.test()
async def sum_overflow(dut):
    """A sum of gradients saturates at 64 bits, with a fault; the next command is good again."""
    bench = await start(dut, machine_name(), 8)
    ref = bench.ref
    for c in range(bench.config.group):
        ref.set_entry(4, c, (1 << 63) - 3 if c == 0 else 0)
    ref.aa.update({beat: int.from_bytes(bytes([0x3F] * (2 * bench.config.group))) for beat in range(8)})
    await bench.load_all()
    fields = {"planes": 1, "nb": 4, "xe": 4, "py": 1, "xsrc": XSource.NONE}
    await bench.run("LIN_BWD", TABLE["LIN_BWD"], fields, [])
    assert ref.fault == 0x12
    ref.set_entry(4, 0, 5)
    await bench.load_all()
    await bench.run("LIN_BWD", TABLE["LIN_BWD"], fields, [])
    assert ref.fault == 0


@cocotb.test()
async def addition_overflow(dut):
    """An addition that leaves 64 bits, behind an align that saturated, is a fault; the next command is good again."""
    bench = await start(dut, machine_name(), 11)
    ref = bench.ref
    fill(ref)
    ref.aa.update({beat: int.from_bytes(bytes([0x3F] * (2 * bench.config.group))) for beat in range(8)})
    for c in range(bench.config.group):
        for entry, master in ((0, 0), (1, 1 << 20), (2, 0)):
            ref.set_entry(entry, c, master)
    await bench.load_all()
    fields = {"planes": 1, "nb": 4, "xe": 4, "py": 1, "pj": 8, "n": 8}
    for name in ("BP_OUT_ADD", "FRN_FWD_RES"):
        for shift, expected in ((62, 0x12), (4, 0)):
            tail = [shift_word(**s) for s in shift_sum(1, 0) + shift_sum(2, shift)]
            _, fault = await bench.execute(command(Opcode.RUN, tail, uprog=TABLE[name], **fields))
            assert fault == expected, (name, shift, fault)


@cocotb.test()
async def wide_weight_gradient(dut):
    """A weight gradient that leaves 48 bits cannot enter the update; it can be exported."""
    bench = await start(dut, machine_name(), 13)
    ref = bench.ref
    ref.xin.update({beat: 0 for beat in range(8)})
    ref.xin[3] = 1 << 48
    await bench.load_all()
    fields = {"planes": 1, "nb": bench.config.block_beats, "xe": bench.config.block_beats, "xsrc": XSource.DW, "nr": 1, "nk": 1,
              "inv": 1 << 15, "f1": 16, "f2": 16, "xin": 1}
    for name, dwbase, expected in (("WU", 2, 0), ("WU", 3, 0x12), ("DW_EXPORT", 3, 0), ("WU", 2, 0)):
        _, fault = await bench.execute(command(Opcode.RUN, uprog=TABLE[name], **fields | {"dwbase": dwbase, "nb": 1, "xe": 1}))
        assert fault == expected, (name, dwbase)


@cocotb.test()
async def overflows_alone(dut):
    """Every flag of every lane and channel alone, in the first of several beats or in the middle, up and down: a fault of the
    command that it belongs to, and of no other; one less everywhere is none, nor is it in a lane that does not count."""
    bench = await start(dut, machine_name(), 14)
    ref, own = bench.ref, bench.config.microcode_depth - 2
    await upload(bench, 4 * own, own_program())
    for kind, source in SOURCES.items():
        # A source's own hyperparameters: no momentum, and weight decay only where it is what is added.
        ref.momentum, ref.lm, ref.decay_off = 0, 1, int(kind != "gradient and weight decay")
        bench.set_hyper()
        for place in places(bench, source):
            source.prepare(ref, place, True)
            await bench.load_all()
            assert await bench.stream([source.words(own)]) == [OVERFLOW], (kind, place)
            if not source.weights and place.beat:
                short = {"nb": place.beat + 1, "xe": place.beat + 1, "xodd": 1}
                expected = 0 if place.lane else OVERFLOW
                assert await bench.stream([source.words(own, **short)]) == [expected], (kind, place)
        for sign in (1, -1):
            source.prepare(ref, Place(0, 0, 0, sign), False)
            await bench.load_all()
            assert await bench.stream([source.words(own)]) == [0], (kind, sign)


@cocotb.test()
async def overflows_between_good_commands(dut):
    """Commands of both paths through the lanes as close as they come: the fault is that of the command that overflows alone."""
    bench = await start(dut, machine_name(), 15)
    ref = bench.ref
    both = ("shortcut error and partial sum", "normalised value and residual")
    SOURCES[both[1]].prepare(ref, Place(1, 1, 0, 1), True)
    await bench.load_all()
    commands, faults = [], []
    for bits in range(32):
        for kind in both:
            overflows = bits >> (kind == both[1]) & 1 if bits < 16 else bits % 3 == 0
            # Of an even half the sums are not those that overflow.
            commands.append(SOURCES[kind].words(0, half=int(not overflows), nb=2 + bits % 4, xe=2 + bits % 4))
            faults.append(OVERFLOW * overflows)
    assert await bench.stream(commands, in_flight=ACore.IN_FLIGHT) == faults


@cocotb.test()
async def illegal_commands(dut):
    bench = await start(dut, machine_name(), 9)
    good = {"planes": 2, "nb": 2, "xe": 2, "py": 1, "pj": 4, "uprog": TABLE["BP_OUT"]}
    for bad in ({"planes": 0}, {"planes": bench.config.max_planes + 1}, {"nb": 0}, {"xe": 0}, {"xsrc": 3},
                {"uprog": bench.config.microcode_depth}, {"pool": 3, "pkern": 1, "pstride": 1, "pyi": 1, "pxi": 1},
                {"pool": 1, "pkern": 0, "pstride": 1, "pyi": 1, "pxi": 1},
                {"pool": 2, "pkern": 2, "pstride": 0, "pyi": 1, "pxi": 1},
                {"layout": PsumLayout.K1, "pk": 3}, {"pw0": 3}, {"xsrc": XSource.DW, "nr": 0, "nk": 1}):
        _, fault = await bench.execute(command(Opcode.RUN, **(good | bad)))
        assert fault == 0x20, bad
        _, fault = await bench.execute(command(Opcode.RUN, **good))
        assert fault == 0, bad
    _, fault = await bench.execute(command(Opcode.UCODE, [0, 0], address=4 * bench.config.microcode_depth - 1))
    assert fault == 0x20


@cocotb.test()
async def random_commands(dut):
    """Any command and any microprogram ends, and the machine then works."""
    bench = await start(dut, machine_name(), 10)
    rng = random.Random(10)
    spec = COMMANDS[Opcode.RUN]
    for _ in range(60):
        program = [word for _ in range(8) for word in (rng.getrandbits(32), rng.getrandbits(32), rng.getrandbits(32), 0)]
        await upload(bench, 4 * (bench.config.microcode_depth - 8), program)
        fields = {field.name: rng.getrandbits(field.width) for field in spec.fields}
        fields |= {"planes": rng.randint(1, 3), "nb": rng.randint(1, 5), "uprog": bench.config.microcode_depth - rng.randint(1, 8)}
        if rng.random() < 0.7:
            fields |= {"xsrc": rng.randrange(3), "pool": rng.randrange(3), "pkern": rng.randint(1, 4), "xe": rng.randint(1, 4),
                       "pstride": rng.randint(1, 15), "pk": rng.randrange(3), "pw0": 0, "nr": 1, "nk": 1}
        tail = [rng.getrandbits(32) for _ in range(rng.randint(0, 19))]
        _, fault = await bench.execute(command(Opcode.RUN, tail, **fields))
        assert fault in (0, 0x12, 0x20)
    await upload(bench, 0, WORDS)
    bench.stats.clear()
    await bench.adopt(24)
    fill(bench.ref)
    await bench.load_all()
    await SCENARIOS["backward"](bench, 1)


@pytest.mark.parametrize("machine", [
    pytest.param("g1w1", marks=pytest.mark.long("a single channel, as nano has in the tests of the system")),
    pytest.param("g2w3", marks=pytest.mark.long("an A-Core between one and four channels")),
    "g4w2",
    pytest.param("g16w1", marks=pytest.mark.long("builds lanes of 16 channels, five minutes")),
    pytest.param("g2w1t4", marks=pytest.mark.long("some of it is test_acore_in_turns")),
    pytest.param("g4w1t4", marks=pytest.mark.long("an APU of four channels with both lanes")),
    pytest.param("g4w1t8", marks=pytest.mark.long("an APU of four channels with one lane")),
    pytest.param("g4w2t2", marks=pytest.mark.long("two APUs of two channels")),
    pytest.param("g1w1t2", marks=pytest.mark.long("an APU of one channel with one lane")),
])
def test_acore(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("ACORE_MACHINE", machine)
    assert run_cocotb(lambda: ACore(CONFIGS[machine]), __file__, tmp_path) == 23


def test_acore_in_turns(tmp_path, monkeypatch):
    """What lies near the turns, of a machine with one APU of one lane for two channels."""
    monkeypatch.setenv("ACORE_MACHINE", "g2w1t4")
    assert run_cocotb(lambda: ACore(CONFIGS["g2w1t4"]), __file__, tmp_path, testcase=IN_TURNS) == len(IN_TURNS)


def test_microprograms_have_room():
    assert COMMANDS[Opcode.RUN].words == FIRST_SHIFT_WORD
    assert len(WORDS) // 4 <= min(config.microcode_depth for config in CONFIGS.values()) - 8
