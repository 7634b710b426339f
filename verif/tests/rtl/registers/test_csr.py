"""The register block on AXI4-Lite: every register, access rules, side effects, odd handshakes."""

import itertools
import random

import cocotb
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator
from cocotb.triggers import RisingEdge

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import REGISTERS, TOTALS, Access, offset, register
from gradloom.rtl.registers.csr import Csr
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.machine_bench import RegisterBench
from gradloom.verif.memory_bench import stall, start_clock

CONFIG = PRESETS["ulx3s"]
OKAY, SLVERR = 0, 2


async def begin(dut, *, share=0.0, **inputs):
    names = ("running", "status", "error", "error_offset", "error_state", "position", "loop", "bases__write", "bases__at",
             "hyper_write", "scale__e", "scale__stat", "counters__value", "cycles", "counters__totals")
    await start_clock(dut, **{name: 0 for name in names} | inputs)
    bench = RegisterBench(dut)
    if share:
        rng = random.Random(8)
        for side, channels in ((bench.axil.write_if, ("aw_channel", "w_channel", "b_channel")),
                               (bench.axil.read_if, ("ar_channel", "r_channel"))):
            for channel in channels:
                getattr(side, channel).set_pause_generator(stall(rng, share))
    return bench


async def pulses(dut, name, log):
    while True:
        await RisingEdge(dut.clk)
        if int(getattr(dut, name).value):
            log.append(name)


@cocotb.test()
async def constants_and_reset_values(dut):
    bench = await begin(dut)
    for entry in REGISTERS:
        if entry.constant:
            assert await bench.read(entry.name) == entry.constant(CONFIG), entry.name
        elif entry.stored:
            assert await bench.read(entry.name) == entry.reset, entry.name


@cocotb.test()
async def writable_registers_keep_their_value(dut):
    bench = await begin(dut, share=0.4)
    rng = random.Random(1)
    names = [entry.name for entry in REGISTERS if entry.stored] + ["STEP", *(f"BASE{n}" for n in range(8))]
    values = {name: rng.getrandbits(32) for name in names}
    for name, value in values.items():
        await bench.write(name, value)
    for name, value in values.items():
        assert await bench.read(name) == value, name
        if register(name).stored:
            assert int(getattr(dut, name.lower()).value) == value
    await bench.write("CONTROL", 0x100)
    assert await bench.read("CONTROL") == 0x100
    assert int(dut.irq_enable.value) == 1


@cocotb.test()
async def access_rules_of_every_register(dut):
    bench = await begin(dut)
    for running in (0, 1):
        dut.running.value = running
        for entry in REGISTERS:
            readable = not (running and entry.access in (Access.IDLE, Access.RO_IDLE))
            writable = entry.access not in (Access.RO, Access.RO_IDLE) and not (
                running and entry.access in (Access.IDLE, Access.RW_IDLE))
            answer = await bench.axil.read(entry.offset, 4)
            assert answer.resp == (OKAY if readable else SLVERR), entry.name
            assert readable or answer.data == bytes(4)
            answer = await bench.axil.write(entry.offset, bytes(4))
            assert answer.resp == (OKAY if writable else SLVERR), entry.name
        used = {entry.offset for entry in REGISTERS}
        for address in [*range(0, 0x300, 4), 0x8000, 0xFFFC]:
            if address not in used:
                assert (await bench.axil.read(address, 4)).resp == SLVERR
                assert (await bench.axil.write(address, bytes(4))).resp == SLVERR


@cocotb.test()
async def a_refused_write_changes_nothing(dut):
    bench = await begin(dut)
    await bench.write("SEED", 0x11223344)
    assert (await bench.axil.write(offset("SEED"), b"\xff")).resp == SLVERR
    assert (await bench.axil.write(offset("SEED") + 2, b"\xff\xff")).resp == SLVERR
    dut.running.value = 1
    assert (await bench.axil.write(offset("SEED"), bytes(4))).resp == SLVERR
    assert await bench.read("SEED") == 0x11223344


@cocotb.test()
async def control_and_status_give_single_pulses(dut):
    bench = await begin(dut)
    log = []
    for name in ("start", "abort", "irq_acknowledge"):
        cocotb.start_soon(pulses(dut, name, log))
    await bench.write("CONTROL", 0x001)
    assert log == ["start"]
    await bench.write("CONTROL", 0x002)
    assert log == ["start", "abort"]
    await bench.write("STATUS", 0x1F)
    assert len(log) == 2
    await bench.write("STATUS", 0x20)
    assert log[2:] == ["irq_acknowledge"]
    dut.running.value = 1
    await bench.write("CONTROL", 0x105)
    assert len(log) == 3
    dut.status.value = 0x2A
    dut.error.value = 0x12340231
    assert await bench.read("STATUS") == 0x2A
    assert await bench.fields("ERROR") == {"code": 0x31, "engine": 2, "tag": 0x1234}


@cocotb.test()
async def counters_are_read_whole(dut):
    bench = await begin(dut)
    rng = random.Random(2)
    values = [rng.getrandbits(48) for _ in TOTALS]
    dut.counters__totals.value = sum(value << 48 * n for n, value in enumerate(values))
    dut.cycles.value = 0xFFFF_FFFFFFFF
    low = await bench.read("CYCLES_LOW")
    dut.cycles.value = 0
    assert await bench.read("CYCLES_HIGH") << 32 | low == 0xFFFF_FFFFFFFF
    for name, value in zip(TOTALS, values, strict=True):
        assert await bench.wide(name) == value
    # A counter that carries between the two reads: its high half is that of the low half's cycle.
    for name in (*TOTALS, "CYCLES"):
        counter = dut.cycles if name == "CYCLES" else dut.counters__totals
        place = 0 if name == "CYCLES" else 48 * TOTALS.index(name)
        counter.value = 0x1234FFFFFFFF << place
        low = await bench.read(f"{name}_LOW")
        counter.value = 0x123500000000 << place
        assert await bench.read(f"{name}_HIGH") << 32 | low == 0x1234FFFFFFFF, name


@cocotb.test()
async def indices_advance_and_memories_are_reached(dut):
    bench = await begin(dut)
    log = []
    for name in ("scale__write", "scale__clear"):
        cocotb.start_soon(pulses(dut, name, log))
    written = []

    async def memory():
        """Exponent 3 - tid, statistic and counter of an index appear two cycles after it."""
        delayed = [(0, 0)] * 2
        while True:
            await RisingEdge(dut.clk)
            if int(dut.scale__write.value):
                written.append((int(dut.scale__tid.value), dut.scale__value.value.to_signed()))
            delayed.append((int(dut.scale__tid.value), int(dut.counters__tag.value) | int(dut.counters__table.value) << 16))
            tid, perf = delayed.pop(0)
            dut.scale__e.value = 3 - tid
            dut.scale__stat.value = tid << 33 | tid
            dut.counters__value.value = perf << 20

    cocotb.start_soon(memory())
    await bench.write("EXP_INDEX", 6)
    assert [await bench.read("EXP_VALUE") for _ in range(3)] == [2**32 - 3, 2**32 - 4, 2**32 - 5]
    assert await bench.read("EXP_INDEX") == 9
    assert (await bench.read("STAT_LOW"), await bench.read("STAT_HIGH")) == (9, 18)
    await bench.write("EXP_VALUE", 0xFFFE)
    await bench.write("EXP_VALUE", 7)
    assert written == [(9, -2), (10, 7)]
    await bench.write("STAT_LOW", 1)
    assert log == ["scale__write"] * 2 + ["scale__clear"]
    await bench.write("PERF_INDEX", 3 << 16 | 100)
    for tag in (100, 101):
        assert await bench.read("PERF_LOW") == (3 << 16 | tag) << 20 & 0xFFFFFFFF
        assert await bench.read("PERF_HIGH") == (3 << 16 | tag) >> 12
    assert await bench.fields("PERF_INDEX") == {"tag": 102, "table": 3}


@cocotb.test()
async def the_sequencers_writes(dut):
    bench = await begin(dut)
    await bench.write("STEP", 9)
    dut.running.value = 1
    for n in range(8):
        dut.bases__write.value = 1
        dut.bases__index.value = n
        dut.bases__value.value = 0x1000 + n
        dut.loop.value = n < 3
        await RisingEdge(dut.clk)
    dut.bases__write.value, dut.running.value = 0, 0
    dut.hyper_write.value = 1
    for decay, off in ((7, 0), (255, 1)):
        dut.hyper_word.value = decay << 24 | 230 << 16 | 0xFB << 8 | 200
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        assert await bench.fields("HYPER") == {"lm": 200, "momentum": 230, "decay_off": off}
    assert await bench.read("STEP") == 12
    assert [await bench.read(f"BASE{n}") for n in range(8)] == [0x1000 + n for n in range(8)]


@cocotb.test()
async def the_sequencer_looks_at_two_base_registers(dut):
    """Whoever wrote them; the host's write of one is refused while a program runs."""
    bench = await begin(dut)
    bases = [0x8000_0001 + (n << 24) for n in range(8)]
    for n, value in enumerate(bases):
        await bench.write(f"BASE{n}", value)
    dut.running.value, dut.bases__write.value, dut.bases__index.value, dut.bases__value.value = 1, 1, 5, 77
    await RisingEdge(dut.clk)
    dut.bases__write.value, bases[5] = 0, 77
    assert (await bench.axil.write(offset("BASE6"), (3).to_bytes(4, "little"))).resp == SLVERR
    for first, second in itertools.product(range(8), repeat=2):
        dut.bases__at.value = first | second << 3
        await RisingEdge(dut.clk)
        assert int(dut.bases__read.value) == bases[first] | bases[second] << 32


@cocotb.test()
async def a_reset_forgets_base_registers(dut):
    bench = await begin(dut)
    for n in range(8):
        await bench.write(f"BASE{n}", 0xFFFFFFFF)
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    for n in range(8):
        assert [await bench.read(f"BASE{k}") for k in range(8)] == [*range(1, n + 1), *[0] * (8 - n)]
        await bench.write(f"BASE{n}", n + 1)


@cocotb.test()
async def address_and_data_may_come_in_any_order(dut):
    await start_clock(dut, s_axil_awvalid=0, s_axil_wvalid=0, s_axil_bready=0, s_axil_arvalid=0, s_axil_rready=0,
                      running=0, loop=0, bases__write=0, hyper_write=0)
    for first in ("aw", "w"):
        dut.s_axil_awaddr.value = offset("SEED")
        dut.s_axil_wdata.value = 0xABC0 + len(first)
        dut.s_axil_wstrb.value = 0xF
        for channel in (first, "w" if first == "aw" else "aw"):
            getattr(dut, f"s_axil_{channel}valid").value = 1
            await RisingEdge(dut.clk)
            getattr(dut, f"s_axil_{channel}valid").value = 0
            for _ in range(5):
                await RisingEdge(dut.clk)
        assert int(dut.s_axil_bvalid.value)
        for _ in range(3):
            await RisingEdge(dut.clk)
            assert int(dut.s_axil_bvalid.value), "the response must stay until it is taken"
        dut.s_axil_bready.value = 1
        await RisingEdge(dut.clk)
        dut.s_axil_bready.value = 0
        await RisingEdge(dut.clk)
        assert not int(dut.s_axil_bvalid.value)
        assert int(dut.seed.value) == 0xABC0 + len(first)


def test_csr(tmp_path):
    assert run_cocotb(lambda: Csr(CONFIG), __file__, tmp_path) == 11


def test_a_reset_takes_back_answers_that_wait():
    """Of a read and of a write that nobody has taken: on AXI4-Lite neither is valid behind a reset, and both ways are free."""
    reset = Signal()
    dut = Csr(CONFIG)
    answers, ways = ("s_axil_rvalid", "s_axil_bvalid"), ("s_axil_arready", "s_axil_awready", "s_axil_wready")

    def said(ctx, names):
        return [ctx.get(getattr(dut, name)) for name in names]

    async def bench(ctx):
        for _ in range(2):
            for name in ("s_axil_arvalid", "s_axil_awvalid", "s_axil_wvalid"):
                ctx.set(getattr(dut, name), 1)
            while not all(said(ctx, answers)):
                await ctx.tick()
            for name in ("s_axil_arvalid", "s_axil_awvalid", "s_axil_wvalid"):
                ctx.set(getattr(dut, name), 0)
            ctx.set(reset, 1)
            await ctx.tick()
            assert said(ctx, answers) == [0, 0]
            ctx.set(reset, 0)
            await ctx.tick()
            assert said(ctx, answers) == [0, 0]
            assert said(ctx, ways) == [1, 1, 1]

    simulator = Simulator(ResetInserter(reset)(dut))
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
