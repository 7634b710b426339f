"""A microinstruction (:mod:`gradloom.contracts.microcode`) as the A-Core's stages see it."""

from amaranth.hdl import Shape
from amaranth.lib.data import Field, FlexibleLayout

from gradloom.contracts.microcode import FIELDS, MICRO_BITS

__all__ = ["MicroLayout"]


def MicroLayout() -> FlexibleLayout:
    """Its fields in ``MICRO_BITS`` bits."""
    return FlexibleLayout(MICRO_BITS, {field.name: Field(Shape(field.width), field.lsb) for field in FIELDS.values()})
