"""Networks: shapes, tensor numbers, readers."""

import dataclasses

import pytest

from gradloom.contracts import isa
from gradloom.models.network import (
    AvgPool,
    GlobalAvgPool,
    Kind,
    MaxPool,
    Shortcut,
    load_network,
)
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.networks import conv, net


def test_digits_cnn():
    network = load_network("digits-cnn")
    assert [network.shape(layer.name) for layer in network.layers] == [
        (12, 8, 8),
        (12, 4, 4),
        (12, 4, 4),
        (12, 2, 2),
        (10, 1, 1),
    ]
    assert network.macs() == 64 * 12 * 9 + 16 * 12 * 12 * 9 + 16 * 12 * 12 + 48 * 10
    assert [layer.name for layer in network.weighted] == ["conv1", "conv2", "conv3", "fc"]
    assert network.parameters("conv1") == ("gamma", "beta", "tau")
    assert network.parameters("fc") == ("beta",) and network.parameters("pool") == ()
    assert network.weight_shape("fc") == (10, 12, 2, 2)


def test_tensor_numbers_are_those_of_the_machine():
    assert [(kind.name, int(kind)) for kind in Kind] == [(kind.name, int(kind)) for kind in isa.Kind]
    network = load_network("digits-cnn")
    assert network.tid("input", Kind.Z) == 2
    assert network.tid("pool", Kind.DZ) == isa.tensor_id(4, isa.Kind.DZ)
    assert network.dx_tid("conv1") == network.tid("conv1", Kind.DX)
    assert network.dx_tid("fc") == network.tid("fc", Kind.DZ)


def test_shapes_of_odd_sizes():
    network = net(
        conv("a", out=5, kernel=5, pad=0, stride=2),
        MaxPool(name="b", kernel=3, stride=2, pad=1),
        AvgPool(name="c", kernel=2, stride=3),
        shape=(1, 27, 18),
    )
    assert [network.shape(name) for name in "abc"] == [(5, 12, 7), (5, 6, 4), (5, 2, 1)]
    assert net(conv(), GlobalAvgPool(name="g")).geometry("g").kernel == (8, 8)


def test_readers_of_shortcuts():
    network = load_network(str(NETWORKS / "tiny-residual.toml"))
    assert network.main_consumer("stem").name == "same"
    assert network.shortcut("stem") == Shortcut("residual", "same")
    assert network.main_consumer("same").name == "block1"
    assert network.shortcut("same") == Shortcut("reader", "projection")
    assert network.main_consumer("projection") is None
    assert network.shortcut("projection") == Shortcut("residual", "block2")
    assert network.shortcut("block1") is None
    assert network.sends_ds("projection") and not network.sends_ds("block1")


def test_main_consumer_may_come_after_the_residual():
    network = load_network(str(NETWORKS / "tiny-branches.toml"))
    assert network.main_consumer("left").name == "merge"
    assert network.shortcut("left") == Shortcut("residual", "right")
    assert not network.needs_error("shrink") and not network.needs_error("input")
    assert network.needs_error("left")


def test_input_may_be_read_by_many():
    network = net(
        conv("a"),
        conv("b", input="input"),
        conv("c", input="input", residual="a"),
        conv("d", input="b", residual="c"),
    )
    assert network.layer("c").input == "input"


def test_networks_are_frozen():
    network = load_network("digits-cnn")
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.classes = 4
