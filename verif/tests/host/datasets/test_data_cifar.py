"""CIFAR-10 in its binary and Python formats: the same data set, damaged and hostile files refused, nothing run."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from gradloom.host.datasets.data import load_dataset
from gradloom.host.files import UserError
from gradloom.models.arithmetic import pint

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_10", "test_batch")
COUNT = 12


def content(number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    return rng.integers(0, 256, (COUNT, 3072), dtype=np.uint8), rng.integers(0, 10, COUNT)


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    folder = tmp_path / "binary"
    folder.mkdir()
    for number, name in enumerate(BATCHES):
        images, labels = content(number)
        records = np.concatenate([labels[:, None].astype(np.uint8), images], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


def batch(number: int) -> dict:
    images, labels = content(number)
    return {b"batch_label": b"x", b"labels": labels.tolist(), b"data": images, b"filenames": [b"a.png"] * COUNT}


@pytest.fixture
def python(tmp_path: Path) -> Path:
    folder = tmp_path / "python"
    folder.mkdir()
    for number, name in enumerate(BATCHES):
        (folder / name).write_bytes(pickle.dumps(batch(number), protocol=2))
    return folder


def test_both_formats_give_the_published_order(binary, python):
    data = load_dataset(str(binary))
    assert load_dataset(str(python)).digest() == data.digest()
    assert data.name == "cifar-10" and data.classes == 10
    assert data.train_x.shape == (3 * COUNT, 3, 32, 32) and data.test_x.shape == (COUNT, 3, 32, 32)
    assert np.array_equal(data.train_y, np.concatenate([content(number)[1] for number in (0, 1, 2)])), "batch 10 comes last"
    pixels = 256 * np.ldexp(pint.decode(data.test_x).astype(np.float64), data.exponent)
    assert np.abs(pixels - content(3)[0].reshape(-1, 3, 32, 32)).max() <= 3, "255 is encoded as 252"


@pytest.mark.parametrize("protocol", range(1, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("keys", ["bytes", "text"])
def test_every_pickle_protocol(python, protocol, keys):
    expected = load_dataset(str(python)).digest()
    for number, name in enumerate(BATCHES):
        entries = batch(number)
        if keys == "text":
            entries = {key.decode(): value for key, value in entries.items()}
        (python / name).write_bytes(pickle.dumps(entries, protocol=protocol))
    assert load_dataset(str(python)).digest() == expected


def test_arrays_by_columns(python):
    expected = load_dataset(str(python)).digest()
    for number, name in enumerate(BATCHES):
        entries = batch(number)
        entries[b"data"] = np.asfortranarray(entries[b"data"])
        (python / name).write_bytes(pickle.dumps(entries, protocol=4))
    assert load_dataset(str(python)).digest() == expected


@pytest.mark.parametrize("inner", ["cifar-10-batches-py", "cifar-10-batches-bin"])
def test_folder_of_the_unpacked_archive(binary, python, tmp_path, inner):
    outer = tmp_path / "outer"
    outer.mkdir()
    (python if inner.endswith("py") else binary).rename(outer / inner)
    assert load_dataset(str(outer)).digest() == load_dataset(str(outer / inner)).digest()


def test_a_fifth_of_a_single_file_is_held_out(binary):
    data = load_dataset(str(binary / "data_batch_1.bin"))
    assert len(data.test_y) == COUNT // 5 and len(data.train_y) == COUNT - COUNT // 5
    assert load_dataset(str(binary / "data_batch_1.bin"), seed=1).digest() != data.digest()


class Hostile:
    """A pickle that would write a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return open, (str(self.target), "w")


def test_hostile_pickle_runs_nothing(python, tmp_path):
    target = tmp_path / "written"
    (python / "data_batch_2").write_bytes(pickle.dumps({b"data": Hostile(target), b"labels": []}))
    with pytest.raises(UserError, match=r"data_batch_2 is no Python batch .* asks for .*open"):
        load_dataset(str(python))
    assert not target.exists()


def entries(**changes: object) -> bytes:
    return pickle.dumps(batch(0) | {key.encode(): value for key, value in changes.items()}, protocol=2)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "data_batch_2"),
        (b"\x80\x02]", "data_batch_2"),
        (entries()[:-500], "data_batch_2"),
        (pickle.dumps([1, 2]), "data_batch_2"),
        (pickle.dumps({b"labels": [1]}), "no entry"),
        (pickle.dumps({b"data": 3, b"labels": [1]}), "data_batch_2"),
        (entries(data=content(0)[0].astype(np.float32)), "unsigned bytes"),
        (entries(data=np.array([{}], dtype=object)), "unsigned bytes"),
        (entries(data=content(0)[0][:, :3000]), "3000"),
        (entries(labels=[1, 2]), r"\(2,\)"),
        (entries(labels=["cat"] * COUNT), "data_batch_2"),
        (entries(labels=[10] * COUNT), "class numbers 10..10"),
        (entries(data=content(0)[0][:0], labels=[]), "data_batch_2"),
    ],
)
def test_damaged_python_batch_is_refused_by_name(python, raw, words):
    (python / "data_batch_2").write_bytes(raw)
    with pytest.raises(UserError, match=words) as caught:
        load_dataset(str(python))
    assert "data_batch_2" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: raw[:-1], "no multiple of 3073"),
        (lambda raw: b"", "no image"),
        (lambda raw: b"\x0a" + raw[1:], "class numbers"),
    ],
)
def test_damaged_binary_batch_is_refused_by_name(binary, damage, words):
    file = binary / "test_batch.bin"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match=words) as caught:
        load_dataset(str(binary))
    assert "test_batch.bin" in str(caught.value)


def test_folders_that_are_not_whole(binary, python):
    (binary / "test_batch.bin").unlink()
    with pytest.raises(UserError, match="no file test_batch"):
        load_dataset(str(binary))
    (python / "test_batch").rename(binary / "test_batch")
    with pytest.raises(UserError, match="binary and Python"):
        load_dataset(str(binary))
