"""Matrix machines in RTL: random programs and products equal the reference in every byte, in the cycles that the papers' equations
and the stated constants say; what is no command of theirs is refused, and the next start works."""

import dataclasses
import math
import random

import numpy as np
import pytest

from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Opcode
from gradloom.contracts.matrix_config import load_machine
from gradloom.contracts.matrix_isa import Operand
from gradloom.contracts.matrix_timing import gemm_cycles
from gradloom.contracts.regmap import PERF_MAC_USE, ErrorCode, offset, perf_index
from gradloom.host.matrix.commands import Transfer, barrier, end, gemm, load, store
from gradloom.host.matrix.product import LATENCY, estimated_cycles, plan_product
from gradloom.host.program.assembler import Instruction
from gradloom.models.matrix.gemm import product
from gradloom.sim.rtl_device import DramModel
from gradloom.systems import barista, darkfpga, fox
from gradloom.systems.vocabulary import ConvShape
from gradloom.verif.matrix.bench import busy_cycles, compare, error_code, opened
from gradloom.verif.matrix.random_programs import OPERANDS, random_program

MACHINES = ("fox-4", "darkfpga-8x4", "barista-4x4x16")
STALLS = DramModel(latency=7, stall=0.3, seed=4)


@pytest.fixture(scope="module", params=MACHINES)
def machine(request):
    with opened(load_machine(request.param)) as found:
        yield found


def test_random_programs_equal_the_reference(machine):
    for seed in range(25):
        compare(*machine, random_program(machine[0].config, seed), seed)


def test_random_programs_beside_a_memory_that_stalls(machine):
    device = machine[1]
    device.set_dram(STALLS)
    try:
        for seed in range(100, 106):
            compare(*machine, random_program(machine[0].config, seed), seed)
    finally:
        device.set_dram(DramModel())


def computed(machine, m, k, n, seed=0):
    """The plan of a random product that equals the golden one, and the busy cycles of the matrix core."""
    matrix, device = machine
    rng = np.random.default_rng((seed, m, k, n))
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    plan = plan_product(matrix.config, m, k, n)
    layout = plan.layout()
    first, second = (b.T, a.T) if plan.swapped else (a, b)
    device.write(layout.w, plan.pack_w(first))
    device.write(layout.x, plan.pack_x(second))
    cycles = busy_cycles(matrix, plan.instructions(layout), layout.end)
    assert np.array_equal(plan.unpack(device.read(layout.p, layout.end - layout.p)), product(a, b)), (m, k, n)
    return plan, cycles


def test_products_of_any_shape_take_the_cycles_that_are_stated(machine):
    rng = random.Random(6)
    for m, k, n in [(1, 1, 1), (33, 70, 20), *((rng.randint(1, 30), rng.randint(1, 90), rng.randint(1, 30)) for _ in range(8))]:
        plan, cycles = computed(machine, m, k, n)
        stays = plan.config.stationary == "output"
        assert cycles == sum(gemm_cycles(plan.config, len(block.i), len(block.j), len(block.k),
                                         stay=stays and block.k.stop < plan.words[2]) for block in plan.blocks)


def test_counters_have_each_command_by_its_tag(machine):
    matrix, device = machine
    sizes = {3: (2, 3, 4), 7: (1, 2, 9), 8: (1, 1, 1)}
    program = [gemm(ni=ni, nj=nj, nk=nk, pj=16, pi=48, pc=1, tag=tag) for tag, (ni, nj, nk) in sizes.items()]

    def counts():
        found = [device.csr_read(offset("MAC_USE_LOW"))]
        for table in (PERF_MAC_USE, Unit.CCORE):
            for tag in sizes:
                device.csr_write(offset("PERF_INDEX"), perf_index(table, tag))
                found.append(device.csr_read(offset("PERF_LOW")))
        return np.array(found)

    before = counts()
    assert error_code(matrix, [*program, end()]) == ErrorCode.NONE
    steps = [math.prod(size) for size in sizes.values()]
    assert list(counts() - before) == [sum(steps), *steps, *(gemm_cycles(matrix.config, *size) for size in sizes.values())]


def test_a_program_takes_what_is_estimated(machine):
    """Within 5 %: what commands wait for is reckoned block by block, and memory and Sequencer have cycles of their own."""
    matrix, device = machine
    device.set_dram(DramModel(latency=LATENCY, write_latency=LATENCY))
    try:
        for m, k, n in ((64, 64, 64), (256, 144, 16), (16, 200, 100), (10, 256, 32)):
            before = matrix.cycles
            plan, _ = computed(machine, m, k, n)
            assert abs(estimated_cycles(plan) / (matrix.cycles - before) - 1) < 0.05, (m, k, n)
    finally:
        device.set_dram(DramModel())


def test_the_papers_equations(machine):
    """Each kernel's cycles: the equation as gradloom.systems has it, and what docs/matrix.md says of a command beside it."""
    config = machine[0].config
    if config.name.startswith("fox"):
        plan, cycles = computed(machine, 24, 100, 40)
        m, n = (40, 24) if plan.swapped else (24, 40)
        # All of A lies in the core (section III-C): what its loading takes is another engine's.
        equation = fox.gemm_cycles(m, 100, n, fox.Core(4), load_bytes=float("inf"))
        assert cycles == equation + len(plan.blocks) * (config.columns + 8)
    elif config.name.startswith("darkfpga"):
        # A convolution's forward product: 16 filters, 9 taps of 4 channels, 16 positions, 8 images in lanes.
        shape = ConvShape(name="conv", inputs=4, outputs=16, kernel=3, rows=4, columns=4, in_rows=4, in_columns=4)
        equation = darkfpga.gemm_seconds(shape, "FP", darkfpga.Tiles(8, 4), 8, 1.0)
        plan, cycles = computed(machine, 16, 36, 16 * 8)
        assert not plan.swapped and plan.steps == equation
        assert cycles == equation + len(plan.blocks) * (config.columns + 8 + 3)
    else:
        mesh = barista.Mesh(4, 4, 16, latency=1, dsps=1, bits=8)
        plan, cycles = computed(machine, 12, 64, 20)
        m, n = (20, 12) if plan.swapped else (12, 20)
        equation = barista.compute_cycles(barista.Gemm(m, 64, n), mesh)
        tiles, deep = (m // 4) * (n // 4), 64 // 16
        # Of a chunk: 6, as a product takes its time, less T_r, as all rows are fed at once. Of a tile: columns leave the array one
        # after the other, and no partial values are added up in (Q + 1)^2 cycles.
        assert cycles == equation + tiles * (deep * (6 - 4) + 4 + 3 - (1 + 1) ** 2)


def test_operands_of_lanes_sum_over_positions_and_images():
    """A weight gradient as DarkFPGA's: errors and activations of each image, summed over positions and images (algorithm 2)."""
    config = load_machine("darkfpga-8x4")
    rng = np.random.default_rng(3)
    filters, channels, positions = 3, 5, 8
    errors, activations = (rng.integers(-128, 128, (count, positions, config.lanes)).astype(np.int8)
                           for count in (filters, channels))
    words = positions // config.columns
    program = [load(Operand.E, Transfer(0, errors.size // config.beat_bytes)),
               load(Operand.X, Transfer(0x1000, activations.size // config.beat_bytes)), barrier(),
               gemm(ni=filters, nj=channels, nk=words, wi=words, wk=1, xj=words, xk=1, pi=channels, pj=1, errors=1, merge=1),
               barrier(), store(Transfer(0x2000, 8)), end()]
    with opened(config) as (machine, device):
        device.write(0, errors.tobytes())
        device.write(0x1000, activations.tobytes())
        machine.run(program, 0x4000)
        found = np.frombuffer(device.read(0x2000, 4 * filters * channels), "<i4").reshape(filters, channels)
    wide = [part.astype(np.int64).reshape(len(part), -1) for part in (errors, activations)]
    assert np.array_equal(found, wide[0] @ wide[1].T)


def test_weights_come_in_as_their_transpose():
    """Rows of W for a product with its transpose (DarkFPGA, section 5.2): a byte of a beat for each word."""
    config = load_machine("darkfpga-8x4")
    rng = np.random.default_rng(4)
    filters, channels = config.columns, config.beat_bytes
    weights = rng.integers(-128, 128, (filters, channels)).astype(np.int8)
    errors = rng.integers(-128, 128, (filters, config.lanes)).astype(np.int8)
    program = [load(Operand.W, Transfer(0, filters), turned=True), load(Operand.X, Transfer(0x1000, filters)), barrier(),
               gemm(ni=channels, wi=1, pi=1), barrier(), store(Transfer(0x2000, channels * 4)), end()]
    with opened(config) as (machine, device):
        device.write(0, weights.tobytes())
        device.write(0x1000, errors.tobytes())
        machine.run(program, 0x4000)
        found = np.frombuffer(device.read(0x2000, 4 * channels * config.lanes), "<i4").reshape(channels, config.lanes)
    assert np.array_equal(found, weights.astype(np.int64).T @ errors.astype(np.int64))


def bad_commands(config):
    """Commands that this machine refuses, and their error."""
    good = Transfer(OPERANDS, 1)
    found = {f"{name} is 0": (gemm(**{name: 0}), ErrorCode.ILLEGAL_FIELD) for name in ("ni", "nj", "nk")}
    flags = {"transpose"} if not config.turns_weights else set()
    flags |= {"errors", "merge"} if config.lanes == 1 else set()
    flags |= {"keep", "stay"} if config.stationary == "operand" else set()
    found |= {flag: (gemm(**{flag: 1}), ErrorCode.ILLEGAL_FIELD) for flag in flags}
    if config.stationary == "output":
        found |= {f"{flag} beside {name}": (gemm(**{flag: 1, name: 2}), ErrorCode.ILLEGAL_FIELD)
                  for flag in ("keep", "stay") for name in ("ni", "nj")}
    for memory in range(16):
        if memory not in (Operand.W, Operand.X) and not (config.lanes > 1 and memory == Operand.E):
            found[f"load of {memory}"] = (
                Instruction(Opcode.LOAD, {"dest": memory, "n0": 1, "n1": 1, "n2": 1, "xb": 1}), ErrorCode.ILLEGAL_FIELD)
    found["store of 1"] = (Instruction(Opcode.STORE, {"src": 1, "n0": 1, "n1": 1, "n2": 1}), ErrorCode.ILLEGAL_FIELD)
    refuses = Operand.W if config.rows > 1 else Operand.X
    found["turned"] = (load(refuses, good, turned=True), ErrorCode.ILLEGAL_FIELD)
    found["bank 2"] = (Instruction(Opcode.LOAD, load(Operand.W, good).fields | {"bank0": 2}), ErrorCode.ILLEGAL_FIELD)
    found |= {opcode.name: (Instruction(opcode), ErrorCode.MALFORMED_COMMAND)
              for opcode in (Opcode.CONV, Opcode.RUN, Opcode.UCODE, Opcode.SOFTMAX)}
    return found


def test_what_is_no_command_of_the_machine_is_refused_where_it_stands(machine):
    matrix, device = machine
    good = [gemm(), barrier(), end()]
    for name, (command, expected) in bad_commands(matrix.config).items():
        assert error_code(matrix, [barrier(), gemm(), barrier(), command, barrier(), end()]) == expected, name
        # Behind a BARRIER of 3 words (4 in the program), a GEMM of 12 and another BARRIER.
        assert device.csr_read(offset("ERROR_OFFSET")) == 4 * (4 + 12 + 4), name
        assert error_code(matrix, good) == ErrorCode.NONE, name


def test_a_sum_that_leaves_32_bits_stops_the_machine_and_the_next_start_works(machine):
    matrix, device = machine
    config = matrix.config
    device.write(OPERANDS, bytes([0x80]) * 0x1000)
    ones = Transfer(OPERANDS, max(1, max(config.x_bytes, config.w_bytes) // config.beat_bytes))
    fill = [load(Operand.W, ones), load(Operand.X, ones), barrier()]
    terms = 1 if config.stationary == "output" else config.columns
    # As many steps as 2^31 takes, with one word of each operand; the last one is too many. Onto P the rest of it.
    steps = (1 << 31) // (terms << 14)
    most = min(steps - 1, 0xFFFF)
    times, left = divmod(steps - 1, most)
    program = [*fill, gemm(nk=most, pc=1), *([barrier(), gemm(nk=most, acc=1, pc=1)] * (times - 1)),
               *([barrier(), gemm(nk=left, acc=1, pc=1)] if left else []), barrier()]
    assert error_code(matrix, [*program, end()]) == ErrorCode.NONE
    assert error_code(matrix, [*program, gemm(acc=1, pc=1), barrier(), end()]) == ErrorCode.PSUM_OVERFLOW
    assert error_code(matrix, [*program, end()]) == ErrorCode.NONE


def test_a_program_of_another_machine_is_refused(machine):
    matrix, _ = machine
    other = dataclasses.replace(matrix.config, w_depth=2 * matrix.config.w_depth)
    matrix.config, own = other, matrix.config
    try:
        assert error_code(matrix, [end()]) == ErrorCode.PROGRAM_HEADER
    finally:
        matrix.config = own
