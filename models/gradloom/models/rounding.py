"""Which tensors are rounded to nearest and which stochastically (docs/arithmetic.md, sections 4 and 7)."""

import dataclasses
from collections.abc import Mapping

from gradloom.models.layers import Kind, NetworkError

__all__ = ["FEEDBACK", "NEAREST_F", "STOCHASTIC_F", "XHAT_DRAW", "Rounding", "parse_rounding"]

NEAREST_F = 8
"""F of a tensor that is rounded to nearest: fraction bits of its statistics, less one."""
STOCHASTIC_F = 16
"""F of a tensor that is rounded stochastically: random bits of an element."""
XHAT_DRAW = Kind.W_NEXT
"""Under this kind's number xhat draws its random bits: xhat has a fixed exponent, and so no number of its own."""
FEEDBACK = "feedback"
"""Of weights: to nearest, and what it left is kept for the next step (:mod:`gradloom.models.arithmetic.feedback`)."""
_CHOICES = ("nearest", "stochastic")
_KINDS = {
    Kind.W: "weights",
    Kind.V: "velocities",
    Kind.Z: "activations",
    Kind.DZ: "errors",
    Kind.DX: "errors",
    Kind.DS: "errors",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounding:
    """The rounding of every kind of tensor, "nearest" or "stochastic"; of weights also "feedback".

    Parameters
    ----------
    activations : :class:`str`
        z of every layer, pooled outputs.
    normalised : :class:`str`
        xhat.
    errors : :class:`str`
        dz, dx, ds. The loss gradient is always rounded to nearest.
    weights, velocities : :class:`str`

    Raises
    ------
    :exc:`NetworkError`
        If a value is none of these.
    """

    activations: str = "nearest"
    normalised: str = "nearest"
    errors: str = "nearest"
    weights: str = "feedback"
    velocities: str = "stochastic"

    def __post_init__(self) -> None:
        for key, value in dataclasses.asdict(self).items():
            choices = [*_CHOICES, *([FEEDBACK] if key == "weights" else [])]
            if value not in choices:
                listed = ", ".join(map(repr, choices[:-1]))
                raise NetworkError(f"rounding: {key} must be {listed} or {choices[-1]!r}, not {value!r}: choose one of them")

    def __str__(self) -> str:
        return ",".join(f"{key}={value}" for key, value in dataclasses.asdict(self).items())

    def f(self, kind: Kind) -> int:
        """F of the tensors of a kind that has an exponent of its own: 8 if they are rounded to nearest alone, else 16."""
        return self._f(_KINDS[kind])

    @property
    def keeps_rests(self) -> bool:
        """Whether weights have rests."""
        return self.weights == FEEDBACK

    @property
    def xhat_f(self) -> int:
        """F of xhat."""
        return self._f("normalised")

    def changed(self, changes: Mapping[str, str]) -> "Rounding":
        """The same with some kinds exchanged.

        Raises
        ------
        :exc:`NetworkError`
            If there is no such kind of tensor or rounding.
        """
        keys = [field.name for field in dataclasses.fields(self)]
        for key in changes:
            if key not in keys:
                raise NetworkError(f"rounding: unknown key {key!r}: the keys are {', '.join(keys)}")
        return dataclasses.replace(self, **changes)

    def _f(self, name: str) -> int:
        return NEAREST_F if getattr(self, name) == "nearest" else STOCHASTIC_F


def parse_rounding(text: str) -> dict[str, str]:
    """Changes from "KIND=ROUNDING,KIND=ROUNDING", each kind at most once.

    Raises
    ------
    :exc:`NetworkError`
        If the text has another form, or names what does not exist.
    """
    changes: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise NetworkError(f"rounding: {part.strip()!r} must be KIND=nearest or KIND=stochastic: give both sides")
        if key in changes:
            raise NetworkError(f"rounding: {key} is given twice: remove one")
        changes[key] = value
    Rounding().changed(changes)
    return changes
