"""Users' type checkers see the types: PEP 561, with a py.typed in every package of the namespace."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gradloom.verif.checkout import ROOT

PACKAGES = sorted(path for path in ROOT.glob("*/gradloom/*") if path.is_dir() and path.name != "__pycache__")
USER = """\
from gradloom.api import Network, compile, devices, load_network, train
from gradloom.boards.board import board_named
from gradloom.contracts.config import load_config
from gradloom.models.state import State

reveal_type(load_network("digits-cnn"))
reveal_type(train("digits-cnn", steps=2).losses)
reveal_type(compile("digits-cnn").cycles_by_layer)
reveal_type(devices()[0].reason)
reveal_type(load_config("nano").macs)
reveal_type(board_named("ulx3s-85f").clock)
reveal_type(State.initial(load_network("digits-cnn"), 1, 0).step)
train("digits-cnn", steps="two")
train("digits-cnn").nosuch
"""
SAID = [
    'user.py:6: note: Revealed type is "gradloom.models.network.Network"',
    'user.py:7: note: Revealed type is "tuple[float, ...]"',
    'user.py:8: note: Revealed type is "dict[str, int]"',
    'user.py:9: note: Revealed type is "str | None"',
    'user.py:10: note: Revealed type is "int"',
    'user.py:11: note: Revealed type is "int"',
    'user.py:12: note: Revealed type is "int"',
    'user.py:13: error: Argument "steps" to "train" has incompatible type "str"; expected "int | None"  [arg-type]',
    'user.py:14: error: "TrainResult" has no attribute "nosuch"  [attr-defined]',
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_says_that_it_is_typed(package):
    assert (package / "py.typed").is_file()


def test_the_namespace_has_no_file_of_its_own():
    """PEP 420: a file beside the packages would hide those of other roots, or have no py.typed."""
    assert len(PACKAGES) >= 8
    assert [path.name for path in ROOT.glob("*/gradloom/*") if path.is_file()] == []


def installed(folder: Path) -> Path:
    """The interpreter of an environment in which the packages are installed, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "gradloom").mkdir()
    for package in PACKAGES:
        (site / "gradloom" / package.name).symlink_to(package)
    return folder / "bin" / "python"


def test_mypy_finds_the_types(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed (pip install 'gradloom[dev]')")
    python = installed(tmp_path / "env")
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--python-executable", str(python), "--cache-dir", str(tmp_path / "cache"),
               "--config-file", "", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    # Earlier versions of mypy show the types with their module.
    lines = done.stdout.replace("builtins.", "").splitlines()
    assert [line for line in lines if not line.startswith("Found ")] == SAID
