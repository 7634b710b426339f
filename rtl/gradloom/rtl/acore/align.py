"""``align(x, n)`` of the arithmetic contract: x * 2^n in 64 bits, floored to the right, saturated to the left."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.delay import delayed

__all__ = ["SHIFT_BITS", "WIDE", "Align", "AlignNarrow", "ProductAlign", "Shifter", "chosen", "lean_sum", "narrow_settings",
           "product_fraction", "product_over", "saturated", "shifted_by"]

WIDE = 64
"""Bits of every wide intermediate (docs/arithmetic.md, widths)."""
_ROW = 16
_ROWS = WIDE // _ROW
_UNITS = 7
"""Most places of a shift's low three bits."""
SHIFT_BITS = 7
"""Bits of a shift amount: beyond -64 .. 63 every further shift gives the same result."""


def chosen(select: Value, values: Sequence[Value]) -> Value:
    """``values[select]`` as a tree, which takes one LUT6 a bit for four values; synthesis makes more of a switch. What a select
    beyond them gives is not defined."""
    if len(values) == 1:
        return values[0]
    level = (len(values) - 1).bit_length() - 1
    return Mux(select[level], chosen(select, values[1 << level:]), chosen(select, values[:1 << level]))


def shifted_by(selects: Sequence[Value], word: Value, step: int, bits: int, *, first: int = 0) -> Value:
    """``bits`` bits of ``word`` from bit ``first`` + ``step`` * select on; select has two bits.

    ``selects`` are two copies of it from different registers or ports: bits that are two steps apart would share half of their
    multiplexers, and synthesis would then take two LUTs for each instead of one.
    """
    return Cat(chosen(selects[i // abs(2 * step) % 2], [word[first + i + step * k] for k in range(4)]) for i in range(bits))


def lean_sum(a: Value, b: Value) -> Value:
    """``a`` + ``b``, both signed, exact: as a difference, so that synthesis puts what computes ``b`` (up to four signals a bit) and
    the addition in one LUT. In a sum it takes either operand to the carry chain, and needs a LUT of its own for it."""
    return (Cat(0, a).as_signed() - Cat(1, ~b).as_signed())[1:].as_signed()


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
    """``align`` of an operand of few bits by an amount that stays while a command runs: a multiplier shifts by up to 15 places,
    then each row of 16 result bits chooses a row of the product.

    Parameters
    ----------
    width : :class:`int`
        Bits of ``x``, at most 32.
    lut : :class:`bool`
        Multiplexers shift instead of the multiplier.

    Members
    -------
    x : ``In(signed(width))``
    power, over : ``In(16)``, ``In(width - 1)``
        Of :func:`narrow_settings`; with ``x``. ``lut``: of ``power`` the place of its only one is given, in 4 bits.
    rows : ``In(12)``
        The same, one cycle later.
    y : ``Out(signed(64))``
        ``LATENCY`` cycles later.
    """

    LATENCY = 2

    def __init__(self, width: int, *, lut: bool = False) -> None:
        if not 2 <= width <= 32:
            raise ValueError(f"width must lie in 2..32, not {width}")
        self.width, self.lut = width, lut
        super().__init__({"x": In(signed(width)), "power": In(4 if lut else _ROW), "over": In(width - 1), "rows": In(3 * _ROWS),
                          "y": Out(signed(WIDE))})

    def elaborate(self, platform) -> Module:
        m = Module()
        sign = delayed(m, self.x[-1], "sign")
        moved = self.x << self.power if self.lut else self.x * Cat(self.power, 0).as_signed()
        product = delayed(m, moved.as_signed(), "product")
        beyond = delayed(m, ((self.x[:-1] ^ self.x[-1].replicate(self.width - 1)) & self.over).any(), "beyond")
        low = beyond & ~sign

        def bit(i: int) -> Value:
            return product[i] if i < self.width + _ROW - 1 else sign

        y = Signal(signed(WIDE), reset_less=True)
        for row in range(_ROWS):
            code, third = self.rows[3 * row:3 * row + 2], self.rows[3 * row + 2]
            if row >= _ROWS // 2:
                # Only rows of the product's lowest bits would hold what has left the word.
                code = code & ~beyond.replicate(2)
            for i in range(_ROW):
                high = Mux(third, bit(2 * _ROW + i), sign) if 2 * _ROW + i < self.width + _ROW - 1 else sign
                m.d.sync += y[_ROW * row + i].eq(chosen(code, [low, bit(i), bit(_ROW + i), high]))
        with m.If(beyond):
            m.d.sync += y[-1].eq(sign)
        m.d.comb += self.y.eq(y)
        return m


def narrow_settings(n: Value, width: int, *, lut: bool = False) -> dict[str, Value]:
    """``power``, ``over`` and ``rows`` of an :class:`AlignNarrow` of that width for a left shift of ``n`` (7 bits signed)."""
    rows = []
    for row in range(_ROWS):
        distance = row - n[4:].as_signed()  # from the product's lowest row to this one
        rows += [Mux(distance < 0, 0, Mux(distance > 1, 3, distance + 1))[:2], distance == 2]
    over = Cat(n.as_signed() >= WIDE - 1 - i for i in range(width - 1))
    return {"power": n[:4] if lut else (1 << n[:4])[:_ROW], "over": over, "rows": Cat(rows)}


class ProductAlign(wiring.Component):
    """``align(x * factor, n)`` before its saturation, by an amount that stays while a command runs.

    The factor brings the low three bits of the shift along; two levels of multiplexers shift by eights. Three multipliers of
    17 bits of ``x`` each, every one adds what the one before it carries.

    Parameters
    ----------
    lut : :class:`bool`
        A third level of multiplexers shifts by the low three bits instead, so that a factor has no more bits than an 18 x 18
        multiplier takes.

    Members
    -------
    x : ``In(signed(48))``
    factor : ``In(24)``
        Unsigned, times 2^(n mod 8); with ``x``. ``lut``: ``In(17)``, as it is.
    coarse : ``In(2)``
        n[6:5], ``COARSE`` cycles later.
    octet, fraction, low : ``In(3)``, ``In(7)``, ``In(3)``
        ``lut``: n[5:3] with ``coarse``, :func:`product_fraction` one cycle later, n[2:0] two cycles later.
    fine, over : ``In(4)``, ``In(8)``
        n[4:3] twice and :func:`product_over`, ``COARSE`` + 1 cycles later.
    y, beyond, negative : ``Out(64)``, ``Out(1)``, ``Out(1)``
        The product, shifted, floored and modulo 2^64, whether it needs more bits, and its sign; ``LATENCY`` cycles later.
    """

    COARSE = 4
    LATENCY = COARSE + 3
    X_BITS = 48
    FACTOR_BITS = 24

    def __init__(self, *, lut: bool = False) -> None:
        self.lut = lut
        self.factor_bits = self.FACTOR_BITS - _UNITS if lut else self.FACTOR_BITS
        super().__init__({"x": In(signed(self.X_BITS)), "factor": In(self.factor_bits), "coarse": In(2), "fine": In(4),
                          "over": In(8), "y": Out(WIDE), "beyond": Out(1), "negative": Out(1),
                          **({"octet": In(3), "fraction": In(_UNITS), "low": In(3)} if lut else {})})

    def elaborate(self, platform) -> Module:
        m = Module()
        product = Signal(self.X_BITS + self.factor_bits)
        m.d.comb += product.eq(self._product(m))
        negative = product[-1]
        wide, units = len(product), _UNITS if self.lut else 0
        most, lowest = WIDE + 24 + units, -24 - units

        def bits_from(start: int, count: int) -> Value:
            return Cat(*[0 if i < 0 else product[i] if i < wide else negative for i in range(start, start + count)])

        # Bits -24 to 63 of the product shifted by thirty-twos; below its lowest one are zeros.
        levels = [bits_from(start + lowest, most) for start in (0, -32, 64, 32)]
        coarse = delayed(m, chosen(self.coarse, levels), "coarse")
        fine = delayed(m, shifted_by([self.fine[:2], self.fine[2:]], coarse, -8, WIDE + units, first=24), "fine")
        octets = [bits_from(63 - 8 * i, 8) if self.lut else product[63 - 8 * i:71 - 8 * i] for i in range(9 if self.lut else 8)]
        unlike = delayed(m, Cat((octet ^ negative.replicate(8)).any() for octet in octets[:8]), "unlike")
        leaves = (unlike & self.over).any()
        if self.lut:
            fine = Cat(chosen(self.low, [fine[i + units - k] for k in range(8)]) for i in range(WIDE))
            # Of the octet below those that leave the word whole, the bits that leave it.
            split = chosen(self.octet, [octet[1:] ^ negative.replicate(_UNITS) for octet in octets[1:]])
            leaves |= (delayed(m, split, "split") & self.fraction).any()
        beyond = delayed(m, leaves, "beyond")
        m.d.comb += Cat(self.y, self.beyond, self.negative).eq(
            delayed(m, Cat(fine, beyond, delayed(m, negative, "negative", 2)), "result", reset=True))
        return m

    def _product(self, m: Module) -> Value:
        """As many bits as both factors have, ``COARSE`` cycles later."""
        factor = Cat(self.factor, 0).as_signed()
        carried, low = 0, []
        for i, part in enumerate((self.x[:17], self.x[17:34], self.x[34:])):
            operand = part.as_signed() if i == 2 else Cat(part, 0).as_signed()
            a, b = delayed(m, operand, f"x{i}", i, reset=True), delayed(m, factor, f"factor{i}", i, reset=True)
            product = delayed(m, (a * b).as_signed(), f"product{i}")
            total = delayed(m, (product + carried).as_signed(), f"total{i}")
            carried = total >> 17
            if i < 2:
                low.append(delayed(m, total[:17], f"low{i}", 2 - i, reset=True))
        return Cat(*low, total[:self.X_BITS + self.factor_bits - 34])


def product_over(n: Value) -> Value:
    """``over`` of a :class:`ProductAlign`: the octets of the product that leave the word, 8 bits."""
    return Cat(~n[-1] & (n[3:6] >= i) for i in range(8))


def product_fraction(n: Value) -> Value:
    """``fraction`` of a :class:`ProductAlign`: the bits of the next octet that leave it too, 7 bits, the highest last."""
    return Cat(~n[-1] & (n[:3] >= _UNITS - i) for i in range(_UNITS))
