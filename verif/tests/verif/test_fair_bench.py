"""The fair bench: what is kept is what the page shows, and what the reckoning gives today."""

import json

import pytest

from gradloom.models.network import load_network
from gradloom.systems.networks import workload
from gradloom.verif.checkout import DOCS
from gradloom.verif.fair_bench import BATCHES, KEPT, NETWORKS, SYSTEMS, table

KEPT_VALUES = json.loads(KEPT.read_text())


def test_the_page_shows_what_is_kept():
    assert table(KEPT_VALUES) in (DOCS / "systems.md").read_text()
    assert all(0 < use <= 1 for uses in KEPT_VALUES.values() for use in uses.values())


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_kept_comes_out(system):
    """Of the training machine LeNet-10 alone, as others take seconds to compile."""
    names = ("lenet10",) if system == "eta" else NETWORKS
    for name in names:
        for batch in BATCHES if system != "eta" else (1,):
            found = SYSTEMS[system][1](name, workload(load_network(name)), batch)
            assert round(found, 4) == KEPT_VALUES[system][f"{name} {batch}"], (name, batch)
