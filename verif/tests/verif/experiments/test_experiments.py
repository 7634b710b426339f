"""Accuracy experiments: resumed without losing or repeating a run, and every contestant with the digest of the golden model."""

import dataclasses
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from gradloom.host.datasets.data import epoch_order, load_dataset
from gradloom.host.files import UserError
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.layers import Training
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.experiments import losses_page, page, radio_data
from gradloom.verif.experiments.curves import draw
from gradloom.verif.experiments.results import Store
from gradloom.verif.experiments.titles import TITLES

JOBS = [(name, seed) for seed in (1, 2) for name in ("fp32", "pint8")]


def result(contestant, seed):
    value = 90 + seed + len(contestant) / 10
    return {"summary": f"{value} %", "accuracy": value, "curve": [{"epoch": n, "accuracy": value - 1 / n} for n in (1, 2, 3)]}


def test_a_stopped_experiment_goes_on(tmp_path):
    asked = []

    def work(contestant, seed):
        asked.append((contestant, seed))
        return result(contestant, seed)

    Store("toy", {"epochs": 3}, tmp_path).run(JOBS, work, only=["pint8"], limit=1)
    Store("toy", {"epochs": 3}, tmp_path).run(JOBS, work, limit=2)
    Store("toy", {"epochs": 3}, tmp_path).run(JOBS, work)
    assert sorted(asked) == sorted(JOBS) and asked[0] == ("pint8", 1)
    record = json.loads((tmp_path / "accuracy-toy.json").read_text())
    assert [(run["contestant"], run["seed"]) for run in record["runs"]] == JOBS
    with pytest.raises(UserError, match=r"accuracy-toy\.json holds results of other settings: move it away, or restore the sett"):
        Store("toy", {"epochs": 4}, tmp_path)


def test_the_page_shows_what_was_run_and_says_what_was_not(tmp_path):
    settings = {"train_images": 100, "test_images": 50, "train": vars(Training()), "overrides": {"int8-shift": {"lr": 0.5}}}
    Store("resnet20", settings, tmp_path).run(JOBS, result)
    text = page.render(tmp_path, tmp_path)
    assert "| FP32 | 91.90 | 0.71 | 91.40 | 92.40 |" in text and "int8-shift: lr 0.5" in text
    assert "Not run yet: int8-shift. 100 training" in text
    assert ("losses-resnet20-30, losses-vgg16-10, losses-vgg16-quarter-15, losses-resnet20-22, resnet20-long, "
            "resnet20-recipe, vgg16-recipe, vgg16, vgg16-quarter, digits, logistic, mnist, radio, ablations.\n") in text
    assert "ETA's recipe" in text
    ElementTree.fromstring((tmp_path / "accuracy-resnet20.svg").read_text())


def test_the_page_shows_worst_and_best_of_many_seeds(tmp_path):
    settings = {"train_images": 100, "test_images": 50, "train": vars(Training()), "overrides": {}}
    Store("digits", settings, tmp_path).run([("fp32", seed) for seed in range(4)], result)
    text = page.render(tmp_path, tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("| FP32 |"))
    values = [result("fp32", seed)["accuracy"] for seed in range(4)]
    assert "## digits-cnn, 4 seeds" in text
    assert row.split("|")[4:7] == [f" {min(values):.2f} ", f" {max(values):.2f} ", " 4 "]


def losses_run(variant, seed, accuracy, epochs=22, done=22):
    curve = [{"epoch": epoch, "loss": 2.0 - 0.07 * epoch + 0.01 * seed * (variant == "fp32")} for epoch in range(1, done + 1)]
    return {"variant": variant, "network": "resnet20", "seed": seed, "epochs": epochs, "test_accuracy": accuracy, "curve": curve}


def test_the_page_shows_what_pint8_loses(tmp_path):
    """A run is set beside FP32 of its seed, at the epoch that it came to."""
    runs = [losses_run("fp32", 1, 0.81), losses_run("fp32", 2, 0.82), losses_run("mean", 2, 0.8119),
            losses_run("mean", 1, None, done=9), losses_run("mean", 3, 0.8)]
    (tmp_path / "accuracy-losses-resnet20-22.json").write_text(json.dumps({"experiment": "losses-resnet20-22", "runs": runs}))
    text = page.render(tmp_path, tmp_path)
    for row in ("| `fp32` | FP32 | 1 | 0.4700 |  | 81.00 |",
                "| `mean` | PINT8 as it was, mean rounded | 2 | 0.4600 | -0.0200 | 81.19 |",
                "| `mean` | PINT8 as it was, mean rounded | 1 | 1.3700 (epoch 9 of 22) | -0.0100 |  |",
                "| `mean` | PINT8 as it was, mean rounded | 3 | 0.4600 | -0.0150 | 80.00 |",
                "`fp32` 81.50 % (standard error 0.50, 2 seeds); `mean` 80.59 % (standard error 0.59, 2 seeds)."):
        assert row in text, row
    assert "losses-resnet20-22.svg)" in text
    ElementTree.fromstring((tmp_path / "accuracy-losses-resnet20-22.svg").read_text())


def test_runs_are_kept(tmp_path, capsys):
    """By network and number of epochs; a longer part of a run takes the place of a shorter one."""
    (tmp_path / "runs.json").write_text(json.dumps({"runs": [losses_run("mean", 2, 0.5), losses_run("mean", 1, None, done=0),
                                                            losses_run("fp32", 1, 0.6), losses_run("fp32", 1, None, 30, 8)]}))
    (tmp_path / "run-mean-2.json").write_text(json.dumps(losses_run("mean", 2, 0.7)))
    losses_page.keep([tmp_path / "runs.json"], tmp_path)
    losses_page.keep([tmp_path / "run-mean-2.json"], tmp_path)
    kept = json.loads((tmp_path / "accuracy-losses-resnet20-22.json").read_text())
    assert kept == {"experiment": "losses-resnet20-22", "runs": [losses_run("fp32", 1, 0.6), losses_run("mean", 2, 0.7)]}
    assert json.loads((tmp_path / "accuracy-losses-resnet20-30.json").read_text())["runs"] == [losses_run("fp32", 1, None, 30, 8)]
    (tmp_path / "bad.json").write_text("[1]")
    for name in ("bad.json", "none.json"):
        assert losses_page.main([str(tmp_path / name)]) == 2
        assert f"{name} holds no runs of losses or campaign" in capsys.readouterr().err


def test_curves_stay_inside_their_frame():
    series = {"<a>": [(n, [0.1 * n, 0.1 * n + 0.05]) for n in range(1, 8)], "b": [(n, [0.3]) for n in range(1, 8)]}
    text = draw(series, "x", "y")
    ElementTree.fromstring(text)
    for points in re.findall(r'points="([^"]+)"', text):
        for pair in points.split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= 740 and 0 <= y <= 352


def test_radio_signals():
    """Modulated carriers of amplitude 1; interference of every kind in turn, of the amplitudes that the module names."""
    good, (bad, kind) = radio_data.normal(1, 300), radio_data.anomalous(9, 300)
    assert good.shape == bad.shape == (300, radio_data.SAMPLES) and np.bincount(kind).tolist() == [100, 100, 100]
    # The receiver's noise adds 2 * 0.1^2 to the carrier's power; a mean over 9600 random samples is within 0.01, five deviations.
    assert (np.abs(good) ** 2).mean() == pytest.approx(1.02, abs=0.01)
    added = bad - radio_data.normal(19, 300)
    power = np.sqrt((np.abs(added) ** 2).mean(axis=1))
    assert power.min() >= 0.049 and power.max() <= 0.401
    step = np.angle(good[:, 1:] * good[:, :-1].conj()) / (2 * np.pi)
    assert np.abs(step.mean(axis=1)).max() < 0.035
    sine = np.angle(added[kind == 2][:, 1:] * added[kind == 2][:, :-1].conj())
    assert np.abs(np.exp(1j * sine) - np.exp(1j * sine[:, :1])).max() < 1e-6
    assert np.array_equal(good, radio_data.normal(1, 300))
    assert radio_data.windows(good).shape == (300, 2, 1, 32)


def test_a_run_has_the_golden_model_s_digest():
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    from gradloom.verif.experiments.classify import EXPERIMENTS, subset, train_once
    from gradloom.verif.experiments.contestants import CONTESTANTS

    assert CONTESTANTS.keys() == TITLES.keys()
    assert all(set(experiment.contestants) <= TITLES.keys() for experiment in EXPERIMENTS.values())
    experiment = dataclasses.replace(EXPERIMENTS["ablations"], train=Training(batch=20, epochs=1, lr=0.02))
    data = subset(load_dataset("digits"), 100, 40)
    for contestant in ("pint8-nearest", "bfp8-swa"):
        found = train_once(experiment, data, contestant, 3)
        chosen = CONTESTANTS[contestant]
        network = load_network("digits-cnn").formatted(chosen.form).rounded(chosen.rounding)
        state, order = State.initial(network, 3, data.exponent), epoch_order(100, 3, 0)
        for step, hyper in enumerate(golden.schedule_table(experiment.train, 5, average=network.arithmetic.average)):
            part = order[20 * step : 20 * step + 20]
            golden.train_step(network, state, data.train_x[part], data.train_y[part], hyper)
        assert digests.parameters_digest(network, state) == found["sha256"]
        right = golden.evaluate(network, state, data.test_x, data.test_y).correct
        assert found["accuracy"] == 100 * right / 40
    assert train_once(experiment, data, "fp32-bn", 3)["accuracy"] >= 0


def test_a_gpu_that_is_not_there_is_one_sentence(capsys):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    from gradloom.verif.experiments.classify import main

    count = torch.cuda.device_count()
    assert main(["logistic", "--device", f"cuda:{count}"]) == 2
    assert capsys.readouterr().err.startswith(f"error: cuda:{count} is not there: PyTorch finds {count} CUDA device")
    assert main(["logistic", "--device", "mps"]) == 2 and "there is no PyTorch device 'mps'" in capsys.readouterr().err


def test_an_overflow_is_one_sentence(monkeypatch, capsys, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    from gradloom.models.arithmetic.arith import ArithmeticFault
    from gradloom.models.emulator.step import Emulator
    from gradloom.verif.experiments.classify import main

    def overflow(*_):
        raise ArithmeticFault("forward sum", 36, "values do not fit")

    monkeypatch.setattr(Emulator, "train_step", overflow)
    assert main(["logistic", "--only", "pint8", "--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: pint8, step 0: a forward sum does not fit its 36 bits: lower")


def test_a_radio_run(monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    from gradloom.verif.experiments import radio

    assert radio.f1_score(np.array([1.0, 3.0, 2.0, 5.0]), np.array([False, True, True, False]), 2.5) == 0.5
    monkeypatch.setattr(radio, "ITERATIONS", 2)
    monkeypatch.setattr(radio, "BATCH", 50)
    monkeypatch.setattr(radio, "TESTED", 30)
    found = radio.detect("bfp8", 1, radio._signals())
    assert len(found["curve"]) == 1 and 0 <= found["f1"] <= 1 and set(found["found"]) == set(radio_data.ANOMALIES)
