"""What a program does on a matrix machine, by docs/matrix.md, one command after the other; nothing of the RTL is in it."""

from collections.abc import Iterable

import numpy as np

from gradloom.contracts.isa import Opcode
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import MatrixOpcode, Operand
from gradloom.host.program.assembler import Instruction

__all__ = ["MatrixReference", "SumOverflow"]

_WORD = 1 << 16


class SumOverflow(Exception):
    """A sum left 32 bits."""


def _checked(sums: np.ndarray) -> np.ndarray:
    if sums.size and (sums.max() >= 1 << 31 or sums.min() < -(1 << 31)):
        raise SumOverflow
    return sums


class MatrixReference:
    """Memories of a machine, and the DRAM that it reads and writes.

    Parameters
    ----------
    dram : :class:`bytearray`
    """

    def __init__(self, config: MatrixConfig, dram: bytearray) -> None:
        self.config, self.dram = config, dram
        stays = config.stationary == "output"
        w_columns = 1 if stays else config.columns
        self.w = np.zeros((config.w_depth, config.rows, w_columns), np.int8)
        self.x = np.zeros((config.x_depth, config.columns, config.lanes), np.int8)
        self.e = np.zeros((config.x_depth, config.columns, config.lanes), np.int8)
        self.p = np.zeros((config.p_depth, config.lanes, config.rows), np.int64)
        self.held = np.zeros((config.rows, config.columns), np.int64)
        """What a stationary output has in the array."""

    def run(self, instructions: Iterable[Instruction]) -> None:
        """One after the other.

        Raises
        ------
        :exc:`SumOverflow`
            Where the machine stops with PSUM_OVERFLOW.
        """
        for instruction in instructions:
            opcode = int(instruction.opcode)
            if opcode == Opcode.LOAD:
                self._load(instruction)
            elif opcode == Opcode.STORE:
                self._store(instruction)
            elif opcode == MatrixOpcode.GEMM:
                (self._outputs if self.config.stationary == "output" else self._operands)(instruction)

    def _places(self, instruction: Instruction) -> Iterable[tuple[int, int]]:
        """Beats: on chip, and byte in DRAM."""
        at = instruction["addr0"]
        for outer in range(instruction["n2"]):
            for run in range(instruction["n1"]):
                address = instruction["offset"] + outer * instruction["stride2"] + run * instruction["stride1"]
                for beat in range(instruction["n0"]):
                    yield at, address + beat * self.config.beat_bytes
                    at += 1

    def _load(self, instruction: Instruction) -> None:
        size = self.config.beat_bytes
        memory = {Operand.W: self.w, Operand.X: self.x, Operand.E: self.e}[Operand(instruction["dest"])]
        for at, address in self._places(instruction):
            beat = np.frombuffer(self.dram[address:address + size], np.int8)
            if instruction["bank0"]:
                # A column has one place in a word, and takes a byte of each of many words.
                columns = memory.reshape(len(memory), -1)
                group, column = divmod(at, columns.shape[1])
                columns[(group * size + np.arange(size)) % len(columns), column] = beat
            else:
                flat = memory.reshape(-1)
                first = at * size % len(flat)
                flat[first:first + size] = beat

    def _store(self, instruction: Instruction) -> None:
        size = self.config.beat_bytes
        data = self.p.astype("<i4").tobytes()
        for at, address in self._places(instruction):
            first = at * size % len(data)
            self.dram[address:address + size] = data[first:first + size]

    def _steps(self, g: Instruction) -> Iterable[tuple[tuple[int, int], list[tuple[int, int]], int]]:
        """(i, j), words of W and X of every k, and the place in P."""
        for i in range(g["ni"]):
            for j in range(g["nj"]):
                words = [((g["w0"] + i * g["wi"] + j * g["wj"] + k * g["wk"]) % _WORD % self.config.w_depth,
                          (g["x0"] + i * g["xi"] + j * g["xj"] + k * g["xk"]) % _WORD % self.config.x_depth)
                         for k in range(g["nk"])]
                yield (i, j), words, (g["p0"] + i * g["pi"] + j * g["pj"]) % _WORD

    def _operands(self, g: Instruction) -> None:
        """Stationary operand."""
        found = []
        for _, words, place in self._steps(g):
            total = np.zeros(self.p.shape[1:], np.int64)
            for w, x in words:
                moving = self.x[x].astype(np.int64)
                if g["errors"]:
                    total += (moving * self.e[w % self.config.x_depth]).sum(0)[:, None]
                else:
                    block = self.w[w].astype(np.int64)
                    total += (block.T if g["transpose"] else block).dot(moving).T
            found.append((place, _checked(total)))
        # P is read before the command's own sums are there.
        before = self.p.copy()
        for place, total in found:
            if g["merge"]:
                word, slot = divmod(place, self.config.lanes)
                word %= self.config.p_depth
                self.p[word, slot, 0] = _checked(total.sum() + (before[word, slot, 0] if g["acc"] else 0))
            else:
                word = place % self.config.p_depth
                self.p[word] = _checked(total + (before[word] if g["acc"] else 0))

    def _outputs(self, g: Instruction) -> None:
        """Stationary output."""
        before = self.p.copy()
        for _, words, place in self._steps(g):
            if not g["keep"]:
                self.held[:] = 0
            for w, x in words:
                self.held += np.outer(self.w[w, :, 0].astype(np.int64), self.x[x, :, 0].astype(np.int64))
            if g["stay"]:
                continue
            for step, column in enumerate(reversed(range(self.config.columns))):
                word = (place + step * g["pc"]) % _WORD % self.config.p_depth
                total = _checked(self.held[:, column].copy())
                self.p[word, 0] = _checked(total + (before[word, 0] if g["acc"] else 0))
            self.held[:] = 0
