"""L1-FRN and TLU of the emulator (docs/arithmetic.md, section 9)."""

from typing import NamedTuple

import torch
from torch import Tensor

from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.arithmetic.conv import SUM_BITS
from gradloom.models.arithmetic.frn import Q_BITS, XHAT_EXPONENT, reciprocal_norm
from gradloom.models.emulator.numbers import (
    PINT8,
    Exponent,
    add,
    align,
    align_int,
    largest,
    power_of_two,
    round_scaled,
    rounding_bits,
    saturate,
)
from gradloom.models.formats import Coding

__all__ = ["Backward", "Forward", "backward", "forward", "plane"]

_SHORT_NORM = 1 << 46
"""Norms S below this one are divided in int64: n, shifted to 16 more bits than S has, is below 2^62."""
_NARROW_SHIFT = 18
"""A residual shifted left by at most so much leaves y in 32 bits: 2^27 + 2^24 + 2^30."""
_FLOAT_SUM = 4096
"""Positions whose values (13 bits) float32 adds exactly."""


class Forward(NamedTuple):
    """Results of :func:`forward`: xhat (float32), bits (bool), max(y, tau) (int32 or int64, Q20), q and le (int64)."""

    xhat: Tensor
    bit: Tensor | None
    out: Tensor
    q: Tensor
    le: Tensor


class Backward(NamedTuple):
    """Results of :func:`backward`: bit dz (float32), u gl 2^-le (float64, exponent e_dz - eX), sums (B, C), int64."""

    masked: Tensor
    dx: Tensor
    sg: Tensor
    sb: Tensor
    st: Tensor


def plane(x: Tensor) -> Tensor:
    """(B, C) or (C,) as a factor of (B, C, Y, X)."""
    return x[..., None, None] if x.dim() == 2 else x[None, :, None, None]


def _epsilon(n: int, shift: Exponent) -> Exponent:
    """max(1, align(n, shift)), an integer or int64 (B, 1)."""
    if isinstance(shift, int):
        return max(1, align_int(n, shift))
    return align(torch.full_like(shift, n), shift).clamp_(min=1).reshape(-1, 1)


def _plane_norms(x: Tensor) -> Tensor:
    """(B, C) sums of magnitudes of float64 integers."""
    # One kernel of a GPU, which a CPU has not vectorised.
    return x.abs().sum((2, 3)) if x.device.type == "cpu" else torch.linalg.vector_norm(x, 1, (2, 3))


def _reciprocal_norm(n: int, total: Tensor, eps: Exponent) -> tuple[Tensor, Tensor]:
    """q and le, int64, of lambda = n / (total + eps); ``total`` (B, C) is float64, at most n 2^35."""
    known = isinstance(eps, int) and (n << (SUM_BITS - 1)) + eps < _SHORT_NORM
    # Only where no bound is known beforehand, the host waits for the norms.
    if not known and float(total.amax()) + largest(eps) >= _SHORT_NORM:
        exact = total.to(torch.int64).cpu()
        limit = (1 << 63) - 1
        small = eps.cpu() if isinstance(eps, Tensor) else torch.tensor(min(eps, limit))
        s = torch.where(exact > limit - small, limit, exact + small)
        q, le = (torch.from_numpy(array).to(total.device) for array in reciprocal_norm(n, s.numpy()))
        return q, le
    norm = total + eps
    shift = torch.frexp(norm).exponent.to(torch.int64).add_(Q_BITS - n.bit_length())
    # n 2^shift is below 2^17 S.
    q = torch.full_like(shift, n).bitwise_left_shift_(shift).div_(norm.to(torch.int64), rounding_mode="floor")
    # The bit lengths leave one place open.
    large = q >> Q_BITS
    return q >> large, shift.sub_(large)


def forward(
    x: Tensor, gamma: Tensor, beta: Tensor, tau: Tensor | None, eps_shift: Exponent, *, f: int, increment: Tensor | None,
    residual: Tensor | None = None, residual_shift: Exponent = 0, coding: Coding = PINT8, up: int = 0,
) -> Forward:
    """Normalise, scale, add the residual, apply the threshold.

    Parameters
    ----------
    x : float64 or int32 (B, C, Y, X)
        Sums of the convolution, at most 36 bits; overwritten.
    gamma, beta, tau : int64 (C,)
        Q3.12; without ``tau`` there is no TLU.
    eps_shift : int, or int64 tensor (B, 1, 1, 1)
        ``-12 - eX``
    f, increment : int, int32 tensor or None
        Rounding of xhat, as :func:`~gradloom.models.emulator.numbers.round_scaled` has it.
    residual : float32 (B, C, Y, X)
        Values that are added, aligned by ``residual_shift``.
    coding, up
        Of xhat: its values are those of the coding times 2^up.
    """
    n, x = x.shape[2] * x.shape[3], x.to(torch.float64)
    q, le = _reciprocal_norm(n, _plane_norms(x), _epsilon(n, eps_shift))
    # 36 bits times 16: exact. |xhat| is at most n 2^8, so nothing overflows.
    scaled = x.mul_(plane(q * power_of_two(rounding_bits(f) - XHAT_EXPONENT - up - le)))
    xhat = round_scaled(scaled, f, increment, torch.int32, coding)
    if up:
        xhat = xhat << up
    normal = xhat.to(torch.float32)
    offset, bound = (beta << 8, None) if tau is None else ((beta - tau) << 8, plane((tau << 8).to(torch.int32)))
    if residual is None or largest(residual_shift) <= _NARROW_SHIFT:
        y = torch.addcmul(plane(offset.to(torch.int32)), xhat, plane(gamma.to(torch.int32)))
        if residual is not None:
            added = residual.to(torch.int32)
            if isinstance(residual_shift, Tensor):
                left, right = residual_shift.clamp(min=0).to(torch.int32), (-residual_shift).clamp(0, 31).to(torch.int32)
                y += (added << left) >> right
            elif residual_shift >= 0:
                y.add_(added, alpha=1 << residual_shift)
            else:
                y += added >> min(-residual_shift, 31)
    else:
        y = add("residual", xhat * plane(gamma) + plane(beta << 8), align(residual.to(torch.int64), residual_shift))
        if tau is not None:
            y = add("threshold", y, plane(-(tau << 8)))
    if bound is None:
        return Forward(normal, None, y, q, le)
    return Forward(normal, y >= 0, y.clamp_(min=0).add_(bound), q, le)


def _plane_sums(x: Tensor) -> Tensor:
    """int64 (B, C) sums of values (float32)."""
    wide = x if x.shape[2] * x.shape[3] <= _FLOAT_SUM else x.to(torch.float64)
    return wide.sum((2, 3)).to(torch.int64)


def backward(dz: Tensor, xhat: Tensor, bit: Tensor | None, gamma: Tensor, q: Tensor, le: Tensor) -> Backward:
    """Errors of the convolution's sums before their encoding, and the gradient sums of gamma, beta and tau.

    Parameters
    ----------
    dz, xhat : float32 (B, C, Y, X), values
    bit : bool (B, C, Y, X) or None
    gamma : int64 (C,), Q3.12
    q, le : int64 (B, C)
    """
    d = dz if bit is None else dz * bit
    # Two values have 14 significant bits together, so float32 holds the product; the sum needs up to 39.
    sg = (d * xhat).sum((2, 3), dtype=torch.float64).to(torch.int64)
    sb = _plane_sums(d)
    st = torch.zeros_like(sb) if bit is None else _plane_sums(dz).sub_(sb)
    inv, k = reciprocal(dz.shape[2] * dz.shape[3])
    mean = (sg * inv).add_(1 << (15 + k + 3)).bitwise_right_shift_(15 + k + 4).neg_()
    # |mean| <= 2^20 and |16 d| <= 2^16: exact in float32.
    u = saturate(torch.sign(xhat).mul_(plane(mean.to(torch.float32))).add_(d, alpha=16), 18)
    gl = (gamma * q).bitwise_right_shift_(16)
    return Backward(d, torch.mul(u, plane(gl * power_of_two(-le))), sg, sb, st)
