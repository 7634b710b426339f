"""Windows, weights and WPU: random tokens against a small token-level model, both MACs, several array widths."""

import itertools
import os
import random

import cocotb
import pytest
from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.contracts.config import MACS, Config
from gradloom.rtl.ccore.mac import clusters_of, factor_of, mac_factor
from gradloom.rtl.ccore.window_registers import WeightRegisters, WindowRegisters
from gradloom.rtl.ccore.wpu import WPU_ASK, WPU_CTL, Wpu
from gradloom.rtl.delay import delayed
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.plain_arith import decode, wrap

# The widest post-shift unit is left out: a C++ compiler needs ten minutes for its public signals.
CONFIGS = {
    f"{mac}_{cols}": Config(name="t", clusters=cols, wpus=1, cols=cols, mac=mac, psum_width=psum, wg_width=wg)
    for mac, cols, psum, wg in (
        ("decode_once", 1, 36, 48), ("decode_once", 2, 32, 32), ("decode_once", 8, 36, 48),
        ("post_shift", 1, 36, 48), ("post_shift", 2, 32, 32), ("post_shift", 4, 36, 48))
} | {"ecp5_4": Config(name="t", clusters=4, wpus=1, cols=4, family="ecp5", psum_width=32, wg_width=36)}
CYCLES = {1: 1500, 2: 1500, 4: 600, 8: 400}


class Bench(wiring.Component):
    """One WPU with its windows and weights; ``d`` has the columns side by side, G cycles after ``ask``."""

    def __init__(self, config: Config) -> None:
        self.config = config
        g = config.cols
        inner = {name: member.shape for name, member in Wpu(config).signature.members.items()}
        inner = inner | {name: inner[name].elem_shape for name in ("out", "d")}
        super().__init__({"ctl": In(WPU_CTL), "x": In(ArrayLayout(StructLayout({"x0": 8, "x1": 8}), 3 * g)), "wl": In(3),
                          "w": In(ArrayLayout(8, 3 * g)), "e": In(ArrayLayout(8, 3)), "ask": In(WPU_ASK),
                          **{name: Out(inner[name]) for name in ("out", "d", "ovf")}})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.windows = windows = WindowRegisters(self.config)
        m.submodules.weights = weights = WeightRegisters(self.config)
        m.submodules.wpu = wpu = Wpu(self.config)
        ctl = self.ctl
        m.d.comb += [
            windows.shift.eq(ctl.shift), windows.clear.eq(ctl.clear), windows.sel.eq(ctl.sel), windows.x.eq(self.x),
            weights.load.eq(self.wl), weights.w.eq(self.w), weights.swap.eq(ctl.swap),
            wpu.ctl.eq(ctl), wpu.a.eq(windows.a), wpu.w[0].eq(weights.active), wpu.e[0].eq(self.e), wpu.ask.eq(self.ask),
            self.out.eq(wpu.out[0]), self.ovf.eq(wpu.ovf)]
        g = self.config.cols
        m.d.comb += [self.d[c].eq(delayed(m, wpu.d[0][c].as_value(), f"aligned{c}", g - 1 - c)) for c in range(g)]
        return m


class Model:
    """What one token does, without any pipeline."""

    def __init__(self, cols: int, wg_width: int) -> None:
        self.cols, self.wg_width = cols, wg_width
        self.prev = [(0, 0)] * (3 * cols)
        self.cur = [(0, 0)] * (3 * cols)
        self.shadow = [[[0] * 3 for _ in range(cols)] for _ in range(3)]
        self.active = [[[0] * 3 for _ in range(cols)] for _ in range(3)]
        self.sums: list | None = None
        self.drain: list | None = None

    def token(self, t: dict) -> tuple[dict[int, int], bool]:
        if t["swap"]:
            self.active = [[list(taps) for taps in row] for row in self.shadow]
        for r in range(3):
            if t["wl"] >> r & 1:
                for c in range(self.cols):
                    self.shadow[r][c] = [t["w"][k * self.cols + c] for k in range(3)]
        if t["shift"]:
            self.prev = [(0, 0)] * (3 * self.cols) if t["clear"] else self.cur
            self.cur = t["x"]
        s = [[0] * 3 for _ in range(3)]
        overflow = False
        if not t["wg"]:
            self.sums = None
        elif t["use"] and t["clr"]:
            self.sums = [[[0] * 3 for _ in range(self.cols)] for _ in range(3)]
        for r in range(3):
            for c in range(self.cols):
                (p0, p1), (c0, c1) = self.prev[r * self.cols + c], self.cur[r * self.cols + c]
                window = ((p0, p1, c0), (p1, c0, c1), (c1, c0, c0), (c0, p1, p1), (c0,) * 3,
                          (c1,) * 3, (c0, c1, c1))[t["sel"]]
                for k in range(3):
                    product = window[k] * (t["e"][k] if t["wg"] else self.active[r][c][k])
                    s[r][k] += product
                    if t["wg"] and t["use"]:
                        total = self.sums[r][c][k] + product
                        self.sums[r][c][k] = wrap(total, self.wg_width)
                        overflow |= total != self.sums[r][c][k]
        if t["snap"]:
            self.drain = self.sums and [[list(taps) for taps in row] for row in self.sums]
        if t["sel"] < 2:
            out = {1: sum(map(sum, s))}
        elif t["sel"] < 4:
            out = {0: s[1][1], 1: s[1][0] + s[1][2], 2: s[2][1] + s[0][1],
                   3: s[2][0] + s[2][2] + s[0][0] + s[0][2]}
        else:
            out = {1 + k: s[0][k] + s[1][k] + s[2][k] for k in range(3)}
        return (out if t["use"] and not t["wg"] else {}), overflow


def stimuli(cols: int, cycles: int, rng: random.Random, extreme: bool) -> list[dict]:
    """Random tokens; operands are codes. With ``extreme`` mostly the largest products and few ``clr``."""
    def code() -> int:
        return 0x40 if extreme and rng.random() < 0.9 else rng.randrange(256)

    tokens = [{
        "shift": rng.random() < 0.7, "clear": rng.random() < 0.2, "sel": rng.randrange(7),
        "use": rng.random() < 0.8, "turn": rng.random(), "swap": rng.random() < 0.15,
        "clr": rng.random() < (0.002 if extreme else 0.1), "snap": rng.random() < 0.1,
        "x": [(code(), code()) for _ in range(3 * cols)], "wl": rng.randrange(8) if rng.random() < 0.5 else 0,
        "w": [code() for _ in range(3 * cols)], "e": [code() for _ in range(3)],
        "ask": rng.choice((0, 1 << rng.randrange(9), rng.randrange(512))),
    } for _ in range(cycles)]
    wg, held = extreme, False
    for token in tokens:
        wg ^= token.pop("turn") < (0.005 if extreme and wg else 0.2)
        token["wg"] = wg
        token["clr"] |= not held  # accumulators do not outlive a token without wg
        held = wg and (held or token["use"])
    return tokens


def pack(items, bits: int) -> int:
    packed = 0
    for i, item in enumerate(items):
        packed |= (item & (1 << bits) - 1) << bits * i
    return packed


def unpack(packed: int, bits: int, index: int) -> int:
    return wrap(packed >> bits * index & (1 << bits) - 1, bits)


@cocotb.test()
async def random_tokens(dut):
    config = CONFIGS[os.environ["WPU_CONFIG"]]
    cols = config.cols
    rng = random.Random(cols + (config.mac == "decode_once"))
    tokens = stimuli(cols, CYCLES[cols], rng, False) + stimuli(cols, CYCLES[cols], rng, True)
    model = Model(cols, config.wg_width)
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    for port in (dut.ctl, dut.x, dut.wl, dut.w, dut.e, dut.ask):
        port.value = 0
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    outs, overflows, drains = [], [], []
    checked = {"out": 0, "d": 0, "ovf": 0}
    for cycle, t in enumerate(tokens):
        dut.ctl.value = WPU_CTL.const({name: int(t[name]) for name in WPU_CTL.members}).as_bits()
        dut.x.value = pack((code for pair in t["x"] for code in pair), 8)
        dut.wl.value = t["wl"]
        dut.w.value = pack(t["w"], 8)
        dut.e.value = pack(t["e"], 8)
        dut.ask.value = t["ask"]
        decoded = t | {"x": [(decode(a), decode(b)) for a, b in t["x"]], "w": list(map(decode, t["w"])),
                       "e": list(map(decode, t["e"]))}
        out, overflow = model.token(decoded)
        outs.append(out)
        overflows.append(overflow)
        drains.append(model.drain)
        await FallingEdge(dut.clk)
        if cycle >= Wpu.latency(cols):
            packed = int(dut.out.value)
            for i, expected in outs[cycle - Wpu.latency(cols)].items():
                got = unpack(packed, config.psum_width, i)
                assert got == expected, f"cycle {cycle}, out{i}: {got}, expected {expected}"
                checked["out"] += 1
        if cycle >= Wpu.ovf_latency(cols):
            assert int(dut.ovf.value) == overflows[cycle - Wpu.ovf_latency(cols)], f"cycle {cycle}: ovf"
            checked["ovf"] += overflows[cycle - Wpu.ovf_latency(cols)]
        if cycle >= Wpu.SNAP_LATENCY + cols and (drain := drains[cycle - cols - Wpu.SNAP_LATENCY]):
            before = tokens[cycle - cols]
            packed = int(dut.d.value)
            for c in range(cols):
                for i in range(9):
                    got, expected = unpack(packed, config.wg_width, 9 * c + i), drain[i // 3][c][i % 3] * (before["ask"] >> i & 1)
                    assert got == expected, f"cycle {cycle}, d[{c}][{i}]: {got}, expected {expected}"
                    checked["d"] += expected != 0
        await RisingEdge(dut.clk)
    # Sums count in tokens without wg only, drain registers behind a snap of sums: about half of the tokens each.
    assert min(checked["out"], checked["d"]) > len(tokens) // 4, checked
    assert (checked["ovf"] > 0) == (config.wg_width == 32), checked


@pytest.mark.parametrize("mac", MACS)
def test_each_code_of_an_error_counts_as_its_value(mac):
    """Of every tap and cluster: gradients of the input 1 with all 256 codes, read from the drain registers when all is still."""
    cols = clusters_of(mac)
    dut = Wpu(Config(name="t", clusters=cols, wpus=1, cols=cols, mac=mac))

    async def bench(ctx):
        for name in ("wg", "use", "clr", "snap"):
            ctx.set(getattr(dut.ctl, name), 1)
        ctx.set(dut.ask.as_value(), (1 << WPU_ASK.size) - 1)
        for c, k in itertools.product(range(3 * cols), range(3)):
            ctx.set(dut.a[c][k], 1)
        for first in range(0, 256, 3):
            codes = [(first + k) % 256 for k in range(3)]
            for cluster, k in itertools.product(range(dut.clusters), range(3)):
                ctx.set(dut.e[cluster][k], codes[(k + cluster) % 3])
            await ctx.tick().repeat(9 + cols)
            for cluster, c, i in itertools.product(range(dut.clusters), range(cols), range(9)):
                assert ctx.get(dut.d[cluster][c][i]) == decode(codes[(i + cluster) % 3]), (codes, cluster, c, i)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("mac", MACS)
def test_the_largest_product(mac):
    """2^24, of -4096 with itself, which no other pair of codes gives: in every tap and cluster, of codes and weights alike."""
    cols, lowest = clusters_of(mac), 0x40
    dut = Wpu(Config(name="t", clusters=cols, wpus=1, cols=cols, mac=mac))
    factor = Signal(mac_factor(mac))

    async def bench(ctx):
        ctx.set(dut.ask.as_value(), (1 << WPU_ASK.size) - 1)
        for name in ("wg", "use", "clr", "snap"):
            ctx.set(getattr(dut.ctl, name), 1)
        for c, k in itertools.product(range(3 * cols), range(3)):
            ctx.set(dut.a[c][k], ctx.get(factor))
        for cluster, k in itertools.product(range(dut.clusters), range(3)):
            ctx.set(dut.e[cluster][k], lowest)
        await ctx.tick().repeat(9 + cols)
        for cluster, c, i in itertools.product(range(dut.clusters), range(cols), range(9)):
            assert ctx.get(dut.d[cluster][c][i]) == decode(lowest) ** 2, (cluster, c, i)

    m = Module()
    m.submodules.dut = dut
    m.d.comb += factor.eq(factor_of(mac, Const(lowest, 8)))
    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("mac", ["decode_once", "double_pumped"])
def test_each_overflow_alone(mac):
    """One accumulator of one PE and cluster leaves its width while all others stay at 0, and goes on: a flag ``ovf_latency`` cycles
    behind that token, and no other."""
    cols = 2
    config = Config(name="t", clusters=cols, wpus=1, cols=cols, mac=mac, psum_width=32, wg_width=32)
    dut = Wpu(config)
    largest = 2 ** 7  # products of -4096 and -4096 or 4032, the first of which does not count as an addition

    async def bench(ctx):
        ctx.set(dut.ctl.wg, 1)
        ctx.set(dut.ctl.use, 1)
        for number, (r, c, k, cluster) in enumerate(itertools.product(range(3), range(cols), range(3), range(dut.clusters))):
            down = number % 2
            fits = largest - 1 if not down else 2 ** 31 // (4096 * 4032)
            ctx.set(dut.a[r * cols + c][k], 4032 if down else -4096)
            ctx.set(dut.e[cluster][k], 0x40)  # the code of -4096
            # Operands are there when the first token comes to the column, which clears.
            await ctx.tick().repeat(8)
            ctx.set(dut.ctl.clr, 1)
            await ctx.tick()
            ctx.set(dut.ctl.clr, 0)
            flags = []
            for _ in range(fits + Wpu.ovf_latency(cols) + 6):
                flags.append(ctx.get(dut.ovf))
                await ctx.tick()
            # Token n, the clearing one being the first, makes the sum of n products; flags[0] is of one cycle behind that one.
            assert [cycle for cycle, flag in enumerate(flags) if flag] == [fits + Wpu.ovf_latency(cols) - 1], (r, c, k, cluster)
            ctx.set(dut.a[r * cols + c][k], 0)
            ctx.set(dut.e[cluster][k], 0)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


LONG = {
    "ecp5_4": "rows of two PEs of ECP5 cells are within test_ccore",
    "post_shift_2": "one column and four with this MAC, two with the other, are beside it",
    "decode_once_1": "one column with the other MAC is beside it",
    "decode_once_8": "the longest run of columns, as four take with the other MAC",
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long(LONG[name])] if name in LONG else []) for name in CONFIGS
])
def test_wpu(name, tmp_path):
    assert run_cocotb(lambda: Bench(CONFIGS[name]), __file__, tmp_path, env={"WPU_CONFIG": name}) == 1
