"""Blocks of 8-bit integers that share an exponent: the operands of a matrix device (Fox et al., section II; DarkFPGA, section 3).

A value is ``code * 2**exponent``, the code a two's complement integer of 8 bits. The exponent of a block is the smallest with which
its largest magnitude m fits in front of rounding: m lies in [64, 128) of it. What rounds up to 128 becomes 127. Rounding is to
nearest with halves upwards, or stochastic by the hash of docs/arithmetic.md, section 7, so that the same seed gives the same codes.
"""

import dataclasses
from typing import Literal, get_args

import numpy as np

from gradloom.models.arithmetic.dither import random_bits

__all__ = ["CODE_BITS", "FORMATS", "Blocks", "Grain", "ProductFormat", "Quantiser", "Rounding", "quantise"]

Grain = Literal["tensor", "image"]
Rounding = Literal["nearest", "stochastic"]
CODE_BITS = 8
_TOP = (1 << CODE_BITS - 1) - 1
_RANDOM_BITS = 16


@dataclasses.dataclass(frozen=True)
class Quantiser:
    """How a tensor becomes codes.

    Parameters
    ----------
    grain : "tensor" or "image"
        What shares an exponent: all elements, or those of one image (one index of the first axis).
    rounding : "nearest" or "stochastic"

    Raises
    ------
    :exc:`ValueError`
        If either is neither.
    """

    grain: Grain = "tensor"
    rounding: Rounding = "nearest"

    def __post_init__(self) -> None:
        for name, kinds in (("grain", get_args(Grain)), ("rounding", get_args(Rounding))):
            if getattr(self, name) not in kinds:
                raise ValueError(f"{name} must be {kinds[0]!r} or {kinds[1]!r}, not {getattr(self, name)!r}")


@dataclasses.dataclass(frozen=True)
class ProductFormat:
    """Quantisers of the operands of a layer's three products.

    Raises
    ------
    :exc:`ValueError`
        If weights have exponents of images.
    """

    weights: Quantiser
    activations: Quantiser
    errors: Quantiser

    def __post_init__(self) -> None:
        if self.weights.grain != "tensor":
            raise ValueError("a layer's weights belong to no image: their grain must be 'tensor'")


_IMAGES = Quantiser("image", "stochastic")
FORMATS = {
    "bfp8": ProductFormat(weights=Quantiser("tensor", "stochastic"), activations=_IMAGES, errors=_IMAGES),
    "bfp8-nearest": ProductFormat(*3 * [Quantiser()]),
    "int8": ProductFormat(weights=Quantiser(), activations=Quantiser(), errors=Quantiser("tensor", "stochastic")),
}
"""By name. *bfp8*: Fox et al. as printed (an exponent for a layer's weights and for each image, equation 6). *bfp8-nearest*: their
released code (an exponent for a tensor, to nearest). *int8*: DarkFPGA's, with stochastic errors (section 3.2.4)."""


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A tensor in codes.

    Parameters
    ----------
    codes : :class:`numpy.ndarray` of int8
    exponents : :class:`numpy.ndarray` of int32
        One, of shape (), or one for each index of the first axis.
    """

    codes: np.ndarray
    exponents: np.ndarray

    def values(self) -> np.ndarray:
        """What the codes stand for (float64)."""
        shape = self.exponents.shape + (1,) * (self.codes.ndim - self.exponents.ndim)
        return np.ldexp(self.codes.astype(np.float64), self.exponents.reshape(shape))


def quantise(x: np.ndarray, quantiser: Quantiser, seed: int = 0) -> Blocks:
    """The codes of float32 numbers.

    Parameters
    ----------
    x : :class:`numpy.ndarray` of float32
        With a first axis where the exponents are an image's.
    seed : :class:`int`
        32 bits, for stochastic rounding.

    Raises
    ------
    :exc:`ValueError`
        If a number is not finite.
    """
    if not np.isfinite(x).all():
        raise ValueError("numbers that are not finite have no codes")
    wide = x.astype(np.float64)
    blocks = np.abs(wide).reshape(len(wide), -1) if quantiser.grain == "image" else np.abs(wide).reshape(-1)
    largest = blocks.max(axis=-1, initial=0.0)
    # A block of zeros has the exponent of 1.
    exponents = np.where(largest > 0, np.frexp(largest)[1] - (CODE_BITS - 1), 0).astype(np.int32)
    scaled = np.ldexp(wide, -exponents.reshape(exponents.shape + (1,) * (wide.ndim - exponents.ndim)))
    up: np.ndarray | float = 0.5
    if quantiser.rounding == "stochastic":
        # The middle of its step, so that no rounding is surer than another by an ulp: 2^-17 to 1 - 2^-17.
        up = ((2 * random_bits(seed, np.arange(wide.size), _RANDOM_BITS) + 1) / (2 << _RANDOM_BITS)).reshape(wide.shape)
    codes = np.clip(np.floor(scaled + up), -_TOP - 1, _TOP)
    return Blocks(codes.astype(np.int8), exponents)
