"""A machine without performance counters: every byte equals golden's, in the cycles of a machine that has them; ``bench`` records
its step, its registers of counters read 0, and its table of cycles has no rows."""

import pytest

from gradloom.contracts.regmap import TOTALS, offset, perf_index
from gradloom.host.bench import bench_measure
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.opening import MemoryOptions
from gradloom.models.network import load_network
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.configs import machine_config


@pytest.mark.long("a build of its own; test_turns_rtl has a machine without counters, test_csr and test_counters their parts")
def test_a_step_without_counters(monkeypatch):
    network = load_network(str(NETWORKS / "tiny-relu.toml"))
    images, labels, exponent = synthetic_images(network, 4, 1)
    steps = bench_measure.Steps([images[:2], images[2:]], [labels[:2], labels[2:]], exponent, "hashed")
    tables, original = {}, bench_measure._Bench.run

    def run(self, *arguments):
        seconds = original(self, *arguments)
        config, device = self.runner.config, self.runner.device
        tables[config.name] = self.runner.cycle_table(None)
        if config.counters == "none":
            device.csr_write(offset("PERF_INDEX"), perf_index(2, 9))
            registers = [f"{name}_{half}" for name in (*TOTALS, "PERF") for half in ("LOW", "HIGH")]
            assert [device.csr_read(offset(name)) for name in [*registers, "PERF_INDEX"]] == [0] * (len(registers) + 1)
        return seconds

    monkeypatch.setattr(bench_measure._Bench, "run", run)
    found = {name: bench_measure.measure(network, machine_config(name), steps, seed=1, memory=MemoryOptions(), check="all")
             for name in ("uncounted", "nano")}
    assert all(one.checked["steps"] >= 1 and one.timeline.kind == "simulated" for one in found.values())
    assert found["uncounted"].parameters == found["nano"].parameters
    assert found["uncounted"].timeline.cycles == found["nano"].timeline.cycles
    assert tables["uncounted"] == {"kind": "simulated", "total": tables["nano"]["total"], "engines": {}, "by_layer_phase": []}
    assert tables["nano"]["by_layer_phase"]
