"""Mutants of a unit's gates against its specification: each must be refuted, or be the same function.

``mutate`` of Yosys inverts a bit, ties it to a constant or swaps it for another one in the netlist of a specification, only in the
cells that come from one RTL source. A specification that lets a mutant pass which computes something else says too little.
"""

import dataclasses
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib import wiring

from gradloom.verif.synth import yosys_path

__all__ = ["Mutant", "mutants"]

# The unit becomes a module before anything is optimised: no gate may be its own and the specification's.
_BASE = """read_rtlil top.il
hierarchy -top top
proc
memory_map
chformal -lower
submod -name dut a:src=*{source}* t:$* %i
design -save base
"""
_LIST = """select -assert-min 1 dut/t:*
mutate -list {count} -seed {seed} -module dut -o mutants.txt
design -load base
flatten
log AGAINST right
sat -prove-asserts top
"""
_PROVE = """design -load base
{mutation}
flatten
log AGAINST {number}
sat -prove-asserts top
"""
_COMPARE = """design -load base
rename dut right
copy right dut
{mutation}
miter -equiv -flatten right dut both
log AGAINST {number}
sat -prove trigger 0 both
"""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mutant: what was changed, whether the specification refutes it, and if not, whether it is the same function."""

    mutation: str
    refuted: bool
    equivalent: bool


def _run(folder: Path, script: str) -> dict[str, bool]:
    """Runs a script; by the name that is logged before each proof, whether it succeeded."""
    (folder / "run.ys").write_text(script)
    process = subprocess.run([yosys_path(), "-q", "-l", "run.log", "run.ys"], cwd=folder, capture_output=True, text=True,
                             check=False)
    log = (folder / "run.log").read_text() if (folder / "run.log").exists() else ""
    if process.returncode:
        raise RuntimeError(f"Yosys ended with {process.returncode}:\n{process.stderr}\n{log[-2000:]}")
    found = re.findall(r"^AGAINST (\S+)$.*?^SAT proof finished - (no model found: SUCCESS|model found: FAIL)!", log, re.M | re.S)
    return {name: result.endswith("SUCCESS") for name, result in found}


def mutants(build: Callable[[], wiring.Component], source: str, count: int, *, seed: int = 1) -> list[Mutant]:
    """Plant ``count`` mutants, one after the other, and prove the specification of each.

    Parameters
    ----------
    build : callable
        Makes a specification without registers.
    source : :class:`str`
        End of the path of the RTL source whose cells are changed.
    count, seed : :class:`int`
        How many of all possible mutants, and which.

    Raises
    ------
    :exc:`RuntimeError`
        If Yosys fails, the source has no cell in the netlist, the design itself is refuted, or a proof has no outcome.
    """
    with tempfile.TemporaryDirectory(prefix="mutants_") as name:
        folder = Path(name)
        (folder / "top.il").write_text(rtlil.convert(build(), name="top", platform="formal"))
        base = _BASE.format(source=source)
        if not _run(folder, base + _LIST.format(count=count, seed=seed)).get("right", False):
            raise RuntimeError("the specification refutes the design itself")
        lines = (folder / "mutants.txt").read_text().splitlines()
        proofs = _run(folder, base + "".join(_PROVE.format(mutation=line, number=i) for i, line in enumerate(lines)))
        passed = [i for i in range(len(lines)) if proofs[str(i)]]
        same = _run(folder, base + "".join(_COMPARE.format(mutation=lines[i], number=i) for i in passed)) if passed else {}
    return [Mutant(line, not proofs[str(i)], proofs[str(i)] and same[str(i)]) for i, line in enumerate(lines)]
