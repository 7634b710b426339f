"""A whole design with a board's SDRAM."""

from amaranth.hdl import Module
from amaranth.lib import io

from gradloom.boards.block_ram_board import PlatformBoard
from gradloom.boards.board import Board
from gradloom.contracts.config import Config
from gradloom.rtl.board.board_design import BoardDesign

__all__ = ["SdramBoard", "SdramPads"]

_PADS = {"clk_en": "cke", "cs": "cs_n", "ras": "ras_n", "cas": "cas_n", "we": "we_n", "ba": "ba", "a": "a", "dqm": "dqm"}
"""Outputs of the platform's SDRAM, and the design's, which are at their pins' levels already."""


class SdramPads(PlatformBoard):
    """A design behind the pins of a board's SDRAM. Their registers are those of the IO cells; the clock's pad is driven by a DDR
    register with the board's phase.

    Parameters
    ----------
    design : :class:`~gradloom.rtl.board.board_design.BoardDesign`
        Or another component with its members for an SDRAM and a UART.
    board : :class:`~gradloom.boards.board.Board`
    clock : :class:`int`
        Hz.
    """

    def __init__(self, design: BoardDesign, board: Board, clock: int) -> None:
        super().__init__(design, clock, memory_phase=board.clock_phase)

    def add_pads(self, m: Module, platform) -> None:
        design = self.design
        pads = platform.request("sdram", 0, dir={name: "-" for name in ("clk", *_PADS, "dq")})
        m.submodules.pad_clk = clk = io.DDRBuffer("o", pads.clk, o_domain="memory")
        m.d.comb += [clk.o[0].eq(1), clk.o[1].eq(0)]
        for name, signal in _PADS.items():
            port, value = getattr(pads, name), getattr(design, signal)
            if len(port) < len(value):
                raise ValueError(f"the platform's SDRAM has {len(port)} pins {name}, the memory has {len(value)}: "
                                 f"take another part")
            m.submodules[f"pad_{name}"] = pad = io.FFBuffer("o", ~port if any(port.invert) else port)
            m.d.comb += pad.o.eq(value)
        # One output enable of a register each: nothing else reads them, so that those of the IO cells can be taken.
        for n in range(len(design.dq_o)):
            m.submodules[f"pad_dq{n}"] = pad = io.FFBuffer("io", pads.dq[n])
            m.d.comb += [pad.o.eq(design.dq_o[n]), pad.oe.eq(design.dq_oe), design.dq_i[n].eq(pad.i)]


class SdramBoard(SdramPads):
    """A machine with the board's SDRAM.

    Parameters
    ----------
    clock : :class:`int`, optional
        Hz, if it is another one than the board's.
    build : :class:`int`
        As of :class:`BlockRamBoard`.
    """

    def __init__(self, config: Config, board: Board, *, clock: int | None = None, build: int = 0) -> None:
        clock = clock or board.clock
        super().__init__(BoardDesign(config, board.part, clock=clock, capture=board.capture, pad_registers=True,
                                     board=board.letters, build=build), board, clock)
