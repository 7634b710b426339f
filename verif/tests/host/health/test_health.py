"""What is counted of a step's numbers, on every device alike, and what the command writes."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.host.health.health_measure import CLASSES, Health, classes
from gradloom.host.health.health_page import render_health, worst
from gradloom.models.arithmetic import pint
from gradloom.verif.cli_desk import lay, refused

COMMON = ["health", "--network", "tiny.toml", "--data", "data.npz"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path)
    return tmp_path


def read(folder) -> dict:
    return json.loads((folder / "health.json").read_text())


@pytest.mark.parametrize(("value", "name"), [
    (0, "zero"), (1, "fine"), (-1, "fine"), (7, "fine"), (-8, "fine"), (8, "middle"), (-16, "middle"), (504, "middle"),
    (-512, "middle"), (512, "coarse"), (-576, "coarse"), (3968, "coarse"), (-4032, "coarse"), (4032, "saturated"),
    (-4096, "saturated"),
])
def test_classes_by_hand(value, name):
    found = classes(pint.code_of(np.array([value])))
    assert CLASSES[int(np.argmax(found))] == name and found.sum() == 1


def test_every_code_has_a_class():
    found = dict(zip(CLASSES, classes(np.arange(256, dtype=np.uint8)), strict=True))
    assert sum(found.values()) == 256 and found["saturated"] == 2


def test_counts_are_those_of_the_tensors(desk):
    """Of every step and tensor, each element once."""
    assert cli.main([*COMMON, "--steps", "3", "--out", "found"]) == 0
    record = read(desk / "found")
    tensors = {(entry["layer"], entry["tensor"]): entry for entry in record["tensors"]}
    assert {("conv", "z"), ("conv", "xhat"), ("conv", "dx"), ("logits", "error"), ("logits", "w"), ("logits", "v")} <= set(tensors)
    sizes = {("conv", "z"): 4 * 4 * 36, ("conv", "w"): 36, ("logits", "error"): 4 * 3}
    for key, size in sizes.items():
        assert [sum(step.values()) for step in tensors[key]["steps"]] == [size] * 3
    assert tensors["conv", "xhat"]["exponent"] == -8
    # Velocities begin at zero, and weights do not.
    assert tensors["conv", "w"]["steps"][0]["zero"] < 10


def test_devices_agree(desk):
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    for device in ("golden", "emulator"):
        assert cli.main([*COMMON, "--steps", "2", "--device", device, "--out", device]) == 0
    assert read(desk / "golden")["tensors"] == read(desk / "emulator")["tensors"]


def test_a_trained_state(desk, capsys):
    assert cli.main(["train", *COMMON[1:], "--device", "golden", "--out", "run"]) == 0
    assert cli.main([*COMMON, "--weights", "run", "--steps", "1", "--out", "found"]) == 0
    assert "from step 12 on" in capsys.readouterr().out and read(desk / "found")["begins"] == "from step 12 on"


def test_the_page(desk, capsys):
    assert cli.main([*COMMON, "--steps", "2", "--out", "found"]) == 0
    said = capsys.readouterr().out
    assert "gradloom: zero: at most " in said and "report found/health.html" in said
    page = (desk / "found" / "health.html").read_text()
    assert "<h2>Features (z)</h2>" in page and "from initial weights on" in page
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == len(re.findall("<h2>", page)) - 2
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_small_shares_are_told_and_escaped():
    """One saturated element of 100,000 is not none."""
    health = Health("a<b", "z", np.array([[0, 0, 99_999, 0, 1]]), -3)
    record = {"network": "n", "device": "golden", "batch": 1, "steps": 1, "begins": "b", "data": "d", "seed": 1,
              "tensors": [health.record()]}
    page = render_health(record)
    assert "&lt;0.01 % saturated" in page and "a&lt;b" in page and "a<b" not in page
    assert worst([health], "saturated") == [health] and worst([health], "zero") == []


def test_bad_input(desk, capsys):
    refused(capsys, [*COMMON, "--format", "bfp8"], "health counts PINT's codes, network tiny has the format bfp8: leave")
    (desk / "taken").mkdir()
    (desk / "taken" / "mine").write_text("keep")
    refused(capsys, [*COMMON, "--out", "taken"], "taken exists already")
    assert not (desk / "runs").exists()
