"""The whole machine: programs from DRAM, round trips through the parameter buffer, faults and restarts, registers, counters."""

import collections
import os
import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from gradloom.contracts.engines import Unit, load_channels, unit_of, units
from gradloom.contracts.isa import COMMANDS, MAX_WORDS, Dest, Opcode, Source
from gradloom.contracts.regmap import PERF_MAC_USE, TOTALS, Access, ErrorCode, perf_index, register
from gradloom.rtl.accelerator import Accelerator
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.configs import machine_config
from gradloom.verif.machine_bench import PROGRAM, WINDOW, MachineBench
from gradloom.verif.program_case import command, program, shift, size, tensor_seed

DATA = 0x8000
RESULT = 0x10000
END = command(Opcode.END)


def load(entries, **header):
    return command(Opcode.LOAD, dest=Dest.PBUF, n0=4 * entries, n1=1, n2=1, **header)


def store(entries, **header):
    return command(Opcode.STORE, src=Source.PBUF, n0=4 * entries, n1=1, n2=1, **header)


def round_trip(config, *, entries=48, source=DATA, result=RESULT):
    """A program that copies ``entries`` parameter entries from DRAM to DRAM."""
    return program(config, command(Opcode.SETBASE, breg=0, value=source), command(Opcode.SETBASE, breg=7, value=result),
                   load(entries, breg=0, signal=1, tag=9), store(entries, breg=7, wait=1, tag=10), END)


def pbuf_units(config):
    """The Loader and the Storer of the parameter buffer."""
    return unit_of(config, Opcode.LOAD, Dest.PBUF), unit_of(config, Opcode.STORE, Source.PBUF)


async def check_round_trip(bench, entries=48):
    size = 4 * entries * bench.beat
    bench.ram.write(DATA, bench.rng.randbytes(size))
    bench.ram.write(RESULT, bytes(size))
    await bench.run_well(round_trip(bench.config, entries=entries))
    assert bench.ram.read(RESULT, size) == bench.ram.read(DATA, size)


@cocotb.test()
async def identity_and_registers(dut):
    bench = await MachineBench(dut).begin()
    config = bench.config
    assert await bench.read("ID") == 0x4D4C5247
    assert await bench.read("CONFIG") == config.digest()
    assert (await bench.fields("SHAPE"))["cols"] == config.cols
    assert await bench.fields("STATUS") == {"idle": 1, "running": 0, "done": 0, "error": 0, "stopping": 0, "irq": 0}
    for tid, value in ((5, -7), (6, 300)):
        await bench.write("EXP_INDEX", tid)
        await bench.write("EXP_VALUE", value & 0xFFFF)
        assert await bench.read("EXP_INDEX") == tid + 1
    await bench.write("EXP_INDEX", 5)
    assert await bench.read("EXP_VALUE") == 0xFFFFFFF9
    assert await bench.read("EXP_VALUE") == 300


@cocotb.test()
async def program_of_one_end(dut):
    bench = await MachineBench(dut).begin()
    await bench.run_well(program(bench.config, END))
    assert 0 < await bench.wide("CYCLES") < 200


@cocotb.test()
@cocotb.parametrize(share=[0.0, 0.4])
async def round_trips(dut, share):
    bench = await MachineBench(dut, seed=2, share=share).begin()
    for entries in (1, 48, 200):
        await check_round_trip(bench, entries)
    bench.check_window()


@cocotb.test()
async def pipelined_copies_with_steps(dut):
    """Two halves of the parameter buffer, tokens in both directions, base registers that advance from step to step."""
    bench = await MachineBench(dut, seed=3, share=0.2).begin()
    entries, pieces, steps = 4, 6, 3
    piece = 4 * entries * bench.beat
    head = [command(Opcode.SETBASE, breg=1, value=DATA), command(Opcode.SETBASE, breg=2, value=RESULT)]
    body = []
    for n in range(pieces):
        body += [load(entries, breg=1, offset=n * piece, addr0=entries * (n % 2), wait=2 if n >= 2 else 0, signal=1),
                 store(entries, breg=2, offset=n * piece, addr0=entries * (n % 2), wait=1, signal=2)]
    body += [command(Opcode.BARRIER, wait=2), command(Opcode.BARRIER, wait=2),
             command(Opcode.ADDBASE, breg=1, value=pieces * piece), command(Opcode.ADDBASE, breg=2, value=pieces * piece),
             command(Opcode.LOOP, target=sum(map(size, head)))]
    await bench.write("STEP", 40)
    await bench.run_well(program(bench.config, *head, *body, END), steps=steps)
    moved = steps * pieces * piece
    assert bench.ram.read(RESULT, moved) == bench.image[DATA:DATA + moved]
    assert bench.ram.read(RESULT + moved, 64) == bench.image[RESULT + moved:RESULT + moved + 64]
    assert await bench.read("STEP") == 40 + steps
    assert await bench.read("BASE1") == DATA + moved


@cocotb.test()
async def channels_side_by_side(dut):
    """A Loader that waits for a semaphore holds up no other, faults name their own engine, and all beats are counted."""
    bench = await MachineBench(dut, seed=8).begin()
    config, beats = bench.config, 32
    present = units(config)
    memories = {unit_of(config, Opcode.LOAD, dest, way): {"dest": dest, "way": way}
                for dest, way in ((Dest.EBUF, 0), (Dest.WBUF, 1), (Dest.AA, 0), (Dest.AB, 0))}
    rows = {"xb": beats, "bstep": 1, "n0": beats, "n1": 1, "n2": 1}
    head = command(Opcode.SETBASE, value=DATA)
    for stuck, memory in memories.items():
        words = [command(Opcode.LOAD, **memory, wait=1, tag=1, **rows)]
        words += [command(Opcode.LOAD, **dest, tag=2, **rows) for dest in memories.values()]
        outcome = await bench.run(program(config, head, *words, END))
        assert outcome["code"] == ErrorCode.WATCHDOG
        assert (await bench.fields("ERROR_STATE"))["waiting"] == 1 << stuck
        for unit in memories:
            await bench.write("PERF_INDEX", perf_index(unit, 2))
            assert (await bench.read("PERF_LOW") > 0) == (unit != stuck)
    for unit, dest in memories.items():
        outcome = await bench.run(program(config, head, command(Opcode.LOAD, **dest, tag=3), END))
        assert (outcome["code"], outcome["engine"], outcome["tag"]) == (ErrorCode.ILLEGAL_FIELD, unit, 3)
        words = command(Opcode.LOAD, **dest, offset=WINDOW[1] - DATA, tag=4, **rows)
        outcome = await bench.run(program(config, head, words, END))
        assert (outcome["code"], outcome["engine"], outcome["tag"]) == (ErrorCode.READ_WINDOW, unit, 4)
    outcome = await bench.run(program(config, head, command(Opcode.LOAD, dest=15, tag=5, **rows), END))
    assert (outcome["code"], outcome["engine"], outcome["tag"]) == (ErrorCode.ILLEGAL_FIELD, Unit.LOAD, 5)
    for source in (Source.OA, Source.OB, 15):
        words = command(Opcode.STORE, src=source, offset=WINDOW[1] - DATA, tag=6, n0=beats, n1=1, n2=1)
        outcome = await bench.run(program(config, head, words, END))
        code = ErrorCode.ILLEGAL_FIELD if source == 15 else ErrorCode.WRITE_WINDOW
        assert (outcome["code"], outcome["engine"]) == (code, unit_of(config, Opcode.STORE, source))
    moves = [command(Opcode.LOAD, **dest, **rows) for dest in memories.values()]
    moves += [command(Opcode.STORE, src=source, offset=4096 * n, n0=beats, n1=1, n2=1)
              for n, source in enumerate((Source.OA, Source.OB), 1)]
    await bench.run_well(program(config, head, *moves, END))
    assert await bench.wide("WRITE_BEATS") == 2 * beats
    assert await bench.wide("READ_BEATS") >= len(memories) * beats
    for unit in Unit:
        if unit not in (Unit.SEQ, Unit.CCORE, Unit.ACORE):
            assert (await bench.wide(f"BUSY_{unit.name}") > 0) == (unit in present)
    bench.check_window()


@cocotb.test()
async def a_fault_waits_for_the_loads_of_its_channel(dut):
    """A load that gives way to another channel's at its bank has not ended: a refused one behind it is told under its own tag."""
    bench = await MachineBench(dut, seed=9).begin()
    config = bench.config
    one_row = {"dest": Dest.IBUF, "xb": 64, "bstep": 0, "n1": 1, "n2": 1}
    head = command(Opcode.SETBASE, value=DATA)
    for way in range(len(load_channels(config, Dest.IBUF))):
        words = [command(Opcode.LOAD, tag=1, **one_row, n0=64)]
        words += [command(Opcode.LOAD, way=way, tag=2, **one_row, n0=1)]
        words += [command(Opcode.LOAD, way=way, tag=3, offset=WINDOW[1] - DATA, **one_row, n0=1)]
        outcome = await bench.run(program(config, head, *words, END))
        unit = unit_of(config, Opcode.LOAD, Dest.IBUF, way)
        assert (outcome["code"], outcome["engine"], outcome["tag"]) == (ErrorCode.READ_WINDOW, unit, 3)


@cocotb.test()
async def exponents_seeds_and_hyperparameters(dut):
    bench = await MachineBench(dut).begin()
    table = DATA + 64
    bench.ram.write(table + 16 * 2, bytes([200, 0x100 - 5, 230, 9]))
    await bench.write("STEP", 2)
    await bench.run_well(program(
        bench.config, command(Opcode.SETBASE, breg=4, value=DATA), command(Opcode.LDHYP, breg=4, offset=64),
        command(Opcode.EXPSET, target=30, tail=[shift(tid=1, const=100), shift(tid=3, neg=1, const=0)]),
        command(Opcode.SCALE, tid=31, target=30, f=8), command(Opcode.SEED, tid=31), END))
    assert await bench.fields("HYPER") == {"lm": 200, "momentum": 230, "decay_off": 0}
    await bench.write("EXP_INDEX", 30)
    assert await bench.read("EXP_VALUE") == 100 - 5 - 9 - 4
    assert tensor_seed(0, 2, 31) >= 0
    limits = (-(1 << 15), -(1 << 14) - 1, 1 << 14, (1 << 15) - 1)
    sums = [command(Opcode.EXPSET, target=20 + n, tail=[shift(const=limit), shift()]) for n, limit in enumerate(limits)]
    await bench.run_well(program(bench.config, *sums, END))
    await bench.write("EXP_INDEX", 20)
    assert [(await bench.read("EXP_VALUE")) for _ in limits] == [limit % 2**32 for limit in limits]


@cocotb.test()
async def counters_by_tag_and_totals(dut):
    bench = await MachineBench(dut).begin()
    entries = 16
    await bench.run_well(round_trip(bench.config, entries=entries))
    busy = {}
    loader, storer = pbuf_units(bench.config)
    for engine, tag in ((loader, 9), (storer, 10)):
        await bench.write("PERF_INDEX", perf_index(engine, tag))
        busy[engine] = await bench.read("PERF_LOW")
        assert await bench.read("PERF_HIGH") == 0
        assert await bench.read("PERF_INDEX") == perf_index(engine, tag + 1)
        assert await bench.read("PERF_LOW") == 0
        assert busy[engine] >= 4 * entries
        assert await bench.wide(f"BUSY_{engine.name}") == busy[engine]
    assert await bench.wide(f"WAIT_{storer.name}") > busy[loader] // 2
    assert await bench.wide("WRITE_BEATS") == 4 * entries
    assert await bench.wide("READ_BEATS") >= 4 * entries
    assert await bench.wide("MAC_USE") == 0
    cycles = await bench.wide("CYCLES")
    assert busy[loader] + busy[storer] < cycles
    await bench.run_well(clear=False)
    assert await bench.wide("WRITE_BEATS") == 8 * entries
    assert await bench.wide("CYCLES") > cycles
    await bench.run_well(program(bench.config, END))
    for name in TOTALS[1:]:
        assert await bench.wide(name) == 0
    for table in range(1, PERF_MAC_USE + 1):
        await bench.write("PERF_INDEX", perf_index(table, 9))
        assert await bench.read("PERF_LOW") == 0


@cocotb.test()
async def windows_by_tag(dut):
    """They count for the command that takes them, whatever it follows; a command that an error cuts short counts none."""
    bench = await MachineBench(dut).begin()
    config = bench.config

    def conv(cols, tag, **changes):
        """``cols`` windows."""
        rows = {"units": config.wpus, "upi": config.wpus, "steps": 1, "cols": cols, "nr": 1, "nk": 1, "yin": 4, "xe": 16}
        return command(Opcode.CONV, tag=tag, **rows | changes)

    async def table():
        found = {}
        for tag in range(16):
            await bench.write("PERF_INDEX", perf_index(PERF_MAC_USE, tag))
            if count := await bench.read("PERF_LOW"):
                found[tag] = count
        return found

    gradient = {"wg": 1, "clear": 1, "drain": 1}
    commands = [conv(9, 1), conv(1, 2), conv(1, 2), conv(7, 3, **gradient), conv(1, 4, **gradient), conv(1, 4, wg=1, clear=1),
                conv(5, 1), conv(3, 5, **gradient)]
    windows = {1: 14, 2: 2, 3: 7, 4: 2, 5: 3}
    await bench.run_well(program(config, *commands, END))
    assert await table() == windows
    assert await bench.wide("MAC_USE") == sum(windows.values())
    outcome = await bench.run(program(config, *commands, conv(1, 6, units=0), END))
    assert (outcome["code"], outcome["engine"], outcome["tag"]) == (ErrorCode.ILLEGAL_FIELD, Unit.CCORE, 6)
    assert await table() == windows
    # An abort within the second command: the first one has ended, and nothing of the second counts later.
    await bench.start(program(config, conv(9, 1), conv(8, 7, steps=0xFFFF), END))
    await ClockCycles(dut.clk, 3000)
    await bench.write("CONTROL", 0x102)
    assert (await bench.end())["code"] == ErrorCode.ABORTED
    assert await table() == {1: 9}
    await bench.run_well(program(config, conv(6, 8), END), clear=False)
    assert await table() == {1: 9, 8: 6}
    assert await bench.wide("MAC_USE") > 1000


@cocotb.test()
async def refused_register_accesses(dut):
    bench = await MachineBench(dut).begin()
    for address in (0x060, 0x3FC, 0x1000, 0xFFFC):
        assert (await bench.axil.read(address, 4)).resp == 2
        assert (await bench.axil.write(address, b"abcd")).resp == 2
    assert (await bench.axil.write(register("SEED").offset, b"ab")).resp == 2
    for name in ("ID", "CYCLES_LOW", "STAT_HIGH"):
        assert (await bench.axil.write(register(name).offset, bytes(4))).resp == 2
    await bench.start(program(bench.config, command(Opcode.BARRIER, wait=1), END))
    for name in ("PROGRAM", "STEP", "BASE3", "EXP_VALUE"):
        assert register(name).access in (Access.RW_IDLE, Access.IDLE)
        assert (await bench.axil.write(register(name).offset, bytes(4))).resp == 2
    assert (await bench.axil.read(register("EXP_VALUE").offset, 4)).resp == 2
    assert await bench.read("PROGRAM") == PROGRAM
    await bench.write("CONTROL", 0x101)  # a second start is ignored
    await bench.write("CONTROL", 0x102)
    assert (await bench.end())["code"] == ErrorCode.ABORTED


@cocotb.test()
async def faults_are_reported_and_the_next_start_works(dut):
    bench = await MachineBench(dut, seed=5, share=0.2).begin()
    config = bench.config
    big = 200

    async def fault(image, code, engine=Unit.SEQ, tag=0, place=0):
        outcome = await bench.run(image)
        assert (outcome["code"], outcome["engine"], outcome["tag"]) == (code, engine, tag), outcome
        assert await bench.read("ERROR_OFFSET") == place
        bench.check_window()
        bench.bad()
        await check_round_trip(bench, 3)

    good = round_trip(config, entries=big)
    first = 2 * size(command(Opcode.SETBASE))
    second = first + size(command(Opcode.LOAD))
    await fault(b"GRLN" + good[4:], ErrorCode.PROGRAM_HEADER)
    await fault(good[:8] + bytes(4) + good[12:], ErrorCode.MALFORMED_COMMAND)
    loader, storer = pbuf_units(config)
    bench.bad(reads=range(DATA + 100, DATA + 104))
    await fault(good, ErrorCode.READ_RESPONSE, loader, 9, first)
    bench.bad(reads=range(PROGRAM + 32, PROGRAM + 36))
    outcome = await bench.run(good)
    assert (outcome["code"], outcome["engine"]) == (ErrorCode.READ_RESPONSE, Unit.SEQ)
    bench.bad(writes=range(RESULT + 700, RESULT + 704))
    await fault(good, ErrorCode.WRITE_RESPONSE, storer, 10, second)
    await fault(round_trip(config, entries=big, source=WINDOW[1] - 64), ErrorCode.READ_WINDOW, loader, 9, first)
    await fault(round_trip(config, entries=big, source=2**32 - 64), ErrorCode.READ_WINDOW, loader, 9, first)
    await fault(round_trip(config, entries=big, result=WINDOW[0] - 64), ErrorCode.WRITE_WINDOW, storer, 10, second)
    await fault(round_trip(config, entries=big, result=WINDOW[1] - 64), ErrorCode.WRITE_WINDOW, storer, 10, second)
    await fault(program(config, load(0, tag=3), END), ErrorCode.ILLEGAL_FIELD, loader, 3)
    await fault(program(config, *[command(Opcode.BARRIER, signal=1)] * 256, END), ErrorCode.MALFORMED_COMMAND,
                place=size(command(Opcode.BARRIER)) * 255)
    for address in (PROGRAM + 4, WINDOW[0] - 64, WINDOW[1] - 64):
        await bench.write("PROGRAM", address)
        bench.ram.write(WINDOW[1] - 64, good[:64])
        outcome = await bench.run()
        assert outcome["code"] == ErrorCode.PROGRAM_ADDRESS
        await bench.write("PROGRAM", PROGRAM)
    await check_round_trip(bench)


@cocotb.test()
async def a_missing_token_ends_at_the_watchdog(dut):
    bench = await MachineBench(dut).begin()
    await bench.write("WATCHDOG", 500)
    outcome = await bench.run(program(bench.config, store(4, wait=0x80), command(Opcode.BARRIER), END))
    assert outcome["code"] == ErrorCode.WATCHDOG
    state = await bench.fields("ERROR_STATE")
    assert state["waiting"] == 1 << pbuf_units(bench.config)[1]
    assert 500 < await bench.wide("CYCLES") < 700
    await check_round_trip(bench)


@cocotb.test()
async def every_engine_that_waits_is_told(dut):
    """In ERROR_STATE, in its own counter, and on no other engine; at a barrier the Sequencer is busy."""
    bench = await MachineBench(dut).begin()
    config = bench.config
    commands = {Unit.CCORE: command(Opcode.CONV, wait=0x80), Unit.ACORE: command(Opcode.RUN, wait=0x80)}
    commands |= {unit_of(config, Opcode.LOAD, dest, way): command(Opcode.LOAD, dest=dest, way=way, wait=0x80)
                 for dest in Dest for way in range(4)}
    commands |= {unit_of(config, Opcode.STORE, source): command(Opcode.STORE, src=source, wait=0x80)
                 for source in Source}
    assert commands.keys() == set(units(config))
    await bench.write("WATCHDOG", 100)
    for unit, words in commands.items():
        outcome = await bench.run(program(config, words, command(Opcode.BARRIER), END))
        assert outcome["code"] == ErrorCode.WATCHDOG
        assert await bench.fields("ERROR_STATE") == {"busy": 1 << Unit.SEQ, "waiting": 1 << unit}
        for other in commands:
            assert (await bench.wide(f"WAIT_{other.name}") >= 100) == (other == unit), (unit, other)
    outcome = await bench.run(program(config, command(Opcode.BARRIER, wait=0x80), END))
    assert outcome["code"] == ErrorCode.WATCHDOG
    assert await bench.fields("ERROR_STATE") == {"busy": 0, "waiting": 1 << Unit.SEQ}
    await check_round_trip(bench)


@cocotb.test()
async def the_place_of_a_command_has_all_its_bits(dut):
    """Of a program of gigabytes, whose second step begins in the upper half of all addresses, where the memory is as
    in the lower."""
    bench = await MachineBench(dut).begin()
    far, loop = 0x80000000, size(command(Opcode.LOOP))
    await bench.write("WINDOW_LIMIT", 0xFFFFFFFF)
    image = program(bench.config, command(Opcode.LOOP, target=far), command(Opcode.BARRIER, wait=0x80), END)
    await bench.start(image[:8] + (far + len(image) - 16).to_bytes(4, "little") + image[12:], steps=2)
    await ClockCycles(dut.clk, 1000)
    assert await bench.read("OFFSET") == far + loop
    assert (await bench.end())["code"] == ErrorCode.WATCHDOG
    assert await bench.read("ERROR_OFFSET") == far + loop


@cocotb.test()
async def abort_at_any_time(dut):
    bench = await MachineBench(dut, seed=6, share=0.3).begin()
    image = round_trip(bench.config, entries=200)
    for wait in (0, 1, 5, 30, 60, 120, 250, 400, 800, 1200, 1600):
        await bench.start(image, clear=wait != 5)
        await ClockCycles(dut.clk, wait)
        await bench.write("CONTROL", 0x102)
        outcome = await bench.end()
        assert outcome["code"] in (ErrorCode.ABORTED, 0)
        bench.check_window()
    await check_round_trip(bench)
    await bench.write("CONTROL", 0x102)
    assert (await bench.fields("STATUS"))["idle"]


@cocotb.test()
async def a_memory_that_never_answers_shows_as_stopping(dut):
    bench = await MachineBench(dut).begin()
    await bench.write("WATCHDOG", 200)
    for port in bench.reads:
        port.r_channel.pause = True
    await bench.start(round_trip(bench.config))
    await ClockCycles(dut.clk, 1500)
    status = await bench.fields("STATUS")
    assert (status["running"], status["stopping"], status["error"], status["irq"]) == (1, 1, 1, 0)
    for port in bench.reads:
        port.r_channel.pause = False
    assert (await bench.end())["code"] == ErrorCode.WATCHDOG
    await check_round_trip(bench)


def random_program(config, rng):
    """Random commands: legal outside, anything inside; some are cut or have odd lengths and opcodes."""
    words = []
    for _ in range(rng.randrange(1, 12)):
        opcode = rng.choice(list(COMMANDS))
        entry = COMMANDS[opcode]
        size = min(MAX_WORDS, entry.words + (rng.randrange(12) if entry.tail else 0))
        new = [opcode | size << 8 | rng.getrandbits(9) << 16, 0, 0, *(rng.getrandbits(32) for _ in range(size - 3))]
        if rng.random() < 0.8:
            # Small values in most fields make commands that run for a while.
            fields = {field.name: rng.getrandbits(field.width - field.signed) >> rng.randrange(field.width)
                      for field in entry.fields}
            new = command(opcode, tail=new[entry.words:], tag=rng.getrandbits(9), **fields)
        if rng.random() < 0.3:
            new[1:3] = [rng.getrandbits(2) & rng.getrandbits(2) & rng.getrandbits(2) for _ in range(2)]
        if opcode in (Opcode.LOAD, Opcode.STORE) and rng.random() < 0.7:
            new[4] = WINDOW[0] + rng.randrange(WINDOW[1] - WINDOW[0])
            new[5:9] = [rng.randrange(1, 30) | rng.randrange(1, 4) << 16, rng.randrange(512), rng.randrange(1, 4), 0]
        if opcode == Opcode.LOOP:
            new[3] = 0
        if rng.random() < 0.03:
            new[0] = rng.getrandbits(32)
        words.append(new)
    image = bytearray(program(config, *words, *([END] if rng.random() < 0.7 else [])))
    if rng.random() < 0.1:
        image[rng.randrange(len(image))] ^= 1 << rng.randrange(8)
    return bytes(image)


@cocotb.test()
async def random_programs_end_and_the_next_start_works(dut):
    bench = await MachineBench(dut, seed=7, share=0.1).begin()
    await bench.write("WATCHDOG", 1000)
    codes = collections.Counter()
    silent = 0
    for seed in range(int(os.environ.get("GRADLOOM_RANDOM_PROGRAMS", "200"))):
        rng = random.Random(seed)
        await bench.start(random_program(bench.config, rng), steps=rng.randrange(4), clear=False)
        try:
            outcome = await bench.end(60_000)
        except AssertionError:
            # Long but finite: progress is made all the time, so the host ends it.
            assert (await bench.fields("STATUS"))["running"]
            await bench.write("CONTROL", 0x102)
            outcome = await bench.end(5_000)
        codes[outcome["code"]] += 1
        assert outcome["code"] in set(ErrorCode)
        bench.check_window()
        if outcome["code"] == ErrorCode.WATCHDOG:
            # A token is missing, or a core computes for long; Loader and Storer always move beats.
            state = await bench.fields("ERROR_STATE")
            assert state["waiting"] or state["busy"] & (1 << Unit.CCORE | 1 << Unit.ACORE), (seed, state)
            silent += not state["waiting"]
        if seed % 4 == 0:
            for n in range(8):
                await bench.write(f"BASE{n}", 0)
            await check_round_trip(bench, 5)
    dut._log.info("error codes of the random programs: %s, watchdog during a long command: %d",
                  {hex(code): count for code, count in codes.items()}, silent)
    assert {0, ErrorCode.MALFORMED_COMMAND, ErrorCode.ILLEGAL_FIELD, ErrorCode.READ_WINDOW} <= set(codes)


@pytest.mark.parametrize("config", [
    *(pytest.param(name, marks=pytest.mark.long("a machine with fewer channels than `channels`")) for name in ("nano", "small")),
    "channels",
])
def test_accelerator(config, tmp_path):
    assert run_cocotb(lambda: Accelerator(machine_config(config)), __file__, tmp_path) == 18
