"""``python -m gradloom.verif.planted [NAME...]``: plant faults and see them noticed; ``--table`` prints their table."""

import sys
import tempfile
import time
from pathlib import Path

from gradloom.verif.planted.fault import run_fault
from gradloom.verif.planted.faults import FAULTS

__all__ = ["main"]


def main(names: list[str]) -> int:
    """Plant every fault whose name contains one of ``names`` (all without any). Returns 1 if one was not noticed.

    ``--table`` alone prints the table of ``docs/verification.md``.
    """
    if names == ["--table"]:
        print("| fault | planted in | noticed by |\n|---|---|---|")
        for fault in FAULTS:
            print(f"| {fault.name} | `{fault.file}` | `{fault.test}` |")
        return 0
    chosen = [fault for fault in FAULTS if not names or any(name in fault.name for name in names)]
    if not chosen:
        print(f"no planted fault is named like {', '.join(names)}")
        return 2
    missed = 0
    for fault in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_fault(fault, Path(folder))
        missed += not outcome.caught
        word = "caught" if outcome.caught else "MISSED"
        print(f"{word}  {fault.name}  ({fault.test}, {time.monotonic() - began:.0f} s)", flush=True)
        if not outcome.caught:
            print(outcome.log, flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults were caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
