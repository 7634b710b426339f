"""Knobs that pay for small batches: updates that are carried over to the next step of a start, planes that are cut in rows.

All on the interpreter: the same bytes, however many steps there are and in whatever order the engines work.
"""

import dataclasses

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode
from gradloom.host.cost_model.trace import step_programs
from gradloom.host.knobs import Knobs
from gradloom.host.schedule import compile_network
from gradloom.models.network import INPUT, load_network
from gradloom.models.rounding import Rounding
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.interpreting.step_check import check_start

NAMES = ["tiny-awkward", "tiny-branches", "tiny-deep", "tiny-relu", "tiny-residual", "tiny-strided", "tiny-subsample"]


def _network(name):
    return load_network(str(NETWORKS / f"{name}.toml"))


def _last(name, count):
    """Layers with weights, from the last one back."""
    return tuple(layer.name for layer in _network(name).weighted if layer.input != INPUT)[-count:]


@pytest.mark.parametrize("carried", [1, 99])
@pytest.mark.parametrize("name", NAMES)
def test_carried_updates_write_the_bytes_of_the_golden_model(name, carried):
    for steps in (1, 3):
        check_start(_network(name), PRESETS["small"], batch=2, steps=steps, knobs=Knobs(deferred_layers=_last(name, carried)))


@pytest.mark.parametrize("order", range(3))
def test_orders_of_execution_do_not_matter(order):
    knobs = Knobs(deferred_layers=_last("tiny-residual", 2))
    check_start(_network("tiny-residual"), PRESETS["eta"], batch=3, steps=3, knobs=knobs, order=order)


def test_carried_updates_keep_the_seeds_and_exponents_of_their_step():
    """Every kind of tensor is rounded stochastically, with a seed of its own in each step."""
    rounding = Rounding(activations="stochastic", normalised="stochastic", errors="stochastic")
    network = dataclasses.replace(_network("tiny-residual"), rounding=rounding)
    check_start(network, PRESETS["small"], batch=2, steps=3, knobs=Knobs(deferred_layers=_last("tiny-residual", 2)))


def test_a_start_of_one_step_leaves_nothing():
    """Its updates come behind its LOOP; a program for one step a start carries none over."""
    network, knobs = _network("tiny-residual"), Knobs(deferred_layers=_last("tiny-residual", 2))
    several = compile_network(network, PRESETS["small"], 2, slots=2, table=2, knobs=knobs)
    single = compile_network(network, PRESETS["small"], 2, knobs=knobs)
    assert len(several.labels) == 2 and len(single.labels) == 1
    (whole,), (plain,) = (step_programs(plan.instructions, plan.labels, 1) for plan in (several, single))

    def gradients(program):
        return sum(command.opcode == Opcode.CONV and command["wg"] for command in program)

    assert gradients(whole) == gradients(plain)
    first, again, left = step_programs(several.instructions, several.labels, 2)
    assert gradients(first) + gradients(left) == gradients(again) == gradients(plain)
    assert 0 < gradients(left) < gradients(plain)


@pytest.mark.parametrize(("name", "config", "cut"), [
    pytest.param(name, config, cut, marks=[] if config == "eta" or (n + c) % 3 == 0 else [
        pytest.mark.long("the network in another cut on small, in all on eta; this cut of others on small")])
    for n, name in enumerate([*NAMES, "tiny-stem"]) for config in ("small", "eta") for c, cut in enumerate((4, 6, 15))
])
def test_planes_cut_in_rows_write_the_bytes_of_the_golden_model(name, config, cut):
    knobs = Knobs(subtile_beats=cut, deferred_layers=_last(name, 1))
    check_start(_network(name), PRESETS[config], batch=1, steps=2, knobs=knobs, order=cut)
