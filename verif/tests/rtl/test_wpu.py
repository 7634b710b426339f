"""WPU: random tokens against a small token-level model, both MACs, several array widths."""

import os
import random

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.rtl.config import Config
from gradloom.rtl.wpu import WPU_CTL, Wpu
from gradloom.verif.cocotb_run import run_cocotb

# The widest post-shift unit is left out: a C++ compiler needs ten minutes for its public signals.
CONFIGS = {
    f"{mac}_{cols}": Config(name="t", clusters=cols, wpus=1, cols=cols, mac=mac, psum_width=psum, wg_width=wg)
    for mac, cols, psum, wg in (
        ("decode_once", 1, 36, 48), ("decode_once", 2, 32, 32), ("decode_once", 8, 36, 48),
        ("post_shift", 1, 36, 48), ("post_shift", 2, 32, 32), ("post_shift", 4, 36, 48))
}
CYCLES = {1: 1500, 2: 1500, 4: 600, 8: 400}


def value(code: int) -> int:
    """PINT(8, 3) by its definition."""
    m = (code & 127) - (code & 64) * 2
    if code & 128:
        return 8 * m
    return m if -8 <= m <= 7 else 64 * m


def wrap(number: int, bits: int) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


class Model:
    """What one token does, without any pipeline."""

    def __init__(self, cols: int, wg_width: int) -> None:
        self.cols, self.wg_width = cols, wg_width
        self.prev = [(0, 0)] * (3 * cols)
        self.cur = [(0, 0)] * (3 * cols)
        self.shadow = [[[0] * 3 for _ in range(cols)] for _ in range(3)]
        self.active = [[[0] * 3 for _ in range(cols)] for _ in range(3)]
        self.sums = [[[0] * 3 for _ in range(cols)] for _ in range(3)]
        self.drain = [[[0] * 3 for _ in range(cols)] for _ in range(3)]

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
        for r in range(3):
            for c in range(self.cols):
                (p0, p1), (c0, c1) = self.prev[r * self.cols + c], self.cur[r * self.cols + c]
                window = ((p0, p1, c0), (p1, c0, c1), (c1, c0, c0), (c0, p1, p1), (c0,) * 3,
                          (c1,) * 3)[t["sel"]]
                for k in range(3):
                    product = window[k] * (t["e"][k] if t["wg"] else self.active[r][c][k])
                    s[r][k] += product
                    if t["wg"] and t["use"]:
                        total = (0 if t["clr"] else self.sums[r][c][k]) + product
                        self.sums[r][c][k] = wrap(total, self.wg_width)
                        overflow |= total != self.sums[r][c][k]
        if t["snap"]:
            self.drain = [[list(taps) for taps in row] for row in self.sums]
        if t["sel"] < 2:
            out = {0: sum(map(sum, s))}
        elif t["sel"] < 4:
            out = {0: s[1][1], 1: s[1][0] + s[1][2], 2: s[2][1] + s[0][1],
                   3: s[2][0] + s[2][2] + s[0][0] + s[0][2]}
        else:
            out = {k: s[0][k] + s[1][k] + s[2][k] for k in range(3)}
        return (out if t["use"] else {}), overflow


def stimuli(cols: int, cycles: int, rng: random.Random, extreme: bool) -> list[dict]:
    """Random tokens; operands are codes. With ``extreme`` mostly the largest products and few ``clr``."""
    def code() -> int:
        return 0x40 if extreme and rng.random() < 0.9 else rng.randrange(256)

    return [{
        "shift": rng.random() < 0.7, "clear": rng.random() < 0.2, "sel": rng.randrange(6),
        "use": rng.random() < 0.8,
        "wg": rng.random() < (0.95 if extreme else 0.4), "swap": rng.random() < 0.15,
        "clr": rng.random() < (0.005 if extreme else 0.1), "snap": rng.random() < 0.1,
        "x": [(code(), code()) for _ in range(3 * cols)], "wl": rng.randrange(8) if rng.random() < 0.5 else 0,
        "w": [code() for _ in range(3 * cols)], "e": [code() for _ in range(3)],
        "r": rng.randrange(3), "k": rng.randrange(3),
    } for _ in range(cycles)]


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
    once = config.mac == "decode_once"
    bits = 13 if once else 8
    operand = value if once else int
    cols = config.cols
    rng = random.Random(cols + once)
    tokens = stimuli(cols, CYCLES[cols], rng, False) + stimuli(cols, CYCLES[cols], rng, True)
    model = Model(cols, config.wg_width)
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 1
    for port in (dut.ctl, dut.x, dut.wl, dut.w, dut.e, dut.dsel):
        port.value = 0
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    outs, overflows, drains = [], [], []
    checked = {"out": 0, "d": 0, "ovf": 0}
    for cycle, t in enumerate(tokens):
        dut.ctl.value = WPU_CTL.const({name: int(t[name]) for name in WPU_CTL.members}).as_bits()
        dut.x.value = pack((operand(code) for pair in t["x"] for code in pair), bits)
        dut.wl.value = t["wl"]
        dut.w.value = pack(map(operand, t["w"]), bits)
        dut.e.value = pack(map(operand, t["e"]), bits)
        dut.dsel.value = t["r"] | t["k"] << 2
        decoded = t | {"x": [(value(a), value(b)) for a, b in t["x"]], "w": list(map(value, t["w"])),
                       "e": list(map(value, t["e"]))}
        out, overflow = model.token(decoded)
        outs.append(out)
        overflows.append(overflow)
        drains.append(model.drain)
        await FallingEdge(dut.clk)
        if cycle >= Wpu.LATENCY:
            packed = int(dut.out.value)
            for i, expected in outs[cycle - Wpu.LATENCY].items():
                got = unpack(packed, config.psum_width, i)
                assert got == expected, f"cycle {cycle}, out{i}: {got}, expected {expected}"
                checked["out"] += 1
        if cycle >= Wpu.OVF_LATENCY:
            assert int(dut.ovf.value) == overflows[cycle - Wpu.OVF_LATENCY], f"cycle {cycle}: ovf"
            checked["ovf"] += overflows[cycle - Wpu.OVF_LATENCY]
        if cycle >= Wpu.SNAP_LATENCY + 1:
            before = tokens[cycle - 1]
            drain = drains[cycle - 1 - Wpu.SNAP_LATENCY][before["r"]]
            packed = int(dut.d.value)
            for c in range(cols):
                got, expected = unpack(packed, config.wg_width, c), drain[c][before["k"]]
                assert got == expected, f"cycle {cycle}, d[{c}]: {got}, expected {expected}"
                checked["d"] += expected != 0
        await RisingEdge(dut.clk)
    assert checked["out"] > len(tokens) and checked["d"] > len(tokens) // 2, checked
    assert (checked["ovf"] > 0) == (config.wg_width == 32), checked


@pytest.mark.parametrize("name", CONFIGS)
def test_wpu(name, tmp_path):
    assert run_cocotb(lambda: Wpu(CONFIGS[name]), __file__, tmp_path, env={"WPU_CONFIG": name}) == 1
