"""Runs whose images are normalised, moved and held out: recorded, the same after --resume, by diff --replay, on all devices."""

import json

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.host.diff.diff_runs import read_run, replay
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.verif.cli_desk import TINY, lay, refused

COMMON = ["--network", "tiny.toml", "--data", "data.npz"]
ASKED = ["--augment", "crop=2,flip", "--normalise", "channel", "--validation", "12"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path)
    return tmp_path


def train(name: str, *more: str) -> dict:
    assert cli.main(["train", *COMMON, "--out", name, *more]) == 0
    return record(name)


def record(name: str) -> dict:
    return json.loads(open(f"{name}/run.json").read())


def test_a_run_goes_on_as_it_would_have(desk, capsys):
    whole = train("whole", "--device", "golden", *ASKED, "--epochs", "3")
    said, progress = capsys.readouterr()
    assert "every channel normalised" in said and "validation accuracy" in progress
    assert {key: whole["data"][key] for key in ("train", "validation", "test", "augment")} == {
        "train": 36, "validation": 12, "test": 12, "augment": "crop=2,flip"}
    # A run cut in its second epoch.
    cut = train("parts", "--device", "golden", *ASKED, "--steps", "13")
    cut |= {"total_steps": whole["total_steps"], "hyper": whole["hyper"], "epochs": cut["epochs"][:1]}
    (desk / "parts" / "run.json").write_text(json.dumps(cut))
    assert cli.main(["train", "--resume", "parts"]) == 0
    assert record("parts")["epochs"][-1]["sha256"] == whole["epochs"][-1]["sha256"]


def test_the_emulator_sees_the_same_images(desk):
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    runs = [train(device, "--device", device, *ASKED) for device in ("golden", "emulator")]
    assert runs[0]["epochs"] == runs[1]["epochs"] and runs[0]["data"] == runs[1]["data"]


def test_test_images_are_looked_at_once(desk):
    run = train("run", "--device", "golden", "--validation", "12", "--epochs", "3")
    assert [entry["test_accuracy"] is None for entry in run["epochs"]] == [True, True, False]
    assert all(entry["validation_accuracy"] is not None for entry in run["epochs"])
    page = (desk / "run" / "report.html").read_text()
    assert "<th>validation</th><th>test</th>" in page and "validation images" in page
    assert "12 training images held out for validation" in page
    plain = train("plain", "--device", "golden", "--epochs", "1")
    assert plain["epochs"][0]["test_accuracy"] is not None and "validation" not in (desk / "plain" / "report.html").read_text()


def test_moved_images_train_otherwise_and_diff_says_so(desk, capsys):
    train("plain", "--device", "golden")
    train("moved", "--device", "golden", "--augment", "crop")
    capsys.readouterr()
    assert cli.main(["diff", "plain", "moved"]) == 1
    assert "augment" in capsys.readouterr().out


def test_replay_moves_the_images_as_the_run_did(desk):
    """What diff trains again ends where the run ended."""
    run = train("run", "--device", "golden", *ASKED, "--epochs", "2")
    found = read_run(desk / "run")
    batches, _ = replay(found, found, run["total_steps"])
    state = batches.initial.copy()
    for images, labels, hyper in zip(batches.images, batches.labels, batches.hypers, strict=True):
        golden.train_step(batches.network, state, images, labels, hyper)
    assert digests.parameters_digest(batches.network, state) == run["epochs"][-1]["sha256"]


def test_evaluation_normalises_as_the_training_did(desk):
    """Other images by the training's mean and deviation, not by their own."""
    train("run", "--device", "golden", "--normalise", "channel")
    with np.load(desk / "data.npz") as archive:
        x, y = archive["x"], archive["y"]
    np.savez(desk / "bright.npz", x=x[:20] + 40, y=y[:20], x_test=x, y_test=y)
    scores = []
    for number, more in enumerate(([], ["--normalise", "channel"], ["--normalise", "none"])):
        assert cli.main(["eval", "--network", "tiny.toml", "--device", "golden", "--weights", "run", "--data", "bright.npz",
                         "--out", f"{number}.json", *more]) == 0
        scores.append(json.loads((desk / f"{number}.json").read_text()))
    channels = record("run")["data"]["channels"]
    assert scores[0]["channels"] == channels and scores[1]["channels"] != channels and scores[2]["channels"] == []
    assert len({score["test_loss"] for score in scores}) == 3


def test_a_network_says_what_is_done_with_its_images(desk):
    (desk / "tiny.toml").write_text(TINY + '[data]\nnormalise = "channel"\naugment = "crop=1"\n')
    asked = train("asked", "--device", "golden")
    assert asked["data"]["augment"] == "crop=1" and len(asked["data"]["channels"]) == 1
    told = train("told", "--device", "golden", "--augment", "none", "--normalise", "none")
    assert told["data"]["augment"] == "none" and told["data"]["channels"] == []
    assert cli.main(["verify", *COMMON, "--device", "golden", "--steps", "1"]) == 0


@pytest.mark.parametrize(("arguments", "message"), [
    (["--augment", "turn"], "argument --augment: 'turn' is not known: give none, crop, crop=N, flip, or a crop and flip"),
    (["--augment", "crop=40"], "a crop moves images by 1..16 rows and columns, not 40: change it"),
    (["--augment", "crop=6"], "a crop by 6 rows and columns leaves nothing of images of 6: give --augment a smaller one"),
    (["--validation", "48"], "48 of the 48 training images of data cannot be held out for validation, none would be left"),
    (["--normalise", "image"], "argument --normalise: invalid choice: 'image'"),
])
def test_what_cannot_be_done(desk, capsys, arguments, message):
    refused(capsys, ["train", *COMMON, "--device", "golden", *arguments], message)


def test_digits_are_not_mirrored(desk, capsys):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (pip install 'gradloom[data]')")
    refused(capsys, ["train", "--device", "golden", "--augment", "flip"], "digits cannot be mirrored, a mirrored 2 is no 2")


def test_verification_begins_at_a_trained_state(desk, capsys):
    """With the training's images, and the emulator and the golden model go the same way from there."""
    run = train("run", "--device", "golden", "--normalise", "channel")
    steps = str(run["total_steps"])
    capsys.readouterr()
    trained = ["verify", *COMMON, "--device", "golden", "--weights", "run", "--steps", "2"]
    assert cli.main(trained) == 0
    said = capsys.readouterr().out
    assert f"every channel normalised to mean 0 and standard deviation 1), from step {steps} on, seed 1" in said
    assert cli.main([*trained, "--normalise", "none"]) == 0
    assert "normalised" not in capsys.readouterr().out
    assert cli.main(["verify", *COMMON, "--device", "golden", "--steps", "2", "--normalise", "channel"]) == 0
    # Initial weights end elsewhere.
    assert capsys.readouterr().out.split("parameters ")[-1] != said.split("parameters ")[-1]
    assert cli.main(["diff", *COMMON, "--device", "golden", "--device", "golden", "--weights", "run", "--steps", "1"]) == 0
    refused(capsys, ["verify", *COMMON, "--device", "golden", "--weights", "nowhere.npz"], "there is no nowhere.npz: give a run's")


def test_a_state_of_another_rounding_keeps_its_own(desk, capsys):
    train("run", "--device", "golden", "--rounding", "weights=stochastic")
    for more in ([], ["--rounding", "weights=feedback"]):
        assert cli.main(["verify", *COMMON, "--device", "golden", "--weights", "run", "--steps", "1", *more]) == 0
