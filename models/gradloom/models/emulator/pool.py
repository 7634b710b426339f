"""Pools of the emulator, forward and backward (docs/arithmetic.md, section 11)."""

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.arithmetic.arith import reciprocal
from gradloom.models.arithmetic.pool import PoolWalk
from gradloom.models.emulator.numbers import channels_last

__all__ = ["walked"]

_NEVER = -(1 << 30)

Size = tuple[int, ...]
"""Rows and columns."""


def walked(x: Tensor, walk: PoolWalk, size: Size, index: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Wide results (B, C, Y, X) of a pass, and of a maximum that is not spread the index of the first one (int32).

    Results are float64, maxima int32; ``size`` is theirs, ``index`` that of a maximum that is spread.
    """
    if walk.maximum and not walk.spread:
        return _maxima(x, walk, size)
    if walk.maximum:
        assert index is not None
        return _scatter(lambda k: x * (index == k).to(torch.float32), x, walk, size), None
    sums = _scatter(lambda _: x, x, walk, size) if walk.spread else _sums(x, walk, size)
    # At most 225 values of 13 bits, times 17 bits.
    return sums.mul_(reciprocal(walk.divisor)[0]), None


def _taps(walk: PoolWalk, windows: Size) -> Iterator[tuple[int, tuple[slice, slice]]]:
    """Number of every tap of the window, and the rows and columns of the padded planes that it reads."""
    (yo, xo), (ky, kx), s = windows, walk.kernel, walk.stride
    for k, (u, v) in enumerate(itertools.product(range(ky), range(kx))):
        yield k, (slice(u, u + s * (yo - 1) + 1, s), slice(v, v + s * (xo - 1) + 1, s))


def _whole(walk: PoolWalk, plane: Size) -> bool:
    return walk.kernel == tuple(plane) and walk.pad == 0


def _maxima(x: Tensor, walk: PoolWalk, windows: Size) -> tuple[Tensor, Tensor]:
    """int32 maxima of the windows of values, and the index (int32) of the first maximum."""
    # A value times 256 plus 255 less the tap's number: of equal values the first tap's is the largest.
    padded = F.pad(x.to(torch.int32).mul_(256), (walk.pad,) * 4, value=_NEVER)
    best: Tensor | None = None
    for k, (rows, columns) in _taps(walk, windows):
        key = padded[:, :, rows, columns] + (255 - k)
        best = key if best is None else torch.maximum(best, key, out=best)
    assert best is not None
    best = channels_last(best)
    return best >> 8, 255 - (best & 255)


def _sums(x: Tensor, walk: PoolWalk, windows: Size) -> Tensor:
    """float64 sums of the windows; exact in float32."""
    if _whole(walk, x.shape[2:]):
        total = x.sum((2, 3), keepdim=True)
    else:
        padded = F.pad(x, (walk.pad,) * 4)
        total = torch.zeros(*x.shape[:2], *windows, device=x.device)
        for _, (rows, columns) in _taps(walk, windows):
            total += padded[:, :, rows, columns]
    return channels_last(total.to(torch.float64))


def _scatter(tap: Callable[[int], Tensor], x: Tensor, walk: PoolWalk, plane: Size) -> Tensor:
    """float64 (B, C, Y, X) sums of ``tap(k)``, which is like ``x``, at the positions that tap k reads; exact in float32."""
    height, width = plane
    if not walk.maximum and _whole(walk, plane):
        return channels_last(x.to(torch.float64).expand(-1, -1, height, width))
    padded = channels_last(x.new_zeros(*x.shape[:2], height + 2 * walk.pad, width + 2 * walk.pad))
    for k, (rows, columns) in _taps(walk, x.shape[2:]):
        padded[:, :, rows, columns] += tap(k)
    return channels_last(padded[:, :, walk.pad : walk.pad + height, walk.pad : walk.pad + width].to(torch.float64))
