"""One changed byte of any tensor in the memory of the machine must be told by layer, tensor and element."""

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host import cli
from gradloom.host.devices import opening
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.verification import Difference, compare_tensors
from gradloom.host.schedule import compile_network
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import StepResult
from gradloom.models.state import State
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.system_bench import Case, make_case, open_runner, verify_step

Trained = tuple[Case, ProgramRunner, StepResult, State]


@pytest.fixture(scope="module")
def trained():
    """By network: a machine after a step that equals golden, the golden result and the golden state."""
    machines: dict[str, Trained] = {}
    for name in ("digits-cnn", "tiny-residual"):
        case = make_case(name, 2, 1)
        runner, state = open_runner(case, "small"), case.initial()
        runner.load(state)
        runner.train(case.images, case.labels, case.hypers)
        result = golden.train_step(case.network, state, case.images[0], case.labels[0], case.hypers[0])
        assert compare_tensors(case.network, 0, result, state, runner).difference is None
        machines[name] = case, runner, result, state
    yield machines
    for _, runner, _, _ in machines.values():
        runner.close()


def regions(name: str) -> list[tuple[str, str, str]]:
    """Network, layer and name of the memory regions that hold what a step writes."""
    case = make_case(name, 2, 1)
    memory = compile_network(case.network, PRESETS["small"], case.batch, export_dw=True).memory
    kinds = ("feature", "bitmap", "reciprocals", "blocks", "dw", "parameters", "logits")
    return [
        (name, *key)
        for key, region in memory.regions.items()
        if region.kind in kinds and key[0] not in ("", "input")
    ]


REGIONS = regions("digits-cnn") + [entry for entry in regions("tiny-residual") if entry[2] == "ds"]


def test_every_kind_of_tensor_is_among_them():
    assert {name for _, _, name in REGIONS} == {
        "z",
        "w",
        "parameters",
        "v",
        "rest",
        "dz",
        "xhat",
        "reciprocals",
        "bit",
        "dx",
        "ds",
        "dw",
        "index",
        "logits",
        "error",
    }


def where(case: Case, runner: ProgramRunner, result: StepResult) -> tuple[str, str, tuple[int, ...]]:
    """First element that differs from golden, found without the comparison under test."""
    for layer, name in golden.expected_tensors(case.network):
        unequal = np.argwhere(runner.tensor(layer, name) != result.tensors[layer, name])
        if len(unequal):
            return layer, name, tuple(int(i) for i in unequal[0])
    raise AssertionError("nothing differs")


@pytest.mark.parametrize("place", REGIONS, ids=["-".join(place[1:]) for place in REGIONS])
def test_one_changed_byte_in_memory_is_told_by_name(trained: dict[str, Trained], place):
    (case, runner, result, state), key = trained[place[0]], place[1:]
    region = runner.steady.memory[key]
    size, rng = region.data_bytes(), np.random.default_rng(1)
    held = runner.device.read(region.address, size)
    for byte in rng.permutation(size):
        bent = bytearray(held)
        bent[byte] ^= 1 << int(rng.integers(8))
        if not same(region.unpack(bytes(bent), 2), region.unpack(held, 2)):
            break  # padding carries no value; this byte does
    runner.device.write(region.address, bytes(bent))
    try:
        difference = compare_tensors(case.network, 0, result, state, runner).difference
        assert isinstance(difference, Difference)
        layer, name, index = where(case, runner, result)
        assert layer == key[0]
        assert (difference.layer, difference.tensor, difference.index) == (layer, name, index)
        assert difference.golden == result.tensors[layer, name][index] != difference.device
        if key in (("conv1", "z"), ("conv2", "dx")):
            assert difference.cycle is not None and 0 < difference.cycle <= runner.device.cycle, (
                "the machine wrote it"
            )
    finally:
        runner.device.write(region.address, held)
    assert compare_tensors(case.network, 0, result, state, runner).difference is None


def same(a, b) -> bool:
    if isinstance(a, list | tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b)


def test_a_changed_exponent_is_told(trained: dict[str, Trained]):
    case, runner, result, state = trained["digits-cnn"]
    for tid in state.exponents:
        state.exponents[tid] ^= 1
        difference = compare_tensors(case.network, 0, result, state, runner).difference
        assert difference is not None and difference.tensor == f"exponent {tid % 8}"
        state.exponents[tid] ^= 1


def test_a_weight_changed_before_a_step_is_noticed_in_the_step():
    case = make_case("digits-cnn", 2, 2)
    runner, state = open_runner(case, "small"), case.initial()
    runner.load(state)
    verify_step(case, runner, state, 0)
    address = runner.steady.memory["conv2", "w"].address
    old = runner.device.read(address, 1)
    runner.device.write(address, bytes([old[0] ^ 0x81]))
    with pytest.raises(AssertionError, match=r"step 1, layer 'conv2', tensor (z|xhat), element \[0, 0"):
        verify_step(case, runner, state, 1)
    runner.close()


class Bent(RtlDevice):
    """Changes one byte of its memory when the second start has ended."""

    starts = 0

    def run(self, max_cycles: int) -> int:
        cycles = super().run(max_cycles)
        if self.irq:
            self.starts += 1
            if self.starts == 2:
                self.write(Bent.address, bytes([self.read(Bent.address, 1)[0] ^ 0x40]))
        return cycles


@pytest.mark.parametrize("command", ["verify", "train"])
def test_command_fails_with_the_name_and_exit_code_1(command, monkeypatch, capsys, tmp_path):
    case = make_case("digits-cnn", 4, 1)
    runner = open_runner(case, "small")
    Bent.address = runner.steady.memory["conv1", "dx"].address
    runner.close()
    monkeypatch.setattr(
        opening, "rtl_device", lambda config, size, memory: Bent(config, dram_bytes=size, track_writes=True)
    )
    more = ["--check", "all", "--out", str(tmp_path / "run")] if command == "train" else []
    assert cli.main([command, "--config", "small", "--batch", "4", "--steps", "4", *more]) == 1
    out = capsys.readouterr().out
    assert (
        "step 1" in out
        and "layer 'conv1', tensor dx, element [0, 0, 0, 0]" in out
        and "written in cycle" in out
    )
    assert "0 differences" not in out
