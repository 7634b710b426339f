"""Widths of a machine's sums in the models: what they may be, and that the emulator faults by them exactly where golden does."""

import dataclasses

import numpy as np
import pytest

from gradloom.models.arithmetic import conv
from gradloom.models.arithmetic.arith import ArithmeticFault
from gradloom.models.layers import Geometry
from gradloom.models.widths import FULL_WIDTHS, SumWidths


def test_widths_are_those_of_the_arithmetic_by_default_and_cannot_be_changed():
    assert SumWidths() == FULL_WIDTHS == SumWidths(36, 48)
    assert [SumWidths(33, 40).of(name) for name in ("forward sum", "backward sum", "weight gradient")] == [33, 33, 40]
    with pytest.raises(dataclasses.FrozenInstanceError):
        FULL_WIDTHS.psum = 32  # type: ignore[misc]


@pytest.mark.parametrize(("widths", "sentence"), [
    ({"psum": 37}, "psum must lie in 2..36 bits, not 37"), ({"psum": 1}, "psum must lie in 2..36 bits, not 1"),
    ({"wg": 49}, "wg must lie in 2..48 bits, not 49"), ({"wg": 0}, "wg must lie in 2..48 bits, not 0")])
def test_wider_ones_are_refused(widths, sentence):
    with pytest.raises(ValueError, match=f"^{sentence.replace('.', chr(92) + '.')}$"):
        SumWidths(**widths)


LARGEST = {24: (4032, 8), 28: (4032, 64), 31: (4032, 512), 32: (4032, 4032), 33: (-4096, 4032), 36: (-4096, -4096)}
"""Operands of products by width: few hundred or thousand of them leave it."""


@pytest.mark.parametrize("bits", LARGEST)
def test_the_emulator_faults_where_the_golden_model_does(bits):
    """As many equal products as fit, one less and one more, in all three phases; what fits is the same sum. Products of bytes in
    int32 and in float64, sums whose number of terms alone says that they fit, and those that are looked at."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    from gradloom.models.emulator import conv as emulator
    from gradloom.models.emulator.numbers import channels_last
    from gradloom.models.emulator.operands import Operand, Weights

    def tensor(array):
        return channels_last(torch.tensor(array, dtype=torch.float32))

    def outcome(compute, *arguments, **options):
        try:
            return np.asarray(compute(*arguments, **options), np.int64).tolist()
        except ArithmeticFault as fault:
            assert fault.bits == bits
            return "fault"

    left, right = LARGEST[bits]
    widths, product = SumWidths(bits, bits), left * right
    fits = (2 ** (bits - 1) - (product > 0)) // abs(product)
    found = []
    for count in (fits // 2, fits - 1, fits, fits + 1):
        a, b = np.full((1, count, 1, 1), left), np.full((1, count, 1, 1), right)
        line, fan, row = (Geometry((count, 1, 1), (1, 1, 1), (1, 1), 1, 0), Geometry((1, 1, 1), (count, 1, 1), (1, 1), 1, 0),
                          Geometry((1, count, 1), (1, count, 1), (1, 1), 1, 0))
        weights = Weights(torch.tensor(b, dtype=torch.float32))
        spread = Weights(torch.tensor(b.reshape(count, 1, 1, 1), dtype=torch.float32))
        planes = [array.reshape(1, 1, count, 1) for array in (a, b)]
        pairs = (
            (outcome(conv.forward, a, b, 1, 0, width=bits), outcome(emulator.forward, Operand(tensor(a)), weights, line, "x",
                                                                    widths=widths)),
            (outcome(conv.backward, a, b.reshape(count, 1, 1, 1), (1, 1, 1, 1), 1, 0, width=bits),
             outcome(emulator.backward, Operand(tensor(a)), spread, fan, "x", widths=widths)),
            (outcome(conv.weight_gradient, *planes, 1, 1, 0, width=bits),
             outcome(emulator.weight_gradient, *(Operand(tensor(plane)) for plane in planes), weights, row, "x", widths=widths)),
        )
        assert all(golden == emulated for golden, emulated in pairs), (count, pairs)
        found.append({golden == "fault" for golden, _ in pairs})
    assert found == [{False}, {False}, {False}, {True}]
