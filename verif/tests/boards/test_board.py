"""Data of the boards: each is what its platform and its machine say."""

import importlib

import pytest

from gradloom.boards.board import BOARDS, board_named
from gradloom.boards.clocking import find_pll
from gradloom.contracts.config import PRESETS, ConfigError


@pytest.mark.parametrize("board", BOARDS.values(), ids=lambda board: board.name)
def test_board(board, monkeypatch):
    monkeypatch.setenv("OPENFPGALOADER", "none")
    module, _, name = board.platform.partition(":")
    platform = getattr(importlib.import_module(module), name)()
    assert f"LFE5U-{platform.device.split('-')[1]}" == board.die
    assert platform.default_clk_frequency == board.oscillator
    # nextpnr calls the package BG381 CABGA381; the speed grade decides all times.
    assert board.nextpnr[1:] == ("--package", f"CABGA{platform.package.removeprefix('BG')}", "--speed", platform.speed)
    assert len(board.letters) == 4 and board.letters.isascii()
    assert board.machine in PRESETS and board.config is PRESETS[board.machine]
    assert board.clock == board.oscillator or find_pll(board.oscillator, board.clock)
    board.part.timing(board.clock)


def test_names_and_letters_are_unique():
    assert all(name == board.name for name, board in BOARDS.items())
    assert len({board.letters for board in BOARDS.values()}) == len(BOARDS)


def test_unknown_board():
    with pytest.raises(ConfigError, match="there is no board 'ulx3s': give one of ulx3s-85f"):
        board_named("ulx3s")
