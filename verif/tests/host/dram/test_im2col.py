"""Lowering the first convolution: where it is done, and that images and weights pass there and back."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.host.dram.im2col import KernelRows, Lowered, Windows, lower
from gradloom.host.schedule import compile_network
from gradloom.models.arithmetic import conv
from gradloom.models.network import INPUT, Conv, FullyConnected, Network, load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS

ETA = PRESETS["eta"]


def stem(size: int = 14, out: int = 24, **changes: int) -> Network:
    first = Conv(name="stem", out=out, **({"kernel": 7, "stride": 2, "pad": 3} | changes))
    return Network("stem", (3, size, size), 5, (first, FullyConnected(name="logits", out=5)))


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (24, 224, 115)), ("resnet20", (3, 32, 32)), ("vgg16", (3, 32, 32))])
def test_built_in_networks_on_eta(name, shape):
    assert lower(load_network(name), ETA).network.input_shape == shape


def test_whole_windows_where_these_are_fewer_steps():
    assert isinstance(lower(load_network("resnet18"), ETA).layout, KernelRows), "21 steps of 3 x 3 groups either way"
    assert isinstance(lower(load_network("resnet18"), PRESETS["eta2x"]).layout, Windows), "4 steps against 7 at G = 16"


def test_what_is_not_lowered():
    assert lower(stem(), ETA).layout is not None
    assert lower(stem(out=8), ETA).layout is None, "9 windows of 3 x 3 before, 7 after: no gain"
    assert lower(stem(kernel=1, stride=2, pad=0, size=13), ETA).layout is None
    assert lower(stem(size=14, kernel=7, stride=2, pad=0), ETA).layout is None, "the last columns would be lost"
    two = Network("two", (3, 14, 14), 5, (
        Conv(name="a", input=INPUT, out=24, kernel=7, stride=2, pad=3),
        Conv(name="b", input=INPUT, out=24, kernel=7, stride=2, pad=3, residual="a"),
        FullyConnected(name="logits", out=5)))
    assert lower(two, ETA).layout is None, "the image has two readers"


@pytest.mark.parametrize("layout", ["rows", "rows in phases", "windows"])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"), [(14, 7, 2, 3), (15, 7, 2, 3), (12, 7, 1, 2), (13, 7, 2, 0), (10, 8, 2, 1), (19, 9, 2, 4)]
)
def test_sums_and_images_are_the_same(layout, size, kernel, stride, pad):
    rng = np.random.default_rng(size)
    network = stem(size, kernel=kernel, stride=stride, pad=pad)
    geometry = network.geometry("stem")
    phases = stride if layout == "rows in phases" else 1
    found = Windows(geometry) if layout == "windows" else KernelRows(geometry, 16 if kernel > 8 else 8, phases)
    images = rng.integers(0, 256, (2, 3, size, size)).astype(np.uint8)
    laid = found.images(images)
    assert laid.shape == (2, *found.lowered.in_shape) and np.array_equal(found.codes(laid), images)
    weights = rng.integers(-99, 99, network.weight_shape("stem"))
    placed = found.weights(weights)
    assert np.array_equal(found.values(placed), weights)
    assert np.array_equal(conv.forward(images.astype(np.int64), weights, stride, pad), swept(found.lowered, laid, placed))


def swept(geometry, images, weights):
    """Sums of a convolution that may advance by other steps down than across; then its columns lie in ``down`` rows in turns."""
    (_, rows, columns), (ky, kx), down = geometry.out_shape, geometry.kernel, geometry.stride
    across, total = geometry.across or down, 0
    for y in range(ky):
        for x in range(kx):
            column, row = divmod(x, down) if geometry.across else (x, y)
            part = images[:, :, row : row + down * rows : down, column : column + across * columns : across].astype(np.int64)
            total = total + np.einsum("bcyx,mc->bmyx", part[:, :, :rows, :columns], weights[:, :, y, x])
    return total


@pytest.mark.parametrize(("kernel", "layout"), [(7, KernelRows), (7, Windows), (9, KernelRows), (3, None)])
def test_every_weight_has_its_index(kernel, layout):
    """The index of (m, c, ky, kx) in row-major order is what the A-Core's steps lead to at the weight's place."""
    network, g = stem(19, kernel=kernel, pad=kernel // 2), 8
    geometry = network.geometry("stem")
    found = {KernelRows: KernelRows(geometry, 16 if kernel > 8 else 8), Windows: Windows(geometry), None: None}[layout]
    lowered = Lowered(network.laid_out("stem", found.lowered), "stem", found) if found else Lowered(network)
    shape = network.weight_shape("stem")
    every = 1 + np.arange(np.prod(shape)).reshape(shape)
    placed, index = lowered.weights("stem", every), lowered.index("stem", g)
    for (m, c, ky, kx), value in np.ndenumerate(placed):
        place = m * index.out + index.start(c // g) + c % g * index.lane + ky * index.row + kx * index.column
        assert value in (0, place + 1)


def test_a_plan_takes_and_gives_what_the_network_says():
    network = load_network(str(NETWORKS / "tiny-stem.toml"))
    plan = compile_network(network, ETA, 2, export_dw=True)
    assert plan.lowered.layout is not None and plan.network is network
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
    found = np.frombuffer(region.pack(lower(network, ETA).weights("stem", weights), ETA.group), np.uint8)
    assert runner.written_at("stem", "w", index) == region.address + int(np.flatnonzero(found)[0])
