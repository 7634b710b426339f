"""A session on the golden model, and the same programs' memory image behind the same interface: one result."""

from pathlib import Path

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.golden_device import GoldenDevice
from gradloom.host.devices.opening import STEPS_PER_START, MemoryOptions
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.session import Session
from gradloom.host.devices.verification import compare_tensors
from gradloom.host.schedule import compile_network
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.verif.checkout import NETWORKS as NETWORK_FOLDER

NETWORKS = [
    "digits-cnn",
    *(str(path) for path in sorted(NETWORK_FOLDER.glob("*.toml"))),
]
STEPS, BATCH, SEED = 4, 3, 11


def material(name: str):
    network = load_network(name)
    images, labels, exponent = synthetic_images(network, STEPS * BATCH, SEED)
    batches = [slice(BATCH * k, BATCH * (k + 1)) for k in range(STEPS)]
    return (
        network,
        [images[b] for b in batches],
        [labels[b] for b in batches],
        exponent,
        golden.schedule_table(network.train, STEPS),
    )


def reference(network, xs, ys, exponent, hypers) -> State:
    state = State.initial(network, SEED, exponent)
    for x, y, hyper in zip(xs, ys, hypers, strict=True):
        golden.train_step(network, state, x, y, hyper)
    return state


@pytest.mark.parametrize("name", NETWORKS, ids=[Path(name).stem for name in NETWORKS])
def test_session_is_the_golden_model(name):
    network, xs, ys, exponent, hypers = material(name)
    state = State.initial(network, SEED, exponent)
    with Session(network, PRESETS["nano"], BATCH, "golden", exponent, SEED, MemoryOptions()) as session:
        session.load(state)
        heard: list[float] = []
        outcomes = session.train(xs, ys, hypers, heard.append)
        assert heard == [1, 2, 3, 4] and len(outcomes) == STEPS
        assert digests.parameters_digest(network, session.state()) == digests.parameters_digest(
            network, reference(network, xs, ys, exponent, hypers)
        )
        assert session.cycles is None and session.cycle_table(None) is None
    assert state.step == 0, "a session works on its own copy"


def test_a_copy_of_the_state_is_handed_out():
    network, xs, ys, exponent, hypers = material("digits-cnn")
    with Session(network, PRESETS["nano"], BATCH, "golden", exponent, SEED, MemoryOptions()) as session:
        session.load(State.initial(network, SEED, exponent))
        session.train(xs[:1], ys[:1], hypers[:1])
        before = digests.parameters_digest(network, session.state())
        session.state().weights["conv1"][:] = 0
        assert digests.parameters_digest(network, session.state()) == before


def test_evaluation_in_batches_of_any_size_is_one_result():
    network, xs, ys, exponent, hypers = material("digits-cnn")
    state = reference(network, xs, ys, exponent, hypers)
    images, labels, _ = synthetic_images(network, 10, 5)
    scores = []
    for batch in (3, 10, 16):
        with Session(network, PRESETS["nano"], batch, "golden", exponent, SEED, MemoryOptions()) as session:
            session.load(state)
            score = session.evaluate(images, labels)
            scores.append((round(score.loss, 9), score.correct, score.images))
            assert digests.parameters_digest(network, session.state()) == digests.parameters_digest(
                network, state
            )
    assert len(set(scores)) == 1


@pytest.mark.parametrize(
    ("name", "config"),
    [("digits-cnn", "nano"), *((name, config) for name in NETWORKS for config in ("small", "eta"))],
    ids=lambda value: Path(value).stem,
)
def test_runner_on_the_golden_device(name, config):
    """Every tensor that the network says must exist survives the way into and out of the memory image of each machine."""
    network, xs, ys, exponent, hypers = material(name)
    machine = PRESETS[config]
    runner = open_golden(network, machine)
    state = State.initial(network, SEED, exponent)
    runner.load(state)
    for k in range(2):
        runner.train(xs[k : k + 1], ys[k : k + 1], hypers[k : k + 1])
        result = golden.train_step(network, state, xs[k], ys[k], hypers[k])
        comparison = compare_tensors(network, k, result, state, runner)
        assert comparison.difference is None, str(comparison.difference)
        assert comparison.tensors == len(golden.expected_tensors(network)) + len(state.exponents)
    runner.train(xs[2:], ys[2:], hypers[2:])
    assert digests.parameters_digest(network, runner.state()) == digests.parameters_digest(
        network, reference(network, xs, ys, exponent, hypers)
    )
    assert np.array_equal(runner.logits(xs[0]), golden.evaluate(network, runner.state(), xs[0], ys[0]).logits)


def open_golden(network, machine) -> ProgramRunner:
    """A runner whose device knows the runner's own programs."""
    device: list[GoldenDevice] = []

    def opened(size: int) -> GoldenDevice:
        steady = dict(slots=STEPS_PER_START, table=STEPS_PER_START, export_dw=True)
        plans = [
            compile_network(network, machine, BATCH, calibrate=calibrate, **steady)
            for calibrate in (False, True)
        ]
        plans.append(compile_network(network, machine, BATCH, training=False, beside=tuple(plans)))
        device.append(GoldenDevice(plans, size))
        return device[0]

    return ProgramRunner(network, machine, BATCH, STEPS_PER_START, opened)


def test_flipped_tensors_are_told_by_name():
    """One changed element of any tensor makes the comparison name layer, tensor, element and both values."""
    network, xs, ys, exponent, hypers = material("digits-cnn")
    state = State.initial(network, SEED, exponent)
    runner = open_golden(network, PRESETS["small"])
    runner.load(state)
    runner.train(xs[:1], ys[:1], hypers[:1])
    result = golden.train_step(network, state, xs[0], ys[0], hypers[0])
    for layer, name in golden.expected_tensors(network):
        kept = result.tensors[layer, name]
        changed = np.array(kept)
        index = tuple(n // 2 for n in changed.shape)
        changed[index] = not changed[index] if changed.dtype == bool else changed[index] ^ 1
        result.tensors[layer, name] = changed
        difference = compare_tensors(network, 0, result, state, runner).difference
        assert difference is not None and (difference.layer, difference.tensor, difference.index) == (
            layer,
            name,
            index,
        )
        assert f"layer {layer!r}, tensor {name}, element {list(index)}" in str(difference)
        assert difference.golden != difference.device
        result.tensors[layer, name] = kept
    for tid in state.exponents:
        state.exponents[tid] += 1
        assert compare_tensors(network, 0, result, state, runner).difference is not None
        state.exponents[tid] -= 1


def test_an_evaluation_tells_what_comes(monkeypatch):
    """Each batch but the last one is followed by the next."""
    told = []
    network = load_network(str(NETWORK_FOLDER / "tiny-relu.toml"))
    with Session(network, PRESETS["small"], 4, "golden", 0, 0, MemoryOptions()) as session:
        session.load(State.initial(network, 0, 0))
        images, labels, _ = synthetic_images(network, 10, SEED)
        session.train([images[:4]], [labels[:4]], golden.schedule_table(network.train, 1))
        monkeypatch.setattr(session._device, "expect", lambda images: told.append([len(batch) for batch in images()]))
        session.evaluate(images, labels)
    assert told == [[4], [2], []]
