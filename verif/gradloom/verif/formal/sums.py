"""Specifications of the array's sums and their flags, written from docs/arithmetic.md, section 2, and docs/machine.md, section 4.

A flag is raised exactly when the exact sum does not fit.
"""

import types
from types import SimpleNamespace

from amaranth.hdl import Array, Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from gradloom.rtl.ccore import abs_accumulator, pe, psum
from gradloom.verif.formal.inside import add_opened
from gradloom.verif.formal.register_memory import RegisterMemory, replaced

__all__ = ["MagnitudeSpec", "PeFlagSpec", "PsumSpec"]

_BANKS, _HALVES = 4, 2


def _past(m: Module, value: Value, name: str, cycles: int = 1) -> Value:
    for i in range(cycles):
        register = Signal(Value.cast(value).shape(), name=f"{name}_{i}")
        m.d.sync += register.eq(value)
        value = register
    return value


class MagnitudeSpec(wiring.Component):
    """The sum of the magnitudes of what was chosen since ``open``, modulo 2^48; the most negative value counts as 2^(width - 1).

    By induction over one cycle, for the width of the machines.
    """

    WIDTH = 36

    def __init__(self, design: types.ModuleType = abs_accumulator, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        shape = signed(self.WIDTH)
        super().__init__({"a": In(shape), "c": In(shape), "second": In(1), "open": In(1), "add": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        dut = self.design.AbsAccumulator(self.WIDTH)
        inside = add_opened(m, platform, dut, "a_reg", "c_reg", "second_reg", "fresh", "negative")
        for name in ("a", "c", "second", "open", "add"):
            m.d.comb += getattr(dut, name).eq(getattr(self, name))
        a, c, second, fresh = (_past(m, getattr(self, name), name) for name in ("a", "c", "second", "open"))
        value, total = Signal(signed(self.WIDTH)), Signal(48)
        m.d.comb += [Assume(~ResetSignal()), value.eq(Mux(second, c, a)), Assert(dut.sum == total),
                     *(Assert(mine == its) for mine, its in zip((a, c, second, fresh), inside[:4], strict=True)),
                     Assert(inside[4] == (value < 0))]
        with m.If(self.add):
            m.d.sync += total.eq(Mux(fresh, 0, total) + Mux(value < 0, -value, value))
        if self.cover:
            m.d.comb += Cover((dut.sum == 3 << self.WIDTH - 1) & ~fresh)
        return m


class PeFlagSpec(wiring.Component):
    """``ovf`` comes exactly with a kept sum of which the exact value (the sum before, of its width, and the product) does not fit.

    By induction over two cycles. The product is the MAC's own: which it is, the multiplier's proof says, and that it lies in
    -4096 * 4032 .. 4096 * 4096, as a product of two values does; ``kept`` is what ``take`` and ``keep`` were, as the unit asks.

    Parameters
    ----------
    width : :class:`int`
        Bits of a sum that count, 36 to 48.
    """

    def __init__(self, width: int, design: types.ModuleType = pe, *, cover: bool = False) -> None:
        self.width, self.design, self.cover = width, design, cover
        super().__init__({"take": In(1), "keep": In(1), "chain": In(1), "wg": In(1), "cin": In(signed(48)),
                          "a": In(13), "e": In(13)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self.width
        dut = self.design.Pe("decode_once", width)
        products = add_opened(m, platform, dut, *(f"mac{k}.product0" for k in range(3)))
        kept = _past(m, self.take & self.keep, "kept")
        m.d.comb += [dut.take.eq(self.take), dut.keep.eq(self.keep), dut.chain.eq(self.chain & ~self.keep), dut.wg.eq(self.wg),
                     dut.kept.eq(kept), Assume(~ResetSignal()),
                     *(dut.cin[k][0].eq(self.cin) for k in range(3)), *(dut.a[k].eq(self.a) for k in range(3)),
                     *(dut.e[0][k].eq(self.e) for k in range(3))]
        wrong = []
        for k, product in enumerate(products):
            m.d.comb += Assume((product >= -4096 * 4032) & (product <= 4096 * 4096))
            exact = _past(m, dut.sum[k][0][:width].as_signed() + product, f"exact{k}")
            wrong.append((exact >= 1 << width - 1) | (exact < -(1 << width - 1)))
            low = _past(m, dut.sum[k][0][:width] + product, f"low{k}")
            m.d.comb += Assert(~kept | (dut.sum[k][0][:width] == low[:width]))
        flag, seen = Signal(), Signal()
        m.d.comb += [flag.eq(kept & Cat(wrong).any()), Assert(~seen | (dut.ovf == flag))]
        m.d.sync += seen.eq(1)
        if self.cover:
            m.d.comb += [Cover(dut.ovf & wrong[i] & ~wrong[i - 1]) for i in range(3)]
        return m


class PsumSpec(wiring.Component):
    """Every bank adds the output it is told to add to what it holds, or to 0, and writes that; ``ovf`` says exactly whether what
    some enabled bank wrote is not the exact sum. The A-Core reads what the banks hold.

    By induction, with memories of two rows (an address is no operand of anything) that are
    registers (:class:`gradloom.verif.formal.register_memory.RegisterMemory`). What is read is what was
    there a cycle before; that an address does not recur within 3 cycles, so that no sum is missed, is the walk's to keep.
    """

    WIDTH = 36
    _SOURCES = ((0, 1, 3), (1, 2), (1, 2, 3), (1, 2, 3))

    def __init__(self, design: types.ModuleType = psum, *, cover: bool = False) -> None:
        self.design, self.cover = design, cover
        banks = data.ArrayLayout(1, _BANKS)
        super().__init__({
            "read": In(data.ArrayLayout(banks, _HALVES)), "source": In(data.ArrayLayout(2, _BANKS)), "fresh": In(1), "half": In(1),
            "we": In(_BANKS), "write": In(banks), "write_half": In(1), "out_bank": In(data.ArrayLayout(2, 2)), "enable": In(1),
            "sums": In(data.ArrayLayout(signed(self.WIDTH), 4))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memories: list[RegisterMemory] = []

        def make(shape: object, depth: int, family: str) -> RegisterMemory:
            memories.append(RegisterMemory(shape, depth))
            return memories[-1]

        with replaced(self.design, "memory_apart", make):
            dut = self.design.PsumStore(SimpleNamespace(psum_width=self.WIDTH, psum_depth=2, family="any"))
            overflows = add_opened(m, platform, dut, *(f"overflow{b}" for b in range(_BANKS)))
        rows = [[memories[b * _HALVES + h].rows for h in range(_HALVES)] for b in range(_BANKS)]
        control = dut.control
        m.d.comb += [Value.cast(control).eq(Cat(self.read, self.source, self.fresh, self.half, self.we, self.write, self.write_half,
                                                self.out_bank)),
                     Value.cast(dut.sums).eq(self.sums), dut.enable.eq(self.enable), Assume(~ResetSignal())]
        age = Signal(range(4))
        with m.If(age != 3):
            m.d.sync += age.eq(age + 1)
        limit = 1 << self.WIDTH - 1
        bad = []
        for b in range(_BANKS):
            ports = [memories[b * _HALVES + h]._reads[0][0].data for h in range(_HALVES)]
            held = [_past(m, Array(rows[b][h])[self.read[h][b]], f"held{b}_{h}") for h in range(_HALVES)]
            new = Signal(signed(self.WIDTH), name=f"new{b}")
            with m.Switch(self.source[b]):
                for i in self._SOURCES[b]:
                    with m.Case(i):
                        m.d.comb += new.eq(self.sums[i])
            m.d.comb += Assume(Cat(self.source[b] == i for i in self._SOURCES[b]).any())
            exact = _past(m, Mux(self.fresh, 0, Mux(self.half, held[1], held[0])) + new, f"exact{b}")
            written = self.we[b] & self.enable
            with m.If(age >= 2):
                m.d.comb += [Assert(dut.total[b] == exact[:self.WIDTH].as_signed()),
                             Assert(overflows[b] == ((exact >= limit) | (exact < -limit)))]
            bad.append(written & ((exact >= limit) | (exact < -limit)))
            for h in range(_HALVES):
                with m.If(age >= 1):
                    m.d.comb += Assert(ports[h] == held[h])
                for i, row in enumerate(rows[b][h]):
                    mine = written & (self.write_half == h) & (self.write[b] == i)
                    expected = _past(m, Mux(mine, exact[:self.WIDTH].as_signed(), row), f"row{b}_{h}_{i}")
                    with m.If(age == 3):
                        m.d.comb += Assert(row == expected)
            for lane in range(2):
                for h in range(_HALVES):
                    with m.If((age >= 1) & (self.out_bank[lane] == b)):
                        m.d.comb += Assert(dut.q[lane][h] == held[h])
        flag = _past(m, Cat(bad).any(), "flag")
        with m.If(age == 3):
            m.d.comb += Assert(dut.ovf == flag)
            if self.cover:
                m.d.comb += Cover(flag)
        return m
