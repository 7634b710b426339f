"""PINT converter: a wide integer of one exponent becomes a code of another (ETA, figure 4(b)).

The rules are those of docs/arithmetic.md, encoder: the segment is chosen from the truncated value *before*
rounding, and the rounded value is encoded after it.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.acore.align import chosen, saturated, shifted_by
from gradloom.rtl.delay import Line, delayed
from gradloom.rtl.pint import CODE_BITS, V_BITS, all_equal, code_of

__all__ = ["BELOW_BITS", "LENGTH_BITS", "REST_BITS", "V_MAX", "V_MIN", "Converter", "Rounder", "below", "larger", "statistic"]

V_MAX = 4032
V_MIN = -4096
_FRACTION = 17
"""F + 1 for F = 16. With F = 8 the lowest 8 of them stay as they are: nothing is added to them, so they never count."""
BELOW_BITS = 8
LENGTH_BITS = 7
REST_BITS = 8
_WHOLE_BITS = 24
"""Bits of an operand's window: 7 integer bits, as many as a segment has and a sign, and the fraction."""
_WIDE = 64
_LOW, _MIDDLE, _TOP = 3, 9, 12
"""Integer bits without sign of a value in each segment."""


def below(shift: Value) -> Value:
    """Port ``below`` of a :class:`Converter` for a shift e_out - e_A, combinational."""
    return saturated((shift - (_FRACTION + 1)).as_signed(), BELOW_BITS)


def _rounded(q: Value, low: Value, middle: Value, beyond: Value, negative: Value) -> Value:
    """Value of the rounded integer ``q`` (8 bits signed) of a segment, signed(13), combinational."""
    top = Mux(q == 1 << _TOP - 6, V_MAX, q << 6)
    return Mux(beyond, Mux(negative, V_MIN, V_MAX), Mux(low, q, Mux(middle, q << 3, top)))[:V_BITS].as_signed()


class Rounder(wiring.Component):
    """To nearest, of a value that is aligned already.

    Parameters
    ----------
    width : :class:`int`
        Bits of g, at least 22.

    Members
    -------
    g : ``In(signed(width))``
        With 9 fraction bits.
    v : ``Out(signed(13))``
        ``LATENCY`` cycles later.
    """

    LATENCY = 2

    def __init__(self, width: int) -> None:
        if width < 22:
            raise ValueError(f"width must be at least 22, not {width}")
        super().__init__({"g": In(signed(width)), "v": Out(signed(V_BITS))})

    def elaborate(self, platform) -> Module:
        m = Module()
        fraction = 9
        t = self.g[fraction:]
        low, middle = all_equal(t[_LOW:]), all_equal(t[_MIDDLE:])
        scaled = Signal(signed(fraction + 7), reset_less=True)
        flags = delayed(m, Cat(low, middle, ~all_equal(t[_TOP:]), self.g[-1]), "flags")
        m.d.sync += scaled.eq(Mux(low, self.g, Mux(middle, self.g[3:], self.g[6:])))
        q = Signal(signed(8))
        v = Signal(signed(V_BITS), reset_less=True)
        m.d.comb += [q.eq((scaled + (1 << fraction - 1)) >> fraction), self.v.eq(v)]
        m.d.sync += v.eq(_rounded(q, *flags))
        return m


class Converter(wiring.Component):
    """Encoder of PINT(8, 3); one value a cycle, ``LATENCY`` cycles later, no handshake.

    The bit length of A and its distance to the fraction choose the segment; then 24 bits of A, from the lowest fraction bit of
    that segment on, are rounded by one adder.

    Parameters
    ----------
    whole : :class:`bool`
        With the ports ``whole`` and ``integer``.
    rests : :class:`bool`
        With the ports ``feedback`` and ``rest``.

    Members
    -------
    a : ``In(signed(64))``
        Wide integer A of exponent e_A.
    enable : ``In(1)``
        Else A is 0, and so are the code and the length.
    below : ``In(signed(8))``
        e_out - e_A - 18, saturated: the bit of A below the lowest of 17 fraction bits.
    f16 : ``In(1)``
        F = 16 random bits, else 8.
    stochastic : ``In(1)``
        Round with the top F bits of ``x24``, else to nearest.
    x24 : ``In(24)``
    whole : ``In(1)``
        ``integer`` is wanted, the code is not.
    feedback : ``In(1)``
        With ``f16``: round to 8 bits more than the code has, with the top 8 bits of ``x24``, and these to nearest.
    length : ``Out(7)``
        Bit length of A * 2^17 / 2^(e_out - e_A) (of -1 - it if negative), floored, at most 127; ``LENGTH_LATENCY`` cycles later.
    code : ``Out(8)``
    v : ``Out(signed(13))``
        Value of ``code``.
    integer : ``Out(signed(24))``
        A / 2^(e_out - e_A), floored and saturated; with the code.
    rest : ``Out(8)``
        The 8 bits more than the code has, signed; with the code.
    """

    LENGTH_LATENCY = 4
    LATENCY = 7

    def __init__(self, *, whole: bool = False, rests: bool = False) -> None:
        self.has_whole, self.has_rests = whole, rests
        super().__init__({
            "a": In(signed(_WIDE)), "enable": In(1), "below": In(signed(BELOW_BITS)), "f16": In(1), "stochastic": In(1),
            "x24": In(24), "length": Out(LENGTH_BITS), "code": Out(CODE_BITS), "v": Out(signed(V_BITS)),
            **({"whole": In(1), "integer": Out(signed(_WHOLE_BITS))} if whole else {}),
            **({"feedback": In(1), "rest": Out(REST_BITS)} if rests else {})})

    def elaborate(self, platform) -> Module:
        m = Module()
        self.operands = Line(m, self.a.as_unsigned(), "operand", reset=True)
        off, place = Line(m, ~self.enable, "off"), Line(m, self.below, "below", reset=True)
        top, nothing, zero = self._length(m)
        # In cycle 2 the bit length less the place of the fraction.
        length, zero3 = Signal(signed(9), reset_less=True), delayed(m, zero | off[2], "zero3")
        m.d.sync += length.eq(Cat(top, nothing).as_signed() - place[2].as_signed())

        # In cycle 3 the segment, and where its window begins.
        low, middle, beyond = (Signal(name=name) for name in ("is_low", "is_middle", "is_beyond"))
        begin, place3 = Signal(signed(9)), place[3].as_signed()
        m.d.comb += [low.eq(length <= _FRACTION + _LOW), middle.eq(length <= _FRACTION + _MIDDLE),
                     beyond.eq((length > _FRACTION + _TOP) & ~zero3),
                     begin.eq(place3 + Mux(low, 1, Mux(middle, 4, 7)))]
        if self.has_whole:
            with m.If(delayed(m, self.whole, "whole", 3, reset=True)):
                m.d.comb += [begin.eq(place3 + _FRACTION + 1), beyond.eq((length > _FRACTION + _WHOLE_BITS - 1) & ~zero3)]
        m.d.sync += self.length.eq(Mux(zero3 | length[8], 0, length[:7] | length[7].replicate(LENGTH_BITS)))
        flags = delayed(m, Cat(low, middle, beyond, self.operands[3][-1], zero3), "flags", 3, reset=True)
        # Two copies, as :func:`shifted_by` asks; they stay two because they are reset to different values.
        begins = [(begin, begin)]
        for i in range(1, 4):
            copies = [Signal(signed(9), init=init, name=f"begin{i}_{k}") for k, init in enumerate((0, -1))]
            m.d.sync += [copy.eq(begins[-1][k]) for k, copy in enumerate(copies)]
            begins.append(copies)
        self._round(m, self._window(m, begins), begins[3], *flags)
        return m

    def _length(self, m: Module) -> tuple[Value, Value, Value]:
        """Place of the highest bit unlike the sign (-1: none), whether there is none, and whether A is 0; in cycle 2."""
        first, second = self.operands[0], self.operands[1]
        octets = [first[8 * i:min(8 * i + 8, _WIDE - 1)] for i in range(8)]
        unlike = Signal(8)
        m.d.comb += unlike.eq(Cat((octet ^ first[-1].replicate(len(octet))).any() for octet in octets))
        highest = Signal(3)
        for i in range(8):
            with m.If(unlike[i]):
                m.d.comb += highest.eq(i)
        nothing = delayed(m, ~unlike.any(), "nothing1")
        highest1 = delayed(m, highest, "highest1")
        octet, place = Signal(8), Signal(3)
        m.d.comb += octet.eq(second.word_select(highest1, 8) ^ second[-1].replicate(8))
        for i in range(8):
            with m.If(octet[i]):
                m.d.comb += place.eq(i)
        top = Signal(6, reset_less=True)
        m.d.sync += top.eq(Cat(place, highest1) | nothing.replicate(6))
        return top, delayed(m, nothing, "nothing2"), delayed(m, nothing & ~second[-1], "zero2")

    def _window(self, m: Module, begins: Sequence[Sequence[Value]]) -> Value:
        """31 bits from bit ``begin`` less its low three bits on, in cycle 6; below -32 the value is beyond, or 0."""
        operand = self.operands[4]
        sign = operand[-1]
        wide = _WHOLE_BITS + 31
        choices = [Cat(begin[8] | (begin[5] & ~begin[6] & ~begin[7]), begin[6:9].any()) for begin in begins[1]]
        extended = [[0 if i < 0 else operand[i] if i < _WIDE else sign for i in range(start, start + wide)]
                    for start in (0, 32, _WIDE, -32)]
        coarse = delayed(m, Cat(chosen(choices[i // 32], [bits[i] for bits in extended]) for i in range(wide)), "coarse")
        return delayed(m, shifted_by([copy[3:5] for copy in begins[2]], coarse, 8, _WHOLE_BITS + 7), "window")

    def _round(self, m: Module, window: Value, begin: Sequence[Value], low: Value, middle: Value, beyond: Value, negative: Value,
               zero: Value) -> None:
        """The last three bits of the shift, in cycle 6; one adder rounds all segments."""
        pairs, scaled = Signal(_WHOLE_BITS + 1), Signal(signed(_WHOLE_BITS))
        m.d.comb += [pairs.eq(shifted_by([copy[1:3] for copy in begin], window, 2, _WHOLE_BITS + 1)),
                     scaled.eq(Mux(begin[0][0], pairs[1:], pairs[:_WHOLE_BITS]))]
        # As a difference, so that carry chains take the operand that is a register and one LUT a bit chooses and adds.
        total = Signal(signed(_WHOLE_BITS + 1))
        m.d.comb += total.eq(self._addend(m) - ~scaled)
        v = Signal(signed(V_BITS), reset_less=True)
        m.d.sync += v.eq(Mux(zero, 0, _rounded(total[_FRACTION:].as_signed(), low, middle, beyond, negative)))
        m.d.comb += [self.v.eq(v), self.code.eq(code_of(v))]
        if self.has_rests:
            self._rest(m, total, ~low & ~middle, beyond, negative, zero)
        if self.has_whole:
            integer = delayed(m, Mux(zero, 0, scaled), "integer")
            limit = Cat((~negative).replicate(_WHOLE_BITS - 1), negative)
            over, limit7 = delayed(m, beyond, "over"), delayed(m, limit, "limit")
            m.d.comb += self.integer.eq(Mux(over, limit7, integer).as_signed())

    def _rest(self, m: Module, total: Value, top: Value, beyond: Value, negative: Value, zero: Value) -> None:
        """What lies below the rounded integer, of which half a unit was added; at the ends what belongs to them."""
        below = total[_FRACTION - REST_BITS:_FRACTION]
        most = (1 << REST_BITS - 1) - 1
        rest = Signal(REST_BITS, reset_less=True)
        highest = beyond | (top & (total[_FRACTION:].as_signed() == 1 << _TOP - 6))
        m.d.sync += rest.eq(Mux(zero | (beyond & negative), 0, Mux(highest, most, Cat(below[:-1], ~below[-1]))))
        m.d.comb += self.rest.eq(rest)

    def _addend(self, m: Module) -> Value:
        """Half a unit, or random bits and a one below them, or both, less 1; in cycle 6."""
        x = self.x24[24 - _FRACTION + 1:]
        bits = [~(self.stochastic & self.f16), *(x[i] | ~(self.stochastic & self.f16) for i in range(7)),
                Mux(self.stochastic, x[7] & self.f16, 1), *(x[i] | ~self.stochastic for i in range(8, 15)), x[15] & self.stochastic]
        if self.has_rests:
            both = [0, *x[16 - REST_BITS:], *[0] * (_FRACTION - REST_BITS - 2), 1]
            bits = [Mux(self.feedback, *pair) for pair in zip(both, bits, strict=True)]
        return delayed(m, delayed(m, Cat(*bits), "addend1"), "addend", self.LATENCY - 2, reset=True)


def larger(a: Value, b: Value) -> Value:
    """The larger of two lengths, combinational."""
    return Mux(a > b, a, b)


def statistic(length: Value, f16: Value) -> Value:
    """Bit length of the largest magnitude with F + 1 fraction bits, at most 63, from the largest ``length``; combinational."""
    shorter = Mux(f16, length, Mux(length < 8, 0, length - 8))
    return Mux(shorter > 63, 63, shorter)[:6]
