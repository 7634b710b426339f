"""The last layers by halves of the images: where that pays, and in what order the machine is given its work."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.memory_map import memory_map
from gradloom.host.schedule import compile_network
from gradloom.host.training_step.loss_overlap import last_layers, turn
from gradloom.models.layers import AvgPool, Conv, FullyConnected
from gradloom.models.network import Network, load_network


def builder(network, batch, config=PRESETS["eta"]):
    memory = memory_map(network, config, batch, training=True, steps=1, table=1, dw=False, sums=False)
    return ProgramBuilder(network, config, memory, batch=batch, training=True)


def test_resnet20_turns_in_halves():
    found = builder(load_network("resnet20"), 16)
    assert [layer.name for layer in last_layers(found)] == ["s3b3b", "mean", "fc"]
    assert turn(found) == ((0, 8), (8, 16))
    assert turn(builder(load_network("resnet20"), 5)) == ((0, 3), (3, 5))


def test_one_image_has_no_halves():
    assert turn(builder(load_network("resnet20"), 1)) == ((0, 1),)


def test_weights_that_take_longer_than_the_array_are_loaded_once():
    assert turn(builder(load_network("vgg16"), 16)) == ((0, 16),)


def test_sums_of_the_backward_pass_must_fit():
    assert turn(builder(load_network("resnet20"), 16, dataclasses.replace(PRESETS["eta"], pbuf_depth=64))) == ((0, 16),)


def test_two_loaders_are_too_few():
    assert turn(builder(load_network("resnet20"), 16, dataclasses.replace(PRESETS["eta"], load_channels=2))) == ((0, 16),)


def test_nothing_turns_without_a_convolution():
    network = Network("fc", (1, 8, 8), 10, (FullyConnected(name="fc", out=10),))
    assert turn(builder(network, 16)) == ((0, 16),)
    assert not last_layers(builder(network, 16))


@pytest.mark.parametrize("batch", [2, 16])
def test_errors_begin_before_the_last_forward_pass(batch):
    """Loss of the first half, and its error, come while the second half is convolved."""
    layers = [Conv(name=name, out=8, kernel=3, pad=1, norm="frn", act="tlu") for name in ("a", "b")]
    mean, fc = AvgPool(name="mean", kernel=8, stride=8), FullyConnected(name="fc", out=10)
    network = Network("halves", (8, 8, 8), 10, (*layers, mean, fc))
    config = dataclasses.replace(PRESETS["small"], load_channels=4)
    plan = compile_network(network, config, batch)
    losses = [n for n, command in enumerate(plan.instructions) if command.opcode == Opcode.SOFTMAX]
    forward = [n for n, command in enumerate(plan.instructions) if command.opcode == Opcode.CONV and command.tag == 8 * 2]
    assert len(losses) == 2
    assert losses[0] < forward[-1] < losses[1]
