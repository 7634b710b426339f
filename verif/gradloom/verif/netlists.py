"""The parts whose netlists of gates run under the benches of their RTL: ``python -m gradloom.verif.netlists`` (``nox -s synth``).

A bench does not know what it runs on (``pytest --netlist``, :mod:`gradloom.verif.synthesis.gates`).
"""

import argparse
import dataclasses
import subprocess
import sys
import time
from collections.abc import Sequence

from gradloom.verif.checkout import ROOT

__all__ = ["BENCHES", "NetlistBench", "main"]


@dataclasses.dataclass(frozen=True)
class NetlistBench:
    """A part, the pytest node below ``verif/tests`` that is its bench, and which modules become gates (``all``: the whole)."""

    part: str
    node: str
    modules: str = "all"


BENCHES = (
    NetlistBench("converter", "rtl/acore/test_converter.py"),
    NetlistBench("PE with its windows and weights", "rtl/ccore/test_pe.py::test_pe"),
    NetlistBench("CSR", "rtl/registers/test_csr.py"),
    NetlistBench("read manager", "rtl/memory_path/test_axi_read.py"),
    NetlistBench("write manager", "rtl/memory_path/test_axi_write.py"),
    NetlistBench("Storer with its write manager", "rtl/memory_path/test_storer.py"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status, 1 if a bench failed."""
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.netlists", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="parts whose name contains NAME")
    parser.add_argument("--list", action="store_true", help="list the parts and their benches and stop")
    options = parser.parse_args(arguments)
    benches = [bench for bench in BENCHES
               if options.only is None or any(word.lower() in bench.part.lower() for word in options.only)]
    if not benches:
        parser.error(f"no part is named {' or '.join(options.only)}: --list shows them all")
    if options.list:
        print("\n".join(f"{bench.part}: {bench.node} ({bench.modules})" for bench in benches))
        return 0
    failed = []
    for number, bench in enumerate(benches, 1):
        print(f"[{number}/{len(benches)}] {bench.part}", flush=True)
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--netlist", bench.modules, f"verif/tests/{bench.node}"],
                              cwd=ROOT)
        print(f"    {'failed' if done.returncode else 'passed'} in {time.monotonic() - begin:.0f} s", flush=True)
        failed += [bench.part] * bool(done.returncode)
    if failed:
        print(f"error: the netlists of these parts fail: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
