"""The larger memories of a machine, and what they take: block RAMs, and the LUTs of those that are distributed RAM.

They follow from the configuration exactly: words and widths are those of docs/machine.md, section 3, and ``lutram_bits`` says which
memory is distributed RAM. verif/tests/host/explore/test_block_ram.py holds them against every synthesis that there is.
"""

import dataclasses
from collections.abc import Iterator

from gradloom.contracts.config import WEIGHT_BANKS, Config
from gradloom.contracts.engines import units
from gradloom.contracts.microcode import MICRO_BITS
from gradloom.contracts.pipeline import FETCH_BEATS

__all__ = ["Stored", "block_rams", "grouped_block_rams", "lut_rams", "memories"]

_ASPECTS = ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))
"""Bits and words of a block RAM of 18 Kbit (Xilinx UG473, table 1-8; Lattice FPGA-TN-02204)."""
_BLOCK_BITS = 18 * 1024
_BLOCK_WORDS = 512
_SUM_GROUPS, _SUM_BITS, _EXPONENTIAL_BITS, _TAIL_WORDS = 3, 44, 16, 128
_LUTRAM_WORDS, _LUTRAM_BITS, _LUTRAM_LUTS = 64, 3, 4
"""A RAM64M of the Xilinx 7 series: so many words of so many bits with one read port of its own, in so many LUTs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """``count`` memories of ``depth`` words of ``width`` bits.

    Parameters
    ----------
    group : :class:`str`
        Of parts, as in :mod:`gradloom.host.explore.resource_model`.
    reads : :class:`int`
        Read ports; a block RAM has one.
    lanes : :class:`int`
        Parts of a word that lie in block RAMs of their own, as each is written alone.
    sparse : :class:`bool`
        Whether it may be distributed RAM by ``lutram_bits``.
    """

    name: str
    group: str
    count: int
    width: int
    depth: int
    reads: int = 1
    lanes: int = 1
    sparse: bool = True


def _halves(width: int, depth: int) -> int:
    """Block RAMs of 18 Kbit."""
    return min(-(-width // bits) * -(-depth // words) for bits, words in _ASPECTS)


def memories(config: Config, family: str) -> Iterator[Stored]:
    """Every memory that is block RAM, or distributed RAM by ``lutram_bits``."""
    channels, beat = config.group, 8 * config.beat_bytes
    rows, wpus = config.row_banks, config.clusters * config.wpus
    acore, queues, registers = "A-Core's rest", "queues and counters", "Sequencer and registers"
    for name, depth in (("ibuf", config.ibuf_depth), ("ebuf", config.ebuf_depth)):
        rest = depth % _BLOCK_WORDS
        for part in (depth - rest, rest):
            if part:
                yield Stored(name=name, group="input network", count=rows, width=beat, depth=part)
    # A block of one channel fills half a beat.
    yield Stored(name="wbuf", group="weight network", count=WEIGHT_BANKS * config.laps * max(1, config.block_beats // config.laps),
                 width=8 if channels == 1 else 16 * config.cols, depth=config.laps * config.wbuf_depth, sparse=False)
    yield Stored(name="weight gradients", group="drain", count=config.laps, width=2 * config.cols * config.wg_width,
                 depth=config.dw_depth, sparse=False)
    yield Stored(name="partial sums", group="window processing units", count=8 * wpus, width=config.psum_width,
                 depth=config.psum_depth, sparse=False)
    if family == "ecp5":
        # The Xilinx 7 series has them in LUTs, which count with a WPU's.
        yield Stored(name="magnitudes", group="window processing units", count=wpus, width=_SUM_GROUPS * _SUM_BITS,
                     depth=4 * config.max_planes, sparse=False)
    half = -(-config.abuf_depth // 2)
    yield Stored(name="aa, ab, oa", group=acore, count=6, width=beat, depth=half)
    yield Stored(name="ob", group=acore, count=1, width=beat, depth=config.abuf_depth)
    yield Stored(name="am", group=acore, count=1, width=beat, depth=config.mbuf_depth, reads=2)
    yield Stored(name="om", group=acore, count=1, width=beat, depth=config.mbuf_depth)
    if config.export_depth:
        yield Stored(name="xin", group=acore, count=1, width=8 * beat, depth=max(2, config.export_depth))
        yield Stored(name="xout", group=acore, count=1, width=8 * beat, depth=max(2, config.export_depth))
    yield Stored(name="logits", group=acore, count=1, width=2 * beat, depth=config.logit_depth)
    yield Stored(name="parameters", group=acore, count=1, width=4 * beat, depth=config.pbuf_depth, lanes=channels)
    yield Stored(name="microcode", group=acore, count=1, width=MICRO_BITS, depth=config.microcode_depth)
    yield Stored(name="exponentials", group=acore, count=1, width=_EXPONENTIAL_BITS, depth=max(256, config.max_classes),
                 sparse=False)
    yield Stored(name="queues", group=queues, count=len(units(config)), width=64, depth=config.queue_words // 2, sparse=False)
    yield Stored(name="commands' tails", group=queues, count=1, width=64, depth=_TAIL_WORDS)
    yield Stored(name="statistics", group=registers, count=1, width=64, depth=config.tensors, reads=2)
    yield Stored(name="exponents", group=registers, count=1, width=16, depth=config.tensors, reads=2)
    yield Stored(name="seeds", group=registers, count=1, width=32, depth=config.tensors, sparse=False)
    yield Stored(name="program", group=registers, count=1, width=64, depth=_BLOCK_WORDS, sparse=False)
    if not config.lutram_bits:
        yield Stored(name="fetched", group="DMA channels", count=1, width=beat + 2, depth=FETCH_BEATS, sparse=False)
    if config.counters == "all":
        yield Stored(name="tables by tag", group=queues, count=len(units(config)) + 1, width=36, depth=_BLOCK_WORDS, sparse=False)


def _distributed(config: Config, stored: Stored) -> bool:
    """Whether a memory is distributed RAM: small enough, and less than half of its block RAMs (``lutram_bits``)."""
    bits = stored.width * stored.depth
    return stored.sparse and bits <= config.lutram_bits and 2 * bits < _halves(stored.width, stored.depth) * _BLOCK_BITS


def block_rams(config: Config, family: str) -> float:
    """Block RAMs: of 36 Kbit for xc7, where half a one is one of 18 Kbit, of 18 Kbit for ecp5."""
    return sum(grouped_block_rams(config, family).values())


def grouped_block_rams(config: Config, family: str) -> dict[str, float]:
    """The same by group of parts."""
    found: dict[str, float] = {}
    for stored in memories(config, family):
        if not _distributed(config, stored):
            halves = stored.count * stored.reads * stored.lanes * _halves(-(-stored.width // stored.lanes), stored.depth)
            found[stored.group] = found.get(stored.group, 0) + (halves / 2 if family == "xc7" else halves)
    return found


def lut_rams(config: Config, family: str) -> dict[str, int]:
    """LUTs of distributed RAM by group; none for ecp5, whose block RAMs hold all of :func:`memories`."""
    found: dict[str, int] = {}
    for stored in memories(config, family):
        if _distributed(config, stored):
            luts = _LUTRAM_LUTS * -(-stored.width // _LUTRAM_BITS) * -(-stored.depth // _LUTRAM_WORDS)
            found[stored.group] = found.get(stored.group, 0) + stored.count * stored.reads * luts
    return found
