"""Dither: the shared vectors and random elements, one a cycle."""

import json
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.rtl.acore.dither import Dither
from gradloom.verif.checkout import VECTORS
from gradloom.verif.cocotb_run import run_cocotb

FILE = VECTORS / "dither.json"


def definition(seed: int, idx: int) -> int:
    mask = (1 << 24) - 1
    x = idx ^ seed & mask
    x = x + (x << 7) & mask
    x ^= x >> 5
    x ^= seed >> 24
    x = x + (x << 3) & mask
    x ^= x >> 9
    return x + (x << 11) & mask


@cocotb.test()
async def hashes(dut):
    cases = [(entry["seed"], entry["idx"], entry["x24"]) for entry in json.loads(FILE.read_text())]
    rng = random.Random(1)
    for _ in range(2000):
        seed, idx = rng.getrandbits(32), rng.getrandbits(24)
        cases.append((seed, idx, definition(seed, idx)))
    Clock(dut.clk, 10, unit="ns").start()
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    for cycle in range(len(cases) + Dither.LATENCY):
        if cycle < len(cases):
            dut.seed.value, dut.idx.value = cases[cycle][:2]
        await FallingEdge(dut.clk)
        if cycle >= Dither.LATENCY:
            seed, idx, x24 = cases[cycle - Dither.LATENCY]
            assert int(dut.x24.value) == x24, f"seed {seed:#x}, index {idx}"
        await RisingEdge(dut.clk)


def test_dither(tmp_path):
    assert run_cocotb(Dither, __file__, tmp_path) == 1
