"""Training steps on the interpreter against the golden model, every tensor and exponent compared."""

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.knobs import Knobs
from gradloom.host.machine_program import MachineProgram
from gradloom.host.program.validator import validate
from gradloom.host.schedule import compile_network
from gradloom.models.golden.step import Hyper, train_step
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.verif.interpreting.interpreter import Interpreter

__all__ = ["HYPERS", "check_start", "check_steps", "random_images", "start_machine"]

HYPERS = (Hyper(200, 9, 230, 255), Hyper(150, 10, 220, 12))
"""Hyperparameters of two steps, the second with weight decay."""


def random_images(network: Network, batch: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Codes (B, C, Y, X) without those that no encoder writes, and class numbers."""
    codes = rng.integers(0, 256, (batch, *network.input_shape)).astype(np.uint8)
    legal = np.where((codes == 0x80) | (codes == 0xFF), 0, codes).astype(np.uint8)
    return legal, rng.integers(0, network.classes, batch)


def start_machine(plan: MachineProgram, state: State, order: int | None) -> Interpreter:
    """A machine with program, state and exponents; ``order``: seed of the engines' order, ``None``: that of the program."""
    machine = Interpreter(plan.config, plan.size, seed=order)
    machine.run_seed, machine.step = state.seed, state.step
    plan.write_program(machine, state.step)
    plan.write_state(machine, state)
    for tid, exponent in plan.exponents(state).items():
        machine.exponents[tid] = exponent
    return machine


def check_steps(
    network: Network,
    config: Config,
    *,
    batch: int = 3,
    steps: int = 2,
    parts: int = 1,
    order: int | None = None,
    knobs: Knobs | None = None,
) -> list[MachineProgram]:
    """Steps of a training run, each on a machine of its own, of valid programs. Returns these."""
    rng, state = np.random.default_rng(5), State.initial(network, 7, -9)
    plans = []
    for step in range(steps):
        x, labels = random_images(network, batch, rng)
        calibrate = not state.calibrated
        plan = compile_network(
            network, config, batch, calibrate=calibrate, export_dw=config.export_depth > 0, parts=1 if calibrate else parts,
            knobs=knobs
        )
        assert validate(plan.program(step), config, window=(0, plan.size), first_step=step) == []
        machine = start_machine(plan, state, order)
        plan.write_batch(machine, 0, x, labels)
        plan.write_hyper(machine, [HYPERS[step]])
        machine.execute(plan.program_address, 1)
        result = train_step(network, state, x, labels, HYPERS[step])
        for layer, name in plan.tensors():
            found = plan.read(machine, layer, name)
            assert np.array_equal(found, result.tensors[layer, name]), f"step {step}: {layer}.{name}"
        assert {tid: machine.exponents[tid] for tid in state.exponents} == state.exponents
        again = plan.read_state(machine, dict(enumerate(machine.exponents)), step=state.step, seed=state.seed)
        assert all(np.array_equal(again.arrays()[key], value) for key, value in state.arrays().items())
        plans.append(plan)
    return plans


def check_start(
    network: Network, config: Config, *, batch: int, steps: int, knobs: Knobs, order: int | None = None
) -> MachineProgram:
    """Steps of one start behind a calibrating step of the golden model: every tensor of the last one, all logits, the state."""
    rng, state = np.random.default_rng(6), State.initial(network, 7, -9)
    x, labels = random_images(network, batch, rng)
    train_step(network, state, x, labels, HYPERS[0])
    plan = compile_network(network, config, batch, slots=steps, table=steps, export_dw=config.export_depth > 0,
                           knobs=knobs)
    assert validate(plan.program(1), config, window=(0, plan.size), first_step=1, steps=steps) == []
    machine = start_machine(plan, state, order)
    batches = [random_images(network, batch, rng) for _ in range(steps)]
    hypers = [HYPERS[step % len(HYPERS)] for step in range(steps)]
    for slot, (x, labels) in enumerate(batches):
        plan.write_batch(machine, slot, x, labels)
    plan.write_hyper(machine, hypers)
    machine.execute(plan.program_address, steps)
    for slot, (x, labels) in enumerate(batches):
        result = train_step(network, state, x, labels, hypers[slot])
        found = plan.read_logits(machine, slot)
        assert np.array_equal(found, result.tensors[network.logits.name, "logits"]), f"step {slot}: logits"
    for layer, name in plan.tensors():
        found = plan.read(machine, layer, name, steps - 1 if name == "logits" else 0)
        assert np.array_equal(found, result.tensors[layer, name]), f"{layer}.{name}"
    assert {tid: machine.exponents[tid] for tid in state.exponents} == state.exponents
    again = plan.read_state(machine, dict(enumerate(machine.exponents)), step=state.step, seed=state.seed)
    assert all(np.array_equal(again.arrays()[key], value) for key, value in state.arrays().items())
    return plan
