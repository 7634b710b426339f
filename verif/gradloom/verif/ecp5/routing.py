"""A component routed for a device, and the faults that one may plant in what came out."""

import copy
import functools
import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradloom.boards.build import PLACER_OPTIONS, ROUTER_OPTIONS
from gradloom.boards.tools import tool_path
from gradloom.verif.synth import SynthError

__all__ = ["Plant", "routed", "routed_faults", "with_faults"]

_DEVICE = ("--25k", "--package", "CABGA381", "--speed", "6", "--lpf-allow-unconstrained", "--timing-allow-fail", "--seed", "1")


def routed(design: Mapping[str, Any], pins: str = "") -> dict[str, Any]:
    """nextpnr's JSON of the netlist ``design`` (of one module) placed and routed on an LFE5U-25F, as boards are.

    Parameters
    ----------
    pins : :class:`str`, optional
        Text of an LPF file that says where ports are; others lie anywhere.

    Raises
    ------
    :exc:`SynthError`
        If nextpnr fails.
    """
    with tempfile.TemporaryDirectory(prefix="ecp5-") as name:
        folder = Path(name)
        (folder / "top.json").write_text(json.dumps(design))
        (folder / "top.lpf").write_text(pins)
        options = [*PLACER_OPTIONS, *(option for option in ROUTER_OPTIONS if option not in PLACER_OPTIONS)]
        done = subprocess.run([tool_path("nextpnr-ecp5"), *_DEVICE, *options, "--json", "top.json", "--lpf", "top.lpf",
                               "--write", "routed.json"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-20:])
            raise SynthError(f"nextpnr failed with status {done.returncode}:\n{tail}")
        found: dict[str, Any] = json.loads((folder / "routed.json").read_text())
        return found


Plant = Callable[[Mapping[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
"""Gives a cell of a routed design, and what is wrong with it."""


def _cells(design: Mapping[str, Any], kind: str, within: str) -> Iterator[dict[str, Any]]:
    """Cells of a kind in the order of their names, those whose names begin so."""
    module, = design["modules"].values()
    return (cell for name, cell in sorted(module["cells"].items()) if cell["type"] == kind and name.startswith(within))


XOR4 = ("0110100110010110", "1001011001101001")
"""Tables of the LUTs that add four bits without carry: all of their bits matter."""


def _flip_a_bit(within: str, tables: Sequence[str], design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One bit of a LUT with all of its inputs, or of a carry chain: where A and C, which a chain leaves open, are 1."""
    cell = next(cell for cell in _cells(design, "TRELLIS_COMB", within) if cell["parameters"].get("INITVAL") in tables and (
        cell["parameters"].get("MODE") == "CCU2" or all(cell["connections"].get(pin) for pin in "ABCD")))
    table = cell["parameters"]["INITVAL"]
    return cell, {"parameters": {"INITVAL": table[:10] + ("0" if table[10] == "1" else "1") + table[11:]}}


def _swap_inputs(pe: str, design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two inputs of a multiplier, of bits that a factor has wherever it lies at the port."""
    cell = next(_cells(design, "MULT18X18D", pe))
    joined = cell["connections"]
    return cell, {"connections": {"A10": joined["A11"], "A11": joined["A10"]}}


def _drop_enable(held: str, design: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The enable of a flip-flop, which then holds nothing."""
    cell = next(_cells(design, "TRELLIS_FF", held))
    assert cell["parameters"]["CEMUX"].strip() == "CE"
    return cell, {"parameters": {"CEMUX": "1 "}}


def routed_faults(pe: str, *, held: str, logic: str = "", tables: Sequence[str] = XOR4) -> dict[str, Plant]:
    """Faults to plant in a design.

    Parameters
    ----------
    pe : :class:`str`
        The name of a PE in it.
    held : :class:`str`
        How the name begins of a flip-flop with an enable.
    logic : :class:`str`
        How the names begin of the LUTs of which the first loses a bit.
    tables : sequence of :class:`str`
        What such a LUT may hold (INITVAL).
    """
    return {"a bit of a LUT": functools.partial(_flip_a_bit, logic, tables),
            "inputs of a multiplier": functools.partial(_swap_inputs, pe),
            "the enable of a flip-flop": functools.partial(_drop_enable, held)}


def with_faults(design: Mapping[str, Any], faults: Mapping[str, Plant]) -> dict[str, Any]:
    """The design with an input ``fault`` more, of a bit for each of ``faults``. While that is 1, a second cell with the fault
    drives what the good one drove. So one simulation is built for all."""
    changed = copy.deepcopy(dict(design))
    module, = changed["modules"].values()
    fresh = itertools.count(1 + max(bit for cell in module["cells"].values() for bits in cell["connections"].values()
                                    for bit in bits if isinstance(bit, int)))
    selectors = [next(fresh) for _ in faults]
    victims = [plant(changed) for plant in faults.values()]
    module["ports"]["fault"] = {"direction": "input", "bits": selectors}
    for selector, (good, wrong) in zip(selectors, victims, strict=True):
        bad = copy.deepcopy(good)
        for part, values in wrong.items():
            bad[part].update(values)
        module["cells"][f"fault{selector}"] = bad
        for pin, direction in good["port_directions"].items():
            if direction != "output" or not good["connections"][pin]:
                continue
            driven = good["connections"][pin]
            good["connections"][pin], bad["connections"][pin] = [next(fresh)], [next(fresh)]
            module["cells"][f"fault{selector}.{pin}"] = {
                "type": "PFUMX", "parameters": {},
                "port_directions": {"ALUT": "input", "BLUT": "input", "C0": "input", "Z": "output"},
                "connections": {"ALUT": bad["connections"][pin], "BLUT": good["connections"][pin], "C0": [selector], "Z": driven}}
    return changed
