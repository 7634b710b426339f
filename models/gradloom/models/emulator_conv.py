"""Convolutions of the emulator: exact integer sums from floating-point kernels.

Every partial sum, in any order, is an integer; where all of them provably fit the significand, no kernel that only
multiplies and adds can round. Three ways, the cheapest that is provably exact is taken:

* float32, significand 24 bits. One operand is split into a multiple of 64, h = 64 H with |H| <= 64, and a rest
  |l| <= 32 (:func:`~gradloom.models.emulator_numbers.split`); both convolutions are exact if sum |H| |w| and
  sum |l| |w| stay within 2^24. For forward and backward sums 64 (32) times the L1 norm of an output's weights
  bounds them; where this is too much, the channels are summed in groups.
  For weight gradients it is the inequality of Cauchy and Schwarz over groups of images; where single images are
  too long, both operands are split.
* float64, 53 bits: K terms of 2^24 each, K < 2^29, which every layer satisfies; as unfolded windows and a matrix
  product, whose kernels add in some order and do nothing else.

Sums whose bound fits 32 bits are added in int32, which is half as long as float64.

float32 is used on a CPU on which :func:`float32_is_exact` has seen that its convolutions only multiply and add (no
Winograd, no reduced precision); every other device takes float64.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.arith import ArithmeticFault
from gradloom.models.conv import GRADIENT_BITS, SUM_BITS
from gradloom.models.emulator_numbers import channels_last, power_of_two, split
from gradloom.models.layers import Geometry

__all__ = ["Operand", "Weights", "backward", "exact_kernels", "float32_is_exact", "forward", "weight_gradient"]

_EXACT = 1 << 24
"""Integers up to here, inclusive, are exact in float32."""
_HIGH, _LOW = 64, 32
"""Largest magnitudes of the two pieces of a PINT value, the first in units of 64."""
_NARROW = 128
"""Largest magnitude of an 8-bit value."""
_NARROW_SUM = 1 << 30
"""Sums below it are kept in int32, with a bit to spare for a shortcut's error."""
_MARGIN = 1.001
"""On norms that are themselves computed in float32: thousands of positive terms lose less than 2^-20 of their sum."""
_CHUNK = 1 << 24
"""Elements of unfolded windows that are held at once."""


class Operand:
    """Values (B, C, Y, X), float32, channels last, with their two pieces, made when first asked for.

    ``narrow`` : the values have 8 bits and need no pieces.
    """

    def __init__(self, v: Tensor, *, narrow: bool = False) -> None:
        self.v, self.narrow = v, narrow
        self._pieces: tuple[Tensor, Tensor] | None = None
        self._largest: int | None = None
        self._norms: dict[int, list[float]] = {}

    @property
    def largest(self) -> int:
        """The largest magnitude."""
        if self._largest is None:
            self._largest = max(int(self.v.amax()), -int(self.v.amin()))
        return self._largest

    @property
    def pieces(self) -> tuple[Tensor, Tensor]:
        """High and low piece, channels last."""
        if self._pieces is None:
            high, low = split(self.v)
            self._pieces = channels_last(high), channels_last(low)
        return self._pieces

    def squares(self, piece: int | None) -> list[float]:
        """Per image, the largest sum of squares over a channel of the values, or of a piece (the high one in units of 64)."""
        key = -1 if piece is None else piece
        if key not in self._norms:
            x = self.v if piece is None else self.pieces[piece]
            unit = _HIGH**2 if piece == 0 else 1
            self._norms[key] = [_MARGIN * s / unit for s in (x * x).sum((2, 3)).amax(1).tolist()]
        return self._norms[key]


class Weights:
    """Weights (M, C, Ky, Kx), float32 PINT values, and the sizes of their groups of channels."""

    def __init__(self, w: Tensor) -> None:
        self.w = channels_last(w)
        # Exact: at most 225 terms of 2^12.
        self._l1 = w.abs().sum((2, 3))
        self._norms: dict[tuple[int, int], int] = {}

    def norm(self, axis: int, size: int) -> int:
        """Largest L1 norm of an output's weights over a group of ``size`` channels.

        The channels lie along axis 1 of the weights forward, 0 backward.
        """
        key = (axis, size)
        if key not in self._norms:
            parts = [self._l1] if size >= self._l1.shape[axis] else self._l1.split(size, axis)
            self._norms[key] = max(int(part.sum(axis).amax()) for part in parts)
        return self._norms[key]

    def group(self, axis: int, largest: int) -> int | None:
        """Channels of a group such that sums are exact, for an operand of magnitudes up to ``largest``.

        ``None`` if even a single channel is too much.
        """
        size = self.w.shape[axis]
        while largest * self.norm(axis, size) > _EXACT:
            if size == 1:
                return None
            size = (size + 1) // 2
        return size


@contextlib.contextmanager
def exact_kernels() -> Iterator[None]:
    """Keeps PyTorch from kernels that transform their operands (NNPACK, which it takes for small batches)."""
    with torch.backends.nnpack.flags(enabled=False):
        yield


@cache
def float32_is_exact(device: str) -> bool:
    """Whether float32 convolutions of this device, with :func:`exact_kernels`, add exactly what is exactly representable.

    Sums close to 2^24 of convolutions of several shapes are compared with float64: transforms (Winograd, FFT) and
    reduced precision (TF32, bfloat16) would show at once.
    """
    if torch.device(device).type != "cpu":
        return False
    with exact_kernels():
        return all(_matches(shape) for shape in ((1, 16, 8, 3), (2, 16, 16, 3), (16, 32, 8, 3), (1, 8, 9, 5), (2, 24, 8, 1)))


def _matches(shape: tuple[int, int, int, int]) -> bool:
    """Whether the three convolutions of (images, channels, rows, kernel) agree in float32 and float64."""
    batch, channels, size, kernel = shape
    generator = torch.Generator().manual_seed(1)
    largest = math.isqrt(_EXACT // (channels * kernel * kernel))
    x, w, e = (torch.randint(largest // 2, largest + 1, shape, generator=generator).to(torch.float32) for shape in (
        (batch, channels, size, size), (channels, channels, kernel, kernel), (batch, channels, size, size)))
    # The gradient's sums have as many terms as there are positions.
    small = (e * (channels * kernel * kernel / (batch * size * size))).floor().clamp_(max=largest)
    x, w, e, small = (channels_last(tensor) for tensor in (x, w, e, small))
    g = Geometry((channels, size, size), (channels, size, size), (kernel, kernel), 1, kernel // 2)
    pairs = (
        (_conv(x, w, g), _wide_forward(x, w, g)),
        (_conv_input(e, w, x, g), _wide_backward(e, w, g)),
        (_conv_weight(small, w, x, g), _wide_gradient(x, small, g)),
    )
    return all(torch.equal(narrow.double(), wide) for narrow, wide in pairs)


def forward(x: Operand, w: Weights, g: Geometry, where: str) -> Tensor:
    """Forward sums (B, M, Yo, Xo), float64 or int32; :exc:`ArithmeticFault` if one needs more than 36 bits."""
    narrow = _narrow(x, w, 1)
    if narrow is None:
        total = _wide_forward(x.v, w.w, g)
    else:
        total = _sum(narrow, lambda piece, part: _conv(piece[:, part], w.w[:, part], g), _sum_type(x, w, 1))
    return _checked(total, math.prod(w.w.shape[1:]), SUM_BITS, f"layer {where!r}: forward sum")


def backward(dx: Operand, w: Weights, g: Geometry, where: str) -> Tensor:
    """Backward sums (B, C, Y, X), float64 or int32; :exc:`ArithmeticFault` if one needs more than 36 bits.

    int32 sums stay below 2^30.
    """
    narrow = _narrow(dx, w, 0)
    if narrow is None:
        total = _wide_backward(dx.v, w.w, g)
    else:
        # Only the shape counts of what a gradient's input would be.
        like = torch.empty((len(dx.v), *g.in_shape), memory_format=torch.channels_last)
        total = _sum(narrow, lambda piece, part: _conv_input(piece[:, part], w.w[part], like, g), _sum_type(dx, w, 0))
    terms = w.w.shape[0] * w.w.shape[2] * w.w.shape[3]
    return _checked(total, terms, SUM_BITS, f"layer {where!r}: backward sum")


def weight_gradient(x: Operand, dx: Operand, w: Weights, g: Geometry, where: str, *, shift: Tensor | None = None) -> Tensor:
    """Weight gradients (M, C, Ky, Kx), float64, summed over the batch; :exc:`ArithmeticFault` beyond 48 bits.

    ``shift`` : int64 (B, 1, 1, 1), by which the errors of every image are aligned first, at most
    :data:`~gradloom.models.golden_run.SPREAD`.
    """
    if shift is not None:
        # Narrow values and 12 bits of alignment: 2^(7 + 7 + 12) a term, exact in float64 up to 2^27 terms.
        total = _wide_gradient(x.v, dx.v.to(torch.float64).mul_(power_of_two(shift)).floor_(), g)
        return channels_last(_checked(total, 1 << (GRADIENT_BITS - 25), GRADIENT_BITS, f"layer {where!r}: weight gradient"))
    plan = _gradient_plan(x, dx) if _use_float32(x.v, w) else None
    if plan is None:
        total = _wide_gradient(x.v, dx.v, g)
    else:
        parts = [(a[start : start + images], d[start : start + images])
                 for a, d, images in plan for start in range(0, len(a), images)]
        total = _conv_weight(parts[0][1], w.w, parts[0][0], g).to(torch.float64)
        for a, d in parts[1:]:
            total += _conv_weight(d, w.w, a, g)
    terms = len(dx.v) * g.out_shape[1] * g.out_shape[2]
    return channels_last(_checked(total, terms, GRADIENT_BITS, f"layer {where!r}: weight gradient"))


def _use_float32(x: Tensor, w: Weights) -> bool:
    # Fully connected layers are matrix products, for which float64 costs little.
    return w.w.shape[2:] != x.shape[2:] and float32_is_exact(str(x.device))


def _narrow(x: Operand, w: Weights, axis: int) -> list[tuple[Tensor, int]] | None:
    """The pieces of an operand with the channels of their groups, or ``None`` if float32 does not do."""
    if x.v.shape[2:] == (1, 1) or not _use_float32(x.v, w):
        return None
    channels = w.w.shape[axis]
    if x.narrow:
        size = w.group(axis, _NARROW)
        return None if size is None else [(x.v, size)]
    high, low = w.group(axis, _HIGH), w.group(axis, _LOW)
    if high is None or high < channels:
        high = w.group(axis, (x.largest + _LOW) // _HIGH)
    return None if high is None or low is None else [(x.pieces[0], high), (x.pieces[1], low)]


def _sum_type(x: Operand, w: Weights, axis: int) -> torch.dtype:
    norm = w.norm(axis, w.w.shape[axis])
    small = (_NARROW if x.narrow else 4096) * norm < _NARROW_SUM or x.largest * norm < _NARROW_SUM
    return torch.int32 if small else torch.float64


def _sum(pieces: list[tuple[Tensor, int]], convolve: Callable[[Tensor, slice], Tensor], dtype: torch.dtype) -> Tensor:
    total: Tensor | None = None
    for piece, size in pieces:
        # Weights and piece have the same channels, forward the input's, backward the output's.
        for start in range(0, piece.shape[1], size):
            part = convolve(piece, slice(start, start + size)).to(dtype)
            total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _gradient_plan(x: Operand, dx: Operand) -> list[tuple[Tensor, Tensor, int]] | None:
    """Products of pieces that make up the gradient, each with a number of images whose sum is exact."""
    if x.narrow:
        images = _images(x.squares(None), dx.squares(None))
        return [(x.v, dx.v, images)] if images else None
    plan = [(x.pieces[i], dx.v, _images(x.squares(i), dx.squares(None))) for i in (0, 1)]
    if all(images for _, _, images in plan):
        return plan
    plan = [(x.pieces[i], dx.pieces[j], _images(x.squares(i), dx.squares(j))) for i in (0, 1) for j in (0, 1)]
    return plan if all(images for _, _, images in plan) else None


def _images(first: list[float], second: list[float]) -> int:
    """Images of a group (the batch, a half, a quarter ...) such that no sum of products over it exceeds 2^24; 0 if none.

    For any channels c and m, |sum a d| <= |a_c| |d_m| by Cauchy and Schwarz, also for every part of the sum.
    """
    size = len(first)
    while True:
        parts = [slice(start, start + size) for start in range(0, len(first), size)]
        if all(sum(first[part]) * sum(second[part]) <= _EXACT**2 for part in parts):
            return size
        if size == 1:
            return 0
        size = (size + 1) // 2


def _checked(total: Tensor, terms: int, bits: int, name: str) -> Tensor:
    """The sums, or a fault; no sum of fewer than 2^(bits - 25) terms of 2^24 can need more bits."""
    if terms >= 1 << (bits - 25):
        low, high = int(total.amin()), int(total.amax())
        if low < -(1 << (bits - 1)) or high >= 1 << (bits - 1):
            raise ArithmeticFault(f"{name}: values {low}..{high} do not fit {bits} bits")
    return total


# float32


def _points(x: Tensor, g: Geometry) -> tuple[Tensor, int]:
    """The positions that a 1 x 1 kernel reads and a stride of 1; any other kernel's input and stride as they are.

    The weight gradient of a 1 x 1 kernel with stride 2 and channels last corrupts memory in oneDNN (PyTorch 2.15).
    """
    if g.kernel != (1, 1) or g.stride == 1:
        return x, g.stride
    return channels_last(x[:, :, :: g.stride, :: g.stride]), 1


def _gradients(e: Tensor, w: Tensor, x: Tensor, stride: int, pad: int, mask: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(e, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask)


def _conv(x: Tensor, w: Tensor, g: Geometry) -> Tensor:
    x, stride = _points(x, g)
    return F.conv2d(x, w, stride=stride, padding=g.pad)


def _conv_input(e: Tensor, w: Tensor, x: Tensor, g: Geometry) -> Tensor:
    points, stride = _points(x, g)
    found = _gradients(e, w, points, stride, g.pad, [True, False, False])[0]
    if stride == g.stride:
        return found
    spread = torch.zeros_like(x)
    spread[:, :, :: g.stride, :: g.stride] = found
    return spread


def _conv_weight(e: Tensor, w: Tensor, x: Tensor, g: Geometry) -> Tensor:
    x, stride = _points(x, g)
    return _gradients(e, w, x, stride, g.pad, [False, True, False])[1]


# float64


def _batches(images: int, elements: int) -> list[slice]:
    size = max(1, _CHUNK // max(elements, 1))
    return [slice(start, min(start + size, images)) for start in range(0, images, size)]


def _columns(x: Tensor, g: Geometry) -> Tensor:
    """Windows (B, C Ky Kx, Yo Xo), float64."""
    if x.shape[2:] == g.kernel and g.pad == 0:
        return x.to(torch.float64).reshape(len(x), -1, 1)
    return F.unfold(x.to(torch.float64), g.kernel, padding=g.pad, stride=g.stride)


def _elements(g: Geometry) -> int:
    return g.in_shape[0] * math.prod(g.kernel) * math.prod(g.out_shape[1:])


def _wide_forward(x: Tensor, w: Tensor, g: Geometry) -> Tensor:
    matrix = w.to(torch.float64).reshape(len(w), -1)
    parts = [matrix @ _columns(x[part], g) for part in _batches(len(x), _elements(g))]
    return channels_last(torch.cat(parts).reshape(len(x), len(w), *g.out_shape[1:]))


def _wide_backward(e: Tensor, w: Tensor, g: Geometry) -> Tensor:
    matrix = w.to(torch.float64).reshape(len(w), -1).T
    flat = e.to(torch.float64).reshape(len(e), len(w), -1)
    if g.in_shape[1:] == g.kernel and g.pad == 0:
        return channels_last((matrix @ flat).reshape(len(e), *g.in_shape))
    parts = [F.fold(matrix @ flat[part], g.in_shape[1:], g.kernel, padding=g.pad, stride=g.stride)
             for part in _batches(len(e), _elements(g))]
    return channels_last(torch.cat(parts))


def _wide_gradient(x: Tensor, e: Tensor, g: Geometry) -> Tensor:
    flat = e.to(torch.float64).reshape(*e.shape[:2], -1)
    total = torch.zeros(e.shape[1], g.in_shape[0] * math.prod(g.kernel), dtype=torch.float64, device=x.device)
    for part in _batches(len(x), _elements(g)):
        total += torch.einsum("bml,bkl->mk", flat[part], _columns(x[part], g))
    return total.reshape(e.shape[1], g.in_shape[0], *g.kernel)
