"""``align(x, n)`` of the arithmetic contract: x * 2^n in 64 bits, floored to the right, saturated to the left."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["WIDE", "Align", "saturated"]

WIDE = 64
"""Bits of every wide intermediate (docs/arithmetic.md, widths)."""


def saturated(value: Value, bits: int) -> Value:
    """``value`` (signed) limited to ``bits`` signed bits, combinational."""
    if len(value) <= bits:
        return value
    sign = value[-1]
    top = value[bits - 1:]
    return Mux(top.all() | ~top.any(), value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()


class Align(wiring.Component):
    """Pipelined ``align``; one value a cycle, no handshake.

    The shift by the low three bits of ``n`` comes first, always to the left and exact; the shift by eights follows, so
    that each stage is a shallow multiplexer.

    Parameters
    ----------
    width : :class:`int`
        Bits of ``x``, at most 64.

    Members
    -------
    x : ``In(signed(width))``
    n : ``In(signed(9))``
        Left shift; negative is right. Presented with ``x``.
    y : ``Out(signed(64))``
        ``LATENCY`` cycles later.
    """

    LATENCY = 2

    def __init__(self, width: int = WIDE) -> None:
        if not 2 <= width <= WIDE:
            raise ValueError(f"width must lie in 2..{WIDE}, not {width}")
        self.width = width
        super().__init__({"x": In(signed(width)), "n": In(signed(9)), "y": Out(signed(WIDE))})

    def elaborate(self, platform) -> Module:
        m = Module()
        fine = Signal(signed(self.width + 7), reset_less=True)
        eights = Signal(signed(6), reset_less=True)
        m.d.sync += [fine.eq(self.x << self.n[:3]), eights.eq(self.n >> 3)]

        y = Signal(signed(WIDE), reset_less=True)
        m.d.comb += self.y.eq(y)
        farthest = len(fine) // 8
        with m.If(eights < -farthest):
            m.d.sync += y.eq(fine[-1].replicate(WIDE))
        with m.Elif(eights >= WIDE // 8):
            m.d.sync += y.eq(Mux(fine.any(), Cat((~fine[-1]).replicate(WIDE - 1), fine[-1]), 0))
        with m.Else(), m.Switch(eights):
            for k in range(-farthest, WIDE // 8):
                with m.Case(k):
                    m.d.sync += y.eq(fine >> (-8 * k) if k < 0 else saturated((fine << (8 * k)).as_signed(), WIDE))
        return m
