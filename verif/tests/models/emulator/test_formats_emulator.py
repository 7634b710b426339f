"""Number formats on the emulator against the golden model: every byte of every tensor, over steps and networks."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.models import digests  # noqa: E402
from gradloom.models.emulator import conv as emulator_conv  # noqa: E402
from gradloom.models.emulator.step import Emulator  # noqa: E402
from gradloom.models.formats import FORMATS  # noqa: E402
from gradloom.models.golden import step as golden  # noqa: E402
from gradloom.models.golden.step import Hyper  # noqa: E402
from gradloom.models.network import load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.one_thread import one_thread  # noqa: E402, F401
from gradloom.verif.random_networks import random_network  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from emulator_case import INPUT_EXPONENT, KINDS, SOURCES, batch  # noqa: E402

SOFTWARE = [name for name in FORMATS if name not in ("pint8", "fp32")]
VARIANTS = ["pint8-exact", "pint8-master16", "pint8-master32", "pint(8,2)", "pint(7,3)", "pint(5,2)"]


def same_exponents(first, second):
    assert first.keys() == second.keys()
    for tid, e in first.items():
        assert np.array_equal(e, second[tid]) and np.shape(e) == np.shape(second[tid]), tid


def assert_same(network, state, emulator, expected, found):
    assert set(found.tensors) == set(golden.expected_tensors(network)) == set(expected.tensors)
    for key in golden.expected_tensors(network):
        first, second = expected.tensors[key], found.tensors[key]
        assert (second.dtype, second.shape) == (first.dtype, first.shape), key
        assert np.array_equal(first, second), key
    assert expected.sums.keys() == found.sums.keys()
    assert all(np.array_equal(total, found.sums[key]) for key, total in expected.sums.items())
    same_exponents(expected.exponents, found.exponents)
    assert (expected.loss, expected.correct) == (found.loss, found.correct)
    assert state.exponents == emulator.exponents
    assert digests.parameters_digest(network, state) == digests.parameters_digest(network, emulator.state())


def train(network, steps, images, seed=3):
    """Steps side by side, compared; returns both and the generator."""
    state = State.initial(network, seed, INPUT_EXPONENT)
    emulator, rng = Emulator(network, state), np.random.default_rng(seed)
    for number in range(steps):
        given = batch(network, rng, images)
        hyper = Hyper.from_floats(0.05, 0.9, 2.0**-8 if number % 2 else 0.0)
        hyper = dataclasses.replace(hyper, average=network.arithmetic.average and number >= 1)
        expected = golden.train_step(network, state, *given, hyper)
        assert_same(network, state, emulator, expected, emulator.train_step(*given, hyper))
    return state, emulator, rng


@pytest.mark.parametrize("form", SOFTWARE + VARIANTS)
@pytest.mark.parametrize("name", SOURCES, ids=lambda name: Path(name).stem)
def test_every_tensor_of_three_steps_and_an_evaluation(name, form):
    network = load_network(name).formatted(form)
    state, emulator, rng = train(network, 3, 5)
    before = digests.parameters_digest(network, emulator.state())
    x, labels = batch(network, rng, 7)
    expected, found = golden.evaluate(network, state, x, labels), emulator.evaluate(x, labels)
    assert np.array_equal(expected.logits, found.logits) and expected.logits.dtype == found.logits.dtype
    assert (expected.loss, expected.correct) == (found.loss, found.correct)
    assert digests.parameters_digest(network, emulator.state()) == before


@pytest.mark.parametrize("how", ["nearest", "stochastic"])
@pytest.mark.parametrize("form", SOFTWARE)
def test_other_roundings(form, how):
    for name in SOURCES[1:4]:
        train(load_network(name).formatted(form).rounded(dict.fromkeys(KINDS, how)), 2, 4)


@pytest.mark.parametrize("form", ["int8-shift", "bfp8", "pint8-exact"])
@pytest.mark.parametrize("first", range(0, 32, 16))
def test_random_networks(first, form):
    for seed in range(first, first + 16):
        train(random_network(seed).formatted(form), 2, 3, seed=seed)


@pytest.mark.parametrize("form", ["int8-shift", "bfp8"])
@pytest.mark.parametrize("takes_bytes", [True, False], ids=["bytes", "float64"])
def test_either_way_to_multiply_gives_the_same(monkeypatch, takes_bytes, form):
    """Of devices that multiply bytes, and of those that do not; which of the two this one is decides in the other tests."""
    monkeypatch.setattr(emulator_conv, "takes_bytes", lambda device: takes_bytes)
    for name in SOURCES[:4]:
        train(load_network(name).formatted(form), 2, 3)


@pytest.mark.parametrize("form", ["pint8", *SOFTWARE])
def test_targets_of_any_value(form):
    """Squared error against real targets, as a reconstruction has them."""
    network = dataclasses.replace(load_network(SOURCES[3]), loss="squared").formatted(form)
    state, rng = State.initial(network, 3, INPUT_EXPONENT), np.random.default_rng(0)
    emulator = Emulator(network, state)
    for _ in range(2):
        x, _ = batch(network, rng, 4)
        given = x, rng.integers(-600, 600, (4, network.classes))
        expected = golden.train_step(network, state, *given, Hyper.from_floats(0.02))
        assert_same(network, state, emulator, expected, emulator.train_step(*given, Hyper.from_floats(0.02)))


@pytest.mark.parametrize("form", SOFTWARE)
def test_a_step_of_resnet20(form):
    train(load_network("resnet20").formatted(form), 1, 2)


def test_floating_point_is_refused():
    network = load_network("digits-cnn").formatted("fp32")
    with pytest.raises(ValueError, match=r"^format fp32 is floating point, the emulator is exact: train on the golden model$"):
        Emulator(network, State.initial(network, 1, INPUT_EXPONENT))
