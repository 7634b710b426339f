"""Designs on the pins of a platform (:mod:`amaranth_boards`): oscillator, UART, LEDs; and one without memory chips."""

from amaranth.hdl import Elaboratable, Module, ResetSignal
from amaranth.lib import io

from gradloom.boards.clocking import add_clock
from gradloom.contracts.config import Config
from gradloom.rtl.board.board_design import BoardDesign

__all__ = ["BlockRamBoard", "PlatformBoard"]


class PlatformBoard(Elaboratable):
    """A design on a platform that has a UART, two LEDs and a clock.

    LED 0: the design is out of reset. LED 1: the machine has an interrupt.

    Parameters
    ----------
    design : :class:`~gradloom.rtl.board.board_design.BoardDesign`
        With a UART.
    clock : :class:`int`
        Hz, of everything.
    memory_phase : :class:`int`, optional
        Of the domain ``memory`` (:func:`~gradloom.boards.clocking.add_clock`).
    """

    def __init__(self, design: BoardDesign, clock: int, *, memory_phase: int | None = None) -> None:
        self.design, self.clock, self.memory_phase = design, clock, memory_phase

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.oscillator = oscillator = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        add_clock(m, oscillator.i, round(platform.default_clk_frequency), self.clock, memory_phase=self.memory_phase)
        uart = platform.request("uart", 0, dir={name: "-" for name in ("rx", "tx", "rts", "dtr")})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.submodules.design = design = self.design
        m.d.comb += [design.rx_pin.eq(rx.i), tx.o.eq(design.tx_pin)]
        for n, value in enumerate((~ResetSignal(), design.irq)):
            m.submodules[f"led{n}"] = led = io.Buffer("o", platform.request("led", n, dir="-"))
            m.d.comb += led.o.eq(value)
        self.add_pads(m, platform)
        return m

    def add_pads(self, m: Module, platform) -> None:
        """Pads of the memory; without one on the board there are none."""


class BlockRamBoard(PlatformBoard):
    """A machine with block RAM as its memory.

    Parameters
    ----------
    memory_bytes : :class:`int`
        A power of two.
    board : :class:`str`
        Four letters, which the board tells the host (:func:`gradloom.rtl.board.link.board_link.identity_bytes`).
    build : :class:`int`
        64-bit number that it tells, too.
    """

    def __init__(self, config: Config, *, memory_bytes: int, clock: int, board: str, build: int = 0) -> None:
        super().__init__(BoardDesign(config, memory_bytes, clock=clock, board=board, build=build), clock)
