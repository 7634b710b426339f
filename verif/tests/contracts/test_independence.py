"""Who may know whom: contracts know each other only; compiler, cost model, program tools and host know no RTL and no Amaranth; what
a user installs and runs knows nothing of the tests, so that it needs no checkout."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradloom.verif.checkout import ROOT

CONTRACTS, HOST, MODELS = ROOT / "rtl/gradloom/contracts", ROOT / "host/gradloom/host", ROOT / "models/gradloom/models"
EMITTERS = {HOST / "commands/verilog_command.py", HOST / "boards/build_command.py"}
"""Commands that make Verilog: they import what does so when they are run."""


def imports(path: Path, *, deferred: bool = True) -> Iterator[str]:
    """Modules that a file imports; without ``deferred`` only those that it imports when it is imported itself."""
    tree = ast.parse(path.read_text())
    inner = {id(node) for function in ast.walk(tree) if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
             for node in ast.walk(function)}
    for node in ast.walk(tree):
        if not deferred and id(node) in inner:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def hardware(module: str) -> bool:
    return module.split(".")[0] == "amaranth" or (module + ".").startswith("gradloom.rtl.")


def test_the_checks_see_what_they_forbid(tmp_path):
    file = tmp_path / "late.py"
    file.write_text("import json\ndef f():\n    from gradloom.rtl.verilog import emit_verilog\n    import amaranth.hdl\n")
    assert [name for name in imports(file) if hardware(name)] == ["gradloom.rtl.verilog.emit_verilog", "amaranth.hdl"]
    assert list(imports(file, deferred=False)) == ["json"]


@pytest.mark.parametrize("path", sorted(CONTRACTS.rglob("*.py")), ids=lambda path: path.stem)
def test_contracts_know_only_each_other(path):
    known = {name.split(".")[0] if not name.startswith("gradloom") else ".".join(name.split(".")[:2]) for name in imports(path)}
    assert known <= {"gradloom.contracts", *sys.stdlib_module_names}


@pytest.mark.parametrize("folder", [HOST, MODELS], ids=["host", "models"])
def test_no_hardware_is_imported(folder):
    found = {str(path.relative_to(ROOT)): name for path in folder.rglob("*.py")
             for name in imports(path, deferred=path not in EMITTERS) if hardware(name)}
    assert found == {}


@pytest.mark.parametrize("root", ["rtl", "sim", "models", "host", "boards"])
def test_no_checkout_is_needed(root):
    """``gradloom.verif`` reads and writes files outside the packages; nothing else may import it."""
    files = sorted((ROOT / root / "gradloom").rglob("*.py"))
    assert files
    found = {str(path.relative_to(ROOT)): name for path in files for name in imports(path)
             if (name + ".").startswith("gradloom.verif.")}
    assert found == {}


@pytest.mark.parametrize("command", [
    "import gradloom.host.commands.verilog_command, gradloom.host.boards.build_command",
    "from gradloom.host import cli; cli.main(['bench', '--device', 'model', '--network', 'digits-cnn', '--config', 'nano'])",
    "from gradloom.host import cli; cli.main(['boards'])",
])
def test_no_hardware_comes_in_by_others(command, tmp_path):
    """Nor do the packages that the host imports bring any."""
    watch = "\nimport sys\nprint(sorted(name for name in sys.modules if 'amaranth' in name or name == 'gradloom.rtl'))"
    result = subprocess.run([sys.executable, "-c", command + watch], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout.splitlines()[-1] == "[]", result.stdout[-2000:] + result.stderr[-2000:]
