"""Fit the resources of machines to their syntheses; writes ``resource_fit.json`` of the package and ``docs/resource-fit.md``.

``python -m gradloom.verif.resource_fit fit`` needs no synthesis: it reads the tables that are committed. ``... measure NAME FAMILY
field=value ...`` synthesises one more machine (minutes), whose fields differ from ``eta`` (xc7) or ``ecp5-45`` (ecp5), and keeps it
in ``docs/results/resource-points.json``.
"""

import argparse
import ast
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.contracts.config import PRESETS, Config, ConfigError
from gradloom.host.explore.block_ram import lut_rams
from gradloom.host.explore.resource_model import (
    COEFFICIENTS,
    FITTED,
    GROUPS,
    Coefficients,
    fitted_cells,
    group_terms,
    predict,
)
from gradloom.verif.checkout import ROOT
from gradloom.verif.synth import SynthError
from gradloom.verif.synthesis.synth_machine import group_of, measure_machine

__all__ = ["BASES", "POINTS", "Synthesised", "fit", "held_out", "least_squares", "main", "page", "synthesised"]

RESULTS = ROOT / "docs/results"
POINTS = RESULTS / "resource-points.json"
PAGE = ROOT / "docs/resource-fit.md"
BASES = {"xc7": "eta", "ecp5": "ecp5-45"}
"""Machines whose fields a measured one has where it names no other."""
_KINDS = ("luts", "flip_flops", "dsps", "brams")
_BEFORE = {"processing elements": (72, 6671), "window processing units": (3793, 5498), "window registers": (786, 1043),
           "weight registers": (156, 1144), "gathers": (2296, 328), "input network": (4083, 1912), "weight network": (182, 134),
           "drain": (859, 795), "C-Core's control": (1941, 1237), "A-Core's lanes": (6990, 14662), "A-Core's rest": (8224, 14550),
           "DMA channels": (4324, 3080), "queues and counters": (1888, 7989), "Sequencer and registers": (6355, 4296)}
"""LUTs and flip-flops of ``xc7-2x2x2``, as a fit to ``eta`` and ``eta2x`` alone predicted them before any of it was synthesised."""
_CCORE = ("processing elements", "window processing units", "window registers", "weight registers", "gathers", "input network",
          "weight network", "drain", "C-Core's control")
_COARSE = dict.fromkeys(_CCORE, "C-Core") | {"A-Core's lanes": "A-Core", "A-Core's rest": "A-Core"}
"""Groups of ecp5 of those that parts are sorted by; all others are "the rest"."""


@dataclasses.dataclass(frozen=True)
class Synthesised:
    """A machine as Yosys mapped it.

    Parameters
    ----------
    groups : mapping of group to cells
    fitted : :class:`bool`
        Whether the fit may see it.
    source : :class:`str`
        Where its figures stand.
    """

    config: Config
    family: str
    groups: Mapping[str, Mapping[str, float]]
    fitted: bool
    source: str

    def total(self, kind: str) -> float:
        return sum(cells[kind] for cells in self.groups.values())


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A build for the ULX3S of docs/ecp5.md of which the whole alone is known: link and memory controller with it, LUTs without
    distributed RAM, sources of an earlier day."""

    config: Config
    luts: int
    flip_flops: int
    brams: int
    dsps: int


def _apart() -> Synthesised:
    """C-Core and A-Core of ``ecp5-85``, each synthesised alone in one piece; 161 DPR16X4 of the A-Core are LUTs."""
    ccore = {"luts": 21_532, "flip_flops": 34_230, "dsps": 144, "brams": 86}
    acore = {"luts": 17_882 + 4 * 161, "flip_flops": 15_427, "dsps": 9, "brams": 50}
    return Synthesised(PRESETS["ecp5-85"], "ecp5", {"C-Core": ccore, "A-Core": acore}, True, "ecp5.md")


def held_out() -> list[_Whole]:
    """Builds that the fit never sees (docs/ecp5.md, "The whole machine on an LFE5U-85F"; LUT4 and two a CCU2C)."""
    return [_Whole(PRESETS["ecp5-85"], 37_647 + 2 * 7_527, 59_778, 155, 156),
            _Whole(PRESETS["ecp5-45"], 27_215 + 2 * 5_022, 35_341, 103, 45)]


def synthesised() -> list[Synthesised]:
    """Every machine whose groups are known, from the committed tables."""
    found = []
    for name in ("eta", "eta2x"):
        groups: dict[str, dict[str, float]] = {group: dict.fromkeys(_KINDS, 0.0) for group in GROUPS["xc7"]}
        for part in json.loads((RESULTS / f"synthesis-{name}-xc7.json").read_text())["parts"]:
            one, into = part["one"], groups[group_of(part["name"])]
            for kind, value in (("luts", one["combined"] + one["shift_luts"] + one["ram_luts"]), ("flip_flops", one["flip_flops"]),
                                ("dsps", one["dsp48e1"]), ("brams", one["bram36"])):
                into[kind] += part["number"] * value
        found.append(Synthesised(PRESETS[name], "xc7", groups, True, f"results/synthesis-{name}-xc7.json"))
    found += [_routed(RESULTS / "boards/9-macs-sdram-1.json"), _apart()]
    for point in json.loads(POINTS.read_text()) if POINTS.is_file() else []:
        groups = point["groups"]
        if point["family"] == "ecp5":
            coarse: dict[str, dict[str, float]] = {}
            for group, cells in groups.items():
                into = coarse.setdefault(_COARSE.get(group, "the rest"), dict.fromkeys(_KINDS, 0.0))
                for kind in _KINDS:
                    into[kind] += cells[kind]
            groups = coarse
        found.append(Synthesised(Config(**point["config"]), point["family"], groups, point["fitted"], f"results/{POINTS.name}"))
    return found


def _routed(path: Path) -> Synthesised:
    """The netlist of a build, the machine without what the board adds."""
    report = json.loads(path.read_text())
    groups: dict[str, dict[str, float]] = {name: dict.fromkeys(_KINDS, 0.0) for name in GROUPS["ecp5"]}
    for module, cells in report["modules"].items():
        if module.startswith("design.machine"):
            group = {"ccore": "C-Core", "acore": "A-Core"}.get(module.rsplit(".", 1)[-1], "the rest")
            for kind, value in (("luts", cells.get("LUT4", 0) + 2 * cells.get("CCU2C", 0) + 4 * cells.get("DPR16X4", 0)),
                                ("flip_flops", cells.get("FF", 0)), ("dsps", cells.get("MULT18X18D", 0)),
                                ("brams", cells.get("DP16KD", 0))):
                groups[group][kind] += value
    return Synthesised(Config(**report["config"]), "ecp5", groups, True, f"results/boards/{path.name}")


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Coefficients, none of them negative, whose sums come relatively closest to the values.

    A term that would be negative is left out, the most negative one first. Terms that no machine tells apart share what they
    take evenly (the solution of least norm).
    """
    matrix, wanted = np.asarray(rows, float), np.asarray(values, float)
    weights = 1 / np.maximum(wanted, 1)
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-9)
    kept = list(range(matrix.shape[1]))
    found = np.zeros(matrix.shape[1])
    while kept:
        scaled = matrix[:, kept] / scale[kept] * weights[:, None]
        solution = np.linalg.lstsq(scaled, wanted * weights, rcond=1e-9)[0]
        if solution.min() >= -1e-9:
            found[kept] = np.maximum(solution, 0) / scale[kept]
            break
        del kept[int(solution.argmin())]
    return [float(f"{value:.6g}") for value in found]


def fit(machines: Sequence[Synthesised]) -> Coefficients:
    """Coefficients by family, group and kind, of the machines that the fit may see."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for family, groups in GROUPS.items():
        seen = [machine for machine in machines if machine.family == family and machine.fitted]
        found[family] = {}
        for group in groups:
            known = [machine for machine in seen if group in machine.groups]
            rows = [group_terms(machine.config, family)[group] for machine in known]
            found[family][group] = {kind: least_squares(rows, [_left(machine, group, kind) for machine in known])
                                     for kind in FITTED}
    return found


def _left(machine: Synthesised, group: str, kind: str) -> float:
    """Cells of an group without the distributed RAM that follows exactly."""
    ram = lut_rams(machine.config, machine.family).get(group, 0) if kind == "luts" else 0
    return machine.groups[group][kind] - ram


def page(machines: Sequence[Synthesised], coefficients: Coefficients) -> str:
    """The text of ``docs/resource-fit.md``."""
    rows = []
    for machine in (machine for machine in machines if set(machine.groups) == set(GROUPS[machine.family])):
        found = predict(machine.config, machine.family, coefficients=coefficients)
        # A prediction for ecp5 is of placed LUTs; synthesis is compared with the sum of the terms.
        luts = sum(fitted_cells(machine.config, machine.family, "luts", coefficients).values())
        predicted = {"luts": luts, "flip_flops": found.flip_flops or 0, "dsps": found.dsps or 0, "brams": found.brams or 0}
        rows.append(_row(machine.config, machine.family, "fitted" if machine.fitted else "left out", predicted,
                         {kind: machine.total(kind) for kind in _KINDS}))
    for whole in held_out():
        found = predict(whole.config, "ecp5", board=True, coefficients=coefficients)
        luts = sum(fitted_cells(whole.config, "ecp5", "luts", coefficients).values()) + _board_luts(whole.config)
        predicted = {"luts": luts, "flip_flops": found.flip_flops or 0, "dsps": found.dsps or 0, "brams": found.brams or 0}
        partly = any(machine.config == whole.config for machine in machines)
        how = "its C-Core and A-Core alone are fitted; earlier sources" if partly else "left out; earlier sources"
        rows.append(_row(whole.config, "ecp5", how, predicted,
                         {kind: float(getattr(whole, kind)) for kind in _KINDS}))
    terms = []
    for family, groups in GROUPS.items():
        for group, names in groups.items():
            for kind in FITTED:
                parts = [f"{value:,.4g} a {name}" if name != "fixed" else f"{value:,.4g} fixed"
                         for name, value in zip(names, coefficients[family][group][kind], strict=True) if value]
                terms.append(f"| {family} | {group} | {kind.replace('_', '-')} | {', '.join(parts) or 'none'} |")
    table, sums, small = "\n".join(rows), "\n".join(terms), "\n".join(_small_parts(machines, coefficients))
    return f"""# The resource fit

Generated by `python -m gradloom.verif.resource_fit fit` (`nox -s resources`); do not edit. `gradloom explore` predicts with it what
a machine takes of a device ([how](explore.md)).

Block RAMs and multipliers follow from the configuration exactly (but for half a block RAM of `eta2x`), and so do the LUTs of large
memories that are distributed RAM (`gradloom.host.explore.block_ram`). Other LUTs, and flip-flops, are sums of terms that mean
something, fitted by least squares of relative errors to *synthesised* machines (Yosys, part by part). Coefficients are never
negative.

LUTs of xc7 are LUT6 with small ones combined, shift registers and distributed RAM; of ecp5 LUT4, two a carry cell and four a
distributed RAM. On ECP5 placement adds a tenth (34,827 of 31,623 of `ecp5-9`, *routed*).

## Against synthesis

*Predicted* and *synthesised*, and the error of the prediction. Machines that were left out show what the fit is worth elsewhere.

| machine | MACs | family | | LUTs | flip-flops | multipliers | block RAMs |
|---|---|---|---|---|---|---|---|
{table}

Those of earlier sources are builds for the ULX3S with link and memory controller, whose LUTs are given without distributed RAM
([ecp5](ecp5.md#the-whole-machine-on-an-lfe5u-85f)); what changed since is in their errors.

## Parts of a small machine

Groups of a machine of the 7 series that is far smaller than `eta` and `eta2x`: *predicted* by the fit of these two alone before
anything of it was synthesised, *fitted* now that the fit has seen it, and *synthesised*. Terms for columns, for a second WPU,
for PEs of two folds and the weight network's fixed part came since.

| machine | MACs | group | LUTs: predicted / fitted / synthesised | flip-flops |
|---|---|---|---|---|
{small}

## Terms

| family | group | cells | terms |
|---|---|---|---|
{sums}

A *fold* is one of the two laps in which an array with half as many columns takes a channel group. Columns of a row of WPUs and of a
cluster are those of their operand registers. A *gather* joins what the array drains.
"""


def _small_parts(machines: Sequence[Synthesised], coefficients: Coefficients) -> list[str]:
    """Groups of the machine of which parts alone are synthesised, as they were predicted before and as they are fitted."""
    rows = []
    for machine in (machine for machine in machines if machine.source.endswith(POINTS.name)):
        for group, cells in machine.groups.items():
            fitted = [fitted_cells(machine.config, machine.family, kind, coefficients)[group] for kind in FITTED]
            found = " | ".join(f"{before:,} / {now:,.0f} / {cells[kind]:,.0f}"
                               for before, now, kind in zip(_BEFORE[group], fitted, FITTED, strict=True))
            rows.append(f"| {machine.config.name} | {machine.config.macs} | {group} | {found} |")
    return rows


def _board_luts(config: Config) -> float:
    """Of link and memory controller and of counters, less the distributed RAM of ``ecp5-9``."""
    counters = {"none": 0, "totals": 1215, "all": 2215}[config.counters]
    return 2476 + counters - 4 * 351


def _row(config: Config, family: str, how: str, predicted: Mapping[str, float], true: Mapping[str, float]) -> str:
    cells = []
    for kind in _KINDS:
        error = predicted[kind] / true[kind] - 1
        same = predicted[kind] == true[kind]
        cells.append(f"{true[kind]:,g}" if same else f"{predicted[kind]:,.0f} / {true[kind]:,g} ({100 * error:+.1f} %)")
    return f"| {config.name} | {config.macs:,} | {family} | {how} | " + " | ".join(cells) + " |"


def _measure(name: str, family: str, fields: Sequence[str], fitted: bool) -> None:
    values: dict[str, Any] = {}
    for field in fields:
        key, _, value = field.partition("=")
        try:
            values[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[key] = value
    config = dataclasses.replace(PRESETS[BASES[family]], name=name, **values)
    points = json.loads(POINTS.read_text()) if POINTS.is_file() else []
    points = [point for point in points if point["config"]["name"] != name]
    points.append({"family": family, "fitted": fitted, "config": dataclasses.asdict(config),
                   "groups": measure_machine(config, family)})
    POINTS.write_text(json.dumps(points, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.resource_fit", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fit", help="fit the committed tables and write the page")
    measure = commands.add_parser("measure", help="synthesise one more machine")
    measure.add_argument("name")
    measure.add_argument("family", choices=tuple(BASES))
    measure.add_argument("fields", nargs="*", metavar="FIELD=VALUE")
    measure.add_argument("--left-out", action="store_true", help="keep it from the fit, to hold the fit against it")
    options = parser.parse_args(arguments)
    try:
        if options.command == "measure":
            _measure(options.name, options.family, options.fields, not options.left_out)
            return 0
        machines = synthesised()
        coefficients = fit(machines)
    except (SynthError, ConfigError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    COEFFICIENTS.write_text(json.dumps({"made_by": "python -m gradloom.verif.resource_fit fit", "coefficients": coefficients},
                                       indent=1) + "\n")
    PAGE.write_text(page(machines, coefficients))
    return 0


if __name__ == "__main__":
    sys.exit(main())
