"""Taps of the A-Core's pools in the order of :mod:`gradloom.rtl.acore.poolwalk`: one stored beat a cycle."""

import functools

import numpy as np

from gradloom.host.dram.layout import ceil_div
from gradloom.host.program.assembler import Instruction

__all__ = ["pool_addresses", "pool_cycles"]

_FIELDS = ("pool", "pkern", "pstride", "ppad", "poff", "pyi", "pxi", "py", "xe", "xodd")
"""Fields of RUN that say what is walked."""


def pool_addresses(instruction: Instruction) -> np.ndarray:
    """Addresses (taps,) of the taps of a plane of a RUN, in beats from the plane's first one on."""
    return _addresses(*(instruction[name] for name in _FIELDS))


def pool_cycles(instruction: Instruction) -> int:
    """Cycles of a plane's walk, one for every tap."""
    return len(pool_addresses(instruction))


@functools.lru_cache
def _addresses(pool: int, kernel: int, stride: int, pad: int, offset: int, rows_in: int, columns_in: int, rows: int, beats: int,
               odd: int) -> np.ndarray:
    row = ceil_div(columns_in, 2)
    found: list[int] = []
    for y in range(rows):
        for beat in range(beats):
            if pool == 1:
                above = y * stride - pad - offset
                wide = 0 if odd and beat == beats - 1 else stride
                count = max(1, ceil_div(kernel + wide + pad % 2, 2))
                left = beat * stride - ceil_div(pad, 2)
                found += [(above + tap) * row + left + column for tap in range(kernel) for column in range(count)]
            else:
                below, tap_y = divmod(pad + offset + y, stride)
                right, tap_x = divmod(2 * beat + 1 + pad, 2 * stride)
                high = max(1, ceil_div(kernel - tap_y, stride))
                count = 1 + ceil_div(max(0, kernel - stride - tap_x + 1), 2 * stride)
                found += [(below - tap) * row + right - column for tap in range(high) for column in range(count)]
    return np.array(found)
