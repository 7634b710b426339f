"""What is wrong with a move between DRAM and a memory on chip: LOAD and STORE."""

from collections.abc import Iterator

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels
from gradloom.contracts.isa import Dest, Source
from gradloom.host.program.address_check import within
from gradloom.host.program.assembler import Instruction

__all__ = ["check_load", "check_store"]

_ENTRY_BEATS = 4
"""Beats of an entry of the parameter buffer."""
_WIDE_BEATS = 8
"""Beats of an address of XIN or XOUT: two wide sums for each channel of a group."""


def _transfer(f: Instruction, config: Config) -> Iterator[str]:
    """Sizes and strides of either direction."""
    if not (f["n0"] and f["n1"] and f["n2"]):
        yield "n0, n1 and n2 must be above 0"
    for name in ("offset", "stride1", "stride2"):
        if f[name] % config.beat_bytes:
            yield f"{name} {f[name]} is no multiple of the beat of {config.beat_bytes} bytes"


def check_load(f: Instruction, config: Config) -> Iterator[str]:
    """A sentence for every defect of a LOAD, but for its addresses in DRAM."""
    yield from _transfer(f, config)
    if f["dest"] not in set(Dest):
        yield f"there is no memory {f['dest']}"
        return
    ways = len(load_channels(config, f["dest"]))
    if f["way"] >= ways:
        yield f"there is no way {f['way']} to {Dest(f['dest']).name}: {ways} of the load channels lead there"
    dest, beats = Dest(f["dest"]), f["n2"] * f["n1"] * f["n0"]
    if dest in (Dest.IBUF, Dest.EBUF):
        yield from _load_rows(f, config, config.ibuf_depth if dest == Dest.IBUF else config.ebuf_depth)
    elif dest == Dest.WBUF:
        if f["n0"] % config.block_beats:
            yield f"n0 {f['n0']} is no whole number of blocks of {config.block_beats} beats"
        blocks = f["n0"] // config.block_beats
        reach = blocks if f["linear"] else (f["bank0"] + blocks - 1) // 3 + 1
        if f["bank0"] > 2:
            yield f"there is no bank {f['bank0']}"
        yield from within(
            "weight buffer addresses",
            f["addr0"],
            (f["n2"] * f["n1"] - 1) * f["ostep"] + reach,
            config.wbuf_depth,
        )
    else:
        each, size = {
            Dest.AA: (1, config.abuf_depth),
            Dest.AB: (1, config.abuf_depth),
            Dest.AM: (1, config.mbuf_depth),
            Dest.PBUF: (_ENTRY_BEATS, config.pbuf_depth),
            Dest.XIN: (_WIDE_BEATS, config.export_depth),
            Dest.LABEL: (1, config.max_planes),
        }[dest]
        yield from _in_order(dest.name, beats, each, 0 if dest == Dest.XIN else f["addr0"], size)


def _load_rows(f: Instruction, config: Config, depth: int) -> Iterator[str]:
    """Rows in the row banks of inputs or of errors, of ``depth`` addresses each."""
    if not f["xb"] or f["n1"] * f["n0"] % f["xb"]:
        yield f"{f['n1'] * f['n0']} beats are no whole number of rows of {f['xb']}"
        return
    if f["bstep"] not in (1, 3) or f["bank0"] >= config.row_banks:
        yield f"bank {f['bank0']}, step {f['bstep']}: banks are 0..{config.row_banks - 1}, steps 1 or 3"
    rows = f["n1"] * f["n0"] // f["xb"]
    wraps = (f["bank0"] + (rows - 1) * f["bstep"]) // config.row_banks
    yield from within(
        "row bank addresses", f["addr0"], (f["n2"] - 1) * f["ostep"] + wraps * f["xe"] + f["xb"], depth
    )


def check_store(f: Instruction, config: Config) -> Iterator[str]:
    """A sentence for every defect of a STORE, but for its addresses in DRAM."""
    yield from _transfer(f, config)
    if f["src"] not in set(Source):
        yield f"there is no memory {f['src']}"
        return
    source = Source(f["src"])
    each, size = {
        Source.OA: (1, config.abuf_depth),
        Source.OB: (1, config.abuf_depth),
        Source.OM: (1, config.mbuf_depth),
        Source.PBUF: (_ENTRY_BEATS, config.pbuf_depth),
        Source.XOUT: (_WIDE_BEATS, config.export_depth),
        Source.LOGIT: (2, config.logit_depth),
    }[source]
    yield from _in_order(source.name, f["n2"] * f["n1"] * f["n0"], each, 0 if source == Source.XOUT else f["addr0"], size)


def _in_order(name: str, beats: int, each: int, first: int, size: int) -> Iterator[str]:
    """Beats at successive addresses of a memory of ``size``, ``each`` of them an address."""
    if beats % each:
        yield f"{beats} beats are no whole number of {name} addresses of {each} beats"
    yield from within(f"{name} addresses", first, beats // each, size)
