"""Plans: memory maps, images of states and batches; golden model and interpreter behind one runner."""


import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Opcode
from gradloom.host.devices.golden_device import GoldenDevice
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.host.program_doc import text
from gradloom.host.schedule import compile_network
from gradloom.models.golden.step import Hyper, evaluate, expected_tensors, train_step
from gradloom.models.network import INPUT, load_network
from gradloom.models.state import State
from gradloom.verif.checkout import DOCS, NETWORKS
from gradloom.verif.interpreting.interpreter import Interpreter

NETWORK = load_network(str(NETWORKS / "tiny-residual.toml"))


def _images(batch, rng):
    codes = rng.integers(0, 127, (batch, *NETWORK.input_shape)).astype(np.uint8)
    return codes, rng.integers(0, NETWORK.classes, batch)


@pytest.mark.parametrize("config", PRESETS)
def test_regions_do_not_overlap_and_hold_every_tensor(config):
    exports = PRESETS[config].export_depth > 0
    plan = compile_network(NETWORK, PRESETS[config], 3, slots=2, table=5, export_dw=exports, parts=2 if exports else 1)
    end = 0
    for region in plan.memory.regions.values():
        assert region.address >= end and region.address % 64 == 0 and region.data_bytes() <= region.step_bytes
        end = region.address + region.size
    assert plan.program_address >= end and plan.program_address % 64 == 0
    assert plan.size >= plan.program_address + len(plan.program())
    device = SoftwareDevice(plan.config, plan.size)
    for layer, name in expected_tensors(NETWORK):
        if name != "dw" or exports:
            assert plan.read(device, layer, name) is not None


@pytest.mark.parametrize("config", ["nano", "eta"])
def test_what_is_written_is_read(config):
    rng = np.random.default_rng(1)
    plan = compile_network(NETWORK, PRESETS[config], 2, slots=2, table=2)
    device, state = SoftwareDevice(plan.config, plan.size), State.initial(NETWORK, 5, -9)
    for arrays in (state.weights, state.velocities):
        for name, value in arrays.items():
            arrays[name] = rng.integers(0, 256, value.shape).astype(np.uint8)
    for tables in (state.parameters, state.parameter_velocities):
        for table in tables.values():
            for key, value in table.items():
                table[key] = rng.integers(-(2**31), 2**31, value.shape).astype(np.int32)
    plan.write_state(device, state)
    found = plan.read_state(device, state.exponents, step=9, seed=5)
    assert all(np.array_equal(found.arrays()[key], value) for key, value in state.arrays().items())
    assert (found.step, found.seed, found.calibrated) == (9, 5, True)
    for slot in range(2):
        x, labels = _images(2, rng)
        plan.write_batch(device, slot, x, labels)
        assert np.array_equal(plan.read(device, INPUT, "z", slot), x)
        assert np.array_equal(plan.read_labels(device, slot), labels)
    with pytest.raises(ValueError, match="there is no place 2"):
        plan.write_batch(device, 2, x, labels)
    with pytest.raises(ValueError, match="a batch must have the shape"):
        plan.write_batch(device, 0, x[:1], labels)
    with pytest.raises(ValueError, match="the hyperparameter table has 2 entries, 3 were given"):
        plan.write_hyper(device, [Hyper(200, 9)] * 3)


def test_the_first_step_moves_only_the_base_of_the_table():
    plan = compile_network(NETWORK, PRESETS["small"], 2)
    first, later = plan.program(0), plan.program(1000)
    assert len(first) == len(later)
    assert sum(a != b for a, b in zip(first, later, strict=True)) <= 4
    assert [i.opcode for i in plan.instructions].count(Opcode.LOOP) == 1


@pytest.mark.parametrize("kind", ["interpreter", "golden"])
def test_a_run_behind_the_runner_gives_the_golden_bytes(kind):
    """Calibration, several steps of one start, evaluation, going on."""
    rng, config = np.random.default_rng(3), PRESETS["small"]

    def opened(size):
        if kind == "interpreter":
            return Interpreter(config, size, seed=6)
        plans = [
            compile_network(NETWORK, config, 2, calibrate=first, slots=2, table=2, export_dw=True)
            for first in (False, True)
        ]
        return GoldenDevice([*plans, compile_network(NETWORK, config, 2, training=False, beside=plans)], size)

    runner = ProgramRunner(NETWORK, config, 2, 2, opened)
    state = State.initial(NETWORK, 5, -9)
    runner.load(state)
    batches = [_images(2, rng) for _ in range(4)]
    hypers = [Hyper(200, 9), Hyper(190, 9, 220, 11), Hyper(180, 9), Hyper(170, 9)]
    outcomes = runner.train([x for x, _ in batches], [labels for _, labels in batches], hypers)
    for (x, labels), hyper, outcome in zip(batches, hypers, outcomes, strict=True):
        result = train_step(NETWORK, state, x, labels, hyper)
        assert (outcome.loss, outcome.correct) == (result.loss, result.correct)
    found = runner.state()
    assert all(np.array_equal(found.arrays()[key], value) for key, value in state.arrays().items())
    assert found.exponents == state.exponents and found.step == 4
    for layer, name in expected_tensors(NETWORK):
        assert np.array_equal(runner.tensor(layer, name), result.tensors[layer, name]), f"{layer}.{name}"
    x, labels = batches[0]
    assert np.array_equal(runner.logits(x), evaluate(NETWORK, state, x, labels).logits)
    again = runner.train([batches[1][0]], [batches[1][1]], hypers[:1])
    assert again[0].loss == train_step(NETWORK, state, *batches[1], hypers[0]).loss
    assert runner.exponents() == state.exponents


def test_a_golden_device_refuses_an_unknown_program():
    plan = compile_network(NETWORK, PRESETS["small"], 2)
    device = GoldenDevice([plan], plan.size)
    with pytest.raises(ValueError, match="are none of the programs that this device knows"):
        device.execute(plan.program_address, 1)


def test_the_page_about_programs_is_up_to_date():
    page = DOCS / "program.md"
    assert page.read_text() == text(), "run python -m gradloom.host.program_doc > docs/program.md"
