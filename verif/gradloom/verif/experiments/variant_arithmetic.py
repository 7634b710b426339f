"""The normalisation, the loss gradient and the parameters of the emulator with their floors rounded, or with xhat kept wider.

The floors of a PINT8 step (docs/arithmetic.md), which ``floors`` rounds to nearest, halves upwards:

* section 9: ``q``, the ``mean``, ``gl``, and gamma, beta, tau as the datapath sees them;
* section 10: the logits;
* section 12: ``t`` and ``p`` of softmax;
* section 13: gradients, decay and steps of weights, and gradients, momentum and steps of the parameters.

What is left: eps, whose floor is below 2^-12 of the norm, and shortcuts' alignments, which in training go to the left.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradloom.models.arithmetic import softmax
from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.arithmetic.frn import XHAT_EXPONENT
from gradloom.models.arithmetic.update import MASTER_BITS
from gradloom.models.emulator import frn
from gradloom.models.emulator.learnt import Parameters
from gradloom.models.emulator.numbers import (
    PINT8,
    Exponent,
    align,
    factor,
    place,
    power_of_two,
    round_scaled,
    rounding_bits,
    saturate,
)
from gradloom.models.emulator.operands import Weights
from gradloom.models.emulator.run import Master, Run
from gradloom.models.emulator.update import _sources
from gradloom.models.formats import Coding
from gradloom.models.hyper import Hyper
from gradloom.models.layers import Kind
from gradloom.models.network import Network

if TYPE_CHECKING:
    from gradloom.verif.experiments.variants import Plan

__all__ = ["backward", "forward", "logits", "loss_gradient", "rounded_run", "shifted", "update_parameters"]

_WIDE_ERROR_BITS = 3
"""By how much errors of 16 bits are longer than PINT's."""
_NARROW_BITS = 16


def shifted(x: Tensor, n: int | Tensor) -> Tensor:
    """``x 2^n`` of int64, to nearest, halves upwards."""
    doubled = align(x, n + 1)
    return (doubled + 1) >> 1


def rounded_run(net: Network, exponents: dict[int, int], weights: dict[str, Weights], masters: Master, narrow: Master,
                **more: Any) -> Run:
    """A pass whose parameters Q3.12 are rounded to nearest from the masters Q.24, in place of ``narrow``."""
    rounded = {layer: {key: saturate((master + (1 << 11)) >> 12, _NARROW_BITS) for key, master in table.items()}
               for layer, table in masters.items()}
    return Run(net, exponents, weights, masters, rounded, **more)


def _reciprocal_norm(n: int, norms: Tensor, eps: Exponent, nearest: bool) -> tuple[Tensor, Tensor]:
    q, le = frn._reciprocal_norm(n, norms, eps)
    if nearest:
        whole = (norms + eps).to(torch.int64)
        q = (torch.full_like(le, 2 * n).bitwise_left_shift_(le).div_(whole, rounding_mode="floor") + 1) >> 1
    return q, le


def forward(
    x: Tensor, gamma: Tensor, beta: Tensor, tau: Tensor | None, eps_shift: Exponent, *, f: int, increment: Tensor | None,
    residual: Tensor | None = None, residual_shift: Exponent = 0, coding: Coding = PINT8, up: int = 0, plan: "Plan",
) -> frn.Forward:
    """:func:`gradloom.models.emulator.frn.forward` by a plan; y is float64, or float32 where the sums are."""
    n = x.shape[2] * x.shape[3]
    real = torch.float32 if x.dtype == torch.float32 else torch.float64
    x = x.to(real)
    q, le = _reciprocal_norm(n, frn._plane_norms(x).to(torch.float64), frn._epsilon(n, eps_shift), plan.floors)
    exact = x.mul_(frn.plane((q * power_of_two(-XHAT_EXPONENT - le)).to(real)))
    if plan.xhat_bits == 32:
        xhat = exact
    else:
        scaled = exact * 2.0 ** (rounding_bits(f) - up)
        xhat = round_scaled(scaled, f, increment, real, coding).mul_(2.0**up)
    y = (exact if plan.direct else xhat) * frn.plane(gamma.to(real))
    offset = beta if tau is None else beta - tau
    y += frn.plane((offset << 8).to(real))
    if residual is not None:
        y.add_((residual.to(real) * factor(residual_shift)).floor_())
    normal = xhat.to(torch.float32)
    if tau is None:
        return frn.Forward(normal, None, y, q, le)
    return frn.Forward(normal, y >= 0, y.clamp_(min=0).add_(frn.plane((tau << 8).to(real))), q, le)


def backward(
    dz: Tensor, xhat: Tensor, bit: Tensor | None, gamma: Tensor, q: Tensor, le: Tensor, *, plan: "Plan"
) -> frn.Backward:
    """:func:`gradloom.models.emulator.frn.backward` by a plan."""
    d = dz if bit is None else dz * bit
    total = (d * xhat).sum((2, 3), dtype=torch.float64)
    sg, sb = total.to(torch.int64), frn._plane_sums(d)
    st = torch.zeros_like(sb) if bit is None else frn._plane_sums(dz).sub_(sb)
    n = dz.shape[2] * dz.shape[3]
    inv, k = reciprocal(n)
    if plan.mean == "exact":
        mean = total.mul(-1 / (16 * n))
    elif plan.mean == "nearest":
        mean = shifted(sg * inv, -(15 + k + 4)).neg_()
    else:
        mean = (sg * inv).bitwise_right_shift_(15 + k + 4).neg_()
    bits = 18 + (_WIDE_ERROR_BITS if Kind.DZ in plan.wide else 0)
    u = saturate(torch.sign(xhat).mul_(frn.plane(mean.to(torch.float32))).add_(d, alpha=16), bits)
    product = gamma * q
    gl = shifted(product, -16) if plan.floors else product.bitwise_right_shift_(16)
    return frn.Backward(d, torch.mul(u, frn.plane(gl * power_of_two(-le))), sg, sb, st)


def logits(x: Tensor, n: Exponent) -> Tensor:
    """Biased sums as logits, to nearest."""
    wide = x.to(torch.float64).mul_(factor(n)).add_(0.5).floor_()
    return saturate(wide, 24).to(torch.int32).reshape(len(x), -1)


def loss_gradient(loss: str, found: Tensor, labels: Tensor) -> Tensor:
    """Softmax's errors (B, M), int64, of logits (int64, Q8)."""
    assert loss == "softmax" and labels.dim() == 1
    table = torch.from_numpy(softmax.EXP_TABLE).to(found.device)
    d = (found.amax(1, keepdim=True) - found).clamp_(max=32767)
    t = (d * 369 + 128) >> 8
    power = table[t & 255] >> (t >> 8).clamp_(max=16)
    total = power.sum(1, keepdim=True)
    wide = ((power << 17) // total + 1) >> 1
    wide[torch.arange(len(labels), device=labels.device), labels] -= 1 << 16
    return wide


def update_parameters(run: Run, parameters: Parameters, hyper: Hyper, batch: int) -> Parameters:
    """:func:`gradloom.models.emulator.update.update_parameters`, to nearest."""
    inv, k = reciprocal(batch)
    shifts = []
    for (name, key), where in parameters.places.items():
        shifts += [run.sum_exponents[name] + (1 if key == "gamma" else 9) - k] * (where.stop - where.start)
    total = torch.cat([run.sums[source] for source in _sources(parameters)])
    gradient = saturate(shifted(total * inv, place(shifts, torch.int64, total.device)), 32)
    velocity = saturate(((parameters.velocity * hyper.momentum + 128) >> 8) + gradient, 32)
    step = shifted(velocity * hyper.lm, -hyper.le).clamp_(-(1 << 62), 1 << 62)
    return Parameters(saturate(parameters.master - step, MASTER_BITS), velocity, parameters.places)
