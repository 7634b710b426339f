"""Software models that stand for a machine have the widths of its sums, in every command; what the machine does is tested in
``system/test_sum_widths_rtl.py``."""

import dataclasses
import json

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host import cli
from gradloom.host.devices.golden_device import GoldenDevice
from gradloom.host.devices.limits import LimitReached, sum_widths
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.session import Session
from gradloom.host.schedule import compile_network
from gradloom.models.arithmetic import pint
from gradloom.models.arithmetic.arith import ArithmeticFault
from gradloom.models.hyper import Hyper
from gradloom.models.network import FullyConnected, Kind, Network
from gradloom.models.state import State
from gradloom.models.widths import FULL_WIDTHS, SumWidths

NARROW = dataclasses.replace(PRESETS["nano"], name="narrow", psum_width=32, wg_width=36)
ADVICE = "lower the learning rate, or scale the images (and given weights) down"
HYPER = Hyper.from_floats(2.0**-10)
TOP = int(pint.code_of(np.array([4032]))[0])
INPUTS = 600
NETWORK = f"""
name = "long"
input = [{INPUTS}, 1, 1]
classes = 3

[[layers]]
type = "fully_connected"
name = "fc"
out = 3

[train]
batch = 4
epochs = 1
lr = 0.001
"""
SHARED = ["--network", "long.toml", "--data", "data.npz"]


@pytest.fixture(params=["golden", "emulator"])
def device(request):
    if request.param == "emulator":
        pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
    return request.param


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A network whose first class has the signs of its first weights in all images: a forward sum takes 33 bits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.toml").write_text(NETWORK)
    (tmp_path / "narrow.toml").write_text('base = "nano"\npsum_width = 32\nwg_width = 36\n')
    network = Network("long", (INPUTS, 1, 1), 3, (FullyConnected(name="fc", out=3),))
    signs = np.sign(pint.decode(State.initial(network, 1, 0).weights["fc"][0]))
    np.savez(tmp_path / "data.npz", x=np.broadcast_to(1.96 * signs, (40, INPUTS, 1, 1)), y=np.arange(40) % 3)
    return tmp_path


def test_widths_are_those_of_the_machine_but_none_beyond_the_arithmetic():
    network = Network("one", (8, 1, 1), 2, (FullyConnected(name="fc", out=2),))
    assert sum_widths(network, PRESETS["small"]) == FULL_WIDTHS == SumWidths(36, 48)
    assert sum_widths(network, PRESETS["eta"]) == SumWidths(36, 44)
    assert sum_widths(network, NARROW) == SumWidths(32, 36)
    assert sum_widths(network, dataclasses.replace(NARROW, psum_width=40, wg_width=48)) == FULL_WIDTHS
    # No machine runs this format.
    assert sum_widths(network.formatted("bfp8"), NARROW) == FULL_WIDTHS


@pytest.mark.parametrize("command", ["train", "resume", "verify", "diff", "eval"])
def test_commands_end_with_the_machines_width_and_exit_code_1(desk, capsys, device, command):
    """A run that overflows stays readable, and stops at the same step when it is resumed. A wider machine goes on."""
    options = [*SHARED, "--device", device]
    narrow = ["--config", "narrow.toml"]
    said = f"layer 'fc': a forward sum does not fit its 32 bits: {ADVICE}"
    if command == "eval":
        assert cli.main(["train", *options, "--config", "nano", "--steps", "2", "--out", "run"]) == 0
    if command == "resume":
        assert cli.main(["train", *options, *narrow, "--out", "run"]) == 1
    arguments = {
        "train": ["train", *options, *narrow, "--out", "run"],
        "resume": ["train", "--resume", "run"],
        "verify": ["verify", *SHARED, "--device", device, "--steps", "2", *narrow],
        "diff": ["diff", *SHARED, "--device", device, "--device", device, "--steps", "2", "--config", "nano", *narrow],
        "eval": ["eval", *SHARED, "--device", device, "--weights", "run", *narrow],
    }[command]
    capsys.readouterr()
    assert cli.main(arguments) == 1
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gradloom: error: ")]
    when = "evaluation after 2 steps" if command == "eval" else "step 0"
    assert len(error) == 1 and error[0].startswith(f"gradloom: error: {when}, {said}"), error
    if command in ("train", "resume"):
        assert error[0].endswith("run holds the state after 0 steps")
        assert json.loads((desk / "run" / "run.json").read_text())["steps"] == []
    else:
        assert cli.main(["nano" if word == "narrow.toml" else word for word in arguments]) == 0


@pytest.mark.parametrize(("command", "device"), [("verify", "golden"), ("verify", "emulator"), ("train", "emulator")],
                         indirect=["device"])
def test_the_golden_model_beside_a_device_notices_an_overflow_that_the_device_does_not(desk, capsys, monkeypatch, device, command):
    """A device whose sums are wider than the machine says."""
    monkeypatch.setattr("gradloom.host.devices.opening.sum_widths", lambda network, config: FULL_WIDTHS)
    where = [] if command == "verify" else ["--out", "run"]
    assert cli.main([command, *SHARED, "--device", device, "--steps", "1", "--config", "narrow.toml", *where]) == 1
    said = "error: golden model beside the device, step 0, layer 'fc': a forward sum does not fit its 32 bits: "
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("inputs", "bits"), [(33, None), (34, 31), (66, 31), (67, 32), (132, 32), (133, 33)])
def test_sums_are_near_the_limit_of_their_machine(device, inputs, bits):
    """So many products of the largest value, of which 33 take 30 bits. The emulator has the first four in int32, or knows no more
    of them than that they fit."""
    network = Network("wide", (inputs, 1, 1), 2, (FullyConnected(name="fc", out=2),))
    state, said = State.initial(network, 1, -12), []
    state.weights["fc"][:] = TOP
    state.exponents |= {network.tid("fc", kind): -30 for kind in (Kind.W, Kind.W_NEXT)}
    images, labels = np.full((2, inputs, 1, 1), TOP, np.uint8), np.arange(2)
    with Session(network, NARROW, 2, device, -12, 1, MemoryOptions()) as session:
        session.notice = said.append
        session.load(state)
        if bits == 33:
            with pytest.raises(LimitReached, match=r"^step 0, layer 'fc': a forward sum does not fit its 32 bits: "):
                session.train([images], [labels], [HYPER])
            return
        outcome = session.train([images], [labels], [HYPER])[0]
    assert dict(outcome.near) == ({} if bits is None else {("fc", "forward sum"): bits})
    assert said == [f"step 0, layer 'fc': a forward sum takes {bits} of its 32 bits, and the run stops where one does not fit: "
                    f"{ADVICE}" for _ in outcome.near]


def test_the_golden_model_behind_a_memory_image_has_them_too():
    network = Network("wide", (133, 1, 1), 2, (FullyConnected(name="fc", out=2),))
    state = State.initial(network, 1, -12)
    state.weights["fc"][:] = TOP
    images, labels = np.full((2, 133, 1, 1), TOP, np.uint8), np.arange(2)
    plan = compile_network(network, NARROW, 2, calibrate=True, export_dw=True)
    runner = ProgramRunner(network, NARROW, 2, 1, lambda size: GoldenDevice([plan], size))
    runner.load(state)
    with pytest.raises(ArithmeticFault, match=r"^layer 'fc': forward sum: .* do not fit 32 bits$"):
        runner.train([images], [labels], [HYPER])
