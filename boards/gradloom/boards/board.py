"""What a board is: its part, memory and cable, and the machine that is built for it."""

import dataclasses
from typing import Any

from gradloom.contracts.config import Config, ConfigError, load_config
from gradloom.contracts.sdram_timing import SdramPart, part_named

__all__ = ["BOARDS", "Board", "board_named"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Board:
    """One board. Data only: nothing here needs the tools that build for it.

    Parameters
    ----------
    name : :class:`str`
        The board and its die: ``ulx3s-85f``.
    letters : :class:`str`
        Four ASCII letters by which the design tells the host where it runs (field ``board`` of WELCOME).
    die : :class:`str`
        One of :data:`gradloom.boards.capacity.CAPACITY`.
    loader : :class:`str`
        The board for openFPGALoader.
    nextpnr : tuple of :class:`str`
        The part for ``nextpnr-ecp5``.
    idcode : :class:`int`
        What the part answers over JTAG: another one is another die.
    platform : :class:`str`
        ``module:class`` of its pins.
    machine : :class:`str`
        Preset that is built for it.
    clock : :class:`int`
        Hz of machine, memory and link.
    oscillator : :class:`int`
        Hz of the board's own clock.
    memory : :class:`str`
        Part of :mod:`gradloom.contracts.sdram_timing`.
    capture, clock_phase : :class:`int`
        When read data are registered (:class:`~gradloom.rtl.board.memory.sdram.SdramController`), and degrees by which the clock
        at the memory's pad is late.
    baud : :class:`int`
        Bits a second that its cable carries; it begins at 115,200.
    usb : tuple of :class:`int`
        Vendor and product of its serial adapter.
    """

    name: str
    letters: str
    die: str
    loader: str
    nextpnr: tuple[str, ...]
    idcode: int
    platform: str
    machine: str
    clock: int
    oscillator: int
    memory: str
    capture: int
    clock_phase: int
    baud: int
    usb: tuple[int, int]

    @property
    def part(self) -> SdramPart:
        """Its memory."""
        return part_named(self.memory)

    @property
    def config(self) -> Config:
        """The machine that is built for it."""
        return load_config(self.machine)


_ULX3S: dict[str, Any] = {"oscillator": 25_000_000, "clock": 50_000_000, "memory": "ULX3S", "capture": 0, "clock_phase": 90,
                          "baud": 3_000_000, "usb": (0x0403, 0x6015)}
BOARDS: dict[str, Board] = {board.name: board for board in (
    Board(name="ulx3s-85f", letters="U85F", die="LFE5U-85F", loader="ulx3s",
          nextpnr=("--85k", "--package", "CABGA381", "--speed", "6"), idcode=0x41113043,
          platform="amaranth_boards.ulx3s:ULX3S_85F_Platform", machine="ecp5-9", **_ULX3S),
)}
"""Boards by name."""


def board_named(name: str) -> Board:
    """A board by name.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If there is none of this name.
    """
    if name not in BOARDS:
        raise ConfigError(f"there is no board {name!r}: give one of {', '.join(BOARDS)}")
    return BOARDS[name]
