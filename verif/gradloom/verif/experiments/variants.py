"""Variants of PINT8's arithmetic on the emulator, each a single departure, to find what 8 bits cost in accuracy.

A :class:`Plan` says what departs, :func:`parse_plan` makes one from names joined by "+" ("mean+dx16"), and within :func:`applied`
the emulator computes by it. Nothing of the product changes: outside of that context it is as it was.
"""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, cast
from unittest import mock

import torch

from gradloom.models.emulator import backward as emulator_backward
from gradloom.models.emulator import conv as emulator_conv
from gradloom.models.emulator import forward as emulator_forward
from gradloom.models.emulator import frn as emulator_frn
from gradloom.models.emulator import run as emulator_run
from gradloom.models.emulator import step as emulator_step
from gradloom.models.emulator import velocity as emulator_velocity
from gradloom.models.formats import Coding, Format, Linear, Scale
from gradloom.models.layers import Kind
from gradloom.models.network import Network
from gradloom.models.rounding import Rounding
from gradloom.verif.experiments import variant_arithmetic as arithmetic
from gradloom.verif.experiments import variant_sums, variant_updates

__all__ = ["TOKENS", "Plan", "applied", "parse_plan", "variant_network"]

_FINER = 3
"""Bits by which the exponent of the loss gradient falls where errors have 16 bits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How the product's PINT8 is departed from; by default to what it was when weights were rounded stochastically and kept no
    rests, and the mean was floored, which is where all other variants begin.

    Parameters
    ----------
    mean : :class:`str`
        Of section 9: "floor", "nearest", or "exact" (a real number instead of one with 4 fraction bits).
    floors : :class:`bool`
        All other floors of the step round to nearest (:mod:`~gradloom.verif.experiments.variant_arithmetic` lists them).
    xhat_bits : :class:`int`
        0 for PINT; signed bits of a plain integer; 32 is not rounded at all.
    direct : :class:`bool`
        z straight from X q with one rounding, the stored xhat for the backward pass alone.
    wide : frozenset of :class:`~gradloom.models.layers.Kind`
        Kinds of tensors that are kept as integers of 16 bits instead of PINT's 8.
    masters : :class:`bool`
        Weights are rounded to nearest from wide ones that are never rounded themselves.
    stochastic : frozenset of :class:`~gradloom.models.layers.Kind`
        Kinds that are rounded stochastically beside weights and velocities.
    normalised : :class:`str`
        Rounding of xhat.
    weights : :class:`str`
        Rounding of weights.
    """

    mean: str = "floor"
    floors: bool = False
    xhat_bits: int = 0
    direct: bool = False
    wide: frozenset[Kind] = frozenset()
    masters: bool = False
    stochastic: frozenset[Kind] = frozenset()
    normalised: str = "nearest"
    weights: str = "stochastic"

    @property
    def in_updates(self) -> bool:
        """Whether weights and velocities are updated otherwise."""
        return self.floors or self.masters or bool(self.wide & {Kind.W, Kind.V})

    @property
    def in_normalisation(self) -> bool:
        return self.floors or self.mean != "nearest" or self.direct or self.xhat_bits != 0 or bool(self.wide & _ERRORS)


_DZ, _DX = frozenset({Kind.DZ, Kind.DS}), frozenset({Kind.DX})
_ERRORS = _DZ | _DX
_ACTIVATIONS = frozenset({Kind.Z})

TOKENS: dict[str, dict[str, Any]] = {
    "pint8": {},
    "product": {"mean": "nearest", "weights": "feedback"},
    "feedback": {"weights": "feedback"},
    "mean": {"mean": "nearest"},
    "meanfine": {"mean": "exact"},
    "floors": {"mean": "nearest", "floors": True},
    "errors": {"stochastic": _ERRORS},
    "dxrandom": {"stochastic": _DX},
    "dzrandom": {"stochastic": _DZ},
    "acts": {"stochastic": _ACTIVATIONS},
    "normalised": {"normalised": "stochastic"},
    "xhat13": {"xhat_bits": 13},
    "xhat32": {"xhat_bits": 32},
    "zdirect": {"direct": True},
    "master32": {"masters": True, "weights": "nearest"},
    "weights16": {"wide": frozenset({Kind.W})},
    "velocity16": {"wide": frozenset({Kind.V})},
    "acts16": {"wide": _ACTIVATIONS},
    "dz16": {"wide": _DZ},
    "dx16": {"wide": _DX},
    "errors16": {"wide": _ERRORS},
    "all16": {"wide": _ERRORS | _ACTIVATIONS | {Kind.W, Kind.V}, "xhat_bits": 32, "direct": True, "mean": "exact"},
}
"""What a name changes of a :class:`Plan`. "16" keeps a kind of tensors out of 8 bits, to see what its rounding costs."""


def parse_plan(text: str) -> Plan:
    """The plan of names joined by "+".

    Raises
    ------
    :exc:`ValueError`
        If a name is unknown, or two of them change the same thing in different ways.
    """
    changes: dict[str, Any] = {}
    for name in text.split("+"):
        if name not in TOKENS:
            raise ValueError(f"there is no variant {name!r}: join some of {', '.join(TOKENS)} by '+'")
        for key, value in TOKENS[name].items():
            if isinstance(value, frozenset):
                changes[key] = changes.get(key, frozenset()) | value
            elif changes.setdefault(key, value) != value:
                raise ValueError(f"{text!r} asks for {key} {changes[key]!r} and {value!r}: leave one of the two")
    return Plan(**changes)


class _PlannedRounding(Rounding):
    """A rounding that also tells the kinds of errors apart."""

    stochastic: frozenset[Kind] = frozenset()

    def f(self, kind: Kind) -> int:
        return self._f("velocities") if kind in self.stochastic else super().f(kind)


class _PlannedNetwork(Network):
    """A network whose tensors are coded by a plan."""

    plan: Plan

    @property
    def arithmetic(self) -> Format:
        found = super().arithmetic
        bits = self.plan.xhat_bits
        # xhat of 32 bits is not encoded: the format's coding is not asked.
        return dataclasses.replace(found, normalised=Linear(bits)) if 0 < bits < 32 else found

    def coding(self, tid: int) -> Coding:
        if Kind(tid % 8) in self.plan.wide and tid != Kind.Z:
            return variant_updates.WIDE
        return super().coding(tid)

    @property
    def error_exponent(self) -> int:
        return super().error_exponent - (_FINER if Kind.DZ in self.plan.wide else 0)


def variant_network(network: Network, plan: Plan) -> Network:
    """The PINT8 network that a plan trains."""
    found = cast(_PlannedNetwork, copy.copy(network))
    # Frozen classes let nobody set an attribute, and a network has more of them than its constructor takes.
    object.__setattr__(found, "__class__", _PlannedNetwork)
    object.__setattr__(found, "plan", plan)
    rounding = _PlannedRounding(normalised=plan.normalised, weights=plan.weights)
    object.__setattr__(rounding, "stochastic", plan.stochastic)
    object.__setattr__(found, "rounding", rounding)
    assert found.arithmetic.activations is Scale.DELAYED
    return found


@contextlib.contextmanager
def applied(plan: Plan, sums: str = "exact") -> Iterator[dict[tuple[str, int], torch.Tensor]]:
    """Within it the emulator computes by a plan; yields the wide weights by layer and first output, which a run must keep.

    ``sums`` : "exact", or "float32" for convolutions in float32, which round sums of more than 24 bits.
    """
    masters: dict[tuple[str, int], torch.Tensor] = {}
    changes: list[tuple[Any, str, Any]] = []
    if plan.in_normalisation:
        changes += [(emulator_frn, "forward", partial(arithmetic.forward, plan=plan)),
                    (emulator_frn, "backward", partial(arithmetic.backward, plan=plan))]
    if plan.floors:
        changes += [(emulator_step, "update_parameters", arithmetic.update_parameters),
                    (emulator_forward, "_logits", arithmetic.logits),
                    (emulator_backward, "_loss_gradient", arithmetic.loss_gradient),
                    (emulator_step, "Run", arithmetic.rounded_run)]
    if plan.in_updates:
        changes += [(emulator_step, "update_weights", variant_updates.update_weights),
                    (emulator_velocity, "_updated", partial(variant_updates.updated, plan=plan, masters=masters))]
    if sums == "float32":
        changes += [(emulator_forward, "convolution", variant_sums.forward), (emulator_conv, "backward", variant_sums.backward),
                    (emulator_conv, "weight_gradient", variant_sums.weight_gradient), (emulator_run, "encode", variant_sums.encode)]
    elif plan.wide or plan.xhat_bits:
        # Values of 16 bits are no two bytes of a PINT value.
        changes += [(emulator_conv, "takes_bytes", lambda device: False)]
    with contextlib.ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield masters
