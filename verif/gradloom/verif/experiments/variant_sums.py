"""Convolutions in float32, with cuDNN on a GPU: a stand-in for the emulator's exact sums where speed matters more.

PINT values and products are exact in float32; a sum of more than 24 bits is rounded, by about 2^-24 of the largest partial sum.
TF32 must be off where values have more than its 11 bits.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.emulator.operands import Operand, Weights
from gradloom.models.layers import Geometry

__all__ = ["backward", "forward", "weight_gradient"]


def forward(x: Operand, w: Weights, g: Geometry, where: str, watch: Any = None, *, widths: Any = None) -> Tensor:
    """Forward sums (B, M, Yo, Xo); arguments as of :func:`gradloom.models.emulator.conv.forward`."""
    return F.conv2d(x.v, w.w, stride=g.stride, padding=g.pad)


def _gradients(x: Tensor, w: Tensor, dx: Tensor, g: Geometry, mask: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(dx, x, w, None, [g.stride] * 2, [g.pad] * 2, [1, 1], False, [0, 0], 1, mask)


def backward(dx: Operand, w: Weights, g: Geometry, where: str, watch: Any = None, *, widths: Any = None) -> Tensor:
    """Backward sums (B, C, Y, X)."""
    # Only the shape of the input counts.
    x = dx.v.new_empty((len(dx.v), *g.in_shape)).contiguous(memory_format=torch.channels_last)
    return _gradients(x, w.w, dx.v, g, [True, False, False])[0]


def weight_gradient(x: Operand, dx: Operand, w: Weights, g: Geometry, where: str, **_: Any) -> Tensor:
    """Weight gradients (M, C, Ky, Kx), float64."""
    return _gradients(x.v, w.w, dx.v, g, [False, True, False])[1].to(torch.float64).contiguous(memory_format=torch.channels_last)
