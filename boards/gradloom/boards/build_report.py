"""What a build took of its device, and how fast it is."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["BuildReport", "cells_by_module", "read_report"]

_KINDS = {"LUT4": "LUT4", "CCU2C": "CCU2C", "TRELLIS_DPR16X4": "DPR16X4", "TRELLIS_FF": "FF", "DP16KD": "DP16KD",
          "PDPW16KD": "DP16KD", "MULT18X18D": "MULT18X18D"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildReport:
    """Everything here but ``modules`` is after routing.

    Parameters
    ----------
    use : dict
        Used and available cells of the device, by its kinds (TRELLIS_COMB, TRELLIS_FF, DP16KD, MULT18X18D, ...).
    modules : dict
        Cells after synthesis, by part of the design and kind.
    clock_mhz, reached_mhz : :class:`float`
        Asked for, and what the slowest path allows.
    critical : :class:`str`
        Where that path begins and ends.
    seed : :class:`int`
        Of the placement.
    seconds : dict
        By stage.
    files : dict
        SHA-256 of bitstream and sources, by name.
    """

    use: dict[str, tuple[int, int]]
    modules: dict[str, dict[str, int]]
    clock_mhz: float
    reached_mhz: float
    critical: str
    seed: int
    seconds: dict[str, float]
    versions: list[str]
    files: dict[str, str]

    def text(self) -> str:
        """For a reader."""
        lines = [f"clock {self.clock_mhz:.2f} MHz, {self.reached_mhz:.2f} MHz reached after routing ({self.critical})",
                 f"seed {self.seed}; " + ", ".join(self.versions),
                 ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in self.seconds.items()),
                 "", f"{'device':<16}{'used':>8}{'of':>8}"]
        lines += [f"{kind:<16}{used:>8}{available:>8}{used / available:>7.0%}" for kind, (used, available) in self.use.items()
                  if available]
        kinds = [kind for kind in dict.fromkeys(_KINDS.values()) if any(kind in cells for cells in self.modules.values())]
        lines += ["", f"{'module (after synthesis)':<40}" + "".join(f"{kind:>12}" for kind in kinds)]
        for name, cells in sorted(self.modules.items(), key=lambda item: -item[1].get("LUT4", 0)):
            lines.append(f"{name:<40}" + "".join(f"{cells.get(kind, 0):>12}" for kind in kinds))
        return "\n".join([*lines, "", *(f"{name}  sha256 {digest}" for name, digest in self.files.items())]) + "\n"

    def json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"


def cells_by_module(netlist: dict[str, Any], top: str = "top", depth: int = 3) -> dict[str, dict[str, int]]:
    """Cells of a flat netlist as Yosys writes it, by the part of the design that their names begin with.

    Parameters
    ----------
    depth : :class:`int`
        Names of parts that are kept: ``machine.core.acore`` has three.
    """
    found: dict[str, Counter[str]] = {}
    for name, cell in netlist["modules"][top]["cells"].items():
        if cell["type"] in _KINDS:
            parts = name.split(".")[:-1][:depth]
            found.setdefault(".".join(parts) or "(top)", Counter())[_KINDS[cell["type"]]] += 1
    return {name: dict(cells) for name, cells in found.items()}


def read_report(path: Path, clock_mhz: float) -> tuple[dict[str, tuple[int, int]], float, str]:
    """Use, the frequency reached by the slowest clock and its critical path, of the report that nextpnr writes."""
    table = json.loads(path.read_text())
    use = {kind: (entry["used"], entry["available"]) for kind, entry in sorted(table["utilization"].items()) if entry["used"]}
    clocks = {name: entry["achieved"] for name, entry in table["fmax"].items()}
    if not clocks:
        return use, clock_mhz, "no clocked path"
    slowest = min(clocks, key=lambda name: clocks[name])
    critical = "no path"
    for entry in table.get("critical_paths", []):
        if slowest in entry["from"] and slowest in entry["to"] and entry["path"]:
            critical = f"from {entry['path'][0]['from']['cell']} to {entry['path'][-1]['to']['cell']}"
    return use, clocks[slowest], critical
