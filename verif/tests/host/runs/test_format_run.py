"""The option --format through train, resume, eval and verify, and its refusal by the machine."""

import json
from pathlib import Path

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.models.formats import FORMATS
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.cli_desk import refused

NETWORK = NETWORKS / "tiny-residual.toml"
GOOD = ["--network", str(NETWORK), "--data", "data.npz", "--device", "golden"]
SOFTWARE = [name for name in FORMATS if name != "pint8"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    y = rng.integers(0, 4, 40)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(40, 1, 9, 7)) + y[:, None, None, None], y=y)
    return tmp_path


def record(folder: Path, name: str):
    return json.loads((folder / name / "run.json").read_text())


@pytest.mark.parametrize("form", SOFTWARE)
def test_a_format_is_recorded_resumed_and_evaluated(folder, capsys, form):
    option = ["--format", form]
    assert cli.main(["train", *GOOD, *option, "--batch", "4", "--steps", "6", "--out", "whole"]) == 0
    whole = record(folder, "whole")
    assert whole["number_format"] == form and form in (folder / "whole" / "report.html").read_text()
    (folder / "whole" / "checkpoint.npz").unlink()
    assert cli.main(["train", "--resume", "whole"]) == 0
    assert record(folder, "whole")["epochs"][-1]["sha256"] == whole["epochs"][-1]["sha256"]
    assert cli.main(["eval", *GOOD, *option, "--weights", "whole", "--out", "score.json"]) == 0
    score = json.loads((folder / "score.json").read_text())
    assert score["number_format"] == form and score["test_accuracy"] == whole["epochs"][-1]["test_accuracy"]
    refused(capsys, ["eval", *GOOD, "--weights", "whole"], f"is a state of the format {form}, network 'tiny-residual' has pint8")
    state = State.load(folder / "whole" / "checkpoint.npz", load_network(str(NETWORK)).formatted(form))
    assert (state.averaged > 0) == (form == "bfp8-swa")


def test_runs_of_two_formats_differ_in_that_setting(folder, capsys):
    for form in ("pint8", "bfp8"):
        assert cli.main(["train", *GOOD, "--format", form, "--batch", "4", "--steps", "2", "--out", form]) == 0
    capsys.readouterr()
    assert cli.main(["diff", "pint8", "bfp8"]) == 1
    assert "number_format" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["train", "verify", "bench"])
def test_the_machine_refuses_all_but_pint8(folder, capsys, command):
    arguments = [command, "--network", str(NETWORK), "--config", "nano", "--format", "bfp8"]
    refused(capsys, arguments + (["--data", "data.npz"] if command != "bench" else ["--device", "model"]),
            "the format bfp8 is software only, the machine runs pint8: give --format pint8, or --device golden or emulator",
            begun=True)


def test_floating_point_is_golden_s_alone(folder, capsys):
    emulator = ["train", *GOOD[:4], "--device", "emulator", "--format", "fp32"]
    refused(capsys, emulator, "the emulator is exact: give --device golden", begun=True)
    refused(capsys, ["train", *GOOD[:4], "--format", "fp32"], "give --format pint8, or --device golden", begun=True)


def test_unknown_formats_are_refused(folder, capsys):
    refused(capsys, ["train", *GOOD, "--format", "fp4"],
            "--format: must be one of pint8, int8-shift, bfp8, bfp8-swa, fp32, not 'fp4'")
