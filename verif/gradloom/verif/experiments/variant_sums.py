"""Convolutions in float32, with cuDNN on a GPU: a stand-in for the emulator's exact sums where speed matters more.

PINT values and products are exact in float32; a sum of more than 24 bits is rounded, by about 2^-24 of the largest partial sum.
TF32 must be off where values have more than its 11 bits.
"""

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.emulator import numbers
from gradloom.models.emulator.numbers import PINT8, Exponent, channels_last
from gradloom.models.emulator.operands import Operand, Weights
from gradloom.models.formats import Coding
from gradloom.models.layers import Geometry
from gradloom.models.rounding import NEAREST_F

__all__ = ["backward", "encode", "forward", "weight_gradient"]

_NEAREST = """
template <typename T> T pint_nearest(T x, T scale) {
  T a = x * scale;
  a = a < T(-4096) ? T(-4096) : (a > T(4096) ? T(4096) : a);
  T s = (a >= T(-8) && a < T(8)) ? T(1) : ((a >= T(-512) && a < T(512)) ? T(8) : T(64));
  T v = floor(a / s + T(0.5)) * s;
  return v > T(4032) ? T(4032) : v;
}
"""
"""PINT(8, 3) to nearest in one kernel."""
_SHIFTS = 100
"""Shifts that float32 has room for."""
_SECONDS = 5.0
"""A kernel that takes longer for a few small tensors is compiled anew for every scale."""


@cache
def _fused() -> Callable[..., Tensor] | None:
    """The kernel, if this GPU's runtime compiler makes it and it rounds as the emulator's encoder does."""
    try:
        kernel = torch.cuda.jiterator._create_jit_fn(_NEAREST, scale=1.0)
        wide = torch.arange(-(1 << 17), 1 << 17, device="cuda", dtype=torch.float32).view(16, 32, 16, 32)
        wide = wide.contiguous(memory_format=torch.channels_last)
        kernel(wide, scale=0.5)
        torch.cuda.synchronize()
        began = time.monotonic()
        same = all(torch.equal(kernel(wide, scale=2.0**-sh), numbers.encode(wide.clone(), sh, NEAREST_F, None))
                   for sh in range(-6, 12))
        torch.cuda.synchronize()
        return kernel if same and time.monotonic() - began < _SECONDS else None
    except (RuntimeError, AttributeError, TypeError):
        return None


def encode(wide: Tensor, sh: Exponent, f: int, increment: Tensor | None, coding: Coding = PINT8) -> Tensor:
    """:func:`gradloom.models.emulator.numbers.encode`, of real numbers on a GPU in one kernel of float32."""
    plain = increment is None and coding == PINT8 and wide.is_cuda and wide.is_floating_point()
    if plain and isinstance(sh, int) and abs(sh) < _SHIFTS and (kernel := _fused()) is not None:
        return channels_last(kernel(wide.to(torch.float32), scale=math.ldexp(1.0, -sh)))
    return numbers.encode(wide, sh, f, increment, coding)


def forward(x: Operand, w: Weights, g: Geometry, where: str, watch: Any = None, *, widths: Any = None) -> Tensor:
    """Forward sums (B, M, Yo, Xo); arguments as of :func:`gradloom.models.emulator.conv.forward`."""
    return F.conv2d(x.v, w.w, stride=g.stride, padding=g.pad)


def _gradients(x: Tensor, w: Tensor, dx: Tensor, g: Geometry, mask: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(dx, x, w, None, [g.stride] * 2, [g.pad] * 2, [1, 1], False, [0, 0], 1, mask)


def backward(dx: Operand, w: Weights, g: Geometry, where: str, watch: Any = None, *, widths: Any = None) -> Tensor:
    """Backward sums (B, C, Y, X)."""
    # Only the shape of the input counts.
    x = torch.empty((len(dx.v), *g.in_shape), device=dx.v.device, memory_format=torch.channels_last)
    return _gradients(x, w.w, dx.v, g, [True, False, False])[0]


def weight_gradient(x: Operand, dx: Operand, w: Weights, g: Geometry, where: str, **_: Any) -> Tensor:
    """Weight gradients (M, C, Ky, Kx), float64."""
    return _gradients(x.v, w.w, dx.v, g, [False, True, False])[1].to(torch.float64).contiguous(memory_format=torch.channels_last)
