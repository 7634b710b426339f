"""What is wrong with a command of the C-Core: CONV, its windows, its laps, and the addresses that it sweeps over."""

from collections.abc import Iterator

from gradloom.contracts.config import PE_TAPS, Config
from gradloom.contracts.isa import Pattern
from gradloom.host.dram.layout import ceil_div
from gradloom.host.program.address_check import within
from gradloom.host.program.assembler import Instruction
from gradloom.host.tiles.shared_rows import row_groups

__all__ = ["check_conv"]

_PAIR_FIELDS = (
    ("s2", 1, "every window takes the next pair of columns"),
    ("par0", 0, "a window is a stored pair, which begins at an even column"),
    ("colstep", 0, "a window is a stored pair, which begins at an even column"),
    ("preload", 0, "a window is one entry"),
    ("sums", 0, "the K3 command that adds to its sums gathers them"),
    ("transpose", 0, "it is for the forward pass only"),
    ("flip", 0, "it is for the forward pass only"),
)
"""What fields of a CONV command with PAIR must be, and why."""
_PAIR_TAPS = 2
"""Columns of a window with PAIR."""


def check_conv(f: Instruction, config: Config) -> Iterator[str]:
    """A sentence for every defect of a CONV."""
    for name in ("steps", "units", "cols", "upi", "nr", "nk"):
        if not f[name]:
            yield f"{name} must be above 0"
            return
    if f["u0"] >= f["upi"]:
        yield f"u0 must be below upi, {f['upi']}, not {f['u0']}"
    if f["pattern"] not in set(Pattern):
        yield f"there is no pattern {f['pattern']}"
        return
    pattern = Pattern(f["pattern"])
    groups = row_groups(config, f["units"], shared=bool(f["shared"]))
    if f["shared"]:
        yield from _shared(f, pattern, config)
    if not f["lap"] <= f["lap_end"] < config.laps:
        yield f"laps {f['lap']} to {f['lap_end']}: the array takes a channel group in {config.laps}"
    if pattern == Pattern.PAIR and not f["wg"]:
        for name, value, reason in _PAIR_FIELDS:
            if f[name] != value:
                yield f"{name} must be {value} with PAIR, not {f[name]}: {reason}"
        if f["nk"] > _PAIR_TAPS:
            yield f"nk must be at most {_PAIR_TAPS} with PAIR, not {f['nk']}: a window has two columns"
    if f["wg"]:
        if pattern not in (Pattern.K3, Pattern.K1):
            yield f"pattern must be K3 or K1 with wg, not {pattern.name}"
        if f["lap"] != f["lap_end"]:
            yield f"laps {f['lap']} to {f['lap_end']}: weight gradients are those of one lap"
        if f["ebank"] >= PE_TAPS:
            yield f"ebank must be below {PE_TAPS}, not {f['ebank']}"
        yield from within(
            "error buffer addresses",
            f["ebase"],
            (groups - 1) * f["ee"] + (f["cols"] + 1) // 2,
            config.ebuf_depth,
        )
        if f["drain"]:
            if f["dwbase"] % config.laps:
                yield f"dwbase {f['dwbase']} must be even: two laps are drained into pairs of beats"
            rows = sum(bool(f[f"rlim{r}"]) for r in range(f["nr"])) if pattern == Pattern.K1 else f["nr"]
            blocks = rows * f["nk"] + (rows * f["nk"] - 1) * f["dgap"]
            yield from within("weight-gradient beats", f["dwbase"], blocks * config.block_beats, config.dw_depth)
        return
    if pattern == Pattern.K3:
        words = ceil_div(groups, 2) * ceil_div(f["cols"], 2)
    elif pattern == Pattern.PAIR:
        words = ceil_div(groups, 2) * f["cols"]
    else:
        words = groups * (f["cols"] + (f["cols"] & 1) if pattern == Pattern.K1 else f["cols"])
    yield from within("partial-sum addresses", f["pbase"], words, config.psum_depth)
    last = f["wbase"] + (f["steps"] - 1) * f["wstep"]
    if pattern == Pattern.K1:
        reach = max(
            (
                f["wbase"] + r * f["koff"] + (f[f"rlim{r}"] - 1) * f["wstep"]
                for r in range(3)
                if f[f"rlim{r}"]
            ),
            default=0,
        )
        yield from within("weight buffer addresses", f["wbase"], reach - f["wbase"] + 1, config.wbuf_depth)
    else:
        low = min(f[f"woa{r}"] for r in range(3))
        high = max(f[f"woa{r}"] + (f[f"wob{r}"] + f["nk"] - 1) // 3 for r in range(3))
        yield from within(
            "weight buffer addresses", f["wbase"] + low, last - f["wbase"] + high - low + 1, config.wbuf_depth
        )


def _shared(f: Instruction, pattern: Pattern, config: Config) -> Iterator[str]:
    """Rows that the WPUs share: docs/machine.md section 4."""
    if config.wpus == 1 or pattern != Pattern.K3:
        yield f"shared must be 0 with {'one WPU' if config.wpus == 1 else pattern.name}: two or three WPUs share rows, with K3"
        return
    others = config.wpus - 1
    part, rest = divmod(f["cols"] - f["scols"], others)
    if rest or part < 2 or part % 2 or part >= f["scols"]:
        yield (
            f"scols {f['scols']} of {f['cols']} windows: {others} parts of an even number and a longer last one must make up a row"
        )
    for name, value in (("e0", 0), ("par0", 1)):
        if f[name] != value:
            yield f"{name} must be {value} where rows are shared, not {f[name]}: a row begins with one column of padding"
    if f["sbank"] >= config.row_banks:
        yield f"sbank must be below {config.row_banks}, not {f['sbank']}"
