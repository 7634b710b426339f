"""Cycles of a GEMM on a matrix machine. The RTL takes just these (``verif/tests/system/test_matrix_machine.py``), and whoever
chooses among blocks reckons with them.
"""

from gradloom.contracts.matrix_config import MatrixConfig

__all__ = ["LEAVE_END", "OPERAND_END", "OUTPUT_END", "SETTLE", "gemm_cycles"]

OPERAND_END = 8
"""Stationary operand: from the last step to done, beside a cycle a column and a level of the tree of lanes: a word is read (1),
multiplied (3), added up over k (1) and onto P (3)."""
SETTLE = 2
"""Stationary output: from a sum's last step until sums leave the array, beside a cycle a column; they leave in a cycle a column."""
LEAVE_END = 5
"""From the last sum's leaving to done."""
OUTPUT_END = 4
"""From the last step to done where sums stay in the array, beside a cycle a column."""


def gemm_cycles(config: MatrixConfig, ni: int, nj: int, nk: int, *, stay: bool = False) -> int:
    """From a command's start to its end, both included; ``stay`` as the command's field."""
    steps = ni * nj * nk
    if config.stationary == "operand":
        return steps + config.columns + OPERAND_END + (config.lanes - 1).bit_length()
    if stay:
        return steps + config.columns + OUTPUT_END
    return steps + ni * nj * (2 * config.columns + SETTLE) + LEAVE_END
