"""The design with a board's SDRAM on the pins of its platform: every pad has its register, the clock's pad its phase."""

import re

import pytest
from amaranth_boards.ulx3s import ULX3S_85F_Platform

from gradloom.boards.board import board_named
from gradloom.boards.clocking import _late, find_pll
from gradloom.boards.sdram_board import SdramBoard
from gradloom.contracts.config import PRESETS

BOARD = board_named("ulx3s-85f")


def test_pads():
    """39 outputs, 16 of them both ways, with registers of IO cells; one DDR register; all 39 pins and the clock are placed."""
    files = ULX3S_85F_Platform().prepare(SdramBoard(PRESETS["nano"], BOARD), "top").files
    text, pins = (files[name] if isinstance(files[name], str) else files[name].decode() for name in ("top.il", "top.lpf"))
    control = 1 + 1 + 3 + len("ba") + 13 + 2
    assert len(re.findall(r"cell \\OFS1P3DX ", text)) >= control + 16 and len(re.findall(r"cell \\IFS1P3DX ", text)) == 16
    assert len(re.findall(r"cell \\ODDRX1F ", text)) == 1
    assert len(re.findall(r'^LOCATE COMP "sdram_0__', pins, re.MULTILINE)) == control + 16 + 1
    # 90 degrees, in eighths of the VCO's cycles behind the first output: a quarter of those in a cycle of the clock.
    values = {name: int(value) for name, value in re.findall(r"parameter (?:signed )?\\(\w+) (\d+)", text)}
    assert values["CLKOS_DIV"] == values["CLKOP_DIV"]
    assert 8 * (values["CLKOS_CPHASE"] - values["CLKOP_CPHASE"]) + values["CLKOS_FPHASE"] == 2 * values["CLKOP_DIV"]


def test_phases():
    pll = find_pll(25_000_000, 50_000_000)
    assert [_late(pll, degrees) for degrees in (0, 90, 180, 270, 345)] == [(0, 0), (3, 0), (6, 0), (9, 0), (11, 4)]
    for degrees in (1, 360, -90):
        with pytest.raises(ValueError, match=f"^a phase of {degrees} degrees cannot be made by an ECP5's PLL"):
            _late(pll, degrees)
