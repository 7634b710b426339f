"""The built-in networks of the paper: published sizes, and a golden step that learns and repeats itself."""

import math

import numpy as np
import pytest

from gradloom.models.arithmetic.pint import encode
from gradloom.models.golden.step import Hyper, train_step
from gradloom.models.network import Conv, FullyConnected, Network, Subsample, load_network
from gradloom.models.networks import zoo
from gradloom.models.state import State

# Multiply-accumulates (forward, one image) and weights without biases, normalisation and projections' extras:
# EF-Train section 6.4 (25.17 M operations a step: twice three times all layers less the first), He et al. table 6 (0.27 M
# parameters), Simonyan and Zisserman configuration D on 32 x 32, He et al. table 1 (1.8 G).
SIZES = {
    "lenet10": (4_489_856, 94_688),
    "resnet20": (40_551_040, 268_336),
    "vgg16": (313_463_808, 14_977_728),
    "resnet18": (1_814_073_344, 11_678_912),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    network = load_network(name)
    weights = sum(math.prod(network.weight_shape(layer.name)) for layer in network.weighted)
    assert (network.macs(), weights) == SIZES[name]
    assert name in zoo.names() and network.name == name


def test_stages():
    network = load_network("resnet20")
    assert [network.shape(f"s{stage}b3b") for stage in (1, 2, 3)] == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]
    assert [layer.name for layer in network.layers if isinstance(layer, Subsample)] == ["s2b1s", "s3b1s"]
    assert sum(isinstance(layer, Conv) for layer in network.layers) == 19
    assert [layer.residual for layer in network.weighted if layer.residual][:4] == ["stem", "s1b1b", "s1b2b", "s2b1s"]
    network = load_network("vgg16")
    assert [network.shape(f"pool{stage}") for stage in range(1, 6)] == [
        (64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2), (512, 1, 1)]
    assert [layer.out for layer in network.layers if isinstance(layer, FullyConnected)] == [512, 10]
    network = load_network("resnet18")
    assert network.shape("stem") == (64, 112, 112) and network.shape("pool") == (64, 56, 56)
    assert network.shape("s4b2b") == (512, 7, 7) and network.classes == 1000
    projections = [layer for layer in network.weighted if layer.norm == "frn" and layer.act == "none"]
    assert [(layer.kernel, layer.stride, layer.out) for layer in projections] == [(1, 2, 128), (1, 2, 256), (1, 2, 512)]


def _noise(network: Network, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    wide = rng.integers(-4096, 4096, (batch, *network.input_shape))
    return encode(wide, 0).code, rng.integers(0, network.classes, batch)


@pytest.mark.parametrize(("name", "batch", "lr"), [("resnet20", 4, 0.05), ("vgg16", 1, 0.01)])
def test_steps_on_one_batch_lower_the_loss(name, batch, lr):
    network = load_network(name)
    state = State.initial(network, 1, -11)
    x, labels = _noise(network, batch)
    losses = [train_step(network, state, x, labels, Hyper.from_floats(lr)).loss for _ in range(4)]
    assert losses[-1] < losses[0]


def test_parts_of_a_resnet20_batch_give_the_same_bytes():
    network = load_network("resnet20").rounded({"errors": "stochastic", "activations": "stochastic"})
    x, labels = _noise(network, 3)
    states = [State.initial(network, 1, -11) for _ in range(2)]
    results = [train_step(network, state, x, labels, Hyper.from_floats(0.05), parts=parts)
               for state, parts in zip(states, (1, 3), strict=True)]
    assert all(np.array_equal(value, results[1].tensors[key]) for key, value in results[0].tensors.items())
    assert states[0].exponents == states[1].exponents
