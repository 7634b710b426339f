"""``--device emulator``: train, resume, eval, verify and diff give what the golden model gives; refusal without PyTorch."""

import builtins
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.host.devices import models
from gradloom.host.files import UserError
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS, TESTS

NETWORK = NETWORKS / "tiny-subsample.toml"
COMMON = ["--network", str(NETWORK), "--config", "nano", "--data", "data.npz"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder with images for the network."""
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    network = load_network(str(NETWORK))
    rng = np.random.default_rng(5)
    labels = rng.integers(0, network.classes, 40)
    np.savez(tmp_path / "data.npz", x=rng.normal(size=(40, *network.input_shape)) + labels[:, None, None, None], y=labels)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(name: str, device: str, *more: str) -> dict:
    assert cli.main(["train", *COMMON, "--batch", "4", "--device", device, "--out", name, *more]) == 0
    return json.loads((Path(name) / "run.json").read_text())


def test_a_run_is_the_golden_models_run(desk):
    """Losses, accuracies and digests of every step and epoch, and the last state, byte for byte."""
    golden, emulator = (train(device, device, "--steps", "12", "--check", "off") for device in ("golden", "emulator"))
    assert emulator["device"] == "emulator" and golden["device"] == "golden"
    for key in ("steps", "epochs", "hyper", "rounding", "seed"):
        assert emulator[key] == golden[key], key
    with np.load("golden/checkpoint.npz") as first, np.load("emulator/checkpoint.npz") as second:
        assert first.files == second.files
        assert all(np.array_equal(first[key], second[key]) and first[key].dtype == second[key].dtype for key in first.files)
    assert cli.main(["diff", "golden", "emulator"]) == 0


def test_every_step_can_be_checked(desk):
    record = train("run", "emulator", "--steps", "3", "--check", "all")
    assert all(entry["checked_bytes"] > 1000 for entry in record["steps"])


@pytest.mark.parametrize("devices", [("golden", "emulator"), ("emulator", "golden")])
def test_a_checkpoint_goes_on_with_the_other_model(desk, devices):
    """Six steps on one, the rest on the other: the digest of a run on one alone."""
    whole = train("whole", devices[0], "--steps", "12", "--check", "off")
    train("cut", devices[0], "--steps", "6", "--check", "off")
    record = json.loads(Path("cut/run.json").read_text())
    # A run of twelve steps that was stopped after six, to be resumed on the other model.
    record |= {"device": devices[1], "total_steps": 12, "epochs": [], "hyper": whole["hyper"]}
    Path("cut/run.json").write_text(json.dumps(record))
    assert cli.main(["train", "--resume", "cut"]) == 0
    resumed = json.loads(Path("cut/run.json").read_text())
    assert resumed["epochs"][-1]["sha256"] == whole["epochs"][-1]["sha256"]


def test_evaluation(desk):
    train("run", "golden", "--steps", "4", "--check", "off")
    found = []
    for device in ("golden", "emulator"):
        assert cli.main(["eval", *COMMON, "--device", device, "--weights", "run", "--out", f"{device}.json"]) == 0
        found.append(json.loads(Path(f"{device}.json").read_text()))
    assert found[0] | {"device": ""} == found[1] | {"device": ""} and found[1]["device"] == "emulator"


def test_verification(desk, capsys):
    arguments = ["verify", "--network", str(NETWORK), "--device", "emulator", "--data", "random", "--batch", "3", "--steps", "2"]
    assert cli.main(arguments) == 0
    assert "0 differences" in capsys.readouterr().out


def test_verification_notices_a_wrong_byte(desk, capsys, monkeypatch):
    from gradloom.models.emulator import forward as emulator_forward

    real = emulator_forward._subsample
    monkeypatch.setattr(emulator_forward, "_subsample", lambda x, layer: real(x, layer).neg())
    assert cli.main(["verify", "--network", str(NETWORK), "--device", "emulator", "--data", "random", "--steps", "1"]) == 1
    assert "DIFFERENT: step 0, layer " in capsys.readouterr().out


def test_without_pytorch_one_sentence_names_the_extra(monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *rest):
        if name == "torch" or name.startswith("torch."):
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")
        return real(name, *rest)

    for name in [name for name in sys.modules if name.startswith(("gradloom.models.emulator", "torch"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    network = load_network(str(NETWORK))
    with pytest.raises(UserError) as caught:
        models.emulator(network, State.initial(network, 1, -11))
    message = "--device emulator needs PyTorch, which is not installed: pip install 'gradloom[torch]'"
    assert str(caught.value) == message
    assert cli.main(["verify", "--network", str(NETWORK), "--device", "emulator", "--data", "random"]) == 2
    assert capsys.readouterr().err == f"gradloom: error: {message}\n"


def test_devices_that_are_not_there(desk, monkeypatch, capsys):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for device, message in (
        ("emulator:cuda:1", "cuda:1 is not there: PyTorch finds 1 CUDA device on this computer: "
                            "train on the CPU, or install a driver and a PyTorch that see the GPU"),
        ("emulator:tpu", "argument --device: there is no device 'emulator:tpu': "
                         "give one of rtl, golden, emulator, emulator:cuda, emulator:cuda:N, BOARD[:PORT], sim:BOARD or "
                         "netlist:BOARD[:FOLDER] (boards: ulx3s-85f): see gradloom train --help"),
    ):
        assert cli.main(["train", *COMMON, "--device", device, "--steps", "1", "--out", "run"]) == 2
        assert capsys.readouterr().err == f"gradloom: error: {message}\n" and not Path("run").exists()


def test_a_gpu_gives_the_golden_models_run(desk, monkeypatch):
    """On a stand-in for the GPU (far_device)."""
    import torch

    monkeypatch.syspath_prepend(str(TESTS / "models" / "emulator"))
    from far_device import FarDevice, skip_unless_linked

    from gradloom.models.emulator.step import Emulator

    skip_unless_linked()
    for name in ("train_step", "evaluate"):
        monkeypatch.setattr(Emulator, name, torch.no_grad()(getattr(Emulator, name).__wrapped__))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    golden = train("golden", "golden", "--steps", "12", "--check", "off")
    with FarDevice():
        emulator = train("far", "emulator:cuda", "--steps", "12", "--check", "off")
    assert emulator["device"] == "emulator:cuda"
    for key in ("steps", "epochs", "hyper", "rounding", "seed"):
        assert emulator[key] == golden[key], key
