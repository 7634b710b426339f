"""Specification of the divider, written from docs/arithmetic.md, section 9: q = floor(N 2^le / S), 2^15 <= q < 2^16."""

import types

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, ResetSignal, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.acore import divider
from gradloom.verif.formal.inside import add_opened

__all__ = ["PARTS", "DividerSpec"]

PARTS = ("cycles", "operands", "bound", "steps", "result")
"""The parts of the proof, in their order."""

_LATENCY = 12
_FIRST, _STEPS = 3, 9
"""The loop runs in cycles 3 to 11 after ``start``, two bits a cycle."""


def _top(value: Value) -> Value:
    """Place of the leading one; 0 for 0."""
    place = Value.cast(0)
    for i in range(1, len(value)):
        place = Mux(value[i], i, place)
    return place


class DividerSpec(wiring.Component):
    """For every S in 1 .. 2^63 - 1 and N in 0 .. 2^15 - 1, at any time (one at a time; the next may start with ``done``): the
    quotient, its exponent, the cycle of ``done``, and that both hold until the next ``start``.

    By induction over one cycle. D and A are S and N moved left to bit 63, as the unit moves them. The proof shows that R (the
    rest) begins as A, that each of 18 bits b = (R >= D) makes R 2 (R - b D) and Q 2 Q + b, over the integers, and that R < 2 D
    always. Q begins as 0: after j steps it is the register's lowest 2 j bits, and after nine all that the register has. So A
    2^18 = 2 Q D + R, hence Q = floor(A 2^17 / D). With s and n the places of the leading ones, A / D = (N / S) 2^(s - n), so
    floor(N 2^le / S) = floor(A 2^(le - s + n) / D), which is floor(Q / 4) for le = 15 + s - n and floor(Q / 2) for le = 16 + s
    - n. It is asserted that q is that one, and of 16 bits. For N = 0, q = 0.

    Parameters
    ----------
    part : :class:`str`
        One of ``PARTS``: what this proof asserts; it assumes what those before it prove.
    """

    def __init__(self, part: str, design: types.ModuleType = divider) -> None:
        self.part, self.design = part, design
        super().__init__({"start": In(1), "s": In(64), "n": In(15)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dut = self.design.Divider()
        registers = add_opened(m, platform, dut, "phase", "divisor", "dividend", "scale", "rest", "quotient", "doubled")
        phase, divisor, dividend, scale, rest, quotient, doubled = registers
        m.d.comb += [dut.start.eq(self.start), dut.s.eq(self.s), dut.n.eq(self.n), Assume(~ResetSignal()),
                     Assume((self.s != 0) & ~self.s[63])]

        def check(part: str, *claims: Value) -> None:
            if PARTS.index(part) <= PARTS.index(self.part):
                m.d.comb += [(Assert if part == self.part else Assume)(claim) for claim in claims]

        age = Signal(range(_LATENCY + 1))
        begun, ended = Signal(), Signal()
        m.d.comb += Assume(~self.start | (age == 0) | (age == _LATENCY))
        s, n = Signal(64, name="s_taken", init=1), Signal(15, name="n_taken")
        with m.If(self.start):
            m.d.sync += [age.eq(1), begun.eq(1), ended.eq(0), s.eq(self.s), n.eq(self.n)]
        with m.Elif(age == _LATENCY):
            m.d.sync += [age.eq(0), ended.eq(1)]
        with m.Elif(age != 0):
            m.d.sync += age.eq(age + 1)
        check("cycles", phase == age, dut.busy == (age != 0), dut.done == (age == _LATENCY), (age != 0) | (begun == ended),
              (age == 0) | (begun & ~ended), age <= _LATENCY, (s != 0) & ~s[63])

        looping = (age >= _FIRST) & (age < _FIRST + _STEPS)
        finished = (age == _LATENCY) | ended
        s_top, n_top = Signal(6), Signal(4)
        wide_s, wide_n, exponent = Signal(64), Signal(64), Signal(8)
        octets = Signal(3)  # S comes to its leading byte first, in cycle 1
        m.d.comb += [
            s_top.eq(_top(s)), n_top.eq(_top(n)), octets.eq(~s_top[3:]),
            wide_s.eq(s << (63 - s_top)[:6]), wide_n.eq(Cat(n, Value.cast(0)) << (63 - n_top)[:6]),
            exponent.eq(16 + s_top - n_top),
        ]
        with m.If(age == 1):
            check("operands", divisor == s, dividend == n)
        with m.If(age == 2):
            check("operands", divisor == (s << (octets << 3))[:64],
                  (n == 0) | (dividend << 49 == wide_n), (n != 0) | (dividend == 0),
                  (n == 0) | (scale == (exponent + (63 - s_top[:3].as_unsigned()) - 56)[:8]))
        with m.If(looping | finished):
            check("operands", divisor == wide_s, divisor[63], (n == 0) | (scale == exponent))
        with m.If(age == _FIRST):
            check("operands", (n == 0) | ((rest == wide_n) & rest[63]), (n != 0) | (rest == 0))

        # A step of restoring division over the integers, from the registers as they are: R and Q of one bit, and of one more.
        wide_rest, wide_divisor, between = Signal(signed(70)), Signal(signed(70)), Signal(signed(70))
        then, bits = Signal(signed(70)), Signal(18)
        first, second, stepped = Signal(), Signal(), Signal()
        m.d.comb += [wide_rest.eq(rest), wide_divisor.eq(divisor), first.eq(wide_rest >= wide_divisor),
                     between.eq(Mux(first, wide_rest - wide_divisor, wide_rest) << 1), second.eq(doubled >= divisor)]
        m.d.sync += [then.eq(Mux(second, doubled - divisor, doubled) << 1), bits.eq(Cat(second, first, quotient[:-2])),
                     stepped.eq(looping)]
        with m.If(looping | finished):
            check("bound", wide_rest < wide_divisor << 1)
        check("steps", stepped == ((age > _FIRST) & (age <= _LATENCY)), ~stepped | ((rest == then) & (quotient == bits)),
              ~looping | (doubled == between))
        for j in range(_STEPS + 1):
            with m.If((age == _FIRST + j) | (ended if j == _STEPS else 0)):
                check("result", (n != 0) | ((rest == 0) & (quotient[:2 * j] == 0)))
                if j:
                    # A is more than half of D.
                    check("result", (n == 0) | (quotient[2 * j - 2:2 * j] != 0))
        q, le, kept = Signal(16), Signal(8), Signal()
        m.d.sync += [q.eq(dut.q), le.eq(dut.le), kept.eq(finished & ~self.start)]
        check("result", ~kept | ((dut.q == q) & (dut.le == le)))
        with m.If(finished):
            shift = Signal(9)
            m.d.comb += shift.eq(dut.le - s_top + n_top)
            check("result", (n != 0) | (dut.q == 0))
            with m.If(n != 0):
                check("result", dut.q[15], (shift == 15) | (shift == 16),
                      dut.q == Mux(shift == 15, quotient >> 2, quotient >> 1))
        return m
