"""Runs side by side: what a time allows, and a failure that stays alone."""

import json
import tarfile

import numpy as np
import pytest

from gradloom.verif.experiments import campaign


def test_how_many_more_runs_a_time_allows():
    # 100 images a second for 100 s, less a share that is not counted on, and 3,000 that are left.
    assert campaign.affordable([1000, 2000], [40.0, 60.0], 3000, 100.0) == 2
    assert campaign.affordable([9000], [100.0], 3000, 100.0) == 0
    assert campaign.affordable([], [], 0, 100.0) == 0


def test_a_campaign(tmp_path, capfd):
    """Two runs on a few images, one of which cannot be; all results are there, checkpoints too."""
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 256, (16, 3, 32, 32), np.uint8), np.arange(16) % 10
    np.savez(tmp_path / "data.npz", x=x, y=y, x_test=x[:4], y_test=y[:4])
    campaign.main(["--data", str(tmp_path / "data.npz"), "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--jobs",
                   "fp32:2,none:1", "--start", "2", "--seconds", "100", "--", "--epochs", "1", "--batch", "8"])
    out = tmp_path / "out"
    runs = json.loads((out / "runs.json").read_text())["runs"]
    assert [(run["variant"], run["seed"], len(run["curve"])) for run in runs] == [("fp32", 2, 1)]
    assert runs[0]["test_accuracy"] is not None and (out / "summary.txt").read_text().startswith("fp32 ")
    assert "== none-1, exit 2" in (out / "log.txt").read_text() and "there is no variant 'none'" in (out / "log.txt").read_text()
    with tarfile.open(out / "checkpoints-1.tar") as archive:
        assert archive.getnames() == ["run-fp32-2.json", "run-fp32-2.pt"]
    assert "fp32-2 begins" in capfd.readouterr().out


@pytest.mark.parametrize(("jobs", "words"), [
    ("mean:two", "job 'mean:two' is no VARIANT:SEED: the seed must be a whole number, not 'two'"),
    ("mean:1,", "job '' names no variant: give VARIANT:SEED"),
    ("mean:1,mean", "job 'mean' is there twice: give each VARIANT:SEED once")])
def test_bad_jobs_are_one_sentence(tmp_path, capsys, jobs, words):
    folders = ["--data", str(tmp_path), "--work", str(tmp_path / "w"), "--out", str(tmp_path / "o")]
    assert campaign.main([*folders, "--jobs", jobs, "--seconds", "1"]) == 2
    assert capsys.readouterr().err == f"error: {words}\n" and not (tmp_path / "w").exists()
