"""What nextpnr made of a whole board, as the design that :mod:`gradloom.sim.board.board_simulation` simulates: every cell of the
bitstream behind the board's pins."""

import re
from collections.abc import Mapping
from typing import Any

from gradloom.contracts.frame_format import FIRST_BAUD
from gradloom.contracts.sdram_timing import SdramPart
from gradloom.sim.board.board_simulation import TOP, BoardSimulation
from gradloom.sim.netlist.cells import models
from gradloom.sim.netlist.netlist_verilog import NetlistError, netlist_verilog

__all__ = ["routed_board", "routed_board_verilog"]

_NETLIST = "routed"
_PINS = {"clk_en": "cke", "cs": "cs_n", "ras": "ras_n", "cas": "cas_n", "we": "we_n", "ba": "ba", "a": "a", "dqm": "dqm"}
"""Pads of the platform's SDRAM, and what the simulation calls them. They have their pins' levels."""
_PAD = re.compile(r"(sdram|uart)_0__(\w+?)__io")

# The memory takes a command only if its clock pad has gone up since the last one: a design whose pad stands still trains nothing.
_AROUND = """module {top}(input clk, input rst{ports});
  wire mem_clk;
  wire pad_cs_n;
  wire [{last}:0] drives;
  reg edges = 1'b0;
  reg seen = 1'b0;
  reg clocked = 1'b0;
  always @(posedge mem_clk) edges <= ~edges;
  always @(posedge clk) begin
    seen <= edges;
    clocked <= edges ^ seen;
  end
  assign cs_n = pad_cs_n | ~clocked;
  assign dq_oe = &drives;
  {netlist} netlist({joined});
endmodule
"""


def routed_board_verilog(design: Mapping[str, Any], *, faults: int = 0) -> dict[str, str]:
    """Verilog files by name of nextpnr's JSON of a whole board with an SDRAM, and of the models of its cells. Their top module has
    the ports of :class:`~gradloom.rtl.board.board_design.BoardDesign` with a UART, clock and reset.

    The PLL hands its input on, so that the board's oscillator is the design's clock; the reset is the time before the device is
    configured. That the pads drive the data lines is one signal: all or none.

    Parameters
    ----------
    faults : :class:`int`
        Bits of an input ``fault`` that the netlist has.

    Raises
    ------
    :exc:`~gradloom.sim.netlist.netlist_verilog.NetlistError`
        If it is no such board, or holds something that has no model.
    """
    top, = design["modules"]
    ports = design["modules"][top]["ports"]
    pads = {match.groups(): name for name in ports if (match := _PAD.fullmatch(name))}
    clocks = [name for name, port in ports.items() if port["direction"] == "input" and not _PAD.fullmatch(name) and name != "fault"]
    lacking = [" ".join(pad) for pad in (("uart", "rx"), ("uart", "tx"), ("sdram", "clk"), ("sdram", "dq"),
                                         *(("sdram", name) for name in _PINS)) if pad not in pads]
    if lacking or len(clocks) != 1:
        raise NetlistError(f"{top}: no board with an SDRAM and one clock: " + (
            f"it has no pads {', '.join(lacking)}" if lacking else f"its inputs are {', '.join(sorted(clocks)) or 'none'}"))
    width = {pin: len(ports[pads["sdram", pad]]["bits"]) for pad, pin in _PINS.items()}
    data = len(ports[pads["sdram", "dq"]]["bits"])
    outer = [("input", "rx_pin", 1), ("output", "tx_pin", 1), *(("output", pin, bits) for pin, bits in width.items()),
             ("output", "dq_o", data), ("output", "dq_oe", 1), ("input", "dq_i", data),
             *([("input", "fault", faults)] if faults else [])]
    joined = {"off": "rst", clocks[0]: "clk", pads["uart", "rx"]: "rx_pin", pads["uart", "tx"]: "tx_pin",
              pads["sdram", "clk"]: "mem_clk",
              **{pads["sdram", pad]: "pad_cs_n" if pin == "cs_n" else pin for pad, pin in _PINS.items()},
              **{f"{pads['sdram', 'dq']}_{end}": net for end, net in (("i", "dq_i"), ("o", "dq_o"), ("oe", "drives"))},
              **({"fault": "fault"} if faults else {})}
    around = _AROUND.format(
        top=TOP, netlist=_NETLIST, last=data - 1,
        ports="".join(f", {way} {f'[{bits - 1}:0] ' if bits > 1 else ''}{pin}" for way, pin, bits in outer),
        joined=", ".join(f".{port}({net})" for port, net in joined.items()))
    return {"board.v": around, "netlist.v": netlist_verilog(design, top, name=_NETLIST, power_off="off"), **models()}


def routed_board(design: Mapping[str, Any], part: SdramPart, *, clock: int, baud: int = FIRST_BAUD, capture: int = 0,
                 power_up: int = 0, faults: int = 0) -> BoardSimulation:
    """The simulation of nextpnr's JSON of a whole board (:func:`routed_board_verilog`).

    Parameters
    ----------
    clock : :class:`int`
        Hz at which it was built, which decides the SDRAM's cycles.
    baud : :class:`int`
        The first rate of its UART.
    power_up : :class:`int`
        0, and every register and memory wakes up as the device sets it; or a seed by which it wakes up at random.
    part, capture, faults
        As in :class:`~gradloom.sim.board.board_simulation.BoardSimulation` and :func:`routed_board_verilog`.
    """
    return BoardSimulation(routed_board_verilog(design, faults=faults), part, clock=clock, capture=capture, power_up=power_up,
                           bit_clocks=round(clock / baud))
