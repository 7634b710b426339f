"""The command line: bad input is refused in one sentence with exit code 2, nothing is overwritten; good runs end whole."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.host.devices.device import MachineError
from gradloom.host.runs.trainer import schedule
from gradloom.models import atomic
from gradloom.models.network import load_network
from gradloom.rtl import verilog
from gradloom.sim.simulation import ProtocolError
from gradloom.verif.cli_desk import GOOD, TINY, refused, write_data


def test_no_command_and_unknown_command(capsys):
    refused(capsys, [], "COMMAND")
    refused(capsys, ["frobnicate"], "frobnicate")


def test_help(capsys):
    for arguments in (
        ["--help"],
        ["train", "--help"],
        ["eval", "--help"],
        ["verify", "--help"],
        ["verilog", "--help"],
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 0
    assert "usage: gradloom" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["boards"], ["verify", "--network", "digits-cnn", "--device", "golden"]])
def test_nobody_reads_the_output_to_its_end(desk, arguments):
    """Nor is a word said about it, whether a line finds the pipe closed or what is left in the buffer at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "gradloom.host.cli", *arguments]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_network_that_does_not_fit_the_machine(desk, capsys):
    (desk / "wide.toml").write_text(TINY.replace("[1, 6, 6]", "[1, 6, 4000]"))
    rows = np.zeros((8, 1, 6, 4000), np.uint8)
    np.savez(desk / "wide.npz", x=rows, y=np.arange(8) % 3)
    arguments = [
        "train",
        "--network",
        "wide.toml",
        "--data",
        "wide.npz",
        "--config",
        "nano",
        "--batch",
        "2",
        "--out",
        "run",
    ]
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "layer 'conv'" in err and "nano" in err
    assert not (desk / "run").exists()


def test_unwritable_waveform_is_refused(desk, capsys):
    (desk / "old.fst").write_text("mine")
    refused(capsys, ["verify", "--trace-fst", "old.fst"], "old.fst exists")
    assert (desk / "old.fst").read_text() == "mine"


def test_train_and_again(desk, capsys):
    """A run ends with its files whole; the same --out is refused and nothing in it changes."""
    assert cli.main(["train", *GOOD, "--out", "run"]) == 0
    out, _ = capsys.readouterr()
    assert "test accuracy" in out
    held = {path.name: path.read_bytes() for path in (desk / "run").iterdir()}
    assert set(held) == {"run.json", "checkpoint.npz", "weights.npz", "report.html", "report.svg"}
    refused(capsys, ["train", *GOOD, "--out", "run"], "run exists", "--resume run")
    assert {path.name: path.read_bytes() for path in (desk / "run").iterdir()} == held


def test_default_folders_count_up(desk):
    for _ in range(2):
        assert cli.main(["train", *GOOD, "--steps", "1"]) == 0
    assert sorted(path.name for path in (desk / "runs").iterdir()) == ["tiny-small-1", "tiny-small-2"]


def test_a_warm_up_is_in_the_record_and_in_the_rates(desk, capsys):
    assert cli.main(["train", *GOOD, "--epochs", "2", "--warmup", "1", "--lr", "0.5", "--out", "run"]) == 0
    record = json.loads((desk / "run" / "run.json").read_text())
    count = record["steps_per_epoch"]
    rates = [hyper.lr for hyper in schedule(record, load_network("tiny.toml"))]
    assert len(rates) == 2 * count and rates[count - 1 :] == [0.5] * (count + 1)
    # The hyperparameter table keeps a rate's mantissa in 8 bits.
    assert rates[0] == pytest.approx(0.5 / count, rel=1 / 256)
    refused(capsys, ["train", *GOOD, "--warmup", "0"], "--warmup")


def test_resume_refuses(desk, capsys):
    assert cli.main(["train", *GOOD, "--steps", "3", "--out", "run"]) == 0
    refused(capsys, ["train", "--resume", "run", "--lr", "0.5"], "--lr")
    refused(capsys, ["train", "--resume", "run", "--network", "tiny.toml"], "--network")
    checkpoint, record = (
        (desk / "run" / "checkpoint.npz").read_bytes(),
        (desk / "run" / "run.json").read_text(),
    )
    (desk / "run" / "checkpoint.npz").write_bytes(checkpoint[:100])
    refused(capsys, ["train", "--resume", "run"], "checkpoint.npz")
    (desk / "run" / "checkpoint.npz").write_bytes(checkpoint)
    (desk / "tiny.toml").write_text(TINY.replace("out = 4", "out = 5"))
    refused(capsys, ["train", "--resume", "run"], "tiny.toml", "changed")
    (desk / "tiny.toml").write_text(TINY)
    write_data(desk / "data.npz", 70)
    refused(capsys, ["train", "--resume", "run"], "data.npz", "changed")
    for text in ("{", "[]", '{"format": 99}', '{"format": 3}'):
        (desk / "run" / "run.json").write_text(text)
        refused(capsys, ["train", "--resume", "run"], "run.json")
    (desk / "run" / "run.json").write_text(record.replace('"wpus"', '"wheels"'))
    refused(capsys, ["train", "--resume", "run"], "run.json", "configuration")


def test_resume_of_a_finished_run_changes_nothing(desk, capsys):
    assert cli.main(["train", *GOOD, "--steps", "3", "--out", "run"]) == 0
    record = (desk / "run" / "run.json").read_bytes()
    (desk / "run" / "report.html").unlink()
    assert cli.main(["train", "--resume", "run"]) == 0
    assert "finished already" in capsys.readouterr().out
    assert (desk / "run" / "run.json").read_bytes() == record
    assert (desk / "run" / "report.html").exists(), "a run that was stopped before its report gets it"


def test_eval(desk, capsys):
    assert cli.main(["train", *GOOD, "--out", "run"]) == 0
    trained = capsys.readouterr().out
    assert cli.main(["eval", *GOOD, "--weights", "run", "--out", "score.json"]) == 0
    text = capsys.readouterr().out
    accuracy = trained.split("test accuracy ")[1].split(" ")[0]
    assert f"test accuracy {accuracy} %" in text
    held = (desk / "score.json").read_bytes()
    refused(capsys, ["eval", *GOOD, "--weights", "run", "--out", "score.json"], "score.json exists")
    assert (desk / "score.json").read_bytes() == held
    refused(capsys, ["eval", *GOOD, "--weights", "nosuch"], "nosuch")
    refused(capsys, ["eval", *GOOD], "--weights")
    refused(capsys, ["eval", *GOOD, "--weights", "data.npz"], "data.npz", "not a state of network 'tiny'")
    refused(capsys, ["eval", "--device", "golden", "--weights", "run"], "digits-cnn")
    write_data(desk / "notest.npz", 4)
    refused(
        capsys,
        ["eval", "--network", "tiny.toml", "--device", "golden", "--data", "notest.npz", "--weights", "run"],
        "no test images",
    )


def test_eval_of_data_with_another_scale(desk, capsys):
    """The exponent of the images comes from the data, not from the run: half the brightness in codes is the same image."""
    assert cli.main(["train", *GOOD, "--out", "run"]) == 0
    with np.load(desk / "data.npz") as arrays:
        x, y = arrays["x"], arrays["y"]
    np.savez(desk / "plain.npz", x=x, y=y, x_test=x, y_test=y)
    bright = np.concatenate([x, np.full((1, 1, 6, 6), 64 * np.abs(x).max())])
    np.savez(desk / "bright.npz", x=bright, y=np.append(y, 0), x_test=x, y_test=y)
    scores = []
    for name in ("plain.npz", "bright.npz"):
        capsys.readouterr()
        assert (
            cli.main(
                ["eval", "--network", "tiny.toml", "--device", "golden", "--data", name, "--weights", "run"]
            )
            == 0
        )
        scores.append(float(capsys.readouterr().out.split("test accuracy ")[1].split(" ")[0]))
    assert abs(scores[0] - scores[1]) <= 20, scores


def test_verify_golden_against_itself(desk, capsys):
    assert cli.main(["verify", *GOOD, "--steps", "2"]) == 0
    out = capsys.readouterr().out
    assert "0 differences" in out and "over 2 steps" in out


def test_verilog_writes_a_new_folder_only(desk, capsys, monkeypatch):
    # Of both families it is the same text before their own blocks come in, which takes half a minute to make.
    monkeypatch.setattr(verilog, "emit_verilog", functools.cache(verilog.emit_verilog))
    assert cli.main(["verilog", "--config", "nano", "--out", "v"]) == 0
    names = {path.name for path in (desk / "v").iterdir()}
    assert {"registers.md", "registers.json", "gradloom_registers.h", "config.json"} < names
    assert any(name.endswith(".v") for name in names)
    assert cli.main(["verilog", "--config", "nano", "--family", "xc7", "--out", "v7"]) == 0
    assert [("DSP48E1 #(" in (desk / folder / "gradloom.v").read_text()) for folder in ("v", "v7")] == [False, True]
    assert cli.main(["verilog", "--config", "nano", "--package", "--out", "p"]) == 0
    added = {path.name for path in (desk / "p").iterdir()} - names
    assert added == {"gradloom.core", "gradloom_axi32.v", "registers.rdl"}
    assert all((desk / "p" / name).read_bytes() == (desk / "v" / name).read_bytes() for name in names)
    (desk / "shift.toml").write_text('base = "nano"\nmac = "post_shift"\n')
    refused(capsys, ["verilog", "--config", "shift.toml", "--family", "xc7", "--out", "w"], "leave --family out")
    (desk / "lattice.toml").write_text('base = "nano"\nfamily = "ecp5"\n')
    refused(capsys, ["verilog", "--config", "lattice.toml", "--family", "xc7", "--out", "w"], "is made for 'ecp5'")
    capsys.readouterr()
    (desk / "v" / "mine").write_text("keep")
    refused(capsys, ["verilog", "--config", "nano", "--out", "v"], "v exists")
    assert (desk / "v" / "mine").read_text() == "keep"
    refused(capsys, ["verilog", "--config", "nosuch", "--out", "w"], "nosuch")
    assert not (desk / "w").exists()


def test_machine_errors_are_told_in_one_line(monkeypatch, capsys):
    def stop(options):
        raise MachineError("the machine stopped with error 0x03")

    monkeypatch.setattr("gradloom.host.commands.verify_command.run", stop)
    assert cli.main(["verify"]) == 1
    assert capsys.readouterr().err == "gradloom: error: the machine stopped with error 0x03\n"


def test_a_broken_rule_of_a_bus_or_a_memory_is_told_in_one_line(monkeypatch, capsys):
    def stop(options):
        raise ProtocolError(["in cycle 7: tREFI: no REFRESH for too long"], "SDRAM protocol")

    monkeypatch.setattr("gradloom.host.commands.verify_command.run", stop)
    assert cli.main(["verify"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("gradloom: error: SDRAM protocol violated: in cycle 7: tREFI: no REFRESH for too long; ")
    assert "please report it" in line


def test_full_disk_is_told_in_one_line_and_leaves_the_old_file(desk, monkeypatch, capsys):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    assert cli.main(["train", *GOOD, "--out", "run"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "gradloom: error: No space left on device"
    assert not (desk / "run").exists()
