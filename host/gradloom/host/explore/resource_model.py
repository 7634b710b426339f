"""What a machine takes of a device: LUTs and flip-flops by a fit to synthesised machines, block RAMs and multipliers exactly.

A machine's LUTs and flip-flops are a sum over groups of its parts, of terms that mean something: so many of a processing element,
of a WPU, of a lane of the A-Core, and a fixed part. ``resource_fit.json`` holds the coefficients, which ``python -m
gradloom.verif.resource_fit`` makes by least squares; docs/resource-fit.md shows by how much they are off.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.host.explore.block_ram import block_rams, lut_rams
from gradloom.systems.vocabulary import Resources

__all__ = ["COEFFICIENTS", "FITTED", "GROUPS", "Coefficients", "fitted_cells", "group_terms", "load_coefficients", "multipliers",
           "predict"]

COEFFICIENTS = Path(__file__).parent / "resource_fit.json"
"""By family, group and kind the coefficients of its terms."""
Coefficients = Mapping[str, Mapping[str, Mapping[str, list[float]]]]
"""By family, group and kind."""
FITTED = ("luts", "flip_flops")
"""Kinds of cells that are fitted; LUTs without those of distributed RAM that follow exactly."""
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "xc7": {
        "processing elements": ("PE", "PE of two folds"),
        "window processing units": ("WPU", "column of a WPU"),
        "window registers": ("column of a row of WPUs",),
        "weight registers": ("column of a cluster",),
        "gathers": ("gather", "column of a gather", "cluster of a gather"),
        "input network": ("fixed", "bit of the row banks"),
        "weight network": ("fixed", "bit a cycle", "bit a cycle with two folds"),
        "drain": ("bit of a beat of sums", "such bit of a WPU beyond a cluster's first", "such bit with two folds"),
        "C-Core's control": ("fixed", "WPU"),
        "A-Core's lanes": ("lane",),
        "A-Core's rest": ("fixed", "channel"),
        "DMA channels": ("channel", "byte of a channel's beat"),
        "queues and counters": ("queue",),
        "Sequencer and registers": ("fixed",),
    },
    "ecp5": {
        "C-Core": ("fixed", "MAC", "weight byte of a second fold"),
        "A-Core": ("fixed", "channel beyond the first"),
        "the rest": ("fixed",),
    },
}
"""By family the groups of parts of a machine, and the terms of each. For ecp5 the tables of synthesis are coarser."""
_TABLE_LUTS = {"all": 2215, "totals": 1215, "none": 0}
_TABLE_FLIP_FLOPS = {"all": 1441, "totals": 528, "none": 0}
"""What counters take on ECP5 beside the fitted machines, which have none (docs/ecp5.md, synthesised)."""
_BOARD = {"luts": 2476, "flip_flops": 1118, "brams": 2}
"""Link, arbiter, packer and SDRAM controller of a board (docs/results/boards, synthesised)."""
_PLACED = 34_827 / 31_623
"""LUTs after placement for one of synthesis on ECP5: nextpnr leads signals into carry chains and out of them by LUTs (ecp5-9)."""
_ECP5_MORE = {"luts": (4200, 1540), "flip_flops": (3650, 950)}
"""For a lane of the A-Core beyond the first, and for a DMA channel beyond the first two (synthesised: docs/ecp5.md, half an APU and
600 LUTs of its shifters; Loader and read manager of the table of the memory path)."""
_LANE_MULTIPLIERS, _APU_MULTIPLIERS = 5, 4
_ECP5_LANE, _ECP5_FIXED = 5, 4


def group_terms(config: Config, family: str) -> dict[str, tuple[float, ...]]:
    """How often each term of :data:`GROUPS` is in a machine."""
    wpus, group, lanes = config.clusters * config.wpus, config.group, config.apus * config.apu_lanes
    channels, second = config.load_channels + config.store_channels, config.laps - 1
    if family == "ecp5":
        return {"C-Core": (1, config.macs, second * group * config.cols), "A-Core": (1, group - 1), "the rest": (1,)}
    pes, weights, sums = wpus * PE_ROWS * config.cols, 8 * PE_TAPS * group * config.cols, 2 * group * config.wg_width
    return {
        "processing elements": (pes, second * pes),
        "window processing units": (wpus, wpus * config.cols),
        "window registers": (config.wpus * config.cols,),
        "weight registers": (group * config.cols,),
        "gathers": (2 * wpus, 2 * wpus * config.cols, 2 * wpus * group),
        "input network": (1, 8 * config.beat_bytes * config.row_banks),
        "weight network": (1, weights, second * weights),
        "drain": (sums, (config.wpus - 1) * sums, second * sums),
        "C-Core's control": (1, wpus),
        "A-Core's lanes": (lanes,),
        "A-Core's rest": (1, group),
        "DMA channels": (channels, channels * config.beat_bytes),
        "queues and counters": (channels + 2,),
        "Sequencer and registers": (1,),
    }


@functools.cache
def load_coefficients() -> Coefficients:
    """Those of the package."""
    found: Coefficients = json.loads(COEFFICIENTS.read_text())["coefficients"]
    return found


def fitted_cells(config: Config, family: str, kind: str, coefficients: Coefficients) -> dict[str, float]:
    """LUTs or flip-flops of each group, distributed RAM that follows exactly added."""
    ram = lut_rams(config, family) if kind == "luts" else {}
    terms = group_terms(config, family)
    return {group: sum(times * each for times, each in zip(terms[group], coefficients[family][group][kind], strict=True))
            + ram.get(group, 0) for group in GROUPS[family]}


def multipliers(config: Config, family: str) -> int:
    """DSP48E1 slices, or MULT18X18D blocks, exactly for the machines that ``gradloom explore`` makes.

    xc7: of the array, three for the magnitudes of each WPU, and of the A-Core's lanes, its first pass, scalars and softmax unit.
    ecp5, with ``apu_shifters = "lut"``: of the array and the A-Core's lanes, first pass and scalars.
    """
    lanes = config.apus * config.apu_lanes
    if family == "xc7":
        array = config.macs // (2 if config.mac == "double_pumped" else 1)
        shifts = config.apu_shifters == "multiplier"
        return (array + 3 * config.clusters * config.wpus + lanes * (_LANE_MULTIPLIERS if shifts else 0)
                + config.apus * (_APU_MULTIPLIERS + config.apu_lanes) + (4 if shifts else 3))
    return config.macs + _ECP5_LANE * lanes + _ECP5_FIXED


def predict(config: Config, family: str, *, board: bool = False, coefficients: Coefficients | None = None) -> Resources:
    """Resources of a machine in a family of FPGAs.

    ``board``: with link and memory controller, and for ecp5 with the LUTs that placement adds. LUTs of xc7 are LUT6 with small ones
    combined, as docs/synthesis-xc7.md counts them.
    """
    used = coefficients or load_coefficients()
    luts = sum(fitted_cells(config, family, "luts", used).values())
    flip_flops = sum(fitted_cells(config, family, "flip_flops", used).values())
    brams = block_rams(config, family)
    if family == "ecp5":
        luts, flip_flops = luts + _TABLE_LUTS[config.counters], flip_flops + _TABLE_FLIP_FLOPS[config.counters]
        beyond = config.apus * config.apu_lanes - 1, config.load_channels + config.store_channels - 2
        luts, flip_flops = (value + sum(times * each for times, each in zip(beyond, _ECP5_MORE[kind], strict=True))
                            for kind, value in (("luts", luts), ("flip_flops", flip_flops)))
    if board:
        luts, flip_flops, brams = luts + _BOARD["luts"], flip_flops + _BOARD["flip_flops"], brams + _BOARD["brams"]
    if family == "ecp5":
        luts *= _PLACED
    return Resources(luts=round(luts), flip_flops=round(flip_flops), dsps=multipliers(config, family), brams=brams)
