"""gradloom.api compiles what trains, writes Verilog, lists devices, and is all that its documentation names."""

import functools
import itertools
import re
import subprocess
import sys

import numpy as np
import pytest

from gradloom import api
from gradloom.contracts.config import PRESETS
from gradloom.host import cli
from gradloom.host.devices import available
from gradloom.host.devices.opening import STEPS_PER_START
from gradloom.host.devices.runner import compile_programs
from gradloom.host.files import UserError
from gradloom.models.network import load_network
from gradloom.rtl import verilog
from gradloom.verif.checkout import DOCS


@functools.cache
def compiled() -> api.CompiledProgram:
    return api.compile("digits-cnn", "nano", 4)


def test_the_program_is_the_one_that_trains():
    steady = compile_programs(load_network("digits-cnn"), PRESETS["nano"], 4, STEPS_PER_START, export_dw=False)[0]
    assert compiled().program == steady.program() and compiled().digest == steady.digest()
    assert compiled().memory_bytes == steady.size and compiled().commands == len(steady.instructions)


def test_cycles_are_those_of_bench(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["--network", "digits-cnn", "--config", "nano", "--batch", "4", "--device", "model"]
    assert cli.main(["bench", *arguments]) == 0
    out = capsys.readouterr().out
    assert f"cycles of a step      {compiled().cycles:,} (estimated), PE use {100 * compiled().pe_use:.1f} %" in out
    for row in compiled().layers:
        if row.cycles:
            line = rf"^{row.layer} +{re.escape(row.phase)} +{row.cycles:,} +{100 * row.pe_use:.1f} %"
            assert re.search(line, out, re.MULTILINE)


def test_cycles_by_layer():
    by_layer = compiled().cycles_by_layer
    assert list(by_layer) == ["conv1", "conv2", "conv3", "fc"]
    assert sum(by_layer.values()) == sum(row.cycles for row in compiled().layers)
    assert 0.9 * compiled().cycles < sum(by_layer.values()) < compiled().cycles
    # A memory with a tenth of the bandwidth costs time.
    slow = api.compile("digits-cnn", "nano", 4, memory=api.MemoryOptions(bytes_per_cycle=0.5))
    assert slow.digest == compiled().digest and slow.cycles > compiled().cycles


def test_memory_map():
    regions = compiled().memory_map
    assert all(left.address + left.bytes <= right.address for left, right in itertools.pairwise(regions))
    assert regions[-1].address + regions[-1].bytes + len(compiled().program) <= compiled().memory_bytes + 64
    found = {(region.layer, region.tensor): region for region in regions}
    assert found["conv1", "w"].shape == (12, 1, 3, 3) and found["input", "z"].shape == (4, 1, 8, 8)


def test_listing():
    lines = compiled().listing().splitlines()
    assert len(lines) == compiled().commands and lines[0].split()[:2] == ["0:", "UCODE"]


def test_batch_and_steps():
    assert api.compile("digits-cnn", "nano").batch == load_network("digits-cnn").train.batch
    one = api.compile("digits-cnn", "nano", 4, steps=1)
    assert one.memory_bytes < compiled().memory_bytes and one.cycles > compiled().cycles  # with the program's head


def test_verilog(tmp_path, monkeypatch):
    monkeypatch.setattr(verilog, "emit_verilog", lambda config: {"gradloom.v": f"// {config.name}\n"})
    files = api.verilog(PRESETS["nano"], tmp_path / "v")
    assert [file.name for file in files] == ["config.json", "gradloom.v", "gradloom_registers.h", "registers.json",
                                             "registers.md"]
    assert files[1].read_text() == "// nano\n"
    with pytest.raises(api.UserError, match="exists already"):
        api.verilog("nano", str(tmp_path / "v"))
    more = api.verilog("small", tmp_path / "p", package=True)
    assert {file.name for file in more} - {file.name for file in files} == {"gradloom.core", "registers.rdl"}


def test_devices(monkeypatch):
    def missing() -> None:
        raise UserError("the simulated hardware needs make, missing: apt-get install make")

    def no_torch(name: str = "emulator") -> None:
        raise UserError("--device emulator needs PyTorch, which is not installed: pip install 'gradloom[torch]'")

    monkeypatch.setattr(available, "check_tools", missing)
    monkeypatch.setattr(available, "check_emulator", no_torch)
    found = {device.name: device for device in api.devices()}
    assert list(found) == ["golden", "rtl", "emulator", "emulator:cuda", "sim:ulx3s-85f", "netlist:ulx3s-85f", "ulx3s-85f"]
    assert found["golden"].ready and found["golden"].reason is None
    for name in ("rtl", "sim:ulx3s-85f", "netlist:ulx3s-85f"):
        assert not found[name].ready
        assert found[name].reason == "the simulated hardware needs make, missing: apt-get install make"
    assert found["emulator"].reason == (
        "device emulator needs PyTorch, which is not installed: pip install 'gradloom[torch]'"
    )
    monkeypatch.setattr(available, "check_tools", lambda: None)
    assert {device.name for device in api.devices() if device.ready} >= {"golden", "rtl", "sim:ulx3s-85f"}


def test_a_network_from_python_is_that_of_its_text():
    network = api.Network("own", (1, 8, 8), 10, (
        api.Conv(name="conv", out=12, kernel=3, stride=2, pad=1), api.FullyConnected(name="fc", out=10)))
    assert api.Network.from_toml(network.to_toml()) == network
    with pytest.raises(api.NetworkError, match="the text is not TOML"):
        api.Network.from_toml("this is [no TOML")


def test_documentation_names_all_that_is_public():
    """A row of the table for every name, and none beside."""
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "api.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`?(?:\(|`)", row)}
    assert named == set(api.__all__)
    assert all(getattr(api, name).__doc__ for name in api.__all__)


def test_nothing_is_printed_and_no_extra_is_imported_by_the_import():
    script = ("import sys; import gradloom.api; "
              "print([name for name in ('torch', 'onnx', 'sklearn', 'amaranth') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_lists_are_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = api.Network("own", (1, 4, 4), 2, (api.FullyConnected(name="fc", out=2),))
    x = (np.arange(10 * 16).reshape(10, 4, 4) % 7).tolist()
    found = api.train(network, (x, [0, 1] * 5), steps=1, batch=2)
    assert found.steps == 1 and found.run.name == "own-small-1"
