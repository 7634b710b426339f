"""Networks of experiments: what is narrower, and what stays."""

import pytest

from gradloom.models.network import load_network
from gradloom.verif.experiments.narrow import NETWORKS, experiment_network


@pytest.mark.parametrize("name", NETWORKS)
def test_a_quarter_has_a_quarter_of_the_channels_of_every_layer_but_the_last(name):
    found, whole = experiment_network(name), load_network(name.removesuffix("-quarter"))
    divisor = 4 if name.endswith("-quarter") else 1
    outs, wholes = ([layer.out for layer in network.layers if hasattr(layer, "out")] for network in (found, whole))
    assert found.name == name and outs == [*(out // divisor for out in wholes[:-1]), wholes[-1]]
    assert [type(layer) for layer in found.layers] == [type(layer) for layer in whole.layers]
