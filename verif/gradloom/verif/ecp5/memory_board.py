"""The board's end of the cable and its SDRAM on the pins of a ULX3S, without a machine: PLL, UART, pads and their registers, in a
design that a device routes in two minutes."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.boards.board import Board
from gradloom.boards.build import platform_files
from gradloom.boards.sdram_board import SdramPads
from gradloom.contracts.config import PRESETS
from gradloom.rtl.board.link.board_link import UartLink
from gradloom.rtl.board.memory.axi_bus import connect_manager
from gradloom.rtl.board.memory.board_memory import BoardMemory
from gradloom.rtl.board.memory.sdram import pin_members
from gradloom.rtl.memory_path.axi import connect_flat
from gradloom.verif.ecp5.netlists import synthesised
from gradloom.verif.ecp5.routing import Plant, routed

__all__ = ["BOARD", "PAD_FAULTS", "MemoryDesign", "routed_memory_board"]

CONFIG = PRESETS["nano"]
BOARD = Board(name="ulx3s-25f", letters="U25F", die="LFE5U-25F", loader="none", nextpnr=(), idcode=0,
              platform="amaranth_boards.ulx3s:ULX3S_25F_Platform", machine=CONFIG.name, clock=50_000_000, oscillator=25_000_000,
              memory="ULX3S", capture=0, clock_phase=90, baud=3_000_000, usb=(1, 2))
"""Not among the boards of the command line."""


class MemoryDesign(wiring.Component):
    """Has the members of :class:`~gradloom.rtl.board.board_design.BoardDesign` with an SDRAM and a UART. Registers of a machine do
    not answer."""

    def __init__(self) -> None:
        self.link = UartLink(CONFIG, board=BOARD.letters, clock=BOARD.clock, memory_bytes=BOARD.part.size)
        self.memory = BoardMemory(1, CONFIG.beat_bytes, BOARD.part, BOARD.clock, capture=BOARD.capture, pad_registers=True)
        self.pins = pin_members(BOARD.part)
        super().__init__({"rx_pin": In(1, init=1), "tx_pin": Out(1, init=1), **self.pins, "irq": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link, m.submodules.memory = link, memory = self.link, self.memory
        m.d.comb += [link.rx_pin.eq(self.rx_pin), self.tx_pin.eq(link.tx_pin), link.window_ready.eq(1)]
        connect_flat(m, memory, self, self.pins)
        connect_manager(m, link, memory.manager[0])
        return m


def routed_memory_board() -> dict[str, Any]:
    """nextpnr's JSON of the design on an LFE5U-25F.

    Raises
    ------
    :exc:`~gradloom.verif.synth.SynthError`
        If Yosys or nextpnr fails.
    """
    files = platform_files(BOARD, SdramPads(MemoryDesign(), BOARD, BOARD.clock))
    return routed(synthesised(files["top.il"], "top", "il"), files["top.lpf"])


def _pad_register(design: Mapping[str, Any], name: str) -> dict[str, Any]:
    module, = design["modules"].values()
    cell: dict[str, Any] = module["cells"][f"pad_{name}$IOL"]
    return cell


def _stopped_clock(design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The DDR register of the memory's clock pad sends the same in both halves of a cycle."""
    cell = _pad_register(design, "clk.buf.buf0")
    return cell, {"connections": {"TXDATA1": cell["connections"]["TXDATA0"]}}


def _wrong_line(design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Line 5 of the data carries what is written to line 9."""
    return _pad_register(design, "dq5.buf.buf0"), {
        "connections": {"TXDATA0": _pad_register(design, "dq9.buf.buf0")["connections"]["TXDATA0"]}}


def _wrong_row(design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Address line 11 carries what belongs on line 10."""
    return _pad_register(design, "a.buf.buf11"), {
        "connections": {"TXDATA0": _pad_register(design, "a.buf.buf10")["connections"]["TXDATA0"]}}


def _late_input(design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pad's input register takes what the pad sends in its place."""
    cell = _pad_register(design, "dq0.buf.buf0")
    return cell, {"connections": {"PADDI": cell["connections"]["TXDATA0"]}}


PAD_FAULTS: dict[str, Plant] = {"stopped clock": _stopped_clock, "wrong data line": _wrong_line, "wrong address line": _wrong_row,
                                "wrong input": _late_input}
"""Faults of pads (:func:`~gradloom.verif.ecp5.routing.with_faults`)."""
