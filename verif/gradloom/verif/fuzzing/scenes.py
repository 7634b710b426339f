"""What the fuzzer disturbs: a training step with its memory before and after.

A scene is a small network compiled for one machine, with every byte of the memory that a step begins with; what the step leaves
there is checked against the golden model once. The scenes of a machine have the same memory size, so one machine runs them all.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.devices.verification import compare_tensors
from gradloom.host.machine_program import MachineProgram
from gradloom.host.program.assembler import Instruction, offsets, split_program
from gradloom.host.schedule import compile_network
from gradloom.models.golden import step as golden
from gradloom.models.layers import AvgPool, Conv, FullyConnected, MaxPool
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.verif.configs import machine_config
from gradloom.verif.system_bench import SEED, Case, make_case

__all__ = ["GUARD", "STEP", "Scene", "build_scenes"]

GUARD = 1 << 12
"""Bytes in front of and behind the window; the machine must neither read nor change them."""
STEP = 1
"""Number of the step: the first one behind that which calibrates."""

PLAIN = Network("fuzz-plain", (1, 3, 4), 2, (
    Conv(name="conv", out=1, kernel=3, pad=1), MaxPool(name="pool", kernel=2, stride=2), FullyConnected(name="logits", out=2)))
STRIDED = Network("fuzz-strided", (1, 5, 5), 2, (
    Conv(name="stem", out=1, kernel=1, norm="none", act="relu"), Conv(name="down", out=2, kernel=3, stride=2, pad=1),
    Conv(name="projection", input="stem", out=2, kernel=1, stride=2, act="none"),
    Conv(name="join", input="down", out=2, kernel=1, residual="projection"), AvgPool(name="average", kernel=2, stride=1),
    FullyConnected(name="logits", out=2)))
PARTS = Network("fuzz-parts", (1, 3, 4), 2, (
    Conv(name="first", out=1, kernel=2, act="none"), FullyConnected(name="logits", out=2)), loss="squared")
SOURCES = (("plain", PLAIN, 1, 1), ("strided", STRIDED, 1, 1), ("parts", PARTS, 2, 2))
"""Scenes: name, network, batch, parts of the batch (more than one: sums and weight gradients go through DRAM)."""


_NO_MACHINE = "an image of the memory has neither registers nor a clock"


class _Memory:
    """Bytes that a plan reads and writes like those of a device; there is no machine behind them."""

    def __init__(self, data: bytearray) -> None:
        self.data = data

    def write(self, addr: int, data: bytes) -> None:
        self.data[addr : addr + len(data)] = data

    def read(self, addr: int, n: int) -> bytes:
        return bytes(self.data[addr : addr + n])

    def csr_write(self, offset: int, value: int) -> None:
        raise TypeError(_NO_MACHINE)

    def csr_read(self, offset: int) -> int:
        raise TypeError(_NO_MACHINE)

    def run(self, max_cycles: int) -> int:
        raise TypeError(_NO_MACHINE)

    def close(self) -> None:
        pass


def _background(size: int) -> bytearray:
    """Nothing is 0 by chance: a byte that no command may change, or read, is told from one that was cleared."""
    return bytearray((37 * n + (n >> 8) + 91) & 0xFF for n in range(size))


@dataclasses.dataclass(frozen=True)
class Scene:
    """A step of a network on a machine.

    Parameters
    ----------
    base, limit : :class:`int`
        The window.
    program : :class:`bytes`
        Header and commands, at ``plan.program_address``.
    instructions : tuple of :class:`~gradloom.host.program.assembler.Instruction`
        What ``program`` holds, with the target of its LOOP.
    image : :class:`bytes`
        The whole memory before the step, guards included.
    exponents : tuple of :class:`int`
        Exponent file before the step, from tensor 0 on.
    """

    name: str
    case: Case
    plan: MachineProgram
    base: int
    limit: int
    program: bytes
    instructions: tuple[Instruction, ...]
    image: bytes
    exponents: tuple[int, ...]

    @property
    def seed(self) -> int:
        """Run seed."""
        return SEED

    @property
    def config(self) -> Config:
        return self.plan.config

    @functools.cached_property
    def offsets(self) -> list[int]:
        """Byte offset of every instruction from the first one."""
        return offsets(self.instructions)

    def check(self, memory: bytes, exponents: Sequence[int]) -> None:
        """:exc:`AssertionError` if a byte of a tensor, or an exponent, differs from what the golden model computes.

        Parameters
        ----------
        memory : :class:`bytes`
            The whole memory after the step.
        exponents : sequence of :class:`int`
            Exponent file after the step, from tensor 0 on.
        """
        case, state = self.case, _calibrated(self.case)
        source = _Source(self.plan, memory, {tid: exponents[tid] for tid in state.exponents}, self.plan.export_dw)
        result = golden.train_step(case.network, state, case.images[STEP], case.labels[STEP], case.hypers[STEP])
        compared = compare_tensors(case.network, STEP, result, state, source)
        assert compared.difference is None, f"scene {self.name}: {compared.difference}"


@dataclasses.dataclass
class _Source:
    """The tensors that a memory holds after a step."""

    plan: MachineProgram
    memory: bytes
    values: dict[int, int]
    export_dw: bool

    def tensor(self, layer: str, name: str) -> np.ndarray:
        return np.asarray(self.plan.read(_Memory(bytearray(self.memory)), layer, name))

    def exponents(self) -> dict[int, int]:
        return self.values

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        return None


def _calibrated(case: Case) -> State:
    """The state before step :data:`STEP`."""
    state = case.initial()
    golden.train_step(case.network, state, case.images[0], case.labels[0], case.hypers[0])
    return state


def build_scenes(config: str) -> tuple[Scene, ...]:
    """The scenes of a machine by its name, with one memory size."""
    machine = machine_config(config)
    found = []
    for name, network, batch, parts in SOURCES:
        case = make_case(network, batch, STEP + 1)
        plan = compile_network(network, machine, batch, parts=parts, memory_base=GUARD, export_dw=parts == 1)
        found.append((name, case, plan))
    limit = GUARD + max(plan.size for _, _, plan in found)
    return tuple(_scene(name, case, plan, limit) for name, case, plan in found)


def _scene(name: str, case: Case, plan: MachineProgram, limit: int) -> Scene:
    memory, state = _Memory(_background(limit + GUARD)), _calibrated(case)
    plan.write_state(memory, state)
    plan.write_batch(memory, 0, case.images[STEP], case.labels[STEP])
    plan.write_hyper(memory, case.hypers[STEP:])
    plan.write_program(memory, STEP)
    program = plan.program(STEP)
    instructions = tuple(split_program(program)[1])
    exponents = plan.exponents(state)
    return Scene(
        name=name, case=case, plan=plan, base=GUARD, limit=limit, program=program, instructions=instructions,
        image=bytes(memory.data), exponents=tuple(exponents.get(tid, 0) for tid in range(max(exponents) + 1)))
