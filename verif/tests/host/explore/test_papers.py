"""The other systems on devices: the papers' own choices, and sentences for what does not fit."""

import dataclasses

import pytest

from gradloom.boards.fpgas import FPGAS
from gradloom.host.explore.names import SYSTEMS
from gradloom.host.explore.papers import predict_system
from gradloom.host.files import UserError
from gradloom.systems.networks import NETWORKS


def test_darkfpga_on_a_vu9p():
    """(128, 32) under the paper's own limits, which exceeds its bandwidth, and the best point that keeps it."""
    found = predict_system("darkfpga", NETWORKS["vgg-like"], 128, FPGAS["vu9p"])
    assert found.points[0].point == "(128, 32)" and found.limits[0] == "bandwidth exceeded"
    assert found.refused == ["(128, 64) takes 8,298 DSP slices of 6,840"]
    assert found.notes[0].endswith("exceeds the bandwidth: its results of 32 bits need 147.2 GB/s, and vu9p has 63.9")
    assert found.notes[1] == "the best that keeps the bandwidth is (64, 16), with 43.3 GB/s"


def test_darkfpga_without_a_limit_of_bandwidth():
    fpga = dataclasses.replace(FPGAS["vu9p"], bandwidth=200e9)
    found = predict_system("darkfpga", NETWORKS["vgg-like"], 128, fpga)
    assert found.notes == [] and set(found.limits) == {"MACs"}


def test_eftrain_on_a_zcu102():
    """Tm = Tn = 16, as published: 18 x 18 has the slices, but not the block RAM; and the tiles and cycles of table 6."""
    found = predict_system("eftrain", NETWORKS["alexnet"], 4, FPGAS["zcu102"])
    assert found.points[0].point == "16 x 16" and found.points[0].cycles == 69_295_691
    assert found.refused[0] == ("18 x 18: layer 'conv1': a tile of weights and a row of the largest plane take 792 banks, and "
                                "there are 684")
    assert "conv2: [Tr, Tc, M_on] and cycles: FP [27, 27, 112] 7,309,808, BP [27, 27, 48] 7,126,784, WU [27, 27, 112]" in (
        " ".join(found.notes))


def test_eftrain_on_a_pynq():
    """6 x 6 with streams of 32 bits, as published."""
    found = predict_system("eftrain", NETWORKS["1x-cnn"], 128, FPGAS["pynq-z1"])
    assert found.points[0].point == "6 x 6" and found.notes[0].startswith("DMA streams of 32 bits")


@pytest.mark.parametrize(("device", "point"), [("zcu111", "32 x 32, a block RAM each"), ("pynq-z1", "8 x 8, a block RAM each")])
def test_fox_on_its_boards(device, point):
    assert predict_system("fox", NETWORKS["vgg16-cifar"], 1, FPGAS[device]).points[0].point == point


def test_barista_waits_for_the_host():
    found = predict_system("barista", NETWORKS["alexnet-cifar"], 1, FPGAS["vu9p"])
    assert found.limits[0] == "host"
    assert [point.seconds for point in found.points] == sorted(point.seconds for point in found.points)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_no_point_fits_is_one_sentence(system):
    fpga = dataclasses.replace(FPGAS["pynq-z1"], name="mine", dsps=10)
    smallest = {"darkfpga": r"\(16, 16\)", "fox": "8 x 8", "barista": "<4, 4, ", "eftrain": "2 x 2"}[system]
    with pytest.raises(UserError, match=rf"^no point of {system} fits mine: {smallest}.* DSP slices of .*; give a larger device$"):
        predict_system(system, NETWORKS["vgg-like"], 128, fpga)
