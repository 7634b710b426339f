"""The floating-point reference against numerical gradients, and as the integer step's neighbour."""


import numpy as np
import pytest

from gradloom.models import floatref
from gradloom.models.arithmetic import dither
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS

FILES = sorted(NETWORKS.glob("*.toml"))


def hashed(seed, shape):
    """Deterministic reals in -1..1."""
    index = np.arange(int(np.prod(shape)))
    return ((2 * dither.hash24(dither.tensor_seed(seed, 0, 0), index) + 1) / 2**24 - 1).reshape(shape)


def perturbed(network, seed, **options):
    """A float net whose every parameter is off its initial value, so that no gradient vanishes by
    symmetry."""
    float_net = floatref.from_state(network, State.initial(network, seed, -10), **options)
    for number, key in enumerate(float_net.parameters):
        if key[1] != "w":
            float_net.parameters[key] += 0.2 * hashed(seed + number, float_net.parameters[key].shape)
    return float_net


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_gradients_are_the_slopes_of_the_loss(file, batch_norm):
    network = load_network(str(file))
    float_net = perturbed(network, 3, batch_norm=batch_norm)
    x = 2 * hashed(11, (3, *network.input_shape))
    labels = np.arange(3) % network.classes
    base = float_net.gradients(x, labels)
    # With the decisions of the unperturbed pass the loss is smooth, so a central difference is exact to
    # O(step^2).
    decisions = {key: value for key, value in base.tensors.items() if key[1] in ("bit", "index")}
    step = 1e-5
    for number, (key, gradient) in enumerate(base.gradients.items()):
        direction = hashed(100 + number, gradient.shape)
        saved = float_net.parameters[key]
        losses = []
        for sign in (1, -1):
            float_net.parameters[key] = saved + sign * step * direction
            losses.append(float_net.gradients(x, labels, decisions=decisions).loss)
        float_net.parameters[key] = saved
        slope = (losses[0] - losses[1]) / (2 * step)
        # A central difference is inexact itself: truncation by the step squared, and the losses' rounding divided by the step.
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=2e-4, abs=1e-7), key


def test_parameters_are_those_of_the_state():
    network = load_network("digits-cnn")
    state = State.initial(network, 5, -10)
    float_net = floatref.from_state(network, state, np.float32)
    for (name, key), value in float_net.parameters.items():
        assert value.dtype == np.float32
        expected = {"gamma": 1.0, "beta": 0.0, "tau": 0.0}.get(key)
        if expected is not None:
            assert np.all(value == expected)
        else:
            bound = np.sqrt((1 if name == "fc" else 6) / np.prod(value.shape[1:]))
            assert 0.8 * bound < np.abs(value).max() <= bound * 1.02
            assert abs(value.mean()) < 0.2 * bound
            # A statistic of few hashed weights against that of the uniform distribution.
            assert value.std() == pytest.approx(bound / np.sqrt(3), rel=0.25)


def test_momentum_and_weight_decay():
    network = load_network(str(FILES[0]))
    float_net = perturbed(network, 1)
    x, labels = hashed(4, (2, *network.input_shape)), np.array([0, 1])
    before = {key: value.copy() for key, value in float_net.parameters.items()}
    first = float_net.train_step(x, labels, 0.25, 0.5, 0.125)
    for key, value in float_net.parameters.items():
        decay = 0.125 * before[key] if key[1] == "w" else 0
        # The float reference against the same formula in another order of float operations.
        assert value == pytest.approx(before[key] - 0.25 * (first.gradients[key] + decay))
    middle = {key: value.copy() for key, value in float_net.parameters.items()}
    speeds = {key: value.copy() for key, value in float_net.velocities.items()}
    second = float_net.train_step(x, labels, 0.25, 0.5)
    for key, value in float_net.parameters.items():
        # As above.
        assert value == pytest.approx(middle[key] - 0.25 * (0.5 * speeds[key] + second.gradients[key]))


def test_correct_counts_the_largest_logits():
    network = load_network("digits-cnn")
    float_net = perturbed(network, 2)
    x = hashed(9, (8, 1, 8, 8))
    chosen = float_net.logits(x).argmax(axis=1)
    labels = chosen.copy()
    labels[:3] = (labels[:3] + 1) % 10
    assert float_net.correct(x, labels) == 5


def test_batch_normalisation():
    """Planes of mean 0 and variance 1 over the batch in training, the running values in evaluation; no tau."""
    network = load_network("digits-cnn")
    float_net = floatref.from_state(network, State.initial(network, 1, -10), batch_norm=True)
    assert not any(key == "tau" for _, key in float_net.parameters)
    x, labels = 3 + hashed(4, (6, *network.input_shape)), np.arange(6)
    xhat = float_net.gradients(x, labels).tensors["conv1", "xhat"]
    # The epsilon under the root is 1e-5 of a variance of about 1.
    assert np.abs(xhat.mean(axis=(0, 2, 3))).max() < 1e-12 and np.abs(xhat.var(axis=(0, 2, 3)) - 1).max() < 1e-3
    first = float_net.logits(x)
    for _ in range(200):
        float_net.gradients(x, labels)
    assert np.abs(float_net.logits(x) - first).max() > 0.1
    assert np.allclose(float_net.logits(x[:2]), float_net.logits(x)[:2])


def test_targets_take_the_place_of_classes():
    network = load_network(str(next(file for file in FILES if file.stem == "tiny-relu")))
    float_net = floatref.from_state(network, State.initial(network, 1, -10))
    x, labels = hashed(4, (5, *network.input_shape)), np.arange(5) % network.classes
    object.__setattr__(network, "loss", "squared")
    first, second = float_net.gradients(x, labels), float_net.gradients(x, np.eye(network.classes)[labels])
    assert first.loss == second.loss and all(np.array_equal(g, second.gradients[key]) for key, g in first.gradients.items())
