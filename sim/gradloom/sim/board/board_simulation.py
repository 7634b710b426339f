"""A whole board in simulation: link, machine and memory controller as they are built, an SDRAM at their pins that checks them."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

from amaranth.back import verilog

from gradloom.contracts.config import Config
from gradloom.contracts.frame_format import BITS_OF_BYTE
from gradloom.contracts.sdram_timing import SdramPart
from gradloom.rtl.board.board_design import BoardDesign
from gradloom.sim.power_up import without_initial_values
from gradloom.sim.sdram_model import Counts, ModelSettings, model_settings
from gradloom.sim.simulation import Simulation
from gradloom.sim.verilate import build_library
from gradloom.sim.verilog import machine_verilog

__all__ = ["LEAST_BIT_CLOCKS", "BoardSimulation", "board_verilog", "rtl_board"]

TOP = "board"
LEAST_BIT_CLOCKS = 8
"""Clocks of a bit at the fastest rate of the UART (:mod:`gradloom.rtl.board.link.uart`)."""
_BYTE_CYCLES = 4
"""Of a byte that goes in behind the UART."""
_CHUNK = 1 << 17
"""Cycles per call into the library, so that an interrupt from the keyboard is noticed."""


def board_verilog(config: Config, part: SdramPart, *, clock: int, capture: int = 0, board: str = "SIM0", uart: bool = False) -> str:
    """Verilog of the design around the machine, which is an instance. The first rate of a UART is its fastest one."""
    design = BoardDesign(config, part, clock=clock, capture=capture, board=board, uart=uart, baud=clock // LEAST_BIT_CLOCKS)
    return str(verilog.convert(design, name=TOP, emit_src=False))


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, arguments in (
            ("new", handle, [ctypes.POINTER(ModelSettings), u32]), ("delete", None, [handle]),
            ("feed", None, [handle, ctypes.c_char_p, u64]), ("take", u64, [handle, ctypes.c_char_p, u64]),
            ("run", u64, [handle, u64]), ("cycle", u64, [handle]), ("reset", None, [handle]), ("bit_clocks", None, [handle, u32]),
            ("lose", None, [handle, u64]), ("swap", None, [handle, u32, u32]), ("stick", None, [handle, u32, ctypes.c_int]),
            ("plant", None, [handle, u32]), ("no_refresh", None, [handle]), ("violations", ctypes.c_char_p, [handle]),
            ("size", u64, [handle]), ("bytes", ctypes.POINTER(ctypes.c_uint8), [handle]),
            ("counts", None, [handle, ctypes.POINTER(u64)])):
        function = getattr(library, f"board_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


class BoardSimulation(Simulation):
    """A simulated board with its cable (:class:`~gradloom.host.link.transport.SimulatedBoard`). Close it, or use it as a context
    manager.

    The SDRAM at the pins looks at every command; :meth:`wait` and :meth:`close` raise
    :exc:`~gradloom.sim.simulation.ProtocolError`, which names rule, bank and cycle, after a violation.

    Parameters
    ----------
    files : mapping
        Verilog by name; the top module is ``board``, with the ports of :class:`~gradloom.rtl.board.board_design.BoardDesign`.
    part : :class:`SdramPart`
        The memory.
    clock, capture
        As in :class:`~gradloom.rtl.board.board_design.BoardDesign`.
    bit_clocks : :class:`int`
        Clocks of a bit of the design's UART at its first rate; 0 if bytes go in and come out behind it, as fast as the link takes
        them.
    blocks : set of :class:`str`
        Modules that are built as hierarchical blocks.
    power_up : :class:`int`
        0: registers and memories wake up with their initial values. Else a seed below 2^31: without them, at random
        (:mod:`gradloom.sim.power_up`); the reset follows as always.
    memory : mapping, optional
        Settings of the SDRAM that differ from those of the part (:func:`~gradloom.sim.sdram_model.model_settings`).

    Raises
    ------
    :exc:`~gradloom.sim.verilate.BuildError`
        If the simulator cannot be built.
    """

    KIND = "simulated board"
    RULES = "SDRAM protocol"

    def __init__(self, files: Mapping[str, str], part: SdramPart, *, clock: int, capture: int = 0, bit_clocks: int = 0,
                 blocks: frozenset[str] = frozenset(), power_up: int = 0, memory: Mapping[str, int] | None = None) -> None:
        if power_up:
            files = {name: without_initial_values(text) for name, text in files.items()}
        library = _load(build_library(files, top=TOP, blocks=blocks, power_up=bool(power_up), harness="board/board_harness.cpp"))
        settings = model_settings(part, part.timing(clock), capture=capture) | dict(memory or {})
        super().__init__(library, "board", library.board_new(ctypes.byref(ModelSettings(**settings)), power_up), part.size)
        self.has_uart = bit_clocks > 0
        self.byte_cycles = BITS_OF_BYTE * bit_clocks if bit_clocks else _BYTE_CYCLES
        if bit_clocks:
            self.set_bit_clocks(bit_clocks)

    @property
    def cycle(self) -> int:
        """Clock cycles so far."""
        return int(self._library.board_cycle(self._self))

    def feed(self, items: bytes) -> None:
        """Bytes for the board to take as time passes."""
        self._library.board_feed(self._self, bytes(items), len(items))

    def take(self, most: int = 1 << 14) -> bytes:
        """Bytes that came out."""
        buffer = ctypes.create_string_buffer(most)
        taken = self._library.board_take(self._self, buffer, most)
        return buffer.raw[:taken]

    def wait(self, cycles: int) -> int:
        """Run until a byte comes out, at most so many cycles; returns the cycles."""
        done = 0
        while done < cycles:
            part = min(_CHUNK, cycles - done)
            ran = self._library.board_run(self._self, part)
            done += ran
            self.obey()
            if ran < part:
                break
        return done

    def reset(self) -> None:
        """Reset the design; what the cable has and the link has not taken is lost."""
        self._library.board_reset(self._self)

    def set_bit_clocks(self, clocks: int) -> None:
        """Clocks of a bit of the host's UART."""
        self._library.board_bit_clocks(self._self, clocks)
        self.byte_cycles = BITS_OF_BYTE * clocks

    def lose(self, nth: int) -> None:
        """The cable loses the ``nth`` byte of the host from now on, counted from 1."""
        self._library.board_lose(self._self, nth)

    def swap_data(self, first: int, second: int) -> None:
        """Exchange two data lines on their way back from the memory."""
        self._library.board_swap(self._self, first, second)

    def stick_row(self, bit: int, level: int = 0) -> None:
        """One line of every row's address is stuck."""
        self._library.board_stick(self._self, bit, level)

    def plant(self, fault: int) -> None:
        """Choose the faults, a bit each, of a design that holds some."""
        self._library.board_plant(self._self, fault)

    def drop_refreshes(self) -> None:
        """No REFRESH arrives any more."""
        self._library.board_no_refresh(self._self)

    @property
    def memory(self) -> memoryview:
        """Bytes of the SDRAM in the order of addresses; to be written, too."""
        pointer = self._library.board_bytes(self._self)
        array = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8 * self._library.board_size(self._self)))
        return memoryview(array.contents).cast("B")

    @property
    def commands(self) -> Counts:
        """Commands to the SDRAM so far."""
        values = (ctypes.c_uint64 * 5)()
        self._library.board_counts(self._self, values)
        return Counts(*values)


def rtl_board(config: Config, part: SdramPart, *, clock: int, capture: int = 0, board: str = "SIM0", uart: bool = False,
              memory: Mapping[str, int] | None = None) -> BoardSimulation:
    """The RTL of a board's design.

    Parameters
    ----------
    config : :class:`Config`
        Of the machine.
    board : :class:`str`
        As in :class:`~gradloom.rtl.board.board_design.BoardDesign`.
    uart : :class:`bool`
        Bytes pass as waveforms through the design's UART, at 8 clocks a bit.
    part, clock, capture, memory
        As in :class:`BoardSimulation`.
    """
    machine, blocks = machine_verilog(config)
    around = board_verilog(config, part, clock=clock, capture=capture, board=board, uart=uart)
    return BoardSimulation({**machine, "board.v": around}, part, clock=clock, capture=capture, blocks=blocks, memory=memory,
                           bit_clocks=LEAST_BIT_CLOCKS if uart else 0)
