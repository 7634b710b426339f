"""gradloom bench in RTL: the step equals golden, the recording fits the counters, the cost model fits the recording."""

import json

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Engine
from gradloom.contracts.pipeline import in_flight
from gradloom.host import cli
from gradloom.host.bench import bench_measure
from gradloom.host.bench.bench_record import figures
from gradloom.host.cost_model.trace import engine_name
from gradloom.host.cost_model.workload import windows
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.opening import MemoryOptions
from gradloom.models.network import load_network

NANO = PRESETS["nano"]
NETWORK = load_network("digits-cnn")
BATCH = 2


def steps(count: int) -> bench_measure.Steps:
    images, labels, exponent = synthetic_images(NETWORK, BATCH * count, 1)
    parts = [slice(step * BATCH, (step + 1) * BATCH) for step in range(count)]
    return bench_measure.Steps([images[part] for part in parts], [labels[part] for part in parts], exponent, "hashed")


@pytest.fixture(scope="module")
def measured():
    return bench_measure.measure(NETWORK, NANO, steps(3), seed=1, memory=MemoryOptions(), check="last")


def test_reported_step_equals_golden(measured):
    assert measured.checked["steps"] == 1 and measured.checked["tensors"] > len(NETWORK.layers) and measured.checked["bytes"] > 1000
    assert measured.timeline.kind == "simulated" and measured.simulated["cycles_per_second"] > 0


def test_the_golden_model_may_take_the_calibrating_step(measured, monkeypatch):
    """The steps behind it take the same cycles and end with the same bytes. The time left does not follow from its own pace."""
    begun, original = [], bench_measure.StepProgress

    def begin(total, done=0):
        begun.append((total, done))
        return original(total, done)

    monkeypatch.setattr(bench_measure, "StepProgress", begin)
    again = bench_measure.measure(NETWORK, NANO, steps(3), seed=1, memory=MemoryOptions(), check="last", calibrate="golden")
    assert again.parameters == measured.parameters and again.timeline.cycles == measured.timeline.cycles
    assert again.checked == measured.checked and begun == [(3, 1)]
    assert again.simulated["calibration_cycles"] < 1000 < measured.simulated["calibration_cycles"]


def test_recording_agrees_with_the_counters(measured, monkeypatch):
    """Busy cycles and windows of the machine's own counters, over two starts, are the recording's in the second."""
    tables = []
    original = bench_measure._Bench.run

    def run(self, first, last, progress, expected):
        seconds = original(self, first, last, progress, expected)
        tables.append(self.runner.cycle_table(None))
        return seconds

    monkeypatch.setattr(bench_measure._Bench, "run", run)
    again = bench_measure.measure(NETWORK, NANO, steps(2), seed=1, memory=MemoryOptions(), check="off")
    timeline = again.timeline
    first, second = ({(row["layer"], row["phase"]): row for row in table["by_layer_phase"]} for table in tables)
    found = figures(timeline, NETWORK, NANO, BATCH, clock_mhz=1.0, peak_bytes=4.0)
    rows = [row for row in found["layers"] if row["layer"]]
    assert len(rows) == len(second)
    for row in rows:
        key = row["layer"], row["phase"]
        counted = {name: second[key]["busy"][name] - first.get(key, {"busy": {name: 0}})["busy"][name] for name in row["busy"]}
        assert second[key]["windows"] - first[key]["windows"] == row["windows"], key
        for name, busy in row["busy"].items():
            engine = next(engine for engine in timeline.by_engine if engine_name(engine) == name)
            commands = sum(timeline.program[place].tag == 8 * NETWORK.index(row["layer"]) + PHASE[row["phase"]]
                           for place in timeline.by_engine[engine])
            # The counters take start and end into account, the recording their difference.
            assert busy <= counted[name] <= busy + 2 * commands, (key, name)


PHASE = {"FP": 0, "BP": 1, "norm BP": 2, "WG + WU": 3}


def test_traffic_is_that_of_the_commands_and_the_program(measured):
    found = figures(measured.timeline, NETWORK, NANO, BATCH, clock_mhz=1.0, peak_bytes=4.0)
    read, written = measured.traffic
    assert written == found["total"]["written_bytes"]
    assert 0 < read - found["total"]["read_bytes"] <= 8 * sum(4 * command.length for command in measured.timeline.program)


def test_windows_and_steps(measured):
    timeline = measured.timeline
    assert timeline.cycles == timeline.done.max() and timeline.start[timeline.start >= 0].min() > 0, "the second step of its start"
    places = timeline.by_engine[Engine.CCORE]
    assert all(timeline.done[p] - timeline.start[p] > windows(timeline.program[p], NANO) for p in places)


def test_cost_model_is_close(measured):
    assert measured.estimated.cycles == pytest.approx(measured.timeline.cycles, rel=0.05)


def test_cost_model_has_room_for_a_command_as_late_as_the_machine(measured):
    """Cycles from the end that makes room for a Loader's next command to its start, at least."""
    limit, places = in_flight(Unit.LOAD), measured.timeline.by_engine[Unit.LOAD]
    true, guess = (int((step.start[places][limit:] - step.done[places][:-limit]).min())
                   for step in (measured.timeline, measured.estimated))
    assert guess == true


def test_memory_changes_cycles_and_no_byte():
    memory = MemoryOptions(latency=100, bytes_per_cycle=1.0)
    slow = bench_measure.measure(NETWORK, NANO, steps(2), seed=1, memory=memory, check="all")
    fast = bench_measure.measure(NETWORK, NANO, steps(2), seed=1, memory=MemoryOptions(latency=10), check="all")
    assert slow.checked == fast.checked and slow.checked["steps"] == 2
    assert slow.timeline.cycles > 1.2 * fast.timeline.cycles
    assert slow.estimated.cycles == pytest.approx(slow.timeline.cycles, rel=0.05)


def test_command_line_compares_and_traces(tmp_path, capsys):
    arguments = ["bench", "--config", "nano", "--batch", "2", "--steps", "1", "--compare", "--what-if", "--check", "last",
                 "--out", str(tmp_path / "out"), "--trace", str(tmp_path / "trace.json")]
    assert cli.main(arguments) == 0
    bench = json.loads((tmp_path / "out" / "bench.json").read_text())
    text = capsys.readouterr().out
    assert bench["kind"] == "simulated" and bench["check"]["steps"] == 1 and abs(bench["compare"]["cycles_error"]) < 0.05
    assert bench["what_if"]["nothing"] == pytest.approx(bench["total"]["cycles"], rel=0.05), "estimated beside a simulation"
    assert "cycles a second" in text and "equal to the golden model" in text
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["otherData"] == {"kind": "simulated", "unit": "1 us is 1 clock cycle", "cycles": bench["total"]["cycles"]}
    assert cli.main(arguments) == 2, "nothing is overwritten"


def test_difference_from_golden_is_an_error(tmp_path, capsys, monkeypatch):
    original = bench_measure.golden.train_step

    def bent(*arguments, **options):
        result = original(*arguments, **options)
        result.tensors["conv1", "z"].flat[5] ^= 1
        return result

    monkeypatch.setattr(bench_measure.golden, "train_step", bent)
    assert cli.main(["bench", "--config", "nano", "--batch", "2", "--steps", "1", "--out", str(tmp_path / "out")]) == 1
    assert "DIFFERENT" in (out := capsys.readouterr().out) and "conv1" in out
    assert not (tmp_path / "out").exists()
