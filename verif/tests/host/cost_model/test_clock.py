"""The clock of a program being written: engines in order, waits, barriers."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Dest, Opcode
from gradloom.host.cost_model.clock import Clock
from gradloom.host.program.assembler import Instruction


def conv(windows):
    return Instruction(Opcode.CONV, {"units": 3 * windows, "cols": 1, "steps": 1, "preload": 0, "wg": 0})


def load(beats):
    return Instruction(Opcode.LOAD, {"dest": int(Dest.IBUF), "n0": beats, "n1": 1, "n2": 1})


@pytest.fixture
def clock():
    return Clock(PRESETS["eta"])


def test_commands_of_an_engine_follow_each_other(clock):
    for place in range(4):
        clock.place(place, Unit.CCORE, conv(1000), ())
    assert clock.free(Unit.CCORE) < 4 * 1000 + 10, "windows of successive commands follow almost without a gap"
    assert clock.through(2) == max(clock.done[2], clock.done[3]) and clock.through(4) == 0


def test_engines_run_side_by_side(clock):
    clock.place(0, Unit.CCORE, conv(1000), ())
    clock.place(1, Unit.LOAD, load(500), ())
    assert clock.done[1] < clock.done[0]


def test_a_command_waits_for_others(clock):
    clock.place(0, Unit.LOAD, load(500), ())
    clock.place(1, Unit.CCORE, conv(1000), (0,))
    assert clock.free(Unit.CCORE) == clock.done[0] + 3 + 1000


def test_a_barrier_holds_everybody(clock):
    clock.place(0, Unit.CCORE, conv(1000), ())
    clock.barrier()
    clock.place(1, Unit.LOAD, load(500), ())
    assert clock.done[1] > clock.done[0] + 500
