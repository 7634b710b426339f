"""The C-Core against brute-force convolutions: all patterns, pads, kernels, several images; overlap; rates; illegal commands."""

import itertools
import json
import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import FallingEdge

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, Opcode, Pattern, pairs
from gradloom.host.cost_model.cost import Costs, DramCost, StagedState
from gradloom.host.program.assembler import Instruction
from gradloom.rtl.ccore.ccore import FAULT_ILLEGAL, FAULT_PSUM, FAULT_WG, CCore
from gradloom.verif.ccore.ccore_bench import Bench, Trace, drain_cycles, fits, tokens
from gradloom.verif.ccore.collisions import colliding
from gradloom.verif.ccore.conv_case import make_case
from gradloom.verif.ccore.conv_fields import encode_conv
from gradloom.verif.ccore.conv_tile import ConvCase, Layer
from gradloom.verif.ccore.layer_cases import directed_layers, random_layer, rate_cases, shared_layers
from gradloom.verif.cocotb_run import run_cocotb

APART = pairs(COMMANDS[Opcode.CONV].words) + 1
"""Cycles from one CONV to the next at a queue's pace: it takes two words a cycle, and the first of a command is its offset."""


def config_of(**changes) -> Config:
    return Config(**({"name": "test", "clusters": changes.get("cols", 1), "wpus": 1, "cols": 1, "ibuf_depth": 256,
                      "ebuf_depth": 128, "wbuf_depth": 64, "psum_depth": 128, "dw_depth": 100} | changes))


def environment_config() -> Config:
    return Config(**json.loads(os.environ["GRADLOOM_TEST_CONFIG"]))


async def begin(dut, seed: int) -> tuple[Config, Bench, np.random.Generator]:
    """The machine of the environment after a reset, and a generator."""
    config = environment_config()
    bench = Bench(dut, config)
    await bench.reset()
    return config, bench, np.random.default_rng(seed)


@cocotb.test()
async def directed(dut):
    config, bench, rng = await begin(dut, 1)
    ran = 0
    for layer, phase, window in directed_layers(config):
        ran += bool(await bench.check(layer, phase, rng, window))
    assert ran >= 40


@cocotb.test()
async def shared_rows(dut):
    config, bench, rng = await begin(dut, 9)
    for layer, phase, window in shared_layers(config) if config.wpus > 1 else ():
        await bench.check(layer, phase, rng, window)
    dut._log.info(f"{bench.shared} cases with shared rows")
    assert config.wpus == 1 or bench.shared >= 60


@cocotb.test()
async def shared_rows_alone(dut):
    """A plane in two commands, the second of which has the shared rows alone and goes on with the sums of magnitudes."""
    config, bench, rng = await begin(dut, 10)
    g, wpus = config.group, config.wpus
    for left, stride in itertools.product(range(1, wpus), (1, 2)):
        rows = 2 * wpus
        layer = Layer(images=1, c=2 * g, y=stride * (rows + left), x=stride * 10, m=g, stride=stride, pad=1, shared=True)
        case = make_case(config, layer, "fp", rng)
        assert fits(config, case)
        await bench.load(case)
        [fields] = case.commands
        wrap, bank = divmod(fields["ib0"] + rows * fields["sb"], config.row_banks)
        second = {"u0": rows, "units": left, "ib0": bank, "pbase": fields["pbase"] + (fields["cols"] + 1) // 2, "sacc": 1,
                  "ia0": (fields["ia0"] + rows * fields["sa"] + wrap * fields["xe"]) % 65536}
        for part in (fields | {"shared": 0, "units": rows}, fields | second):
            _, uses = await bench.run(encode_conv(part))
            assert uses == tokens(config, part)
        assert not bench.faults
        await bench.check_psum(case)
        await bench.check_sums(case)


@cocotb.test()
async def random_layers(dut):
    config, bench, rng = await begin(dut, 2)
    ran = 0
    for _ in range(int(os.environ["GRADLOOM_TEST_CASES"])):
        layer, phase, window = random_layer(rng, config.group)
        ran += bool(await bench.check(layer, phase, rng, window))
    dut._log.info(f"{ran} random layers, {bench.shared} with shared rows")
    assert config.wpus == 1 or bench.shared >= 2
    assert ran >= int(os.environ["GRADLOOM_TEST_CASES"]) // 3


def place_together(config: Config, rng: np.random.Generator, count: int) -> list[ConvCase]:
    """Up to ``count`` random cases that lie side by side in all memories."""
    cases: list[ConvCase] = []
    base, wbase, pbase = 0, 0, [0, 0]
    for _ in range(count):
        layer, phase, window = random_layer(rng, config.group)
        half = int(rng.integers(2))
        case = make_case(config, layer, phase, rng, window=window,
                         place={"base": base, "wbase": wbase, "pbase": pbase[half], "half": half})
        if not fits(config, case):
            continue
        base = 1 + max([base, *(key[1] for key in case.ibuf), *(key[1] for key in case.ebuf), *case.dw])
        wbase = 1 + max([wbase, *(key[1] for key in case.wbuf)])
        pbase[half] = 2 + max([pbase[half], *(key[2] for key in case.psum)])
        cases.append(case)
    return cases


@cocotb.test()
async def overlapped(dut):
    """Commands of all kinds behind each other: results as one by one, done in order, windows with their command's tag."""
    config, bench, rng = await begin(dut, 7)
    ran = shared = 0
    for trial in range(int(os.environ["GRADLOOM_TEST_CASES"]) // 4):
        cases = place_together(config, rng, 9)
        for case in cases:
            await bench.load(case)
        fields = [fields for case in cases for fields in case.commands]
        tags = [int(tag) for tag in rng.integers(0, 1 << 16, len(fields))]
        commands = [tagged(one, tag) for one, tag in zip(fields, tags, strict=True)]
        trace = await bench.stream(commands, rng if trial % 3 == 0 else None)
        assert not bench.faults
        check_tags(config, trace, fields, tags)
        last = {}
        for case in cases:
            await bench.check_psum(case)
            await bench.check_dw(case)
            if case.sums:
                last[case.commands[0]["half"]] = case
        for case in last.values():
            await bench.check_sums(case)
        ran += len(fields)
        shared += sum(one.get("shared", 0) for one in fields)
    dut._log.info(f"{ran} overlapping commands, {shared} with shared rows")
    assert config.wpus == 1 or shared >= 2
    assert ran >= int(os.environ["GRADLOOM_TEST_CASES"])


def tagged(fields: dict[str, int], tag: int) -> int:
    return encode_conv(fields) | tag << 16


def check_tags(config: Config, trace: Trace, fields: list[dict[str, int]], tags: list[int]) -> None:
    """Every window has its command's tag, and every command a last one."""
    counts = [tokens(config, one) for one in fields]
    assert trace.tag == [tag for tag, count in zip(tags, counts, strict=True) for _ in range(count)]
    assert trace.last == [trace.use[place - 1] for place in itertools.accumulate(counts)]


@cocotb.test()
async def tags_of_short_and_illegal_commands(dut):
    """Commands of one window behind a drain end in successive cycles; an illegal command has no window."""
    config, bench, rng = await begin(dut, 8)
    g = config.group
    long_ = make_case(config, Layer(images=2, c=2 * g, y=4, x=5, m=g, pad=1), "wg", rng).commands[0]
    short = long_ | {"units": 1, "upi": 1, "u0": 0, "cols": 1, "preload": 0, "steps": 1, "clear": 1}
    fields = [long_ | {"drain": 1}, short | {"drain": 1}, short | {"drain": 0}, long_, short]
    trace = await bench.stream([tagged(one, tag) for tag, one in enumerate(fields, 1)])
    assert not bench.faults
    check_tags(config, trace, fields, [1, 2, 3, 4, 5])
    assert trace.last[2] == trace.last[1] + 1
    illegal = long_ | {"units": 0}
    fields = [short, long_, short, long_]
    trace = await bench.stream([tagged(one, tag) for one, tag in zip(
        (illegal, short, long_, illegal, short, illegal, long_, illegal), (9, 1, 2, 9, 3, 9, 4, 9), strict=True)])
    check_tags(config, trace, fields, [1, 2, 3, 4])
    assert len(trace.done) == 8 and FAULT_ILLEGAL in bench.faults


@cocotb.test()
async def single_rows_between_others(dut):
    """Gradients of a single row between convolutions of several rows: starts and ends are those of the cost model, to the cycle."""
    config, bench, rng = await begin(dut, 8)
    g = config.group
    rows = {"images": 1, "y": 6 * config.wpus, "c": g, "m": g, "pad": 1}
    single = Layer(images=1, c=g, y=1, x=1, m=g, kernel=1)
    for width in (3, 7, 14):
        layers = [(Layer(**rows, x=width), "fp"), (single, "wg")] * 4 + [(single, "wg")] * 3
        cases = [make_case(config, layer, phase, rng) for layer, phase in layers]
        for case in cases[:2]:
            await bench.load(case)
        fields = [one for case in cases for one in case.commands]
        trace = await bench.stream([encode_conv(one) for one in fields], apart=APART)
        engine, time = StagedState(CCore.IN_FLIGHT), 0
        engine.under_way.extend([-1] * CCore.IN_FLIGHT)
        costs, expected = Costs(config, DramCost()), Trace()
        for one in fields:
            cost = costs(Instruction(Opcode.CONV, one))
            # The engine is free for one more in the cycle after a command's end.
            time = max(time, engine.free, engine.under_way[0] + 1)
            expected.start.append(time)
            expected.done.append(engine.begin(time, cost, engine.first(time, cost) + cost.transfer))
            time += APART
        assert (trace.start, trace.done) == (expected.start, expected.done)
    assert not bench.faults


@cocotb.test()
async def rates(dut):
    """Windows per cycle of a row of equal commands, at the pace of a queue: no cycle is lost but to a drain that is longer."""
    config, bench, rng = await begin(dut, 3)
    table: dict[str, dict[tuple[int, int], str]] = {}
    for name, width, steps, layer, phase in rate_cases(config):
        case = make_case(config, layer, phase, rng)
        fields = case.commands[0]
        if not fits(config, case):
            continue
        await bench.load(case)
        count = 6
        commands = [encode_conv(one) for one in case.commands]
        trace = await bench.stream(commands * (count // len(commands)), apart=APART)
        windows = sum(tokens(config, one) for one in case.commands) * (count // len(case.commands))
        assert len(trace.use) == windows
        await bench.check_psum(case)
        await bench.check_sums(case)
        await bench.check_dw(case)
        cycles = trace.use[-1] - trace.use[0] + 1
        table.setdefault(name, {})[width, steps] = f"{len(trace.use) / cycles:.3f} ({tokens(config, fields) // steps})"
        waits = max(0, drain_cycles(config, fields) - tokens(config, fields)) if phase == "wg" else 0
        assert cycles == windows + (count - 1) * waits, f"{name} {layer}: {cycles} cycles"
    for name, row in table.items():
        dut._log.info(f"| {name} | " + " | ".join(f"{key}: {value}" for key, value in row.items()))
    assert not bench.faults


@cocotb.test()
async def both_halves(dut):
    """The A-Core reads one half and the weight gradients while a command works on the other half."""
    config, bench, rng = await begin(dut, 4)
    g = config.group
    await bench.check(Layer(images=1, c=g, y=5, x=5, m=g, pad=1), "wg", rng)
    gradients = make_case(config, Layer(images=1, c=g, y=5, x=5, m=g, pad=1), "wg", rng)
    await bench.load(gradients)
    for fields in gradients.commands:
        await bench.run(encode_conv(fields))
    cases = []
    while len(cases) < 2:
        case = make_case(config, Layer(images=1, c=2 * g, y=6, x=6, m=g, pad=1), "fp", rng)
        if case.commands[0]["half"] == len(cases):
            cases.append(case)
    await bench.load(cases[0])
    await bench.run(encode_conv(cases[0].commands[0]))
    await bench.load(cases[1])
    running = cocotb.start_soon(bench.run(encode_conv(cases[1].commands[0])))
    await bench.check_psum(cases[0])
    await bench.check_dw(gradients)
    await running
    await bench.check_psum(cases[0])
    await bench.check_psum(cases[1])
    assert not bench.faults
    await bench.load(cases[1])
    running = cocotb.start_soon(bench.run(encode_conv(cases[1].commands[0])))
    for _ in range(80):
        dut.psums__request__en.value = 1
        dut.psums__request__half.value = 1
        await FallingEdge(dut.clk)
    dut.psums__request__en.value = 0
    await running
    assert bench.faults == [FAULT_ILLEGAL], "a read of the half at work must be reported"


@cocotb.test()
async def illegal(dut):
    """Every kind of illegal command, address beyond a memory and overflow gives its fault once, and the engine goes on."""
    config, bench, rng = await begin(dut, 5)
    g = config.group
    layer = Layer(images=2, c=2 * g, y=4, x=5, m=g, pad=1)
    forward = make_case(config, layer, "fp", rng)
    gradient = make_case(config, layer, "wg", rng)
    good = forward.commands[0]

    async def expect(fields: dict[str, int], fault: int) -> None:
        bench.faults.clear()
        cycles, _ = await bench.run(encode_conv(fields))
        if fault != FAULT_ILLEGAL or cycles > 4:
            for _ in range(8):
                await FallingEdge(dut.clk)
                if code := int(dut.port__fault.value):
                    bench.faults.append(code)
        assert bench.faults == [fault], f"{bench.faults} in {fields}"
        bench.faults.clear()

    for change in ({"pattern": Pattern.PAIR, "wg": 1}, {"units": 0}, {"steps": 0}, {"cols": 0}, {"upi": 0}, {"nr": 0}, {"nk": 0},
                   {"ib0": config.row_banks}, {"sb": config.row_banks}, {"cb": config.row_banks},
                   {"pattern": Pattern.K1, "ib0": config.wpus}, {"pattern": Pattern.BP2, "wg": 1}, {"lap": 1, "lap_end": 0}):
        await expect(good | change, FAULT_ILLEGAL)
    shared = good | {"shared": 1, "scols": 3}
    if config.wpus > 1:
        others = [{"pattern": pattern, "ib0": 0, "sb": 0, "cb": 0} for pattern in (Pattern.BP2, Pattern.K1, Pattern.PAIR)]
        for change in ({"scols": 0}, {"scols": good["cols"] + 1}, {"sbank": config.row_banks}, *others):
            await expect(shared | change, FAULT_ILLEGAL)
        await expect(shared | {"units": config.wpus + 1, "upi": config.wpus + 1, "soff": 255, "scols": 255, "cols": 255},
                     FAULT_ILLEGAL)
    else:
        await expect(shared, FAULT_ILLEGAL)
    laps = [{"lap": 0, "lap_end": 1}, {"dwbase": 1}] if config.laps > 1 else [{"lap_end": 1}, {"lap": 1, "lap_end": 1}]
    for change in laps:
        await expect(gradient.commands[0] | change, FAULT_ILLEGAL)
    for change in ({"ia0": 4096}, {"pbase": config.psum_depth}, {"pbase": 65535}, {"wbase": config.wbuf_depth}):
        await expect(good | change, FAULT_ILLEGAL)
    for change in ({"ebase": config.ebuf_depth}, {"dwbase": config.dw_depth - 1}):
        await expect(gradient.commands[0] | change, FAULT_ILLEGAL)

    for case in (forward, gradient):
        for buffer in (case.ibuf, case.ebuf, case.wbuf):
            for key in buffer:
                buffer[key] = np.full_like(buffer[key], 0x3F)
        await bench.load(case)
    terms = 2 ** (config.psum_width - 25) // (g * 4)
    await expect(good | {"steps": terms, "istep": 0, "wstep": 0}, FAULT_PSUM)
    windows_ = tokens(config, gradient.commands[0])
    largest = 2 ** (config.wg_width - 1) / 4032 ** 2
    await expect(gradient.commands[0] | {"steps": int(2 * largest / windows_), "istep": 0}, FAULT_WG)
    if config.wpus > 1:
        # No WPU overflows, their sum does.
        steps = int(0.8 * largest / windows_)
        first = gradient.commands[0]["ebase"] - 1  # address of the first row
        await expect(gradient.commands[0] | {"steps": steps, "istep": 0, "nr": 1, "nk": 2, "y0": 0, "ib0": 0, "ia0": first, "e0": 0,
                                             "preload": 1, "par0": 0}, FAULT_WG)
    await bench.check(layer, "fp", rng)
    await bench.check(layer, "wg", rng)


@cocotb.test()
async def each_overflow_alone(dut):
    """Partial sums, resp. accumulators, of one cluster of one WPU leave their width, up or down, long before the command's end: one
    fault. All others stay at 0. As many steps as fit give none."""
    config, bench, rng = await begin(dut, 11)
    if config.psum_width > 36:
        return  # sixteen times as many steps, in a C-Core like the others
    g = config.group
    layer = Layer(images=1, c=g, y=config.wpus, x=3, m=g, kernel=1)

    async def faults(fields: dict[str, int]) -> list[int]:
        bench.faults.clear()
        await bench.run(encode_conv(fields))
        return list(bench.faults)

    def only(buffer: dict, wpu: int | None, channel: int | None, code: int) -> None:
        """A code in all entries of a WPU, of one channel or of all, else 0."""
        for (bank, _), beat in buffer.items():
            beat[:] = 0
            if wpu is None or bank // 3 == wpu:
                beat[:, slice(None) if channel is None else channel] = code

    forward, gradient = make_case(config, layer, "fp", rng), make_case(config, layer, "wg", rng)
    values = {0x3F: 4032, 0x40: -4096}
    for number, (m, w) in enumerate(itertools.product(range(g), range(config.wpus))):
        code = (0x3F, 0x40)[number % 2]
        step, name = 4032 * values[code], f"cluster {m}, WPU {w}"
        only(forward.ibuf, w, None, 0x3F)
        for block in forward.wbuf.values():
            block[:] = 0
            block[m] = code
        await bench.load(forward)
        most = (2 ** (config.psum_width - 1) - (step > 0)) // abs(g * step)
        fields = forward.commands[0] | {"istep": 0, "wstep": 0}
        if not number:
            assert await faults(fields | {"steps": most, "rlim0": most}) == []
        assert await faults(fields | {"steps": most + 9, "rlim0": most + 9}) == [FAULT_PSUM], name
        only(gradient.ibuf, w, None, 0x3F)
        only(gradient.ebuf, w, m, code)
        await bench.load(gradient)
        most = (2 ** (config.wg_width - 1) - (step > 0)) // abs(step) // 3
        fields = gradient.commands[0] | {"istep": 0, "drain": 0, "lap": number % config.laps, "lap_end": number % config.laps}
        if not number:
            assert await faults(fields | {"steps": most, "rlim0": most}) == []
        assert await faults(fields | {"steps": most + 9, "rlim0": most + 9}) == [FAULT_WG], name
    # An image slot that there is, and one that there is not.
    slots = {"sums": 1, "upi": 1, "yin": 1, "ca": 0, "cb": 0, "sa": 0, "sb": 0, "cols": 1, "pbase": 0}
    for units, expected in ((config.max_planes, []), (config.max_planes + 1, [FAULT_ILLEGAL])):
        assert await faults(forward.commands[0] | slots | {"units": units}) == expected


@cocotb.test()
async def random_commands(dut):
    """No command hangs: random fields, small loops; afterwards the engine computes as ever."""
    config, bench, rng = await begin(dut, 6)
    for _ in range(4 * int(os.environ["GRADLOOM_TEST_CASES"])):
        fields = {}
        for field in COMMANDS[Opcode.CONV].fields:
            low, high = (-(1 << field.width - 1), 1 << field.width - 1) if field.signed else (0, 1 << field.width)
            fields[field.name] = int(rng.integers(low, high))
        fields |= {"steps": int(rng.integers(0, 6)), "units": int(rng.integers(0, 12)), "cols": int(rng.integers(0, 9)),
                   "shared": int(config.wpus > 1 and rng.integers(4) == 0), "scols": int(rng.integers(0, 9))}
        if rng.integers(0, 4):
            fields |= {"ib0": 0, "sb": 0, "cb": int(rng.integers(0, config.wpus)), "pattern": int(rng.integers(0, 4))}
        bench.faults.clear()
        await bench.run(encode_conv(fields), limit=1000)
        assert len(bench.faults) <= 1
    bench.faults.clear()
    g = config.group
    for phase in ("fp", "bp", "wg"):
        await bench.check(Layer(images=2, c=g, y=5, x=6, m=g, pad=1), phase, rng)


CONFIGS = {
    "g1_w1": (config_of(wg_width=36), 80),
    "g2_w3": (config_of(cols=2, wpus=3, ibuf_depth=100, ebuf_depth=60, wbuf_depth=50, wg_width=36), 40),
    "g2_w2_post_shift": (config_of(cols=2, wpus=2, mac="post_shift", wg_width=40, psum_width=40), 40),
    "g4_laps2_w3": (config_of(clusters=4, cols=2, wpus=3, ibuf_depth=100, ebuf_depth=60, wbuf_depth=50, wg_width=36), 60),
    "g4_laps2_w2_double_pumped": (config_of(clusters=4, cols=2, wpus=2, mac="double_pumped", wg_width=36), 40),
    "g2_w1_ecp5": (config_of(cols=2, family="ecp5", psum_width=32, wg_width=36), 8),
    "g4_laps2_w3_ecp5": (config_of(clusters=4, cols=2, wpus=3, family="ecp5", ibuf_depth=100, ebuf_depth=60, wbuf_depth=50,
                                   wg_width=36), 40),
    "g8_w1": (config_of(cols=8, wpus=1, ibuf_depth=512, psum_depth=256, psum_width=32, wg_width=34), 10),
}


LONG = {
    "g4_laps2_w3": "two laps with three WPUs beside two of them",
    "g4_laps2_w3_ecp5": "two laps and three WPUs in the cells of ECP5, beside one WPU and one lap",
    "g2_w2_post_shift": "the kind of MAC is within the PE, whose own bench (test_wpu, post_shift) is in the suite",
    "g4_laps2_w2_double_pumped": "two laps and that kind of MAC train networks in test_random_networks_rtl",
    "g8_w1": "groups of eight channels, as those of four; eta itself has a test of its own",
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long(LONG[name])] if name in LONG else []) for name in CONFIGS
])
def test_ccore(tmp_path, monkeypatch, name):
    config, cases = CONFIGS[name]
    values = {field: getattr(config, field) for field in config.__dataclass_fields__}
    monkeypatch.setenv("GRADLOOM_TEST_CONFIG", json.dumps(values))
    monkeypatch.setenv("GRADLOOM_TEST_CASES", str(cases))
    with colliding():
        assert run_cocotb(lambda: CCore(config), __file__, tmp_path) == 12
