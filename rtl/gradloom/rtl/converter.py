"""PINT converter: a wide integer of one exponent becomes a code of another (ETA, figure 4(b)).

The rules are those of docs/arithmetic.md, encoder: the segment is chosen from the truncated value *before*
rounding, and the rounded value is encoded after it.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl import emit
from gradloom.rtl.align import SHIFT_BITS, Shifter, saturated
from gradloom.rtl.delay import delayed
from gradloom.rtl.pint import CODE_BITS, V_BITS, all_equal, code_of

__all__ = ["V_MAX", "V_MIN", "Converter", "Rounder", "statistic"]

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
    beyond : ``In(1)``
        g is larger than its bits say, with the sign of its highest one.
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
        super().__init__({"g": In(signed(width)), "beyond": In(1), "f16": In(1), "stochastic": In(1), "x24": In(24),
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
            beyond.eq(self.beyond | ~Mux(self.f16, all_equal(self.g[len(g) - 1:]), all_equal(self.g[len(g) - 9:]))),
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
    enable : ``In(1)``
        Else A is 0, and so are the code and the statistic.
    sh : ``In(signed(9))``
        e_out - e_A.
    f16 : ``In(1)``
        F = 16 random bits, else 8.
    stochastic : ``In(1)``
        Round with the top F bits of ``x24``, else to nearest.
    x24 : ``In(24)``
    y : ``Out(signed(64))``
        A * 2^(F + 1 - sh), floored, modulo 2^64; ``ALIGN_LATENCY`` cycles later.
    beyond, negative : ``Out(1)``
        It does not fit 64 bits, A is negative; with ``y``. Saturated, it is the g of :func:`statistic`.
    code : ``Out(8)``
    v : ``Out(signed(13))``
        Value of ``code``.
    """

    ALIGN_LATENCY = 1 + Shifter.LATENCY
    LATENCY = ALIGN_LATENCY + Rounder.LATENCY

    def __init__(self) -> None:
        super().__init__({
            "a": In(signed(64)), "enable": In(1), "sh": In(signed(9)), "f16": In(1), "stochastic": In(1), "x24": In(24),
            "y": Out(signed(64)), "beyond": Out(1), "negative": Out(1), "code": Out(CODE_BITS), "v": Out(signed(V_BITS))})

    def elaborate(self, platform) -> Module:
        m = Module()
        left_by = Signal(signed(11))
        m.d.comb += left_by.eq(Mux(self.f16, 17, 9) - self.sh)
        shifter = emit.add(m, "shifter", "shifter", Shifter())
        m.d.comb += [shifter.x.eq(delayed(m, Mux(self.enable, self.a, 0).as_signed(), "operand")),
                     shifter.n.eq(delayed(m, saturated(left_by, SHIFT_BITS), "distance")),
                     self.y.eq(shifter.y), self.beyond.eq(shifter.beyond), self.negative.eq(shifter.negative)]
        m.submodules.rounder = rounder = Rounder(64)
        m.d.comb += [
            rounder.g.eq(Cat(shifter.y[:63], shifter.negative).as_signed()), rounder.beyond.eq(shifter.beyond),
            Cat(rounder.f16, rounder.stochastic, rounder.x24).eq(
                delayed(m, Cat(self.f16, self.stochastic, self.x24), "controls", self.ALIGN_LATENCY)),
            self.v.eq(rounder.v),
            self.code.eq(code_of(rounder.v)),
        ]
        return m


def statistic(y: Value, beyond: Value, negative: Value) -> Value:
    """g ^ (g >> 63), 63 bits, of a converter's aligned operand g."""
    return (y.as_unsigned()[:63] ^ negative.replicate(63)) | beyond.replicate(63)
