"""Which memories lie in block RAM, and which in the LUTs of an FPGA."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib.memory import Memory

__all__ = ["BLOCK_WORDS", "cleared_read", "make_memory", "memory_apart"]

BLOCK_WORDS = 512
"""Words of a block RAM of 18 Kbit at its widest, 36 bits."""
_BLOCK_BITS = 18 * 1024
_ASPECTS = ((36, BLOCK_WORDS), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))
"""Bits and words of such a block (Xilinx UG473, table 1-8; Lattice DP16KD has the same but for 36 bits)."""


def _blocks(width: int, depth: int) -> int:
    """Block RAMs of 18 Kbit that a memory takes."""
    return min(-(-width // bits) * -(-depth // words) for bits, words in _ASPECTS)


def make_memory(shape: ShapeLike, depth: int, lutram_bits: int, init: Sequence[int] = ()) -> Memory:
    """A memory of ``depth`` words: distributed RAM if it has at most ``lutram_bits`` bits
    (:class:`gradloom.contracts.config.Config`) and would fill less than half of its block RAMs."""
    width = Shape.cast(shape).width
    sparse = width * depth <= lutram_bits and 2 * width * depth < _blocks(width, depth) * _BLOCK_BITS
    return Memory(shape=shape, depth=depth, init=init, attrs={"ram_style": "distributed"} if sparse else {})


def memory_apart(shape: ShapeLike, depth: int, family: str, *, lutram_bits: int = 0) -> Memory:
    """A memory of which no word is read, or nothing is made of it, in the cycle in which it is written.

    On ECP5 a block RAM then gives anything. Otherwise synthesis puts a copy of the written word beside it, a LUT4 and a flip-flop
    a bit, to give what was there before as simulators do and the block RAM of the Xilinx 7 series does by itself.
    """
    if family == "any":
        return make_memory(shape, depth, lutram_bits)
    return Memory(shape=shape, depth=depth, init=[], attrs={"no_rw_check": 1})


def cleared_read(m: Module, memory: Memory, name: str, addr: Value, clear: Value) -> Signal:
    """What a memory holds at ``addr``, or 0 with ``clear``, one cycle later: block RAM of ECP5 resets its output register."""
    port = memory.read_port(domain="comb")
    word = Signal.like(port.data, name=name, reset_less=True)
    m.d.comb += port.addr.eq(addr)
    m.d.sync += word.eq(Mux(clear, 0, port.data))
    return word
