"""Specification of the random bits, written from docs/arithmetic.md, section 7."""

import types

from amaranth.hdl import Assert, Cover, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.acore import dither

__all__ = ["DITHER_DEPTH", "DitherSpec", "element_hash"]

_LATENCY = 3
DITHER_DEPTH = _LATENCY + 1
"""Cycles to the first result of which nothing is from before power-up."""


def element_hash(seed: Value, idx: Value) -> Value:
    """x of a seed (32 bits) and an index (24 bits), 24 bits, combinational."""
    x = idx ^ seed[:24]
    x = (x + (x << 7))[:24]
    x = x ^ (x >> 5)
    x = x ^ seed[24:]
    x = (x + (x << 3))[:24]
    x = x ^ (x >> 9)
    return (x + (x << 11))[:24]


class DitherSpec(wiring.Component):
    """Every seed and index that enter the hash leave it hashed, 3 cycles later.

    The unit has no feedback and no state older than 3 cycles, and the inputs are free in every cycle: the bounded check of
    ``DITHER_DEPTH`` cycles is complete.
    """

    def __init__(self, design: types.ModuleType = dither, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"seed": In(32), "idx": In(24)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.dut = dut = self.design.Dither()
        m.d.comb += [dut.seed.eq(self.seed), dut.idx.eq(self.idx)]
        seed, idx = self.seed, self.idx
        for i in range(_LATENCY):
            later = [Signal.like(value, name=f"{value.name}_{i}", reset_less=True) for value in (seed, idx)]
            m.d.sync += [later[0].eq(seed), later[1].eq(idx)]
            seed, idx = later
        age = Signal(range(_LATENCY + 1))
        expected = Signal(24)
        m.d.comb += expected.eq(element_hash(seed, idx))
        with m.If(age == _LATENCY):
            m.d.comb += Assert(dut.x24 == expected)
            if self.cover:
                m.d.comb += Cover((dut.x24 == 0x123456) & (idx == 0xFFFFFF))
        with m.Else():
            m.d.sync += age.eq(age + 1)
        return m
