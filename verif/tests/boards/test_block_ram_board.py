"""The design with block RAM: every port of the machine is joined, and machines that it cannot hold are refused."""

import pytest

from gradloom.boards.block_ram_board import BlockRamBoard, machine_members
from gradloom.rtl.accelerator import Accelerator
from gradloom.rtl.config import PRESETS


def test_every_port_is_joined():
    """An instance may leave ports out without a word from any tool, so their names are compared with the machine's."""
    members = Accelerator(PRESETS["nano"]).signature.members
    assert {name: member.flow for name, member in members.items() if name != "irq"} == {
        name: member.flow for name, member in machine_members(PRESETS["nano"]).items()}


def test_two_channels_are_refused():
    with pytest.raises(ValueError, match="small has 2 load and 1 store channels: take a machine with one of each"):
        BlockRamBoard(PRESETS["small"], memory_bytes=1 << 16, clock=25_000_000, board="U85F")
