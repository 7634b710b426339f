"""What cannot fit is refused before it is placed, by the resource that is short."""

import pytest

from gradloom.boards.capacity import CAPACITY, check_fit, least_use
from gradloom.boards.tools import BuildError

PICO = {"LUT4": 28_858, "CCU2C": 5_370, "DPR16X4": 559, "FF": 34_468, "DP16KD": 111, "MULT18X18D": 39}
"""Synthesised; nextpnr placed it in 45,676 TRELLIS_COMB and 34,444 flip-flops."""


def test_least_use():
    """A lower bound of what was placed, within a tenth."""
    comb = least_use(PICO)["TRELLIS_COMB"]
    assert comb == 28_858 + 2 * 5_370 + 4 * 559 and 0.9 * 45_676 < comb < 45_676


def test_fits():
    check_fit(PICO, "LFE5U-85F", "pico")


def test_exactly_full_fits():
    check_fit({"LUT4": 24_288, "FF": 24_288, "DP16KD": 56, "MULT18X18D": 28}, "LFE5U-25F", "full")


@pytest.mark.parametrize(("more", "text"), [
    ({"LUT4": 90_000}, "102,976 LUTs of 83,640; give a --config with less logic"),
    ({"FF": 90_000}, "90,000 flip-flops of 83,640; give a --config with less logic"),
    ({"DP16KD": 209}, "209 block RAMs of 208; give a --config with smaller buffers"),
    ({"MULT18X18D": 157}, "157 multipliers of 156; give a --config with fewer MACs"),
    ({"DP16KD": 209, "MULT18X18D": 157},
     "209 block RAMs of 208 and 157 multipliers of 156; give a --config with smaller buffers, fewer MACs")])
def test_too_large(more, text):
    with pytest.raises(BuildError, match=text):
        check_fit(PICO | more, "LFE5U-85F", "pico")


def test_every_board_has_a_die():
    from gradloom.boards.board import BOARDS

    assert {board.die for board in BOARDS.values()} <= set(CAPACITY)
