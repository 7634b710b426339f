"""PINT converter: a wide integer of one exponent becomes a code of another (ETA, figure 4(b)).

The rules are those of docs/arithmetic.md, encoder: the segment is chosen from the truncated value *before*
rounding, and the rounded value is encoded after it.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.pint import CODE_BITS, V_BITS, all_equal, code_of

__all__ = ["V_MAX", "V_MIN", "Converter", "Rounder"]

V_MAX = 4032
V_MIN = -4096

_FRACTION = 17
"""F + 1 for F = 16; with F = 8 the value is shifted up so that both share one datapath."""


class Rounder(wiring.Component):
    """Second half of a converter: aligned value g, with F + 1 fraction bits, to the representable value v.

    Parameters
    ----------
    width : :class:`int`
        Bits of g, at least 31.

    Members
    -------
    g : ``In(signed(width))``
    f16 : ``In(1)``
        F = 16, else 8.
    stochastic : ``In(1)``
        Round with the F random bits on top of ``x24``, else to nearest.
    x24 : ``In(24)``
    v : ``Out(signed(13))``
        ``LATENCY`` cycles later.
    """

    LATENCY = 2

    def __init__(self, width: int = 64) -> None:
        if width < 31:
            raise ValueError(f"width must be at least 31, not {width}")
        self.width = width
        super().__init__({"g": In(signed(width)), "f16": In(1), "stochastic": In(1), "x24": In(24),
                          "v": Out(signed(V_BITS))})

    def elaborate(self, platform) -> Module:
        m = Module()

        g = Signal(_FRACTION + V_BITS)
        sign = self.g[-1]
        m.d.comb += g.eq(Mux(self.f16, self.g[:len(g)], Cat(Const(0, 8), self.g[:len(g) - 8])))
        t = g[_FRACTION:]

        # In every segment |g >> s| has at most 7 integer bits, so one narrow adder rounds all three.
        scaled = Signal(signed(_FRACTION + 7), reset_less=True)
        addend = Signal(_FRACTION, reset_less=True)
        low, middle, beyond, negative = (
            Signal(name=name, reset_less=True) for name in ("low", "middle", "beyond", "negative"))
        is_low, is_middle = Signal(), Signal()
        m.d.comb += [is_low.eq(all_equal(t[3:])), is_middle.eq(all_equal(t[9:]))]
        m.d.sync += [
            low.eq(is_low),
            middle.eq(is_middle),
            scaled.eq(Mux(is_low, g, Mux(is_middle, g[3:], g[6:]))),
            addend.eq(Mux(self.stochastic, Mux(self.f16, Cat(Const(1, 1), self.x24[8:]),
                                               Cat(Const(0, 8), Const(1, 1), self.x24[16:])),
                          1 << (_FRACTION - 1))),
            beyond.eq(~Mux(self.f16, all_equal(self.g[len(g) - 1:]), all_equal(self.g[len(g) - 9:]))),
            negative.eq(sign),
        ]

        q = Signal(signed(8))
        v = Signal(signed(V_BITS), reset_less=True)
        m.d.comb += [q.eq((scaled + addend) >> _FRACTION), self.v.eq(v)]
        with m.If(beyond):
            m.d.sync += v.eq(Mux(negative, V_MIN, V_MAX))
        with m.Elif(low):
            m.d.sync += v.eq(q)
        with m.Elif(middle):
            m.d.sync += v.eq(q << 3)
        with m.Elif(q == 64):
            m.d.sync += v.eq(V_MAX)
        with m.Else():
            m.d.sync += v.eq(q << 6)
        return m


class Converter(wiring.Component):
    """Encoder of PINT(8, 3); one value a cycle, ``LATENCY`` cycles later, no handshake.

    Members
    -------
    a : ``In(signed(64))``
        Wide integer A of exponent e_A.
    sh : ``In(signed(9))``
        e_out - e_A.
    f16 : ``In(1)``
        F = 16 random bits, else 8.
    stochastic : ``In(1)``
        Round with the top F bits of ``x24``, else to nearest.
    x24 : ``In(24)``
    code : ``Out(8)``
    v : ``Out(signed(13))``
        Value of ``code``.
    stat : ``Out(64)``
        g ^ (g >> 63), where g = A * 2^(F + 1 - sh) (right shifts floor, left shifts saturate at 64 bits).
    """

    ALIGN_LATENCY = 5
    LATENCY = ALIGN_LATENCY + Rounder.LATENCY

    def __init__(self) -> None:
        super().__init__({
            "a": In(signed(64)), "sh": In(signed(9)), "f16": In(1), "stochastic": In(1), "x24": In(24),
            "code": Out(CODE_BITS), "v": Out(signed(V_BITS)), "stat": Out(64)})

    def elaborate(self, platform) -> Module:
        m = Module()

        def stage(value: Value, name: str) -> Signal:
            register = Signal(Value.cast(value).shape(), name=name, reset_less=True)
            m.d.sync += register.eq(value)
            return register

        def rotated(value: Signal, amount: Signal, bits: range) -> Signal:
            """``value`` rotated right by those bits of ``amount``."""
            for bit in bits:
                level = Signal(64, name=f"level{bit}")
                m.d.comb += level.eq(Mux(amount[bit], Cat(value[1 << bit:], value[:1 << bit]), value))
                value = level
            return value

        # Both directions are one rotation right, by r or by 64 - n, then a mask for the bits that wrapped.
        left_by = Signal(signed(11))
        m.d.comb += left_by.eq(Mux(self.f16, 17, 9) - self.sh)
        left = [stage(left_by > 0, "left1")]
        amount = [stage(Mux(left_by > 63, 64 - 63, Mux(left_by < -63, 63, (-left_by)[:6])), "amount1")]
        word = stage(self.a.as_unsigned(), "word1")
        sign = [stage(self.a[-1], "sign1")]
        for i in (2, 3):
            word = stage(rotated(word, amount[-1], range(3 * i - 6, 3 * i - 3)), f"word{i}")
            amount.append(stage(amount[-1], f"amount{i}"))
            left.append(stage(left[-1], f"left{i}"))
            sign.append(stage(sign[-1], f"sign{i}"))

        mask, signs, wrapped = (Signal(64, name=name) for name in ("mask", "signs", "wrapped"))
        m.d.comb += [mask.eq(Const(2**64 - 1, 64) >> amount[-1]),
                     signs.eq(sign[-1].replicate(64)),
                     wrapped.eq((word ^ signs) & mask)]
        shifted = stage(Mux(left[-1], word & ~mask, (word & mask) | (signs & ~mask)), "shifted")
        lost = stage(Cat(wrapped[8 * i:8 * i + 8].any() for i in range(8)) & left[-1].replicate(8), "lost")
        left4, sign4 = stage(left[-1], "left4"), stage(sign[-1], "sign4")
        saturated = left4 & (lost.any() | (shifted[-1] != sign4))
        g = stage(Mux(saturated, Cat((~sign4).replicate(63), sign4), shifted), "g")

        controls = Cat(self.f16, self.stochastic, self.x24)
        for i in range(self.ALIGN_LATENCY):
            controls = stage(controls, f"controls{i + 1}")
        m.submodules.rounder = rounder = Rounder(64)
        stat = g ^ g[-1].replicate(64)
        for i in range(Rounder.LATENCY):
            stat = stage(stat, f"stat{i + 1}")
        m.d.comb += [
            rounder.g.eq(g),
            Cat(rounder.f16, rounder.stochastic, rounder.x24).eq(controls),
            self.v.eq(rounder.v),
            self.code.eq(code_of(rounder.v)),
            self.stat.eq(stat),
        ]
        return m
