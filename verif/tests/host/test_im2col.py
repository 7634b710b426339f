"""Lowering the first convolution: where it is done, and that images and weights pass there and back."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.host.im2col import lower
from gradloom.host.runner import ProgramRunner
from gradloom.host.schedule import compile_network
from gradloom.host.software_device import SoftwareDevice
from gradloom.models import conv
from gradloom.models.network import INPUT, Conv, FullyConnected, Network, load_network
from gradloom.models.state import State
from gradloom.rtl.config import PRESETS
from gradloom.verif.system_bench import NETWORKS

ETA = PRESETS["eta"]


def stem(size: int = 14, out: int = 24, **changes: int) -> Network:
    first = Conv(name="stem", out=out, **({"kernel": 7, "stride": 2, "pad": 3} | changes))
    return Network("stem", (3, size, size), 5, (first, FullyConnected(name="logits", out=5)))


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (147, 112, 112)), ("resnet20", (3, 32, 32)), ("vgg16", (3, 32, 32))])
def test_built_in_networks_on_eta(name, shape):
    assert lower(load_network(name), ETA).network.input_shape == shape


def test_what_is_not_lowered():
    assert lower(stem(), ETA).geometry is not None
    assert lower(stem(out=8), ETA).geometry is None, "9 windows of 3 x 3 before, 7 after: no gain"
    assert lower(stem(kernel=1, stride=2, pad=0, size=13), ETA).geometry is None
    assert lower(stem(size=14, kernel=7, stride=2, pad=0), ETA).geometry is None, "the last columns would be lost"
    two = Network("two", (3, 14, 14), 5, (
        Conv(name="a", input=INPUT, out=24, kernel=7, stride=2, pad=3),
        Conv(name="b", input=INPUT, out=24, kernel=7, stride=2, pad=3, residual="a"),
        FullyConnected(name="logits", out=5)))
    assert lower(two, ETA).geometry is None, "the image has two readers"


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"), [(14, 7, 2, 3), (15, 7, 2, 3), (12, 7, 1, 2), (13, 7, 2, 0), (10, 8, 2, 1)]
)
def test_sums_and_images_are_the_same(size, kernel, stride, pad):
    rng = np.random.default_rng(size)
    network = stem(size, kernel=kernel, stride=stride, pad=pad)
    lowered = lower(network, ETA)
    assert lowered.geometry is not None
    images = rng.integers(0, 256, (2, 3, size, size)).astype(np.uint8)
    columns = lowered.images(images)
    assert columns.shape == (2, *lowered.network.input_shape) and np.array_equal(lowered.codes(columns), images)
    weights = rng.integers(-99, 99, network.weight_shape("stem"))
    flat = weights.reshape(lowered.network.weight_shape("stem"))
    error = rng.integers(-99, 99, (2, *network.geometry("stem").out_shape))
    values, laid = images.astype(np.int64), columns.astype(np.int64)
    assert np.array_equal(conv.forward(values, weights, stride, pad), conv.forward(laid, flat, 1, 0))
    gradient = conv.weight_gradient(values, error, kernel, stride, pad)
    assert np.array_equal(gradient.reshape(flat.shape), conv.weight_gradient(laid, error, 1, 1, 0))


def test_a_plan_takes_and_gives_what_the_network_says():
    network = load_network(str(NETWORKS / "tiny-stem.toml"))
    plan = compile_network(network, ETA, 2, export_dw=True)
    assert plan.lowered.geometry is not None and plan.network is network
    device, state, rng = SoftwareDevice(ETA, plan.size), State.initial(network, 3, -9), np.random.default_rng(2)
    state.velocities["stem"] = rng.integers(0, 256, network.weight_shape("stem")).astype(np.uint8)
    plan.write_state(device, state)
    found = plan.read_state(device, state.exponents, step=1, seed=3)
    assert all(np.array_equal(found.arrays()[key], value) for key, value in state.arrays().items())
    images = rng.integers(0, 256, (2, *network.input_shape)).astype(np.uint8)
    plan.write_batch(device, 0, images, np.array([1, 2]))
    assert np.array_equal(plan.read(device, INPUT, "z"), images)
    assert plan.read(device, "stem", "dw").shape == network.weight_shape("stem")


@pytest.mark.parametrize("index", [(0, 0, 0, 0), (3, 2, 0, 0), (23, 2, 6, 6)])
def test_where_a_weight_was_written_is_found(index):
    """The device remembers for every beat; that of a weight of a lowered layer holds the code that changes with it."""
    network = stem()
    runner = ProgramRunner.__new__(ProgramRunner)
    runner.network, runner.config, runner.steady = network, ETA, compile_network(network, ETA, 1)
    runner.device = SimpleNamespace(last_write=lambda address: address)
    region, weights = runner.steady.memory["stem", "w"], np.zeros((24, 3, 7, 7), np.int64)
    weights[index] = 1
    found = np.frombuffer(region.pack(weights.reshape(region.shape), ETA.group), np.uint8)
    assert runner.written_at("stem", "w", index) == region.address + int(np.flatnonzero(found)[0])
