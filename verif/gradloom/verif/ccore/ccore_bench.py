"""Drives one C-Core in cocotb: fills its buffers, gives commands, compares partial sums, sums of magnitudes and weight gradients,
and counts cycles."""

import dataclasses

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest, Pattern
from gradloom.rtl.ccore.ccore import CCore
from gradloom.rtl.ccore.input_network import InputNetwork
from gradloom.rtl.ccore.wpu import Wpu
from gradloom.verif.ccore.conv_case import make_case
from gradloom.verif.ccore.conv_fields import bank_conflict, encode_conv
from gradloom.verif.ccore.conv_tile import ConvCase, Layer
from gradloom.verif.ccore.shared_rows import dealt
from gradloom.verif.program_case import ANY_COMMAND

__all__ = ["Bench", "Trace", "drain_cycles", "fits", "overhead", "row_groups", "tokens"]


class Bench:
    """Drives one C-Core; inputs change and outputs are sampled at falling edges."""

    def __init__(self, dut, config: Config) -> None:
        self.dut = dut
        self.config = config
        self.faults: list[int] = []
        self.shared = 0
        """Cases with shared rows that were checked."""

    async def reset(self) -> None:
        dut = self.dut
        buses = [f"load__{n}__{name}" for n in range(self.config.load_channels)
                 for name in ("valid", "dest", "bank", "addr", "sub", "data")]
        reads = [f"psums__request__{name}" for name in ("en", "half", "wpu", "bank0", "addr0", "bank1", "addr1")]
        reads += [f"gradients__request__{name}" for name in ("en", "addr")]
        reads += [f"plane_sums__request__{name}" for name in ("en", "half", "k", "plane")]
        for name in ("port__start", "port__cmd", *buses, *reads):
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
            uses += int(dut.macs__use.value)
            if fault := int(dut.port__fault.value):
                self.faults.append(fault)
            if int(dut.port__done.value):
                break
            assert int(dut.busy.value), "busy fell before done"
            if cycles > 2 and int(dut.port__free.value):
                dut.port__cmd.value = ANY_COMMAND
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
            if not int(dut.port__start.value) and int(dut.port__free.value):
                dut.port__cmd.value = ANY_COMMAND
            dut.port__start.value = 0
            if waiting and int(dut.port__free.value) and cycle - last_start >= apart \
                    and len(trace.start) - len(trace.done) < CCore.IN_FLIGHT and (rng is None or rng.integers(4)):
                dut.port__cmd.value = waiting.pop(0)
                dut.port__start.value = 1
                last_start = cycle
                trace.start.append(cycle)
            await FallingEdge(dut.clk)
            cycle += 1
            if int(dut.macs__use.value):
                trace.use.append(cycle)
                trace.tag.append(int(dut.macs__tag.value))
            if int(dut.macs__last.value):
                assert int(dut.macs__use.value), "the last token of a command is no window"
                trace.last.append(cycle)
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
        dut.plane_sums__request__half.value = case.commands[0].get("half", 0)
        for (k, image), values in expected.items():
            dut.plane_sums__request__en.value = 1
            dut.plane_sums__request__k.value = k
            dut.plane_sums__request__plane.value = image
            await FallingEdge(dut.clk)
            dut.plane_sums__request__en.value = 0
            dut.plane_sums__request__plane.value = image ^ 1
            await FallingEdge(dut.clk)
            sums = [int(dut.plane_sums__data.value) >> 48 * c & (1 << 48) - 1 for c in range(g)]
            assert sums == values.tolist(), f"group {k}, image {image}: {sums} instead of {values.tolist()}: {case.commands[-1]}"

    async def check_psum(self, case: ConvCase) -> None:
        dut, width = self.dut, self.config.psum_width
        half = case.commands[0].get("half", 0)
        keys = list(case.psum)
        pending: list[tuple[int, int, int] | None] = []
        for key in [*keys, None, None]:
            if key is not None:
                wpu, bank, addr = key
                dut.psums__request__en.value = 1
                dut.psums__request__half.value = half
                dut.psums__request__wpu.value = wpu
                dut.psums__request__bank0.value = bank
                dut.psums__request__addr0.value = addr
                dut.psums__request__bank1.value = (bank + 1) % 4
                dut.psums__request__addr1.value = addr
            else:
                dut.psums__request__en.value = 0
            pending.append(key)
            await FallingEdge(dut.clk)
            if len(pending) > 1 and pending[-2] is not None:
                lanes = unpack(int(dut.psums__data.value), width, self.config.group)
                expected = case.psum[pending[-2]]
                assert lanes[:len(expected)] == expected.tolist(), \
                    f"{pending[-2]}: {lanes[:len(expected)]} instead of {expected.tolist()} in {case.commands[0]}"

    async def check_dw(self, case: ConvCase) -> None:
        dut = self.dut
        for beat, expected in case.dw.items():
            dut.gradients__request__en.value = 1
            dut.gradients__request__addr.value = beat
            await FallingEdge(dut.clk)
            dut.gradients__request__en.value = 0
            await FallingEdge(dut.clk)
            values = unpack(int(dut.gradients__data.value), self.config.wg_width, 2 * self.config.group)
            assert values == expected.reshape(-1).tolist(), \
                f"beat {beat}: {values} instead of {expected.reshape(-1).tolist()} in {case.commands[0]}"

    async def check(self, layer: Layer, phase: str, rng: np.random.Generator, window: int = 0) -> list[tuple[int, int]]:
        case = make_case(self.config, layer, phase, rng, window=window)
        if not fits(self.config, case):
            return []
        await self.load(case)
        results = []
        self.shared += case.commands[0].get("shared", 0)
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
    """Cycles of a stream of commands: starts, dones, tokens with useful MACs (each with its tag) and the last of a command."""

    start: list[int] = dataclasses.field(default_factory=list)
    done: list[int] = dataclasses.field(default_factory=list)
    use: list[int] = dataclasses.field(default_factory=list)
    tag: list[int] = dataclasses.field(default_factory=list)
    last: list[int] = dataclasses.field(default_factory=list)


def row_groups(config: Config, fields: dict[str, int]) -> list[tuple[int, int]]:
    """(windows, preload tokens) of the row groups of a step, each shared row one."""
    first = dealt(config, fields)
    shared = [(fields["scols"], 1)] * (fields["units"] - first) if fields.get("shared") else []
    return [(fields["cols"], fields.get("preload", 0))] * -(-first // config.wpus) + shared


def tokens(config: Config, fields: dict[str, int]) -> int:
    """Windows of a command, all WPUs at once."""
    return steps(fields) * sum(windows for windows, _ in row_groups(config, fields))


def steps(fields: dict[str, int]) -> int:
    """Steps of a command, a lap each."""
    return fields["steps"] * (fields.get("lap_end", 0) - fields.get("lap", 0) + 1)


def overhead(config: Config, fields: dict[str, int]) -> int:
    """Cycles from ``start`` to ``done`` that are no windows: a constant, preload tokens, sweeps below 3 tokens, the drain."""
    preloads = sum(preload for _, preload in row_groups(config, fields))
    sweep = sum(windows for windows, _ in row_groups(config, fields)) + preloads
    stalls = 0 if fields.get("wg", 0) else (steps(fields) - 1) * max(0, 3 - sweep)
    preloads *= steps(fields)
    if not fields.get("wg", 0) or not fields.get("drain", 0):
        return 3 + InputNetwork.LATENCY + Wpu.latency(config.cols) + 3 + preloads + stalls
    return 3 + InputNetwork.LATENCY + Wpu.SNAP_LATENCY + drain_cycles(config, fields) + config.cols + 3 + preloads


def drain_cycles(config: Config, fields: dict[str, int]) -> int:
    """Cycles that the drain registers are read: one a beat (two laps: one for two), one for a row of PEs that is left out."""
    rows = fields["nr"] if fields["pattern"] != Pattern.K1 else sum(fields[f"rlim{r}"] > 0 for r in range(3))
    return rows * fields["nk"] * config.block_beats // config.laps + 3 - rows


def unpack(value: int, width: int, count: int) -> list[int]:
    fields = [value >> width * i & (1 << width) - 1 for i in range(count)]
    return [field - (field >> width - 1 << width) for field in fields]


def fits(config: Config, case: ConvCase) -> bool:
    """Whether a case stays within every memory and asks no bank for two rows at once."""
    return max((key[2] for key in case.psum), default=0) + 1 < config.psum_depth \
        and max((key[1] for key in case.ibuf), default=0) < config.ibuf_depth \
        and max((key[1] for key in case.ebuf), default=0) < config.ebuf_depth \
        and max((key[1] for key in case.wbuf), default=0) < config.wbuf_depth \
        and max(case.dw, default=0) < config.dw_depth \
        and not any(bank_conflict(config, fields) for fields in case.commands)
