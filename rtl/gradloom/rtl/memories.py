"""Which memories lie in block RAM, and which in the LUTs of an FPGA."""

from collections.abc import Sequence

from amaranth.hdl import Shape, ShapeLike
from amaranth.lib.memory import Memory

__all__ = ["BLOCK_WORDS", "make_memory"]

BLOCK_WORDS = 512
"""Words of a block RAM of 18 Kbit at its widest, 36 bits."""
_BLOCK_BITS = 18 * 1024
_ASPECTS = ((36, BLOCK_WORDS), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))
"""Bits and words of such a block (Xilinx UG473, table 1-8; Lattice DP16KD has the same but for 36 bits)."""


def _blocks(width: int, depth: int) -> int:
    """Block RAMs of 18 Kbit that a memory takes."""
    return min(-(-width // bits) * -(-depth // words) for bits, words in _ASPECTS)


def make_memory(shape: ShapeLike, depth: int, lutram_bits: int, init: Sequence[int] = ()) -> Memory:
    """A memory of ``depth`` words: distributed RAM if it has at most ``lutram_bits`` bits (:class:`gradloom.rtl.config.Config`)
    and would fill less than half of its block RAMs."""
    width = Shape.cast(shape).width
    sparse = width * depth <= lutram_bits and 2 * width * depth < _blocks(width, depth) * _BLOCK_BITS
    return Memory(shape=shape, depth=depth, init=init, attrs={"ram_style": "distributed"} if sparse else {})
