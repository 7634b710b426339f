"""A matrix machine behind memory and registers: programs in, sums out."""

from collections.abc import Sequence

from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.contracts.regmap import ERROR_DOCS, ErrorCode, offset, register
from gradloom.host.devices.device import Device, MachineError
from gradloom.host.files import UserError
from gradloom.host.program.assembler import Instruction, assemble

__all__ = ["PROGRAM_ALIGN", "MatrixMachine"]

PROGRAM_ALIGN = 64
"""Of a program's address in bytes."""
_POLL_CYCLES = 1 << 19


class MatrixMachine:
    """Runs programs.

    Parameters
    ----------
    device : :class:`~gradloom.host.devices.device.Device`
    memory_bytes : :class:`int`
        Of the device's memory, which the machine may touch.

    Raises
    ------
    :exc:`UserError`
        If the device was built for another configuration.
    """

    def __init__(self, config: MatrixConfig, device: Device, memory_bytes: int) -> None:
        self.config, self.device, self.memory_bytes = config, device, memory_bytes
        self.cycles = device.csr_read(offset("CYCLES_LOW")) | device.csr_read(offset("CYCLES_HIGH")) << 32
        """In which a program ran, since the machine was reset."""
        found = device.csr_read(offset("CONFIG"))
        if found != config.digest():
            raise UserError(f"the device was built for configuration digest {found:#010x}, {config.name} has "
                            f"{config.digest():#010x}: build it anew")
        device.csr_write(offset("WINDOW_BASE"), 0)
        device.csr_write(offset("WINDOW_LIMIT"), memory_bytes)

    def program_bytes(self, instructions: Sequence[Instruction]) -> int:
        """Of memory that a program takes, with what is read beyond its end."""
        return len(assemble(instructions, self.config)) + 2 * PROGRAM_ALIGN

    def run(self, instructions: Sequence[Instruction], address: int) -> int:
        """Put a program at ``address``, run it to its end, and give the cycles that it took.

        Raises
        ------
        :exc:`MachineError`
            If the machine stopped it with an error.
        """
        device = self.device
        device.write(address, assemble(instructions, self.config))
        for name, value in (("PROGRAM", address), ("STEPS", 1), ("STEP", 0)):
            device.csr_write(offset(name), value)
        control = register("CONTROL")
        device.csr_write(offset("CONTROL"), control.field("start").mask | control.field("irq_enable").mask)
        status = register("STATUS")
        while True:
            device.run(_POLL_CYCLES)
            found = device.csr_read(offset("STATUS"))
            if found & (status.field("done").mask | status.field("error").mask):
                break
        before, self.cycles = self.cycles, device.csr_read(offset("CYCLES_LOW")) | device.csr_read(offset("CYCLES_HIGH")) << 32
        if found & status.field("error").mask:
            raise self._error()
        return self.cycles - before

    def _error(self) -> MachineError:
        value = self.device.csr_read(offset("ERROR"))
        code = ErrorCode(value & 0xFF)
        place = self.device.csr_read(offset("ERROR_OFFSET"))
        return MachineError(f"the machine stopped at byte {place} of its program: {ERROR_DOCS[code]} (error {code:#04x})")
