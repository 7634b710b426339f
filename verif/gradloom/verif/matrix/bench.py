"""What tests of a whole matrix machine share: one in simulation, and its programs against the reference."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.regmap import ErrorCode, offset
from gradloom.host.devices.device import MachineError
from gradloom.host.matrix.machine import MatrixMachine
from gradloom.host.program.assembler import Instruction
from gradloom.sim.rtl_device import DramModel, RtlDevice
from gradloom.verif.matrix.reference import MatrixReference, SumOverflow

__all__ = ["MEMORY_BYTES", "busy_cycles", "compare", "error_code", "opened"]

MEMORY_BYTES = 1 << 20


@contextmanager
def opened(config: MatrixConfig, *, dram: DramModel | None = None, power_up: int = 0, memory_bytes: int = MEMORY_BYTES,
           ) -> Iterator[tuple[MatrixMachine, RtlDevice]]:
    """A simulated machine and its device."""
    with RtlDevice(config, dram_bytes=memory_bytes, dram=dram, power_up=power_up) as device:
        yield MatrixMachine(config, device, memory_bytes), device


def compare(machine: MatrixMachine, device: RtlDevice, program: Sequence[Instruction], seed: int) -> bool:
    """Run a program over random bytes on the machine and on the reference; whether a sum left its bits.

    Raises
    ------
    :exc:`AssertionError`
        If the memories differ anywhere, or one of the two stopped alone.
    """
    data = np.random.default_rng(seed).integers(0, 256, MEMORY_BYTES, dtype=np.uint8).tobytes()
    device.write(0, data)
    reference = MatrixReference(machine.config, bytearray(data))
    try:
        reference.run(program)
    except SumOverflow:
        assert error_code(machine, program) == ErrorCode.PSUM_OVERFLOW
        return True
    end = machine.run(program, PROGRAM)
    assert end > 0
    found, expected = (np.frombuffer(memory, np.uint8).copy() for memory in (device.read(0, MEMORY_BYTES), bytes(reference.dram)))
    # Where the program lies the reference has something else.
    found[PROGRAM:], expected[PROGRAM:] = 0, 0
    different = np.flatnonzero(found != expected)
    assert not len(different), f"{len(different)} bytes differ, the first one at {different[0]:#x}"
    return False


PROGRAM = 0xF_0000
"""Where :func:`compare` puts a program."""


def error_code(machine: MatrixMachine, program: Sequence[Instruction]) -> ErrorCode:
    """The error that stops a program."""
    try:
        machine.run(program, PROGRAM)
    except MachineError:
        return ErrorCode(machine.device.csr_read(offset("ERROR")) & 0xFF)
    return ErrorCode.NONE


def busy_cycles(machine: MatrixMachine, program: Sequence[Instruction], address: int = PROGRAM) -> int:
    """In which the matrix core ran a command of the program."""
    before = machine.device.csr_read(offset("BUSY_CCORE_LOW"))
    machine.run(program, address)
    return machine.device.csr_read(offset("BUSY_CCORE_LOW")) - before
