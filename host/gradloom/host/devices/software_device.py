"""A machine in software: memory and the registers that a host uses, without time.

What START does is up to the subclass.
"""

from gradloom.contracts.config import Config
from gradloom.contracts.regmap import offset, register

__all__ = ["SoftwareDevice"]


class SoftwareDevice:
    """Implements :class:`~gradloom.host.devices.device.Device` but for :meth:`execute`.

    Parameters
    ----------
    size : :class:`int`
        Bytes of memory from address 0.
    """

    def __init__(self, config: Config, size: int) -> None:
        self.config = config
        self.memory = bytearray(size)
        self.exponents = [0] * config.tensors
        self.step = 0
        self.run_seed = 0
        self._registers: dict[int, int] = {}
        self._ended = False
        self._index = 0

    def execute(self, address: int, steps: int) -> None:
        """Run the program at ``address`` for ``steps`` steps, from step number ``self.step``."""
        raise RuntimeError("a plain SoftwareDevice has memory and registers only: start programs on a subclass")

    # Memory

    def write(self, addr: int, data: bytes) -> None:
        self._inside(addr, len(data))
        self.memory[addr : addr + len(data)] = data

    def read(self, addr: int, n: int) -> bytes:
        self._inside(addr, n)
        return bytes(self.memory[addr : addr + n])

    def _inside(self, addr: int, n: int) -> None:
        if addr < 0 or addr + n > len(self.memory):
            raise ValueError(f"{n} bytes at {addr:#x} lie outside the memory of {len(self.memory):#x} bytes")

    # Registers

    def csr_write(self, offset_: int, value: int) -> None:
        if offset_ == offset("CONTROL"):
            if value & register("CONTROL").field("start").mask:
                self._ended = False
                self.execute(
                    self._registers.get(offset("PROGRAM"), 0), max(1, self._registers.get(offset("STEPS"), 1))
                )
                self._ended = True
        elif offset_ == offset("EXP_INDEX"):
            self._index = value
        elif offset_ == offset("EXP_VALUE"):
            self.exponents[self._index] = (value & 0xFFFF) - (1 << 16 if value & 0x8000 else 0)
            self._index += 1
        elif offset_ == offset("STEP"):
            self.step = value
        elif offset_ == offset("SEED"):
            self.run_seed = value
        else:
            self._registers[offset_] = value

    def csr_read(self, offset_: int) -> int:
        if offset_ == offset("CONFIG"):
            return self.config.digest()
        if offset_ == offset("STATUS"):
            fields = register("STATUS")
            return fields.field("idle").mask | (fields.field("done").mask if self._ended else 0)
        if offset_ == offset("EXP_VALUE"):
            self._index += 1
            return int(self.exponents[self._index - 1]) & 0xFFFFFFFF
        if offset_ == offset("STEP"):
            return self.step
        return self._registers.get(offset_, 0)

    def run(self, max_cycles: int) -> int:
        """A program has ended before its START returns; no cycles are counted."""
        return 0

    def close(self) -> None:
        """Nothing to give up."""
