"""One edit of the RTL's or the host's sources each, and the test that must notice it.

A check that cannot fail proves nothing. Each :class:`Fault` replaces one piece of source text in a copy of the packages;
the named test, run against the copy, must fail. The list is rendered into ``docs/verification.md``.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

from gradloom.verif.checkout import ROOT

__all__ = ["Fault", "Outcome", "run_fault"]

_ROOTS = ("rtl", "sim", "verif", "models", "host", "boards")


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
