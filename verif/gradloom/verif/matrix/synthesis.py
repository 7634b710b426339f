"""Synthesis of matrix machines for the Xilinx 7 series beside what their papers report.

``python -m gradloom.verif.matrix.synthesis`` writes ``docs/results/synthesis-matrix.json``; ``--table`` prints what is kept, which
``docs/matrix.md`` shows. Parts are synthesised one by one with Yosys and added up
(:mod:`gradloom.verif.synthesis.synth_machine`); nothing is placed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import cast

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import load_machine
from gradloom.host.files import write_json
from gradloom.verif.checkout import DOCS
from gradloom.verif.synthesis.synth_machine import measure_machine

__all__ = ["KEPT", "MACHINES", "main", "table"]

KEPT = DOCS / "results" / "synthesis-matrix.json"
MACHINES = {
    "fox-8": "Pynq-Z1, table IV, placed: 14.1 k LUT, 17.4 k FF, 81 DSP, 77 block RAMs (half as many with 13.9 k LUT)",
    "darkfpga-8x4": "",
    "barista-8x8x32": "",
}
"""And what the paper has of the same size."""
_KINDS = {"luts": "LUT", "flip_flops": "FF", "dsps": "DSP48E1", "brams": "block RAM of 36 Kbit"}


def table(kept: dict[str, dict[str, float]]) -> str:
    """Markdown."""
    lines = [f"| machine | MACs | {' | '.join(_KINDS.values())} | the paper's |", f"|---|---|{'---|' * len(_KINDS)}---|"]
    for name, cells in kept.items():
        counts = " | ".join(f"{cells[kind]:,.0f}" if kind != "brams" else f"{cells[kind]:g}" for kind in _KINDS)
        lines.append(f"| `{name}` | {load_machine(name).macs} | {counts} | {MACHINES[name]} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.matrix.synthesis", description=__doc__)
    parser.add_argument("--table", action="store_true", help="print what is kept, and stop")
    if not parser.parse_args(arguments).table:
        found = {}
        for name in MACHINES:
            # Of a configuration only its Verilog is looked at.
            groups = measure_machine(cast(Config, load_machine(name)), "xc7")
            found[name] = {kind: sum(cells.get(kind, 0) for cells in groups.values()) for kind in _KINDS}
            print(name, found[name], flush=True)
        write_json(KEPT, found)
    print(table(json.loads(KEPT.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
