"""Numbers of the emulator: exact integers in tensors, the PINT(8, 3) encoder and random bits (docs/emulator.md).

A *wide* tensor holds integers, or integers times a power of two, in one of three types:

* float64: at most 53 significant bits, so products with powers of two and floors are exact;
* int32: what provably fits;
* int64: the general rules with saturation and faults, for what may need more than 53 bits.

PINT values are float32 tensors (7 significant bits). Features and errors are (B, C, Y, X) with channels last in memory.
"""

import math
from functools import cache

import torch
from torch import Tensor

from gradloom.models import pint
from gradloom.models.arith import ArithmeticFault
from gradloom.models.rounding import NEAREST_F

__all__ = ["EXACT_BITS", "add", "align", "align_int", "channels_last", "code_table", "encode", "power_of_two", "random_increments",
           "round_scaled", "rounding_bits", "saturate", "split", "stat_of", "value_table"]

EXACT_BITS = 53
"""Significant bits of float64."""
_LARGEST = (1 << 63) - 1
_MASK24 = (1 << 24) - 1
_SPLIT = 1.5 * 2.0**29
"""Adding and subtracting it rounds a float32 to a multiple of 64: the numbers about 2^29 lie 64 apart."""


@cache
def value_table(device: str) -> Tensor:
    """float32 (256,): values of the PINT codes."""
    return torch.from_numpy(pint.decode(range(256))).to(device, torch.float32)


@cache
def code_table(device: str) -> Tensor:
    """uint8 (8192,): the code of value v at v + 4096."""
    values = torch.from_numpy(pint.decode(range(256))).to(torch.int64)
    table = torch.zeros(8192, dtype=torch.uint8)
    # 0x80 and 0xFF decode to values that have another code, and are never written.
    emitted = [code for code in range(256) if code not in (0x80, 0xFF)]
    table[values[emitted] + 4096] = torch.tensor(emitted, dtype=torch.uint8)
    return table.to(device)


@cache
def _nearest_table(device: str, dtype: torch.dtype) -> Tensor:
    """(16384,): the nearest value, halves upwards, of h / 2 at h + 8192, for h in -8192..8191.

    Rounding to nearest depends on floor(2 A 2^-sh) alone: the bounds of the segments and the halves of their
    steps are multiples of one half.
    """
    h = torch.arange(-8192, 8192, dtype=torch.int64)
    s = torch.where((h >= -16) & (h < 16), 0, torch.where((h >= -1024) & (h < 1024), 3, 6))
    v = (((h >> s) + 1) >> 1) << s
    return v.clamp_(max=pint.MAX_VALUE).to(device, dtype)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent, float64, of int64 exponents in -1022..1023."""
    return ((exponent + 1023) << 52).view(torch.float64)


def split(v: Tensor) -> tuple[Tensor, Tensor]:
    """PINT values as a sum of two float32 tensors: a multiple of 64 in -4096..4032, and a rest in -32..32."""
    high = v.add(_SPLIT).sub_(_SPLIT)
    return high, v - high


def align_int(x: int, n: int) -> int:
    """``x 2^n`` as :func:`gradloom.models.arith.align` has it, of one Python integer."""
    shifted = x << min(n, 64) if n >= 0 else x >> -n
    return min(max(shifted, -_LARGEST - 1), _LARGEST)


def align(x: Tensor, n: int | Tensor) -> Tensor:
    """``x 2^n`` of int64: a left shift saturates to 64 bits, a right shift floors. ``n`` may be an int64 tensor."""
    if isinstance(n, int):
        if n <= 0:
            return x >> min(-n, 63)
        n = min(n, 63)
        shifted = x << n
        fits = (shifted >> n) == x
    else:
        right, left = (-n).clamp(0, 63), n.clamp(0, 63)
        shifted = (x >> right) << left
        fits = (shifted >> left) == x >> right
    return torch.where(fits, shifted, torch.where(x < 0, -_LARGEST - 1, _LARGEST))


def saturate(x: Tensor, bits: int) -> Tensor:
    return x.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def add(name: str, first: Tensor, second: Tensor) -> Tensor:
    """Sum of int64 tensors, or :exc:`ArithmeticFault` if an element leaves 64 bits."""
    total = first + second
    if bool((((first ^ total) & (second ^ total)) < 0).any()):
        raise ArithmeticFault(f"{name}: a sum does not fit 64 bits")
    return total


def stat_of(low: float, high: float, n: int) -> int:
    """A number as long as the statistics of elements that lie in low..high, aligned by n = F + 1 - sh.

    Only its bit length counts: the OR of ``g ^ (g >> 63)`` is as long as the largest of them, which belongs to the
    smallest or the largest g.
    """
    ends = [align_int(x, n) if isinstance(x, int) else math.floor(math.ldexp(x, n)) for x in (low, high)]
    return min(max(x if x >= 0 else -1 - x for x in ends), _LARGEST)


def rounding_bits(f: int) -> int:
    """Fraction bits that rounding looks at: a half's for nearest, F + 1 for stochastic."""
    return 1 if f == NEAREST_F else f + 1


def round_scaled(scaled: Tensor, f: int, increment: Tensor | None, dtype: torch.dtype) -> Tensor:
    """PINT values (float32 or int32) of A 2^-sh, given as float64 times 2^:func:`rounding_bits`; overwrites it.

    ``increment`` is 2 r + 1 (int32) of F-bit random numbers r, or ``None`` for nearest.
    """
    bits = 12 + rounding_bits(f)
    fixed = scaled.floor_().clamp_(-(1 << bits), (1 << bits) - 1).to(torch.int32)
    return _nearest(fixed, dtype) if increment is None else _stochastic(fixed, f, increment).to(dtype)


def _nearest(half: Tensor, dtype: torch.dtype) -> Tensor:
    """Values of int32 numbers of halves in -8192..8191, which are overwritten."""
    index = half.add_(8192)
    table = _nearest_table(str(index.device), dtype)
    if index.dim() != 4:
        return table.index_select(0, index.reshape(-1)).view(index.shape)
    rows = index.permute(0, 2, 3, 1)
    return table.index_select(0, rows.reshape(-1)).view(rows.shape).permute(0, 3, 1, 2)


def _stochastic(g: Tensor, f: int, increment: Tensor) -> Tensor:
    """int32 values of g, F + 1 fraction bits, cut to the format's range."""
    magnitude = g ^ (g >> 31)
    s = (magnitude >> (3 + f + 1)).clamp_(max=1)
    magnitude >>= 9 + f + 1
    s.add_(magnitude.clamp_(max=1)).mul_(3)
    v = (g >> s).add_(increment)
    v >>= f + 1
    v <<= s
    return v.clamp_(max=pint.MAX_VALUE)


def encode(wide: Tensor, sh: int, f: int, increment: Tensor | None) -> Tensor:
    """PINT values (float32) of a wide tensor at the shift ``sh``; a float64 or int32 ``wide`` may be overwritten."""
    bits = rounding_bits(f)
    if wide.dtype == torch.int64:
        limit = 1 << (12 + bits)
        fixed = align(wide, bits - sh).clamp_(-limit, limit - 1).to(torch.int32)
        return _nearest(fixed, torch.float32) if increment is None else _stochastic(fixed, f, increment).to(torch.float32)
    if wide.dtype == torch.int32 and increment is None and sh >= 1:
        return _nearest((wide >> min(sh - 1, 31)).clamp_(-8192, 8191), torch.float32)
    return round_scaled(wide.to(torch.float64).mul_(math.ldexp(1.0, bits - sh)), f, increment, torch.float32)


def random_increments(seed: int, index: Tensor, f: int) -> Tensor:
    """2 r + 1, int32, r the F-bit random numbers of element indices (int32, already modulo 2^24) under a 32-bit seed."""
    # What a product of int32 loses lies above the 24 bits that are kept.
    x = index ^ (seed & _MASK24)
    x.mul_(129).bitwise_and_(_MASK24)
    x ^= x >> 5
    x ^= (seed >> 24) & 0xFF
    x.mul_(9).bitwise_and_(_MASK24)
    x ^= x >> 9
    x.mul_(2049).bitwise_and_(_MASK24)
    x >>= 23 - f
    return x.bitwise_or_(1)
