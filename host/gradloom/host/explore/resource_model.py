"""What a machine takes of a device: LUTs and flip-flops by a fit to synthesised machines, block RAMs and multipliers exactly.

Each engine's LUTs and flip-flops are a sum of terms that mean something: so many of a processing element, of a WPU, of a lane of
the A-Core, and a fixed part. ``resource_fit.json`` holds the coefficients, which ``python -m gradloom.verif.resource_fit`` makes by
least squares; docs/resource-fit.md shows by how much they are off.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from gradloom.contracts.config import PE_ROWS, PE_TAPS, Config
from gradloom.host.explore.block_ram import block_rams, lut_rams
from gradloom.systems.vocabulary import Resources

__all__ = ["COEFFICIENTS", "ENGINES", "FITTED", "Coefficients", "engine_terms", "fitted_cells", "load_coefficients", "multipliers",
           "predict"]

COEFFICIENTS = Path(__file__).parent / "resource_fit.json"
"""By family, engine and kind the coefficients of its terms."""
Coefficients = Mapping[str, Mapping[str, Mapping[str, list[float]]]]
"""By family, engine and kind."""
FITTED = ("luts", "flip_flops")
"""Kinds of cells that are fitted; LUTs without those of distributed RAM that follow exactly."""
ENGINES: dict[str, dict[str, tuple[str, ...]]] = {
    "xc7": {
        "C-Core, array": ("PE", "WPU", "window column", "weight column"),
        "C-Core, sums": ("WPU",),
        "C-Core, the rest": ("fixed", "byte of the row banks", "weight byte a cycle", "weight byte of a second fold"),
        "A-Core, lanes": ("lane",),
        "A-Core, the rest": ("fixed", "channel"),
        "Loaders, Storers, AXI": ("DMA channel", "byte of the DMA channels"),
        "Sequencer, queues, registers": ("fixed", "DMA channel"),
    },
    "ecp5": {
        "C-Core": ("fixed", "MAC", "weight byte of a second fold"),
        "A-Core": ("fixed", "channel beyond the first"),
        "the rest": ("fixed",),
    },
}
"""Terms of each engine by family. For xc7 engines are those of the tables of synthesis; of an ECP5 the tables are coarser."""
_TABLE_LUTS = {"xc7": {"all": 0, "totals": -400, "none": -700}, "ecp5": {"all": 2215, "totals": 1215, "none": 0}}
_TABLE_FLIP_FLOPS = {"xc7": {"all": 0, "totals": -800, "none": -1300}, "ecp5": {"all": 1441, "totals": 528, "none": 0}}
"""What counters take beside those of the fitted machines (ecp5: docs/ecp5.md, synthesised; xc7: reckoned from eta's parts)."""
_BOARD = {"luts": 2476, "flip_flops": 1118, "brams": 2}
"""Link, arbiter, packer and SDRAM controller of a board (docs/results/boards, synthesised)."""
_PLACED = 34_827 / 31_623
"""LUTs after placement for one of synthesis on ECP5: nextpnr leads signals into carry chains and out of them by LUTs (ecp5-9)."""
_ECP5_MORE = {"luts": (4200, 1540), "flip_flops": (3650, 950)}
"""For a lane of the A-Core beyond the first, and for a DMA channel beyond the first two (synthesised: docs/ecp5.md, half an APU and
600 LUTs of its shifters; Loader and read manager of the table of the memory path)."""
_LANE_MULTIPLIERS, _APU_MULTIPLIERS = 5, 4
_ECP5_LANE, _ECP5_FIXED = 5, 4


def engine_terms(config: Config, family: str) -> dict[str, tuple[float, ...]]:
    """How often each term of :data:`ENGINES` is in a machine."""
    wpus, group, lanes = config.clusters * config.wpus, config.group, config.apus * config.apu_lanes
    channels = config.load_channels + config.store_channels
    if family == "ecp5":
        return {
            "C-Core": (1, config.macs, (config.laps - 1) * group * config.cols),
            "A-Core": (1, group - 1),
            "the rest": (1,),
        }
    return {
        "C-Core, array": (wpus * PE_ROWS * config.cols, wpus, config.wpus * config.cols, group * config.cols),
        # Sums are adders of so many bits, 36 in the fitted machines.
        "C-Core, sums": (wpus * config.psum_width / 36,),
        "C-Core, the rest": (1, 2 * group * config.row_banks, PE_TAPS * group * config.cols,
                             (config.laps - 1) * group * config.cols),
        "A-Core, lanes": (lanes,),
        "A-Core, the rest": (1, group),
        "Loaders, Storers, AXI": (channels, channels * config.beat_bytes),
        "Sequencer, queues, registers": (1, channels),
    }


@functools.cache
def load_coefficients() -> Coefficients:
    """Those of the package."""
    found: Coefficients = json.loads(COEFFICIENTS.read_text())["coefficients"]
    return found


def fitted_cells(config: Config, family: str, kind: str, coefficients: Coefficients) -> dict[str, float]:
    """LUTs or flip-flops of each engine, distributed RAM that follows exactly added."""
    ram = lut_rams(config, family) if kind == "luts" else {}
    terms = engine_terms(config, family)
    return {engine: sum(times * each for times, each in zip(terms[engine], coefficients[family][engine][kind], strict=True))
            + ram.get(engine, 0) for engine in ENGINES[family]}


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
    luts = sum(fitted_cells(config, family, "luts", used).values()) + _TABLE_LUTS[family][config.counters]
    flip_flops = sum(fitted_cells(config, family, "flip_flops", used).values()) + _TABLE_FLIP_FLOPS[family][config.counters]
    brams = block_rams(config, family)
    if family == "ecp5":
        beyond = config.apus * config.apu_lanes - 1, config.load_channels + config.store_channels - 2
        luts, flip_flops = (value + sum(times * each for times, each in zip(beyond, _ECP5_MORE[kind], strict=True))
                            for kind, value in (("luts", luts), ("flip_flops", flip_flops)))
    if board:
        luts, flip_flops, brams = luts + _BOARD["luts"], flip_flops + _BOARD["flip_flops"], brams + _BOARD["brams"]
    if family == "ecp5":
        luts *= _PLACED
    return Resources(luts=round(luts), flip_flops=round(flip_flops), dsps=multipliers(config, family), brams=brams)
