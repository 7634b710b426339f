"""Random small networks on simulated hardware: every byte of two steps equals the golden model's (and so the emulator's)."""

import pytest

from gradloom.models.layers import Upsample
from gradloom.verif.random_networks import PARTS, random_network
from gradloom.verif.system_bench import make_case, verify_steps

EACH, IN_SUITE, ALL = 8, 8, 64
LONG = pytest.mark.long("more random networks of the same kind")


@pytest.mark.parametrize("first", [pytest.param(first, marks=() if first < IN_SUITE else LONG) for first in range(0, ALL, EACH)])
def test_random_networks(first):
    """The networks of the emulator's test, in turn on machines of G = 1, of G = 2 and of G = 4 in two laps."""
    for seed in range(first, first + EACH):
        verify_steps(make_case(random_network(seed), 2 + seed % 2, 2), ("nano", "small", "laps", "small")[seed % 4])


def test_random_networks_that_enlarge_planes():
    networks = [random_network(seed, (*PARTS, "enlarge", "enlarge")) for seed in range(200, 203)]
    assert any(isinstance(layer, Upsample) for network in networks for layer in network.layers)
    for number, network in enumerate(networks):
        verify_steps(make_case(network, 2, 2), ("nano", "small", "laps")[number])
