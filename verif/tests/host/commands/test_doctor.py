"""gradloom doctor: a line for each need, a fix for each that is missing, exit code 1 only for what the main job needs."""

import importlib.metadata

import pytest

from gradloom.host import cli
from gradloom.host.commands import doctor


def test_everything_is_here(capsys):
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[1] for line in lines[:-1]]
    assert {"python", "make", "verilator", "amaranth", "numpy"} <= set(names)
    assert lines[-1] == "everything that training in simulation needs is here"


def test_missing_tools_are_named_with_their_fix(monkeypatch, capsys):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "apt-get install g++" in out and "apt-get install make" in out
    assert out.splitlines()[-1] == "missing: C++ compiler, make"


def version_of(name: str, version: str | None):
    real = importlib.metadata.version

    def fake(package: str) -> str:
        if package != name:
            return real(package)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return version

    return fake


@pytest.mark.parametrize(
    ("name", "version", "text", "code"),
    [
        ("numpy", "1.25.0", "1.25.0 is older than 1.26", 1),
        ("amaranth", None, "missing: pip install --upgrade amaranth", 1),
        ("scikit-learn", None, "missing: pip install 'gradloom[data]'", 0),
        ("z3-solver", "4.1.0", "4.1.0 is older than 4.12", 0),
    ],
)
def test_packages(monkeypatch, capsys, name, version, text, code):
    monkeypatch.setattr(doctor.importlib.metadata, "version", version_of(name, version))
    assert cli.main(["doctor"]) == code
    assert text in capsys.readouterr().out


def test_compiler_that_cannot_build(monkeypatch, capsys, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    real = doctor.shutil.which
    monkeypatch.setattr(doctor.shutil, "which", lambda name: str(broken) if name == "c++" else real(name))
    assert cli.main(["doctor"]) == 1
    assert "cannot build C++17" in capsys.readouterr().out
