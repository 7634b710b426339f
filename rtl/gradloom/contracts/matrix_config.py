"""The matrix machine: a frozen, validated :class:`MatrixConfig` of an array that multiplies matrices, and its families of presets.

The array has ``lanes`` x ``rows`` x ``columns`` of the multiply-accumulate units of the training machine. Three published kernels
are its corners (DarkFPGA, section 5.2; Fox et al., section III-B1; Barista, section III-B):

========================  ====================  ==========  ===================================================================
preset                    lanes x rows x cols   stationary  a step multiplies
========================  ====================  ==========  ===================================================================
``darkfpga-TBxTI``        T_B x 1 x T_I         operand     T_I weights by T_I elements of each of T_B images
``fox-N``                 1 x N x N             operand     an N x N block of A by N elements of a column of B
``barista-RxCxP``         1 x R x C             output      R elements of a column of A by C elements of a row of B
========================  ====================  ==========  ===================================================================
"""

import dataclasses
import functools
import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any, ClassVar

from gradloom.contracts.config import COUNTERS, PRESETS, Config, ConfigError, load_config

__all__ = ["CORE", "FAMILY_NAMES", "SUM_BYTES", "MatrixConfig", "load_machine", "load_training_machine", "matrix_preset"]

CORE = "matrix"
"""Value of the key ``core`` in a file of such a machine."""
SUM_BYTES = 4
"""Of a sum in memory, two's complement."""
STATIONARY = ("operand", "output")
"""What stays in the array from step to step."""
_MULTIPLIES = "multiplies matrices (docs/matrix.md) and trains no network as a whole"
_CORE_KEY = re.compile(r"^\s*core\s*=", re.MULTILINE)
_MAX_BEAT = 64
"""Bytes of a beat, so that 64 of them do not cross a boundary of 4 KiB (:data:`gradloom.contracts.pipeline.BURST_BEATS`)."""
_MOST = 128
"""Lanes, rows, columns: SHAPE has a byte for each."""
_MAX_BEATS = 1 << 16
"""On-chip addresses have 16 bits."""


def _power_of_two(value: int) -> bool:
    return value & (value - 1) == 0


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise ConfigError(why)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatrixConfig:
    """Sizes of a machine that multiplies matrices of 8-bit integers.

    Parameters
    ----------
    name : :class:`str`
        Used for file names and messages.
    lanes, rows, columns : :class:`int`
        Array shape, powers of two. A lane is an image: all lanes take the same weights. With ``stationary = "operand"`` a row of
        every lane sums over its columns, with ``"output"`` every unit keeps a sum of its own.
    stationary : :class:`str`
        ``"operand"`` or ``"output"``.
    beat_bytes : :class:`int`
        Bytes of an AXI4 beat, a power of two of 2 to 64.
    w_depth, x_depth, p_depth : :class:`int`
        Words of the memories of the first operand, of the second one (and, with several lanes, of the one that is as wide), and of
        the sums; powers of two. :attr:`w_bytes`, :attr:`x_bytes` and :attr:`p_bytes` are the bytes of a word.
    queue_words : :class:`int`
        Depth of each engine's command queue in 32-bit words, even.
    counters : :class:`str`
        As of :class:`gradloom.contracts.config.Config`.
    lutram_bits : :class:`int`
        As there.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If a field breaks a rule.
    """

    name: str
    lanes: int
    rows: int
    columns: int
    stationary: str
    beat_bytes: int
    w_depth: int
    x_depth: int
    p_depth: int
    queue_words: int = 128
    counters: str = "all"
    lutram_bits: int = 0

    family: ClassVar = "any"
    load_channels: ClassVar = 1
    store_channels: ClassVar = 1
    row_banks: ClassVar = 1
    block_beats: ClassVar = 1
    """Of a training machine's buffers, whose addresses the Loader also knows."""
    tensors: ClassVar = 8
    """Entries of the exponent file and of the seeds, which this core does not use."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("name", "stationary", "counters"):
                _require(isinstance(value, str), f"{field.name} must be a string, not {value!r}")
                continue
            least = 0 if field.name == "lutram_bits" else 1
            _require(isinstance(value, int) and not isinstance(value, bool) and value >= least,
                     f"{field.name} must be a {'positive ' if least else 'non-negative '}integer, not {value!r}")
        _require(self.stationary in STATIONARY, f"stationary must be 'operand' or 'output', not {self.stationary!r}")
        _require(self.counters in COUNTERS, f"counters must be 'all', 'totals' or 'none', not {self.counters!r}")
        for name in ("lanes", "rows", "columns", "beat_bytes", "w_depth", "x_depth", "p_depth"):
            _require(_power_of_two(getattr(self, name)), f"{name} must be a power of two, not {getattr(self, name)}")
        for name in ("lanes", "rows", "columns"):
            _require(getattr(self, name) <= _MOST, f"{name} must be at most {_MOST}, not {getattr(self, name)}")
        _require(2 <= self.beat_bytes <= _MAX_BEAT, f"beat_bytes must lie in 2..{_MAX_BEAT}, not {self.beat_bytes}")
        _require(self.lanes == 1 or self.rows == 1,
                 f"rows must be 1 where there are several lanes, not {self.rows}: all lanes take the same weights")
        _require(self.lanes == 1 or self.stationary == "operand",
                 f"lanes must be 1 where the output is stationary, not {self.lanes}: take stationary = 'operand'")
        _require(self.p_bytes >= self.beat_bytes,
                 f"beat_bytes must be at most {SUM_BYTES} * lanes * rows ({self.p_bytes}), not {self.beat_bytes}: a word of sums "
                 "takes whole beats")
        _require(self.queue_words >= 64 and self.queue_words % 2 == 0,
                 f"queue_words must be even and hold a command (64), not {self.queue_words}")
        for name, size in (("w_depth", self.w_bytes), ("x_depth", self.x_bytes), ("p_depth", self.p_bytes)):
            beats = getattr(self, name) * size // self.beat_bytes
            _require(1 <= beats <= _MAX_BEATS,
                     f"{name} must hold 1 to {_MAX_BEATS} beats, and {getattr(self, name)} words of {size} bytes are {beats}")

    @property
    def group(self) -> int:
        """Half the bytes of a beat: what the buses of the memory path are sized by."""
        return self.beat_bytes // 2

    @property
    def macs(self) -> int:
        """Multiply-accumulate units of the array."""
        return self.lanes * self.rows * self.columns

    @property
    def w_bytes(self) -> int:
        """Of a word of the first operand: [row][column] codes, or of one element of each row where the output is stationary."""
        return self.rows * (self.columns if self.stationary == "operand" else 1)

    @property
    def x_bytes(self) -> int:
        """Of a word of the second operand: [column][lane] codes."""
        return self.lanes * self.columns

    @property
    def p_bytes(self) -> int:
        """Of a word of sums: [lane][row] of 32 bits."""
        return SUM_BYTES * self.lanes * self.rows

    @property
    def turns_weights(self) -> bool:
        """Whether a step may take the transpose of its block of weights: a square one, for one lane (Fox, section III-B3)."""
        return self.stationary == "operand" and self.rows == self.columns > 1

    def digest(self) -> int:
        """32-bit hash of every field but the name; the CONFIG register holds it."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "name"]
        fields = {"core": CORE} | {name: getattr(self, name) for name in names}
        return int.from_bytes(hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()[:4], "little")


def _darkfpga(batch: int, image: int) -> MatrixConfig:
    """Buffers for eight tiles of inputs, two of them in use; weights of the same tiles; sums of two tiles."""
    beat = min(_MAX_BEAT, batch)
    return MatrixConfig(name=f"darkfpga-{batch}x{image}", lanes=batch, rows=1, columns=image, stationary="operand", beat_bytes=beat,
                        w_depth=max(8 * image, 2 * beat), x_depth=8 * image, p_depth=2 * image * image)


def _fox(size: int) -> MatrixConfig:
    """Half a block RAM of 36 Kbit for each unit's part of A (table III). The port is twice as wide as a word of B, as results leave
    with four bytes each."""
    beat = min(_MAX_BEAT, 2 * size)
    return MatrixConfig(name=f"fox-{size}", lanes=1, rows=size, columns=size, stationary="operand", beat_bytes=beat, w_depth=2048,
                        x_depth=512, p_depth=512)


def _barista(rows: int, columns: int, depth: int) -> MatrixConfig:
    """Two tiles of each operand and of the output, so that one is filled while the other is used (section III-B)."""
    return MatrixConfig(name=f"barista-{rows}x{columns}x{depth}", lanes=1, rows=rows, columns=columns, stationary="output",
                        beat_bytes=min(_MAX_BEAT, 4 * rows, 2 * columns), w_depth=2 * depth, x_depth=2 * depth, p_depth=2 * columns)


_FAMILIES = (
    (re.compile(r"darkfpga-(\d+)x(\d+)"), _darkfpga),
    (re.compile(r"fox-(\d+)"), _fox),
    (re.compile(r"barista-(\d+)x(\d+)x(\d+)"), _barista),
)
FAMILY_NAMES = ("darkfpga-TBxTI", "fox-N", "barista-RxCxP")
"""Families of presets; the letters stand for powers of two."""


@functools.cache
def matrix_preset(name: str) -> MatrixConfig | None:
    """The machine of a preset's name, or :class:`None` if it is the name of none.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If its sizes break a rule.
    """
    for pattern, build in _FAMILIES:
        if match := pattern.fullmatch(name):
            return build(*map(int, match.groups()))  # type: ignore[operator]  # as many numbers as the builder takes
    return None


def load_training_machine(source: str) -> Config:
    """:func:`~gradloom.contracts.config.load_config`, which says so of a machine of this kind.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        As there.
    """
    preset = matrix_preset(source)
    _require(preset is None, f"{source} {_MULTIPLIES}: give one of {', '.join(PRESETS)} or a TOML file")
    if source not in PRESETS and Path(source).is_file():
        _require(_CORE_KEY.search(_text(Path(source))) is None, f"{source} {_MULTIPLIES}: give a machine without the key 'core'")
    return load_config(source)


def _text(path: Path) -> str:
    """Nothing, of what is no text: whoever reads the file as TOML says so."""
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def load_machine(source: str) -> Config | MatrixConfig:
    """A machine of either kind: a preset by name, or a TOML file, with ``core = "matrix"`` for a :class:`MatrixConfig`.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If there is no such preset or file, a key is unknown or a value breaks a rule.
    """
    found = matrix_preset(source)
    if found is not None:
        return found
    path = Path(source)
    if source in PRESETS or not path.is_file():
        try:
            return load_config(source)
        except ConfigError as error:
            raise ConfigError(str(error).replace(" or a TOML file", f", {', '.join(FAMILY_NAMES)} or a TOML file")) from None
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    return _of_table(path, table) if "core" in table else load_config(source)


def _of_table(path: Path, table: dict[str, Any]) -> MatrixConfig:
    core, base = table.pop("core"), table.pop("base", None)
    _require(core == CORE, f"{path}: core must be 'matrix', not {core!r}; leave it out for a training machine")
    values: dict[str, Any] = {"name": path.stem}
    if base is not None:
        preset = matrix_preset(base) if isinstance(base, str) else None
        if preset is None:
            raise ConfigError(f"{path}: base = {base!r} is no preset of a matrix machine; give one of {', '.join(FAMILY_NAMES)}")
        values = dataclasses.asdict(preset) | values
    fields = dataclasses.fields(MatrixConfig)
    for key in table:
        _require(key in {field.name for field in fields},
                 f"{path}: unknown key {key!r}; the keys are {', '.join(field.name for field in fields)}")
    values |= table
    for field in fields:
        if field.name not in values and field.default is dataclasses.MISSING:
            raise ConfigError(f"{path}: key {field.name!r} is missing; give it, or base = \"PRESET\"")
    return MatrixConfig(**values)
