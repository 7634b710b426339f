"""Random bits of stochastic rounding: a hash of (seed of step and tensor, element), not of time or place."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Dither"]


class Dither(wiring.Component):
    """24-bit hash of an element (docs/arithmetic.md); one a cycle, ``LATENCY`` cycles later, no handshake.

    Members
    -------
    seed : ``In(32)``
        Seed of (run, step, tensor).
    idx : ``In(24)``
        Linear index of the element in the logical tensor, modulo 2^24.
    x24 : ``Out(24)``
        The hash; a rounding with F random bits takes the top F.
    """

    LATENCY = 3

    def __init__(self) -> None:
        super().__init__({"seed": In(32), "idx": In(24), "x24": Out(24)})

    def elaborate(self, platform) -> Module:
        m = Module()
        high = Signal(8, reset_less=True)
        a, b, c = (Signal(24, name=name, reset_less=True) for name in "abc")
        mixed = [Signal(24, name=f"mixed{i}") for i in range(3)]
        m.d.comb += [
            mixed[0].eq(self.idx ^ self.seed[:24]),
            mixed[1].eq(a ^ (a >> 5) ^ high),
            mixed[2].eq(b ^ (b >> 9)),
            self.x24.eq(c),
        ]
        m.d.sync += [
            high.eq(self.seed[24:]),
            a.eq(mixed[0] + (mixed[0] << 7)),
            b.eq(mixed[1] + (mixed[1] << 3)),
            c.eq(mixed[2] + (mixed[2] << 11)),
        ]
        return m
