"""Numbers of the emulator: exact integers in tensors, the formats' encoders and random bits (docs/emulator.md).

A *wide* tensor holds integers, or integers times a power of two, in one of three types:

* float64: at most 53 significant bits, so products with powers of two and floors are exact;
* int32: what provably fits;
* int64: the general rules with saturation and faults, for what may need more than 53 bits.

Exponents and shifts are integers, or int64 tensors (B, 1, 1, 1) in formats that give every image its own.

PINT values are float32 tensors (7 significant bits). Features and errors are (B, C, Y, X) with channels last in memory.
"""

import math
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gradloom.models.arithmetic import feedback, linear, pint
from gradloom.models.arithmetic.arith import ArithmeticFault
from gradloom.models.formats import Coding, Linear, Pint
from gradloom.models.rounding import NEAREST_F

__all__ = ["EXACT_BITS", "PINT8", "Exponent", "Range", "add", "align", "align_int", "channels_last", "codes", "encode",
           "ends_of", "factor", "largest", "place", "power_of_two", "random_increments", "read_ranges", "round_feedback",
           "round_scaled", "rounding_bits", "saturate", "split", "stat_of", "value_table"]

Exponent: TypeAlias = "int | Tensor"
"""Of a tensor, or int64 (B, 1, 1, 1) of its images."""
PINT8 = Pint()

EXACT_BITS = 53
"""Significant bits of float64."""
_LARGEST = (1 << 63) - 1
_MASK24 = (1 << 24) - 1
_SPLIT = 1.5 * 2.0**29
"""Adding and subtracting it rounds a float32 to a multiple of 64: the numbers about 2^29 lie 64 apart."""


@cache
def value_table(device: str) -> Tensor:
    """float32 (256,): values of the PINT(8, 3) codes."""
    return torch.from_numpy(pint.decode(range(256))).to(device, torch.float32)


@cache
def _code_table(coding: Pint, device: str) -> Tensor:
    """uint8 (2^(2k-3),): the code of value v at v + 2^(2k-4)."""
    limit = 1 << coding.value_bits
    values = torch.from_numpy(coding.decode(range(1 << coding.k))).to(torch.int64)
    emitted = pint.code_of_kd(values.numpy(), coding.k, coding.d)
    table = torch.zeros(2 * limit, dtype=torch.uint8)
    table[values + limit] = torch.from_numpy(emitted)
    return table.to(device)


def codes(values: Tensor, coding: Coding) -> np.ndarray:
    """Codes of values (float32), as golden has them."""
    whole = values.contiguous().to(torch.int64)
    if isinstance(coding, Pint):
        return _code_table(coding, str(values.device))[whole + (1 << coding.value_bits)].cpu().numpy()
    assert isinstance(coding, Linear)
    return linear.code_of(whole.cpu().numpy(), coding.bits)


@cache
def _nearest_table(coding: Pint, device: str, dtype: torch.dtype) -> Tensor:
    """(2^(2k-2),): the nearest value, halves upwards, of h / 2 at h + 2^(2k-3), for all h of that magnitude; PINT(8, 3): 16384.

    Rounding to nearest depends on floor(2 A 2^-sh) alone: the bounds of the segments and the halves of their
    steps are multiples of one half.
    """
    k, d, limit = coding.k, coding.d, 1 << (coding.value_bits + 1)
    h = torch.arange(-limit, limit, dtype=torch.int64)
    low, middle = 1 << (d + 1), 1 << (k - 1 + d)
    s = torch.where((h >= -low) & (h < low), 0, torch.where((h >= -middle) & (h < middle), d, k - 2))
    v = (((h >> s) + 1) >> 1) << s
    return v.clamp_(max=_top(coding)).to(device, dtype)


def _top(coding: Pint) -> int:
    return (1 << coding.value_bits) - (1 << (coding.k - 2))


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent, float64, of int64 exponents in -1022..1023."""
    return ((exponent + 1023) << 52).view(torch.float64)


def factor(exponent: Exponent) -> float | Tensor:
    """2^exponent."""
    return power_of_two(exponent) if isinstance(exponent, Tensor) else math.ldexp(1.0, exponent)


def largest(exponent: Exponent) -> int:
    """The largest of the images' exponents."""
    return int(exponent.max()) if isinstance(exponent, Tensor) else exponent


def split(v: Tensor) -> tuple[Tensor, Tensor]:
    """PINT values as a sum of two float32 tensors: a multiple of 64 in -4096..4032, and a rest in -32..32."""
    high = v.add(_SPLIT).sub_(_SPLIT)
    return high, v - high


def align_int(x: int, n: int) -> int:
    """``x 2^n`` as :func:`gradloom.models.arithmetic.arith.align` has it, of one Python integer."""
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


def ends_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest element, without waiting for them."""
    if x.device.type == "cpu":
        # Two passes of vector instructions; the single pass has none in float64.
        return x.amin(), x.amax()
    low, high = torch.aminmax(x.permute(0, 2, 3, 1) if x.dim() == 4 else x)
    return low, high


def place(values: Any, dtype: torch.dtype, device: str | torch.device) -> Tensor:
    """A tensor of some host's numbers on a device, which nobody waits for."""
    found = torch.tensor(values, dtype=dtype)
    if torch.device(device).type == "cuda" and torch.cuda.is_available():
        return found.pin_memory().to(device, non_blocking=True)
    return found.to(device)


class Range:
    """Smallest and largest element of a tensor, below 2^53; ``ends`` when :func:`read_ranges` has read them."""

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.pair = low, high
        self.ends: tuple[float, float] = (math.nan, math.nan)
        self.known = False


def read_ranges(ranges: list[Range]) -> None:
    """Read those that are not known yet, at once."""
    pending = [found for found in ranges if not found.known]
    order: list[Range] = []
    stacked: list[Tensor] = []
    for dtype in {found.pair[0].dtype: None for found in pending}:
        alike = [found for found in pending if found.pair[0].dtype == dtype]
        order += alike
        stacked.append(torch.stack([end for found in alike for end in found.pair]).to(torch.float64))
    numbers = torch.cat(stacked).tolist() if stacked else []
    for place, found in enumerate(order):
        found.ends, found.known = (numbers[2 * place], numbers[2 * place + 1]), True


def saturate(x: Tensor, bits: int) -> Tensor:
    return x.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def add(name: str, first: Tensor, second: Tensor) -> Tensor:
    """Sum of int64 tensors, or :exc:`ArithmeticFault` if an element leaves 64 bits."""
    total = first + second
    if bool((((first ^ total) & (second ^ total)) < 0).any()):
        raise ArithmeticFault(name, 64, "a sum does not fit 64 bits")
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


def round_scaled(scaled: Tensor, f: int, increment: Tensor | None, dtype: torch.dtype, coding: Coding = PINT8) -> Tensor:
    """Values (float32 or int32) of A 2^-sh, given as float64 times 2^:func:`rounding_bits`; overwrites it.

    ``increment`` is 2 r + 1 (int32) of F-bit random numbers r, or ``None`` for nearest.
    """
    return _rounded(_limited(scaled.floor_(), f, coding).to(torch.int32), f, increment, dtype, coding)


def _limited(x: Tensor, f: int, coding: Coding) -> Tensor:
    limit = 1 << (coding.value_bits + rounding_bits(f))
    return x.clamp_(-limit, limit - 1)


def _rounded(fixed: Tensor, f: int, increment: Tensor | None, dtype: torch.dtype, coding: Coding) -> Tensor:
    """Values of int32 numbers with :func:`rounding_bits`, within the coding's range; may overwrite them."""
    if isinstance(coding, Linear):
        low, high = linear.bounds(coding.bits, symmetric=coding.symmetric)
        v = fixed.add_(1) >> 1 if increment is None else fixed.add_(increment) >> (f + 1)
        return v.clamp_(low, high).to(dtype)
    assert isinstance(coding, Pint)
    return _nearest(fixed, dtype, coding) if increment is None else _stochastic(fixed, f, increment, coding).to(dtype)


def _nearest(half: Tensor, dtype: torch.dtype, coding: Pint) -> Tensor:
    """PINT values of int32 numbers of halves, which are overwritten."""
    index = half.add_(1 << (coding.value_bits + 1))
    table = _nearest_table(coding, str(index.device), dtype)
    if index.dim() != 4:
        return table.index_select(0, index.reshape(-1)).view(index.shape)
    rows = index.permute(0, 2, 3, 1)
    return table.index_select(0, rows.reshape(-1)).view(rows.shape).permute(0, 3, 1, 2)


def _segments(g: Tensor, f: int, coding: Pint) -> Tensor:
    """Logarithm of the step (int32) of the segment that holds g, F + 1 fraction bits."""
    k, d = coding.k, coding.d
    magnitude = g ^ (g >> 31)
    s = (magnitude >> (d + f + 1)).clamp_(max=1).mul_(d)
    magnitude >>= k - 2 + d + f + 1
    return s.add_(magnitude.clamp_(max=1).mul_(k - 2 - d))


def round_feedback(scaled: Tensor, increment: Tensor) -> tuple[Tensor, Tensor]:
    """PINT(8, 3) values of A 2^-sh and the numbers that they are of, in units of 2^-8 (:mod:`gradloom.models.arithmetic.feedback`),
    both float32.

    Parameters
    ----------
    scaled : float64, times 2^17; overwritten
    increment : int32
        2 r + 1 of 8-bit random numbers r.
    """
    f, bits = feedback.FEEDBACK_F, feedback.REST_BITS
    g = _limited(scaled.floor_(), f, PINT8).to(torch.int32)
    s = _segments(g, f, PINT8)
    g >>= s
    g += increment
    g >>= feedback.RANDOM_BITS + 1
    values = g + (1 << bits - 1)
    values >>= bits
    values <<= s
    g <<= s
    return values.clamp_(max=_top(PINT8)).to(torch.float32), g.clamp_(max=feedback.LARGEST).to(torch.float32)


def _stochastic(g: Tensor, f: int, increment: Tensor, coding: Pint) -> Tensor:
    """int32 PINT values of g, F + 1 fraction bits, cut to the format's range."""
    s = _segments(g, f, coding)
    v = (g >> s).add_(increment)
    v >>= f + 1
    v <<= s
    return v.clamp_(max=_top(coding))


def encode(wide: Tensor, sh: Exponent, f: int, increment: Tensor | None, coding: Coding = PINT8) -> Tensor:
    """Values (float32) of a wide tensor at the shift ``sh``; a float64 or int32 ``wide`` may be overwritten."""
    bits = rounding_bits(f)
    if wide.dtype == torch.int64:
        fixed = _limited(align(wide, bits - sh), f, coding).to(torch.int32)
        return _rounded(fixed, f, increment, torch.float32, coding)
    if wide.dtype == torch.int32 and increment is None and isinstance(sh, int) and sh >= 1:
        return _rounded(_limited(wide >> min(sh - 1, 31), f, coding), f, None, torch.float32, coding)
    return round_scaled(wide.to(torch.float64).mul_(factor(bits - sh)), f, increment, torch.float32, coding)


def random_increments(seed: int | tuple[Tensor, Tensor], index: Tensor, f: int) -> Tensor:
    """2 r + 1, int32, r the F-bit random numbers of element indices (int32, already modulo 2^24) under a 32-bit seed.

    ``seed`` : the same for all, or the lower 24 and the upper 8 bits of every element's (int32).
    """
    low, high = (seed & _MASK24, seed >> 24) if isinstance(seed, int) else seed
    # What a product of int32 loses lies above the 24 bits that are kept.
    x = index ^ low
    x.mul_(129).bitwise_and_(_MASK24)
    x ^= x >> 5
    x ^= high
    x.mul_(9).bitwise_and_(_MASK24)
    x ^= x >> 9
    x.mul_(2049).bitwise_and_(_MASK24)
    x >>= 23 - f
    return x.bitwise_or_(1)
