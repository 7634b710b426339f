"""Programs on the Sequencer: what it hands on, executes, waits for and refuses."""

import random
import struct

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit, unit_of, units
from gradloom.contracts.isa import COMMANDS, MAX_WORDS, Opcode, pairs
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.sequencer.sequencer import Sequencer
from gradloom.verif.program_case import command, program, shift, size, tensor_seed
from gradloom.verif.sequencer_bench import LIMIT, PROGRAM, RUN_SEED, execute

END = command(Opcode.END)
OFFSET = next(field.word for field in COMMANDS[Opcode.LOAD].fields if field.name == "offset")
LOAD_BYTES = size(command(Opcode.LOAD))


@pytest.mark.parametrize("opcode", [Opcode.LOAD, Opcode.CONV, Opcode.RUN])
def test_a_command_is_handed_on_in_two_cycles_more_than_its_pairs_of_words(opcode):
    tail = [0] * 5 if COMMANDS[opcode].tail else []
    one = command(opcode, tail=tail)
    eta = PRESETS["eta"]
    few, many = (execute(eta, program(eta, *[one] * count, END), delay=2, stalls=0).cycles for count in (4, 24))
    assert many - few == 20 * (pairs(len(one)) + 2)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_engine_gets_its_commands_in_order_with_the_base_added(preset):
    config = PRESETS[preset]
    rng = random.Random(preset)
    commands, expected = [command(Opcode.SETBASE, breg=3, value=0xFFFFF000)], {unit: [] for unit in units(config)}
    base = 0xFFFFF000
    for n in range(40):
        opcode = rng.choice([Opcode.LOAD, Opcode.STORE, Opcode.CONV, Opcode.RUN, Opcode.UCODE, Opcode.SOFTMAX])
        tail = [rng.getrandbits(32) for _ in range(rng.randrange(15))] if COMMANDS[opcode].tail else []
        fields = {"breg": 3, "offset": rng.getrandbits(32)} if opcode in (Opcode.LOAD, Opcode.STORE) else {}
        memory, way = rng.randrange(16), rng.randrange(4)
        fields |= {Opcode.LOAD: {"dest": memory, "way": way}, Opcode.STORE: {"src": memory}}.get(opcode, {})
        words = command(opcode, tag=n, tail=tail, **fields)
        commands.append(words)
        moved = list(words)
        if "breg" in fields:
            moved[OFFSET] = (moved[OFFSET] + base) % 2**32
        expected[unit_of(config, opcode, memory, way)].append(moved)
        if n % 8 == 7:
            commands.append(command(Opcode.ADDBASE, breg=3, value=-4096 * n))
            base = (base - 4096 * n) % 2**32
    outcome = execute(config, program(config, *commands, END), seed=7)
    assert outcome.error == 0
    assert outcome.started == expected
    assert outcome.state["base"][3] == base


@pytest.mark.parametrize("preset", list({(config.load_channels, config.store_channels): name
                                         for name, config in PRESETS.items()}.values()))
def test_every_memory_and_way_has_its_engine(preset):
    """All numbers of ``dest``, ``way`` and ``src``, also those that are no memory, go where the table of channels says."""
    config = PRESETS[preset]
    commands, expected = [], {unit: [] for unit in units(config)}
    for opcode, name, memory, way in [*((Opcode.LOAD, "dest", memory, way) for memory in range(16) for way in range(4)),
                                      *((Opcode.STORE, "src", memory, 0) for memory in range(16))]:
        commands.append(command(opcode, tag=len(commands), **{name: memory}, **({"way": way} if way else {})))
        expected[unit_of(config, opcode, memory, way)].append(commands[-1])
    outcome = execute(config, program(config, *commands, END), delay=2, stalls=0)
    assert outcome.error == 0
    assert outcome.started == expected


def test_barrier_waits_for_every_engine():
    config = PRESETS["small"]
    loads = [command(Opcode.LOAD) for _ in range(3)]
    outcome = execute(config, program(config, *loads, command(Opcode.BARRIER), command(Opcode.STORE), END), delay=60)
    assert outcome.error == 0
    assert [event[:2] for event in outcome.events] == [(Unit.LOAD, "start"), (Unit.LOAD, "end")] * 3 + [
        (Unit.STORE, "start"), (Unit.STORE, "end")]
    barrier = size(command(Opcode.BARRIER))
    assert [event[2] for event in outcome.events[::2]] == [0, LOAD_BYTES, 2 * LOAD_BYTES, 3 * LOAD_BYTES + barrier]


def test_the_sequencers_own_commands_wait_and_signal():
    config = PRESETS["small"]
    words = [command(Opcode.LOAD, signal=1), command(Opcode.SETBASE, breg=1, value=5, wait=1, signal=2),
             command(Opcode.STORE, breg=1, wait=2, signal=4), command(Opcode.BARRIER, wait=4, signal=8), END]
    outcome = execute(config, program(config, *words), delay=50)
    assert outcome.error == 0
    assert outcome.state["semaphores"] == 8
    assert [event[:2] for event in outcome.events] == [
        (unit, what) for unit in (Unit.LOAD, Unit.STORE) for what in ("start", "end")]
    assert outcome.started[Unit.STORE][0][OFFSET] == 5


@pytest.mark.parametrize("preset", [
    pytest.param(preset, marks=[] if preset in ("nano", "ecp5-45", "ulx3s", "eta", "eta2x") else [
        pytest.mark.long("a machine with beats as long is beside it")])
    for preset in sorted(PRESETS)
])
def test_steps_loop_to_the_body_and_take_their_hyperparameters(preset):
    config = PRESETS[preset]
    table = 0x800
    head = [command(Opcode.SETBASE, breg=2, value=PROGRAM), command(Opcode.UCODE)]
    target = sum(map(size, head))
    body = [command(Opcode.LDHYP, breg=2, offset=table), command(Opcode.SEED, tid=9),
            *(command(Opcode.LOAD, tag=n) for n in range(25)), command(Opcode.BARRIER), command(Opcode.LOOP, target=target)]
    image = program(config, *head, *body, command(Opcode.STORE), END).ljust(table, b"\0")
    entries = [struct.pack("<BbBB12x", 200 + n, -3 - n, 230, 255 if n == 8 else n) for n in range(10)]
    outcome = execute(config, image + b"".join(entries), steps=4, step=5, delay=4, reads=(1, 3, 9))
    assert outcome.error == 0
    assert outcome.state["step"] == 9
    assert outcome.hyper == [int.from_bytes(entries[n][:4], "little") for n in range(5, 9)]
    assert [event for event in outcome.events if event[0] in ("hyper", "loop")] == [
        (kind, step) for step in range(5, 9) for kind in ("hyper", "loop")]
    assert outcome.state["exponents"] == {1: -11, 3: 255, 9: 0}
    assert outcome.state["seeds"][9] == tensor_seed(RUN_SEED, 8, 9)
    assert {unit: len(commands) for unit, commands in outcome.started.items() if commands} == {
        Unit.LOAD: 100, Unit.ACORE: 1, Unit.STORE: 1}


def test_scale_expset_and_seed():
    config = PRESETS["small"]
    commands = [
        command(Opcode.SCALE, tid=20, target=21, f=8),
        command(Opcode.EXPSET, target=22, clear=1,
                tail=[shift(tid=21, const=-5), shift(tid=20, neg=1, const=100), shift(const=-30)]),
        command(Opcode.EXPSET, target=23),
        command(Opcode.SEED, tid=200),
        END]
    outcome = execute(config, program(config, *commands), exponents=((20, -7), (21, 11), (23, 9)),
                      stats=((20, 0x1234), (22, 5)), reads=(20, 21, 22, 23, 200), step=77)
    assert outcome.error == 0
    e21 = 11 + 13 - 9 - 12
    assert outcome.state["exponents"] == {20: -7, 21: e21, 22: e21 - 5 + 7 + 100 - 30, 23: 0, 200: 0}
    assert outcome.state["stats"] == {20: 0, 21: 0, 22: 0, 23: 0, 200: 0}
    assert outcome.state["seeds"][200] == tensor_seed(RUN_SEED, 77, 200)


EDGES = [1, 254, 255, 256, 65535, 65536, 2**28 - 1, 2**28, 2**31, 2**32 - 2]


@pytest.mark.parametrize("step", EDGES)
def test_the_entry_of_a_step_is_at_16_times_its_number(step):
    """Modulo 2^32. The step before and the one behind find other entries, and the seed is that of the whole number."""
    config = PRESETS["small"]
    table = 0x1800
    body = [command(Opcode.LDHYP, offset=(table - 16 * step) % 2**32), command(Opcode.SEED, tid=44)]
    image = program(config, *body, command(Opcode.LOOP, target=0), END).ljust(table - 16 - PROGRAM, b"\0")
    image += b"".join(struct.pack("<BbBB12x", 100 + n, -n, 7, n) for n in range(3))
    outcome = execute(config, image, steps=2, step=step, delay=3, reads=(1, 3, 44))
    assert outcome.error == 0
    assert outcome.hyper == [int.from_bytes(struct.pack("<BbBB", 100 + n, -n, 7, n), "little") for n in (1, 2)]
    assert outcome.state["exponents"] == {1: -2, 3: 2, 44: 0}
    assert outcome.state["seeds"][44] == tensor_seed(RUN_SEED, step + 1, 44)
    assert outcome.state["step"] == (step + 2) % 2**32


def test_tensor_numbers_of_the_largest_machine():
    """eta has 512: numbers that differ by 256 are different tensors in every command."""
    config = PRESETS["eta"]
    assert config.tensors == 512
    commands = [
        command(Opcode.SCALE, tid=300, target=301, f=8),
        command(Opcode.EXPSET, target=511, clear=1, tail=[shift(tid=302, const=-5), shift(tid=257, neg=1, const=9)]),
        command(Opcode.EXPSET, target=256, tail=[shift(tid=511)]),
        command(Opcode.SEED, tid=511), command(Opcode.SEED, tid=256),
        END]
    low = (44, 45, 46, 1, 255)
    outcome = execute(config, program(config, *commands), exponents=((301, 5), (302, 40), (257, 6), (45, 77), (46, 78), (1, 79)),
                      stats=((300, 0x1000), (44, 1), (511, 3), (255, 9), (256, 4)), reads=(*low, 256, 257, 300, 301, 302, 511))
    assert outcome.error == 0
    made = 40 - 5 - 6 + 9
    assert outcome.state["exponents"] == {44: 0, 45: 77, 46: 78, 1: 79, 255: 0, 256: made, 257: 6, 300: 0,
                                          301: 5 + 13 - 9 - 12, 302: 40, 511: made}
    assert outcome.state["stats"] == {44: 1, 45: 0, 46: 0, 1: 0, 255: 9, 256: 4, 257: 0, 300: 0, 301: 0, 302: 0, 511: 0}
    assert {tid: outcome.state["seeds"][tid] for tid in (255, 256, 511)} == {
        255: 0, **{tid: tensor_seed(RUN_SEED, 0, tid) for tid in (256, 511)}}


@pytest.mark.parametrize("opcode", [Opcode.SEED, Opcode.SCALE, Opcode.EXPSET])
def test_the_last_tensor_and_the_one_behind(opcode):
    """In each field of its own; a number beyond the file is refused although its low bits are those of a tensor."""
    config = PRESETS["small"]
    names = {Opcode.SEED: ["tid"], Opcode.SCALE: ["tid", "target"], Opcode.EXPSET: ["target", "term"]}[opcode]
    for name in names:
        for number, legal in ((config.tensors - 1, True), (config.tensors, False)):
            fields = {} if name == "term" else {name: number}
            tail = [shift(tid=number)] if name == "term" else []
            outcome = execute(config, program(config, command(opcode, tail=tail, **fields), END), stalls=0)
            assert outcome.error == (0 if legal else ErrorCode.ILLEGAL_FIELD), (name, number)


@pytest.mark.parametrize("clear", [0, 1])
def test_expset_clears_the_statistic_if_it_is_told_to(clear):
    config = PRESETS["small"]
    outcome = execute(config, program(config, command(Opcode.EXPSET, target=9, clear=clear), END), stats=((9, 5), (8, 6)),
                      reads=(8, 9))
    assert outcome.state["stats"] == {8: 6, 9: 0 if clear else 5}


@pytest.mark.parametrize("terms", [0, 1, 2, 3, 8, MAX_WORDS - COMMANDS[Opcode.EXPSET].words])
def test_shift_lists_of_every_length(terms):
    """Their words are taken in pairs; the command behind the list is the next one."""
    config = PRESETS["small"]
    rng = random.Random(terms)
    tail = [(rng.choice([20, 21, 0]), rng.randrange(2), rng.randint(-50, 50)) for _ in range(terms)]
    values = {20: -7, 21: 300, 0: 0}
    commands = [command(Opcode.EXPSET, target=30, tail=[shift(tid=tid, neg=neg, const=const) for tid, neg, const in tail]),
                command(Opcode.EXPSET, target=31, tail=[shift(const=17)]), END]
    outcome = execute(config, program(config, *commands), exponents=((20, -7), (21, 300)), reads=(30, 31))
    assert outcome.error == 0
    total = sum(const + (-values[tid] if neg else values[tid]) for tid, neg, const in tail)
    assert outcome.state["exponents"] == {30: total, 31: 17}


@pytest.mark.parametrize(("base", "value"), [(0xFFFFFFF0, 0x20), (0x7FFFFFFF, 1), (0, -1)])
def test_base_registers_count_modulo_2_to_the_32(base, value):
    """Each one for itself."""
    config = PRESETS["small"]
    commands = [command(Opcode.SETBASE, breg=n, value=(base + n) % 2**32) for n in range(8)]
    commands += [command(Opcode.ADDBASE, breg=5, value=value), command(Opcode.ADDBASE, breg=0, value=value)]
    outcome = execute(config, program(config, *commands, END), stalls=0)
    assert outcome.state["base"] == [(base + n + (value if n in (0, 5) else 0)) % 2**32 for n in range(8)]


def _patched(image, word, value):
    return image[:4 * word] + struct.pack("<I", value) + image[4 * word + 4:]


def test_defects_of_a_program_are_told_by_code_and_place():
    config = PRESETS["small"]
    load = command(Opcode.LOAD)
    good = program(config, load, load, END)
    second = 4 + len(load)
    long_run = command(Opcode.RUN, tail=[0] * (MAX_WORDS - COMMANDS[Opcode.RUN].words))
    cases = {
        "magic": (_patched(good, 0, 0), ErrorCode.PROGRAM_HEADER, 0),
        "version": (_patched(good, 1, 9), ErrorCode.PROGRAM_HEADER, 0),
        "digest": (_patched(good, 3, 1), ErrorCode.PROGRAM_HEADER, 0),
        "odd length": (_patched(good, 2, 5), ErrorCode.PROGRAM_HEADER, 0),
        "length of an odd number of words": (_patched(good, 2, len(good) - 20), ErrorCode.PROGRAM_HEADER, 0),
        "beyond the window": (_patched(good, 2, LIMIT - PROGRAM), ErrorCode.PROGRAM_ADDRESS, 0),
        "to the end of the window": (_patched(good, 2, LIMIT - PROGRAM - 16), 0, 2 * LOAD_BYTES),
        "a pair of words beyond": (_patched(good, 2, LIMIT - PROGRAM - 8), ErrorCode.PROGRAM_ADDRESS, 0),
        "huge": (_patched(good, 2, 0xFFFFFFF8), ErrorCode.PROGRAM_ADDRESS, 0),
        "empty": (_patched(good, 2, 0), ErrorCode.MALFORMED_COMMAND, 0),
        "no END": (program(config, load, load), ErrorCode.MALFORMED_COMMAND, 2 * LOAD_BYTES),
        "cut": (_patched(good, 2, 2 * LOAD_BYTES), ErrorCode.MALFORMED_COMMAND, 2 * LOAD_BYTES),
        "cut in a command": (_patched(good, 2, LOAD_BYTES + 16), ErrorCode.MALFORMED_COMMAND, LOAD_BYTES),
        "opcode": (_patched(good, second, 0x000209), ErrorCode.MALFORMED_COMMAND, LOAD_BYTES),
        "engine": (_patched(good, second, 0x0009F0), ErrorCode.MALFORMED_COMMAND, LOAD_BYTES),
        "short": (_patched(good, second, LOAD_BYTES // 4 - 1 << 8 | 0x10), ErrorCode.MALFORMED_COMMAND, LOAD_BYTES),
        "long": (_patched(good, second, LOAD_BYTES // 4 + 1 << 8 | 0x10), ErrorCode.MALFORMED_COMMAND, LOAD_BYTES),
        "no words": (_patched(good, second, 0x000010), ErrorCode.MALFORMED_COMMAND, LOAD_BYTES),
        "one word more than the most": (program(config, [*long_run, 0], END)[:16] + bytes([0x30, MAX_WORDS + 1, 0, 0]) + bytes(200),
                     ErrorCode.MALFORMED_COMMAND, 0),
        "seed": (program(config, command(Opcode.SEED, tid=config.tensors), END), ErrorCode.ILLEGAL_FIELD, 0),
        "scale": (program(config, command(Opcode.SCALE, tid=1, target=2047), END), ErrorCode.ILLEGAL_FIELD, 0),
        "expset": (program(config, command(Opcode.EXPSET, target=5, tail=[shift(tid=999)]), END),
                   ErrorCode.ILLEGAL_FIELD, 0),
        "loop odd": (program(config, command(Opcode.LOOP, target=2), END), ErrorCode.ILLEGAL_FIELD, 0),
        "loop to an odd word": (program(config, command(Opcode.LOOP, target=4), END), ErrorCode.ILLEGAL_FIELD, 0),
        "loop far": (program(config, command(Opcode.LOOP, target=32), END), ErrorCode.ILLEGAL_FIELD, 0),
        "table odd": (program(config, command(Opcode.LDHYP, offset=PROGRAM + 2), END), ErrorCode.ILLEGAL_FIELD, 0),
        "table at an odd word": (program(config, command(Opcode.LDHYP, offset=PROGRAM + 4), END), ErrorCode.ILLEGAL_FIELD, 0),
        "table at the end": (program(config, command(Opcode.LDHYP, offset=LIMIT - 8), END), 0, size(command(Opcode.LDHYP))),
        "table beyond": (program(config, command(Opcode.LDHYP, offset=LIMIT), END), ErrorCode.READ_WINDOW, 0),
        "table at the top": (program(config, command(Opcode.LDHYP, offset=2**32 - 8), END), ErrorCode.READ_WINDOW, 0),
    }
    for name, (image, code, offset) in cases.items():
        outcome = execute(config, image, delay=3)
        assert (outcome.error, outcome.offset) == (code, offset), name
    assert execute(config, _patched(good, second, 0x12340209), delay=3).tag == 0x1234, "the tag is the defective command's own"


def test_a_halt_beside_a_table_outside_the_window_lets_nothing_out():
    """In whatever cycle: what reads ahead begins before the address has been looked at. (The memory takes no other address.)"""
    config = PRESETS["small"]
    image = program(config, command(Opcode.LDHYP, offset=LIMIT), END)
    cycles = execute(config, image, delay=3, stalls=0).cycles
    found = {execute(config, image, delay=3, stalls=0, halt=cycle, limit=cycles + 20).error for cycle in range(cycles + 1)}
    assert found == {-1, ErrorCode.READ_WINDOW}


@pytest.mark.parametrize("seed", range(40))
def test_random_words_never_hang_the_sequencer(seed):
    """Random commands without waits end with END or an error; they hang only where a semaphore is missing."""
    config = PRESETS["small"]
    rng = random.Random(seed)
    words = []
    for _ in range(rng.randrange(1, 25)):
        opcode = rng.choice(list(COMMANDS))
        entry = COMMANDS[opcode]
        size = entry.words + (rng.randrange(0, 20) if entry.tail else 0)
        size = min(size, MAX_WORDS) if rng.random() < 0.95 else rng.randrange(64)
        new = [opcode | size << 8, 0, 0, *(rng.getrandbits(32) for _ in range(max(0, size - 3)))]
        if opcode == Opcode.LOOP and rng.random() < 0.7 and size > 3:
            new[3] = 8 * rng.randrange(1 + len(words))
        words.append(new)
    if rng.random() < 0.5:
        words.append(END)
    outcome = execute(config, program(config, *words), seed=seed, steps=rng.randrange(6), delay=3)
    assert outcome.error in (0, ErrorCode.MALFORMED_COMMAND, ErrorCode.ILLEGAL_FIELD, ErrorCode.READ_WINDOW)


def _alone(image, window, *, preset="nano", cycles=600):
    """A program at the start of a window on a Sequencer beside idle engines: the cycles of its done, its errors, and every tag with
    every place that it says with it."""
    config = PRESETS[preset]
    dut = Sequencer(config)
    dones, errors, places = [], [], []

    async def bench(ctx):
        beat, pending = config.beat_bytes, []
        for name, value in {"program": window[0], "window_base": window[0], "window_limit": window[1],
                            "idle": (1 << len(dut.units)) - 1, "sem_grant": 1}.items():
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.request.ready, 1)
        await ctx.tick()
        for cycle in range(cycles):
            ctx.set(dut.start, cycle == 0)
            if ctx.get(dut.request.valid):
                address, beats = ctx.get(dut.request.p.address), ctx.get(dut.request.p.beats)
                pending += [(address + n * beat - window[0], n == beats - 1) for n in range(beats)]
            ctx.set(dut.response.valid, bool(pending))
            if pending:
                at, last = pending[0]
                ctx.set(dut.response.p.data, int.from_bytes(image[at:at + beat], "little"))
                ctx.set(dut.response.p.last, last)
                if ctx.get(dut.response.ready):
                    pending.pop(0)
            if ctx.get(dut.done):
                dones.append(cycle)
            if code := ctx.get(dut.error):
                errors.append(code)
            said = ctx.get(dut.tag), ctx.get(dut.offset)
            if said not in places:
                places.append(said)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return dones, errors, places


@pytest.mark.parametrize(("base", "limit", "length", "code"), [
    (0x1000, 0x80001010, 0x80000000, 0), (0x1000, 0x80001010, 0x80000008, ErrorCode.PROGRAM_ADDRESS),
    (0, 0xC0000000, 0xBFFFFFF0, 0), (0, 0xC0000000, 0xE0000000, ErrorCode.PROGRAM_ADDRESS),
    (0, 2**32 - 1, 0xFFFFFFE8, 0), (0, 2**32 - 1, 0xFFFFFFF0, ErrorCode.PROGRAM_ADDRESS)])
def test_programs_and_windows_of_gigabytes(base, limit, length, code):
    """What is left of the program, and of the window, counts with all of its bits."""
    image = _patched(program(PRESETS["nano"], END), 2, length)
    dones, errors, _ = _alone(image, (base, limit))
    assert errors == [code] * bool(code)
    assert len(dones) == (not code)


def test_a_program_is_done_in_one_cycle():
    dones, errors, _ = _alone(program(PRESETS["nano"], command(Opcode.SETBASE, breg=1, value=5), END), (PROGRAM, LIMIT))
    assert len(dones) == 1
    assert not errors


def test_no_tag_is_said_with_the_place_of_a_command_before():
    """Where the next command's words are there before it is at hand."""
    commands = [command(Opcode.SETBASE, tag=1 + n, breg=n % 8, value=n) for n in range(12)]
    commands.append(command(Opcode.END, tag=13))
    begins = {1 + n: sum(map(size, commands[:n])) for n in range(len(commands))}
    dones, _, places = _alone(program(PRESETS["eta"], *commands), (PROGRAM, LIMIT), preset="eta")
    assert dones
    assert {tag for tag, _ in places} >= begins.keys()
    assert all(place >= begins[tag] for tag, place in places if tag in begins), places


def test_no_tag_is_said_of_what_lies_behind_the_program():
    """In the beat that its last words are in."""
    config = PRESETS["eta"]
    image = program(config, command(Opcode.SETBASE, tag=1))
    assert len(image) % config.beat_bytes == 8
    behind = struct.pack("<2I", command(Opcode.SETBASE, tag=2)[0], 0)
    dones, errors, places = _alone(image + behind, (PROGRAM, LIMIT), preset="eta")
    assert not dones
    assert errors == [ErrorCode.MALFORMED_COMMAND]
    assert {tag for tag, _ in places} <= {0, 1}


@pytest.mark.parametrize("loads", range(4))
@pytest.mark.parametrize("preset", ["nano", "eta"])
def test_a_program_without_end_ends_with_an_error(preset, loads):
    """Where its last word is, also if no word of the memory behind it was read."""
    config = PRESETS[preset]
    outcome = execute(config, program(config, *[command(Opcode.LOAD)] * loads), delay=3, limit=2000)
    assert (outcome.error, outcome.offset) == (ErrorCode.MALFORMED_COMMAND, loads * LOAD_BYTES)
