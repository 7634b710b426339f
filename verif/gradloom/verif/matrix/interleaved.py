"""A matrix machine's program in any order that its semaphores allow: engines begin and end their commands when chance says so."""

import random
from collections.abc import Sequence

import numpy as np

from gradloom.contracts.isa import SEMAPHORES, Opcode
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.matrix_isa import Operand
from gradloom.host.program.assembler import Instruction
from gradloom.verif.matrix.reference import MatrixReference

__all__ = ["Hazard", "run_interleaved"]

_MOST = 255
"""Of a semaphore."""


class Hazard(Exception):
    """Engines got into each other's way, or none can go on."""


class _Running:
    """A command under way: what it changes means nothing until it ends, and what it reads must not change meanwhile."""

    def __init__(self, machine: MatrixReference, instruction: Instruction) -> None:
        self.machine, self.instruction = machine, instruction
        before = [memory.copy() for memory in self._memories()]
        dram = bytes(machine.dram)
        machine.run([instruction])
        self.after = [memory.copy() for memory in self._memories()]
        self.dram = bytes(machine.dram)
        self.changes = [old != new for old, new in zip(before, self.after, strict=True)]
        # A word that is written with what it held before is written, too.
        if instruction.opcode == Opcode.LOAD:
            place = tuple(Operand).index(Operand(instruction["dest"]))
            flat = self.changes[place].reshape(-1)
            size = machine.config.beat_bytes
            for beat in range(instruction["n0"] * instruction["n1"] * instruction["n2"]):
                first = (instruction["addr0"] + beat) * size % len(flat)
                flat[first:first + size] = True
        for memory, old, changed in zip(self._memories(), before, self.changes, strict=True):
            memory[...] = old
            memory[changed] = -99
        machine.dram[:] = dram

    def _memories(self) -> list[np.ndarray]:
        machine = self.machine
        return [machine.w, machine.x, machine.e, machine.p, machine.held]

    def end(self) -> None:
        """Its results are there.

        Raises
        ------
        :exc:`Hazard`
            If they would be others now.
        """
        for memory, after, changed in zip(self._memories(), self.after, self.changes, strict=True):
            memory[changed] = after[changed]
        if self.instruction.opcode != Opcode.STORE:
            return
        now = MatrixReference(self.machine.config, bytearray(len(self.machine.dram)))
        now.p[...] = self.machine.p
        now.run([self.instruction])
        for _, address in now._places(self.instruction):
            part = slice(address, address + self.machine.config.beat_bytes)
            if now.dram[part] != self.dram[part]:
                raise Hazard(f"sums changed while they were stored: {self.instruction.fields}")
            self.machine.dram[part] = self.dram[part]


def run_interleaved(config: MatrixConfig, dram: bytearray, program: Sequence[Instruction], seed: int) -> MatrixReference:
    """The machine after the program. Each engine has one command under way at a time.

    Raises
    ------
    :exc:`Hazard`
        If a GEMM's operands were written while it ran, if no engine can go on, or if a semaphore leaves its range.
    """
    rng = random.Random(seed)
    machine = MatrixReference(config, dram)
    queues: dict[int, list[Instruction]] = {}
    for instruction in program:
        if instruction.opcode != Opcode.END:
            queues.setdefault(int(instruction.opcode) >> 4, []).append(instruction)
    counts = [0] * SEMAPHORES
    running: dict[int, _Running] = {}
    operands: dict[int, list[np.ndarray]] = {}
    while any(queues.values()) or running:
        able = [engine for engine, queue in queues.items() if queue and engine not in running and all(
            counts[bit] for bit in range(SEMAPHORES) if queue[0].wait >> bit & 1)]
        if not able and not running:
            raise Hazard("no engine can go on")
        engine = rng.choice([*able, *running])
        if engine not in running:
            instruction = queues[engine].pop(0)
            for bit in range(SEMAPHORES):
                counts[bit] -= instruction.wait >> bit & 1
            if engine == Opcode.CONV >> 4:
                operands[engine] = [machine.w.copy(), machine.x.copy()]
            running[engine] = _Running(machine, instruction)
            continue
        ended = running.pop(engine)
        if engine in operands:
            _same(operands.pop(engine), machine, ended.instruction)
        ended.end()
        for bit in range(SEMAPHORES):
            counts[bit] += ended.instruction.signal >> bit & 1
        if max(counts) > _MOST:
            raise Hazard("a semaphore is above 255")
    return machine


def _words(instruction: Instruction, name: str, depth: int) -> list[int]:
    return [(instruction[f"{name}0"] + i * instruction[f"{name}i"] + j * instruction[f"{name}j"] + k * instruction[f"{name}k"])
            % (1 << 16) % depth
            for i in range(instruction["ni"]) for j in range(instruction["nj"]) for k in range(instruction["nk"])]


def _same(before: list[np.ndarray], machine: MatrixReference, instruction: Instruction) -> None:
    for name, old, now in (("w", before[0], machine.w), ("x", before[1], machine.x)):
        words = _words(instruction, name, len(now))
        if not np.array_equal(old[words], now[words]):
            raise Hazard(f"{name.upper()} changed while it was multiplied: {instruction.fields}")
