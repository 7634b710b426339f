"""The emulator against the golden model: every byte of every tensor, over steps, networks, roundings and odd states."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from gradloom.models import digests  # noqa: E402
from gradloom.models.arithmetic import arith  # noqa: E402
from gradloom.models.emulator import conv as emulator_conv  # noqa: E402
from gradloom.models.emulator import velocity  # noqa: E402
from gradloom.models.emulator.step import Emulator  # noqa: E402
from gradloom.models.golden import step as golden  # noqa: E402
from gradloom.models.golden.step import Hyper  # noqa: E402
from gradloom.models.layers import Upsample  # noqa: E402
from gradloom.models.network import load_network  # noqa: E402
from gradloom.models.state import State  # noqa: E402
from gradloom.verif.one_thread import one_thread  # noqa: E402, F401
from gradloom.verif.random_networks import PARTS, random_network  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from emulator_case import INPUT_EXPONENT, KINDS, SOURCES, batch  # noqa: E402

ROUNDINGS = {"default": {}, "stochastic": dict.fromkeys(KINDS, "stochastic"), "nearest": dict.fromkeys(KINDS, "nearest")}


def assert_same(network, state, emulator, golden_step, step):
    assert set(step.tensors) == set(golden.expected_tensors(network))
    for key in golden.expected_tensors(network):
        expected, found = golden_step.tensors[key], step.tensors[key]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
        assert np.array_equal(found, expected), key
    assert golden_step.sums.keys() == step.sums.keys()
    assert all(np.array_equal(total, step.sums[key]) for key, total in golden_step.sums.items())
    assert (golden_step.exponents, golden_step.loss, golden_step.correct) == (step.exponents, step.loss, step.correct)
    assert state.exponents == emulator.exponents
    assert digests.parameters_digest(network, state) == digests.parameters_digest(network, emulator.state())


def train(network, steps, images, seed=3, hyper=None):
    """Steps side by side, compared; returns both and the generator."""
    state = State.initial(network, seed, INPUT_EXPONENT)
    emulator, rng = Emulator(network, state), np.random.default_rng(seed)
    for number in range(steps):
        given = batch(network, rng, images)
        hyper = Hyper.from_floats(0.05, 0.9, 2.0**-8 if number % 2 else 0.0)
        expected = golden.train_step(network, state, *given, hyper)
        assert_same(network, state, emulator, expected, emulator.train_step(*given, hyper))
    return state, emulator, rng


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SOURCES, ids=lambda name: Path(name).stem)
def test_every_tensor_of_four_steps_and_an_evaluation(name, rounding):
    network = load_network(name).rounded(ROUNDINGS[rounding])
    state, emulator, rng = train(network, 4, 5)
    before = digests.parameters_digest(network, emulator.state())
    x, labels = batch(network, rng, 7)
    expected, found = golden.evaluate(network, state, x, labels), emulator.evaluate(x, labels)
    assert np.array_equal(expected.logits, found.logits) and expected.logits.dtype == found.logits.dtype
    assert (expected.loss, expected.correct) == (found.loss, found.correct)
    assert digests.parameters_digest(network, emulator.state()) == before


@pytest.mark.parametrize("takes_bytes", [True, False], ids=["bytes", "float64"])
def test_either_way_to_multiply_gives_the_same(monkeypatch, takes_bytes):
    """Of devices that multiply bytes, and of those that do not; which of the two this one is decides in the other tests."""
    monkeypatch.setattr(emulator_conv, "takes_bytes", lambda device: takes_bytes)
    for name in SOURCES:
        train(load_network(name), 2, 3)
    for seed in range(12):
        train(random_network(seed), 1, 3, seed=seed)


@pytest.mark.parametrize("bits", [30, 33])
def test_gradients_larger_than_updates_take_for_granted(monkeypatch, bits):
    """Layers whose gradients turn out to be too large for float64 are updated anew, by the general rules."""
    anew, general = [], velocity.Velocity.learnt

    def learnt(rule):
        anew.append(rule)
        return general(rule)

    monkeypatch.setattr(velocity, "_TERM_BITS", bits)
    monkeypatch.setattr(velocity.Velocity, "learnt", learnt)
    _, emulator, _ = train(load_network("digits-cnn"), 3, 5)
    first = len(emulator.net.weighted)
    assert len(anew) > first and all(rule.run.calibrate for rule in anew[:first])
    assert any(rule.limit > 0 for rule in anew[first:])


@pytest.mark.parametrize("weights", [40, 1000, 1 << 25])
def test_weights_that_are_updated_together(monkeypatch, weights):
    """Parts of a layer, some layers, all layers at once, as devices other than a CPU have it."""
    monkeypatch.setattr(velocity, "_PART", weights)
    for name in SOURCES[:3]:
        train(load_network(name), 3, 3)
        train(load_network(name).rounded(ROUNDINGS["nearest"]), 2, 3)


@pytest.mark.parametrize("first", range(0, 64, 8))
def test_random_networks(first):
    for seed in range(first, first + 8):
        train(random_network(seed), 2, 3, seed=seed)


@pytest.mark.parametrize("first", range(200, 224, 8))
def test_random_networks_that_enlarge_planes(first):
    networks = [random_network(seed, (*PARTS, "enlarge", "enlarge")) for seed in range(first, first + 8)]
    assert any(isinstance(layer, Upsample) for network in networks for layer in network.layers)
    for network in networks:
        train(network, 2, 2, seed=first)


def test_the_random_networks_have_everything():
    networks = [random_network(seed) for seed in range(64)]
    layers = [layer for network in networks for layer in network.layers]
    assert {type(layer).__name__ for layer in layers} == {
        "Conv", "MaxPool", "AvgPool", "GlobalAvgPool", "FullyConnected", "Subsample"}
    assert {(layer.norm, layer.act) for layer in layers if type(layer).__name__ == "Conv"} == {
        ("frn", "tlu"), ("frn", "none"), ("none", "relu"), ("none", "none")}
    assert {layer.kernel for layer in layers if type(layer).__name__ == "Conv"} == {1, 2, 3, 5}
    assert {network.loss for network in networks} == {"softmax", "squared"}
    assert any(network.sends_ds(layer.name) for network in networks for layer in network.layers)
    for kind in KINDS:
        found = {getattr(network.rounding, kind) for network in networks}
        assert found == {"nearest", "stochastic", *(["feedback"] if kind == "weights" else [])}


@pytest.mark.parametrize("rounding", ["default", "stochastic"])
def test_two_steps_of_resnet20(rounding):
    train(load_network("resnet20").rounded(ROUNDINGS[rounding]), 2, 2)


@pytest.mark.parametrize("first", range(1000, 1064, 16))
def test_exponents_out_of_all_proportion(first):
    """Saturated alignments, all-zero tensors, 64-bit sums; where the golden model reports a fault, so does the emulator."""
    compared = 0
    for seed in range(first, first + 16):
        network = random_network(seed)
        state, emulator, rng = train(network, 1, 3, seed=seed)
        for spread in (3, 12, 40):
            odd = emulator.state()
            odd.exponents = {tid: int(np.clip(e + rng.integers(-spread, spread + 1), -64, 127)) for tid, e in odd.exponents.items()}
            emulator.load(odd)
            state, given = odd.copy(), batch(network, rng, 3)
            try:
                expected = golden.train_step(network, state, *given, Hyper.from_floats(0.05))
            except arith.ArithmeticFault:
                with pytest.raises(arith.ArithmeticFault):
                    emulator.train_step(*given, Hyper.from_floats(0.05))
                break
            assert_same(network, state, emulator, expected, emulator.train_step(*given, Hyper.from_floats(0.05)))
            compared += 1
    assert compared >= 16


def test_a_faulting_step_changes_nothing():
    network = load_network("digits-cnn")
    _, emulator, rng = train(network, 1, 3)
    state = emulator.state()
    state.exponents[network.tid(network.weighted[1].name, 2)] = -64
    state.exponents |= {network.tid(layer.name, 0): -64 for layer in network.weighted}
    emulator.load(state)
    given = batch(network, rng, 3)
    with pytest.raises(arith.ArithmeticFault):
        golden.train_step(network, state.copy(), *given, Hyper.from_floats(0.05))
    before = emulator.state()
    with pytest.raises(arith.ArithmeticFault):
        emulator.train_step(*given, Hyper.from_floats(0.05))
    assert emulator.exponents == before.exponents and emulator.state().step == before.step
    assert digests.parameters_digest(network, emulator.state()) == digests.parameters_digest(network, before)


def test_states_go_back_and_forth():
    """A step on the emulator, one on the golden model, one on the emulator again: three golden steps."""
    network = load_network(SOURCES[1])
    state, hyper = State.initial(network, 5, INPUT_EXPONENT), Hyper.from_floats(0.05)
    rng = np.random.default_rng(5)
    batches = [batch(network, rng, 4) for _ in range(3)]
    emulator = Emulator(network, state)
    emulator.train_step(*batches[0], hyper)
    between = emulator.state()
    golden.train_step(network, between, *batches[1], hyper)
    emulator.load(between)
    emulator.train_step(*batches[2], hyper)
    for given in batches:
        golden.train_step(network, state, *given, hyper)
    assert digests.parameters_digest(network, emulator.state()) == digests.parameters_digest(network, state)
    assert emulator.state().step == 3 and emulator.state().seed == 5 and emulator.state().calibrated


def test_tensors_stay_those_of_their_step():
    network = load_network("digits-cnn")
    state = State.initial(network, 3, INPUT_EXPONENT)
    emulator, rng = Emulator(network, state), np.random.default_rng(0)
    given = batch(network, rng, 4)
    step = emulator.train_step(*given, Hyper.from_floats(0.05))
    emulator.train_step(*batch(network, rng, 4), Hyper.from_floats(0.05))
    expected = golden.train_step(network, state, *given, Hyper.from_floats(0.05))
    assert all(np.array_equal(step.tensors[key], expected.tensors[key]) for key in golden.expected_tensors(network))
    with pytest.raises(KeyError):
        step.tensors["logits", "nothing"]


def test_refusals():
    network = load_network("digits-cnn")
    state = State.initial(network, 3, INPUT_EXPONENT)
    emulator = Emulator(network, state)
    with pytest.raises(ValueError, match=r"^the exponents are not calibrated: do a training step before evaluating$"):
        emulator.evaluate(*batch(network, np.random.default_rng(0), 2))
    name = network.weighted[0].name
    state.parameters[name]["gamma"][:] = 1 << 28
    with pytest.raises(arith.ArithmeticFault, match=rf"^layer '{name}': gamma: values 268435456..268435456 do not fit 28 bits$"):
        Emulator(network, state)
