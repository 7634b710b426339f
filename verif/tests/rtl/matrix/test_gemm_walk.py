"""Steps of random loops against loops in Python, with pauses between the steps."""

import random

import cocotb
from cocotb.triggers import RisingEdge

from gradloom.rtl.matrix.gemm_walk import GemmWalk, Loops
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.memory_bench import start_clock

FIELDS = tuple(Loops.members)


def packed(values):
    return sum(values[name] << 16 * place for place, name in enumerate(FIELDS))


def steps(v):
    """Words of W, X and P, and whether a step is the first and the last of a sum, and of all."""
    for i in range(v["ni"]):
        for j in range(v["nj"]):
            for k in range(v["nk"]):
                w, x = ((v[f"{name}0"] + i * v[f"{name}i"] + j * v[f"{name}j"] + k * v[f"{name}k"]) % 65536 for name in "wx")
                p = (v["p0"] + i * v["pi"] + j * v["pj"]) % 65536
                last = k == v["nk"] - 1
                yield w | x << 16 | p << 32 | (k == 0) << 48 | last << 49 | (last and (i, j) == (v["ni"] - 1, v["nj"] - 1)) << 50


@cocotb.test()
async def random_loops(dut):
    rng = random.Random(3)
    await start_clock(dut, start=0, step=0, loops=0)
    for case in range(60):
        values = {name: rng.randrange(65536) for name in FIELDS}
        values |= {name: rng.choice((1, 1, 2, rng.randint(1, 6))) for name in ("ni", "nj", "nk")}
        dut.loops.value, dut.start.value = packed(values), 1
        await RisingEdge(dut.clk)
        dut.start.value = 0
        for expected in steps(values):
            while rng.random() < 0.2 * (case % 2):
                dut.step.value = 0
                await RisingEdge(dut.clk)
            dut.step.value = 1
            await RisingEdge(dut.clk)
            # Sampled at the edge that ends the step.
            assert int(dut.place.value) == expected, (case, values)
        dut.step.value = 0


def test_walk(tmp_path):
    assert run_cocotb(GemmWalk, __file__, tmp_path) == 1
