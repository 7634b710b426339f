"""The A-Core's "Division" block: the reciprocal scale of L1-FRN by restoring division (ETA, section IV-C, figure 10)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import divider_latency

__all__ = ["Divider", "SerialDivider", "divider_of"]

_S_BITS = 64
_N_BITS = 15
_STEPS = 9
"""17 quotient bits: the one before the binary point, then two a cycle."""


_COARSE, _FINE = 7, 7
"""Cycles in which a divisor moves by eight places, and by one."""
_BITS = 2 * _STEPS
_MEMBERS = {"start": In(1), "s": In(_S_BITS), "n": In(_N_BITS), "done": Out(1), "busy": Out(1), "q": Out(16), "le": Out(8)}


def _phases(m: Module, start: Value, latency: int) -> Signal:
    """Cycles since ``start``, from 1 to ``latency``, and 0 when nothing is divided."""
    phase = Signal(range(latency + 1))
    with m.If(start):
        m.d.sync += phase.eq(1)
    with m.Elif(phase == latency):
        m.d.sync += phase.eq(0)
    with m.Elif(phase != 0):
        m.d.sync += phase.eq(phase + 1)
    return phase


class Divider(wiring.Component):
    """lambda = N / S as q * 2^-le with 16 significant bits, floored: q = floor(N * 2^le / S), 2^15 <= q < 2^16.

    Both operands are normalised to 1.x first, so the number of steps is fixed. One division at a time.

    Members
    -------
    start : ``In(1)``
        Take ``s`` and ``n``.
    s : ``In(64)``
        Divisor, 1 .. 2^63 - 1.
    n : ``In(15)``
        Dividend, at least 1 (0 gives q = 0).
    done : ``Out(1)``
        One cycle, ``LATENCY`` cycles after ``start``; ``q`` and ``le`` hold until the next ``start``.
    busy : ``Out(1)``
        From the cycle after ``start`` to ``done``.
    q : ``Out(16)``
    le : ``Out(8)``
    """

    LATENCY = 3 + _STEPS

    def __init__(self) -> None:
        super().__init__(dict(_MEMBERS))

    def elaborate(self, platform) -> Module:
        m = Module()

        def shifts(value: Signal, units: list[int]) -> tuple[Signal, Signal]:
            """``value`` moved left as far as a sum of ``units`` allows without losing a bit, and that distance."""
            distance = Signal(7, name=f"{value.name}_distance")
            bits = []
            for unit in units:
                empty = ~value[-unit:].any()
                moved = Signal(len(value), name=f"{value.name}_by{unit}")
                m.d.comb += moved.eq(Mux(empty, value << unit, value))
                bits.append(Mux(empty, unit, 0))
                value = moved
            m.d.comb += distance.eq(sum(bits))
            return value, distance

        phase = _phases(m, self.start, self.LATENCY)

        divisor = Signal(_S_BITS, reset_less=True)
        dividend = Signal(_N_BITS, reset_less=True)
        scale = Signal(8, reset_less=True)
        coarse, coarse_distance = shifts(divisor, [32, 16, 8])
        fine, fine_distance = shifts(divisor, [4, 2, 1])
        numerator, numerator_distance = shifts(dividend, [8, 4, 2, 1])
        with m.If(self.start):
            m.d.sync += [divisor.eq(self.s), dividend.eq(self.n)]
        with m.If(phase == 1):
            # le = 16 + position of S's leading one - position of N's; the positions are 63 and 14 less the distances.
            m.d.sync += [divisor.eq(coarse), dividend.eq(numerator),
                         scale.eq(16 + 63 - 14 - coarse_distance + numerator_distance)]
        with m.If(phase == 2):
            m.d.sync += [divisor.eq(fine), scale.eq(scale - fine_distance)]

        rest = Signal(_S_BITS + 1, reset_less=True)
        quotient = Signal(18, reset_less=True)

        def subtract(value):
            trial = Signal(_S_BITS + 2, name=None)
            m.d.comb += trial.eq(value - divisor)
            return ~trial[-1], Mux(trial[-1], value, trial[:_S_BITS + 1])

        with m.If(phase == 2):
            m.d.sync += rest.eq(dividend << (_S_BITS - _N_BITS))
        upper, after_upper = subtract(rest)
        doubled = Signal(_S_BITS + 1)
        m.d.comb += doubled.eq(after_upper << 1)
        lower, after_lower = subtract(doubled)
        with m.If((phase >= 3) & (phase < 3 + _STEPS)):
            m.d.sync += [rest.eq(after_lower << 1), quotient.eq(Cat(lower, upper, quotient[:-2]))]

        # 18 bits were made, one more than needed, and the quotient lies in (1/2, 2).
        whole = quotient[17]
        m.d.comb += [
            self.done.eq(phase == self.LATENCY),
            self.busy.eq(phase != 0),
            self.q.eq(Mux(whole, quotient[2:18], quotient[1:17])),
            self.le.eq(scale - whole),
        ]
        return m


class SerialDivider(wiring.Component):
    """The same quotient a bit a cycle, with operands that move a step a cycle to 1.x: a third of the LUTs.

    Members
    -------
    As those of :class:`Divider`.
    """

    LATENCY = 1 + _COARSE + _FINE + _BITS

    def __init__(self) -> None:
        super().__init__(dict(_MEMBERS))

    def elaborate(self, platform) -> Module:
        m = Module()
        phase = _phases(m, self.start, self.LATENCY)
        moving, dividing = Signal(), Signal()
        divisor, rest = Signal(_S_BITS, reset_less=True), Signal(_S_BITS + 1, reset_less=True)
        quotient, scale = Signal(_BITS, reset_less=True), Signal(8, reset_less=True)
        m.d.comb += [moving.eq((phase != 0) & (phase <= _COARSE + _FINE)),
                     dividing.eq((phase > _COARSE + _FINE) & (phase < self.LATENCY))]
        coarse, small = phase <= _COARSE, ~rest[_S_BITS - 1]
        by_eight, by_one = moving & coarse & ~divisor[-8:].any(), moving & ~coarse & ~divisor[-1]
        trial = Signal(_S_BITS + 2)
        m.d.comb += trial.eq(rest - divisor)
        with m.If(self.start):
            # le = 16 + position of S's leading one - position of N's, as those stand before either moves.
            m.d.sync += [divisor.eq(self.s), rest.eq(self.n << (_S_BITS - _N_BITS)), scale.eq(16 + 63 - 14)]
        with m.Else():
            with m.If(by_eight):
                m.d.sync += divisor.eq(divisor << 8)
            with m.Elif(by_one):
                m.d.sync += divisor.eq(divisor << 1)
            with m.If(dividing | (moving & small)):
                m.d.sync += rest.eq(Mux(dividing & ~trial[-1], trial[:_S_BITS + 1], rest) << 1)
            with m.If(moving):
                m.d.sync += scale.eq(scale - Mux(by_eight, 8, by_one) + small)
        with m.If(dividing):
            m.d.sync += quotient.eq(Cat(~trial[-1], quotient[:-1]))

        whole = quotient[-1]
        m.d.comb += [
            self.done.eq(phase == self.LATENCY), self.busy.eq(phase != 0),
            self.q.eq(Mux(whole, quotient[2:18], quotient[1:17])), self.le.eq(scale - quotient[-1]),
        ]
        return m


def divider_of(config: Config) -> type[Divider] | type[SerialDivider]:
    """The division block of a machine."""
    divider = Divider if config.divider_bits == 2 else SerialDivider
    assert divider_latency(config) == divider.LATENCY
    return divider
