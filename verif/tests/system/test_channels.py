"""The machine with every DMA channel: steps equal the golden model's in every byte, whatever the memory does on its six ports."""

import pytest

from gradloom.sim.rtl_device import DramModel
from gradloom.verif.system_bench import make_case, verify_steps

DRAM = {
    "plain": DramModel(),
    "stalls": DramModel(stall=0.3, seed=5),
    "one channel each": DramModel(stall={"r": 0.6, "aw": 0.5, "b": 0.6}, latency=70, write_latency=50, seed=6),
    "3 bytes a cycle": DramModel(bandwidth=3, latency=40),
}


@pytest.mark.parametrize("dram", list(DRAM))
def test_awkward_network(dram):
    verify_steps(make_case("tiny-residual", 2, 2), "channels", dram=DRAM[dram])


@pytest.mark.parametrize("dram", [
    pytest.param(dram, marks=[] if dram in ("plain", "stalls") else [
        pytest.mark.long("tiny-residual with this memory is beside it")])
    for dram in DRAM
])
def test_weights_through_several_channels(dram):
    """Many channels on small planes: many weights come through all channels that fill WBUF (host/order/test_synchronize.py)."""
    verify_steps(make_case("tiny-deep", 2, 2), "channels", dram=DRAM[dram])


def test_digits():
    digests = {verify_steps(make_case("digits-cnn", 4, 2), config, dram=DramModel(bandwidth=16)) for config in ("channels", "nano")}
    assert len(digests) == 1
