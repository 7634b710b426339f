"""``gradloom diff``: two devices live and two run folders; the first difference is named, and a waveform shows it."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import offset
from gradloom.host import cli
from gradloom.host.devices.session import Session
from gradloom.host.devices.tensor_order import execution_order, phase
from gradloom.host.diff import diff_live
from gradloom.models.golden import step as golden
from gradloom.models.network import load_network
from gradloom.sim import rtl_device

SHORT = ["--steps", "2", "--batch", "2"]


class Altered(Session):
    """The golden model whose step 1 changes one element of each given tensor."""

    tensors: tuple[tuple[str, str], ...] = ()
    number = 0
    """Sessions made; every second one alters."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.altered = self.number % 2 == 1
        type(self).number += 1
        self.steps = 0

    def train(self, images, labels, hypers, report=None):
        self.steps += 1
        return super().train(images, labels, hypers, report)

    def tensor(self, layer, name):
        value = np.array(super().tensor(layer, name))
        if self.altered and self.steps == 2 and (layer, name) in self.tensors:
            value[(-1,) * value.ndim] ^= 1
        return value


class OtherSeed(rtl_device.RtlDevice):
    """A machine that rounds stochastically with another seed than it is told."""

    def csr_write(self, offset_, value):
        super().csr_write(offset_, value ^ 1 if offset_ == offset("SEED") else value)


# Order and phases


def test_order_is_that_of_the_step():
    network = load_network("digits-cnn")
    expected = golden.expected_tensors(network)
    ordered = sorted(expected, key=lambda key: execution_order(network, *key))
    place = {key: number for number, key in enumerate(ordered)}
    chain = [("conv1", "xhat"), ("conv1", "z"), ("conv2", "z"), ("pool", "index"), ("fc", "logits"), ("fc", "error"), ("fc", "dw"),
             ("fc", "w"), ("pool", "dz"), ("conv3", "dz"), ("conv3", "dx"), ("conv3", "v"), ("conv1", "dz"), ("conv1", "w")]
    assert [place[key] for key in chain] == sorted(place[key] for key in chain)
    assert {phase(name) for _, name in expected} == {"FP", "loss", "BP", "norm BP", "WG + WU"} and phase("exponent 2") == "scales"


# Devices


def test_two_devices_agree(capsys):
    assert cli.main(["diff", "--device", "golden", "--device", "rtl", "--config", "nano", *SHORT]) == 0
    out = capsys.readouterr().out
    assert out.startswith("gradloom: digits-cnn on golden and rtl, 2 steps of 2 images (digits), seed 1\n")
    assert "0 differences: 182 tensors, " in out and out.endswith(" bytes compared over 2 steps\n")


def test_two_machines_agree(capsys):
    assert cli.main(["diff", "--device", "rtl", "--config", "nano", "--config", "small", *SHORT]) == 0
    assert "on rtl nano and rtl small, " in capsys.readouterr().out


@pytest.mark.parametrize(("tensors", "said"), [
    ((("conv2", "dx"), ("conv3", "dz"), ("conv1", "w")), "step 1, layer 'conv3', phase BP, tensor dz, element [1, 11, 3, 3]: A "),
    ((("fc", "logits"), ("conv1", "z"), ("conv2", "xhat")), "step 1, layer 'conv1', phase FP, tensor z, element [1, 11, 7, 7]: A "),
    ((("conv1", "vgamma"), ("fc", "vbeta")), "step 1, layer 'fc', phase WG + WU, tensor vbeta, element [9]: A "),
])
def test_the_first_difference_in_the_order_of_the_step_is_named(tensors, said, capsys, monkeypatch):
    monkeypatch.setattr(diff_live, "Session", Altered)
    monkeypatch.setattr(Altered, "tensors", tensors)
    monkeypatch.setattr(Altered, "number", 0)
    assert cli.main(["diff", "--device", "golden", "--config", "nano", "--config", "small", *SHORT]) == 1
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"gradloom: DIFFERENT: {said}") and "cycle" not in line
    values = [part.split()[1] for part in line.split("]: ")[1].split("; ")]
    assert int(values[0]) ^ int(values[1]) == 1
    assert line.count("PINT") == (0 if "vbeta" in line else 2)


def test_hardware_that_differs_is_told_by_cycle_and_waveform(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(rtl_device, "RtlDevice", OtherSeed)
    fst = tmp_path / "first.fst"
    arguments = ["diff", "--config", "nano", "--device", "rtl", "--device", "golden", *SHORT]
    assert cli.main([*arguments, "--trace", str(fst), "--trace-margin", "300"]) == 1
    out = capsys.readouterr().out.splitlines()
    line = out[1]
    assert line.startswith("gradloom: DIFFERENT: step 0, layer 'fc', phase WG + WU, tensor ")
    assert line.split(", element ")[0].endswith(("tensor v", "tensor w", "tensor rest"))
    cycle = int(line.split("written in cycle ")[1].split(";")[0])
    assert f"waveform of cycles {cycle - 300}..{cycle + 300} in {fst}" in out[2]
    assert fst.stat().st_size > 1000
    assert cli.main([*arguments, "--trace", str(fst)]) == 2
    assert "exists already: give another --trace, nothing is overwritten" in capsys.readouterr().err


# Run folders


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of a run, of one with another seed, and of the same run whose checkpoint and records were altered at step 6."""
    base = tmp_path_factory.mktemp("runs")
    for name, seed in (("a", "1"), ("seed", "2")):
        command = ["train", "--device", "golden", "--steps", "12", "--batch", "4", "--seed", seed, "--out", str(base / name)]
        assert cli.main(command) == 0
    shutil.copytree(base / "a", base / "same")
    shutil.copytree(base / "a", base / "altered")
    record = json.loads((base / "altered" / "run.json").read_text())
    record["device"] = "rtl"
    record["configuration"] = dataclasses.asdict(PRESETS["nano"])
    record["steps"][6]["loss"] += 0.5
    (base / "altered" / "run.json").write_text(json.dumps(record))
    with np.load(base / "a" / "checkpoint.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays["weights/conv2"][3, 1, 2, 0] ^= 1
    np.savez(base / "altered" / "checkpoint.npz", **arrays)
    return base


def test_equal_runs(runs, capsys):
    assert cli.main(["diff", str(runs / "a"), str(runs / "same")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "gradloom: 0 differences in 12 steps, epochs and checkpoints"


def test_settings_that_differ_are_named(runs, capsys):
    assert cli.main(["diff", str(runs / "a"), str(runs / "seed")]) == 1
    out = capsys.readouterr().out
    assert "gradloom: the runs have different settings: seed\ngradloom: DIFFERENT: step 0: loss " in out
    assert cli.main(["diff", str(runs / "a"), str(runs / "seed"), "--replay"]) == 2
    assert "needs one seed: leave --replay out" in capsys.readouterr().err


def test_step_and_element_of_runs(runs, capsys):
    assert cli.main(["diff", str(runs / "a"), str(runs / "altered")]) == 1
    out = capsys.readouterr().out.splitlines()
    first = json.loads((runs / "a" / "run.json").read_text())["steps"]
    assert [n for n, entry in enumerate(first) if "sha256" in entry] == [0, 8, 10, 11], "a digest after every start of the machine"
    assert out[1] == (
        f"gradloom: DIFFERENT: step 6: loss {first[6]['loss']} and {first[6]['loss'] + 0.5}; digests of the parameters: they were "
        "last equal after step 0"
    )
    assert out[2].startswith(
        "gradloom: DIFFERENT: checkpoint after 12 steps, layer 'conv2', phase WG + WU, tensor w, element [3, 1, 2, 0]: "
    )
    assert out[2].count("PINT") == 2 and len(out) == 3


def test_replay_locates_the_difference(runs, capsys, monkeypatch):
    arguments = ["diff", str(runs / "a"), str(runs / "altered"), "--replay"]
    assert cli.main(arguments) == 1
    assert capsys.readouterr().out.endswith("the devices agree on this machine now: one of the folders was computed otherwise\n")
    monkeypatch.setattr(rtl_device, "RtlDevice", OtherSeed)
    assert cli.main(arguments) == 1
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("gradloom: DIFFERENT: step 0, layer 'fc', phase WG + WU, tensor ") and "B (rtl) " in line
    assert line.count("cycle") == 1


# Refusals


@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere"], "diff takes two run folders or none, 1 were given: give two, or --device twice"),
    (["nowhere", "here"], "nowhere holds no run.json: give the folder of a run"),
    (["a", "b", "--device", "golden"], "two run folders were given, and --device or --config too: give one or the other"),
    (["--replay"], "--replay belongs to two run folders: give them, or leave it out"),
    (["--device", "golden"], "both sides are --device golden: give another --device, or two --config"),
    (["--device", "rtl"] * 3, "diff compares two devices: give --device and --config at most twice each"),
    (["--device", "golden", "--device", "golden", "--config", "nano", "--trace", "x.fst"],
     "--trace records the simulated hardware, neither side is rtl: leave it out, or give --device rtl"),
    (["--trace-margin", "0"], "argument --trace-margin: must lie in 1..10000000, not 0: see gradloom diff --help"),
])
def test_bad_input(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["diff", *arguments]) == 2
    assert capsys.readouterr().err == f"gradloom: error: {message}\n"


# The core without the extras


@pytest.mark.parametrize(("module", "message"), [
    ("pytorch", "gradloom.api.pytorch needs PyTorch, which is not installed: pip install 'gradloom[torch]'"),
    ("onnx_models", "gradloom.api.onnx_models needs onnx, which is not installed: pip install 'gradloom[onnx]'"),
])
def test_a_missing_extra_is_named_and_the_core_works(module, message, tmp_path):
    script = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "onnx"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from gradloom.host import cli
for name in (
    "commands.train_command", "commands.verify_command", "commands.eval_command", "commands.verilog_command",
    "bench.bench_command", "diff.diff_command", "frontends.imported",
):
    __import__(f"gradloom.host.{{name}}")
import gradloom.api
assert cli.main(["train", "--device", "golden", "--steps", "1", "--batch", "2", "--out", "run"]) == 0
try:
    import gradloom.api.{module}
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == message
