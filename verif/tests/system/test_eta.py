"""Paper scale, the ``eta`` machine of 1728 MACs: it elaborates and builds in bounded time, and trains a layer as golden does.

Minutes of C++ compilation, so not a part of the ordinary suite: ``nox -s eta`` runs it, with ``-s``, which shows the measurements.
"""

import resource
import time

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.host.devices.verification import compare_tensors
from gradloom.models.golden import step as golden
from gradloom.models.network import load_network
from gradloom.models.state import State
from gradloom.rtl.verilog import TOP, emit_verilog
from gradloom.sim.verilate import build_library
from gradloom.sim.verilog import machine_verilog

# Minutes of build and simulation on 2 cores: a session of its own keeps the suite under its 30 minutes.
pytestmark = pytest.mark.long("builds the 1728-MAC machine")

ETA = PRESETS["eta"]
NETWORK = """name = "eta-layer"
input = [16, 32, 32]
classes = 10

[[layers]]
type = "conv"
name = "first"
out = 16
kernel = 3
pad = 1

[[layers]]
type = "conv"
name = "second"
out = 16
kernel = 3
pad = 1

[[layers]]
type = "max_pool"
name = "pool"
kernel = 4
stride = 4

[[layers]]
type = "fully_connected"
name = "logits"
out = 10
"""
THREE_PHASES = {"FP", "BP", "WG + WU"}


def cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def test_every_component_is_emitted_once_and_in_a_minute():
    before = cpu_seconds(resource.RUSAGE_SELF) + cpu_seconds(resource.RUSAGE_CHILDREN)
    text = "\n".join(emit_verilog(ETA).values())
    seconds = cpu_seconds(resource.RUSAGE_SELF) + cpu_seconds(resource.RUSAGE_CHILDREN) - before
    modules = [line.split("(")[0] for line in text.splitlines() if line.startswith("module ")]
    print(f"\nelaboration: {seconds:.0f} CPU seconds, {len(text) / 1e6:.1f} MB, {len(modules)} modules")
    assert seconds < 60
    assert len(text) < 10e6
    assert len(set(modules)) == len(modules)
    for kind in ("gradloom_mac_", "gradloom_pe_", "gradloom_wpu_", "gradloom_windows_", "gradloom_weights_", "gradloom_psum_",
                 "apu_"):
        assert sum(module.removeprefix("module ").startswith(kind) for module in modules) == 1, kind


def test_simulator_builds_within_ten_minutes_of_two_cores(tmp_path, monkeypatch):
    files, blocks = machine_verilog(ETA)
    assert blocks
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    before, begin = cpu_seconds(resource.RUSAGE_CHILDREN), time.monotonic()
    build_library(files, top=TOP, blocks=blocks)
    seconds, wall = cpu_seconds(resource.RUSAGE_CHILDREN) - before, time.monotonic() - begin
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"\nbuild: {wall:.0f} s, {seconds:.0f} CPU seconds, largest process {largest:.1f} GiB")
    assert seconds < 2 * 600
    assert largest < 12  # two at a time in 24 GiB


@pytest.mark.parametrize(("machine", "batch"), [("eta", 1), ("eta", 2), ("eta2x", 2)])
def test_layer_of_16_channels_trains_as_golden(tmp_path, machine, batch):
    path = tmp_path / "eta-layer.toml"
    path.write_text(NETWORK)
    network = load_network(str(path))
    images, labels, exponent = synthetic_images(network, batch, 1)
    hyper = golden.schedule_table(network.train, 1)[0]
    state = State.initial(network, 1, exponent)
    with Session(network, PRESETS[machine], batch, "rtl", exponent, state.seed, MemoryOptions()) as session:
        session.load(state)
        begin = time.monotonic()
        session.train([images], [labels], [hyper])
        seconds = time.monotonic() - begin
        result = golden.train_step(network, state, images, labels, hyper)
        comparison = compare_tensors(network, 0, result, state, session)
        table = session.cycle_table(None)
        cycles = session.cycles
    assert comparison.difference is None, str(comparison.difference)
    assert comparison.tensors > len(network.layers)
    print(f"\n{machine}, batch {batch}: {cycles:,} simulated cycles, {cycles / seconds:,.0f} a second")
    for row in table["by_layer_phase"]:
        print(f"  {row['layer']:8} {row['phase']:8} " + " ".join(f"{name} {n:6}" for name, n in row["busy"].items())
              + (f"  array {row['use']:.1%}" if row["use"] else ""))
    assert {row["phase"] for row in table["by_layer_phase"] if row["layer"] == "second" and row["windows"]} == THREE_PHASES
