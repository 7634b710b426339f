"""Random programs for a matrix machine: memories filled from DRAM, a few GEMMs of any loops and flags, all sums stored."""

import random

from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import Operand, turning_memories
from gradloom.host.matrix.commands import Transfer, barrier, end, gemm, load, store
from gradloom.host.program.assembler import Instruction

__all__ = ["OPERANDS", "SUMS", "filled", "random_gemm", "random_program", "whole"]

OPERANDS, SUMS = 0x1_0000, 0x8_0000
"""Where operands, at random places from here on, and sums lie in DRAM."""
_RUN = 64


def whole(config: MatrixConfig, words: int, size: int, address: int) -> Transfer:
    """All words of a memory, in runs of at most 64 beats."""
    beats = words * size // config.beat_bytes
    run = min(_RUN, beats)
    return Transfer(address, run, beats // run, run * config.beat_bytes)


def filled(config: MatrixConfig, rng: random.Random) -> list[Instruction]:
    """Loads of all that a GEMM may read, from places that do not matter."""
    memories = [(Operand.W, config.w_depth, config.w_bytes), (Operand.X, config.x_depth, config.x_bytes)]
    if config.lanes > 1:
        memories.append((Operand.E, config.x_depth, config.x_bytes))
    return [load(operand, whole(config, depth, size, OPERANDS + rng.randrange(0x4000) * config.beat_bytes % 0x4000))
            for operand, depth, size in memories]


def random_gemm(config: MatrixConfig, rng: random.Random) -> Instruction:
    """Loops whose sums all go to places of their own, and few enough terms for 32 bits."""
    def step() -> int:
        return rng.choice((0, 1, 2, rng.randrange(1 << 16)))

    stays = config.stationary == "output"
    merge = config.lanes > 1 and rng.random() < 0.4
    places = config.p_depth * (config.lanes if merge else 1)
    if stays:
        single = rng.random() < 0.4
        nj = 1 if single else rng.randint(1, max(1, min(3, places // config.columns)))
        ni = 1 if single else rng.randint(1, max(1, min(3, places // config.columns // nj)))
        pc = rng.choice((1, 0xFFFF))
        pj, pi = config.columns, config.columns * nj
        flags = {"keep": int(single and rng.random() < 0.5), "stay": int(single and rng.random() < 0.5), "pc": pc}
    else:
        nj = rng.randint(1, min(5, places))
        ni = rng.randint(1, max(1, min(4, places // nj)))
        pj, pi = rng.choice(((1, nj), (ni, 1)))
        errors = int(config.lanes > 1 and rng.random() < 0.4)
        flags = {"merge": int(merge), "errors": errors, "transpose": int(config.turns_weights and rng.random() < 0.5)}
    loops = {name: step() for name in ("wi", "wj", "wk", "xi", "xj", "xk")}
    return gemm(ni=ni, nj=nj, nk=rng.choice((1, 2, rng.randint(1, 9))), w0=rng.randrange(1 << 16), x0=rng.randrange(1 << 16),
                p0=rng.randrange(1 << 16), pi=pi, pj=pj, acc=int(rng.random() < 0.5), **loops, **flags)


def random_program(config: MatrixConfig, seed: int, *, gemms: int = 6) -> list[Instruction]:
    """Memories are filled, products follow each other, now and then a load between them, and all sums are stored."""
    rng = random.Random(f"{config.name} {seed}")
    found = [*filled(config, rng), barrier()]
    # What a memory held before is not known: every word of P is written first, by products of nothing before them.
    for first in range(0, config.p_depth, config.columns):
        if config.stationary == "output":
            found.append(gemm(p0=first, pc=1, w0=first, x0=first))
    if config.stationary == "operand":
        found.append(gemm(nj=config.p_depth, pj=1, wj=1, xj=3))
    found.append(barrier())
    for _ in range(gemms):
        found += [random_gemm(config, rng), barrier()]
        if rng.random() < 0.3:
            operand = rng.choice((Operand.W, Operand.X) if config.lanes == 1 else tuple(Operand))
            beats = rng.randint(1, 8)
            turned = operand in turning_memories(config) and rng.random() < 0.5
            found += [load(operand, Transfer(OPERANDS + rng.randrange(64) * config.beat_bytes, beats), rng.randrange(1 << 16),
                           turned=turned), barrier()]
    sums = whole(config, config.p_depth, config.p_bytes, SUMS)
    return [*found, store(sums), end()]
