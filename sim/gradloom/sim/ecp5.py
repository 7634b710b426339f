"""Models of the cells of Lattice ECP5, for Verilog in which they are instances: where ``SYNTHESIS`` is defined, and netlists."""

from pathlib import Path

__all__ = ["CELLS"]

CELLS = Path(__file__).with_name("ecp5_cells.v")
"""Verilog of CCU2C and MULT18X18D as machines use them (:mod:`gradloom.rtl.ecp5`)."""
