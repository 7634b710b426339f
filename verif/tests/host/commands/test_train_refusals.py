"""`gradloom train` refuses bad files, data, options and folders to go on with in one sentence, and changes nothing."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gradloom.verif.cli_desk import GOOD, TINY, refused, write_data


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
