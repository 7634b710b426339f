"""gradloom bench without a simulator: what counts as useful, where cycles go, the record, the page and the command line."""

import copy
import json

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.isa import Engine
from gradloom.host import cli
from gradloom.host.bench.bench_page import render_bench
from gradloom.host.bench.bench_record import LOSSES, PUBLISHED, compare, figures
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.cost_model.replay import replay
from gradloom.host.cost_model.trace import Timeline, step_programs
from gradloom.host.cost_model.workload import PURPOSES, dram_bytes, layer_phase, phase_macs, purpose, windows
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network
from gradloom.verif.pages import Page, check_frame, drawings

SMALL = PRESETS["small"]
DIGITS = load_network("digits-cnn")
BATCH = 8


def estimated(network=DIGITS, config=SMALL, batch=BATCH) -> Timeline:
    plan = compile_network(network, config, batch, slots=2, table=2)
    return replay(step_programs(plan.instructions, plan.labels, 2), config, DramCost())[-1]


def measured(timeline=None, network=DIGITS, config=SMALL, **changes):
    return figures(timeline or estimated(network, config), network, config, BATCH,
                   **({"clock_mhz": 100.0, "peak_bytes": 8.0} | changes))


@pytest.fixture(scope="module")
def found():
    return measured()


STRIDED = """
name = "strided"
input = [3, 8, 8]
classes = 5

[[layers]]
type = "conv"
name = "first"
out = 4
kernel = 3
pad = 1

[[layers]]
type = "conv"
name = "half"
out = 6
kernel = 3
stride = 2
pad = 1

[[layers]]
type = "conv"
name = "point"
out = 8
kernel = 1
stride = 2

[[layers]]
type = "fully_connected"
name = "logits"
out = 5
"""


def test_useful_macs_are_those_of_the_geometry(tmp_path):
    (tmp_path / "strided.toml").write_text(STRIDED)
    network = load_network(str(tmp_path / "strided.toml"))
    first, half, point, logits = 4 * 3 * 9 * 64, 6 * 4 * 9 * 16, 8 * 6 * 4, 5 * 8 * 4
    expected = {
        ("first", "FP"): (first, 0), ("first", "BP"): (0, 0), ("first", "WG + WU"): (first, 0),
        ("half", "FP"): (half, 0), ("half", "BP"): (half, 3 * half), ("half", "WG + WU"): (half, 3 * half),
        ("point", "FP"): (point, 0), ("point", "BP"): (point, 0), ("point", "WG + WU"): (point, 0),
        ("logits", "FP"): (logits, 0), ("logits", "norm BP"): (0, 0),
    }
    for (layer, phase), (useful, inserted) in expected.items():
        macs = phase_macs(network, layer, phase, 3)
        assert (macs.useful, macs.inserted) == (3 * useful, 3 * inserted), (layer, phase)
    assert sum(phase_macs(network, layer.name, "FP", 1).useful for layer in network.layers) == network.macs()


def test_every_transfer_has_a_purpose():
    timeline = estimated()
    for instruction in timeline.program:
        moves = instruction.engine.name.startswith(("LOAD", "STORE"))
        assert (purpose(instruction) in PURPOSES) == moves and (dram_bytes(instruction, SMALL) > 0) == moves
        if moves:
            assert purpose(instruction).startswith("Rd") == instruction.engine.name.startswith("LOAD")
        layer, phase = layer_phase(DIGITS, instruction.tag)
        if instruction.engine != Engine.SEQ:
            assert layer in {layer.name for layer in DIGITS.layers} and phase != "scales"
    assert layer_phase(DIGITS, 4) == ("", "scales") and layer_phase(DIGITS, 8 * 200) == ("", "scales")


def test_weights_and_updates_are_told_apart():
    """A weight byte is read once a tile in FP, and with its velocity and its rest once in the update, which writes all three."""
    rows = {(row["layer"], row["phase"]): row["dram_bytes"] for row in measured()["layers"]}
    update, forward = rows["conv2", "WG + WU"], rows["conv2", "FP"]
    blocks = 1
    for size in DIGITS.weight_shape("conv2"):
        blocks *= size
    assert update["WrWU"] == update["RdWU"] == 3 * blocks and forward["RdWt"] >= blocks and not forward["RdWU"]
    assert update["RdAct"] and forward["WrOut"] and forward["WrFRN"] and rows["conv2", "norm BP"]["RdFRN"]


def test_cycles_add_up(found):
    total = found["total"]
    spans = sum(row["span_cycles"] for row in found["layers"])
    assert spans + total["cycles_before_array"] + total["cycles_behind_array"] == total["cycles"]
    for row in found["layers"]:
        if row["span_cycles"]:
            assert set(row["lost_cycles"]) == set(LOSSES)
            useful = row["useful_macs"] / SMALL.macs
            # Cycles of useful MACs are a quotient, and floats are added here in another order than there.
            assert sum(row["lost_cycles"].values()) + useful == pytest.approx(row["span_cycles"])
            # A quotient of that quotient: floats that are divided in another order.
            assert row["pe_use"] == pytest.approx(useful / row["span_cycles"])
            assert row["windows"] * SMALL.macs >= row["useful_macs"]
        else:
            assert row["pe_use"] is None and not row["windows"]
    assert sum(found["critical_path"].values()) == total["cycles"]
    for name, engine in found["engines"].items():
        assert engine["busy"] == sum(row["busy"][name] for row in found["layers"]) <= total["cycles"]
        assert engine["busy"] + sum(engine["waits"].values()) <= total["cycles"]


def test_rates_follow_from_cycles(found):
    total = found["total"]
    macs = sum(phase_macs(DIGITS, layer.name, phase, BATCH).useful for layer in DIGITS.layers for phase in ("FP", "BP", "WG + WU"))
    seconds = total["cycles"] / 100e6
    assert total["useful_macs"] == macs
    # Rates are floats, multiplied and divided here in another order than there.
    assert total["gops"] == pytest.approx(2 * macs / seconds / 1e9) and total["images_per_second"] == pytest.approx(BATCH / seconds)
    # Here a quotient of two such rates, there one of MACs.
    assert total["pe_use"] == pytest.approx(total["gops"] / total["peak_gops"])
    assert total["gops_with_inserted_zeros"] > total["gops"]
    assert measured(traffic=(7, 9))["total"]["read_bytes"] == 7


def test_windows_are_what_the_array_needs(found):
    """conv2's channels and rows fill the small array, so that its windows hold useful work only."""
    row = next(row for row in found["layers"] if (row["layer"], row["phase"]) == ("conv2", "FP"))
    assert row["windows"] * SMALL.macs == row["useful_macs"]
    assert sum(windows(instruction, SMALL) for instruction in estimated().program) == sum(r["windows"] for r in found["layers"])


def test_phases_below_the_target_name_their_largest_loss(found):
    listed = {(row["layer"], row["phase"]): row for row in found["below_target"]}
    for row in found["layers"]:
        low = row["pe_use"] is not None and 0 < row["pe_use"] < 0.9
        assert ((row["layer"], row["phase"]) in listed) == low
        if low:
            cause = listed[row["layer"], row["phase"]]["cause"]
            assert row["lost_cycles"][cause] == max(row["lost_cycles"].values())


def test_comparison_with_itself_is_exact(found):
    same = compare(found, found)
    assert same["cycles_error"] == 0 and all(not row["span_error"] for row in same["layers"])
    other = copy.deepcopy(found)
    other["total"]["cycles"] *= 2
    assert compare(found, other)["cycles_error"] == 1


def test_published_values():
    """PE use times the peak of 1728 MACs at 200 MHz is the published throughput where no zeros are counted."""
    # Within 1 %, as the paper prints PE use in whole percent.
    assert PUBLISHED["vgg16"]["gops"] == pytest.approx(PUBLISHED["vgg16"]["pe_use"] * 691.2, rel=0.01)
    for name in ("resnet20", "resnet18"):
        assert PUBLISHED[name]["zeros_counted"] and PUBLISHED[name]["gops"] > PUBLISHED[name]["pe_use"] * 691.2


def bench_of(found, **changes):
    return found | {
        "network": {"name": "<b>&cnn"}, "configuration": {"name": "small"}, "macs": SMALL.macs, "batch": BATCH, "clock_mhz": 100.0,
        "step": "a step", "data": "none", "memory_text": "memory", "check_text": "none", "simulation": None, "published": None,
        "compare": None,
    } | changes


CASES = {
    "plain": {},
    "published": {"published": PUBLISHED["resnet20"]},
    "what if": {"what_if": {"nothing": 1000, "A-Core": 900, "loads, stores and A-Core": 120}},
    "no images": {"published": PUBLISHED["resnet18"], "simulation": {"cycles": 10, "seconds": 1.0, "cycles_per_second": 10.0}},
}


@pytest.mark.parametrize("name", list(CASES))
def test_page_is_whole_and_its_drawings_stay_in_their_frames(found, name):
    text = render_bench(bench_of(found, **CASES[name]) | {"compare": compare(found, found)})
    page = Page(text)
    assert "A training step of <b>&cnn on small" in page.text and "estimated" in page.text
    assert ("658.64" in page.text) == (name == "published") and ("\nnot given\n" in page.text) == (name == "no images")
    found = drawings(text)
    assert len(found) == (6 if name == "what if" else 5)
    assert ("If a part took no time" in page.text) == ("-10.0 %" in page.text) == (name == "what if")
    for drawing in found:
        check_frame(drawing)


def test_model_run_writes_record_page_and_trace(tmp_path, capsys):
    out, trace = tmp_path / "out", tmp_path / "trace.json"
    arguments = ["bench", "--device", "model", "--config", "eta", "--batch", "4", "--out", str(out), "--trace", str(trace),
                 "--dram-bytes-per-cycle", "8", "--clock-mhz", "150", "--what-if"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    bench = json.loads((out / "bench.json").read_text())
    assert bench["format"] == 1 and bench["kind"] == "estimated" and bench["device"] == "model" and bench["clock_mhz"] == 150
    assert bench["total"]["peak_bytes_per_cycle"] == 8 and bench["simulation"] is None and bench["check"] is None
    assert f"{bench['total']['cycles']:,} (estimated)" in text and "simulated" not in text
    assert bench["what_if"]["nothing"] == bench["total"]["cycles"] > 2 * bench["what_if"]["loads and stores"]
    assert f"{bench['what_if']['A-Core']:,}" in text and "A-Core" in Page((out / "bench.html").read_text()).text
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == sum(engine["commands"] for engine in bench["engines"].values())
    assert any(event["name"] == "conv2 FP CONV" for event in slices)


@pytest.mark.parametrize(("arguments", "words"), [
    (["--network", "nosuch"], ["nosuch"]),
    (["--config", "nosuch"], ["nosuch"]),
    (["--steps", "9"], ["--steps", "1..8"]),
    (["--steps", "0"], ["--steps"]),
    (["--batch", "0"], ["--batch"]),
    (["--clock-mhz", "-1"], ["--clock-mhz"]),
    (["--dram-bytes-per-cycle", "0"], ["--dram-bytes-per-cycle"]),
    (["--dram-latency", "-1"], ["--dram-latency"]),
    (["--device", "board"], ["--device"]),
    (["--device", "model", "--compare"], ["--compare", "--device rtl"]),
    (["--device", "model", "--trace-fst", "wave.fst"], ["--trace-fst"]),
    (["--device", "sim:ulx3s-85f", "--trace-fst", "wave.fst"], ["--trace-fst"]),
    (["--device", "model", "--config", "tight.toml"], ["conv1", "abuf_depth"]),
    (["--data", "nosuch.npz", "--device", "rtl"], ["nosuch.npz"]),
    (["--device", "sim:nosuch"], ["nosuch", "ulx3s-85f"]),
    *((["--device", "sim:ulx3s-85f", *options], [options[0], "with a board"]) for options in (
        ["--trace", "step.json"], ["--what-if"], ["--check", "all"], ["--clock-mhz", "50"])),
    *((["--device", "sim:ulx3s-85f", *options], ["an option of the DRAM model", "with a board"]) for options in (
        ["--dram-latency", "12"], ["--dram-bytes-per-cycle", "2"], ["--stalls", "0.1"])),
    (["--out", "full"], ["full", "not empty"]),
    (["--trace", "full/file"], ["full/file", "overwritten"]),
])
def test_wrong_arguments_are_refused_in_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "tight.toml").write_text('base = "nano"\nabuf_depth = 3\n')
    assert cli.main(["bench", *arguments]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and error[0].startswith("gradloom: error: "), error
    for word in words:
        assert word in error[0], error[0]
    assert (tmp_path / "full" / "file").read_text() == "mine" and not (tmp_path / "runs").exists()
