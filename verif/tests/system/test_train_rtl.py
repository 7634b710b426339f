"""Training on simulated hardware: one result on every machine, in one part or two, stopped or not; and the record of a run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.regmap import offset, register
from gradloom.host import cli
from gradloom.host.devices.runner import PHASES
from gradloom.host.schedule import compile_network
from gradloom.models import digests
from gradloom.models.arithmetic import pint
from gradloom.models.digits import load_digits_split
from gradloom.models.golden import step as golden
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.system_bench import SEED, golden_digest, make_case, train_digest


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder with 72 training and 20 test digits."""
    folder = tmp_path_factory.mktemp("desk")
    x, y, test_x, test_y, exponent = load_digits_split()
    x, test_x = (np.ldexp(pint.decode(codes).astype(np.float64), exponent) for codes in (x[:72], test_x[:20]))
    np.savez(folder / "few.npz", x=x, y=y[:72], x_test=test_x, y_test=test_y[:20])
    return folder


def train(desk: Path, name: str, *more: str) -> dict:
    base = ["train", "--data", str(desk / "few.npz"), "--batch", "8", "--epochs", "2", "--seed", "5"]
    assert cli.main([*base, *more, "--out", str(desk / name)]) == 0
    return json.loads((desk / name / "run.json").read_text())


@pytest.fixture(scope="module")
def on_golden(desk) -> dict:
    return train(desk, "golden", "--device", "golden")


@pytest.fixture(scope="module")
def on_small(desk) -> dict:
    return train(desk, "small", "--config", "small")


def results(record: dict) -> tuple:
    """What must not depend on the machine."""
    steps = [(entry["step"], entry["loss"], entry["accuracy"]) for entry in record["steps"]]
    epochs = [{key: value for key, value in entry.items() if key != "cycles"} for entry in record["epochs"]]
    return steps, epochs


def test_small_trains_to_the_bytes_of_golden(on_golden, on_small):
    assert results(on_small) == results(on_golden)
    assert len({entry["sha256"] for entry in on_small["epochs"]}) == 2


def test_nano_with_every_step_checked(desk, on_golden):
    record = train(desk, "nano", "--config", "nano", "--check", "all")
    assert results(record) == results(on_golden)
    assert all(entry["checked_bytes"] > 10_000 for entry in record["steps"])


def test_check_last_and_off(desk, on_golden, on_small):
    assert [entry["step"] for entry in on_small["steps"] if "checked_bytes" in entry] == [17]
    record = train(desk, "off", "--config", "small", "--check", "off")
    assert results(record) == results(on_golden)
    assert not any("checked_bytes" in entry for entry in record["steps"])


def test_record_of_cycles(on_small, desk):
    """Cycles in total, by epoch, and of every engine by layer and phase, labelled simulated."""
    cycles = on_small["cycles"]
    assert cycles["kind"] == "simulated"
    rows = {(row["layer"], row["phase"]): row for row in cycles["by_layer_phase"]}
    assert {layer for layer, _ in rows} == {"conv1", "conv2", "conv3", "pool", "fc"}
    assert {phase for _, phase in rows} <= set(PHASES)
    for layer in ("conv1", "conv2", "conv3", "fc"):
        assert rows[layer, "FP"]["busy"]["ccore"] > 0 and rows[layer, "WG + WU"]["busy"]["ccore"] > 0
        assert 0 < rows[layer, "FP"]["use"] <= 1
    assert list(cycles["engines"]) == ["load", "load1", "ccore", "acore", "store"]
    for name in cycles["engines"]:
        assert cycles["engines"][name] == sum(row["busy"][name] for row in cycles["by_layer_phase"])
        assert 0 < cycles["engines"][name] <= cycles["total"]
    totals = [entry["cycles"] for entry in on_small["epochs"]]
    assert 0 < totals[0] < totals[1] <= cycles["total"]
    page = (desk / "small" / "report.html").read_text()
    assert f"{cycles['total']:,} simulated cycles" in page and "<svg" in page


def test_eval_on_the_machine(desk, on_small, capsys):
    capsys.readouterr()
    texts = []
    for device in ("rtl", "golden"):
        assert (
            cli.main(
                [
                    "eval",
                    "--device",
                    device,
                    "--config",
                    "small",
                    "--data",
                    str(desk / "few.npz"),
                    "--weights",
                    str(desk / "small"),
                    "--out",
                    str(desk / f"{device}.json"),
                ]
            )
            == 0
        )
        texts.append(json.loads((desk / f"{device}.json").read_text()) | {"device": None, "cycles": None})
    assert texts[0] == texts[1]
    assert texts[0]["test_accuracy"] == on_small["epochs"][-1]["test_accuracy"]


def _listen() -> None:
    """A run that was started in the background of a shell ignores SIGINT; its children must not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupted_run_goes_on(desk, on_small):
    """Interrupted in the middle of a start, then resumed: the same parameters, losses and accuracies."""
    arguments = [
        "train",
        "--data",
        "few.npz",
        "--batch",
        "8",
        "--epochs",
        "2",
        "--seed",
        "5",
        "--config",
        "small",
        "--out",
        "cut",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "gradloom.host.cli", *arguments],
        cwd=desk,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_listen,
    )
    deadline = time.monotonic() + 400
    while not (desk / "cut" / "checkpoint.npz").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    record = json.loads((desk / "cut" / "run.json").read_text())
    assert 0 < len(record["steps"]) < 18
    record["data"]["source"] = str(desk / "few.npz")
    (desk / "cut" / "run.json").write_text(json.dumps(record))
    assert cli.main(["train", "--resume", str(desk / "cut")]) == 0
    resumed = json.loads((desk / "cut" / "run.json").read_text())
    assert results(resumed) == results(on_small)
    assert resumed["epochs"][-1]["sha256"] == on_small["epochs"][-1]["sha256"]


@pytest.mark.long("runs of steps are those of small, machines of four clusters those of test_kept")
def test_ulx3s_trains_to_the_bytes_of_golden():
    case = make_case("digits-cnn", 4, 4)
    assert train_digest(case, "ulx3s") == golden_digest(case)


@pytest.mark.parametrize(("name", "batch", "parts"), [("digits-cnn", 4, 2), ("tiny-residual", 5, 3)])
def test_batch_in_parts_gives_the_bytes_of_the_whole(name, batch, parts):
    case, config = make_case(name, batch, 3), PRESETS["small"]
    state = case.initial()
    golden.train_step(case.network, state, case.images[0], case.labels[0], case.hypers[0])
    plans = [
        compile_network(case.network, config, batch, slots=2, table=2, export_dw=True, parts=count)
        for count in (1, parts)
    ]
    found = []
    for plan in plans:
        with RtlDevice(config, dram_bytes=plan.size) as device:
            plan.write_state(device, state)
            for slot in range(2):
                plan.write_batch(device, slot, case.images[slot + 1], case.labels[slot + 1])
            plan.write_hyper(device, case.hypers[1:])
            plan.write_program(device, 1)
            for tid, exponent in plan.exponents(state).items():
                device.csr_write(offset("EXP_INDEX"), tid)
                device.csr_write(offset("EXP_VALUE"), exponent & 0xFFFF)
            for register_name, value in (
                ("WINDOW_LIMIT", plan.size),
                ("PROGRAM", plan.program_address),
                ("STEPS", 2),
                ("STEP", 1),
                ("SEED", SEED),
            ):
                device.csr_write(offset(register_name), value)
            control = register("CONTROL")
            device.csr_write(
                offset("CONTROL"), control.field("start").mask | control.field("irq_enable").mask
            )
            device.run(20_000_000)
            assert device.csr_read(offset("STATUS")) & register("STATUS").field("done").mask, hex(
                device.csr_read(offset("ERROR"))
            )
            exponents = {}
            for tid in plan.exponents(state):
                device.csr_write(offset("EXP_INDEX"), tid)
                raw = device.csr_read(offset("EXP_VALUE")) & 0xFFFF
                exponents[tid] = raw - (raw >> 15 << 16)
            after = plan.read_state(device, exponents, step=3, seed=SEED)
            tensors = {key: plan.read(device, *key) for key in plan.tensors()}
            found.append((digests.parameters_digest(case.network, after), digests.tensor_digests(tensors)))
    assert found[0] == found[1]
    assert found[0][0] == golden_digest(case)
