"""The memory's timing changes cycles and never bytes: stalls on every channel, low bandwidth, long latency."""

from fractions import Fraction

import pytest

from gradloom.sim.rtl_device import CHANNELS, DramModel
from gradloom.verif.system_bench import golden_digest, make_case, open_runner, verify_steps

MODELS = {
    "stalls of 0.3 everywhere": DramModel(stall=0.3, seed=7),
    "one byte a cycle": DramModel(bandwidth=1),
    "latency 300": DramModel(latency=300, write_latency=300),
    "no latency": DramModel(latency=0, write_latency=0),
    "slow, late and stalling": DramModel(
        bandwidth=Fraction(3, 2), latency=90, write_latency=50, stall=0.5, seed=2
    ),
} | {f"stalls of 0.8 on {channel}": DramModel(stall={channel: 0.8}, seed=11) for channel in CHANNELS}


@pytest.mark.parametrize("name", list(MODELS))
def test_bytes_do_not_depend_on_the_memory(name):
    case = make_case("digits-cnn", 3, 2)
    assert verify_steps(case, "small", dram=MODELS[name]) == golden_digest(case)


@pytest.mark.parametrize(("config", "seed"), [
    ("nano", 1), ("small", 2), *(pytest.param(*case, marks=pytest.mark.long("the machine with other stalls"))
                                 for case in (("nano", 2), ("small", 1)))])
def test_awkward_network_with_stalls(config, seed):
    verify_steps(make_case("tiny-residual", 2, 2), config, dram=DramModel(stall=0.3, seed=seed))


def test_the_memory_models_do_slow_the_machine():
    """Else the tests above would prove nothing."""
    case, cycles = make_case("digits-cnn", 3, 1), {}
    for name, model in ({"fast": DramModel()} | MODELS).items():
        runner = open_runner(case, "small", dram=model)
        runner.load(case.initial())
        runner.train(case.images, case.labels, case.hypers)
        cycles[name] = runner.cycles
        runner.close()
    fast = cycles.pop("fast")
    assert cycles.pop("no latency") < fast
    assert all(count > fast for count in cycles.values()), (fast, cycles)
    # Commands that overlap hide a part of the latency.
    assert cycles["one byte a cycle"] > 2 * fast and cycles["latency 300"] > 1.5 * fast
