"""gradloom.api trains, goes on, evaluates and verifies as the command line does, to the same bytes, in silence."""

import json
import warnings

import numpy as np
import pytest

from gradloom import api
from gradloom.host import cli
from gradloom.host.devices import session
from gradloom.host.devices.model_device import ModelDevice
from gradloom.host.runs import training
from gradloom.verif.cli_desk import GOOD, IMAGES

STEPS = {"steps": 6, "batch": 4, "lr": 0.1, "seed": 9}
OPTIONS = ["--steps", "6", "--batch", "4", "--lr", "0.1", "--seed", "9"]


def record(folder) -> dict:
    return json.loads((folder / "run.json").read_text())


def arrays(desk) -> tuple[np.ndarray, np.ndarray]:
    with np.load(desk / "data.npz") as found:
        return found["x"], found["y"]


def test_a_run_is_the_command_lines_run(desk, capsys):
    """By names, and with a network and arrays as objects: records, weights and checkpoints are the same."""
    assert cli.main(["train", *GOOD, *OPTIONS, "--out", "line"]) == 0
    capsys.readouterr()
    named = api.train("tiny.toml", "data.npz", out="named", **STEPS)
    network = api.load_network(desk / "tiny.toml")
    given = api.train(network, arrays(desk), out=desk / "given", **STEPS)
    assert capsys.readouterr() == ("", "")
    line, found = record(desk / "line"), record(desk / "named")
    assert found == line
    assert record(desk / "given") == line | {
        "network": line["network"] | {"source": None},
        "data": line["data"] | {"source": None, "name": "arrays"},
    }
    for folder in ("named", "given"):
        for file in ("checkpoint.npz", "weights.npz"):
            with np.load(desk / folder / file) as left, np.load(desk / "line" / file) as right:
                assert all(np.array_equal(left[key], right[key]) for key in right.files)
    assert (named.digest, named.losses) == (given.digest, given.losses)
    last = line["epochs"][-1]
    assert named.digest == last["sha256"] and named.test_accuracy == last["test_accuracy"] is not None
    assert (named.steps, named.validation_accuracy, named.cycles) == (6, None, None)
    assert named.epochs == 6 / line["steps_per_epoch"]
    assert list(named.losses) == [entry["loss"] for entry in line["steps"]] and named.loss == named.losses[-1]
    assert list(named.accuracies) == [entry["accuracy"] for entry in line["steps"]]
    assert named.weights()["conv.weight"].shape == (4, 1, 3, 3)


def test_numbers_of_numpy_are_numbers(desk):
    plain = api.train("tiny.toml", "data.npz", out="plain", steps=2, batch=4, lr=0.5)
    found = api.train("tiny.toml", "data.npz", out="numpy", steps=np.int64(2), batch=np.int16(4), lr=np.float32(0.5))
    assert record(desk / "numpy") == record(desk / "plain") and found.digest == plain.digest


def test_default_folder(desk):
    assert api.train("tiny.toml", "data.npz", steps=1).run.name == "tiny-small-1"


def test_validation_images(desk):
    found = api.train("tiny.toml", "data.npz", steps=2, validation=8, out="run")
    assert found.validation_accuracy is not None and found.validation_accuracy * 8 % 1 == 0


class Stopped(Exception):
    pass


@pytest.mark.parametrize("given", [False, True], ids=["named", "arrays"])
def test_an_interrupted_run_goes_on_to_the_same_bytes(desk, given):
    network = api.load_network("tiny.toml") if given else "tiny.toml"
    data = arrays(desk) if given else "data.npz"
    whole = api.train(network, data, out="whole", steps=20)

    def stop(progress: api.Progress) -> None:
        if progress.done >= 9:
            raise Stopped

    with pytest.raises(Stopped):
        api.train(network, data, out="run", steps=20, progress=stop)
    assert len(record(desk / "run")["steps"]) < 20
    found = api.resume("run", data=data if given else None)
    assert (found.digest, found.losses, found.steps) == (whole.digest, whole.losses, 20)
    again = api.resume("run", data=data if given else None)
    assert again.digest == whole.digest


def test_resume_refuses(desk, capsys):
    network = api.load_network("tiny.toml")
    x, y = arrays(desk)
    api.train(network, (x, y), out="given", steps=1)
    api.train("tiny.toml", "data.npz", out="named", steps=1)
    for arguments, message in (
        ({"run": "given"}, "the images of given were given as arrays: go on with gradloom.api.resume and give them "
                           "again as data"),
        ({"run": "given", "data": (-x, y)}, "the images given are not those that the run in given began with: give the "
                                           "same arrays"),
        ({"run": "given", "data": "data.npz"}, "a run keeps the name of its data: leave data='data.npz' out"),
        ({"run": "named", "data": (x, y)}, "the run in named trains on data.npz: leave data out"),
        ({"run": "nosuch"}, "nosuch holds no run.json: give the folder of a run to resume"),
        ({"run": "named", "memory": api.MemoryOptions(trace="x.fst")},
         "trace records the simulated hardware: give device rtl with it"),
        ({"run": 3}, "run must be a run's folder, not 3"),
    ):
        with pytest.raises(api.UserError) as caught:
            api.resume(**arguments)
        assert str(caught.value) == message
    assert cli.main(["train", "--resume", "given"]) == 2
    assert "gradloom.api.resume" in capsys.readouterr().err
    assert cli.main(["diff", "given", "given"]) == 0
    capsys.readouterr()
    api.train(network, (x, y), out="other", steps=1, seed=2)
    assert cli.main(["diff", "given", "other", "--replay"]) == 2


def test_a_function_hears_of_the_progress(desk):
    heard: list[api.Progress] = []
    found = api.train("tiny.toml", "data.npz", out="run", steps=5, progress=heard.append)
    assert heard[-1].done == heard[-1].total == 5 and heard[-1].loss is not None
    assert [entry.done for entry in heard] == sorted(entry.done for entry in heard)
    assert found.steps == 5


def test_progress_prints_what_the_command_line_prints(desk, capsys):
    assert cli.main(["train", *GOOD, "--steps", "3", "--out", "run"]) == 0
    line = capsys.readouterr()
    (desk / "run").rename(desk / "old")
    api.train("tiny.toml", "data.npz", out="run", steps=3, progress=True)
    found = capsys.readouterr()
    assert found.out == line.out and found.out.startswith("gradloom: tiny on small")
    begins = [[text.split("  ")[0] for text in printed.err.splitlines()] for printed in (found, line)]
    assert begins[0] == begins[1]


def test_warnings_are_pythons(desk, capsys):
    """Logits that saturate are told even where nothing is printed."""
    text = (desk / "tiny.toml").read_text().replace("[train]", "[train]\nmomentum = 0.0")
    (desk / "wild.toml").write_text(text)
    with pytest.warns(UserWarning, match=r"logits saturate at the ends of their range"):
        api.train("wild.toml", "data.npz", out="run", steps=12, lr=64.0, check="off")
    with pytest.warns(UserWarning, match=r"^evaluation after 12 steps, layer 'logits': "):
        api.evaluate("wild.toml", "run", "data.npz")
    assert capsys.readouterr() == ("", "")


def test_evaluation(desk, capsys):
    trained = api.train("tiny.toml", "data.npz", out="run", steps=6)
    found = api.evaluate("tiny.toml", trained.run, "data.npz")
    assert found.accuracy == trained.test_accuracy and found.digest == trained.digest and found.steps == 6
    assert found.images == IMAGES // 5 and found.correct == round(found.accuracy * found.images)
    x, y = arrays(desk)
    assert api.evaluate(trained.network, trained.run / "checkpoint.npz", (x, y, x, y), device="golden").images == IMAGES
    with pytest.raises(api.UserError, match=r"^there is no .*nosuch: give a run's folder or a checkpoint.npz$"):
        api.evaluate("tiny.toml", "nosuch", "data.npz")
    assert capsys.readouterr() == ("", "")


def test_verification(desk, capsys):
    found = api.verify("tiny.toml", "nano", device="golden", data="data.npz", steps=3, batch=2)
    assert found.equal and found.difference is None and found.steps == 3 and found.cycles is None
    assert capsys.readouterr() == ("", "")
    assert cli.main(["verify", *GOOD, "--config", "nano", "--steps", "3", "--batch", "2"]) == 0
    said = capsys.readouterr().out
    assert f"{found.tensors:,} tensors, {found.bytes:,} bytes compared" in said and found.digest[:16] in said


def bend(monkeypatch) -> None:
    """From step 1 on the device has a wrong byte."""
    real = ModelDevice.tensor

    def bent(device: ModelDevice, layer: str, name: str) -> np.ndarray:
        found = real(device, layer, name)
        if (layer, name) == ("pool", "z") and device._step > 1:
            found = found.copy()
            found[1, 2, 0, 1] ^= 1
        return found

    monkeypatch.setattr(ModelDevice, "tensor", bent)


def test_verification_finds_a_difference(desk, monkeypatch):
    bend(monkeypatch)
    found = api.verify("tiny.toml", "nano", device="golden", data="data.npz", steps=4, batch=2)
    assert not found.equal and found.steps == 2
    assert (found.difference.step, found.difference.layer, found.difference.tensor) == (1, "pool", "z")
    assert found.difference.index == (1, 2, 0, 1)


def test_a_run_whose_check_fails_raises(desk, monkeypatch):
    """The golden model in the place of the machine, with a wrong byte."""
    real = session.open_network_device
    monkeypatch.setattr(session, "open_network_device", lambda name, *rest, **more: real("golden", *rest, **more))
    monkeypatch.setattr(training, "check_device", lambda *rest: None)
    api.train("tiny.toml", "data.npz", out="good", steps=3, device="rtl", check="all")
    bend(monkeypatch)
    message = r"^step 1 differs from the golden model: step 1, layer 'pool', tensor z, "
    with pytest.raises(api.CheckFailed, match=message):
        api.train("tiny.toml", "data.npz", out="run", steps=3, device="rtl", check="all")


def test_no_warning_without_cause(desk):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api.train("tiny.toml", "data.npz", out="run", steps=2)
