"""What a machine computes hangs on its reset alone, not on what registers and memories hold when it wakes up."""

import pytest

from gradloom.verif.system_bench import golden_digest, make_case, verify_steps


@pytest.mark.parametrize("power_up", [1, 2, 3])
def test_random_registers_and_memories(power_up):
    case = make_case("tiny-branches", 2, 2)
    assert verify_steps(case, "nano", power_up=power_up) == golden_digest(case)


@pytest.mark.long("channels of their own, woken up at random")
@pytest.mark.parametrize("config", ["channels", "small", "laps"])
def test_random_registers_and_memories_of_other_machines(config):
    case = make_case("tiny-residual", 2, 2)
    assert verify_steps(case, config, power_up=4) == golden_digest(case)
