"""The one description of a machine: a frozen, validated :class:`Config` and its presets.

Array = ``clusters`` (output channels) x ``wpus`` (output rows) x 3 PE rows x ``cols`` (input channels) PEs x 3 MACs
(ETA, section IV-B3 and figure 8). A channel group is as wide as there are clusters; where there are only half as many columns,
the array takes a group's input channels in two laps.
"""

import dataclasses
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

__all__ = ["APU_SHIFTERS", "COUNTERS", "FAMILIES", "MACS", "PE_ROWS", "PE_TAPS", "PRESETS", "WEIGHT_BANKS", "Config", "ConfigError",
           "added", "load_config"]

FAMILIES = ("any", "ecp5")
"""Families of FPGA that a machine is shaped for (:class:`Config`)."""

MACS = ("decode_once", "double_pumped", "post_shift")
"""Kinds of MAC (:mod:`gradloom.rtl.ccore.mac`)."""
COUNTERS = ("all", "totals", "none")
"""How many performance counters a machine has (:mod:`gradloom.rtl.registers.counters`)."""
APU_SHIFTERS = ("multiplier", "lut")
"""What shifts in the lanes of the A-Core (:mod:`gradloom.rtl.acore.align`)."""
PE_ROWS = 3
"""PE rows of a window processing unit (kernel rows)."""
PE_TAPS = 3
"""MACs of a PE (kernel columns)."""
WEIGHT_BANKS = PE_TAPS
"""Of the weight buffer: one for each MAC of a PE."""


class ConfigError(ValueError):
    """A configuration that breaks a rule; the message names the field, the rule and the fix."""


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise ConfigError(why)


_ADDED = "added"


def added(default: int | str) -> Any:
    """A field of :class:`Config` that earlier machines did not have; its default is what they are."""
    return dataclasses.field(default=default, metadata={_ADDED: True})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of one machine.

    Parameters
    ----------
    name : :class:`str`
        Used for file names and messages.
    clusters, wpus, cols : :class:`int`
        Array shape. ``clusters`` is also G, the channel group of every memory layout, and ``cols`` is G or half of it.
    mac : :class:`str`
        ``"decode_once"`` (13 x 13 multiplier on decoded operands), ``"double_pumped"`` (the same; on the Xilinx 7 series a slice
        at twice the clock is the MAC of two clusters) or ``"post_shift"`` (7 x 7 multiplier and a shifter on codes, ETA figure
        4(a)). All give the same bytes in the same cycles.
    psum_width, wg_width : :class:`int`
        Bits of a partial sum (FP, BP), 32 to 48, and of a weight-gradient accumulator (WG), from ``psum_width`` to 48. They limit
        what the machine can compute, and change no byte of it (docs/arithmetic.md, section 2).
    ibuf_depth, ebuf_depth : :class:`int`
        Entries (2 columns x G bytes) of each of the ``3 * wpus`` row banks of input and error buffer.
    wbuf_depth : :class:`int`
        Blocks (G x G bytes) of each of the 3 banks of the weight buffer.
    psum_depth : :class:`int`
        Words of each of the 4 banks of one half of a WPU's partial-sum buffer.
    abuf_depth, mbuf_depth : :class:`int`
        Beats (2 x G bytes) of each auxiliary byte buffer, resp. bitmap buffer, of the A-Core.
    pbuf_depth : :class:`int`
        Entries (G x 64 bits) of the parameter buffer.
    dw_depth : :class:`int`
        Beats (2 x G weight-gradient sums) of the weight-gradient buffer.
    export_depth : :class:`int`
        Beats (2 x G int64) of the buffers in which sums of weight gradients come from DRAM and go there, a power of two: the
        most that one command of an exporting program may take. 0: there are none, and a batch cannot be trained in parts.
    max_planes : :class:`int`
        Planes (images of one channel group) that one A-Core command may take.
    max_classes : :class:`int`
        Largest number of logits of the softmax unit.
    logit_depth : :class:`int`
        Entries (G x 32 bits) of the logit buffer; an image takes one for every G classes.
    tensors : :class:`int`
        Entries of the exponent file.
    queue_words : :class:`int`
        Depth of each engine's command queue in 32-bit words, even.
    microcode_depth : :class:`int`
        Microinstructions of the A-Core's program memory.
    lutram_bits : :class:`int`
        Most bits of a memory that is distributed RAM if it would leave block RAM more than half empty; for the Xilinx 7 series,
        where a six-input LUT holds 64 bits. 0: none.
    load_channels, store_channels : :class:`int`
        Loaders and Storers that run side by side, each with a command queue and an AXI4 port half of its own
        (:mod:`gradloom.contracts.engines` says which memory belongs to which).
    counters : :class:`str`
        ``"all"`` performance counters; ``"totals"``, without the tables by tag (a block RAM and some 130 LUTs each); or ``"none"``,
        without the totals of engines and memory ports (48 flip-flops and some 100 LUTs each) as well. What is absent reads 0;
        CYCLES is always there.
    family : :class:`str`
        ``"ecp5"``: the array, its sums and its networks are made of the cells of Lattice ECP5 (:mod:`gradloom.rtl.ecp5`), for
        ``mac = "decode_once"``; ``"any"``: they are as the Xilinx 7 series wants them, and fit any family. Same bytes, same cycles.
    apu_channels, apu_lanes : :class:`int`
        Channels of a group that an APU of the A-Core serves one after the other, a power of two up to G, and its lanes, 2 or 1. An
        APU takes a beat in ``turns`` = ``apu_channels`` * 2 / ``apu_lanes`` cycles.
    apu_shifters : :class:`str`
        Lanes shift by ``"multiplier"`` (6 of the 11 multipliers of a lane) or by multiplexers, ``"lut"``, where multipliers are
        short; the softmax unit and the pools' walk then have none. The same cycles.
    divider_bits : :class:`int`
        Bits of a quotient that a division block of the A-Core makes in a cycle, 2 or 1. With 2 the softmax unit divides a class a
        cycle, with 1 a class in 18 cycles.

    Raises
    ------
    :exc:`ConfigError`
        If a field breaks a rule.
    """

    name: str
    clusters: int
    wpus: int
    cols: int
    mac: str = "decode_once"
    psum_width: int = 36
    wg_width: int = 48
    ibuf_depth: int = 2048
    ebuf_depth: int = 1024
    wbuf_depth: int = 512
    psum_depth: int = 128
    abuf_depth: int = 1024
    mbuf_depth: int = 256
    pbuf_depth: int = 256
    dw_depth: int = 128
    export_depth: int = 128
    max_planes: int = 32
    max_classes: int = 64
    logit_depth: int = 1024
    tensors: int = 256
    queue_words: int = 128
    microcode_depth: int = 256
    lutram_bits: int = 0
    load_channels: int = 1
    store_channels: int = 1
    counters: str = added("all")
    family: str = added("any")
    apu_channels: int = added(1)
    apu_lanes: int = added(2)
    apu_shifters: str = added("multiplier")
    divider_bits: int = added(2)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, str) or field.name == "name":
                _require(isinstance(value, str), f"{field.name} must be a string, not {value!r}")
                continue
            least = 0 if field.name in ("lutram_bits", "export_depth") else 1
            _require(isinstance(value, int) and not isinstance(value, bool) and value >= least,
                     f"{field.name} must be a {'positive ' if least else 'non-negative '}integer, not {value!r}")
        _require(self.mac in MACS,
                 f"mac must be 'decode_once', 'double_pumped' or 'post_shift', not {self.mac!r}")
        _require(self.counters in COUNTERS, f"counters must be 'all', 'totals' or 'none', not {self.counters!r}")
        _require(self.family in FAMILIES, f"family must be 'any' or 'ecp5', not {self.family!r}")
        _require(self.family == "any" or self.mac == "decode_once",
                 f"family {self.family!r} has the mac 'decode_once', not {self.mac!r}: leave mac out")
        _require(self.mac != "double_pumped" or self.clusters % 2 == 0,
                 f"mac 'double_pumped' needs pairs of clusters, and there are {self.clusters}: take 'decode_once'")
        _require(self.clusters in (1, 2, 4, 8, 16),
                 f"clusters must be 1, 2, 4, 8 or 16 (it is the channel group of the memory layout), not {self.clusters}")
        _require(self.cols in (1, 2, 4, 8), f"cols must be 1, 2, 4 or 8, not {self.cols}")
        _require(self.clusters == self.cols or (self.clusters == 2 * self.cols >= 4),
                 f"clusters must equal cols, or be twice as many from 4 clusters on (the weight network transposes square blocks "
                 f"of cols channels): {self.clusters} clusters, {self.cols} cols")
        _require(self.wpus in (1, 2, 3), f"wpus must be 1, 2 or 3, not {self.wpus}")
        # What the array gives at once, 3 rows x 8 columns x 3 taps of products of 2^24, takes 32 bits.
        _require(32 <= self.psum_width <= 48, f"psum_width must lie in 32..48 bits, not {self.psum_width}")
        _require(self.psum_width <= self.wg_width <= 48,
                 f"wg_width must lie in psum_width..48 bits ({self.psum_width}..48), not {self.wg_width}")
        _require(self.load_channels in (1, 2, 3, 4), f"load_channels must be 1, 2, 3 or 4, not {self.load_channels}")
        _require(self.store_channels in (1, 2), f"store_channels must be 1 or 2, not {self.store_channels}")
        for field_name, limit in (("ibuf_depth", 65536), ("ebuf_depth", 65536), ("wbuf_depth", 65536),
                                  ("psum_depth", 16384), ("abuf_depth", 65536), ("mbuf_depth", 65536),
                                  ("pbuf_depth", 8192), ("dw_depth", 8192), ("export_depth", 8192), ("max_planes", 128),
                                  ("logit_depth", 65536), ("tensors", 2048), ("microcode_depth", 1024), ("max_classes", 4096)):
            value = getattr(self, field_name)
            _require(value <= limit, f"{field_name} must be at most {limit}, not {value}")
        _require(self.logit_depth * self.group >= self.max_classes,
                 f"logit_depth must hold the logits of one image ({-(-self.max_classes // self.group)} entries), "
                 f"not {self.logit_depth}: raise it or lower max_classes")
        _require(self.queue_words >= 64 and self.queue_words % 2 == 0,
                 f"queue_words must be even and hold a command (64), not {self.queue_words}")
        _require(self.dw_depth >= 2 * self.dw_tile_beats,
                 f"dw_depth must hold two weight-gradient tiles ({2 * self.dw_tile_beats} beats), not {self.dw_depth}")
        _require(self.export_depth & (self.export_depth - 1) == 0, f"export_depth must be a power of two, not {self.export_depth}")
        _require(not self.export_depth or self.export_depth >= self.dw_tile_beats,
                 f"export_depth must be 0 or hold a weight-gradient tile ({self.dw_tile_beats} beats), not {self.export_depth}")
        _require(self.clusters % self.apu_channels == 0,
                 f"apu_channels must divide clusters ({self.clusters}): an APU serves as many channels of a group as every other "
                 f"one, not {self.apu_channels}")
        for field_name in ("apu_lanes", "divider_bits"):
            value = getattr(self, field_name)
            _require(value in (1, 2), f"{field_name} must be 1 or 2, not {value}")
        _require(self.apu_shifters in APU_SHIFTERS, f"apu_shifters must be 'multiplier' or 'lut', not {self.apu_shifters!r}")

    def __repr__(self) -> str:
        """Every field, but of those that came later (:func:`added`) only what differs from its default: names of Verilog modules
        are made of it (:func:`gradloom.rtl.shared_module.add`), and those of earlier machines stay."""
        counting = [field.name for field in dataclasses.fields(self) if self._counts(field)]
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in counting)
        return f"{type(self).__qualname__}({fields})"

    def _counts(self, field: dataclasses.Field[Any]) -> bool:
        return _ADDED not in field.metadata or getattr(self, field.name) != field.default

    @property
    def group(self) -> int:
        """G, channels of one group of the memory layouts."""
        return self.clusters

    @property
    def laps(self) -> int:
        """Laps in which the array takes the input channels of a group, ``cols`` at a time: 1 or 2."""
        return self.clusters // self.cols

    @property
    def beat_bytes(self) -> int:
        """Bytes of one AXI4 data beat: two neighbouring columns of one channel group."""
        return 2 * self.group

    @property
    def row_banks(self) -> int:
        """Banks of the input and of the error buffer."""
        return PE_ROWS * self.wpus

    @property
    def block_beats(self) -> int:
        """Beats of one weight block [G out][G in] (padded to one beat for G = 1)."""
        return max(1, self.group // 2)

    @property
    def dw_tile_beats(self) -> int:
        """Beats of the weight gradients of one array tile: 9 blocks."""
        return PE_ROWS * PE_TAPS * self.block_beats

    @property
    def apus(self) -> int:
        """Auxiliary processing units."""
        return self.group // self.apu_channels

    @property
    def turns(self) -> int:
        """Cycles in which the APUs take a beat: a channel of each at a time, with one lane first column 0 of every channel."""
        return self.apu_channels * (2 // self.apu_lanes)

    @property
    def macs(self) -> int:
        """Multiply-accumulate units of the array."""
        return self.clusters * self.wpus * PE_ROWS * self.cols * PE_TAPS

    def digest(self) -> int:
        """32-bit hash of every field but the name; the CONFIG register holds it.

        A field that came later (:func:`added`) enters only where it differs from its default, so that programs, schedules and
        Verilog of earlier machines keep fitting them.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
                  if field.name != "name" and self._counts(field)}
        return int.from_bytes(hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()[:4], "little")


PRESETS: dict[str, Config] = {config.name: config for config in (
    Config(name="nano", clusters=1, wpus=1, cols=1, ibuf_depth=4096, ebuf_depth=4096, wbuf_depth=2048,
           psum_depth=256, abuf_depth=2048, mbuf_depth=512, pbuf_depth=512),
    Config(name="small", clusters=2, wpus=1, cols=2, psum_depth=256, abuf_depth=2048, mbuf_depth=512,
           load_channels=2),
    Config(name="ulx3s", clusters=4, wpus=1, cols=4, ibuf_depth=1024, ebuf_depth=512, psum_depth=256),
    Config(name="eta", clusters=8, wpus=3, cols=8, wg_width=44, max_planes=16, max_classes=1024, logit_depth=256,
           queue_words=1024, ibuf_depth=1024, ebuf_depth=768,
           psum_depth=512, abuf_depth=2048, pbuf_depth=512, dw_depth=512, export_depth=64, tensors=512, lutram_bits=65536,
           load_channels=4, store_channels=2),
    Config(name="eta2x", clusters=16, wpus=3, cols=8, max_classes=1024, logit_depth=256, queue_words=1024,
           ibuf_depth=1024, ebuf_depth=768, wbuf_depth=256,
           psum_depth=512, abuf_depth=2048, pbuf_depth=512, dw_depth=512, export_depth=128, tensors=512, lutram_bits=65536,
           load_channels=4, store_channels=2),
    # For an LFE5U-85F and an LFE5U-45F behind one SDRAM of 16 bits, which one lane for all channels keeps up with.
    Config(name="ecp5-85", clusters=4, wpus=1, cols=4, ibuf_depth=1024, ebuf_depth=512, psum_depth=256, psum_width=32, wg_width=36,
           export_depth=0, counters="totals", family="ecp5", apu_channels=4, apu_lanes=1, apu_shifters="lut", divider_bits=1),
    Config(name="ecp5-45", clusters=2, wpus=1, cols=2, psum_depth=256, abuf_depth=2048, mbuf_depth=512, psum_width=32, wg_width=36,
           export_depth=0, counters="totals", family="ecp5", apu_channels=2, apu_lanes=1, apu_shifters="lut", divider_bits=1),
    # The least logic that trains digits-cnn: the one of these that has been routed with link and SDRAM.
    Config(name="ecp5-9", clusters=1, wpus=1, cols=1, psum_depth=256, abuf_depth=2048, mbuf_depth=512, psum_width=32, wg_width=36,
           export_depth=0, counters="none", family="ecp5", apu_channels=1, apu_lanes=1, apu_shifters="lut", divider_bits=1),
)}
"""Machines by name. MACs: nano and ecp5-9 9, small and ecp5-45 36, ulx3s and ecp5-85 144, eta 1728, eta2x 3456."""


def load_config(source: str) -> Config:
    """A preset by name, or a TOML file whose keys are the fields of :class:`Config` (``base = "PRESET"`` to start from one).

    Raises
    ------
    :exc:`ConfigError`
        If there is no such preset or file, a key is unknown or a value breaks a rule.
    """
    if source in PRESETS:
        return PRESETS[source]
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"there is no configuration {source!r}: give one of {', '.join(PRESETS)} or a TOML file")
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    base = table.pop("base", None)
    values = {"name": path.stem}
    if base is not None:
        if base not in PRESETS:
            raise ConfigError(f"{path}: base = {base!r} is no preset; give one of {', '.join(PRESETS)}")
        values = dataclasses.asdict(PRESETS[base]) | values
    known = {field.name for field in dataclasses.fields(Config)}
    for key in table:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}; the keys are {', '.join(sorted(known))}")
    for key in ("clusters", "wpus", "cols"):
        if key not in table and base is None:
            raise ConfigError(f"{path}: key {key!r} is missing; give it, or base = \"PRESET\"")
    return Config(**(values | table))
