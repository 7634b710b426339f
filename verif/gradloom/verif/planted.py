"""Planted faults: one edit of the RTL's or the host's sources each, and the test that must notice it.

A check that cannot fail proves nothing. Each :class:`Fault` replaces one piece of source text in a copy of the packages;
the named test, run against the copy, must fail. The list is rendered into ``docs/verification.md``.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gradloom.verif.checkout import ROOT

__all__ = ["Fault", "Outcome", "run_fault"]

_ROOTS = ("rtl", "sim", "verif", "models", "host")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One planted fault.

    Parameters
    ----------
    name : :class:`str`
        What is wrong, in a few words.
    file : :class:`str`
        Source file relative to the repository.
    before, after : :class:`str`
        Text that occurs exactly once in the file, and what it becomes.
    test : :class:`str`
        pytest node that must fail, relative to the repository.
    """

    name: str
    file: str
    before: str
    after: str
    test: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """``caught`` if the test ran and failed; ``log`` is its output's tail."""

    caught: bool
    log: str


def run_fault(fault: Fault, folder: Path) -> Outcome:
    """Plant ``fault`` in a copy under ``folder`` and run its test there.

    Raises
    ------
    :exc:`AssertionError`
        If the text to replace does not occur exactly once: the list is out of date.
    """
    for root in _ROOTS:
        shutil.copytree(
            ROOT / root, folder / root, ignore=shutil.ignore_patterns("__pycache__", "sim_build")
        )
    shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")
    target = folder / fault.file
    text = target.read_text()
    assert text.count(fault.before) == 1, (
        f"planted fault {fault.name!r}: {fault.before!r} occurs {text.count(fault.before)} times in {fault.file}"
    )
    target.write_text(text.replace(fault.before, fault.after))
    paths = os.pathsep.join(str(folder / root) for root in _ROOTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        fault.test,
    ]
    result = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"PYTHONPATH": paths},
    )
    tail = "\n".join((result.stdout + result.stderr).splitlines()[-25:])
    return Outcome(result.returncode == 1 and " failed" in result.stdout, tail)


def main(names: list[str]) -> int:
    """Plant every fault whose name contains one of ``names`` (all without any). Returns 1 if one was not noticed.

    ``--table`` alone prints the table of ``docs/verification.md``.
    """
    from gradloom.verif.planted_faults import FAULTS

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
