"""Limits of the numbers are told alike on every device: overflows with step, layer and advice, sums near them, saturated logits."""

import importlib
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import ErrorCode, offset, register
from gradloom.host import cli
from gradloom.host.devices import limits
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import LimitReached
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.session import Session
from gradloom.models import digests
from gradloom.models.arithmetic import pint
from gradloom.models.arithmetic.arith import ArithmeticFault
from gradloom.models.hyper import Hyper
from gradloom.models.network import FullyConnected, Kind, Network
from gradloom.models.state import State
from gradloom.verif.cli_desk import GOOD, lay

NANO = PRESETS["nano"]
TOP = int(pint.code_of(np.array([4032]))[0])
"""Code of the largest value."""
ADVICE = "lower the learning rate, or scale the images (and given weights) down"
HYPER = Hyper.from_floats(0.05)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a small network and small data, as the working directory."""
    monkeypatch.chdir(tmp_path)
    return lay(tmp_path)


def wide(inputs: int) -> Network:
    return Network("wide", (inputs, 1, 1), 2, (FullyConnected(name="fc", out=2),))


def full(network: Network, exponent: int = 0) -> State:
    """A state whose weights all have the largest code."""
    state = State.initial(network, 1, -12)
    state.weights["fc"][:] = TOP
    state.exponents |= {network.tid("fc", kind): exponent for kind in (Kind.W, Kind.W_NEXT)}
    return state


def batch(network: Network, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return np.full((count, *network.input_shape), TOP, np.uint8), np.arange(count) % 2


@pytest.fixture(params=["golden", "emulator"])
def device(request):
    if request.param == "emulator":
        pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    return request.param


def opened(network: Network, state: State, device: str, said: list[str] | None = None) -> Session:
    session = Session(network, NANO, 2, device, -12, 1, MemoryOptions())
    session.load(state)
    if said is not None:
        session.notice = said.append
    return session


def test_an_overflow_names_step_layer_limit_and_advice_and_changes_nothing(device):
    """The machine's codes for the same events are tested below."""
    network = wide(2304)
    state = full(network)
    state.step, state.calibrated = 7, True
    with opened(network, state, device) as session:
        before = digests.parameters_digest(network, session.state())
        with pytest.raises(LimitReached) as caught:
            session.train([batch(network)[0]], [batch(network)[1]], [HYPER])
        assert str(caught.value) == f"step 7, layer 'fc': a forward sum does not fit its 36 bits: {ADVICE}"
        with pytest.raises(MachineError, match=r"^evaluation after 7 steps, layer 'fc': a forward sum does not fit its 36 bits: "):
            session.evaluate(*batch(network))
        assert session.state().step == 7 and digests.parameters_digest(network, session.state()) == before


def test_a_step_that_overflows_in_its_update_changes_nothing(device, monkeypatch):
    """A fault in the last thing that a step does: weights of layers before it have been updated by then."""
    network = Network("two", (4, 1, 1), 2, (FullyConnected(name="first", out=4, act="relu"), FullyConnected(name="fc", out=2)))
    module = importlib.import_module(f"gradloom.models.{device}.step")
    real = module.update_weights

    def faulty(*arguments: Any) -> Any:
        # Golden updates layer by layer, the emulator all at once.
        layer = next((argument for argument in arguments if isinstance(argument, FullyConnected)), None)
        result = real(*arguments)
        if layer is None or layer.name == "fc":
            raise ArithmeticFault("velocity", 64, "a sum does not fit 64 bits")
        return result

    monkeypatch.setattr(module, "update_weights", faulty)
    with opened(network, State.initial(network, 1, -12), device) as session:
        before = digests.parameters_digest(network, session.state())
        with pytest.raises(LimitReached):
            session.train([batch(network)[0]], [batch(network)[1]], [HYPER])
        assert session.state().step == 0 and digests.parameters_digest(network, session.state()) == before


def test_numbers_of_the_a_core_are_told_by_their_phase():
    fault = ArithmeticFault("velocity", 64, "a sum does not fit 64 bits")
    fault.layer, fault.phase = "c", "WG + WU"
    with pytest.raises(LimitReached) as caught, limits.told("step 3"):
        raise fault
    assert str(caught.value) == ("step 3, layer 'c': a sum of the A-Core (WG + WU) does not fit its 64 bits, or a factor its 48: "
                                 + ADVICE)


class Stopped:
    """Registers of a machine that has stopped in step 5."""

    def __init__(self, code: ErrorCode, tag: int) -> None:
        error = register("ERROR")
        values = {"code": int(code), "tag": tag}
        self.values = {offset("ERROR"): sum(value << error.field(name).lsb for name, value in values.items()), offset("STEP"): 5}

    def csr_read(self, place: int) -> int:
        return self.values.get(place, 0)


@pytest.mark.parametrize(("code", "phase", "training", "sentence"), [
    (ErrorCode.PSUM_OVERFLOW, 0, True, "step 5, layer 'fc': a forward sum does not fit its 36 bits"),
    (ErrorCode.PSUM_OVERFLOW, 0, False, "evaluation after 9 steps, layer 'fc': a forward sum does not fit its 36 bits"),
    (ErrorCode.PSUM_OVERFLOW, 1, True, "step 5, layer 'fc': a backward sum does not fit its 36 bits"),
    (ErrorCode.WG_OVERFLOW, 3, True, "step 5, layer 'fc': a weight gradient does not fit its 44 bits"),
    (ErrorCode.GRADIENT_SUM_OVERFLOW, 3, True,
     "step 5, layer 'fc': a sum of the A-Core (WG + WU) does not fit its 64 bits, or a factor its 48"),
])
def test_the_machines_codes_become_the_same_sentences(code, phase, training, sentence):
    """The machine's own widths are told: weight gradients of eta have 44 bits."""
    runner: Any = ProgramRunner.__new__(ProgramRunner)
    runner.network, runner.config, runner.device, runner._step = wide(8), PRESETS["eta"], Stopped(code, 8 + phase), 9
    found = runner._error(SimpleNamespace(training=training, carried=()))
    assert isinstance(found, LimitReached) and str(found) == f"{sentence}: {ADVICE}"


@pytest.mark.parametrize(("code", "phase", "step"), [
    (ErrorCode.WG_OVERFLOW, 3, 4), (ErrorCode.GRADIENT_SUM_OVERFLOW, 3, 4), (ErrorCode.PSUM_OVERFLOW, 0, 5),
    (ErrorCode.PSUM_OVERFLOW, 1, 5), (ErrorCode.GRADIENT_SUM_OVERFLOW, 2, 5)])
def test_a_carried_update_is_that_of_the_step_before_the_counted_one(code, phase, step):
    """What else belongs to such a layer is of the step that the machine counts, and so is the update of another layer."""
    runner: Any = ProgramRunner.__new__(ProgramRunner)
    runner.network, runner.config, runner.device, runner._step = wide(8), NANO, Stopped(code, 8 + phase), 3
    for carried, expected in (("fc",), step), (("other",), 5):
        found = str(runner._error(SimpleNamespace(training=True, carried=carried)))
        assert found.startswith(f"step {expected}, layer 'fc': a "), found


def test_other_errors_of_the_machine_keep_their_code_and_place():
    runner: Any = ProgramRunner.__new__(ProgramRunner)
    runner.network, runner.config, runner.device, runner._step = wide(8), NANO, Stopped(ErrorCode.WATCHDOG, 0), 0
    found = runner._error(SimpleNamespace(training=True, carried=()))
    assert not isinstance(found, LimitReached) and str(found).startswith("the machine stopped with error 0x03 (no engine finished")


@pytest.mark.parametrize(("inputs", "bits"), [(528, None), (529, 35), (1100, 36)])
def test_sums_are_near_the_limit_by_their_values(device, inputs, bits):
    """2^33 is the first magnitude that takes 35 of 36 bits: 528.4 products of the largest value. A warning comes once."""
    network, said = wide(inputs), []
    with opened(network, full(network, exponent=-30), device, said) as session:
        outcomes = session.train(*zip(*[(*batch(network), HYPER)] * 2, strict=True))
    expected = {} if bits is None else {("fc", "forward sum"): bits}
    assert dict(outcomes[0].near) == expected
    sentence = f"step 0, layer 'fc': a forward sum takes {bits} of its 36 bits, and the run stops where one does not fit: {ADVICE}"
    assert said == [sentence for _ in expected]


def test_a_wide_layer_is_not_near_the_limit_for_its_width(device):
    """9216 inputs could overflow; with weights of usual sizes no sum comes near."""
    network, said = wide(9216), []
    with opened(network, State.initial(network, 1, -12), device, said) as session:
        x = np.random.default_rng(1).integers(0, 256, (2, 9216, 1, 1)).astype(np.uint8)
        outcome = session.train([x], [np.array([0, 1])], [HYPER])[0]
    assert not outcome.near and not said


def test_saturated_logits_are_counted_and_told_once(device):
    """Weights a million times too large."""
    network, said = wide(8), []
    with opened(network, full(network, exponent=8), device, said) as session:
        outcomes = session.train(*zip(*[(*batch(network), HYPER)] * 2, strict=True))
        score = session.evaluate(*batch(network))
    assert outcomes[0].saturated == 4 and score.images == 2
    assert said == ["step 0, layer 'fc': 4 of 4 logits saturate at the ends of their range, -32768 and 32768, where neither "
                    f"loss nor gradient follows them: {ADVICE}"]


def test_a_loss_that_is_no_number_ends_the_run(desk, capsys):
    np.savez(desk / "loud.npz", x=np.full((20, 1, 6, 6), 1e30), y=np.arange(20) % 3)
    options = ["--network", "tiny.toml", "--data", "loud.npz", "--device", "golden", "--format", "fp32", "--lr", "64"]
    assert cli.main(["train", *options, "--epochs", "20", "--out", "run"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("gradloom: error: step ") and "the loss is nan, no number" in error
    json.loads((desk / "run" / "run.json").read_text())


def test_saturation_is_in_the_record(desk, capsys):
    """A checkpoint whose weights are a million times too large: told in eval and in training, counted in the record."""
    assert cli.main(["train", *GOOD, "--steps", "1", "--out", "run"]) == 0
    with np.load(desk / "run" / "checkpoint.npz") as archive:
        arrays = dict(archive)
    arrays["exponents"][arrays["exponents"][:, 0] == 24 + Kind.W, 1] += 20
    np.savez(desk / "run" / "checkpoint.npz", **arrays)
    capsys.readouterr()
    assert cli.main(["eval", *GOOD, "--weights", "run"]) == 0
    assert "warning: evaluation after 1 steps, layer 'logits': " in capsys.readouterr().err
    record = json.loads((desk / "run" / "run.json").read_text()) | {"total_steps": 2}
    (desk / "run" / "run.json").write_text(json.dumps(record))
    assert cli.main(["train", "--resume", "run"]) == 0
    assert "warning: step 1, layer 'logits': " in capsys.readouterr().err
    assert json.loads((desk / "run" / "run.json").read_text())["steps"][1]["saturated_logits"] > 0
