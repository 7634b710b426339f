"""The paper-scale runs and their page, with a small case in RTL in place of the large ones."""

import json
import re
from xml.etree import ElementTree

import pytest

from gradloom.contracts.config import load_config
from gradloom.host import cli
from gradloom.host.files import UserError
from gradloom.models.network import load_network
from gradloom.verif import paper_scale
from gradloom.verif.pages import check_frame
from gradloom.verif.paper_scale import CASES, Case, estimate_cases, join_curves, results, run_cases, write_page

SMALL = (Case("digits-cnn", "nano", 2, 1, steps=2), Case("digits-cnn", "small", 2, 1, steps=2))
CLASSES = 10


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_scale, "CASES", SMALL)
        assert run_cases([SMALL[0].name], folder) == 0
        before = (folder / f"{SMALL[0].name}.json").stat().st_mtime_ns
        assert run_cases([], folder) == 0, "what is missing"
        assert (folder / f"{SMALL[0].name}.json").stat().st_mtime_ns == before
        assert list(results(folder)) == [case.name for case in SMALL]
    return folder


def test_cases_are_of_known_networks_and_machines():
    assert {load_network(case.network).name for case in CASES} == {"resnet20", "vgg16", "resnet18"}
    assert len({case.name for case in CASES}) == len(CASES)


def test_every_network_runs_on_the_large_and_on_a_much_smaller_machine():
    macs = {(case.network, load_config(case.source).macs) for case in CASES}
    for network, count in macs:
        assert (network, 1728) in macs and any(name == network and 10 * small < 1728 for name, small in macs), (network, count)


def test_unknown_case_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no case 'lenet'.*resnet20-eta-16"):
        run_cases(["lenet"], tmp_path)
    with pytest.raises(SystemExit) as stop:
        paper_scale.main(["run", "lenet"])
    assert stop.value.code == 2


def test_a_cost_model_is_set_beside_what_was_simulated(kept, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper_scale, "CASES", SMALL)
    name = SMALL[0].name
    bench = json.loads((kept / f"{name}.json").read_text())
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(bench | {"compare": None}))
    estimate_cases([], tmp_path)
    assert json.loads(path.read_text()) == bench, "of the same code the same errors"
    assert f"{name}: {bench['total']['cycles']:,} cycles simulated, " in capsys.readouterr().out
    path.write_text(json.dumps(bench | {"program": "0" * 64}))
    with pytest.raises(UserError, match=f"{name}: its program has changed since it was simulated: simulate it with run {name}"):
        estimate_cases([name], tmp_path)
    with pytest.raises(UserError, match=f"no result of {SMALL[1].name}"):
        estimate_cases([SMALL[1].name], tmp_path)
    assert json.loads(path.read_text())["program"] == "0" * 64


def test_digest_does_not_depend_on_the_machine(kept):
    first, second = (json.loads((kept / f"{case.name}.json").read_text()) for case in SMALL)
    assert first["parameters"] == second["parameters"] and len(first["parameters"]) == 64
    assert first["total"]["cycles"] > 2 * second["total"]["cycles"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same four steps on RTL and on golden, and golden with another seed."""
    folder = tmp_path_factory.mktemp("runs")
    for name, device, seed in (("rtl", "rtl", "1"), ("golden", "golden", "1"), ("other", "golden", "2")):
        assert cli.main(["train", "--config", "nano", "--device", device, "--batch", "1", "--steps", "4", "--seed", seed,
                         "--out", str(folder / name)]) == 0
    return folder


def test_curves_join_only_if_equal(runs):
    curve = join_curves(runs / "rtl", [runs / "golden"], CLASSES)
    assert len(curve["losses"]) == 4 and curve["simulated_cycles"] > 0 and curve["epochs"][-1]["steps"] == 4
    with pytest.raises(UserError, match="another seed"):
        join_curves(runs / "rtl", [runs / "golden", runs / "other"], CLASSES)
    with pytest.raises(UserError, match="--device rtl first"):
        join_curves(runs / "golden", [runs / "golden"], CLASSES)
    with pytest.raises(UserError, match="golden or emulator"):
        join_curves(runs / "rtl", [runs / "rtl"], CLASSES)


def test_a_different_loss_is_noticed(runs, tmp_path):
    run = json.loads((runs / "golden" / "run.json").read_text())
    run["steps"][2]["loss"] += 1e-9
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(UserError, match="differ in a loss"):
        join_curves(runs / "rtl", [tmp_path], CLASSES)


def test_page(kept, runs, tmp_path, monkeypatch):
    monkeypatch.setattr(paper_scale, "CASES", SMALL)
    (tmp_path / "results").mkdir()
    for case in SMALL:
        (tmp_path / "results" / f"{case.name}.json").write_text((kept / f"{case.name}.json").read_text())
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    curve = join_curves(runs / "rtl", [runs / "golden"], CLASSES)
    (tmp_path / "results" / "learning-curve.json").write_text(json.dumps(curve))
    write_page(tmp_path / "results", tmp_path / "docs")
    text = (tmp_path / "docs" / "paper-scale.md").read_text()
    bench = json.loads((kept / "digits-cnn-nano-2.json").read_text())
    assert f"{bench['total']['cycles']:,}" in text and bench["parameters"][:16] in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({row.count("|") for row in table.splitlines()}) == 1, table
    assert "A learning curve in RTL" in text and "--classes 10" in text
    check_frame(ElementTree.fromstring((tmp_path / "docs" / "figures" / "learning-curve.svg").read_text()))
