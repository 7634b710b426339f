"""Products as programs: right whatever the shape and whoever is first, each memory within its depth, each sum stored once."""

import dataclasses
import random

import numpy as np
import pytest

from gradloom.contracts.isa import Opcode
from gradloom.contracts.matrix_config import load_machine
from gradloom.contracts.matrix_isa import MatrixOpcode, Operand
from gradloom.host.files import UserError
from gradloom.host.matrix.product import plan_product
from gradloom.models.matrix.gemm import product
from gradloom.verif.matrix.interleaved import Hazard, run_interleaved
from gradloom.verif.matrix.reference import MatrixReference

MACHINES = ("fox-2", "fox-4", "darkfpga-4x2", "darkfpga-8x4", "darkfpga-8x8", "barista-4x4x8", "barista-2x8x4")

SHALLOW = {"w_depth": 32, "x_depth": 32, "p_depth": 32}
"""Memories that hold few blocks, so that their slots come again soon."""


def shapes(seed, count):
    rng = random.Random(seed)
    return [(1, 1, 1), (2, 70, 3), *((rng.randint(1, 40), rng.randint(1, 60), rng.randint(1, 40)) for _ in range(count))]


def case(name, m, k, n, **depths):
    """Configuration, the product's plan, DRAM with the operands, and the sums that are expected."""
    config = dataclasses.replace(load_machine(name), **depths)
    rng = np.random.default_rng(m * 10_000 + k * 100 + n)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    plan = plan_product(config, m, k, n)
    layout = plan.layout()
    first, second = (b.T, a.T) if plan.swapped else (a, b)
    dram = bytearray(layout.end)
    for address, part in ((layout.w, plan.pack_w(first)), (layout.x, plan.pack_x(second))):
        dram[address:address + len(part)] = part
    return config, plan, layout, dram, product(a, b)


@pytest.mark.parametrize("name", MACHINES)
def test_the_program_of_any_product_computes_it(name):
    for m, k, n in shapes(name, 12):
        config, plan, layout, dram, expected = case(name, m, k, n)
        MatrixReference(config, dram).run(plan.instructions(layout))
        assert np.array_equal(plan.unpack(bytes(dram[layout.p:])), expected), (m, k, n)


@pytest.mark.parametrize("name", MACHINES)
def test_in_whatever_order_the_engines_come(name):
    for seed, (m, k, n) in enumerate(shapes(f"{name} order", 2)):
        config, plan, layout, dram, expected = case(name, m, k, n, **SHALLOW)
        run_interleaved(config, dram, plan.instructions(layout), seed)
        assert np.array_equal(plan.unpack(bytes(dram[layout.p:])), expected), (m, k, n)


@pytest.mark.parametrize("lost", ["wait of a LOAD", "wait of a GEMM", "wait of a STORE"])
def test_a_semaphore_that_is_not_waited_for_is_noticed(lost):
    opcode = {"LOAD": Opcode.LOAD, "GEMM": MatrixOpcode.GEMM, "STORE": Opcode.STORE}[lost.split()[-1]]
    found = 0
    for seed in range(6):
        config, plan, layout, dram, expected = case("fox-2", 12, 60, 20, **SHALLOW)
        program = plan.instructions(layout)
        for instruction in program:
            if instruction.opcode == opcode:
                instruction.wait = 0
        try:
            run_interleaved(config, dram, program, seed)
        except Hazard:
            found += 1
        else:
            found += not np.array_equal(plan.unpack(bytes(dram[layout.p:])), expected)
    assert found


@pytest.mark.parametrize("name", [*MACHINES, "fox-32", "darkfpga-128x32", "barista-16x16x64"])
def test_blocks_fit_and_every_memory_holds_two(name):
    config = load_machine(name)
    large = [(512, 4608, 1024), (10, 131_071, 3)] if config.macs > 200 else [(64, 300, 20)]
    for m, k, n in [*shapes(f"{name} fit", 6), *large]:
        plan = plan_product(config, m, k, n)
        words = plan.i * plan.terms, plan.j * plan.terms, plan.i * plan.j * (config.columns if config.stationary == "output" else 1)
        for size, depth in zip(words, (config.w_depth, config.x_depth, config.p_depth), strict=True):
            assert 2 * size <= depth
        assert sum(block.steps for block in plan.blocks) == plan.steps


@pytest.mark.parametrize("name", MACHINES)
def test_transfers_are_whole_beats_within_the_memories_and_the_layout(name):
    for m, k, n in shapes(f"{name} transfers", 6):
        config, plan, layout, _, _ = case(name, m, k, n)
        depths = {Operand.W: config.w_depth * config.w_bytes, Operand.X: config.x_depth * config.x_bytes}
        stored = set()
        for instruction in plan.instructions(layout):
            if instruction.opcode not in (Opcode.LOAD, Opcode.STORE):
                continue
            size = instruction["n0"] * config.beat_bytes
            assert instruction["offset"] % config.beat_bytes == 0 and (instruction["n1"], instruction["n2"]) == (1, 1)
            last = instruction["addr0"] * config.beat_bytes + size
            if instruction.opcode == Opcode.LOAD:
                assert last <= depths[Operand(instruction["dest"])]
                assert layout.w <= instruction["offset"] and instruction["offset"] + size <= layout.p
            else:
                assert last <= config.p_depth * config.p_bytes and layout.p <= instruction["offset"] <= layout.end - size
                places = set(range(instruction["offset"], instruction["offset"] + size, config.beat_bytes))
                assert not places & stored
                stored |= places


@pytest.mark.parametrize(("name", "depth"), [("fox-2", "w_depth"), ("fox-2", "p_depth"), ("darkfpga-4x2", "x_depth"),
                                             ("barista-4x4x8", "p_depth")])
def test_a_memory_that_holds_no_block_is_told_and_the_least_that_does_works(name, depth):
    preset = load_machine(name)
    least = next(size for size in (1, 2, 4, 8) if _computes(dataclasses.replace(preset, **{depth: size})))
    if least > 1:
        with pytest.raises(UserError, match=rf"^no block of a product fits {name}: w_depth, x_depth or p_depth .* is too small"):
            plan_product(dataclasses.replace(preset, **{depth: least // 2}), 6, 7, 8)


def _computes(config):
    """Whether there is a plan; it gives the right sums then, in whatever order engines come."""
    try:
        plan = plan_product(config, 6, 7, 8)
    except UserError:
        return False
    depths = {name: getattr(config, name) for name in ("w_depth", "x_depth", "p_depth")}
    _, plan, layout, dram, expected = case(config.name, 6, 7, 8, **depths)
    run_interleaved(config, dram, plan.instructions(layout), 1)
    return np.array_equal(plan.unpack(bytes(dram[layout.p:])), expected)


def test_a_product_that_is_none_is_refused():
    config = load_machine("fox-4")
    with pytest.raises(UserError, match=r"^a product needs at least one row, column and term: K is 0$"):
        plan_product(config, 3, 0, 5)
    with pytest.raises(UserError, match=r"^sums of 131,072 terms do not fit in 32 bits: at most 131,071 do$"):
        plan_product(config, 3, 131_072, 5)
