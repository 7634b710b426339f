"""Netlists of generic gates: what Yosys' synthesis makes of a component's Verilog, as Verilog that a bench simulates in its place.

The flow is that of Yosys' ``synth -flatten``: AND, OR, XOR, NOT, multiplexers and D flip-flops, no device. It differs in one
place: memories of more than :data:`FLIP_FLOP_WORDS` words stay memories. A device makes them of RAM blocks, not of gates, and as
flip-flops they would be nearly all of a netlist, with a tree of multiplexers that says nothing about the logic around them.

Registers have no initial values in a netlist (:mod:`gradloom.sim.power_up`), so that a simulation may draw them.
"""

import dataclasses
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradloom.sim.power_up import without_initial_values
from gradloom.verif.synth import SynthError, yosys_path

__all__ = ["FLIP_FLOP_WORDS", "Netlist", "around", "netlist", "with_netlists"]

FLIP_FLOP_WORDS = 64
"""Memories of so many words, or fewer, become flip-flops: up to this size :mod:`gradloom.verif.synth` asks for no block RAM."""

_GATE = re.compile(r"\$_(?!DLATCH|SR_)[A-Z0-9]+_([A-Z01]+_)?")
_MEMORY = "$mem_v2"
# An initial value may also stand as an attribute of another wire of the same net, where only Yosys sees it.
_SCRIPT = """read_verilog source.v
setattr -unset init w:*
hierarchy -check -top {module}
synth -top {module} -flatten -run :fine
delete t:$scopeinfo
opt -fast -full
memory_map t:$mem_v2 r:SIZE<={words} %i
opt -full
techmap
opt -fast
abc
opt -fast
hierarchy -check
check -assert
opt_clean -purge
splitnets
rename {module} {name}
tee -q -o cells.json stat -json
write_json netlist.json
write_verilog -noattr netlist.v
"""


@dataclasses.dataclass(frozen=True)
class Netlist:
    """A module in gates, or in the cells of a device.

    Parameters
    ----------
    name : :class:`str`
        Of the module.
    verilog : :class:`str`
        Its only module.
    cells : mapping of gate (``$_AND_``, ``LUT4``) to count
        Nothing else is in it but memories.
    memories : :class:`int`
        Of more than :data:`FLIP_FLOP_WORDS` words.
    ports : mapping of port to direction and width in bits
    """

    name: str
    verilog: str
    cells: dict[str, int]
    memories: int
    ports: dict[str, tuple[str, int]]

    def __str__(self) -> str:
        registers = sum(count for kind, count in self.cells.items() if "FF" in kind)
        gates = sum(self.cells.values()) - registers
        return f"{self.name}: {gates} gates, {registers} flip-flops, {self.memories} memories"


def _ports(module: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {port: (fields["direction"], len(fields["bits"])) for port, fields in module["ports"].items()}


def netlist(source: str, module: str, *, name: str | None = None) -> Netlist:
    """Netlist of one module of the Verilog ``source``, with all that it instantiates, called ``name`` (as in ``source``).

    Raises
    ------
    :exc:`SynthError`
        If Yosys is absent or fails, or if anything but gates and memories is left: an operator, a process, a latch.
    """
    name = name or module
    with tempfile.TemporaryDirectory(prefix="gradloom-gates-") as work:
        folder = Path(work)
        (folder / "source.v").write_text(source)
        (folder / "gates.ys").write_text(_SCRIPT.format(module=module, name=name, words=FLIP_FLOP_WORDS))
        done = subprocess.run([yosys_path(), "-q", "-l", "gates.log", "gates.ys"], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-20:])
            raise SynthError(f"{module}: Yosys failed with status {done.returncode}:\n{tail}")
        design = json.loads((folder / "cells.json").read_text())["design"]
        cells: dict[str, int] = design["num_cells_by_type"]
        memories = cells.pop(_MEMORY, 0)
        others = [kind for kind in cells if not _GATE.fullmatch(kind)]
        if others or design["num_processes"] or not cells:
            raise SynthError(f"{module}: no netlist of gates, it holds {', '.join(others) or 'processes or nothing'}")
        return Netlist(name, (folder / "netlist.v").read_text(), cells, memories,
                       _ports(json.loads((folder / "netlist.json").read_text())["modules"][name]))


def around(top: str, inner: Netlist) -> str:
    """A module that is nothing but the ports of ``inner``."""
    def declarations() -> Iterator[str]:
        for port, (direction, width) in inner.ports.items():
            yield f"  {direction} [{width - 1}:0] \\{port} ;" if width > 1 else f"  {direction} \\{port} ;"
    names = ", ".join(f"\\{port} " for port in inner.ports)
    connections = ", ".join(f".\\{port} (\\{port} )" for port in inner.ports)
    return "\n".join([f"module {top}({names});", *declarations(), f"  {inner.name} gates({connections});", "endmodule", ""])


def with_netlists(source: str, top: str, kinds: Sequence[str]) -> tuple[str, list[Netlist]]:
    """``source`` without initial values, and with netlists in the place of some of its modules.

    Parameters
    ----------
    kinds : sequence of :class:`str`
        Names of modules; the digest of their parameters (``apu_01234567``) may be left out. ``all`` is the whole of ``top``: its
        netlist lies in a module of ``top``'s name that has the ports and nothing else, since simulators show all that the top
        module holds.

    Raises
    ------
    :exc:`SynthError`
        As for :func:`netlist`; if there is no such module.
    """
    source = without_initial_values(source)
    if "all" in kinds:
        made = netlist(source, top, name=f"{top}_gates")
        return made.verilog + around(top, made), [made]
    modules = re.findall(r"^module (\w+)\(", source, re.MULTILINE)
    found = []
    for kind in kinds:
        named = [module for module in modules if re.fullmatch(rf"{re.escape(kind)}(_[0-9a-f]{{8}})?", module) and module != top]
        if not named:
            raise SynthError(f"there is no module {kind} below {top}, but {', '.join(sorted({*modules} - {top})) or 'none at all'}")
        found += [netlist(source, module) for module in named]
    for made in found:
        place = re.search(rf"^module {made.name}\(.*?^endmodule$", source, re.MULTILINE | re.DOTALL)
        assert place is not None  # a name of the list above
        source = source[:place.start()] + made.verilog + source[place.end():]
    return source, found
