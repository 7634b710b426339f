"""What is wrong with a command of the A-Core: RUN, by what its microprogram reads and writes, and SOFTMAX."""

from collections.abc import Iterator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import PsumLayout, XSource
from gradloom.contracts.microprograms import TABLE
from gradloom.host.dram.layout import ceil_div
from gradloom.host.program.address_check import within
from gradloom.host.program.assembler import Instruction

__all__ = ["check_run", "check_softmax"]

_NAMES = {address: name for name, address in TABLE.items()}
_ROWS = {"FRN_ROWS", "FRN_ROWS_RES", "FRN_ROWS_LIN"}
_NORMS = {"FRN_NORM", "FRN_NORM_ADD", "FRN_LAM"}
_ROW_SUMS = {"FRN_SUM", "FRN_SUM_LIN", "FRN_ADD", "FRN_ADD_LIN"}
_ROW_ERRORS = {"FRN_ERR", "FRN_ERR_LIN"}
_UPDATES = {"WU", "WU_REST"}
_READS_B = {"FRN_BWD", "FRN_BWD_LIN", "MAXPOOL_BWD", *_UPDATES, *_ROW_SUMS, *_ROW_ERRORS}
_WRITES_B = {"FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "MAXPOOL_FWD", *_UPDATES, *_ROWS}
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
    *_UPDATES,
    "MAXPOOL_FWD",
    "MAXPOOL_BWD",
    "AVGPOOL_FWD",
    "AVGPOOL_BWD",
}
_NO_OUTPUT_A = {"LOGITS", "LIN_BWD", "PARAM_UPD", "BIAS_UPD", "DW_EXPORT", *_NORMS, *_ROW_SUMS}
_READS_BITS = {"BP_OUT_RES", "FRN_BWD", "RELU_BWD", "FRN_SUM", "FRN_ADD", "FRN_ERR"}
_WRITES_BITS = {"FRN_FWD", "FRN_FWD_RES", "RELU_FWD", "FRN_ROWS", "FRN_ROWS_RES"}
_LAMBDA = {"FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "FRN_BWD", "FRN_BWD_LIN", *_NORMS, *_ROWS, *_ROW_ERRORS}
_PARAMETERS = 6
"""Entries of a channel group: parameters and their sums; a plane in rows has one more, its sum of products."""


def check_run(f: Instruction, config: Config) -> Iterator[str]:
    """A sentence for every defect of a RUN; of a microprogram that is not in the table only what holds for all."""
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
        ({"WU_REST"}, "rest stream addresses", f["sm0"], beats, config.abuf_depth),
        (_WRITES_BITS, "output bitmap addresses", f["om0"], bits, config.mbuf_depth),
        ({"WU_REST"}, "output rest addresses", f["om0"], beats, config.abuf_depth),
        (_LAMBDA, "reciprocal entries", f["pl0"], f["planes"], config.pbuf_depth),
        (set(TABLE) - {*_UPDATES, "DW_EXPORT"} - _NORMS, "parameter entries", f["pb0"], _PARAMETERS, config.pbuf_depth),
        (_ROW_SUMS | _ROW_ERRORS, "parameter entries", f["pb0"], _PARAMETERS + 1, config.pbuf_depth),
        ({*_UPDATES, "DW_EXPORT"}, "weight-gradient beats", f["dwbase"], beats, config.dw_depth),
    ):
        if name in used:
            yield from within(what, first, count, size)
    for memory, weights, rests in (("AA", "sa0", "sm0"), ("OA", "oa0", "om0")) if name == "WU_REST" else ():
        if f[weights] % 2 == f[rests] % 2:
            yield (f"{rests} {f[rests]} and {weights} {f[weights]} are both odd or both even: weights and rests must be in "
                   f"different halves of {memory}, its even and its odd addresses")
    if name == "DW_EXPORT" or (name in _UPDATES and f["xin"]):
        yield from within("import and export beats", 0, beats, config.export_depth)
    if name in {*_UPDATES, "DW_EXPORT"}:
        blocks = f["nr"] * f["nk"] * (f["side"] + 1)
        if f["nb"] != blocks * config.block_beats:
            yield f"nb must be that of {blocks} blocks, {blocks * config.block_beats}, not {f['nb']}"


def check_softmax(f: Instruction, config: Config) -> Iterator[str]:
    """A sentence for every defect of a SOFTMAX."""
    if not 1 <= f["images"] <= config.max_planes:
        yield f"{f['images']} images, the configuration takes 1..{config.max_planes}"
    if not 1 <= f["classes"] <= config.max_classes:
        yield f"{f['classes']} classes, the configuration takes 1..{config.max_classes}"
        return
    entries = f["images"] * ceil_div(f["classes"], config.group)
    yield from within(
        "logit addresses",
        f["logit0"],
        entries,
        config.logit_depth,
    )
    yield from within("output A addresses", f["oa0"], entries, config.abuf_depth)
