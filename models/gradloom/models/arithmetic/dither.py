"""Random bits as a hash of (run seed, step, tensor, element) (docs/arithmetic.md, section 7)."""

from typing import Any, TypeVar

import numpy as np

__all__ = ["GOLDEN_RATIO", "hash24", "mix32", "random_bits", "tensor_seed"]

GOLDEN_RATIO = 0x9E3779B1
"""Odd multiplier that spreads tensor numbers over 32 bits."""
_MASK24 = (1 << 24) - 1
_MASK32 = (1 << 32) - 1


_Numbers = TypeVar("_Numbers", bound=Any)


def mix32(x: _Numbers) -> _Numbers:
    """Final mixer of murmur3, a bijection of the 32-bit numbers: of an int, or of an array or a tensor of int64."""
    x = x & _MASK32
    x = x ^ (x >> 16)
    # What a product of int64 loses lies above the 32 bits that are kept.
    x = (x * 0x85EBCA6B) & _MASK32
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & _MASK32
    return x ^ (x >> 16)


def tensor_seed(run_seed: int, step: int, tid: int) -> int:
    """32-bit seed of tensor number ``tid`` in a step."""
    return mix32(mix32(run_seed + step) + GOLDEN_RATIO * tid)


def hash24(seed: int, idx: Any) -> np.ndarray:
    """24-bit hash (int64 array) of element indices, which count modulo 2^24, under a 32-bit seed."""
    x = (np.asarray(idx).astype(np.int64) & _MASK24) ^ (seed & _MASK24)
    x = (x + (x << 7)) & _MASK24
    x ^= x >> 5
    x ^= (seed >> 24) & 0xFF
    x = (x + (x << 3)) & _MASK24
    x ^= x >> 9
    return (x + (x << 11)) & _MASK24


def random_bits(seed: int, idx: Any, f: int) -> np.ndarray:
    """F-bit random numbers (int64 array): the top F bits of the hash, 1 <= F <= 24."""
    return hash24(seed, idx) >> (24 - f)
