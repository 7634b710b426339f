"""Planes larger than the buffers, in tiles of rows: steps on the simulated machine equal the golden model's in every byte."""

import pytest

from gradloom.sim.rtl_device import DramModel
from gradloom.verif.system_bench import make_case, verify_steps


@pytest.mark.parametrize(("batch", "dram"), [(1, None), (3, DramModel(stall=0.2, seed=7))])
def test_every_kind_of_layer(batch, dram):
    verify_steps(make_case("tiny-rows", batch, 2), "rows", dram=dram)
