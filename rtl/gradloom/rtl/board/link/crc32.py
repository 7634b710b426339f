"""The frame check sequence: CRC-32 of RFC 1662, a byte a cycle."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["GOOD", "Crc32"]

POLYNOMIAL = 0xEDB88320
"""Bits in the order in which they are sent: x^31 is bit 0."""
INITIAL = 0xFFFFFFFF
GOOD = 0xDEBB20E3
"""What is left behind a frame and its FCS (RFC 1662, section C.3)."""


def _entry(byte: int) -> int:
    """State behind a byte, from the state 0."""
    for _ in range(8):
        byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


class Crc32(wiring.Component):
    """State of the check over bytes.

    Members
    -------
    clear : ``In(1)``
        Begin anew; with ``enable`` the byte is lost.
    enable : ``In(1)``, byte : ``In(8)``
        Take a byte.
    shift : ``In(1)``
        Instead of taking a byte: drop the low byte of the state (whose complement is the next byte of the FCS).
    state : ``Out(32)``
    """

    def __init__(self) -> None:
        super().__init__({"clear": In(1), "enable": In(1), "byte": In(8), "shift": In(1), "state": Out(32, init=INITIAL)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        x = Signal(8)
        # A byte equal to the state's own leaves no term but the shifted state.
        m.d.comb += x.eq((self.state[:8] ^ self.byte) & ~self.shift.replicate(8))
        above = Cat(self.state[8:], Value.cast(0)[:1].replicate(8))
        bits = [reduce(xor, (x[i] for i in range(8) if _entry(1 << i) >> j & 1), above[j]) for j in range(32)]
        with m.If(self.enable | self.shift):
            m.d.sync += self.state.eq(Cat(bits))
        with m.If(self.clear):
            m.d.sync += self.state.eq(INITIAL)
        return m
