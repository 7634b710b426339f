"""A machine whose one APU takes a beat in turns, and which counts nothing: every byte equals the golden model's, the cost model
knows what it takes."""

import pytest

from gradloom.host.bench import bench_measure
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.opening import MemoryOptions
from gradloom.models.network import load_network
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.configs import machine_config
from gradloom.verif.system_bench import make_case, verify_steps

AWKWARD = sorted(path.stem for path in NETWORKS.glob("*.toml"))
SHORT = "tiny-residual"


@pytest.mark.parametrize("name", [
    SHORT, *(pytest.param(name, marks=pytest.mark.long("its shapes are on presets' machines, turns in test_acore"))
             for name in AWKWARD if name != SHORT)])
def test_every_byte(name):
    verify_steps(make_case(name, 2, 2), "turns")


@pytest.mark.parametrize("bytes_per_cycle", [pytest.param(None, marks=pytest.mark.long("a memory as wide as the machine's")), 2.0])
def test_cost_model_is_close(bytes_per_cycle):
    """A step of digits-cnn, with a wide memory and with one that the machine waits for; its last step equals golden."""
    network, batch, count = load_network("digits-cnn"), 2, 2
    images, labels, exponent = synthetic_images(network, batch * count, 1)
    parts = [slice(step * batch, (step + 1) * batch) for step in range(count)]
    steps = bench_measure.Steps([images[part] for part in parts], [labels[part] for part in parts], exponent, "hashed")
    memory = MemoryOptions() if bytes_per_cycle is None else MemoryOptions(latency=12, bytes_per_cycle=bytes_per_cycle)
    measured = bench_measure.measure(network, machine_config("turns"), steps, seed=1, memory=memory, check="last")
    assert measured.checked["steps"] == 1 and measured.checked["tensors"] > len(network.layers)
    assert measured.estimated.cycles == pytest.approx(measured.timeline.cycles, rel=0.03)
