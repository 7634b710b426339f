"""Every bug that a proof is shown can be planted in today's sources, those too that only `nox -s formal` proves to be noticed."""

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(path for path in TESTS.rglob("test_*.py") if "bug_params" in path.read_text() and path != Path(__file__))
CHECKS = ("run_formal", "stops_proof", "run")
"""What such a test asks of its bug, which takes minutes."""


class Reached(Exception):
    """The bug is planted."""


def check(make: object = None, *_: object, **__: object) -> None:
    if callable(make):
        make()
    raise Reached


def load(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bugs_of_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in CHECKS:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, check)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_bug_can_be_planted(path, monkeypatch):
    module, planted = load(path, monkeypatch), 0
    for _, test in inspect.getmembers(module, inspect.isfunction):
        for mark in getattr(test, "pytestmark", ()):
            if mark.name != "parametrize" or not any(name in mark.args[0] for name in ("before", "old")):
                continue
            for case in mark.args[1]:
                values = case.values if hasattr(case, "values") else case
                with pytest.raises(Reached):
                    test(*values)
                planted += 1
    assert planted
