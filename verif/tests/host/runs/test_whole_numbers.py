"""Images of whole numbers in runs: their divisor is recorded, and kept by --resume, eval and diff; old runs go on as they began."""

import json

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.verif.cli_desk import GOOD, lay

MLP = """
name = "mlp"
input = [1, 6, 6]
classes = 3
[[layers]]
type = "fully_connected"
name = "f1"
out = 8
act = "relu"
[[layers]]
type = "fully_connected"
name = "fc"
out = 3
[train]
batch = 4
epochs = 3
lr = 0.05
"""
COMMON = ["--network", "mlp.toml", "--device", "golden"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A network without normalisation, and the same pictures in bytes and in real numbers."""
    monkeypatch.chdir(tmp_path)
    lay(tmp_path)
    (tmp_path / "mlp.toml").write_text(MLP)
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 80)
    x = np.clip(rng.integers(0, 256, (3, 1, 6, 6))[y] + rng.normal(0, 25, (80, 1, 6, 6)), 0, 255).astype(np.uint8)
    x[0, 0, 0, 0] = 255
    np.savez(tmp_path / "bytes.npz", x=x, y=y)
    np.savez(tmp_path / "dark.npz", x=x // 4, y=y, x_test=x // 4, y_test=y)
    np.savez(tmp_path / "darkreal.npz", x=(x // 4) / 256, y=y, x_test=(x // 4) / 256, y_test=y)
    np.savez(tmp_path / "real.npz", x=x / 256, y=y)
    return tmp_path


def train(name: str, data: str, *more: str) -> dict:
    assert cli.main(["train", *COMMON, "--data", data, "--out", name, *more]) == 0
    return json.loads(open(f"{name}/run.json").read())


def test_bytes_train_as_the_same_images_in_real_numbers(desk, capsys):
    """And well: as they are, they are 256 times too large for a network without normalisation."""
    whole, real, raw = train("whole", "bytes.npz"), train("real", "real.npz"), train("raw", "bytes.npz", "--integers", "raw")
    assert "images of whole numbers, divided by 256" in capsys.readouterr().out
    assert whole["data"]["divisor"] == 256 and whole["data"]["whole"] and whole["steps"] == real["steps"]
    assert raw["data"]["divisor"] == 1 and raw["epochs"][-1]["sha256"] != whole["epochs"][-1]["sha256"]
    assert whole["epochs"][-1]["train_accuracy"] > 0.9 > raw["epochs"][-1]["train_accuracy"]
    assert cli.main(["diff", "whole", "real"]) == 0


def test_a_run_before_the_divisor_was_recorded_goes_on_as_it_began(desk, capsys):
    whole = train("whole", "bytes.npz", "--integers", "raw", "--steps", "12")
    train("old", "bytes.npz", "--integers", "raw", "--steps", "6")
    record = json.loads((desk / "old" / "run.json").read_text())
    record |= {"total_steps": 12, "epochs": [], "hyper": whole["hyper"]}
    for key in ("whole", "divisor"):
        del record["data"][key]
    (desk / "old" / "run.json").write_text(json.dumps(record))
    assert cli.main(["train", "--resume", "old"]) == 0
    assert json.loads((desk / "old" / "run.json").read_text())["epochs"][-1]["sha256"] == whole["epochs"][-1]["sha256"]
    capsys.readouterr()
    assert cli.main(["eval", *COMMON, "--data", "bytes.npz", "--weights", "old", "--out", "old.json"]) == 0
    assert json.loads((desk / "old.json").read_text())["divisor"] == 1
    assert cli.main(["diff", "old", "whole", "--replay"]) == 0


def test_evaluation_divides_by_what_the_training_divided_by(desk):
    """Dark pictures alone would be divided by 64, and look four times as bright as those of the training."""
    train("run", "bytes.npz")
    scores = []
    for data, weights in (("dark.npz", "run"), ("dark.npz", "run/checkpoint.npz"), ("darkreal.npz", "run")):
        name = f"score{len(scores)}.json"
        assert cli.main(["eval", *COMMON, "--data", data, "--weights", weights, "--out", name]) == 0
        scores.append(json.loads((desk / name).read_text()))
    assert [score["divisor"] for score in scores] == [256, 256, 1]
    assert scores[0]["test_loss"] == scores[1]["test_loss"] == scores[2]["test_loss"]
    (desk / "alone.npz").write_bytes((desk / "run" / "checkpoint.npz").read_bytes())
    assert cli.main(["eval", *COMMON, "--data", "dark.npz", "--weights", "alone.npz", "--out", "alone.json"]) == 0
    assert json.loads((desk / "alone.json").read_text())["divisor"] == 64


def test_verify_and_bench_take_the_option(desk, capsys):
    assert cli.main(["verify", *COMMON, "--data", "bytes.npz", "--steps", "1"]) == 0
    assert "divided by 256" in capsys.readouterr().out
    assert cli.main(["verify", *COMMON, "--data", "bytes.npz", "--steps", "1", "--integers", "raw"]) == 0
    assert "divided" not in capsys.readouterr().out
    assert cli.main(["train", *GOOD, "--integers", "half"]) == 2
