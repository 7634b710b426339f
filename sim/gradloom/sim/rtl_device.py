"""The whole machine in simulation: Verilated RTL, a DRAM model, and the host's view of both."""

import ctypes
import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.sim.power_up import without_initial_values
from gradloom.sim.simulation import Simulation
from gradloom.sim.verilate import build_library
from gradloom.sim.verilog import TOP, machine_verilog

__all__ = ["CHANNELS", "BusError", "DramModel", "RtlDevice"]

CHANNELS = ("ar", "r", "aw", "w", "b")
_CHUNK = 1 << 18
"""Cycles per call into the library, so that an interrupt from the keyboard is noticed."""


class BusError(RuntimeError):
    """A register access was answered with an error, or not at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DramModel:
    """How the memory behaves.

    Parameters
    ----------
    bandwidth : :class:`fractions.Fraction`, :class:`int` or :class:`None`
        Bytes per cycle of all ports' reads and writes together; :class:`None`: one beat of each a cycle.
    latency, write_latency : :class:`int`
        Cycles from an address to its first data beat, and from the last write beat to the response.
    stall : :class:`float` or mapping of channel (``ar``, ``r``, ``aw``, ``w``, ``b``) to :class:`float`
        Share of cycles in which a channel stalls at random, each port for itself.
    seed : :class:`int`
        Of the stalls.
    """

    bandwidth: Fraction | int | None = None
    latency: int = 20
    write_latency: int = 10
    stall: float | Mapping[str, float] = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.bandwidth is not None and self.bandwidth <= 0:
            raise ValueError(f"bandwidth must be positive bytes per cycle or None, not {self.bandwidth!r}")
        for share in self.shares():
            if not 0 <= share < 1:
                raise ValueError(f"stall must lie in 0..1 (exclusive), not {share!r}")

    def shares(self) -> list[float]:
        """Stall shares in the order of :data:`CHANNELS`."""
        if isinstance(self.stall, Mapping):
            unknown = set(self.stall) - set(CHANNELS)
            if unknown:
                raise ValueError(f"stall names channels {', '.join(sorted(unknown))}; they are {', '.join(CHANNELS)}")
            return [self.stall.get(channel, 0.0) for channel in CHANNELS]
        return [self.stall] * len(CHANNELS)


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, u8, u32, u64 = ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
        ("new", handle, [u64, u32]), ("delete", None, [handle]), ("beat_bytes", u32, [handle]),
        ("write", ctypes.c_int, [handle, u64, ctypes.c_char_p, u64]),
        ("read", ctypes.c_int, [handle, u64, ctypes.c_char_p, u64]),
        ("csr_write", ctypes.c_int, [handle, u32, u32]),
        ("csr_read", ctypes.c_int, [handle, u32, ctypes.POINTER(u32)]),
        ("run", u64, [handle, u64]), ("irq", ctypes.c_int, [handle]), ("cycle", u64, [handle]),
        ("dram", None, [handle, u64, u64, u32, u32, ctypes.POINTER(u32), u64]),
        ("fail", None, [handle, u64, u64, u8]), ("fail_nowhere", None, [handle]),
        ("fence", None, [handle, u64, u64]), ("own_beat", None, [handle, u32]), ("violations", ctypes.c_char_p, [handle]),
        ("track", ctypes.c_int, [handle]), ("last_write", u64, [handle, u64]),
        ("counts", None, [handle, ctypes.POINTER(u64)]),
        ("record", None, [handle, ctypes.c_int]), ("event_count", u64, [handle]),
        ("event_read", None, [handle, ctypes.POINTER(u64)]),
        ("trace", ctypes.c_int, [handle, ctypes.c_char_p, u64, u64]),
    ):
        function = getattr(library, f"gradloom_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


class RtlDevice(Simulation):
    """A simulated machine with its memory. Close it, or use it as a context manager.

    Every cycle is checked against the rules of AXI4 and AXI4-Lite. After a violation every access, and :meth:`close` if there was
    none, raises :exc:`ProtocolError`.

    Parameters
    ----------
    machine : :class:`Config`, :class:`MatrixConfig`, or a mapping of file names to Verilog text
        The machine; Verilog text is taken as it is, with top module ``top`` and hierarchical blocks ``blocks``.
    dram_bytes : :class:`int`
        Size of the memory from address 0; pages cost nothing until touched.
    dram : :class:`DramModel`
    track_writes : :class:`bool`
        Remember for every beat the cycle of its last write (:meth:`last_write`).
    trace : :class:`bool`
        Build with waveforms (:meth:`trace`).
    power_up : :class:`int`
        0: registers and memories wake up with their initial values. Else a seed below 2^31: without them, at random
        (:mod:`gradloom.sim.power_up`); the machine's reset follows as always.
    own_beat : :class:`int`
        Bytes of the machine's own beats where its ports are wider (:mod:`gradloom.rtl.axi32`); 0: they are the ports'.
    """

    KIND = "device"

    def __init__(self, machine: Config | MatrixConfig | Mapping[str, str], *, top: str = TOP, dram_bytes: int = 64 << 20,
                 dram: DramModel | None = None, track_writes: bool = False, trace: bool = False, power_up: int = 0,
                 blocks: frozenset[str] = frozenset(), own_beat: int = 0) -> None:
        if not 0 <= power_up < 1 << 31:
            raise ValueError(f"power_up must be a seed below 2^31, or 0, not {power_up!r}")
        if not 0 < dram_bytes <= 1 << 32:
            raise ValueError(f"dram_bytes must lie in 1..2^32, not {dram_bytes!r}")
        if isinstance(machine, Config | MatrixConfig):
            files, blocks = machine_verilog(machine)
        else:
            files = dict(machine)
        if power_up:
            files = {name: without_initial_values(text) for name, text in files.items()}
        library = _load(build_library(files, top=top, trace=trace, power_up=bool(power_up), blocks=blocks))
        super().__init__(library, "gradloom", library.gradloom_new(dram_bytes, power_up), dram_bytes)
        self.dram_bytes = dram_bytes
        self.host_accesses = 0
        """Register accesses since the device was made."""
        self.memory_accesses = 0
        """:meth:`read` and :meth:`write` calls since the device was made."""
        self.set_dram(dram or DramModel())
        if own_beat:
            self._library.gradloom_own_beat(self._self, own_beat)
        if track_writes and self._library.gradloom_track(self._handle):
            raise MemoryError("no memory to track writes")

    def set_dram(self, model: DramModel) -> None:
        """Change the memory's behaviour from the next cycle on."""
        bandwidth = Fraction(model.bandwidth or 0)
        stall = (ctypes.c_uint32 * len(CHANNELS))(*(int(share * 65536) for share in model.shares()))
        self._library.gradloom_dram(self._self, bandwidth.numerator, bandwidth.denominator, model.latency,
                                    model.write_latency, stall, model.seed)

    def write(self, addr: int, data: bytes) -> None:
        """Put bytes into the memory; takes no cycles."""
        self._check(addr, len(data))
        self.memory_accesses += 1
        self._library.gradloom_write(self._self, addr, bytes(data), len(data))

    def read(self, addr: int, n: int) -> bytes:
        """Bytes of the memory; takes no cycles."""
        self._check(addr, n)
        self.obey()
        self.memory_accesses += 1
        buffer = ctypes.create_string_buffer(n)
        self._library.gradloom_read(self._self, addr, buffer, n)
        return buffer.raw

    def _check(self, addr: int, n: int) -> None:
        if addr < 0 or n < 0 or addr + n > self.dram_bytes:
            raise IndexError(f"{n} bytes at {addr:#x} lie outside the DRAM of {self.dram_bytes:#x} bytes")

    def csr_write(self, offset: int, value: int) -> None:
        """Write a register over AXI4-Lite; the clock runs meanwhile."""
        self.host_accesses += 1
        response = self._library.gradloom_csr_write(self._self, offset, value)
        self.obey()
        if response:
            raise BusError(f"write of {value:#x} to register {offset:#x}: {_meaning(response)}")

    def csr_read(self, offset: int) -> int:
        """Read a register over AXI4-Lite; the clock runs meanwhile."""
        self.host_accesses += 1
        value = ctypes.c_uint32()
        response = self._library.gradloom_csr_read(self._self, offset, ctypes.byref(value))
        self.obey()
        if response:
            raise BusError(f"read of register {offset:#x}: {_meaning(response)}")
        return value.value

    def run(self, max_cycles: int) -> int:
        """Clock until the interrupt is raised, at most ``max_cycles``; returns the cycles."""
        cycles = 0
        while cycles < max_cycles and not self.irq:
            cycles += self._library.gradloom_run(self._self, min(_CHUNK, max_cycles - cycles))
            self.obey()
        return cycles

    @property
    def irq(self) -> bool:
        """The interrupt line."""
        return bool(self._library.gradloom_irq(self._self))

    @property
    def cycle(self) -> int:
        """Clock cycles since the device was made."""
        return int(self._library.gradloom_cycle(self._self))

    @property
    def beat_bytes(self) -> int:
        """Bytes of a beat."""
        return int(self._library.gradloom_beat_bytes(self._self))

    def counts(self) -> dict[str, int]:
        """AXI4 traffic of all ports so far: read_beats, write_beats, read_bursts, write_bursts."""
        counts = (ctypes.c_uint64 * 4)()
        self._library.gradloom_counts(self._self, counts)
        return dict(zip(("read_beats", "write_beats", "read_bursts", "write_bursts"), counts, strict=True))

    def fail(self, first: int, limit: int, *, decode_error: bool = False) -> None:
        """From now on accesses to ``[first, limit)`` are answered with SLVERR (or DECERR) and move nothing."""
        self._library.gradloom_fail(self._self, first, limit, 3 if decode_error else 2)

    def fail_nowhere(self) -> None:
        """Take back every :meth:`fail`."""
        self._library.gradloom_fail_nowhere(self._self)

    def fence(self, first: int, limit: int) -> None:
        """From now on a burst that is not wholly inside ``[first, limit)`` violates the protocol, whatever answers it."""
        self._library.gradloom_fence(self._self, first, limit)

    def last_write(self, addr: int) -> int:
        """Cycle in which the beat at ``addr`` was last written by the machine; 0 if never. Needs ``track_writes``."""
        return int(self._library.gradloom_last_write(self._self, addr))

    def record_events(self, on: bool = True) -> None:
        """Record from now on when commands start and end, or no longer; forgets what was recorded."""
        self._library.gradloom_record(self._self, int(on))

    def events(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles (int64) in which commands started or ended since :meth:`record_events`, and in which engines (int64).

        Bit 2 n of the second: engine n (:func:`gradloom.contracts.engines.units`) starts a command; bit 2 n + 1: its oldest
        command ends.
        """
        buffer = np.zeros(self._library.gradloom_event_count(self._self), np.uint64)
        self._library.gradloom_event_read(self._self, buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint64)))
        return (buffer >> np.uint64(16)).astype(np.int64), (buffer & np.uint64(0xFFFF)).astype(np.int64)

    def trace(self, path: Path | str, *, first: int = 0, cycles: int = 1 << 62) -> None:
        """Record ``cycles`` clock cycles from cycle ``first`` on as an FST waveform. Needs ``trace=True``."""
        if self._library.gradloom_trace(self._self, str(path).encode(), first, first + cycles):
            raise RuntimeError(f"cannot write a waveform to {path}: this build has none (RtlDevice(..., trace=True)), "
                               "or the file cannot be opened")


def _meaning(response: int) -> str:
    return {-1: "no response", 2: "SLVERR", 3: "DECERR"}.get(response, f"response {response}")
