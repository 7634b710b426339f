"""Specification of the seeds, written from docs/arithmetic.md, section 7."""

import types

from amaranth.hdl import Array, Assert, Assume, Const, Cover, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.sequencer import seed_unit
from gradloom.verif.formal.inside import add_opened
from gradloom.verif.formal.register_memory import FollowedMemory, replaced

__all__ = ["SeedUnitSpec"]

_GOLDEN, _FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_TENSORS = 1500
_IDLE, _ONE, _TENSOR, _TWO, _THREE = range(5)


class SeedUnitSpec(wiring.Component):
    """seed[tid] = mix(mix(run seed + step) + 0x9E3779B1 tid) of every run seed, step and number, 0 to 2047.

    By induction. Instead of a multiplication, ghost registers hold what of an operand the serial multiplier has taken, p, and p
    times the constant: with a digit d they become 16 p + d and 16 (p c) + d c, from 0 and 0 on, so that the second is always the
    product. When the operand is all there, the product is that of the operand. Ghosts of each stage then make up the formula:
    what is asserted of the memory is the value after the last stage of the number's own mix, of a base that is the mix of the
    run seed and the step that hold now. One row of the memory, of free
    choice, is followed (:class:`gradloom.verif.formal.register_memory.FollowedMemory`).

    Assumed, as the contract says: ``run_seed`` and ``step`` change only after ``begin``, ``start`` and ``tid`` hold until ``done``,
    and no step begins while a seed is asked for.
    """

    def __init__(self, design: types.ModuleType = seed_unit, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        super().__init__({"begin": In(1), "run_seed": In(32), "step": In(32), "start": In(1), "tid": In(11), "read_en": In(1),
                          "read_tid": In(11), "follow": In(11), "other": In(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memories: list[FollowedMemory] = []

        def make(*, shape: int, depth: int, init: list[int]) -> FollowedMemory:
            memories.append(FollowedMemory(shape, depth, self.follow, self.other))
            return memories[-1]

        with replaced(self.design, "Memory", make):
            dut = self.design.SeedUnit(_TENSORS)
            state, h, base, base_valid, for_base, multiplicand, constant, digits, partial, product, multiplying = add_opened(
                m, platform, dut, "fsm_state", "h", "base", "base_valid", "for_base", "multiplicand", "constant", "digits",
                "partial", "product", "multiplying")
        m.d.comb += [dut.run_seed.eq(self.run_seed), dut.step.eq(self.step), dut.request.begin.eq(self.begin),
                     dut.request.start.eq(self.start), dut.request.tid.eq(self.tid), dut.read.en.eq(self.read_en),
                     dut.read.tid.eq(self.read_tid)]

        def past(value: Value, name: str) -> Signal:
            register = Signal(Value.cast(value).shape(), name=name)
            m.d.sync += register.eq(value)
            return register

        running = past(self.start & ~dut.request.done, "running")
        begun = Signal()
        m.d.sync += begun.eq(1)
        m.d.comb += [
            Assume(~ResetSignal()), Assume(~(self.begin & self.start)), Assume(~running | self.start),
            Assume(~running | (self.tid == past(self.tid, "tid_before"))),
            Assume(~begun | (self.follow == past(self.follow, "follow_before"))), Assume(self.follow < _TENSORS),
            Assume(~begun | past(self.begin, "begin_before")
                   | ((self.run_seed == past(self.run_seed, "run_seed_before")) & (self.step == past(self.step, "step_before")))),
        ]

        # The formula, a stage after the other: what goes into a product, which constant, what of it is taken, times the constant.
        operand, number, places = Signal(32), Signal(2), Signal(4)
        taken, times, digit = Signal(32), Signal(32), Signal(4)
        factor = Array(Const(value, 32) for value in (_GOLDEN, _FIRST, _SECOND))[number]
        ready = (digits == 0) & ~multiplying
        with m.If(multiplying):
            m.d.sync += [taken.eq((taken << 4) | digit), times.eq((times << 4) + digit * factor)]
        aligned = Signal(32)
        m.d.comb += aligned.eq(operand << ((8 - places) << 2)[:5])
        m.d.sync += digit.eq(aligned.word_select((digits + 7 - places)[:3], 4))

        def begin_product(which: int, value: Value, digits: int = 8) -> list:
            return [number.eq(which), operand.eq(value), places.eq(digits), taken.eq(0), times.eq(0)]

        mix_of, sum_then, base_model, base_of, mixed = (Signal(32, name=name) for name in (
            "mix_of", "sum_then", "base_model", "base_of", "mixed"))
        m.d.comb += mixed.eq(times ^ (times >> 16))
        with m.Switch(state):
            with m.Case(_IDLE):
                with m.If(~base_valid):
                    m.d.sync += [mix_of.eq(self.run_seed + self.step), sum_then.eq(self.run_seed + self.step)]
                with m.Elif(self.start):
                    m.d.sync += begin_product(0, self.tid, 3)
            with m.Case(_TENSOR), m.If(ready):
                m.d.sync += mix_of.eq(base_model + times)
            with m.Case(_ONE):
                m.d.sync += begin_product(1, mix_of ^ (mix_of >> 16))
            with m.Case(_TWO), m.If(ready):
                m.d.sync += begin_product(2, times ^ (times >> 13))
            with m.Case(_THREE), m.If(ready & for_base):
                m.d.sync += [base_model.eq(mixed), base_of.eq(sum_then)]

        # The unit follows it.
        in_product = (state == _TENSOR) | (state == _TWO) | (state == _THREE)
        m.d.comb += [
            Assert(state <= _THREE), Assert(digits <= 8), Assert(places <= 8),
            Assert(~base_valid | (sum_then == (self.run_seed + self.step)[:32])),
            Assert((state != _ONE) | (h == mix_of)),
            Assert(in_product | ready),
            Assert((state != _TENSOR) | ~for_base), Assert(for_base | (state == _IDLE) | (self.start & base_valid)),
            Assert(for_base | (state == _IDLE) | running), Assert(~(for_base & (state == _TENSOR))),
            Assert(base == base_model),
            Assert(~base_valid | (for_base & (state != _IDLE)) | (base_of == sum_then)),
        ]
        with m.If(in_product):
            m.d.comb += [
                Assert(constant == number), Assert(number == Mux(state == _TENSOR, 0, Mux(state == _TWO, 1, 2))),
                Assert(places == Mux(state == _TENSOR, 3, 8)), Assert(digits <= places),
                Assert(product == times), Assert(~multiplying | (partial == (digit * factor)[:32])),
                Assert(multiplying | (digits == places) | (digits == 0)), Assert(~(multiplying & (digits == places))),
                Assert((state != _TENSOR) | (operand == self.tid)),
            ]
            for left in range(9):
                for under_way in range(2):
                    with m.If((digits == left) & (multiplying == under_way)):
                        m.d.comb += [
                            Assert(multiplicand == (aligned << ((places - left) << 2)[:6])[:32]),
                            Assert(taken == operand >> 4 * (left + under_way) if left + under_way < 8 else taken == 0),
                        ]
                        if under_way:
                            m.d.comb += Assert(digit == operand.word_select(left, 4) if left < 8 else 0)
        row, model, there = memories[0].row, Signal(32), Signal()
        m.d.comb += [Assert(~there | (row == model)), Assert(dut.request.done == ((state == _THREE) & ready & ~for_base))]
        with m.If(dut.request.done & (self.tid == self.follow)):
            m.d.sync += [model.eq(mixed), there.eq(1)]
            # The base is that of the step.
            m.d.comb += Assert(base_of == (self.run_seed + self.step)[:32])
        read, beyond, value = Signal(), Signal(), Signal(32)
        with m.If(self.read_en):
            m.d.sync += [read.eq((self.read_tid == self.follow) & there), beyond.eq(self.read_tid >= _TENSORS), value.eq(model)]
        m.d.comb += [Assert(~read | (dut.read.value == value)), Assert(~beyond | (dut.read.value == 0))]
        if self.cover:
            m.d.comb += Cover(dut.request.done & (self.tid > 1024))
        return m
