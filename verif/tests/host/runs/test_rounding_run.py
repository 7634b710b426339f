"""The option --rounding through train, resume and eval on the golden model."""

import json

import numpy as np

from gradloom.host import cli
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.cli_desk import refused

NETWORK = NETWORKS / "tiny-residual.toml"
GOOD = ["--network", str(NETWORK), "--data", "data.npz", "--device", "golden"]


def test_rounding_is_recorded_resumed_and_evaluated(tmp_path, monkeypatch, capsys):
    """A run with its own rounding: in run.json and checkpoint, kept on resume, the default of eval."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    y = rng.integers(0, 4, 40)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(40, 1, 9, 7)) + y[:, None, None, None], y=y)
    option = ["--rounding", "activations=stochastic,weights=nearest"]
    for name, more in (("whole", option), ("plain", [])):
        assert cli.main(["train", *GOOD, *more, "--batch", "4", "--steps", "4", "--out", name]) == 0
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert record["rounding"] == {
        "activations": "stochastic",
        "normalised": "nearest",
        "errors": "nearest",
        "weights": "nearest",
        "velocities": "stochastic",
    }
    assert cli.main(["train", *GOOD, *option, "--batch", "4", "--steps", "4", "--out", "cut"]) == 0
    cut = json.loads((tmp_path / "cut" / "run.json").read_text())
    assert cut["epochs"][-1]["sha256"] == record["epochs"][-1]["sha256"]
    plain = json.loads((tmp_path / "plain" / "run.json").read_text())
    assert plain["epochs"][-1]["sha256"] != record["epochs"][-1]["sha256"]
    (tmp_path / "cut" / "checkpoint.npz").unlink()
    assert cli.main(["train", "--resume", "cut"]) == 0
    cut = json.loads((tmp_path / "cut" / "run.json").read_text())
    assert cut["epochs"][-1]["sha256"] == record["epochs"][-1]["sha256"]
    refused(capsys, ["train", "--resume", "cut", *option], "--rounding")
    (tmp_path / "cut" / "run.json").write_text(json.dumps(cut | {"rounding": {"weights": "up"}}))
    refused(capsys, ["train", "--resume", "cut"], "weights must be 'nearest', 'stochastic' or 'feedback'")
    found = []
    for name, more in (("own.json", []), ("same.json", option), ("other.json", ["--rounding", "activations=nearest"])):
        assert cli.main(["eval", *GOOD, "--weights", "whole", *more, "--out", name]) == 0
        found.append(json.loads((tmp_path / name).read_text()))
    assert found[0] == found[1] and found[0]["rounding"] == record["rounding"]
    assert found[2]["rounding"]["activations"] == "nearest" and found[2]["test_loss"] != found[0]["test_loss"]
    with np.load(tmp_path / "whole" / "checkpoint.npz") as archive:
        arrays = dict(archive)
    for value, words in ((np.frombuffer(b"weights=up", np.uint8), "rounding cannot be read"), (None, "no array 'rounding'")):
        arrays.pop("rounding", None)
        np.savez(tmp_path / "odd.npz", **(arrays if value is None else arrays | {"rounding": value}))
        refused(capsys, ["eval", *GOOD, "--weights", "odd.npz"], words)
