"""``align(x, n)`` of the arithmetic contract: x * 2^n in 64 bits, floored to the right, saturated to the left."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.delay import delayed

__all__ = ["SHIFT_BITS", "WIDE", "Align", "AlignNarrow", "Shifter", "chosen", "saturated"]

WIDE = 64
"""Bits of every wide intermediate (docs/arithmetic.md, widths)."""
SHIFT_BITS = 7
"""Bits of a shift amount: beyond -64 .. 63 every further shift gives the same result."""


def chosen(select: Value, values: Sequence[Value]) -> Value:
    """``values[select]`` of four as a tree, which is one LUT6 a bit; a switch becomes two."""
    return Mux(select[1], Mux(select[0], values[3], values[2]), Mux(select[0], values[1], values[0]))


def saturated(value: Value, bits: int) -> Value:
    """``value`` (signed) limited to ``bits`` signed bits, combinational."""
    if len(value) <= bits:
        return value
    sign = value[-1]
    top = value[bits - 1:]
    return Mux(top.all() | ~top.any(), value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()


class Shifter(wiring.Component):
    """Pipelined shift of 64 bits in both directions; one value a cycle, no handshake.

    Both directions are one rotation to the left, two bits of the distance a stage (a four-way multiplexer is one LUT6);
    the last stage replaces the bits that wrapped around.

    Members
    -------
    x : ``In(signed(64))``
    n : ``In(signed(7))``
        Left shift; negative is right. Presented with ``x``.
    y : ``Out(signed(64))``
        x * 2^n, floored, modulo 2^64; ``LATENCY`` cycles later.
    beyond : ``Out(1)``
        x * 2^n needs more than 64 bits.
    negative : ``Out(1)``
        x is negative.
    """

    LATENCY = 4

    def __init__(self) -> None:
        super().__init__({"x": In(signed(WIDE)), "n": In(signed(SHIFT_BITS)), "y": Out(signed(WIDE)), "beyond": Out(1),
                          "negative": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        word, n, sign = self.x.as_unsigned(), Value.cast(self.n), self.x[-1]
        lost = self._lost(m, word, n, sign)
        for i in (1, 2, 3):
            unit = 4 ** (i - 1)
            turned = Signal(WIDE, name=f"turned{i}")
            with m.Switch(n[2 * i - 2:2 * i]):
                for k in range(4):
                    with m.Case(k):
                        m.d.comb += turned.eq(Cat(word[WIDE - k * unit:], word[:WIDE - k * unit]) if k else word)
            if i == 3:
                # The bits below the distance in eights and ones, so that a bit's mask is one function of three signals.
                eights, ones = n[3:6], n[:3]
                above = delayed(m, Cat(eights > k for k in range(7)), "above")
                here = delayed(m, Cat(eights == k for k in range(8)), "here")
                part = delayed(m, Cat(ones > k for k in range(7)), "part")
            word, n, sign = delayed(m, turned, f"word{i}"), delayed(m, n, f"n{i}"), delayed(m, sign, f"sign{i}")

        # To the left, the bits below the distance have wrapped; to the right, all others.
        left = ~n[-1]
        below = Signal(WIDE)
        above, part = Cat(above, 0), Cat(part, 0)
        m.d.comb += below.eq(Cat(above[i // 8] | (here[i // 8] & part[i % 8]) for i in range(WIDE)))
        shifted = Signal(WIDE)
        m.d.comb += shifted.eq(Cat(Mux(below[i] == left, Mux(left, 0, sign), word[i]) for i in range(WIDE)))
        y, left4, sign4 = delayed(m, shifted, "shifted"), delayed(m, left, "left4"), delayed(m, sign, "sign4")
        m.d.comb += [self.y.eq(y.as_signed()), self.negative.eq(sign4), self.beyond.eq(left4 & (lost | (y[-1] != sign4)))]
        return m

    def _lost(self, m: Module, word: Value, n: Value, sign: Value) -> Value:
        """Whether a bit unlike the sign is shifted out to the left; with ``y``."""
        octets = [word[8 * i:8 * i + 8] for i in reversed(range(WIDE // 8))]
        unlike = delayed(m, Cat((octet ^ sign.replicate(8)).any() for octet in octets), "unlike")
        split = Signal(8)
        with m.Switch(n[3:6]):
            for k, octet in enumerate(octets):
                with m.Case(k):
                    m.d.comb += split.eq(octet)
        split, n, sign = delayed(m, split, "split"), delayed(m, n, "split_n"), delayed(m, sign, "split_sign")
        out = [(split[7 - k] ^ sign) & (n[:3] > k) for k in range(7)] + [unlike[k] & (n[3:6] > k) for k in range(7)]
        return delayed(m, Cat(*out).any() & ~n[-1], "lost", self.LATENCY - 1)


class Align(wiring.Component):
    """Pipelined ``align`` of 64 bits; one value a cycle, no handshake.

    Members
    -------
    x : ``In(signed(64))``
    n : ``In(signed(7))``
        Left shift; negative is right. Presented with ``x``.
    y : ``Out(signed(64))``
        ``LATENCY`` cycles later.
    """

    LATENCY = Shifter.LATENCY + 1

    def __init__(self) -> None:
        super().__init__({"x": In(signed(WIDE)), "n": In(signed(SHIFT_BITS)), "y": Out(signed(WIDE))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.shifter = shifter = Shifter()
        limit = Cat((~shifter.negative).replicate(WIDE - 1), shifter.negative)
        y = delayed(m, Mux(shifter.beyond, limit, shifter.y.as_unsigned()), "aligned")
        m.d.comb += [shifter.x.eq(self.x), shifter.n.eq(self.n), self.y.eq(y.as_signed())]
        return m


class AlignNarrow(wiring.Component):
    """``align`` of an operand of few bits; cheaper than :class:`Align` up to about 30 bits.

    The shift by the low three bits of ``n`` comes first, always to the left and exact; the shift by eights follows, so
    that each stage is a shallow multiplexer.

    Parameters
    ----------
    width : :class:`int`
        Bits of ``x``, at most 64.

    Members
    -------
    x : ``In(signed(width))``
    n : ``In(signed(7))``
        Left shift; negative is right. Presented with ``x``.
    y : ``Out(signed(64))``
        ``LATENCY`` cycles later.
    """

    LATENCY = 2

    def __init__(self, width: int) -> None:
        if not 2 <= width <= WIDE:
            raise ValueError(f"width must lie in 2..{WIDE}, not {width}")
        self.width = width
        super().__init__({"x": In(signed(width)), "n": In(signed(SHIFT_BITS)), "y": Out(signed(WIDE))})

    def elaborate(self, platform) -> Module:
        m = Module()
        fine = Signal(signed(self.width + 7), reset_less=True)
        eights = Signal(signed(SHIFT_BITS - 3), reset_less=True)
        m.d.sync += [fine.eq(self.x << self.n[:3]), eights.eq(self.n >> 3)]

        y = Signal(signed(WIDE), reset_less=True)
        m.d.comb += self.y.eq(y)
        with m.Switch(eights):
            for k in range(-WIDE // 8, WIDE // 8):
                with m.Case(k):
                    m.d.sync += y.eq(fine >> (-8 * k) if k < 0 else saturated((fine << (8 * k)).as_signed(), WIDE))
        return m
