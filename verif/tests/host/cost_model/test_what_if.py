"""A step with a part of the machine that takes no time: what may get shorter does, and nothing gets shorter than what is left."""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import step_programs
from gradloom.host.cost_model.what_if import PARTS, what_if
from gradloom.host.cost_model.workload import windows
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network

NETWORK, DRAM = load_network("digits-cnn"), DramCost(latency=40)


def programs(config: str):
    plan = compile_network(NETWORK, PRESETS[config], 8, slots=2, table=2)
    return step_programs(plan.instructions, plan.labels, 2)


@pytest.mark.parametrize("config", ["nano", "small", "eta"])
def test_no_part_makes_a_step_longer_and_the_array_keeps_its_windows(config):
    commands, machine = programs(config), PRESETS[config]
    base = replay(commands, machine, DRAM)[1]
    found = {part.name: cycles for part, cycles in what_if(commands, 1, machine, DRAM)}
    assert list(found) == [part.name for part in PARTS]
    assert all(cycles <= base.cycles for cycles in found.values()), (base.cycles, found)
    work = sum(windows(instruction, machine) for instruction in base.program)
    assert all(cycles > work for name, cycles in found.items() if name not in ("array", "weight gradients and updates"))
    both = found["loads, stores and A-Core"]
    assert both <= min(found["loads and stores"], found["A-Core"])


def test_beside_a_slow_memory_nothing_but_less_to_move_gains_much():
    """Beats that share the memory's bandwidth come in another order without the A-Core, so that may even cost a little."""
    commands, machine, slow = programs("eta"), PRESETS["eta"], dataclasses.replace(DRAM, bytes_per_cycle=8.0)
    base = replay(commands, machine, slow)[1].cycles
    found = {part.name: cycles for part, cycles in what_if(commands, 1, machine, slow)}
    assert found["loads and stores"] < 0.4 * base
    assert all(0.9 * base < found[name] < 1.02 * base for name in ("memory latency", "A-Core", "array"))


def test_latency_is_that_of_the_memory():
    commands, machine = programs("small"), PRESETS["small"]
    found = {part.name: cycles for part, cycles in what_if(commands, 1, machine, DRAM)}
    assert found["memory latency"] == replay(commands, machine, dataclasses.replace(DRAM, latency=0))[1].cycles
