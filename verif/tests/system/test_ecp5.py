"""A machine of ECP5 cells trains as every machine: the cells themselves, in the place of what they do in other simulations."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.rtl.verilog import TOP, emit_verilog
from gradloom.sim import rtl_device
from gradloom.sim.ecp5 import CELLS
from gradloom.verif.ccore.collisions import colliding
from gradloom.verif.system_bench import make_case, verify_steps

CELLS_OF = {"nano": {}, "small": {"load_channels": 1, "psum_width": 32, "wg_width": 36}}


def machine_of_cells(config):
    with colliding():
        text = emit_verilog(config, events=True)[f"{TOP}.v"]
    assert text.count("MULT18X18D #(") == 1 and "  CCU2C #(" in text
    return {f"{TOP}.v": f"`define SYNTHESIS\n{text}", "cells.v": CELLS.read_text()}, frozenset()


@pytest.fixture
def _cells(monkeypatch):
    monkeypatch.setattr(rtl_device, "machine_verilog", machine_of_cells)


@pytest.mark.usefixtures("_cells")
@pytest.mark.long("builds of a minute and more; test_ccore has that array, test_formal_ecp5 that its cells are the same")
@pytest.mark.parametrize("preset", ["nano", "small"])
def test_machine_of_cells(preset):
    """Multipliers and carry chains are the cells' models, and what a memory gives of a word that is being written is wrong."""
    config = dataclasses.replace(PRESETS[preset], name=f"{preset}-ecp5", family="ecp5", **CELLS_OF[preset])
    verify_steps(make_case("tiny-residual", 2, 1), config)
