"""The subsampling shortcut: exact copies forward, the adjoint backward, and its place in a step."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.models.arithmetic import pint, shortcut
from gradloom.models.golden.step import Hyper, expected_tensors, train_step
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS

SUBSAMPLE = str(NETWORKS / "tiny-subsample.toml")


def test_positions_and_appended_channels():
    x = np.arange(2 * 2 * 5 * 4).reshape(2, 2, 5, 4)
    found = shortcut.subsample(x, 2, 3)
    assert found.shape == (2, 3, 3, 2)
    assert found[0, 0].tolist() == [[0, 2], [8, 10], [16, 18]] and not found[:, 2].any()
    back = shortcut.subsample_backward(found, x.shape, 2)
    assert back[0, 0].tolist() == [[0, 0, 2, 0], [0] * 4, [8, 0, 10, 0], [0] * 4, [16, 0, 18, 0]]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 7), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_backward_is_the_adjoint(stride, channels, more, y, x):
    rng = np.random.default_rng(stride + 10 * y + 100 * x)
    forward = rng.integers(-9, 9, (2, channels, y, x))
    kept = shortcut.subsample(forward, stride, channels + more)
    error = rng.integers(-9, 9, kept.shape)
    assert (kept * error).sum() == (forward * shortcut.subsample_backward(error, forward.shape, stride)).sum()


@pytest.mark.parametrize("name", ["half", "more"])
def test_codes_are_copied_and_no_exponent_is_added(name):
    network = load_network(SUBSAMPLE)
    state = State.initial(network, 4, -11)
    rng = np.random.default_rng(1)
    x = pint.encode(rng.integers(-4096, 4096, (2, *network.input_shape)), 0).code
    tensors = train_step(network, state, x, np.array([0, 3]), Hyper.from_floats(0.05)).tensors
    layer = network.layer(name)
    adder = network.consumers(name)[0][0].name
    source, channels = layer.input, network.geometry(name).in_shape[0]
    stride = layer.stride
    assert np.array_equal(tensors[name, "z"][:, :channels], tensors[source, "z"][:, :, ::stride, ::stride])
    assert not tensors[name, "z"][:, channels:].any()
    masked = np.where(tensors[adder, "bit"], tensors[adder, "dz"], 0)
    assert np.array_equal(tensors[name, "dz"], masked)
    assert np.array_equal(tensors[name, "ds"][:, :, ::stride, ::stride], masked[:, :channels])
    assert np.count_nonzero(tensors[name, "ds"]) == np.count_nonzero(masked[:, :channels])
    numbers = {tid // 8 for tid in state.exponents}
    assert network.index(name) not in numbers
    assert network.z_tid(name) == network.tid(source, 2) and network.ds_tid(name) == network.tid(adder, 3)


def test_a_shortcut_of_the_input_sends_no_error():
    network = load_network(SUBSAMPLE)
    written = expected_tensors(network)
    assert [tensor for layer, tensor in written if layer == "raw"] == ["z"]
    assert [tensor for layer, tensor in written if layer == "half"] == ["z", "dz", "ds"]
