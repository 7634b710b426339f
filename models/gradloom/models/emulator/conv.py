"""Convolutions of the emulator: exact integer sums from matrix products of bytes, or of float64.

* Bytes. A PINT value is two pieces of a byte (:mod:`~gradloom.models.emulator.operands`), so a product of two values is four
  products of bytes; values of 8-bit formats are bytes themselves. The windows of a convolution are laid out as rows (im2col), and
  one product of byte matrices with sums of 32 bits gives all four parts: K <= 2^16 terms of at most 2^14 in magnitude cannot
  leave 31 bits. The parts are put together in int32 where the sum is small enough, else in float64.
* float64. K terms of 2^24 each, K < 2^29, which every layer satisfies: no partial sum, in any order, needs more than 53 bits, so
  kernels that only multiply and add cannot round.

Either way the windows of many images are laid out as rows by one strided copy, and multiplied at once. A CPU takes bytes where
:func:`bytes_are_exact` has seen that the product of byte matrices neither saturates nor rounds, and :func:`bytes_are_fast` that it
is no slower than that of float64; else float64. A GPU takes bytes for long sums whose
sizes its units accept (:func:`_pays`), else float64, and never reads a result.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.arithmetic.arith import NEAR_BITS, ArithmeticFault, located
from gradloom.models.emulator.numbers import channels_last, ends_of, power_of_two
from gradloom.models.emulator.operands import UNIT, Operand, Weights
from gradloom.models.emulator.windows import contiguous, windows_of
from gradloom.models.layers import Geometry
from gradloom.models.widths import FULL_WIDTHS, SumWidths

__all__ = ["backward", "bytes_are_exact", "bytes_are_fast", "check_ends", "forward", "takes_bytes", "weight_gradient"]

_TERMS = 1 << 16
"""Terms of a sum of byte products that 32 bits hold, whatever the bytes."""
_NARROW_SUM = 1 << 30
"""Sums below it are kept in int32, with a bit to spare for a shortcut's error."""
_PRODUCT_BITS = 25
"""Fewer than 2^n products of values, of at most 2^24 each, need at most so many signed bits more than n."""
_UNKNOWN = 1 << 62
"""Terms of sums that are looked at in any case."""
_SHAPES = {"cpu": ((1, 1, 1), (3, 7, 5), (64, 4608, 32), (33, _TERMS, 2)), "cuda": ((17, 16, 16), (96, 4608, 64), (4096, 576, 128))}
"""Rows, terms and columns of the products by which :func:`bytes_are_exact` judges a kind of device."""
_TIMED, _TRIES = (64, 1152, 64), 3
"""Rows, terms and columns of the products by which :func:`bytes_are_fast` judges a CPU, and how many; the least time counts."""
_FAR_TERMS = 1024
"""From so many terms on a GPU multiplies bytes: of shorter sums the four products cost more than the float64 windows."""
_CHUNK, _FAR_CHUNK = 1 << 24, 1 << 28
"""Elements of windows that are held at once, on a CPU and on other devices."""
_ROWS = 4096
"""Rows of windows that one float64 product of a weight gradient adds up."""
Watch = Callable[[str, int, Tensor, Tensor], None]
"""Takes the name and the bits of sums that may come near the limit or leave it, and the smallest and the largest of them; it
raises :exc:`ArithmeticFault` when they are read."""
_SUMS = 1 << 17
"""Weight gradients that are put together at once: they stay in a processor's caches."""


@cache
def bytes_are_exact(device: str) -> bool:
    """Whether this device multiplies matrices of bytes exactly, with sums of 32 bits.

    Random bytes and the extremes, of several shapes, are compared with float64: sums of 16 bits that saturate (as some
    instructions of older processors have them) would show at once. A GPU is asked for the sizes that it accepts.
    """
    kind = torch.device(device).type
    if kind not in _SHAPES or not hasattr(torch, "_int_mm"):
        return False
    generator = torch.Generator().manual_seed(1)
    for rows, terms, columns in _SHAPES[kind]:
        draw = torch.randint(-128, 128, (rows + columns, terms), generator=generator).to(torch.int8).to(device)
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


@cache
def bytes_are_fast(device: str) -> bool:
    """Whether a CPU multiplies matrices of bytes at least as fast as those of float64.

    Without instructions for sums of byte products PyTorch 2.13 takes twenty times as long. No byte of a result depends on it.
    """
    if torch.device(device).type != "cpu":
        return True
    rows, terms, columns = _TIMED
    a, b = torch.ones((rows, terms), dtype=torch.int8), torch.ones((terms, columns), dtype=torch.int8)
    wide_a, wide_b = a.to(torch.float64), b.to(torch.float64)

    def seconds(multiply: Callable[[], Tensor]) -> float:
        times = []
        for _ in range(_TRIES):
            began = time.perf_counter()
            multiply()
            times.append(time.perf_counter() - began)
        return min(times)

    return seconds(lambda: _product(a, b)) <= seconds(lambda: wide_a @ wide_b)


def takes_bytes(device: str) -> bool:
    """Whether a kind of device multiplies bytes where it can, and not float64."""
    return bytes_are_exact(device) and bytes_are_fast(device)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """int32 product of int8 matrices (R, K) and (K, N), K <= :data:`_TERMS`."""
    if a.device.type != "cpu":
        # A GPU's units want the second factor column by column.
        return torch._int_mm(a.contiguous(), b.t().contiguous().t())
    return torch._int_mm(_plain(a), _plain(b))


def _plain(x: Tensor) -> Tensor:
    """The matrix with the strides of a new one if it has a single row or column.

    Such a one may have any stride from there to the next, which is nowhere, and counts as contiguous. But PyTorch 2.13 takes the
    stride for the length of a row, and reads what lies elsewhere.
    """
    return x.reshape(-1).contiguous().view(x.shape) if 1 in x.shape else x


def forward(
    x: Operand, w: Weights, g: Geometry, where: str, watch: Watch | None = None, *, widths: SumWidths = FULL_WIDTHS
) -> Tensor:
    """Forward sums (B, M, Yo, Xo), float64 or int32; :exc:`ArithmeticFault` if one needs more bits than ``widths`` has.

    int32 sums stay below 2^30.
    """
    outputs, terms = len(w.w), math.prod(w.w.shape[1:])
    size = g.out_shape[1:]
    place = g.kernel, size, (g.pad, g.pad), g.stride, 1
    if _pays(x, terms, outputs, len(x.v) * math.prod(size)):
        total = _sums(x.pieces, w.pieces(x.narrow).flatten(2).flatten(0, 1).t(), *place, _sum_type(x, w, 1))
    else:
        total = _wide_sums(x.v, w.rows.flatten(1).t(), *place)
    with located(where, "FP"):
        return _checked(total, terms, widths, "forward sum", watch)


def backward(
    dx: Operand, w: Weights, g: Geometry, where: str, watch: Watch | None = None, *, widths: SumWidths = FULL_WIDTHS
) -> Tensor:
    """Backward sums (B, C, Y, X), float64 or int32; :exc:`ArithmeticFault` if one needs more bits than ``widths`` has.

    int32 sums stay below 2^30.
    """
    outputs, channels, ky, kx = w.w.shape
    terms, images = outputs * ky * kx, len(dx.v)
    whole = g.in_shape[1:] == g.kernel and g.pad == 0
    # Rotated kernels over errors that are spread to the input's distances.
    place = g.kernel, g.in_shape[1:], (ky - 1 - g.pad, kx - 1 - g.pad), 1, g.stride
    if whole and _pays(dx, outputs, ky * kx * channels, images):
        # A fully connected layer: the windows would be mostly padding.
        matrix = w.pieces(dx.narrow).permute(1, 0, 2, 3, 4).flatten(1)
        total = _joined(_product(dx.pieces.reshape(-1, outputs), matrix), dx.narrow, _sum_type(dx, w, 0))
        total = total.view(-1, ky, kx, channels).permute(0, 3, 1, 2)
    elif whole:
        total = (dx.v.reshape(-1, outputs).to(torch.float64) @ w.rows.flatten(1)).view(-1, ky, kx, channels).permute(0, 3, 1, 2)
    elif g.pad >= min(ky, kx):
        total = _folded(dx.v, w.w, g)
    elif _pays(dx, terms, channels, images * math.prod(g.in_shape[1:])):
        matrix = w.pieces(dx.narrow).flip(2, 3).permute(0, 4, 2, 3, 1).flatten(2).flatten(0, 1)
        total = _sums(dx.pieces, matrix.t(), *place, _sum_type(dx, w, 0))
    else:
        total = _wide_sums(dx.v, w.rows.flip(1, 2).permute(1, 2, 0, 3).reshape(-1, channels), *place)
    with located(where, "BP"):
        return _checked(total, terms, widths, "backward sum", watch)


def _pays(x: Operand, terms: int, outputs: int, rows: int) -> bool:
    """Whether a product of bytes is taken: ``rows`` sums of ``terms`` products for each of the ``outputs``."""
    if terms > _TERMS or not takes_bytes(str(x.v.device)):
        return False
    pieces = 1 if x.narrow else 2
    # A GPU multiplies matrices of more than 16 rows, whose other sizes are multiples of 16.
    return x.v.device.type == "cpu" or (terms >= _FAR_TERMS and terms % 16 == 0 and pieces * outputs % 16 == 0 and rows > 16)


def weight_gradient(
    x: Operand, dx: Operand, w: Weights, g: Geometry, where: str, *, shift: Tensor | None = None, watch: Watch | None = None,
    widths: SumWidths = FULL_WIDTHS,
) -> Tensor:
    """Weight gradients (M, C, Ky, Kx), float64, channels last, summed over the batch; :exc:`ArithmeticFault` if one needs more bits
    than ``widths`` has.

    ``shift`` : int64 (B, 1, 1, 1), by which the errors of every image are aligned first, at most
    :data:`~gradloom.models.golden.run.SPREAD`.
    """
    with located(where, "WG + WU"):
        if shift is not None:
            total, terms = _aligned_gradient(x, dx, g, shift), _UNKNOWN
        else:
            total, terms = _gradient(x, dx, g), len(dx.v) * math.prod(g.out_shape[1:])
        return channels_last(_checked(total, terms, widths, "weight gradient", watch))


def _gradient(x: Operand, dx: Operand, g: Geometry) -> Tensor:
    # A GPU's products of bytes want both factors in an order that windows do not have.
    use_bytes = x.v.device.type == "cpu" and takes_bytes("cpu") and math.prod(g.out_shape[1:]) <= _TERMS
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
    # Only a CPU can look at the operands without waiting for them.
    return torch.int32 if x.v.device.type == "cpu" and x.largest * w.norm(axis) < _NARROW_SUM else torch.float64


def _checked(total: Tensor, terms: int, widths: SumWidths, name: str, watch: Watch | None) -> Tensor:
    """The sums, or a fault; looked at only where the number of terms, and what int32 holds, leave it open how near they come."""
    bits = widths.of(name)
    most = min(terms.bit_length() + _PRODUCT_BITS, _NARROW_SUM.bit_length() if total.dtype == torch.int32 else 64)
    if most <= bits - NEAR_BITS:
        return total
    ends = ends_of(total)
    if watch is not None:
        watch(name, bits, *ends)
    elif most > bits:
        check_ends(name, bits, *(int(end) for end in ends))
    return total


def check_ends(name: str, bits: int, low: int, high: int) -> None:
    """:exc:`ArithmeticFault` if numbers from ``low`` to ``high`` do not fit ``bits``."""
    if low < -(1 << (bits - 1)) or high >= 1 << (bits - 1):
        raise ArithmeticFault(name, bits, f"values {low}..{high} do not fit {bits} bits")


# Bytes


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
    found = []
    for part in _batches(images, count * math.prod(size) * len(matrix), _chunk(pieces)):
        products = _product(windows_of(pieces[:, part], kernel, size, pad, stride, spread), matrix)
        found.append(_joined(products, count == 1, dtype))
    return (found[0] if len(found) == 1 else torch.cat(found)).view(images, *size, outputs).permute(0, 3, 1, 2)


def _byte_gradient(x: Operand, dx: Operand, g: Geometry) -> Tensor:
    size, (ky, kx) = g.out_shape[1:], g.kernel
    count, images, *_ = x.pieces.shape
    outputs, channels, positions = g.out_shape[0], g.in_shape[0], math.prod(size)
    terms = ky * kx * channels
    total = torch.zeros((outputs, terms), dtype=torch.float64, device=x.v.device)
    for part in _batches(images, max(count * positions * terms, _CHUNK * positions // _TERMS), _CHUNK):
        # (M, P, positions), so that the pieces of some outputs are one matrix.
        errors = dx.pieces[:, part].permute(4, 0, 1, 2, 3).reshape(outputs, count, -1)
        windows = windows_of(x.pieces[:, part], g.kernel, size, (g.pad, g.pad), g.stride, 1).tensor_split(count)
        for some in _batches(outputs, terms, _SUMS):
            rows = errors[some].transpose(0, 1).flatten(0, 1)
            products = torch.cat([_product(rows, piece) for piece in windows], 1)
            total[some] += _joined(products, count == 1, torch.float64)
    return total.view(outputs, ky, kx, channels).permute(0, 3, 1, 2)


# float64


def _chunk(x: Tensor) -> int:
    return _CHUNK if x.device.type == "cpu" else _FAR_CHUNK


def _batches(images: int, elements: int, limit: int) -> Iterator[slice]:
    """Parts of a batch of at most ``limit`` elements, ``elements`` of each image."""
    size = max(1, limit // max(elements, 1))
    return (slice(start, min(start + size, images)) for start in range(0, images, size))


def _rows(x: Tensor) -> Tensor:
    """(1, B, Y, X, C), as pieces are."""
    return x.permute(0, 2, 3, 1)[None]


def _wide_sums(
    x: Tensor, matrix: Tensor, kernel: tuple[int, int], size: tuple[int, ...], pad: tuple[int, int], stride: int, spread: int,
) -> Tensor:
    """Sums (B, N, Yo, Xo), channels last, of windows of x with a float64 matrix (Ky Kx C, N)."""
    found = [windows_of(_rows(x[part]), kernel, size, pad, stride, spread, torch.float64) @ matrix
             for part in _batches(len(x), math.prod(size) * len(matrix), _chunk(x))]
    return (found[0] if len(found) == 1 else torch.cat(found)).view(len(x), *size, -1).permute(0, 3, 1, 2)


def _folded(e: Tensor, w: Tensor, g: Geometry) -> Tensor:
    """Backward sums where padding leaves a window without any position of the input."""
    matrix = w.to(torch.float64).reshape(len(w), -1).T
    flat = e.to(torch.float64).reshape(len(e), len(w), -1)
    return channels_last(F.fold(matrix @ flat, g.in_shape[1:], g.kernel, padding=g.pad, stride=g.stride))


def _wide_gradient(x: Tensor, e: Tensor, g: Geometry) -> Tensor:
    size, outputs = g.out_shape[1:], e.shape[1]
    positions, terms = math.prod(size), g.in_shape[0] * math.prod(g.kernel)
    total: Tensor | None = None
    for part in _batches(len(x), positions * terms, _chunk(x)):
        errors = contiguous(_rows(e[part]), torch.float64).view(-1, outputs)
        windows = windows_of(_rows(x[part]), g.kernel, size, (g.pad, g.pad), g.stride, 1, torch.float64)
        count = _products(part.stop - part.start, positions, outputs * terms)
        # Several products at once: a single one of few outputs and very many rows would leave a GPU idle.
        found = torch.bmm(errors.view(count, -1, outputs).transpose(1, 2), windows.view(count, -1, terms)).sum(0)
        total = found if total is None else total.add_(found)
    assert total is not None
    return total.view(outputs, *g.kernel, -1).permute(0, 3, 1, 2)


def _products(images: int, positions: int, sums: int) -> int:
    """Number of products in which a weight gradient of ``sums`` elements is added up: a divisor of the images."""
    wanted = min(max(1, images * positions // _ROWS), max(1, _CHUNK // sums))
    return max(count for count in range(1, min(wanted, images) + 1) if images % count == 0)
