"""Convolutions of the emulator: exact integer sums from matrix products of bytes, or of float64.

* Bytes. A PINT value is two pieces of a byte (:mod:`~gradloom.models.emulator.operands`), so a product of two values is four
  products of bytes; values of 8-bit formats are bytes themselves. The windows of a convolution are laid out as rows (im2col), and
  one product of byte matrices with sums of 32 bits gives all four parts: K <= 2^16 terms of at most 2^14 in magnitude cannot
  leave 31 bits. The parts are put together in int32 where the sum is small enough, else in float64.
* float64. K terms of 2^24 each, K < 2^29, which every layer satisfies: no partial sum, in any order, needs more than 53 bits, so
  kernels that only multiply and add cannot round.

Bytes are used where :func:`bytes_are_exact` has seen that the product of byte matrices neither saturates nor rounds; every other
device takes float64.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.arithmetic.arith import NEAR_BITS, ArithmeticFault, located
from gradloom.models.arithmetic.conv import GRADIENT_BITS, SUM_BITS
from gradloom.models.emulator.numbers import channels_last, power_of_two
from gradloom.models.emulator.operands import UNIT, Operand, Weights
from gradloom.models.layers import Geometry

__all__ = ["backward", "bytes_are_exact", "forward", "weight_gradient"]

_TERMS = 1 << 16
"""Terms of a sum of byte products that 32 bits hold, whatever the bytes."""
_NARROW_SUM = 1 << 30
"""Sums below it are kept in int32, with a bit to spare for a shortcut's error."""
_CHUNK = 1 << 24
"""Elements of windows that are held at once."""
Watch = Callable[[str, int, Tensor, Tensor], None]
"""Takes the name and the bits of sums that may come near the limit, and the smallest and the largest of them."""
_SUMS = 1 << 17
"""Weight gradients that are put together at once: they stay in a processor's caches."""


@cache
def bytes_are_exact(device: str) -> bool:
    """Whether this device multiplies matrices of bytes exactly, with sums of 32 bits.

    Random bytes and the extremes, of several shapes, are compared with float64: sums of 16 bits that saturate (as some
    instructions of older processors have them) would show at once. Only CPUs are asked: other devices restrict the shapes.
    """
    if torch.device(device).type != "cpu" or not hasattr(torch, "_int_mm"):
        return False
    generator = torch.Generator().manual_seed(1)
    for rows, terms, columns in ((1, 1, 1), (3, 7, 5), (64, 4608, 32), (33, _TERMS, 2)):
        draw = torch.randint(-128, 128, (rows + columns, terms), generator=generator).to(torch.int8)
        for fill in (None, -128, 127):
            both = draw if fill is None else torch.full_like(draw, fill)
            a, b = both[:rows], both[rows:].t()
            try:
                found = _product(a, b)
            except RuntimeError:
                return False
            if not torch.equal(found.to(torch.float64), a.to(torch.float64) @ b.to(torch.float64)):
                return False
    return True


def _product(a: Tensor, b: Tensor) -> Tensor:
    """int32 product of int8 matrices (R, K) and (K, N), K <= :data:`_TERMS`."""
    return torch._int_mm(_plain(a), _plain(b))


def _plain(x: Tensor) -> Tensor:
    """The matrix with the strides of a new one if it has a single row or column.

    Such a one may have any stride from there to the next, which is nowhere, and counts as contiguous. But PyTorch 2.13 takes the
    stride for the length of a row, and reads what lies elsewhere.
    """
    return x.reshape(-1).contiguous().view(x.shape) if 1 in x.shape else x


def forward(x: Operand, w: Weights, g: Geometry, where: str, watch: Watch | None = None) -> Tensor:
    """Forward sums (B, M, Yo, Xo), float64 or int32; :exc:`ArithmeticFault` if one needs more than 36 bits.

    int32 sums stay below 2^30.
    """
    terms = math.prod(w.w.shape[1:])
    if bytes_are_exact(str(x.v.device)) and terms <= _TERMS:
        matrix = w.pieces(x.narrow).flatten(2).flatten(0, 1)
        total = _sums(x.pieces, matrix.t(), g.kernel, g.out_shape[1:], (g.pad, g.pad), g.stride, 1, _sum_type(x, w, 1))
    else:
        total = _wide_forward(x.v, w.w, g)
    with located(where, "FP"):
        return _checked(total, terms, SUM_BITS, "forward sum", watch)


def backward(dx: Operand, w: Weights, g: Geometry, where: str, watch: Watch | None = None) -> Tensor:
    """Backward sums (B, C, Y, X), float64 or int32; :exc:`ArithmeticFault` if one needs more than 36 bits.

    int32 sums stay below 2^30.
    """
    outputs, channels, ky, kx = w.w.shape
    terms = outputs * ky * kx
    if not bytes_are_exact(str(dx.v.device)) or terms > _TERMS or g.pad >= min(ky, kx):
        total = _wide_backward(dx.v, w.w, g)
    elif g.in_shape[1:] == g.kernel and g.pad == 0:
        # A fully connected layer: the windows would be mostly padding.
        matrix = w.pieces(dx.narrow).permute(1, 0, 2, 3, 4).flatten(1)
        rows = dx.pieces.reshape(-1, outputs)
        total = _joined(_product(rows, matrix), dx.narrow, _sum_type(dx, w, 0)).view(-1, ky, kx, channels).permute(0, 3, 1, 2)
    else:
        # Rotated kernels over errors that are spread to the input's distances.
        matrix = w.pieces(dx.narrow).flip(2, 3).permute(0, 4, 2, 3, 1).flatten(2).flatten(0, 1)
        before = ky - 1 - g.pad, kx - 1 - g.pad
        total = _sums(dx.pieces, matrix.t(), g.kernel, g.in_shape[1:], before, 1, g.stride, _sum_type(dx, w, 0))
    with located(where, "BP"):
        return _checked(total, terms, SUM_BITS, "backward sum", watch)


def weight_gradient(
    x: Operand, dx: Operand, w: Weights, g: Geometry, where: str, *, shift: Tensor | None = None, watch: Watch | None = None
) -> Tensor:
    """Weight gradients (M, C, Ky, Kx), float64, channels last, summed over the batch; :exc:`ArithmeticFault` beyond 48 bits.

    ``shift`` : int64 (B, 1, 1, 1), by which the errors of every image are aligned first, at most
    :data:`~gradloom.models.golden.run.SPREAD`.
    """
    with located(where, "WG + WU"):
        if shift is not None:
            total, terms = _aligned_gradient(x, dx, g, shift), 1 << (GRADIENT_BITS - 25)
        else:
            total, terms = _gradient(x, dx, g), len(dx.v) * math.prod(g.out_shape[1:])
        return channels_last(_checked(total, terms, GRADIENT_BITS, "weight gradient", watch))


def _gradient(x: Operand, dx: Operand, g: Geometry) -> Tensor:
    use_bytes = bytes_are_exact(str(x.v.device)) and math.prod(g.out_shape[1:]) <= _TERMS
    return _byte_gradient(x, dx, g) if use_bytes else _wide_gradient(x.v, dx.v, g)


def _aligned_gradient(x: Operand, dx: Operand, g: Geometry, shift: Tensor) -> Tensor:
    """Sums over the images of one shift each, which are then aligned: exact, as a shift to the left is."""
    groups: dict[int, list[int]] = {}
    for image, n in enumerate(shift.flatten().tolist()):
        groups.setdefault(max(n, 0), []).append(image)
    errors = dx.v if min(groups) else (dx.v * power_of_two(shift.clamp(max=0)).to(torch.float32)).floor_()
    total: Tensor | None = None
    for n, images in groups.items():
        a, d = (Operand(channels_last(v[images]), narrow=True) for v in (x.v, errors))
        # At most 2^12 times sums of 8-bit products: float64 holds 2^27 of them.
        part = _gradient(a, d, g).mul_(math.ldexp(1.0, n))
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def _sum_type(x: Operand, w: Weights, axis: int) -> torch.dtype:
    return torch.int32 if x.largest * w.norm(axis) < _NARROW_SUM else torch.float64


def _checked(total: Tensor, terms: int, bits: int, name: str, watch: Watch | None) -> Tensor:
    """The sums, or a fault; no sum of fewer than 2^(bits - 25) terms of 2^24 can need more bits, nor one below 2^30 (int32)."""
    if total.dtype == torch.int32 or terms < 1 << (bits - 25 - NEAR_BITS):
        return total
    ends = torch.aminmax(total)
    if watch is not None:
        watch(name, bits, *ends)
    if terms >= 1 << (bits - 25):
        low, high = (int(end) for end in ends)
        if low < -(1 << (bits - 1)) or high >= 1 << (bits - 1):
            raise ArithmeticFault(name, bits, f"values {low}..{high} do not fit {bits} bits")
    return total


# Bytes


def _windows(
    pieces: Tensor, kernel: tuple[int, int], size: tuple[int, ...], pad: tuple[int, int], stride: int, spread: int
) -> Tensor:
    """Windows as rows (P B Yo Xo, Ky Kx C), int8, of pieces (P, B, Y, X, C).

    ``size`` is (Yo, Xo), ``pad`` what lies before the first row and column, ``spread`` the distance at which rows and
    columns are set.
    """
    _, _, rows, columns, channels = pieces.shape
    if kernel == (1, 1) and pad == (0, 0) and spread == 1:
        return pieces[:, :, ::stride, ::stride].reshape(-1, channels)
    planes = pieces.flatten(0, 1)
    height, width = ((n - 1) * stride + k for n, k in zip(size, kernel, strict=True))
    padded = torch.zeros((len(planes), height, width, channels), dtype=torch.int8, device=pieces.device)
    # Rows and columns that no window reads are left out.
    rows, columns = min(rows, -(-(height - pad[0]) // spread)), min(columns, -(-(width - pad[1]) // spread))
    padded[:, pad[0] :: spread, pad[1] :: spread][:, :rows, :columns] = planes[:, :rows, :columns]
    image, row, column, _ = padded.stride()
    # The columns of a window's row lie side by side.
    view = padded.as_strided((len(planes), *size, kernel[0], kernel[1] * channels), (image, stride * row, stride * column, row, 1))
    # Windows of a single row and image stay a view of rows that overlap, which a matrix product cannot take.
    return view.reshape(-1, math.prod(kernel) * channels).contiguous()


def _joined(parts: Tensor, narrow: bool, dtype: torch.dtype) -> Tensor:
    """Sums (R, N) of the products of all pieces: (R, N), or (2 R, 2 N) with the high pieces first."""
    if narrow:
        return parts.to(dtype)
    (high, cross), (other, low) = (half.tensor_split(2, 1) for half in parts.tensor_split(2))
    # In int32 what leaves 32 bits on the way comes back: the sum itself fits.
    return high.to(dtype, copy=True).mul_(UNIT).add_(cross).add_(other).mul_(UNIT).add_(low)


def _sums(
    pieces: Tensor, matrix: Tensor, kernel: tuple[int, int], size: tuple[int, ...], pad: tuple[int, int], stride: int, spread: int,
    dtype: torch.dtype,
) -> Tensor:
    """Sums (B, N, Yo, Xo), channels last, of windows with a matrix (Ky Kx C, P N)."""
    count, images = pieces.shape[:2]
    outputs = matrix.shape[1] // count
    total = torch.empty((images, *size, outputs), dtype=dtype, device=pieces.device)
    for part in _batches(images, count * math.prod(size) * len(matrix)):
        products = _product(_windows(pieces[:, part], kernel, size, pad, stride, spread), matrix)
        total[part] = _joined(products, count == 1, dtype).view(-1, *size, outputs)
    return total.permute(0, 3, 1, 2)


def _byte_gradient(x: Operand, dx: Operand, g: Geometry) -> Tensor:
    size, (ky, kx) = g.out_shape[1:], g.kernel
    count, images, *_ = x.pieces.shape
    outputs, channels, positions = g.out_shape[0], g.in_shape[0], math.prod(size)
    terms = ky * kx * channels
    total = torch.zeros((outputs, terms), dtype=torch.float64, device=x.v.device)
    for part in _batches(images, max(count * positions * terms, _CHUNK * positions // _TERMS)):
        # (M, P, positions), so that the pieces of some outputs are one matrix.
        errors = dx.pieces[:, part].permute(4, 0, 1, 2, 3).reshape(outputs, count, -1)
        windows = _windows(x.pieces[:, part], g.kernel, size, (g.pad, g.pad), g.stride, 1).tensor_split(count)
        for some in _batches(outputs, terms, _SUMS):
            rows = errors[some].transpose(0, 1).flatten(0, 1)
            products = torch.cat([_product(rows, piece) for piece in windows], 1)
            total[some] += _joined(products, count == 1, torch.float64)
    return total.view(outputs, ky, kx, channels).permute(0, 3, 1, 2)


# float64


def _batches(images: int, elements: int, limit: int = _CHUNK) -> Iterator[slice]:
    """Parts of a batch of at most ``limit`` elements, ``elements`` of each image."""
    size = max(1, limit // max(elements, 1))
    return (slice(start, min(start + size, images)) for start in range(0, images, size))


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
