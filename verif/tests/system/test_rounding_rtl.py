"""Every rounding exchanged, and subsampling shortcuts: simulated hardware against the golden model, byte for byte."""

import dataclasses

import pytest

from gradloom.models.golden import step as golden
from gradloom.verif.system_bench import Case, golden_digest, make_case, open_runner, train_digest, verify_steps

FLIPPED = {
    "activations": "stochastic",
    "normalised": "stochastic",
    "errors": "stochastic",
    "weights": "nearest",
    "velocities": "nearest",
}


def flipped(name: str, batch: int, steps: int) -> Case:
    case = make_case(name, batch, steps)
    return dataclasses.replace(case, network=case.network.rounded(FLIPPED))


@pytest.mark.parametrize(("name", "config"), [
    pytest.param(name, config, marks=[pytest.mark.long("the network runs on small, nano with two others")]
                 if config == "nano" and name not in ("tiny-awkward", "tiny-relu") else [])
    for name in ("tiny-awkward", "tiny-branches", "tiny-relu", "tiny-residual", "tiny-strided", "tiny-subsample")
    for config in ("nano", "small")
])
def test_every_rounding_flipped(name, config):
    verify_steps(flipped(name, 3, 3), config)


@pytest.mark.parametrize("config", [
    pytest.param("nano", marks=pytest.mark.long("a third step of what test_verify computes in two")), "small"])
def test_subsampling_shortcuts(config):
    verify_steps(make_case("tiny-subsample", 3, 3), config)


@pytest.mark.parametrize("kind", FLIPPED)
def test_one_rounding_flipped(kind):
    case = make_case("digits-cnn", 4, 3)
    case = dataclasses.replace(case, network=case.network.rounded({kind: FLIPPED[kind]}))
    assert train_digest(case, "small") == golden_digest(case)


def test_evaluation_draws_the_bits_of_a_step():
    """Logits of a forward program equal the golden model's, and training goes on as if nothing had been evaluated."""
    case = flipped("tiny-residual", 3, 3)
    runner, state = open_runner(case, "small"), case.initial()
    try:
        runner.load(state)
        for step in range(3):
            runner.train([case.images[step]], [case.labels[step]], [case.hypers[step]])
            golden.train_step(case.network, state, case.images[step], case.labels[step], case.hypers[step])
            logits = golden.evaluate(case.network, state, case.images[0], case.labels[0]).logits
            assert (runner.logits(case.images[0]) == logits).all()
        assert runner.state().exponents == state.exponents
    finally:
        runner.close()
