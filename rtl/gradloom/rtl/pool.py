"""Pooling block of an auxiliary processing unit: maximum or sum of the taps of a window."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.rtl.delay import delayed
from gradloom.rtl.pint import decode
from gradloom.rtl.poolwalk import Tap

__all__ = ["POOLED_BITS", "Pool"]

LANES = 2
POOLED_BITS = 22


class Pool(wiring.Component):
    """One tap a cycle; the two output positions of a beat come one after the other and leave together.

    Members
    -------
    tap : ``In(Tap)``
        In stage 0.
    a, b : ``In(8)`` x 2
        Bytes of the beat that holds the tap; stage 0.
    maximum, match : ``In(1)``
        Maximum, else sum; only taps whose byte of b is their number count. Stage 1.
    value : ``Out(signed(22))`` x 2
        In stage 0 of the beat, which follows its last tap by two cycles.
    index : ``Out(8)`` x 2
        Number of the first maximum; stage 1.
    """

    def __init__(self) -> None:
        byte2 = ArrayLayout(8, LANES)
        super().__init__({
            "tap": In(Tap), "a": In(byte2), "b": In(byte2), "maximum": In(1), "match": In(1),
            "value": Out(ArrayLayout(signed(POOLED_BITS), LANES)), "index": Out(byte2)})

    def elaborate(self, platform) -> Module:
        m = Module()
        tap = Tap(delayed(m, self.tap, "tap1"))
        value = delayed(m, decode(self.a[self.tap.lane]), "value1")
        position = delayed(m, self.b[self.tap.lane], "position1")
        best = Signal(signed(POOLED_BITS), reset_less=True)
        best_k = Signal(8, reset_less=True)
        found = Signal(reset_less=True)
        old_found = Signal()
        new = Signal(signed(POOLED_BITS))
        new_k = Signal(8)
        counts = Signal()
        m.d.comb += [old_found.eq(found & ~tap.first), counts.eq(tap.inside & (~self.match | (position == tap.k)))]
        with m.If(self.maximum):
            better = counts & (~old_found | (value > best))
            m.d.comb += [new.eq(Mux(better, value, Mux(old_found, best, 0))),
                         new_k.eq(Mux(better, tap.k, Mux(old_found, best_k, 0)))]
        with m.Else():
            m.d.comb += new.eq(Mux(tap.first, 0, best) + Mux(counts, value, 0))
        with m.If(tap.v):
            m.d.sync += [best.eq(new), best_k.eq(new_k), found.eq(old_found | counts)]
        for lane in range(LANES):
            held_k = Signal(8, name=f"held_k{lane}", reset_less=True)
            with m.If(tap.v & tap.last & (tap.out == lane)):
                m.d.sync += [self.value[lane].eq(new), held_k.eq(new_k)]
            m.d.sync += self.index[lane].eq(held_k)
        return m
