"""Commands of a matrix machine, field by field (docs/matrix.md)."""

import dataclasses
from typing import cast

from gradloom.contracts.isa import Opcode
from gradloom.contracts.matrix_isa import MatrixOpcode, Operand, Results
from gradloom.host.program.assembler import Instruction

__all__ = ["Transfer", "barrier", "end", "gemm", "load", "store"]


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Beats of DRAM in two loops of runs.

    Parameters
    ----------
    address : :class:`int`
        Byte of the first beat.
    beats : :class:`int`
        Of a run.
    runs, pitch : :class:`int`
        Runs of the inner loop, and bytes from run to run.
    turns, turn_pitch : :class:`int`
        The same of the outer loop.
    """

    address: int
    beats: int
    runs: int = 1
    pitch: int = 0
    turns: int = 1
    turn_pitch: int = 0

    @property
    def total(self) -> int:
        """Beats."""
        return self.beats * self.runs * self.turns

    def _fields(self, at: int) -> dict[str, int]:
        return {"offset": self.address, "n0": self.beats, "n1": self.runs, "stride1": self.pitch, "n2": self.turns,
                "stride2": self.turn_pitch, "addr0": at}


def load(operand: Operand, transfer: Transfer, at: int = 0, *, turned: bool = False, wait: int = 0, signal: int = 0) -> Instruction:
    """From DRAM to beat ``at`` of a memory on. ``turned``: a byte for each word."""
    fields = transfer._fields(at) | {"dest": int(operand), "bank0": int(turned)}
    return Instruction(Opcode.LOAD, fields, wait=wait, signal=signal)


def store(transfer: Transfer, at: int = 0, *, wait: int = 0, signal: int = 0) -> Instruction:
    """Sums, from beat ``at`` of P on, to DRAM."""
    return Instruction(Opcode.STORE, transfer._fields(at) | {"src": int(Results.P)}, wait=wait, signal=signal)


def gemm(*, wait: int = 0, signal: int = 0, tag: int = 0, **fields: int) -> Instruction:
    """Fields of :data:`gradloom.contracts.matrix_isa.GEMM`; iterations that are not given are 1."""
    # A program of a training machine has no such command, so that its opcodes are all of that enumeration.
    opcode = cast(Opcode, MatrixOpcode.GEMM)
    return Instruction(opcode, {"ni": 1, "nj": 1, "nk": 1} | fields, wait=wait, signal=signal, tag=tag)


def barrier() -> Instruction:
    """What follows begins when all engines are idle."""
    return Instruction(Opcode.BARRIER)


def end() -> Instruction:
    """The program's last command."""
    return Instruction(Opcode.END)
