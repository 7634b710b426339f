"""A component routed for a device, and the faults that one may plant in what came out."""

import copy
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gradloom.boards.build import PLACER_OPTIONS, ROUTER_OPTIONS
from gradloom.boards.tools import tool_path
from gradloom.verif.synth import SynthError

__all__ = ["ROUTED_FAULTS", "routed"]

_DEVICE = ("--25k", "--package", "CABGA381", "--speed", "6", "--lpf-allow-unconstrained", "--timing-allow-fail", "--seed", "1")


def routed(design: Mapping[str, Any]) -> dict[str, Any]:
    """nextpnr's JSON of the netlist ``design`` (of one module) placed and routed on an LFE5U-25F, as boards are.

    Raises
    ------
    :exc:`SynthError`
        If nextpnr fails.
    """
    with tempfile.TemporaryDirectory(prefix="ecp5-") as name:
        folder = Path(name)
        (folder / "top.json").write_text(json.dumps(design))
        options = [*PLACER_OPTIONS, *(option for option in ROUTER_OPTIONS if option not in PLACER_OPTIONS)]
        done = subprocess.run([tool_path("nextpnr-ecp5"), *_DEVICE, *options, "--json", "top.json", "--write", "routed.json"],
                              cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-20:])
            raise SynthError(f"nextpnr failed with status {done.returncode}:\n{tail}")
        found: dict[str, Any] = json.loads((folder / "routed.json").read_text())
        return found


def _cells(design: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    """Cells of a kind by name."""
    module, = design["modules"].values()
    return (cell for _, cell in sorted(module["cells"].items()) if cell["type"] == kind)


def _flip_a_bit(design: Mapping[str, Any]) -> None:
    """One bit of a LUT that adds four bits without carry: all of its bits matter."""
    cell = next(cell for cell in _cells(design, "TRELLIS_COMB") if cell["parameters"].get("INITVAL") in (
        "0110100110010110", "1001011001101001") and all(cell["connections"].get(pin) for pin in "ABCD"))
    table = cell["parameters"]["INITVAL"]
    cell["parameters"]["INITVAL"] = table[:5] + ("0" if table[5] == "1" else "1") + table[6:]


def _swap_inputs(design: Mapping[str, Any]) -> None:
    """Two inputs of a multiplier."""
    joined = next(cell for cell in _cells(design, "MULT18X18D"))["connections"]
    joined["A0"], joined["A1"] = joined["A1"], joined["A0"]


def _drop_enable(design: Mapping[str, Any]) -> None:
    """The enable of a flip-flop that has one."""
    cell = next(cell for cell in _cells(design, "TRELLIS_FF") if cell["parameters"]["CEMUX"].strip() == "CE")
    cell["parameters"]["CEMUX"] = "1 "


def _planted(plant: Callable[[Mapping[str, Any]], None]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def apply(design: Mapping[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(dict(design))
        plant(changed)
        return changed
    return apply


ROUTED_FAULTS = {"a bit of a LUT": _planted(_flip_a_bit), "inputs of a multiplier": _planted(_swap_inputs),
                 "the enable of a flip-flop": _planted(_drop_enable)}
"""Functions that give a routed design with the fault."""
