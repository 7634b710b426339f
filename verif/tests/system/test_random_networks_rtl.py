"""Random small networks on simulated hardware: every byte of two steps equals the golden model's (and so the emulator's)."""

import pytest

from gradloom.verif.random_networks import random_network
from gradloom.verif.system_bench import make_case, verify_steps

EACH = 8


@pytest.mark.parametrize("first", range(0, 64, EACH))
def test_random_networks(first):
    """The networks of the emulator's test, in turn on a machine with G = 2 and one with G = 1."""
    for seed in range(first, first + EACH):
        verify_steps(make_case(random_network(seed), 2 + seed % 2, 2), "small" if seed % 4 else "nano")
