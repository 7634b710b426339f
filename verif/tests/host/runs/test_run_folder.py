"""A run's folder: files are whole or absent, the record says what was decided and measured, weights come out as real numbers."""

import json
from pathlib import Path

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS, Config
from gradloom.host import cli
from gradloom.host.files import UserError, write_json, write_text
from gradloom.host.runs.run_folder import RunFolder, load_checkpoint
from gradloom.models import atomic, digests
from gradloom.models.arithmetic import pint
from gradloom.models.digits import load_digits_split
from gradloom.models.network import Kind, load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS


def options(source: str) -> list[str]:
    """Two epochs on the golden model; without seed and folder."""
    return ["train", "--device", "golden", "--config", "nano", "--data", source, "--epochs", "2", "--batch", "16"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Two epochs of digits-cnn on a tenth of the digits, on the golden model."""
    folder = tmp_path_factory.mktemp("run")
    x, y, test_x, test_y, exponent = load_digits_split()
    x, test_x = (
        np.ldexp(pint.decode(codes).astype(np.float64), exponent) for codes in (x[:140], test_x[:40])
    )
    np.savez(folder / "tenth.npz", x=x, y=y[:140], x_test=test_x, y_test=test_y[:40])
    code = cli.main([*options(str(folder / "tenth.npz")), "--seed", "7", "--out", str(folder / "run")])
    assert code == 0
    return folder / "run"


def test_record(run):
    """Resolved configuration, seeds, versions, a loss for every step, accuracies and a digest for every epoch."""
    record = json.loads((run / "run.json").read_text())
    assert Config(**record["configuration"]) == PRESETS["nano"] and record["macs"] == 9
    network = load_network("digits-cnn")
    assert record["network"]["toml"] == network.to_toml()
    assert record["seed"] == 7 and record["batch"] == 16 and record["device"] == "golden"
    assert {"python", "gradloom", "amaranth", "verilator", "numpy"} <= set(record["versions"])
    assert (
        record["data"]["train"] == 140
        and record["data"]["test"] == 40
        and len(record["data"]["sha256"]) == 64
    )
    assert record["hyper"]["lr"] == network.train.lr and record["hyper"]["epochs"] == 2
    assert [entry["step"] for entry in record["steps"]] == list(range(16))
    assert all(entry["loss"] > 0 and 0 <= entry["accuracy"] <= 1 for entry in record["steps"])
    assert [entry["steps"] for entry in record["epochs"]] == [8, 16]
    for entry in record["epochs"]:
        assert (
            0 <= entry["train_accuracy"] <= 1
            and 0 <= entry["test_accuracy"] <= 1
            and len(entry["sha256"]) == 64
        )
    state = load_checkpoint(run, network)
    assert record["epochs"][-1]["sha256"] == digests.parameters_digest(network, state)
    assert state.step == 16 and state.seed == 7 and state.calibrated


def test_weights_are_the_checkpoint_in_real_numbers(run):
    network = load_network("digits-cnn")
    state = load_checkpoint(run / "checkpoint.npz", network)
    with np.load(run / "weights.npz") as arrays:
        assert set(arrays.files) == {
            "conv1.weight",
            "conv1.gamma",
            "conv1.beta",
            "conv1.tau",
            "conv2.weight",
            "conv2.gamma",
            "conv2.beta",
            "conv2.tau",
            "conv3.weight",
            "conv3.gamma",
            "conv3.beta",
            "conv3.tau",
            "fc.weight",
            "fc.beta",
        }
        for layer in network.weighted:
            exponent = state.exponents[network.tid(layer.name, Kind.W)]
            assert np.array_equal(
                arrays[f"{layer.name}.weight"], pint.decode(state.weights[layer.name]) * 2.0**exponent
            )
        assert np.array_equal(
            arrays["conv1.gamma"], (state.parameters["conv1"]["gamma"] / 2**24).astype(np.float32)
        )


def test_the_same_seed_gives_the_same_run_and_another_does_not(run, tmp_path):
    source = str(run.parent / "tenth.npz")
    base = options(source)
    records = []
    for name, seed in (("same", "7"), ("other", "8")):
        assert cli.main([*base, "--seed", seed, "--out", str(tmp_path / name)]) == 0
        records.append(json.loads((tmp_path / name / "run.json").read_text()))
    first = json.loads((run / "run.json").read_text())
    assert records[0] == first
    assert records[1]["epochs"][-1]["sha256"] != first["epochs"][-1]["sha256"]


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UserError, match="not empty"):
        RunFolder.create(tmp_path)
    with pytest.raises(UserError, match="not empty"):
        RunFolder.create(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "x"
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty").discard_empty()
    assert not (tmp_path / "empty").exists()
    RunFolder(tmp_path).discard_empty()
    assert (tmp_path / "mine").exists(), "a folder with anything in it stays"


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    write_text(tmp_path / "a.txt", "old")

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(tmp_path / "a.txt", {"new": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_record_without_its_checkpoint_starts_anew(run, tmp_path):
    """A run that was killed between record and checkpoint drops the steps that the checkpoint does not hold."""
    source = str(run.parent / "tenth.npz")
    folder = tmp_path / "cut"
    arguments = [*options(source), "--seed", "7"]
    assert cli.main([*arguments, "--out", str(folder)]) == 0
    (folder / "checkpoint.npz").unlink()
    assert cli.main(["train", "--resume", str(folder)]) == 0
    assert json.loads((folder / "run.json").read_text()) == json.loads((run / "run.json").read_text())


def test_checkpoint_of_another_network_is_refused(run):
    small = load_network(str(NETWORKS / "tiny-relu.toml"))
    with pytest.raises(UserError, match=r"network 'tiny-relu'"):
        load_checkpoint(run, small)
    with pytest.raises(UserError, match="there is no"):
        load_checkpoint(run / "none", small)


@pytest.mark.parametrize("size", [0, 10, 1000, 5000])
def test_damaged_checkpoint_is_refused(run, tmp_path, size):
    network = load_network("digits-cnn")
    (tmp_path / "checkpoint.npz").write_bytes((run / "checkpoint.npz").read_bytes()[:size])
    with pytest.raises(UserError, match=r"checkpoint\.npz"):
        load_checkpoint(tmp_path, network)


def test_every_flipped_byte_of_a_checkpoint_is_noticed(tmp_path):
    """A damaged archive is refused, or what it holds is unaffected (bytes that carry no data)."""
    network = load_network(str(NETWORKS / "tiny-relu.toml"))
    state = State.initial(network, 3, -8)
    state.save(tmp_path / "checkpoint.npz")
    raw = (tmp_path / "checkpoint.npz").read_bytes()
    digest = digests.parameters_digest(network, state)
    refused = 0
    for place in np.random.default_rng(1).integers(0, len(raw), 60):
        bent = bytearray(raw)
        bent[place] ^= 0x40
        (tmp_path / "checkpoint.npz").write_bytes(bent)
        try:
            loaded = load_checkpoint(tmp_path, network)
        except UserError:
            refused += 1
            continue
        assert digests.parameters_digest(network, loaded) == digest and loaded.step == 0 and loaded.seed == 3
    assert refused > 30
