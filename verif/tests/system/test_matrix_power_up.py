"""Matrix machines whose registers and memories wake up at random: the same bytes."""

import pytest

from gradloom.contracts.matrix_config import load_machine
from gradloom.verif.matrix.bench import compare, opened
from gradloom.verif.matrix.random_programs import random_program


@pytest.mark.parametrize("name", ["fox-4", "darkfpga-8x4", "barista-4x4x16"])
def test_whatever_registers_and_memories_wake_up_with(name):
    for power_up in (1, 2, 3):
        with opened(load_machine(name), power_up=power_up) as found:
            for seed in range(2):
                compare(*found, random_program(found[0].config, seed), seed)
