"""Runs of models with their products in RTL: the page shows what is kept; a short one ends as its twin does."""

import json

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.verif.checkout import DOCS  # noqa: E402
from gradloom.verif.experiments.offload_runs import KEPT, TASKS, run_task, table  # noqa: E402


def test_the_page_shows_what_is_kept():
    kept = json.loads(KEPT.read_text())
    assert [run["task"] for run in kept] == list(TASKS)
    assert table(kept) in (DOCS / "systems.md").read_text()
    for run in kept:
        assert run["rtl"]["digest"] == run["twin"]["digest"] and run["rtl"]["products"] == run["twin"]["products"] > 0
        assert run["rtl"]["last_loss"] < run["rtl"]["first_loss"]


def test_a_short_run_ends_as_its_twin():
    run = run_task("regression", "fox-4", steps=3)
    assert run["rtl"]["digest"] == run["twin"]["digest"] and run["rtl"]["products"] == 6
    assert run["rtl"]["cycles"] > 0 and 0 < run["rtl"]["use"] < 1 and run["machine"] == "fox-4"
    assert run["rtl"]["last_loss"] < run["rtl"]["first_loss"]
