"""The command line: bad input is refused in one sentence with exit code 2, nothing is overwritten; good runs end whole."""

import json
import pickle
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gradloom.host import cli
from gradloom.host.commands.train_command import schedule
from gradloom.host.devices.device import MachineError
from gradloom.models import atomic
from gradloom.models.network import load_network

sys.path.insert(0, str(Path(__file__).parent))
from cli_desk import GOOD, TINY, lay, write_data


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with a small network and small data, as the working directory."""
    monkeypatch.chdir(tmp_path)
    return lay(tmp_path)


def refused(capsys, arguments: list[str], *words: str) -> str:
    """Run a command that must be refused; returns the sentence."""
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("gradloom: error: ")
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]


def make_bad_files(folder: Path) -> None:
    (folder / "no.toml").write_text("this is [no TOML")
    (folder / "latin.toml").write_bytes(b'name = "\xff"')
    (folder / "empty.toml").write_text("")
    (folder / "nokernel.toml").write_text(TINY.replace("kernel = 3\n", ""))
    (folder / "badlayer.toml").write_text(TINY.replace('"max_pool"', '"min_pool"'))
    (folder / "odd.toml").write_text(TINY.replace("classes = 3", "classes = 3\ncolour = 1"))
    (folder / "huge.toml").write_text(
        TINY.replace("[1, 6, 6]", "[1, 4095, 4095]").replace("stride = 2", "stride = 15")
    )
    (folder / "text.npz").write_text("no archive")
    (folder / "void.npz").write_bytes(b"")
    np.save(folder / "array.npy", np.zeros(3))
    (folder / "array.npy").rename(folder / "array.npz")
    (folder / "pickled.npz").write_bytes(pickle.dumps({"x": [1]}))
    np.savez(folder / "objects.npz", x=np.array([{}, {}], dtype=object), y=np.zeros(2))
    np.savez(folder / "nothing.npz")
    np.savez(folder / "only_x.npz", x=np.zeros((4, 1, 6, 6)))
    x, y = np.zeros((40, 1, 6, 6)), np.arange(40) % 3
    for name, arrays in {
        "flat": {"x": np.zeros((40, 36)), "y": y},
        "noimages": {"x": np.zeros((0, 1, 6, 6)), "y": np.zeros(0)},
        "other": {"x": np.zeros((40, 1, 7, 6)), "y": y},
        "text_x": {"x": np.full((40, 1, 6, 6), "a"), "y": y},
        "complex": {"x": np.zeros((40, 1, 6, 6), complex), "y": y},
        "nan": {"x": np.full((40, 1, 6, 6), np.nan), "y": y},
        "large": {"x": x + 1e60, "y": y},
        "small": {"x": x + 1e-60, "y": y},
        "short_y": {"x": x, "y": y[:39]},
        "column_y": {"x": x, "y": y[:, None]},
        "negative_y": {"x": x, "y": y - 1},
        "fourth_y": {"x": x, "y": y + 1},
        "huge_y": {"x": x, "y": y + 10**9},
        "real_y": {"x": x, "y": y + 0.5},
        "nan_y": {"x": x, "y": np.full(40, np.nan)},
        "infinite_y": {"x": x, "y": np.full(40, np.inf)},
        "text_y": {"x": x, "y": np.full(40, "cat")},
        "half_test": {"x": x, "y": y, "x_test": x},
        "other_test": {"x": x, "y": y, "x_test": np.zeros((5, 1, 7, 7)), "y_test": y[:5]},
        "test_labels": {"x": x, "y": y, "x_test": x, "y_test": y + 9},
    }.items():
        np.savez(folder / f"{name}.npz", **arrays)
    write_data(folder / "whole.npz")
    raw = (folder / "whole.npz").read_bytes()
    (folder / "cut.npz").write_bytes(raw[: len(raw) // 2])
    bent = bytearray(raw)
    bent[200] ^= 0xFF
    (folder / "bent.npz").write_bytes(bent)
    header = (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000, 1000, 9), }".ljust(117) + b"\n"
    )
    with zipfile.ZipFile(folder / "bomb.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    (folder / "data.csv").write_text("1,2,3")
    (folder / "emptydir").mkdir()
    (folder / "file").write_text("mine")
    (folder / "bad.toml").write_text('base = "nano"\nclusterz = 3\n')
    (folder / "shape.toml").write_text("clusters = 4\nwpus = 1\ncols = 3\n")
    (folder / "unequal.toml").write_text("clusters = 8\nwpus = 1\ncols = 2\n")
    (folder / "nobase.toml").write_text('base = "mini"\n')
    (folder / "missing.toml").write_text("clusters = 2\n")
    (folder / "string.toml").write_text('base = "nano"\nwpus = "two"\n')


TRAIN_REFUSALS = [
    (["--network", "nosuch"], "nosuch", "digits-cnn"),
    (["--network", "emptydir"], "emptydir"),
    (["--network", "n" * 300], "name too long"),
    (["--network", "no.toml"], "no.toml", "TOML"),
    (["--network", "latin.toml"], "latin.toml"),
    (["--network", "empty.toml"], "'input' is missing"),
    (["--network", "nokernel.toml"], "'conv'", "'kernel' is missing"),
    (["--network", "badlayer.toml"], "'pool'", "min_pool"),
    (["--network", "odd.toml"], "colour"),
    (["--network", "/proc/self/mem"], "Input/output error"),
    (["--config", "nosuch"], "nosuch", "nano"),
    (["--config", "no.toml"], "no.toml"),
    (["--config", "bad.toml"], "clusterz"),
    (["--config", "shape.toml"], "cols must be 1, 2, 4 or 8"),
    (["--config", "unequal.toml"], "clusters must equal cols"),
    (["--config", "nobase.toml"], "mini"),
    (["--config", "missing.toml"], "'wpus' is missing"),
    (["--config", "string.toml"], "wpus must be a positive integer"),
    (["--config", "/proc/self/mem"], "Input/output error"),
    (["--data", "nosuch.npz"], "nosuch.npz"),
    (["--data", "data.csv"], "data.csv", "convert"),
    (["--data", "emptydir"], "train-images"),
    (["--data", "digits"], "(1, 6, 6)", "(1, 8, 8)"),
    (["--data", "text.npz"], "text.npz"),
    (["--data", "void.npz"], "void.npz"),
    (["--data", "array.npz"], "array.npz"),
    (["--data", "pickled.npz"], "pickled.npz"),
    (["--data", "objects.npz"], "objects.npz"),
    (["--data", "bomb.npz"], "bomb.npz"),
    (["--data", "cut.npz"], "cut.npz"),
    (["--data", "bent.npz"], "bent.npz"),
    (["--data", "nothing.npz"], "no array 'x'"),
    (["--data", "only_x.npz"], "no array 'y'"),
    (["--data", "flat.npz"], "(40, 36)"),
    (["--data", "noimages.npz"], "(0, 1, 6, 6)"),
    (["--data", "other.npz"], "(1, 7, 6)"),
    (["--data", "text_x.npz"], "x must hold numbers"),
    (["--data", "complex.npz"], "x must hold numbers"),
    (["--data", "nan.npz"], "not finite"),
    (["--data", "large.npz"], "1e+60"),
    (["--data", "small.npz"], "1e-60"),
    (["--data", "short_y.npz"], "40 images"),
    (["--data", "column_y.npz"], "40 images"),
    (["--data", "negative_y.npz"], "-1..1"),
    (["--data", "fourth_y.npz"], "4 classes"),
    (["--data", "huge_y.npz"], "0..65535"),
    (["--data", "real_y.npz"], "whole class numbers"),
    (["--data", "nan_y.npz"], "whole class numbers"),
    (["--data", "infinite_y.npz"], "0..65535"),
    (["--data", "text_y.npz"], "whole class numbers"),
    (["--data", "half_test.npz"], "only one of x_test and y_test"),
    (["--data", "other_test.npz"], "x_test"),
    (["--data", "test_labels.npz"], "12 classes"),
    (["--batch", "0"], "--batch", "not 0"),
    (["--batch", "-3"], "--batch"),
    (["--batch", "many"], "--batch", "'many'"),
    (["--batch", "49"], "--batch 49", "48 training images"),
    (["--steps", "-1"], "--steps"),
    (["--steps", "99999999999"], "--steps"),
    (["--steps", "1", "--epochs", "1"], "--epochs"),
    (["--epochs", "0"], "--epochs"),
    (["--epochs", "1.5"], "--epochs"),
    (["--lr", "0"], "--lr"),
    (["--lr", "-0.1"], "--lr"),
    (["--lr", "nan"], "--lr"),
    (["--lr", "65"], "--lr"),
    (["--momentum", "1"], "--momentum"),
    (["--momentum", "-0.5"], "--momentum"),
    (["--weight-decay", "0.9"], "--weight-decay"),
    (["--seed", "-1"], "--seed"),
    (["--seed", "4294967296"], "--seed"),
    (["--seed", "x"], "--seed"),
    (["--check", "some"], "--check"),
    (["--rounding", "errors"], "--rounding", "KIND=nearest or KIND=stochastic"),
    (["--rounding", "errors=up"], "--rounding", "errors must be 'nearest' or 'stochastic', not 'up'"),
    (["--rounding", "bias=nearest"], "--rounding", "unknown key 'bias'"),
    (["--device", "board"], "--device"),
    (["--dram-latency", "-1"], "--dram-latency"),
    (["--dram-bytes-per-cycle", "0"], "--dram-bytes-per-cycle"),
    (["--dram-bytes-per-cycle", "0.0001"], "--dram-bytes-per-cycle"),
    (["--dram-bytes-per-cycle", "nan"], "--dram-bytes-per-cycle"),
    (["--stalls", "1"], "--stalls"),
    (["--stalls", "-0.1"], "--stalls"),
    (["--trace-cycles", "5"], "--trace-cycles"),
    (["--trace-cycles", "9:3"], "--trace-cycles"),
    (["--trace-fst", "wave.fst"], "--trace-fst", "--device rtl"),
    (["--out", "file"], "file exists"),
    (["--out", "file/run"], "file/run"),
    (["--out", "o" * 300], "name too long"),
    (["--resume", "emptydir"], "run.json"),
    (["--resume", "nosuch"], "run.json"),
    (["--resume", "file"], "file"),
    (["--frobnicate"], "--frobnicate"),
    (["--steps"], "--steps"),
]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(case[0], case[1:]) for case in TRAIN_REFUSALS],
    ids=[" ".join(case[0])[:40] for case in TRAIN_REFUSALS],
)
def test_train_refuses(desk, capsys, arguments, words):
    # Tests may run as root, who can read every ordinary file; only Linux has one that fails for root as well.
    if "/proc/self/mem" in arguments and not Path("/proc/self/mem").exists():
        # Skipped where there is no such file (not Linux): there is nothing to be refused. All other cases run.
        pytest.skip("needs a file that cannot be read even by root")
    make_bad_files(desk)
    before = {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()}
    keep = [] if "--resume" in arguments else GOOD
    refused(capsys, ["train", *keep, *arguments], *words)
    assert {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()} == before


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
    assert set(held) == {"run.json", "checkpoint.npz", "weights.npz", "report.html"}
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
    capsys.readouterr()
    refused(capsys, ["train", *GOOD, "--warmup", "0"], "--warmup")


def test_resume_refuses(desk, capsys):
    assert cli.main(["train", *GOOD, "--steps", "3", "--out", "run"]) == 0
    capsys.readouterr()
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


def test_verilog_writes_a_new_folder_only(desk, capsys):
    assert cli.main(["verilog", "--config", "nano", "--out", "v"]) == 0
    names = {path.name for path in (desk / "v").iterdir()}
    assert {"registers.md", "registers.json", "gradloom_registers.h", "config.json"} < names
    assert any(name.endswith(".v") for name in names)
    assert cli.main(["verilog", "--config", "nano", "--family", "xc7", "--out", "v7"]) == 0
    assert [("DSP48E1 #(" in (desk / folder / "gradloom.v").read_text()) for folder in ("v", "v7")] == [False, True]
    (desk / "shift.toml").write_text('base = "nano"\nmac = "post_shift"\n')
    capsys.readouterr()
    refused(capsys, ["verilog", "--config", "shift.toml", "--family", "xc7", "--out", "w"], "leave --family out")
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


def test_full_disk_is_told_in_one_line_and_leaves_the_old_file(desk, monkeypatch, capsys):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    assert cli.main(["train", *GOOD, "--out", "run"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "gradloom: error: No space left on device"
    assert not (desk / "run").exists()
