"""The program encoding of a matrix machine: the Sequencer's commands, LOAD and STORE of :mod:`gradloom.contracts.isa`, and GEMM.

docs/matrix.md gives the meaning.
"""

import enum
from collections.abc import Mapping, Sequence

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, Command, Dest, Engine, Field, Source
from gradloom.contracts.matrix_config import MatrixConfig

__all__ = ["ENCODINGS", "GEMM", "MATRIX_COMMANDS", "MatrixOpcode", "Operand", "Results", "commands_of",
           "loaded_memories", "stored_memories", "turning_memories"]


class MatrixOpcode(enum.IntEnum):
    """Of a matrix machine alone. The high four bits name the C-Core, which is the matrix core there."""

    GEMM = 0x21


class Operand(enum.IntEnum):
    """On-chip memories that the Loader fills: ``dest`` of a LOAD. Their numbers are of memories that it fills beat by beat."""

    W = 3
    X = 4
    E = 5


class Results(enum.IntEnum):
    """On-chip memory that the Storer drains: ``src`` of a STORE."""

    P = 0


GEMM = Command(MatrixOpcode.GEMM, 12, "Steps of the array in three loops, k innermost: sums over k of W times X go to P.", (
    Field("transpose", 3, 0, 1, "a step takes the transpose of its word of W"),
    Field("errors", 3, 1, 1, "each lane's own operand E in place of W, whose addresses it has"),
    Field("merge", 3, 2, 1, "sums of all lanes together; P is then addressed sum by sum"),
    Field("acc", 3, 3, 1, "what leaves the array is added to what P holds"),
    Field("keep", 3, 4, 1, "stationary output: the first step adds to the sums that the array holds"),
    Field("stay", 3, 5, 1, "stationary output: the sums stay in the array"),
    Field("ni", 4, 0, 16, "iterations of the outer loop"),
    Field("nj", 4, 16, 16, "iterations of the middle loop"),
    Field("nk", 5, 0, 16, "iterations of the inner loop"),
    Field("w0", 5, 16, 16, "first word of W"),
    Field("wi", 6, 0, 16, "words of W from i to i + 1 (modulo 2^16)"),
    Field("wj", 6, 16, 16, "the same from j to j + 1"),
    Field("wk", 7, 0, 16, "the same from k to k + 1"),
    Field("x0", 7, 16, 16, "first word of X"),
    Field("xi", 8, 0, 16, "words of X from i to i + 1 (modulo 2^16)"),
    Field("xj", 8, 16, 16, "the same from j to j + 1"),
    Field("xk", 9, 0, 16, "the same from k to k + 1"),
    Field("p0", 9, 16, 16, "first word, or merged sum, of P"),
    Field("pi", 10, 0, 16, "words, or sums, of P from i to i + 1 (modulo 2^16)"),
    Field("pj", 10, 16, 16, "the same from j to j + 1"),
    Field("pc", 11, 0, 16, "stationary output: words of P from the array's last column to the one before it (modulo 2^16)")))

MATRIX_COMMANDS: dict[int, Command] = {
    **{opcode: command for opcode, command in COMMANDS.items() if opcode >> 4 in (Engine.SEQ, Engine.LOAD, Engine.STORE)},
    MatrixOpcode.GEMM: GEMM}
"""By opcode."""
ENCODINGS: dict[int, Command] = {**COMMANDS, MatrixOpcode.GEMM: GEMM}
"""Of all machines."""


def loaded_memories(config: Config | MatrixConfig) -> Sequence[int]:
    """What the machine's Loaders fill: numbers for ``dest``."""
    if isinstance(config, MatrixConfig):
        return tuple(Operand) if config.lanes > 1 else (Operand.W, Operand.X)
    return tuple(Dest)


def turning_memories(config: MatrixConfig) -> Sequence[int]:
    """Those of the Loaders' memories that take a byte of a beat for each word (``bank0`` of a LOAD is 1): a column has one."""
    return tuple(operand for operand, places in ((Operand.W, config.rows), (Operand.X, config.lanes)) if places == 1)


def stored_memories(config: Config | MatrixConfig) -> Sequence[int]:
    """What the machine's Storers drain: numbers for ``src``."""
    return tuple(Results) if isinstance(config, MatrixConfig) else tuple(Source)


def commands_of(config: Config | MatrixConfig) -> Mapping[int, Command]:
    """Commands that the machine has, by opcode."""
    return MATRIX_COMMANDS if isinstance(config, MatrixConfig) else COMMANDS
