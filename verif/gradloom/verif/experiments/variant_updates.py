"""Updates of weights and velocities of the emulator with wider tensors, wide masters or rounded terms."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.arithmetic.linear import bounds
from gradloom.models.emulator import update, velocity
from gradloom.models.emulator.learnt import Learnt
from gradloom.models.emulator.numbers import random_increments, round_scaled, rounding_bits
from gradloom.models.emulator.run import Run
from gradloom.models.formats import Linear
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind
from gradloom.models.rounding import NEAREST_F

if TYPE_CHECKING:
    from gradloom.verif.experiments.variants import Plan

__all__ = ["WIDE", "update_weights", "updated"]

WIDE = Linear(16)
"""Of tensors that are kept out of 8 bits."""
_FINER = WIDE.value_bits - 12
"""Bits that it has more than PINT(8, 3)."""
_RANDOM = 1 << 16


def update_weights(run: Run, old: dict[str, Learnt], hyper: Hyper, batch: int) -> update.Updated:
    """As :func:`gradloom.models.emulator.update.update_weights` has it, all layers at once; a calibrating step is the product's."""
    if run.calibrate:
        return update.update_weights(run, old, hyper, batch)
    rules = {}
    for layer in run.net.weighted:
        w, v = old[layer.name].w, old[layer.name].v
        assert v is not None
        rules[layer.name] = velocity.Velocity(run, layer, w, v, hyper, batch)
    return update.Updated(velocity.together(run, rules), {})


def _term(scaled: Tensor, nearest: bool) -> Tensor:
    return (scaled.add_(0.5) if nearest else scaled).floor_()


def updated(
    run: Run, rules: dict[str, velocity.Velocity], pieces: list[tuple[str, slice]], *, plan: "Plan",
    masters: dict[tuple[str, int], Tensor],
) -> list[tuple[Tensor, Tensor]]:
    """New weights and velocities of the pieces, flat, by a plan (the product's :func:`~velocity._updated`).

    ``masters`` : real weights (float64, flat) by layer and first output; what is missing begins at the weights.
    """
    every = [rules[name] for name, _ in pieces]
    hyper, device = every[0].hyper, every[0].w.device
    w, v = (velocity._joined([getattr(rule, key)[part] for rule, (_, part) in zip(every, pieces, strict=True)])
            for key in ("w", "v"))
    dw = velocity._joined([run.dw[name][part] for name, part in pieces])
    sizes = tuple(rule.w[part].numel() for rule, (_, part) in zip(every, pieces, strict=True))
    inv, decays = reciprocal(every[0].batch)[0], hyper.decay_n != NO_DECAY
    units = [rule.run.e[rule.tid(Kind.W)] for rule in every]
    gradient, step, decay, shift_v, shift_w, unit = velocity._spread([
        [math.ldexp(inv, rule.gradient_shift) for rule in every],
        [math.ldexp(hyper.lm, rule.step_shift) for rule in every],
        [math.ldexp(1, rule.decay_shift) if decays else 0.0 for rule in every],
        [math.ldexp(1, -rule.coder_shift(Kind.V_NEXT)) for rule in every],
        [math.ldexp(1, -rule.coder_shift(Kind.W_NEXT)) for rule in every],
        [math.ldexp(1, e) for e in units],
    ], torch.float64, sizes, device)

    def encoded(wide: Tensor, kind: Kind, draw: Kind, scale: Any) -> Tensor:
        f, long = run.net.rounding.f(draw), draw in plan.wide
        for rule, part in zip(every, wide.split(sizes), strict=True):
            # Statistics of a long tensor are told as if it had PINT's length, so its exponent ends lower by the difference.
            run.note(rule.tid(kind), part, f + 1 - rule.coder_shift(kind) - (_FINER if long else 0))
        increment = None
        if f != NEAREST_F:
            seeds = [run.tensor_seed(rule.tid(draw)) for rule in every]
            ends = [[seed & 0xFFFFFF for seed in seeds], [seed >> 24 for seed in seeds]]
            lower, upper = velocity._spread(ends, torch.int32, sizes, device)
            parts = tuple((tuple(rule.w.shape), part.start, part.stop) for rule, (_, part) in zip(every, pieces, strict=True))
            increment = random_increments((lower, upper), velocity._places(parts, str(device)), f)
        if long:
            added = 0.5 if increment is None else increment.to(torch.float64).mul_(0.5 / _RANDOM)
            low, high = bounds(WIDE.bits, symmetric=True)
            return wide.mul(scale).add_(added).floor_().clamp_(low, high).to(torch.float32)
        return round_scaled(wide.mul(scale).mul_(2.0 ** rounding_bits(f)), f, increment, torch.float32, run.format.operand)

    old = w.to(torch.float64)
    if plan.masters:
        kept = [masters.get((name, part.start)) for name, part in pieces]
        begun = (old * unit).split(sizes)
        old = torch.cat([new if real is None else real for real, new in zip(kept, begun, strict=True)]).div_(unit)
    t = _term(dw.mul(gradient), plan.floors).add_(v.to(torch.float64), alpha=hyper.momentum << 8)
    if decays:
        t += _term(old.mul(decay), plan.floors)
    new_v = encoded(t, Kind.V_NEXT, Kind.V, shift_v)
    u = old.mul_(1 << 16).sub_(_term(new_v.to(torch.float64).mul_(step), plan.floors))
    if plan.masters:
        for (name, part), real in zip(pieces, (u * unit).mul_(2.0**-16).split(sizes), strict=True):
            masters[name, part.start] = real.clone()
    new_w = encoded(u, Kind.W_NEXT, Kind.W, shift_w)
    return list(zip(new_w.split(sizes), new_v.split(sizes), strict=True))
