"""The C-Core against brute-force convolutions: all patterns, pads, kernels, several images; overlap; rates; illegal commands."""

import dataclasses
import json
import os
from collections.abc import Iterator

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from gradloom.rtl.ccore import FAULT_ILLEGAL, FAULT_PSUM, FAULT_WG, CCore
from gradloom.rtl.channels import load_channels
from gradloom.rtl.config import Config
from gradloom.rtl.feed import Feed
from gradloom.rtl.isa import COMMANDS, Dest, Opcode, Pattern
from gradloom.rtl.wpu import Wpu
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.conv_case import ConvCase, Layer, bank_conflict, encode_conv, make_case


def config_of(**changes) -> Config:
    return Config(**({"name": "test", "clusters": changes.get("cols", 1), "wpus": 1, "cols": 1, "ibuf_depth": 256,
                      "ebuf_depth": 128, "wbuf_depth": 64, "psum_depth": 128, "dw_depth": 100} | changes))


class Bench:
    """Drives one C-Core; inputs change and outputs are sampled at falling edges."""

    def __init__(self, dut, config: Config) -> None:
        self.dut = dut
        self.config = config
        self.faults: list[int] = []

    async def reset(self) -> None:
        dut = self.dut
        buses = [f"load__{n}__{name}" for n in range(self.config.load_channels)
                 for name in ("valid", "dest", "bank", "addr", "sub", "data")]
        for name in ("port__start", "port__cmd", *buses, "prd_en", "prd_half", "prd_wpu", "prd_bank0", "prd_addr0",
                     "prd_bank1", "prd_addr1", "drd_en", "drd_addr", "srd_en", "srd_half", "srd_k",
                     "srd_plane"):
            getattr(dut, name).value = 0
        dut.rst.value = 1
        Clock(dut.clk, 2, unit="ns").start()
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def load(self, case: ConvCase) -> None:
        dut, g = self.dut, self.config.group
        beats = [(Dest.IBUF, bank, addr, 0, beat) for (bank, addr), beat in case.ibuf.items()]
        beats += [(Dest.EBUF, bank, addr, 0, beat) for (bank, addr), beat in case.ebuf.items()]
        for (bank, addr), block in case.wbuf.items():
            rows = np.zeros((2 * self.config.block_beats, g), np.uint8)
            rows[:g] = block
            beats += [(Dest.WBUF, bank, addr, sub, rows[2 * sub:2 * sub + 2]) for sub in range(self.config.block_beats)]
        for dest, bank, addr, sub, beat in beats:
            channels = load_channels(self.config, dest)
            bus = f"load__{channels[addr % len(channels)]}__"
            data = int.from_bytes(np.ascontiguousarray(beat, np.uint8).tobytes(), "little")
            for name, value in (("valid", 1), ("dest", int(dest)), ("bank", bank), ("addr", addr), ("sub", sub),
                                ("data", data)):
                getattr(dut, bus + name).value = value
            await FallingEdge(dut.clk)
            getattr(dut, bus + "valid").value = 0

    async def run(self, command: int, *, limit: int = 100_000) -> tuple[int, int]:
        """Cycles from ``start`` to ``done`` and tokens with useful MACs."""
        dut = self.dut
        dut.port__cmd.value = command
        dut.port__start.value = 1
        await FallingEdge(dut.clk)
        dut.port__start.value = 0
        cycles, uses = 2, 0
        while True:
            uses += int(dut.mac_use.value)
            if fault := int(dut.port__fault.value):
                self.faults.append(fault)
            if int(dut.port__done.value):
                break
            assert int(dut.busy.value), "busy fell before done"
            await FallingEdge(dut.clk)
            cycles += 1
            assert cycles < limit, f"command {command:#x} does not end"
        await FallingEdge(dut.clk)
        assert not int(dut.busy.value)
        return cycles, uses

    async def stream(self, commands: list[int], rng: np.random.Generator | None = None, *, apart: int = 2) -> "Trace":
        """Commands as a queue gives them: when the engine is free, at least ``apart`` cycles after the one before.

        With ``rng`` some starts come later.
        """
        dut = self.dut
        trace = Trace()
        waiting = list(commands)
        cycle, last_start, last_done = 0, -apart, -2
        while len(trace.done) < len(commands):
            dut.port__start.value = 0
            if waiting and int(dut.port__free.value) and cycle - last_start >= apart \
                    and len(trace.start) - len(trace.done) < CCore.IN_FLIGHT and (rng is None or rng.integers(4)):
                dut.port__cmd.value = waiting.pop(0)
                dut.port__start.value = 1
                last_start = cycle
                trace.start.append(cycle)
            await FallingEdge(dut.clk)
            cycle += 1
            if int(dut.mac_use.value):
                trace.use.append(cycle)
            if fault := int(dut.port__fault.value):
                self.faults.append(fault)
            if int(dut.port__done.value):
                assert cycle - last_done >= 2, "two pulses in successive cycles"
                assert len(trace.done) < len(trace.start), "done without a command"
                trace.done.append(cycle)
                last_done = cycle
            assert cycle < 100_000, "the commands do not end"
        dut.port__start.value = 0
        for _ in range(3):
            await FallingEdge(dut.clk)
            assert not int(dut.busy.value)
            assert not int(dut.port__done.value)
        return trace

    async def check_sums(self, case: ConvCase) -> None:
        """First-pass sums of every plane; the slot behind the last image has none."""
        dut, g = self.dut, self.config.group
        if not case.sums:
            return
        images = 1 + max(image for _, image in case.sums)
        expected = case.sums | {(0, images): np.zeros(g, np.int64)} if images < self.config.max_planes else case.sums
        dut.srd_half.value = case.commands[0].get("half", 0)
        for (k, image), values in expected.items():
            dut.srd_en.value = 1
            dut.srd_k.value = k
            dut.srd_plane.value = image
            await FallingEdge(dut.clk)
            dut.srd_en.value = 0
            dut.srd_plane.value = image ^ 1
            await FallingEdge(dut.clk)
            sums = [int(dut.srd_data.value) >> 48 * c & (1 << 48) - 1 for c in range(g)]
            assert sums == values.tolist(), f"group {k}, image {image}: {sums} instead of {values.tolist()}: {case.commands[-1]}"

    async def check_psum(self, case: ConvCase) -> None:
        dut, width = self.dut, self.config.psum_width
        half = case.commands[0].get("half", 0)
        keys = list(case.psum)
        pending: list[tuple] = []
        for key in [*keys, None, None]:
            if key is not None:
                wpu, bank, addr = key
                dut.prd_en.value = 1
                dut.prd_half.value = half
                dut.prd_wpu.value = wpu
                dut.prd_bank0.value = bank
                dut.prd_addr0.value = addr
                dut.prd_bank1.value = (bank + 1) % 4
                dut.prd_addr1.value = addr
            else:
                dut.prd_en.value = 0
            pending.append(key)
            await FallingEdge(dut.clk)
            if len(pending) > 1 and pending[-2] is not None:
                lanes = unpack(int(dut.prd_data.value), width, self.config.group)
                expected = case.psum[pending[-2]]
                assert lanes[:len(expected)] == expected.tolist(), \
                    f"{pending[-2]}: {lanes[:len(expected)]} instead of {expected.tolist()} in {case.commands[0]}"

    async def check_dw(self, case: ConvCase) -> None:
        dut = self.dut
        for beat, expected in case.dw.items():
            dut.drd_en.value = 1
            dut.drd_addr.value = beat
            await FallingEdge(dut.clk)
            dut.drd_en.value = 0
            await FallingEdge(dut.clk)
            values = unpack(int(dut.drd_data.value), self.config.wg_width, 2 * self.config.group)
            assert values == expected.reshape(-1).tolist(), \
                f"beat {beat}: {values} instead of {expected.reshape(-1).tolist()} in {case.commands[0]}"

    async def check(self, layer: Layer, phase: str, rng: np.random.Generator, window: int = 0) -> list[tuple[int, int]]:
        case = make_case(self.config, layer, phase, rng, window=window)
        if not fits(self.config, case):
            return []
        await self.load(case)
        results = []
        for fields in case.commands:
            cycles, uses = await self.run(encode_conv(fields))
            results.append((cycles, uses))
            assert uses == tokens(self.config, fields)
            assert cycles == uses + overhead(self.config, fields), f"{cycles} cycles, {uses} windows: {fields}"
        assert not self.faults, f"faults {self.faults} in {layer} {phase}"
        await self.check_psum(case)
        await self.check_sums(case)
        await self.check_dw(case)
        return results


@dataclasses.dataclass
class Trace:
    """Cycles of a stream of commands: starts, dones, and tokens with useful MACs."""

    start: list[int] = dataclasses.field(default_factory=list)
    done: list[int] = dataclasses.field(default_factory=list)
    use: list[int] = dataclasses.field(default_factory=list)


def row_groups(config: Config, fields: dict[str, int]) -> int:
    return -(-fields["units"] // config.wpus)


def tokens(config: Config, fields: dict[str, int]) -> int:
    """Windows of a command, all WPUs at once."""
    return fields["steps"] * row_groups(config, fields) * fields["cols"]


def overhead(config: Config, fields: dict[str, int]) -> int:
    """Cycles from ``start`` to ``done`` that are no windows: a constant, preload tokens, sweeps below 3 tokens, the drain."""
    sweep = row_groups(config, fields) * (fields["cols"] + fields.get("preload", 0))
    stalls = 0 if fields.get("wg", 0) else (fields["steps"] - 1) * max(0, 3 - sweep)
    preloads = fields["steps"] * row_groups(config, fields) * fields.get("preload", 0)
    if not fields.get("wg", 0) or not fields.get("drain", 0):
        return 3 + Feed.LATENCY + Wpu.latency(config.cols) + 3 + preloads + stalls
    return 3 + Feed.LATENCY + Wpu.SNAP_LATENCY + drain_cycles(config, fields) + config.cols + 3 + preloads


def drain_cycles(config: Config, fields: dict[str, int]) -> int:
    """Cycles that the drain registers are read: one a beat, one for a row of PEs that is left out."""
    rows = fields["nr"] if fields["pattern"] != Pattern.K1 else sum(fields[f"rlim{r}"] > 0 for r in range(3))
    return rows * fields["nk"] * config.block_beats + 3 - rows


def unpack(value: int, width: int, count: int) -> list[int]:
    fields = [value >> width * i & (1 << width) - 1 for i in range(count)]
    return [field - (field >> width - 1 << width) for field in fields]


def layers(config: Config) -> Iterator[tuple[Layer, str, int]]:
    """Directed cases: every pattern and phase with the pads, kernels and sizes that differ in the walk."""
    g = config.group
    for pad in (0, 1, 2):
        yield Layer(images=2, c=2 * g, y=5, x=6, m=g, pad=pad), "fp", 0
        yield Layer(images=2, c=g, y=5, x=7, m=2 * g, pad=pad), "bp", 0
        yield Layer(images=2, c=g, y=5, x=6, m=g, pad=pad), "wg", 0
        for y, x in ((6, 7), (5, 8)):
            yield Layer(images=2, c=2 * g, y=y, x=x, m=g, pad=pad, stride=2), "fp", 0
            yield Layer(images=2, c=g, y=y, x=x, m=2 * g, pad=pad, stride=2), "bp", 0
            yield Layer(images=2, c=g, y=y, x=x, m=g, pad=pad, stride=2), "wg", 0
    for stride in (1, 2):
        for phase in ("fp", "bp", "wg"):
            yield Layer(images=2, c=4 * g, y=3, x=5, m=3 * g, kernel=1, stride=stride), phase, 0
            yield Layer(images=1, c=2 * g, y=4, x=4, m=2 * g, kernel=1, stride=stride), phase, 0
            for kernel, pad in ((5, 2), (4, 1), (7, 3), (2, 0)):
                yield Layer(images=1, c=g, y=7, x=8, m=g, kernel=kernel, pad=pad, stride=stride), phase, 3
    for phase in ("fp", "bp", "wg"):
        yield Layer(images=5, c=8 * g, y=1, x=1, m=3 * g, kernel=1, fc=True), phase, 1
        yield Layer(images=1, c=3 * g, y=1, x=1, m=3 * g, kernel=1), phase, 0
    yield Layer(images=1, c=6 * g, y=1, x=1, m=g, kernel=3, pad=1), "fp", 0
    if g > 1:
        yield Layer(images=1, c=2 * g - 1, y=4, x=4, m=g - 1, pad=1), "fp", 0


def random_layer(rng: np.random.Generator, g: int) -> tuple[Layer, str, int]:
    phase = ("fp", "bp", "wg")[rng.integers(0, 3)]
    kernel = int(rng.choice([1, 2, 3, 3, 3, 4, 5, 6, 7]))
    stride = int(rng.integers(1, 3))
    pad = int(rng.integers(0, min(kernel, 4))) if kernel > 1 else 0
    return Layer(images=int(rng.integers(1, 4)), c=int(rng.integers(1, 4 * g + 1)), y=int(rng.integers(kernel, 10)),
                 x=int(rng.integers(kernel, 12)), m=int(rng.integers(1, 4 * g + 1)), kernel=kernel, stride=stride,
                 pad=pad), phase, int(rng.integers(0, 9))


def environment_config() -> Config:
    return Config(**json.loads(os.environ["GRADLOOM_TEST_CONFIG"]))


@cocotb.test()
async def directed(dut):
    config = environment_config()
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(1)
    ran = 0
    for layer, phase, window in layers(config):
        ran += bool(await bench.check(layer, phase, rng, window))
    assert ran >= 40


@cocotb.test()
async def random_layers(dut):
    config = environment_config()
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(2)
    ran = 0
    for _ in range(int(os.environ["GRADLOOM_TEST_CASES"])):
        layer, phase, window = random_layer(rng, config.group)
        ran += bool(await bench.check(layer, phase, rng, window))
    dut._log.info(f"{ran} random layers")
    assert ran >= int(os.environ["GRADLOOM_TEST_CASES"]) // 3


def fits(config: Config, case: ConvCase) -> bool:
    """Whether a case stays within every memory and asks no bank for two rows at once."""
    return max((key[2] for key in case.psum), default=0) + 1 < config.psum_depth \
        and max((key[1] for key in case.ibuf), default=0) < config.ibuf_depth \
        and max((key[1] for key in case.ebuf), default=0) < config.ebuf_depth \
        and max((key[1] for key in case.wbuf), default=0) < config.wbuf_depth \
        and max(case.dw, default=0) < config.dw_depth \
        and not any(bank_conflict(config, fields) for fields in case.commands)


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
    """Commands of all kinds behind each other: results as one by one, and done in order."""
    config = environment_config()
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(7)
    ran = 0
    for trial in range(int(os.environ["GRADLOOM_TEST_CASES"]) // 4):
        cases = place_together(config, rng, 9)
        for case in cases:
            await bench.load(case)
        fields = [fields for case in cases for fields in case.commands]
        trace = await bench.stream([encode_conv(one) for one in fields], rng if trial % 3 == 0 else None)
        assert not bench.faults
        assert len(trace.use) == sum(tokens(config, one) for one in fields)
        last = {}
        for case in cases:
            await bench.check_psum(case)
            await bench.check_dw(case)
            if case.sums:
                last[case.commands[0]["half"]] = case
        for case in last.values():
            await bench.check_sums(case)
        ran += len(fields)
    dut._log.info(f"{ran} overlapping commands")
    assert ran >= int(os.environ["GRADLOOM_TEST_CASES"])


def rate_cases(config: Config) -> Iterator[tuple[str, int, int, Layer, str]]:
    """(pattern, row width, steps, layer, phase): about 22 windows a step in rows of 2, about 90 in longer ones."""
    g = config.group
    for width in (32, 16, 8, 4, 2):
        height = min(width, 4)
        images = max(1, (22 if width == 2 else 88) * config.wpus // (width * height))
        plane = {"images": images, "y": height, "x": width, "pad": 1}
        strided = plane | {"y": 2 * height, "x": 2 * width, "stride": 2}
        flat = {"images": images, "y": height, "x": width, "kernel": 1}
        for steps in (4, 1):
            yield "FP K3 stride 1", width, steps, Layer(**plane, c=steps * g, m=g), "fp"
            yield "BP K3 stride 1", width, steps, Layer(**plane, c=g, m=steps * g), "bp"
            yield "FP K3 stride 2", width, steps, Layer(**strided, c=steps * g, m=g), "fp"
            yield "BP K3 stride 2", width, steps, Layer(**strided, c=g, m=steps * g), "bp"
            yield "FP K1", width, steps, Layer(**flat, c=3 * steps * g, m=3 * g), "fp"
            yield "BP K1", width, steps, Layer(**flat, c=3 * g, m=3 * steps * g), "bp"
        yield "WG K3 stride 1", width, 1, Layer(**plane, c=g, m=g), "wg"
        yield "WG K3 stride 2", width, 1, Layer(**strided, c=g, m=g), "wg"
        yield "WG K1", width, 1, Layer(**flat, c=3 * g, m=3 * g), "wg"


@cocotb.test()
async def rates(dut):
    """Windows per cycle of a row of equal commands, at the pace of a queue: no cycle is lost but to a drain that is longer."""
    config = environment_config()
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(3)
    # The queue takes one word a cycle, and the first of a command is its offset.
    apart = COMMANDS[Opcode.CONV].words + 1
    table: dict[str, dict[tuple[int, int], str]] = {}
    for name, width, steps, layer, phase in rate_cases(config):
        case = make_case(config, layer, phase, rng)
        fields = case.commands[0]
        if not fits(config, case):
            continue
        await bench.load(case)
        count = 6
        trace = await bench.stream([encode_conv(fields)] * count, apart=apart)
        assert len(trace.use) == count * tokens(config, fields)
        await bench.check_psum(case)
        await bench.check_sums(case)
        await bench.check_dw(case)
        cycles = trace.use[-1] - trace.use[0] + 1
        table.setdefault(name, {})[width, steps] = f"{len(trace.use) / cycles:.3f} ({tokens(config, fields) // steps})"
        drain = drain_cycles(config, fields) if phase == "wg" else 0
        period = max(tokens(config, fields), drain)
        assert cycles == (count - 1) * period + tokens(config, fields), f"{name} {layer}: {cycles} cycles"
    for name, row in table.items():
        dut._log.info(f"| {name} | " + " | ".join(f"{key}: {value}" for key, value in row.items()))
    assert not bench.faults


@cocotb.test()
async def both_halves(dut):
    """The A-Core reads one half and the weight gradients while a command works on the other half."""
    config = environment_config()
    g = config.group
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(4)
    await bench.check(Layer(images=1, c=g, y=5, x=5, m=g, pad=1), "wg", rng)
    gradients = make_case(config, Layer(images=1, c=g, y=5, x=5, m=g, pad=1), "wg", rng)
    await bench.load(gradients)
    await bench.run(encode_conv(gradients.commands[0]))
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
        dut.prd_en.value = 1
        dut.prd_half.value = 1
        await FallingEdge(dut.clk)
    dut.prd_en.value = 0
    await running
    assert bench.faults == [FAULT_ILLEGAL], "a read of the half at work must be reported"


@cocotb.test()
async def illegal(dut):
    """Every kind of illegal command, address beyond a memory and overflow gives its fault once, and the engine goes on."""
    config = environment_config()
    g = config.group
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(5)
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

    for change in ({"pattern": 3}, {"units": 0}, {"steps": 0}, {"cols": 0}, {"upi": 0}, {"nr": 0}, {"nk": 0},
                   {"ib0": config.row_banks}, {"sb": config.row_banks}, {"cb": config.row_banks},
                   {"pattern": Pattern.K1, "ib0": config.wpus}, {"pattern": Pattern.BP2, "wg": 1}):
        await expect(good | change, FAULT_ILLEGAL)
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
        await expect(gradient.commands[0] | {"steps": steps, "istep": 0, "nr": 1, "nk": 2, "y0": 0, "e0": 0, "preload": 1,
                                             "par0": 0}, FAULT_WG)
    await bench.check(layer, "fp", rng)
    await bench.check(layer, "wg", rng)


@cocotb.test()
async def random_commands(dut):
    """No command hangs: random fields, small loops; afterwards the engine computes as ever."""
    config = environment_config()
    bench = Bench(dut, config)
    await bench.reset()
    rng = np.random.default_rng(6)
    for _ in range(4 * int(os.environ["GRADLOOM_TEST_CASES"])):
        fields = {}
        for field in COMMANDS[Opcode.CONV].fields:
            low, high = (-(1 << field.width - 1), 1 << field.width - 1) if field.signed else (0, 1 << field.width)
            fields[field.name] = int(rng.integers(low, high))
        fields |= {"steps": int(rng.integers(0, 6)), "units": int(rng.integers(0, 12)), "cols": int(rng.integers(0, 9))}
        if rng.integers(0, 4):
            fields |= {"ib0": 0, "sb": 0, "cb": int(rng.integers(0, config.wpus)), "pattern": int(rng.integers(0, 3))}
        bench.faults.clear()
        await bench.run(encode_conv(fields), limit=1000)
        assert len(bench.faults) <= 1
    bench.faults.clear()
    g = config.group
    for phase in ("fp", "bp", "wg"):
        await bench.check(Layer(images=2, c=g, y=5, x=6, m=g, pad=1), phase, rng)


CONFIGS = {
    "g1_w1": (config_of(wg_width=36), 80),
    "g2_w3": (config_of(cols=2, wpus=3, ibuf_depth=100, ebuf_depth=60, wbuf_depth=50, wg_width=36), 80),
    "g2_w2_post_shift": (config_of(cols=2, wpus=2, mac="post_shift", wg_width=40, psum_width=40), 40),
    "g8_w1": (config_of(cols=8, wpus=1, ibuf_depth=512, psum_depth=256, psum_width=32, wg_width=34), 10),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_ccore(tmp_path, monkeypatch, name):
    config, cases = CONFIGS[name]
    values = {field: getattr(config, field) for field in config.__dataclass_fields__}
    monkeypatch.setenv("GRADLOOM_TEST_CONFIG", json.dumps(values))
    monkeypatch.setenv("GRADLOOM_TEST_CASES", str(cases))
    assert run_cocotb(lambda: CCore(config), __file__, tmp_path) == 7
