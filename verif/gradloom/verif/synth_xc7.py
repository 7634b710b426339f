"""Synthesis of a whole machine for the Xilinx 7 series with Yosys, part by part; writes a page of :data:`PAGES` and a JSON.

``python -m gradloom.verif.synth_xc7`` (``nox -s synth``). A part whose Verilog has not changed is not synthesised again.
``--flat`` synthesises the machine in one piece as well and compares, which proves the method on a small configuration.
"""

import argparse
import collections
import dataclasses
import functools
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gradloom.contracts.config import Config, ConfigError, load_config
from gradloom.rtl.verilog import TOP, emit_verilog
from gradloom.rtl.xc7 import with_dsp48
from gradloom.sim.verilate import cache_folder
from gradloom.verif.synth import SynthError, yosys_path, yosys_version
from gradloom.verif.synthesis.synth_combine import free_luts, pairs
from gradloom.verif.synthesis.synth_hierarchy import Design, is_part
from gradloom.verif.synthesis.synth_xc7_report import report

__all__ = ["PAGES", "Memory", "Part", "main", "measure", "synthesise"]

FLAGS = "synth_xilinx -family xc7 -flatten -noiopad -noclkbuf"
RAM_LUTS = {"RAM32X1S": 1, "RAM64X1S": 1, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1S": 2, "RAM32M": 4, "RAM64M": 4,
            "RAM128X1D": 4, "RAM256X1S": 4, "RAM32M16": 8, "RAM64M8": 8}
"""LUTs of a SLICEM that a distributed RAM takes (Xilinx UG474, table 2-3)."""
PAGES = {"eta": "synthesis-xc7.md", "eta2x": "synthesis-eta2x-xc7.md",
         "docs/results/eta2x-double-pumped.toml": "synthesis-eta2x-double-pumped-xc7.md"}
"""Pages in docs, by machine."""
_SCRIPT = """read_verilog part.v
{flags} -top {top} -run begin:map_luts
splitnets
{flags} -top {top} -run map_luts:
tee -q -o cells.json stat -tech xilinx -json
tee -q -o rams.txt select -list t:RAMB36E1 t:RAMB18E1 t:RAM32* t:RAM64* t:RAM128* t:RAM256* %u %u %u %u %u
write_json netlist.json
tee -q -o kinds.il dump t:RAMB36E1 t:RAMB18E1 t:RAM32* t:RAM64* t:RAM128* t:RAM256* %u %u %u %u %u
"""
_RAM_CELL = re.compile(r"^  cell \\?(\S+) (\S+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Memory:
    """Cells that one memory of a part became, by type."""

    name: str
    cells: dict[str, int]

    @property
    def blocks(self) -> float:
        """Block RAMs of 36 Kbit; one of 18 Kbit is half of one."""
        return self.cells.get("RAMB36E1", 0) + self.cells.get("RAMB18E1", 0) / 2

    @property
    def luts(self) -> int:
        return sum(RAM_LUTS.get(kind, 0) * number for kind, number in self.cells.items())


@dataclasses.dataclass(frozen=True)
class Part:
    """One part after mapping.

    Parameters
    ----------
    name : :class:`str`
        Verilog module.
    number : :class:`int`
        Instances in the machine.
    cells : mapping of cell type to count, of one instance
    pairs : :class:`int`
        Pairs of its LUTs that one LUT6 each computes (:mod:`gradloom.verif.synthesis.synth_combine`), of one instance.
    memories : sequence of :class:`Memory`
    seconds : :class:`float`
    """

    name: str
    number: int
    cells: dict[str, int]
    pairs: int
    memories: list[Memory]
    seconds: float

    def count(self, *kinds: str) -> int:
        return sum(self.cells.get(kind, 0) for kind in kinds)

    @property
    def luts(self) -> int:
        """LUTs of logic, each counted as one LUT6."""
        return self.count(*(f"LUT{n}" for n in range(1, 7)), "LUT6_2")

    @property
    def combined(self) -> int:
        """The same with pairs of small ones in one LUT6."""
        return self.luts - self.pairs

    @property
    def shift_luts(self) -> int:
        return self.count("SRL16E", "SRLC32E")

    @property
    def ram_luts(self) -> int:
        return sum(RAM_LUTS.get(kind, 0) * number for kind, number in self.cells.items())

    @property
    def flip_flops(self) -> int:
        return sum(number for kind, number in self.cells.items() if re.match(r"FD[CPRS]E", kind))

    @property
    def multipliers(self) -> int:
        return self.count("DSP48E1")

    @property
    def blocks(self) -> float:
        return self.count("RAMB36E1") + self.count("RAMB18E1") / 2

    def totals(self) -> dict[str, float]:
        """Of all its instances."""
        one = {"luts": self.luts, "combined": self.combined, "shift_luts": self.shift_luts, "ram_luts": self.ram_luts,
               "flip_flops": self.flip_flops, "dsp48e1": self.multipliers, "bram36": self.blocks}
        return {name: self.number * value for name, value in one.items()}


def _memories(text: str) -> list[Memory]:
    found: dict[str, collections.Counter[str]] = {}
    for kind, cell in _RAM_CELL.findall(text):
        found.setdefault(re.sub(r"(\.\d+)+$", "", cell.removeprefix("\\")), collections.Counter())[kind] += 1
    return [Memory(name, dict(cells)) for name, cells in sorted(found.items())]


def synthesise(name: str, source: str, *, number: int = 1) -> Part:
    """Yosys on the Verilog ``source``, whose top module is ``name``.

    Raises
    ------
    :exc:`SynthError`
        If Yosys fails.
    """
    top = f"\\{name}" if "." in name or "$" in name else name
    with tempfile.TemporaryDirectory(prefix="gradloom-xc7-") as path:
        folder = Path(path)
        (folder / "part.v").write_text(source)
        (folder / "part.ys").write_text(_SCRIPT.format(top=top, flags=FLAGS))
        begin = time.monotonic()
        done = subprocess.run([yosys_path(), "-q", "-l", "part.log", "part.ys"], cwd=folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SynthError(f"{name}: Yosys failed with status {done.returncode}:\n" + "\n".join(done.stdout.splitlines()[-20:]))
        table = json.loads((folder / "cells.json").read_text())["modules"][f"\\{name}"]
        cells: collections.Counter[str] = collections.Counter()
        for kind, count in table["num_cells_by_type"].items():
            cells[kind.rsplit("\\", 1)[-1]] += count  # cells with parameters are called $paramod...\\TYPE
        module = json.loads((folder / "netlist.json").read_text())["modules"][name]
        return Part(name, number, dict(cells), len(pairs(free_luts(module["cells"].values()))),
                    _memories((folder / "kinds.il").read_text()), time.monotonic() - begin)


def _cached(name: str, source: str, number: int, version: str) -> Part:
    # Names of emitted modules end in a hash of the configuration, whose other fields do not shape this part.
    key = re.sub(r"_[0-9a-f]{8}\b", "_", "\n".join([version, FLAGS, _SCRIPT, name, source]))
    path = cache_folder() / "synth" / f"xc7-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file():
        fields = json.loads(path.read_text())
        return Part(**fields | {"name": name, "number": number, "memories": [Memory(**memory) for memory in fields["memories"]]})
    part = synthesise(name, source, number=number)
    path.write_text(json.dumps(dataclasses.asdict(part)))
    return part


def measure(config: Config, *, only: Sequence[str] = (), progress: bool = True) -> list[Part]:
    """Every part of a machine, from the top down; with ``only``, those whose name holds one of its words."""
    version = yosys_version()
    design = Design.read(_verilog(config), TOP)
    part_of = functools.partial(is_part, top=TOP)
    found = []
    for name, number in design.counts(part_of).items():
        if only and not any(word in name for word in only):
            continue
        part = _cached(name, design.source(name, part_of), number, version)
        found.append(part)
        if progress:
            print(f"{name} x {number}: {part.luts} LUT, {part.combined} combined, {part.shift_luts} SRL, {part.ram_luts} in RAM, "
                  f"{part.flip_flops} FF, {part.multipliers} DSP48E1, {part.blocks:g} BRAM36 ({part.seconds:.0f} s)",
                  file=sys.stderr, flush=True)
    return found


def _verilog(config: Config) -> str:
    return with_dsp48("\n".join(emit_verilog(config).values()))


def _flat(config: Config) -> Part:
    return _cached(TOP, _verilog(config), 1, yosys_version())


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.synth_xc7", description=__doc__)
    parser.add_argument("--config", default="eta", help="preset or TOML file (default eta)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts whose module name holds NAME; writes no file")
    parser.add_argument("--flat", action="store_true", help="also the machine in one piece, compared with the sum of its parts")
    parser.add_argument("--output", type=Path,
                        help="folder of the page and the JSON (default docs for the machines of PAGES, else none)")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config)
        parts = measure(config, only=options.only)
        flat = _flat(config) if options.flat else None
        version = yosys_version()
    except (SynthError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text, table = report(config, parts, version, flat, options.config)
    output = options.output or (Path("docs") if options.config in PAGES else None)
    if options.only or output is None:
        print(text)
        return 0
    if not output.is_dir():
        print(f"error: there is no folder {output}: start in the repository's root or name one with --output", file=sys.stderr)
        return 1
    (output / "results").mkdir(exist_ok=True)
    (output / PAGES.get(options.config, f"synthesis-{config.name}-xc7.md")).write_text(text)
    (output / "results" / f"synthesis-{config.name}-xc7.json").write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
