"""The life of a Verilated model in a shared library: made, watched for broken rules of its buses, freed once."""

import ctypes
from types import TracebackType
from typing import Self

__all__ = ["ProtocolError", "Simulation"]


class ProtocolError(RuntimeError):
    """The simulated hardware broke a rule of AXI4 or AXI4-Lite, or a promise of its own, at one of its ports (``axi_checker.h``),
    or one of an SDRAM at its pins (``sdram_model.h``).

    Attributes
    ----------
    violations : :class:`list` of :class:`str`
        Port, cycle, rule and address of each, the first one first; no more than 32.
    """

    def __init__(self, violations: list[str], rules: str = "AXI protocol") -> None:
        self.violations = violations
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        super().__init__(f"{rules} violated: {violations[0]}{more}")


class Simulation:
    """One model of a library, whose functions ``PREFIX_delete`` and ``PREFIX_violations`` free it and tell what rules it broke.
    Close it, or use it as a context manager.

    Parameters
    ----------
    library : :class:`ctypes.CDLL`
    prefix : :class:`str`
    handle : :class:`int`, optional
        What the library's function that makes one gave.
    memory_bytes : :class:`int`
        Of its memory, for the message.

    Raises
    ------
    :exc:`MemoryError`
        If there is no handle.
    """

    KIND = "simulation"
    """What it is called in messages."""
    RULES = "AXI protocol"
    """What it watches over."""

    def __init__(self, library: ctypes.CDLL, prefix: str, handle: int | None, memory_bytes: int) -> None:
        self._library, self._prefix, self._handle = library, prefix, handle
        if not handle:
            raise MemoryError(f"no memory for a DRAM of {memory_bytes} bytes")
        self._told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._told |= value is not None
        self.close()

    def close(self) -> None:
        """Free the model and its memory; finishes a waveform.

        Raises
        ------
        :exc:`ProtocolError`
            If a rule was broken and that was not told yet.
        """
        if self._handle:
            try:
                if not self._told:
                    self.obey()
            finally:
                getattr(self._library, f"{self._prefix}_delete")(self._handle)
                self._handle = None

    def obey(self) -> None:
        """Raise :exc:`ProtocolError` if a rule was broken."""
        if text := getattr(self._library, f"{self._prefix}_violations")(self._self):
            self._told = True
            raise ProtocolError(text.decode().split("\n"), self.RULES)

    @property
    def _self(self) -> int:
        if not self._handle:
            raise ValueError(f"this {self.KIND} is closed")
        return self._handle
