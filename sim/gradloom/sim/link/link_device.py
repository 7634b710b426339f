"""The board's end of the cable in simulation: the Verilated link, memory and registers, and bytes in and out behind its UART."""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

from amaranth.back import verilog

from gradloom.contracts.config import Config
from gradloom.rtl.board.link.board_link import BoardLink
from gradloom.sim.simulation import Simulation
from gradloom.sim.verilate import build_library

__all__ = ["BYTE_LOST", "CLOCK", "LinkSimulation", "link_verilog"]

TOP = "link"
CLOCK = 50_000_000
"""Hz that the simulated board says it has."""
BYTE_LOST = 0x100
"""Fed instead of a byte: the UART lost one."""
_CALM = 2600
"""Cycles without a movement on any bus after which nothing moves any more: two for each byte of an acknowledged answer."""

_NEVER = (1 << 32) - 1


@functools.cache
def link_verilog(config: Config, memory_bytes: int, memory_base: int = 0) -> str:
    """Verilog of the link alone."""
    link = BoardLink(config, clock=CLOCK, memory_bytes=memory_bytes, memory_base=memory_base)
    return str(verilog.convert(link, name=TOP, emit_src=False))


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, u8, u16, u32, u64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint16), ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("new", handle, [u64]), ("delete", None, [handle]), ("feed", None, [handle, u16, u64, u32]),
        ("take", u64, [handle, u8, u64]), ("run", u64, [handle, u64, u32]), ("reset", None, [handle]), ("cycle", u64, [handle]),
        ("irq", None, [handle, ctypes.c_int]), ("bit_step", u32, [handle]), ("line", None, [handle, ctypes.c_int, ctypes.c_int]),
        ("write", ctypes.c_int, [handle, u64, u8, u64]), ("read", ctypes.c_int, [handle, u64, u8, u64]),
        ("memory", None, [handle, u32, u32, u64, u32]), ("fail", None, [handle, u64, u64]), ("fail_nowhere", None, [handle]),
        ("fence", None, [handle, u64, u64]), ("violations", u8, [handle]), ("counts", None, [handle, ctypes.POINTER(u64)]),
        ("refuse", None, [handle, u32, u32]), ("set_register", None, [handle, u32, u32]), ("register", u32, [handle, u32]),
        ("log_size", u64, [handle]), ("log", None, [handle, ctypes.POINTER(u64)]), ("strobed", u64, [handle]),
    ):
        function = getattr(library, f"link_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


class LinkSimulation(Simulation):
    """A simulated link. Close it, or use it as a context manager.

    Every cycle is checked against the rules of AXI4 and AXI4-Lite; :meth:`close` and every look at the memory raise
    :exc:`~gradloom.sim.simulation.ProtocolError` after a violation.

    Parameters
    ----------
    config : :class:`Config`
        Its beats are those of the memory.
    memory_bytes : :class:`int`
        Memory that the link may touch, from address 0; a power of two.
    dram_bytes : :class:`int`, optional
        Memory that there is; by default as much.
    """

    def __init__(self, config: Config, *, memory_bytes: int = 1 << 16, dram_bytes: int | None = None) -> None:
        files = {"link.v": link_verilog(config, memory_bytes)}
        library = _load(build_library(files, top=TOP, harness="link/link_harness.cpp"))
        super().__init__(library, "link", library.link_new(dram_bytes or memory_bytes), dram_bytes or memory_bytes)
        self.gap = 0
        """Cycles between two bytes to the link."""

    @property
    def cycle(self) -> int:
        """Clock cycles so far."""
        return int(self._library.link_cycle(self._self))

    def feed(self, items: Sequence[int]) -> None:
        """Bytes, or :data:`BYTE_LOST`, for the link to take."""
        self._library.link_feed(self._self, (ctypes.c_uint16 * len(items))(*items), len(items), self.gap)

    def take(self, most: int = 1 << 14) -> bytes:
        """Bytes that came out."""
        buffer = ctypes.create_string_buffer(most)
        taken = self._library.link_take(self._self, buffer, most)
        return buffer.raw[:taken]

    def wait(self, cycles: int) -> int:
        """Run until a byte comes out, at most so many cycles; returns the cycles."""
        return int(self._library.link_run(self._self, cycles, 0))

    def run(self, cycles: int) -> None:
        """Run so many cycles, whatever happens in them."""
        self._library.link_run(self._self, cycles, _NEVER)

    def settle(self, limit: int = 2_000_000) -> bytes:
        """Run until nothing moves, and return the bytes that came out.

        Raises
        ------
        :exc:`TimeoutError`
            If something still moves after ``limit`` cycles.
        """
        if self._library.link_run(self._self, limit, _CALM) >= limit:
            raise TimeoutError(f"the link still moves after {limit} cycles")
        return self.take()

    def reset(self) -> None:
        """Reset the link; what was fed and not taken is lost."""
        self._library.link_reset(self._self)

    def set_irq(self, level: int) -> None:
        """Level of the interrupt line."""
        self._library.link_irq(self._self, level)

    @property
    def bit_step(self) -> int:
        """Rate of the line (:mod:`gradloom.rtl.board.link.uart`)."""
        return int(self._library.link_bit_step(self._self))

    def set_line(self, *, tx_idle: bool = True, line_break: bool = False) -> None:
        """What the UART says of the line."""
        self._library.link_line(self._self, tx_idle, line_break)

    def write(self, address: int, data: bytes) -> None:
        """Put bytes into the memory; takes no cycles."""
        if self._library.link_write(self._self, address, data, len(data)):
            raise IndexError(f"{len(data)} bytes at {address:#x} lie outside the DRAM")

    def read(self, address: int, n: int) -> bytes:
        """Bytes of the memory; takes no cycles."""
        self.obey()
        buffer = ctypes.create_string_buffer(n)
        if self._library.link_read(self._self, address, buffer, n):
            raise IndexError(f"{n} bytes at {address:#x} lie outside the DRAM")
        return buffer.raw

    def set_memory(self, *, latency: int = 0, stall: float = 0.0, seed: int = 1, take_share: float = 1.0) -> None:
        """Cycles of latency, share of stalled cycles of every channel; share of cycles in which the host's side takes a byte."""
        self._library.link_memory(self._self, latency, int(stall * 65536), seed, int(take_share * 65536))

    def fail(self, first: int, limit: int) -> None:
        """From now on accesses of memory in ``[first, limit)`` are answered with SLVERR."""
        self._library.link_fail(self._self, first, limit)

    def fail_nowhere(self) -> None:
        """Take back every :meth:`fail`."""
        self._library.link_fail_nowhere(self._self)

    def fence(self, first: int, limit: int) -> None:
        """From now on a burst that is not wholly inside ``[first, limit)`` violates the protocol."""
        self._library.link_fence(self._self, first, limit)

    def counts(self) -> dict[str, int]:
        """AXI4 traffic so far: read_beats, write_beats, read_bursts, write_bursts; and bytes_written, which had their strobe."""
        counts = (ctypes.c_uint64 * 4)()
        self._library.link_counts(self._self, counts)
        names = ("read_beats", "write_beats", "read_bursts", "write_bursts")
        return dict(zip(names, counts, strict=True)) | {"bytes_written": int(self._library.link_strobed(self._self))}

    def refuse(self, first: int, limit: int) -> None:
        """From now on registers in ``[first, limit)`` refuse every access."""
        self._library.link_refuse(self._self, first, limit)

    def set_register(self, address: int, value: int) -> None:
        """Value of a register."""
        self._library.link_set_register(self._self, address, value)

    def register(self, address: int) -> int:
        """Value of a register."""
        return int(self._library.link_register(self._self, address))

    def register_writes(self) -> list[tuple[int, int]]:
        """Address and value of every write of a register, in order."""
        log = (ctypes.c_uint64 * self._library.link_log_size(self._self))()
        self._library.link_log(self._self, log)
        return [(entry >> 32, entry & 0xFFFFFFFF) for entry in log]
