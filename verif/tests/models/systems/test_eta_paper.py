"""Ratios of ETA's table III."""

import pytest

from gradloom.models.network import load_network
from gradloom.systems.eta import MACS, TABLE_III, operations_per_image, peak_gops, use
from gradloom.systems.networks import workload
from gradloom.systems.vocabulary import step_macs


def test_the_array():
    assert MACS == 1728 and round(peak_gops(), 1) == 691.2


def test_vgg16_of_table_iii():
    """88 % of the peak rate, and the operations of our network within half a percent."""
    row = TABLE_III["vgg16"]
    assert round(100 * use(row)) == 88
    assert operations_per_image(row) == pytest.approx(2 * step_macs(workload(load_network("vgg16")).layers), rel=0.005)


@pytest.mark.parametrize("network", TABLE_III)
def test_energy_efficiency_of_table_iii(network):
    row = TABLE_III[network]
    assert row.gops / row.watts == pytest.approx(row.gops_per_watt, rel=0.0005)
