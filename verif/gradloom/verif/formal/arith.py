"""Specifications of the arithmetic units, written from docs/arithmetic.md, sharing nothing with the RTL."""

import types

from amaranth.hdl import Array, Assert, Assume, Const, Cover, Module, Mux, ResetSignal, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl import pint
from gradloom.rtl.acore import converter
from gradloom.rtl.ccore import mac

__all__ = ["CODE_VALUES", "CONVERTER_DEPTH", "CodecSpec", "ConverterSpec", "MultiplierSpec"]

CONVERTER_DEPTH = 2 * converter.Converter.LATENCY + 1


def _code_value(code: int) -> int:
    m = (code & 127) - (code & 64) * 2
    if code & 128:
        return 8 * m
    return m if -8 <= m <= 7 else 64 * m


CODE_VALUES = tuple(_code_value(code) for code in range(256))
"""Value of every PINT(8, 3) code, by the definition."""


def code_value(code: Value) -> Value:
    """Value of a code, signed(13), by comparisons."""
    m = code[:7].as_signed()
    return Mux(code[7], m * 8, Mux((m >= -8) & (m < 8), m, m * 64))


class CodecSpec(wiring.Component):
    """Every code decodes to its table entry, and encodes back to the one code in use for its value."""

    def __init__(self, design: types.ModuleType = pint) -> None:
        self.design = design
        super().__init__({"code": In(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        v = Signal(signed(13))
        m.d.comb += [
            v.eq(self.design.decode(self.code)),
            Assert(v == Array(CODE_VALUES)[self.code]),
            Assert(v == code_value(self.code)),
            Assert(self.design.code_of(v) == Mux(self.code == 0x80, 0x00,
                                                 Mux(self.code == 0xFF, 0x78, self.code))),
        ]
        return m


class MultiplierSpec(wiring.Component):
    """The product of any two codes is the product of their values."""

    def __init__(self, kind: str, design: types.ModuleType = mac) -> None:
        self.kind, self.design = kind, design
        super().__init__({"a": In(8), "b": In(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        design, kind = self.design, self.kind
        factors = []
        for name, code in (("a", self.a), ("b", self.b)):
            factor = Signal(design.mac_factor(kind), name=f"factor_{name}")
            m.d.comb += factor.eq(design.factor_of(kind, code))
            factors.append(factor)
        product = Signal(signed(design.PRODUCT_BITS))
        design.multiply(m, "comb", product, kind, *factors)
        a, b = Signal(signed(13)), Signal(signed(13))
        m.d.comb += [a.eq(code_value(self.a)), b.eq(code_value(self.b)), Assert(product == a * b)]
        return m


class ConverterSpec(wiring.Component):
    """Every operand that enters the converter leaves it by the rules, ``LATENCY`` cycles later, with the settings of its own cycle:
    as a code, with error feedback also a rest, where it is wanted as an integer; not enabled, as 0.

    The pipeline has no feedback: a result depends on nothing that enters more than ``LATENCY`` cycles before it. So the bounded
    check, at depth ``CONVERTER_DEPTH``, of one cycle with ``LATENCY`` cycles before and behind it, in each of which all inputs are
    free, covers every cycle.

    Parameters
    ----------
    f16, left : :class:`bool`
        The case, of that one cycle: F = 16 or 8; the operand is shifted left (or not at all) or right. The four cases cover all.
    whole, rests : :class:`bool`
        Of a converter that makes integers, rests, too.
    cover : :class:`bool`
        Reach results between neighbours with another F, another distance and another kind of result, or not enabled.
    """

    def __init__(self, *, f16: bool, left: bool, whole: bool = True, rests: bool = True, design: types.ModuleType = converter,
                 cover: bool = False) -> None:
        self.case_f16, self.left, self.has_whole, self.has_rests, self.design, self.cover = f16, left, whole, rests, design, cover
        super().__init__({"a": In(signed(64)), "sh": In(signed(9)), "stochastic": In(1), "x24": In(24), "enable": In(1),
                          "f16": In(1), "whole": In(1), "feedback": In(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Converter(whole=self.has_whole, rests=self.has_rests)
        latency = self.design.Converter.LATENCY
        fraction = 17 if self.case_f16 else 9
        below = Mux(self.sh < -110, -128, Mux(self.sh > 145, 127, self.sh - 18))
        m.d.comb += [dut.a.eq(self.a), dut.enable.eq(self.enable), dut.below.eq(below), dut.f16.eq(self.f16),
                     dut.stochastic.eq(self.stochastic), dut.x24.eq(self.x24), Assume(~ResetSignal())]

        def history(value: Value, cycles: int = latency) -> Value:
            for _ in range(cycles):
                register = Signal(value.shape(), reset_less=True)
                m.d.sync += register.eq(value)
                value = register
            return value

        given, enable, sh, f16, whole, stochastic, x24, feedback = map(
            history, (self.a, self.enable, self.sh, self.f16, self.whole, self.stochastic, self.x24, self.feedback))
        a, g, t, rounded, v = (Signal(signed(64), name=name) for name in ("operand", "g", "t", "rounded", "v"))
        s, add, code, distance = Signal(3), Signal(18), Signal(8), Signal(9)
        m.d.comb += a.eq(Mux(enable, given, 0))
        if self.left:
            # A product with a power of two beyond 2^63 has saturated unless A is 0.
            wide = Signal(signed(128))
            m.d.comb += [
                distance.eq(fraction - sh),
                wide.eq(a << Mux(distance > 64, 64, distance)[:7]),
                g.eq(Mux(wide > (1 << 63) - 1, (1 << 63) - 1, Mux(wide < -(1 << 63), -(1 << 63), wide))),
            ]
        else:
            m.d.comb += [distance.eq(sh - fraction), g.eq(a >> distance)]
        m.d.comb += [
            t.eq(g >> fraction),
            s.eq(Mux((t >= -8) & (t < 8), 0, Mux((t >= -512) & (t < 512), 3, 6))),
            add.eq(Mux(stochastic, 2 * (x24 >> 25 - fraction) + 1, 1 << fraction - 1)),
            rounded.eq((((g >> s) + add) >> fraction) << s),
            v.eq(Mux(t >= 4096, 4032, Mux(t < -4096, -4096, Mux(rounded > 4032, 4032, rounded)))),
            code.eq(Mux((v >= -8) & (v < 8), v[:7],
                        Mux((v >= -512) & (v < 512), v[3:10] | 128, v[6:13]))),
        ]
        length = history(dut.length, latency - self.design.Converter.LENGTH_LATENCY)
        magnitude, expected = Signal(64), Signal(7)
        m.d.comb += magnitude.eq(g ^ (g >> 63))
        for i in range(64):
            with m.If(magnitude[i]):
                m.d.comb += expected.eq(i + 1)
        age = Signal(range(2 * latency + 1))
        with m.If(age == 2 * latency):
            m.d.comb += [Assume(f16 == self.case_f16), Assume((sh <= fraction) == self.left),
                         Assert(self.design.statistic(length, Const(self.case_f16)) == expected)]
            wanted = ~whole if self.has_whole else Const(1)
            with m.If(wanted & ~(feedback if self.has_rests else 0)):
                m.d.comb += [Assert(dut.v == v), Assert(dut.code == code)]
            if self.has_rests and self.case_f16:
                with m.If(wanted & feedback):
                    self._feedback(m, dut, g, t, s, x24)
        with m.Else():
            m.d.sync += age.eq(age + 1)
        if self.has_rests:
            m.d.comb += dut.feedback.eq(self.feedback)
        if self.has_whole:
            limit = 1 << 23
            m.d.comb += dut.whole.eq(self.whole)
            with m.If((age == 2 * latency) & whole):
                m.d.comb += Assert(dut.integer == Mux(t >= limit, limit - 1, Mux(t < -limit, -limit, t)))
        if self.cover:
            around = [[history(value, latency + by) for value in (self.f16, self.sh, self.whole, self.enable)] for by in (1, -1)]
            other = [(theirs[0] != f16) & (theirs[1] != sh) & ((theirs[2] != whole) | ~theirs[3]) for theirs in around]
            with m.If((age == 2 * latency) & other[0] & other[1]):
                m.d.comb += [Cover(~whole & (dut.v == 3 << 6)), Cover(whole & (dut.integer == 12345))]
                if self.has_rests and self.case_f16:
                    m.d.comb += Cover(~whole & feedback & (dut.rest == 77))
        return m

    def _feedback(self, m: Module, dut: wiring.Component, g: Value, t: Value, s: Value, x24: Value) -> None:
        """The number of 16 bits, its nearest value, and what that leaves."""
        number, largest = Signal(signed(64)), (63 << 8) + 127
        rounded = ((g >> s) + 2 * x24[16:] + 1) >> 9
        inside = Mux((s == 6) & (rounded > largest), largest, rounded)
        m.d.comb += number.eq(Mux(t >= 4096, largest, Mux(t < -4096, -64 << 8, inside)))
        step = Mux((t < -4096) | (t >= 4096), 6, s)
        nearest, v = (number + 128) >> 8, Signal(signed(64))
        m.d.comb += [v.eq(nearest << step), Assert(dut.v == v), Assert(code_value(dut.code) == v),
                     Assert(dut.rest.as_signed() == number - (nearest << 8))]
