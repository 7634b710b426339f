"""Seeds of the stochastic rounding: one 32-bit seed a tensor and step (docs/arithmetic.md, random bits)."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from gradloom.rtl.tensor_ports import SeedRead, SeedRequest

__all__ = ["SeedUnit"]

GOLDEN = 0x9E3779B1
MIX = (0x85EBCA6B, 0xC2B2AE35)
"""Multipliers of murmur3's 32-bit final mixer: h ^= h >> 16; h *= MIX[0]; h ^= h >> 13; h *= MIX[1]; h ^= h >> 16."""

DIGIT = 4
"""Bits of the multiplicand that the serial multiplier takes a cycle."""


class SeedUnit(wiring.Component):
    """seed[tid] = mix(mix(run_seed + step) + GOLDEN tid) mod 2^32.

    ``mix(run_seed + step)`` is computed once a step, from ``begin`` on; a seed then takes at most 30 cycles. One serial
    multiplier (8 + 1 cycles for 32 bits) serves all five products.

    Parameters
    ----------
    tensors : :class:`int`
        Seeds kept.

    Members
    -------
    run_seed, step : ``In(32)``
        They hold their values from the cycle after ``request.begin`` on.
    request : ``In(SeedRequest())``
        The Sequencer's.
    read : ``In(SeedRead())``
        The A-Core's; 0 for a number beyond ``tensors``.
    """

    def __init__(self, tensors: int) -> None:
        self.tensors = tensors
        super().__init__({
            "run_seed": In(32), "step": In(32), "request": In(SeedRequest()), "read": In(SeedRead()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request = self.request
        m.submodules.memory = memory = Memory(shape=32, depth=self.tensors, init=[])
        write = memory.write_port()
        read = memory.read_port()
        valid = Signal()
        m.d.comb += [
            read.en.eq(self.read.en),
            read.addr.eq(self.read.tid),
            self.read.value.eq(Mux(valid, read.data, 0)),
        ]
        with m.If(self.read.en):
            m.d.sync += valid.eq(self.read.tid < self.tensors)

        h = Signal(32)
        base = Signal(32)
        base_valid = Signal()
        for_base = Signal()

        # Horner's scheme, highest digit first: the product of one digit is registered before it is added.
        multiplicand = Signal(32)
        constant = Signal(range(3))
        digits = Signal(range(32 // DIGIT + 1))
        partial = Signal(32)
        product = Signal(32)
        multiplying = Signal()
        factor = Signal(32)
        m.d.comb += factor.eq(Array(Const(value, 32) for value in (GOLDEN, *MIX))[constant])
        digit = multiplicand[32 - DIGIT:]
        with m.If(digits != 0):
            m.d.sync += [multiplicand.eq(multiplicand << DIGIT), digits.eq(digits - 1)]
        m.d.sync += [
            partial.eq(sum((Mux(digit[n], factor << n, 0) for n in range(DIGIT)), Const(0, 32))),
            multiplying.eq(digits != 0),
        ]
        with m.If(multiplying):
            m.d.sync += product.eq((product << DIGIT) + partial)
        ready = Signal()
        m.d.comb += ready.eq((digits == 0) & ~multiplying)

        def multiply(number: int, operand: object, bits: int = 32) -> list:
            return [constant.eq(number), multiplicand.eq(operand << (32 - bits)), digits.eq(bits // DIGIT), product.eq(0)]

        with m.FSM():
            with m.State("IDLE"):
                with m.If(~base_valid):
                    mixed = Signal(32)
                    m.d.comb += mixed.eq(self.run_seed + self.step)
                    m.d.sync += [h.eq(mixed), for_base.eq(1), base_valid.eq(1)]
                    m.next = "FIRST"
                with m.Elif(request.start):
                    m.d.sync += [for_base.eq(0), *multiply(0, request.tid, 12)]
                    m.next = "TENSOR"
            with m.State("TENSOR"), m.If(ready):
                m.d.sync += h.eq(base + product)
                m.next = "FIRST"
            with m.State("FIRST"):
                m.d.sync += multiply(1, h ^ (h >> 16))
                m.next = "SECOND"
            with m.State("SECOND"), m.If(ready):
                m.d.sync += multiply(2, product ^ (product >> 13))
                m.next = "THIRD"
            with m.State("THIRD"), m.If(ready):
                with m.If(for_base):
                    m.d.sync += base.eq(product ^ (product >> 16))
                with m.Else():
                    m.d.comb += [write.en.eq(request.tid < self.tensors), request.done.eq(1)]
                m.next = "IDLE"
        # Behind the FSM: a step that begins while a base is being computed needs another one.
        with m.If(request.begin):
            m.d.sync += base_valid.eq(0)
        m.d.comb += [write.addr.eq(request.tid), write.data.eq(product ^ (product >> 16))]
        return m
