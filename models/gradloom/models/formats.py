"""Number formats of a training run: how tensors are coded and scaled, and how weights are updated (docs/formats.md).

The step is one text for all of them (:mod:`~gradloom.models.golden.forward`, :mod:`~gradloom.models.golden.backward` and
their counterparts in PyTorch): layers, geometry, exact convolutions and the normalisation in integers. A format owns its
quantisers, where their exponents come from, and the update rule.
"""

import dataclasses
import enum
from typing import Any, Protocol

import numpy as np

from gradloom.models.arithmetic import linear, pint
from gradloom.models.arithmetic.pint import Encoded
from gradloom.models.layers import Kind, NetworkError
from gradloom.models.rounding import Rounding

__all__ = ["FORMATS", "NORMALISED_BITS", "Coding", "Format", "Linear", "Pint", "Quantiser", "Real", "Scale", "Update",
           "find_format"]

NORMALISED_BITS = 12
"""Magnitude bits of xhat at its exponent -8; a coding with fewer has a coarser unit over the same range."""


class Coding(Protocol):
    """How a value becomes a code."""

    @property
    def value_bits(self) -> int:
        """Magnitude bits of a value: a scaled tensor's largest lies in [2^(value_bits - 1), 2^value_bits)."""
        ...

    def encode(self, a: Any, sh: Any, f: int, rnd: Any, *, per_image: bool) -> Encoded: ...

    def decode(self, codes: Any) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class Pint:
    """PINT(k, d) (docs/arithmetic.md, section 3)."""

    k: int = 8
    d: int = 3

    @property
    def value_bits(self) -> int:
        return 2 * self.k - 4

    def encode(self, a: Any, sh: Any, f: int, rnd: Any, *, per_image: bool) -> Encoded:
        return pint.encode_kd(a, sh, self.k, self.d, f=f, rnd=rnd)

    def decode(self, codes: Any) -> np.ndarray:
        return pint.decode(codes, self.k, self.d)


@dataclasses.dataclass(frozen=True)
class Linear:
    """Signed integers of ``bits`` bits (:mod:`gradloom.models.arithmetic.linear`)."""

    bits: int = 8
    symmetric: bool = False

    @property
    def value_bits(self) -> int:
        return self.bits - 1

    def encode(self, a: Any, sh: Any, f: int, rnd: Any, *, per_image: bool) -> Encoded:
        return linear.encode(a, sh, bits=self.bits, symmetric=self.symmetric, f=f, rnd=rnd, per_image=per_image)

    def decode(self, codes: Any) -> np.ndarray:
        return linear.decode(codes, self.bits)


@dataclasses.dataclass(frozen=True)
class Real:
    """float32, which is not encoded: codes are the numbers."""

    @property
    def value_bits(self) -> int:
        return NORMALISED_BITS

    def encode(self, a: Any, sh: Any, f: int, rnd: Any, *, per_image: bool) -> Encoded:
        raise TypeError("float32 has no encoder: train through gradloom.models.floatref")

    def decode(self, codes: Any) -> np.ndarray:
        return np.asarray(codes)


@dataclasses.dataclass(frozen=True)
class Quantiser:
    """A coding with its rounding: what encodes one tensor.

    Parameters
    ----------
    coding : :class:`Coding`
    f : :class:`int`
        F, random bits of an element
    rnd : integer array or None
        F-bit random numbers, or None for nearest
    up : :class:`int`
        Values are given in units of ``2^-up`` of the coding's
    per_image : :class:`bool`
        Statistics of each image
    """

    coding: Coding
    f: int
    rnd: np.ndarray | None = None
    up: int = 0
    per_image: bool = False

    def encode(self, a: Any, sh: Any) -> Encoded:
        encoded = self.coding.encode(a, np.asarray(sh) + self.up, self.f, self.rnd, per_image=self.per_image)
        return encoded if not self.up else encoded._replace(value=encoded.value << self.up)


class Scale(enum.Enum):
    """Where the exponent of a tensor comes from."""

    DELAYED = "the statistics of the step before"
    TENSOR = "the statistics of the tensor itself"
    IMAGE = "the statistics of every image itself, an exponent each"
    FIXED = "the network"


class Update(enum.Enum):
    """How weights are updated."""

    VELOCITY = "8-bit weights and velocities (docs/arithmetic.md, section 13)"
    SHIFT = "8-bit weights that move by a gradient of 8 bits (DarkFPGA, section 3.2.4)"
    MASTER = "32-bit masters and velocities, from which 8-bit weights are encoded (Fox, section III)"
    REAL = "float32"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """A number format.

    Parameters
    ----------
    operand : :class:`Coding`
        Of what a convolution multiplies: features, dx, weights; and of velocities.
    error : :class:`Coding`
        Of errors that no convolution reads: DS, and dz before a normalisation or a pool.
    normalised : :class:`Coding`
        Of xhat.
    activations, errors : :class:`Scale`
    update : :class:`Update`
    master_bits : :class:`int`
        Significant bits that an update leaves to a master, of the tensor's largest: 32 (all) or 16.
    average : :class:`bool`
        Average the weights over the last quarter of a run.
    rounding : :class:`Rounding`
        The default.
    hardware : :class:`bool`
        Whether the machine runs it.
    """

    name: str
    operand: Coding = dataclasses.field(default_factory=Pint)
    error: Coding = dataclasses.field(default_factory=Pint)
    normalised: Coding = dataclasses.field(default_factory=Pint)
    activations: Scale = Scale.DELAYED
    errors: Scale = Scale.DELAYED
    update: Update = Update.VELOCITY
    master_bits: int = 32
    average: bool = False
    rounding: Rounding = dataclasses.field(default_factory=Rounding)
    hardware: bool = False

    @property
    def normalised_up(self) -> int:
        """xhat's unit is 2^(-8 + this)."""
        # Eight bits without segments cover +-8 in steps of 1/16, not +-16: a normalised plane has a mean magnitude of 1.
        spare = NORMALISED_BITS - self.normalised.value_bits
        return spare - 1 if isinstance(self.normalised, Linear) and spare else spare

    def scale(self, kind: Kind) -> Scale:
        """Of features (Z) or errors (DZ, DX, DS)."""
        return self.activations if kind == Kind.Z else self.errors

    @property
    def delayed(self) -> bool:
        """Whether features and errors have exponents that a state keeps."""
        return Scale.DELAYED in (self.activations, self.errors)

    @property
    def real(self) -> bool:
        """Whether this is floating point, a reference without codes and exponents."""
        return self.update is Update.REAL

    @property
    def rests_fit(self) -> bool:
        """Whether weights can have rests (:mod:`gradloom.models.arithmetic.feedback`)."""
        return self.update is Update.VELOCITY and self.operand == Pint()

    @property
    def fixed_loss(self) -> bool:
        """Whether the loss gradient has a fixed exponent, as its size is known: that of PINT."""
        return isinstance(self.operand, Pint)

    @property
    def recodes_input(self) -> bool:
        """Whether images, which come as PINT(8, 3), are encoded anew."""
        return self.operand != Pint()


_PER_IMAGE = {"activations": Scale.IMAGE, "errors": Scale.IMAGE}
_RANDOM_WEIGHTS = Rounding(weights="stochastic")
_STOCHASTIC = Rounding(activations="stochastic", normalised="nearest", errors="stochastic", weights="stochastic",
                       velocities="stochastic")
_BFP8: dict[str, Any] = {
    "operand": Linear(8), "error": Linear(13), "normalised": Linear(13), "update": Update.MASTER, "rounding": _STOCHASTIC,
    **_PER_IMAGE,
}
_INT8: Any = Linear(8, symmetric=True)

FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(name="pint8", hardware=True),
        Format(name="int8-shift", operand=_INT8, error=_INT8, normalised=_INT8,
               activations=Scale.FIXED, errors=Scale.TENSOR, update=Update.SHIFT, rounding=_RANDOM_WEIGHTS),
        Format(name="bfp8", **_BFP8),
        Format(name="bfp8-swa", average=True, **_BFP8),
        Format(name="fp32", operand=Real(), error=Real(), normalised=Real(), activations=Scale.TENSOR,
               errors=Scale.TENSOR, update=Update.REAL, rounding=_RANDOM_WEIGHTS),
    )
}
"""Formats by the name that a network or a run gives."""


def find_format(name: str) -> Format:
    """The format of this name.

    Names beside :data:`FORMATS`, for ablations: ``pint8-exact`` takes the scale from the tensor itself, ``pint8-master16``
    and ``pint8-master32`` have wide weights, ``pint(K,D)`` is another segmentation.

    Raises
    ------
    :exc:`NetworkError`
        If there is none.
    """
    if not isinstance(name, str):
        raise NetworkError(f"format must be one of {', '.join(FORMATS)}, not {name!r}: choose one")
    if name in FORMATS:
        return FORMATS[name]
    if name in _VARIANTS:
        return _VARIANTS[name]
    raise NetworkError(f"format must be one of {', '.join(FORMATS)}, not {name!r}: choose one")


def _pint(k: int, d: int) -> Format:
    coding = Pint(k, d)
    return Format(name=f"pint({k},{d})", operand=coding, error=coding, normalised=coding, rounding=_RANDOM_WEIGHTS)


_VARIANTS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(name="pint8-exact", activations=Scale.TENSOR, errors=Scale.TENSOR),
        *(Format(name=f"pint8-master{bits}", update=Update.MASTER, master_bits=bits, rounding=_RANDOM_WEIGHTS)
          for bits in (16, 32)),
        *(_pint(k, d) for k in range(4, 9) for d in range(1, k - 2) if (k, d) != (8, 3)),
    )
}
