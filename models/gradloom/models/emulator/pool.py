"""Pools of the emulator, forward and backward (docs/arithmetic.md, section 11)."""

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.emulator.numbers import channels_last
from gradloom.models.layers import Geometry

__all__ = ["avg_backward", "avg_forward", "max_backward", "max_forward"]

_NEVER = -(1 << 30)


def _taps(g: Geometry) -> Iterator[tuple[int, tuple[slice, slice]]]:
    """Number of every tap of the window, and the rows and columns of the padded planes that it reads."""
    (_, yo, xo), (ky, kx), s = g.out_shape, g.kernel, g.stride
    for k, (u, v) in enumerate(itertools.product(range(ky), range(kx))):
        yield k, (slice(u, u + s * (yo - 1) + 1, s), slice(v, v + s * (xo - 1) + 1, s))


def _whole(g: Geometry) -> bool:
    return g.kernel == g.in_shape[1:] and g.pad == 0


def max_forward(x: Tensor, g: Geometry) -> tuple[Tensor, Tensor]:
    """int32 maxima of the windows of values, and the index (int32) of the first maximum."""
    # A value times 256 plus 255 less the tap's number: of equal values the first tap's is the largest.
    padded = F.pad(x.to(torch.int32).mul_(256), (g.pad,) * 4, value=_NEVER)
    best: Tensor | None = None
    for k, (rows, columns) in _taps(g):
        key = padded[:, :, rows, columns] + (255 - k)
        best = key if best is None else torch.maximum(best, key, out=best)
    assert best is not None
    best = channels_last(best)
    return best >> 8, 255 - (best & 255)


def _scatter(tap: Callable[[int], Tensor], like: Tensor, g: Geometry) -> Tensor:
    """float64 (B, C, Y, X) sums of ``tap(k)`` (B, C, Yo, Xo) at the positions that tap k reads; exact in float32."""
    _, y, x = g.in_shape
    padded = channels_last(like.new_zeros(*like.shape[:2], y + 2 * g.pad, x + 2 * g.pad))
    for k, (rows, columns) in _taps(g):
        padded[:, :, rows, columns] += tap(k)
    return channels_last(padded[:, :, g.pad : g.pad + y, g.pad : g.pad + x].to(torch.float64))


def max_backward(dz: Tensor, index: Tensor, g: Geometry) -> Tensor:
    """float64 (B, C, Y, X) sums of dz over the windows whose index names the position."""
    return _scatter(lambda k: dz * (index == k).to(torch.float32), dz, g)


def avg_forward(x: Tensor, g: Geometry) -> tuple[Tensor, int]:
    """float64 window sums times the reciprocal of the window's size, and how much lower their exponent is."""
    inv, k = reciprocal(g.kernel[0] * g.kernel[1])
    if _whole(g):
        total = x.sum((2, 3), keepdim=True)
    else:
        padded = F.pad(x, (g.pad,) * 4)
        total = torch.zeros(len(x), *g.out_shape, device=x.device)
        for _, (rows, columns) in _taps(g):
            total += padded[:, :, rows, columns]
    # At most 225 values of 13 bits, times 17 bits.
    return channels_last(total.to(torch.float64)).mul_(inv), 15 + k


def avg_backward(dz: Tensor, g: Geometry) -> tuple[Tensor, int]:
    """float64 sums of dz over the windows that hold the position, times the reciprocal; how much lower their exponent is."""
    inv, k = reciprocal(g.kernel[0] * g.kernel[1])
    if _whole(g):
        return channels_last(dz.to(torch.float64).mul_(inv).expand(-1, -1, *g.in_shape[1:])), 15 + k
    return _scatter(lambda _: dz, dz, g).mul_(inv), 15 + k
