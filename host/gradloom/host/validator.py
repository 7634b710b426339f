"""What is wrong with a program, in sentences, before it reaches a machine."""

import dataclasses
from collections.abc import Iterator, Sequence

from gradloom.host.assembler import AssemblyError, Instruction, Shift, offsets, split_program
from gradloom.host.layout import ceil_div
from gradloom.host.shared_rows import row_groups
from gradloom.host.token_check import check_tokens
from gradloom.rtl.channels import load_channels
from gradloom.rtl.config import PE_TAPS, Config
from gradloom.rtl.isa import PROGRAM_MAGIC, PROGRAM_VERSION, Dest, Opcode, Pattern, PsumLayout, Source, XSource
from gradloom.rtl.microprograms import TABLE

__all__ = ["Defect", "validate"]

_ENTRY_BEATS = 4
_WIDE_BEATS = 8
_NAMES = {address: name for name, address in TABLE.items()}
_ROWS = {"FRN_ROWS", "FRN_ROWS_RES", "FRN_ROWS_LIN"}
_NORMS = {"FRN_NORM", "FRN_NORM_ADD", "FRN_LAM"}
_ROW_SUMS = {"FRN_SUM", "FRN_SUM_LIN", "FRN_ADD", "FRN_ADD_LIN"}
_ROW_ERRORS = {"FRN_ERR", "FRN_ERR_LIN"}
_READS_B = {"FRN_BWD", "FRN_BWD_LIN", "MAXPOOL_BWD", "WU", *_ROW_SUMS, *_ROW_ERRORS}
_WRITES_B = {"FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "MAXPOOL_FWD", "WU", *_ROWS}
_READS_A = {
    "FRN_FWD_RES",
    "FRN_ROWS_RES",
    *_ROW_SUMS,
    *_ROW_ERRORS,
    "BP_OUT_RES",
    "BP_OUT_ADD",
    "FRN_BWD",
    "FRN_BWD_LIN",
    "RELU_BWD",
    "LIN_BWD",
    "WU",
    "MAXPOOL_FWD",
    "MAXPOOL_BWD",
    "AVGPOOL_FWD",
    "AVGPOOL_BWD",
}
_NO_OUTPUT_A = {"LOGITS", "LIN_BWD", "PARAM_UPD", "BIAS_UPD", "DW_EXPORT", *_NORMS, *_ROW_SUMS}
_READS_BITS = {"BP_OUT_RES", "FRN_BWD", "RELU_BWD", "FRN_SUM", "FRN_ADD", "FRN_ERR"}
_WRITES_BITS = {"FRN_FWD", "FRN_FWD_RES", "RELU_FWD", "FRN_ROWS", "FRN_ROWS_RES"}
_LAMBDA = {"FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "FRN_BWD", "FRN_BWD_LIN", *_NORMS, *_ROWS, *_ROW_ERRORS}
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
_PARAMETERS = 6
"""Entries of a channel group: parameters and their sums; a plane in rows has one more, its sum of products."""


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect: byte offset of the command from the first command (-1: the header) and a sentence."""

    place: int
    text: str

    def __str__(self) -> str:
        return f"header: {self.text}" if self.place < 0 else f"byte {self.place}: {self.text}"


def validate(
    data: bytes,
    config: Config,
    *,
    window: tuple[int, int] = (0, 1 << 32),
    steps: int = 1,
    first_step: int = 0,
) -> list[Defect]:
    """Every defect of a program; an empty list for a good one.

    Parameters
    ----------
    window : (first, first behind) byte addresses that the machine may touch
    steps, first_step : how often the body of its LOOP runs, and the number of the first step
    """
    try:
        header, instructions = split_program(data)
    except AssemblyError as error:
        return [Defect(-1, str(error))]
    defects = [Defect(-1, text) for text in _header(header, config)]
    places = offsets(instructions)
    for place, instruction in zip(places, instructions, strict=True):
        defects += [
            Defect(place, f"{instruction.opcode.name}: {text}") for text in _fields(instruction, config)
        ]
    defects += [Defect(place, text) for place, text in _flow(instructions, places)]
    defects += [
        Defect(place, text) for place, text in _dram(instructions, places, config, window, steps, first_step)
    ]
    defects += [
        Defect(places[number] if number >= 0 else -1, text)
        for number, text in check_tokens(instructions, config)
    ]
    return defects


def _header(header: tuple[int, int, int, int], config: Config) -> Iterator[str]:
    magic, version, _, digest = header
    if magic != PROGRAM_MAGIC:
        yield f"the magic is {magic:#010x}, it must be {PROGRAM_MAGIC:#010x}"
    if version != PROGRAM_VERSION:
        yield f"the version is {version}, this machine runs version {PROGRAM_VERSION}"
    if digest != config.digest():
        yield (
            f"the program is for configuration digest {digest:#010x}, "
            f"{config.name!r} has {config.digest():#010x}"
        )


def _flow(instructions: Sequence[Instruction], places: Sequence[int]) -> Iterator[tuple[int, str]]:
    if not instructions or instructions[-1].opcode != Opcode.END:
        yield (places[-1] if places else 0), "the program does not end with END"
    for place, instruction in zip(places, instructions, strict=True):
        if instruction.opcode == Opcode.LOOP:
            target = instruction["target"]
            if target not in places:
                yield place, f"LOOP goes to byte {target}, where no command begins"
            elif target > place and instructions[places.index(target) - 1].opcode != Opcode.END:
                yield place, f"LOOP goes forward to byte {target}, which must be behind an END"


# DRAM


def _dram(
    instructions: Sequence[Instruction],
    places: Sequence[int],
    config: Config,
    window: tuple[int, int],
    steps: int,
    first_step: int,
) -> Iterator[tuple[int, str]]:
    """Addresses of the first and of the last pass through the loop, of which steps before may be no part."""
    loops = [i for i, entry in enumerate(instructions) if entry.opcode == Opcode.LOOP]
    bodies = [range(places.index(instructions[i]["target"]), i) for i in loops if instructions[i]["target"] in places]
    body = next((found for found in bodies if found), range(0, 0))
    before = sum(i < body.start for i in loops)
    step = [
        sum(
            instructions[i]["value"]
            for i in body
            if instructions[i].opcode == Opcode.ADDBASE and instructions[i]["breg"] == breg
        )
        for breg in range(8)
    ]
    bases: list[int | None] = [None] * 8
    for number, (place, instruction) in enumerate(zip(places, instructions, strict=True)):
        breg = instruction["breg"]
        base = bases[breg]
        if instruction.opcode == Opcode.SETBASE:
            bases[breg] = instruction["value"]
        elif instruction.opcode == Opcode.ADDBASE and base is not None:
            bases[breg] = base + instruction["value"] & 0xFFFFFFFF
        elif instruction.opcode in (Opcode.LOAD, Opcode.STORE, Opcode.LDHYP):
            if base is None:
                yield place, f"{instruction.opcode.name}: base register {breg} has not been set"
                continue
            if instruction.opcode == Opcode.LDHYP and (base + instruction["offset"]) % 8:
                yield place, f"LDHYP: the table at {base + instruction['offset']:#x} must begin at a multiple of 8 bytes"
            first = first_step + before * (number in body)
            for turn in {0, max(0, steps - 1 - before)} if number in body else {0}:
                low, high = _extent(instruction, config, base + turn * step[breg], first + turn)
                if low < window[0] or high > window[1]:
                    yield (
                        place,
                        (
                            f"{instruction.opcode.name}: bytes {low:#x}..{high - 1:#x} of step {first + turn - first_step} "
                            f"lie outside the window {window[0]:#x}..{window[1] - 1:#x}"
                        ),
                    )


def _extent(instruction: Instruction, config: Config, base: int, step: int) -> tuple[int, int]:
    """First byte and first byte behind all that a command touches."""
    start = base + instruction["offset"]
    if instruction.opcode == Opcode.LDHYP:
        start = start + 16 * step & 0xFFFFFFFF
        return start, start + 16
    start &= 0xFFFFFFFF
    moves = [
        (instruction[n] - 1) * instruction[stride] for n, stride in (("n1", "stride1"), ("n2", "stride2"))
    ]
    return (
        start + sum(min(0, move) for move in moves),
        start + sum(max(0, move) for move in moves) + instruction["n0"] * config.beat_bytes,
    )


# Fields


def _fields(instruction: Instruction, config: Config) -> Iterator[str]:
    for name in ("tid", "target", "t1", "t2"):
        if instruction.opcode != Opcode.LOOP and instruction[name] >= config.tensors:
            yield f"tensor {instruction[name]} ({name}) is not below {config.tensors}"
    for entry in instruction.tail:
        if isinstance(entry, Shift) and entry.tid >= config.tensors:
            yield f"tensor {entry.tid} of the shift list is not below {config.tensors}"
    check = {
        Opcode.LOAD: _load,
        Opcode.STORE: _store,
        Opcode.CONV: _conv,
        Opcode.RUN: _run,
        Opcode.SOFTMAX: _softmax,
    }.get(instruction.opcode)
    if check is not None:
        yield from check(instruction, config)


def _within(what: str, first: int, count: int, size: int) -> Iterator[str]:
    if first < 0 or first + count > size:
        yield f"{what} {first}..{first + count - 1} leave its {size} addresses"


def _transfer(f: Instruction, config: Config) -> Iterator[str]:
    if not (f["n0"] and f["n1"] and f["n2"]):
        yield "n0, n1 and n2 must be above 0"
    for name in ("offset", "stride1", "stride2"):
        if f[name] % config.beat_bytes:
            yield f"{name} {f[name]} is no multiple of the beat of {config.beat_bytes} bytes"


def _load(f: Instruction, config: Config) -> Iterator[str]:
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
        yield from _within(
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
        if beats % each:
            yield f"{beats} beats are no whole number of {dest.name} addresses of {each} beats"
        yield from _within(f"{dest.name} addresses", 0 if dest == Dest.XIN else f["addr0"], beats // each, size)


def _load_rows(f: Instruction, config: Config, depth: int) -> Iterator[str]:
    if not f["xb"] or f["n1"] * f["n0"] % f["xb"]:
        yield f"{f['n1'] * f['n0']} beats are no whole number of rows of {f['xb']}"
        return
    if f["bstep"] not in (1, 3) or f["bank0"] >= config.row_banks:
        yield f"bank {f['bank0']}, step {f['bstep']}: banks are 0..{config.row_banks - 1}, steps 1 or 3"
    rows = f["n1"] * f["n0"] // f["xb"]
    wraps = (f["bank0"] + (rows - 1) * f["bstep"]) // config.row_banks
    yield from _within(
        "row bank addresses", f["addr0"], (f["n2"] - 1) * f["ostep"] + wraps * f["xe"] + f["xb"], depth
    )


def _store(f: Instruction, config: Config) -> Iterator[str]:
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
    beats = f["n2"] * f["n1"] * f["n0"]
    if beats % each:
        yield f"{beats} beats are no whole number of {source.name} addresses of {each} beats"
    yield from _within(f"{source.name} addresses", 0 if source == Source.XOUT else f["addr0"], beats // each, size)


def _conv(f: Instruction, config: Config) -> Iterator[str]:
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
        yield from _within(
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
            yield from _within("weight-gradient beats", f["dwbase"], blocks * config.block_beats, config.dw_depth)
        return
    if pattern == Pattern.K3:
        words = ceil_div(groups, 2) * ceil_div(f["cols"], 2)
    elif pattern == Pattern.PAIR:
        words = ceil_div(groups, 2) * f["cols"]
    else:
        words = groups * (f["cols"] + (f["cols"] & 1) if pattern == Pattern.K1 else f["cols"])
    yield from _within("partial-sum addresses", f["pbase"], words, config.psum_depth)
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
        yield from _within("weight buffer addresses", f["wbase"], reach - f["wbase"] + 1, config.wbuf_depth)
    else:
        low = min(f[f"woa{r}"] for r in range(3))
        high = max(f[f"woa{r}"] + (f[f"wob{r}"] + f["nk"] - 1) // 3 for r in range(3))
        yield from _within(
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


def _run(f: Instruction, config: Config) -> Iterator[str]:
    name = _NAMES.get(f["uprog"])
    if f["uprog"] >= config.microcode_depth:
        yield f"microprogram address {f['uprog']} is not below {config.microcode_depth}"
    if not 1 <= f["planes"] <= config.max_planes:
        yield f"{f['planes']} planes, the configuration takes 1..{config.max_planes}"
    if not f["nb"] or not f["xe"]:
        yield "nb and xe must be above 0"
    if f["xsrc"] not in set(XSource):
        yield f"there is no operand source {f['xsrc']}"
    if f["shared"] and f["layout"] != PsumLayout.ROWS:
        yield f"shared must be 0 with layout {f['layout']}, not {f['shared']}: sums of shared rows lie in rows"
    elif f["shared"] and (f["shared"] > f["py"] or not f["sbeats"] or f["sbeats"] * (config.wpus - 1) >= f["xe"]):
        yield (
            f"shared {f['shared']}, sbeats {f['sbeats']}: each of {config.wpus} WPUs must have a part of a row's {f['xe']} beats, "
            f"and a plane has {f['py']} rows"
        )
    if name is None:
        return
    beats = f["planes"] * f["nb"]
    inputs = f["planes"] * f["pyi"] * ceil_div(f["pxi"], 2) if f["pool"] else beats
    bits = f["planes"] * ceil_div(f["nb"], 8)
    for used, what, first, count, size in (
        (_READS_A, "stream A addresses", f["sa0"], inputs, config.abuf_depth),
        (_READS_B, "stream B addresses", f["sb0"], inputs, config.abuf_depth),
        (_READS_BITS, "bitmap stream addresses", f["sm0"], bits, config.mbuf_depth),
        (set(TABLE) - _NO_OUTPUT_A, "output A addresses", f["oa0"], beats, config.abuf_depth),
        (_WRITES_B, "output B addresses", f["ob0"], beats, config.abuf_depth),
        (_WRITES_BITS, "output bitmap addresses", f["om0"], bits, config.mbuf_depth),
        (_LAMBDA, "reciprocal entries", f["pl0"], f["planes"], config.pbuf_depth),
        (set(TABLE) - {"WU", "DW_EXPORT"} - _NORMS, "parameter entries", f["pb0"], _PARAMETERS, config.pbuf_depth),
        (_ROW_SUMS | _ROW_ERRORS, "parameter entries", f["pb0"], _PARAMETERS + 1, config.pbuf_depth),
        ({"WU", "DW_EXPORT"}, "weight-gradient beats", f["dwbase"], beats, config.dw_depth),
    ):
        if name in used:
            yield from _within(what, first, count, size)
    if name == "DW_EXPORT" or (name == "WU" and f["xin"]):
        yield from _within("import and export beats", 0, beats, config.export_depth)
    if name in ("WU", "DW_EXPORT"):
        blocks = f["nr"] * f["nk"] * (f["side"] + 1)
        if f["nb"] != blocks * config.block_beats:
            yield f"nb must be that of {blocks} blocks, {blocks * config.block_beats}, not {f['nb']}"


def _softmax(f: Instruction, config: Config) -> Iterator[str]:
    if not 1 <= f["images"] <= config.max_planes:
        yield f"{f['images']} images, the configuration takes 1..{config.max_planes}"
    if not 1 <= f["classes"] <= config.max_classes:
        yield f"{f['classes']} classes, the configuration takes 1..{config.max_classes}"
        return
    entries = f["images"] * ceil_div(f["classes"], config.group)
    yield from _within(
        "logit addresses",
        f["logit0"],
        entries,
        config.logit_depth,
    )
    yield from _within("output A addresses", f["oa0"], entries, config.abuf_depth)
