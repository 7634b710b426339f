"""Lines of weight gradients: which layers, which part of the buffer, what the first layer waits for."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.backward.gradient_queues import GradientQueues
from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.host.dram.im2col import lower
from gradloom.host.dram.memory_map import memory_map
from gradloom.host.order.pieces import OPEN
from gradloom.models.network import load_network

ETA = PRESETS["eta"]


def lines_of(name, config=ETA, batch=4):
    network = lower(load_network(name), config).network
    memory = memory_map(network, config, batch, training=True, steps=1, table=1, dw=False, sums=False)
    lines = GradientQueues(ProgramBuilder(network, config, memory, batch=batch, training=True))
    return {layer.name: lines.of(layer) for layer in network.weighted}


def test_large_planes_make_two_lines_that_share_the_buffer():
    lines = lines_of("resnet18")
    light, slow = lines["s1b1a"], lines["s4b2b"]
    assert sorted([light.name, slow.name]) == [light.name, slow.name]
    assert (light.ring.first, light.ring.size) == (0, 256) and (slow.ring.first, slow.ring.size) == (256, 256)
    assert lines["s2b2b"] is light and lines["s4b1a"] is slow and lines["fc"] is light
    assert lines["s1b1a"].gate == OPEN


def test_the_first_layer_has_the_whole_buffer_when_all_others_are_done():
    lines = lines_of("resnet18")
    assert lines["stem"].ring.size == ETA.dw_depth
    assert {access.space for access in lines["stem"].gate.settled} == {f"{name}.w" for name in lines if name != "stem"}


@pytest.mark.parametrize(("network", "first"), [("vgg16", "conv1_1"), ("resnet20", "stem")])
def test_a_first_layer_that_waits_for_its_loads_has_a_line_of_its_own(network, first):
    """Three input channels: a third of the array's time, but all the errors. Served first, with little room."""
    lines = lines_of(network)
    own = lines.pop(first)
    room = 2 * ETA.dw_tile_beats
    assert own.name == min(own.name, "gradients") and own.gate == OPEN
    assert (own.ring.first, own.ring.size, own.share, own.ahead) == (ETA.dw_depth - room, room, 8, 1)
    assert {line.name for line in lines.values()} == {"gradients"}
    assert {(line.ring.first, line.ring.size, line.gate) for line in lines.values()} == {(0, ETA.dw_depth - room, OPEN)}


def test_a_kernel_of_several_windows_has_no_line_of_its_own():
    assert lines_of("resnet18")["stem"].ahead is None


@pytest.mark.parametrize("name", ["nano", "small"])
def test_one_line_where_the_array_takes_longer_than_the_loads(name):
    lines = lines_of("digits-cnn", PRESETS[name])
    assert {line.name for line in lines.values()} == {"gradients"}
    assert {(line.ring.first, line.ring.size, line.gate) for line in lines.values()} == {(0, PRESETS[name].dw_depth, OPEN)}
