"""Planes that stay in the partial sums, on the simulated machine: steps equal the golden model's in every byte."""

import pytest

from gradloom.sim.rtl_device import DramModel
from gradloom.verif.system_bench import make_case, verify_steps


@pytest.mark.parametrize(("batch", "dram"), [
    (1, None),
    pytest.param(3, DramModel(stall=0.2, seed=11), marks=pytest.mark.long("the same pieces with stalls, which test_rows has")),
])
def test_every_kind_of_piece(batch, dram):
    verify_steps(make_case("planes/kept", batch, 2), "kept", dram=dram)
