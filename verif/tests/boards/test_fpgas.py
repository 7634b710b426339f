"""FPGAs as data."""

import pytest

from gradloom.boards.board import BOARDS
from gradloom.boards.capacity import CAPACITY
from gradloom.boards.fpgas import FPGAS, fpga_named
from gradloom.contracts.config import ConfigError


def test_every_board_and_die_is_there():
    assert set(BOARDS) <= set(FPGAS)
    assert {fpga.part for fpga in FPGAS.values() if fpga.family == "ecp5"} == set(CAPACITY)


def test_a_board_has_its_own_clock_and_memory():
    board, fpga = BOARDS["ulx3s-85f"], fpga_named("ULX3S-85F")
    assert fpga.clock_hz == board.clock and fpga.bandwidth == board.clock * 2
    assert fpga.luts == 83_640


@pytest.mark.parametrize(("name", "sizes"), [
    ("pynq-z1", (53_200, 220, 140)), ("zcu102", (274_080, 2520, 912)), ("zcu111", (425_280, 4272, 1080)),
    ("vc709", (433_200, 3600, 1470)), ("vu9p", (1_182_240, 6840, 2160))])
def test_devices_of_the_papers(name, sizes):
    """As the papers give them, but for ETA's 443.2 thousand LUTs: its 30.39 % for 132 thousand are of 434."""
    fpga = FPGAS[name]
    assert (fpga.luts, fpga.dsps, fpga.brams) == sizes


def test_an_unknown_name():
    with pytest.raises(ConfigError, match="there is no device 'vu99p': give one of ulx3s-85f, lfe5u-25f, "):
        fpga_named("vu99p")
