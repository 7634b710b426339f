"""Blocks of codes against their definition, number by number."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradloom.models.arithmetic.dither import random_bits
from gradloom.models.matrix.blocks import FORMATS, ProductFormat, Quantiser, quantise

NUMBERS = st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=12)


def by_definition(numbers, rounding, seed=0, first=0):
    """Codes and exponent of one block, in fractions."""
    largest = max(abs(Fraction(float(number))) for number in numbers)
    exponent = math.frexp(float(largest))[1] - 7 if largest else 0
    codes = []
    for place, number in enumerate(numbers):
        up = Fraction(1, 2)
        if rounding == "stochastic":
            up = Fraction(2 * int(random_bits(seed, first + place, 16)) + 1, 1 << 17)
        codes.append(min(127, max(-128, math.floor(Fraction(float(number)) / Fraction(2) ** exponent + up))))
    return codes, exponent


@given(NUMBERS, st.sampled_from(["nearest", "stochastic"]), st.integers(0, 2**32 - 1))
def test_a_block_is_as_defined(numbers, rounding, seed):
    found = quantise(np.array(numbers, np.float32), Quantiser("tensor", rounding), seed)
    codes, exponent = by_definition(np.array(numbers, np.float32), rounding, seed)
    assert found.codes.tolist() == codes and found.exponents.shape == () and int(found.exponents) == exponent
    assert found.values().tolist() == [code * 2.0**exponent for code in codes]


@given(st.lists(NUMBERS.filter(lambda found: len(found) >= 3).map(lambda found: found[:3]), min_size=1, max_size=4))
def test_images_have_exponents_of_their_own(images):
    x = np.array(images, np.float32)
    found = quantise(x, Quantiser("image", "stochastic"), 5)
    expected = [by_definition(image, "stochastic", 5, 3 * place) for place, image in enumerate(x)]
    assert [(codes.tolist(), int(exponent)) for codes, exponent in zip(found.codes, found.exponents, strict=True)] == expected


def test_integers_of_eight_bits_stay():
    x = np.arange(-128, 128, dtype=np.float32)
    x[0] = 64
    found = quantise(x, Quantiser())
    assert (found.values() == x).all() and int(found.exponents) == 0


def test_stochastic_rounding_keeps_the_mean():
    x = np.full(20000, 100.25, np.float32)
    assert abs(quantise(x, Quantiser("tensor", "stochastic"), 3).values().mean() - 100.25) < 0.01


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(wrong):
    with pytest.raises(ValueError, match="not finite"):
        quantise(np.array([1, wrong], np.float32), Quantiser())


@pytest.mark.parametrize(("fields", "told"), [({"grain": "row"}, "grain must be 'tensor' or 'image', not 'row'"),
                                              ({"rounding": "up"}, "rounding must be 'nearest' or 'stochastic', not 'up'")])
def test_other_quantisers_are_refused(fields, told):
    with pytest.raises(ValueError, match=told):
        Quantiser(**fields)


def test_weights_belong_to_no_image():
    with pytest.raises(ValueError, match="weights belong to no image"):
        ProductFormat(Quantiser("image"), Quantiser("image"), Quantiser())


def test_formats():
    """Fox's have an exponent for each image as printed, and one in the released code; DarkFPGA's rounds errors by chance."""
    assert FORMATS["bfp8"].activations.grain == "image" and FORMATS["bfp8"].weights == Quantiser("tensor", "stochastic")
    assert {FORMATS["bfp8-nearest"].weights, FORMATS["bfp8-nearest"].errors} == {Quantiser("tensor", "nearest")}
    assert FORMATS["int8"].errors.rounding == "stochastic" and FORMATS["int8"].weights.rounding == "nearest"
