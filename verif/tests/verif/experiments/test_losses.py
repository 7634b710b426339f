"""Variants of the arithmetic change what they say and nothing else; runs go on where they stopped."""

import contextlib
import dataclasses
import json
import math
import time
from functools import partial
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.host.datasets.data import epoch_order  # noqa: E402
from gradloom.models.arithmetic import pint  # noqa: E402
from gradloom.models.emulator import conv as emulator_conv  # noqa: E402
from gradloom.models.emulator import forward as emulator_forward  # noqa: E402
from gradloom.models.emulator import frn as emulator_frn  # noqa: E402
from gradloom.models.emulator import step as emulator_step  # noqa: E402
from gradloom.models.emulator import velocity as emulator_velocity  # noqa: E402
from gradloom.models.emulator.step import Emulator  # noqa: E402
from gradloom.models.hyper import Hyper  # noqa: E402
from gradloom.models.layers import INPUT, Kind  # noqa: E402
from gradloom.models.network import load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.checkout import NETWORKS  # noqa: E402
from gradloom.verif.experiments import losses, pictures, variant_arithmetic, variant_updates  # noqa: E402
from gradloom.verif.experiments.variants import TOKENS, Plan, applied, parse_plan, variant_network  # noqa: E402
from gradloom.verif.one_thread import one_thread  # noqa: E402, F401

HYPER = Hyper.from_floats(0.1, 0.9, 2.0**-12)
EXPONENT = -10


def network():
    return load_network(str(NETWORKS / "tiny-residual.toml"))


def batches(net, count=3, images=4):
    rng = np.random.default_rng(5)
    return [(pint.encode(rng.integers(-4096, 4096, (images, *net.input_shape)), 0).code, rng.integers(0, net.classes, images))
            for _ in range(count)]


def steps(text, count=2, sums="exact"):
    """Tensors of the last step, and the emulator."""
    net, plan = network(), parse_plan(text)
    with applied(plan, sums):
        planned = variant_network(net, plan)
        emulator = Emulator(planned, State.initial(planned, 1, EXPONENT))
        for codes, labels in batches(net)[:count]:
            step = emulator.train_step(codes, labels, HYPER)
        values = {key: operand.v.clone() for key, operand in step.run.values.items()}
        values |= {(name, "w"): learnt.w for name, learnt in emulator.learnt.items()}
        values |= {(name, "v"): learnt.v for name, learnt in emulator.learnt.items()}
        values |= {(name, "dw"): dw for name, dw in step.run.dw.items()}
    return step, values


def differing(text, count=1):
    """Names of tensors in which a step of a variant differs from that of PINT8."""
    (_, plain), (_, found) = steps("pint8", count), steps(text, count)
    assert plain.keys() == found.keys()
    return {key for key in plain if not torch.equal(plain[key].to(torch.float64), found[key].to(torch.float64))}


def test_the_product_is_the_emulator():
    net = network()
    emulator = Emulator(net, State.initial(net, 1, EXPONENT))
    for codes, labels in batches(net)[:2]:
        step = emulator.train_step(codes, labels, HYPER)
    found, _ = steps("product")
    assert dict(found.exponents) == dict(step.exponents) and found.loss == step.loss
    for key in step.tensors:
        assert np.array_equal(step.tensors[key], found.tensors[key]), key


@pytest.mark.parametrize("plan", [Plan(mean="nearest"), Plan(direct=True), Plan(floors=True, masters=True), Plan(xhat_bits=13)])
def test_nothing_of_the_product_changes(plan):
    places = [(emulator_frn, "forward"), (emulator_frn, "backward"), (emulator_step, "update_parameters"), (emulator_step, "Run"),
              (emulator_step, "update_weights"), (emulator_velocity, "_updated"), (emulator_conv, "backward"),
              (emulator_conv, "takes_bytes"), (emulator_forward, "convolution")]
    before = [getattr(owner, name) for owner, name in places]
    with pytest.raises(RuntimeError, match="stop"), applied(plan, "float32"):
        assert before != [getattr(owner, name) for owner, name in places]
        raise RuntimeError("stop")
    assert before == [getattr(owner, name) for owner, name in places]


def test_what_takes_the_products_place_is_equal_where_nothing_departs():
    """Each function that a plan puts in place of one of the product's gives its bytes under a plan that changes nothing."""
    plain = steps("pint8", 3)[1]
    same = [(emulator_frn, "forward", partial(variant_arithmetic.forward, plan=Plan())),
            (emulator_frn, "backward", partial(variant_arithmetic.backward, plan=Plan())),
            (emulator_step, "update_weights", variant_updates.update_weights),
            (emulator_velocity, "_updated", partial(variant_updates.updated, plan=Plan(), masters={}))]
    with contextlib.ExitStack() as stack:
        for change in same:
            stack.enter_context(mock.patch.object(*change))
        found = steps("pint8", 3)[1]
    assert all(torch.equal(plain[key], found[key]) for key in plain)


def test_a_rounded_mean_changes_errors_alone():
    """The mean of section 9 stands behind dx, and in the first step everything before it is as it was."""
    for text in ("mean", "meanfine"):
        changed = differing(text)
        assert changed and {name for _, name in changed} <= {"dx", "dz", "ds", "dw", "w", "v"}
        assert ("logits", "dz") not in changed and ("block2", "dz") not in changed and ("block2", "dx") in changed


def test_a_rounded_mean_is_the_nearest():
    generator = torch.Generator().manual_seed(1)
    sg = torch.randint(-(1 << 30), 1 << 30, (1000,), generator=generator)
    for n in (8, 13, 19):
        assert variant_arithmetic.shifted(sg, -n).tolist() == [math.floor(x / 2**n + 0.5) for x in sg.tolist()]
    assert variant_arithmetic.shifted(sg, 3).tolist() == [8 * x for x in sg.tolist()]


def test_z_is_rounded_once():
    """xhat of the first layer stays, its z comes nearer to the sums."""
    changed = differing("zdirect")
    assert ("stem", "xhat") not in changed and ("stem", "z") in changed


@pytest.mark.parametrize("text, bits", [("xhat13", 12), ("xhat32", 12)])
def test_a_wider_xhat(text, bits):
    (_, plain), (_, found) = steps("pint8", 1), steps(text, 1)
    gap = (plain["stem", "xhat"] - found["stem", "xhat"]).abs()
    assert 0 < gap.max() <= 32.5, "PINT's coarsest step is 64"
    whole = found["stem", "xhat"].frac().eq(0).all()
    assert whole == (text == "xhat13")


_KINDS = {"acts16": {"z"}, "dz16": {"dz", "ds"}, "dx16": {"dx"}, "weights16": {"w"}, "velocity16": {"v"}}


@pytest.mark.parametrize("text", _KINDS)
def test_a_kind_of_16_bits(text):
    """After some steps (scales follow a step later) tensors of the kind have values beyond PINT's 12 bits, and no others."""
    _, found = steps(text, 3)
    longest = {}
    for (layer, name), value in found.items():
        if layer != INPUT and name in ("z", "dz", "ds", "dx", "w", "v"):
            longest[name] = max(longest.get(name, 0), float(value.abs().max()))
    for name, most in longest.items():
        if name in _KINDS[text]:
            assert 4096 < most <= 1 << 15, (name, most)
        elif not (name in ("ds", "dx") and text == "dz16"):
            assert most <= 4096, (name, most)


def test_wide_masters_hold_what_nearest_rounding_would_lose():
    net, plan = network(), parse_plan("master32")
    with applied(plan) as masters:
        planned = variant_network(net, plan)
        emulator = Emulator(planned, State.initial(planned, 1, EXPONENT))
        moved = []
        for codes, labels in batches(net) * 2:
            emulator.train_step(codes, labels, Hyper.from_floats(1e-5, 0.9))
            moved.append({key: value.clone() for key, value in masters.items()})
        exponents = emulator.exponents
    assert set(masters) == {(layer.name, 0) for layer in net.weighted}
    assert all(not torch.equal(moved[-1][key], moved[1][key]) for key in masters)
    for (name, _), real in masters.items():
        unit = 2.0 ** exponents[net.tid(name, Kind.W)]
        held = emulator.learnt[name].w.permute(0, 2, 3, 1).reshape(-1).to(torch.float64) * unit
        assert (held - real).abs().max() <= 32.5 * unit, "half of PINT's coarsest step"


def test_rounding_by_kind_of_error():
    net = network()
    for text, kinds in (("errors", {Kind.DZ, Kind.DS, Kind.DX}), ("dxrandom", {Kind.DX}), ("dzrandom", {Kind.DZ, Kind.DS}),
                        ("acts", {Kind.Z}), ("pint8", set())):
        rounding = variant_network(net, parse_plan(text)).rounding
        assert {kind for kind in Kind if kind not in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT) and rounding.f(kind) == 16} == kinds


def test_all_floors_and_all_wide_train():
    for text in ("floors", "all16", "floors+master32+acts16"):
        step, _ = steps(text, 3)
        assert math.isfinite(step.loss)


@pytest.mark.parametrize("text", ["pint8", "mean", "mean+zdirect+dx16"])
def test_sums_in_float32_are_nearly_the_exact_ones(text):
    (_, plain), (_, found) = steps(text, 1), steps(text, 1, "float32")
    for key, value in plain.items():
        gap = (value.to(torch.float64) - found[key].to(torch.float64)).abs().max()
        assert gap <= 1e-5 * value.abs().max() or (value != found[key]).to(torch.float64).mean() < 0.01, key


def test_unknown_and_contradicting_variants_are_told():
    with pytest.raises(ValueError, match=r"there is no variant 'fast': join some of pint8, product, "):
        parse_plan("mean+fast")
    with pytest.raises(ValueError, match=r"'mean\+meanfine' asks for mean 'nearest' and 'exact': leave one of the two"):
        parse_plan("mean+meanfine")
    assert parse_plan("dz16+dx16") == parse_plan("errors16") and set(TOKENS) >= set(_KINDS)


def test_choices_of_an_epoch():
    order, down, right, flips = pictures.epoch_choices(3000, 7, 4, torch.device("cpu"))
    assert order.tolist() == epoch_order(3000, 7, 4).tolist()
    for places in (down, right):
        # 333 of each expected, deviation 17.
        assert places.min() == 0 and places.max() == 8 and torch.bincount(places).min() > 250
    assert 1380 < int(flips.sum()) < 1620
    other = pictures.epoch_choices(3000, 7, 5, torch.device("cpu"))
    assert (other[1][torch.argsort(other[0])] != down[torch.argsort(order)]).any()


def images_file(tmp_path, count=40):
    rng = np.random.default_rng(3)
    arrays = {"x": rng.integers(0, 256, (count, 3, 32, 32), np.uint8), "y": rng.integers(0, 10, count).astype(np.uint8)}
    np.savez(tmp_path / "data.npz", **arrays, x_test=arrays["x"][:10], y_test=arrays["y"][:10])
    return tmp_path / "data.npz", arrays


def test_pictures_are_normalised_cropped_and_flipped(tmp_path):
    path, arrays = images_file(tmp_path)
    data = pictures.load_pictures(path, "cpu")
    real = pint.decode(data.test.numpy()) * 2.0**data.exponent
    wanted = (arrays["x"] - arrays["x"].mean((0, 2, 3), keepdims=True)) / arrays["x"].std((0, 2, 3), keepdims=True)
    # PINT's step is 64 units of 2^-11 beyond a fourth of the range, half of it is lost.
    assert data.exponent == -11 and np.abs(real - wanted[:10]).max() <= 32 * 2.0**-11
    images, answers = data.epoch(2, 1)
    order, down, right, flips = pictures.epoch_choices(40, 2, 1, torch.device("cpu"))
    for place in range(40):
        image, row, column = int(order[place]), int(down[place]), int(right[place])
        cut = data.train[image][:, row : row + 32, column : column + 32]
        assert torch.equal(images[place], cut.flip(2) if flips[place] else cut) and answers[place] == arrays["y"][image]


@pytest.mark.parametrize("variant", ["fp32", "mean+master32"])
def test_a_stopped_run_goes_on(tmp_path, variant):
    path, _ = images_file(tmp_path)
    data = pictures.load_pictures(path, "cpu")
    told = []

    def run(folder, **more):
        net = load_network("digits-cnn")
        net = dataclasses.replace(net, input_shape=(3, 32, 32))
        wanted = losses.Run(variant, epochs=3, batch=16)
        if variant == "fp32":
            return losses.train(wanted, losses.FloatLearner(net, seed=1, exponent=data.exponent, device="cpu"), data, folder,
                                say=told.append, **more)
        plan = parse_plan(variant)
        with applied(plan) as masters:
            learner = losses.IntegerLearner(net, plan, masters, seed=1, exponent=data.exponent, device="cpu")
            return losses.train(wanted, learner, data, folder, say=told.append, **more)

    whole = run(tmp_path / "whole")
    assert run(tmp_path / "parts", ends=time.monotonic() - 1)["curve"] == []
    with mock.patch.object(losses, "_accuracy", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts")
    assert len(json.loads((tmp_path / "parts" / f"run-{variant}-1.json").read_text())["curve"]) == 2
    assert all("device" not in point for point in whole["curve"])
    with mock.patch.object(torch, "__version__", "9.9"):
        parts = run(tmp_path / "parts")
    # What was trained elsewhere says so.
    assert [point.get("torch") for point in parts["curve"]] == [None, None, "9.9"]
    assert [point["loss"] for point in parts["curve"]] == [point["loss"] for point in whole["curve"]]
    assert parts["test_accuracy"] == whole["test_accuracy"] and told[-1].startswith(f"{variant}-1: epoch 3, loss ")


def test_the_learner_does_the_products_step():
    net, plan = load_network(str(NETWORKS / "tiny-residual.toml")), parse_plan("product")
    emulator = Emulator(net, State.initial(net, 1, EXPONENT))
    learner = losses.IntegerLearner(net, plan, {}, seed=1, exponent=EXPONENT, device="cpu")
    for codes, labels in batches(net):
        step = emulator.train_step(codes, labels, HYPER)
        logits = learner.train_step(torch.from_numpy(codes), torch.from_numpy(labels), HYPER)
        assert torch.equal(logits, torch.from_numpy(step.tensors["logits", "logits"]) * 2.0**-8)
    assert learner.exponents == emulator.exponents
    for name, array in emulator.state().arrays().items():
        assert np.array_equal(array, learner.state().arrays()[name]), name


@pytest.mark.parametrize(("arguments", "words"), [
    (["--variants", "mean,fast"], "there is no variant 'fast': join some of pint8, product, "),
    (["--variants", "mean+meanfine"], "'mean+meanfine' asks for mean 'nearest' and 'exact': leave one of the two"),
    (["--data", "nothing"], "nothing is neither CIFAR-10 nor an .npz file with x, y, x_test and y_test: give one of the two"),
    (["--data", "absent.npz"], "absent.npz cannot be read (No such file or directory): give CIFAR-10 or an .npz file"),
    (["--batch", "41"], "a batch of 41 images is larger than the 40 images that there are: give a smaller --batch"),
    (["--device", "tpu"], "tpu"),
    (["--epochs", "3"], "run-mean-1.json holds a run of other settings: move it away, or restore the settings"),
], ids=lambda value: value[0] + value[1] if isinstance(value, list) else "")
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    path, _ = images_file(tmp_path)
    record = {"record": {"variant": "mean", "epochs": 2}, "learner": {}}
    torch.save(record, tmp_path / "run-mean-1.pt")
    before = sorted(tmp_path.iterdir())
    assert losses.main(["--data", str(path), "--variants", "mean", "--out", ".", "--epochs", "2", "--batch", "16", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and words in err and err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [
    ["--epochs", "0"], ["--batch", "few"], ["--seed", "-1"], ["--images", "0"], ["--network", "lenet"]])
def test_bad_numbers_are_refused(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        losses.main(["--data", ".", "--variants", "mean", "--out", ".", *arguments])
    assert caught.value.code == 2 and f"argument {arguments[0]}" in capsys.readouterr().err
