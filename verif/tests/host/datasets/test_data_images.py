"""Folders of images: classes by folder, splits, and what is refused by file name because nothing is resized."""

import builtins
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradloom.host.datasets.data import load_dataset
from gradloom.host.files import UserError
from gradloom.models.arithmetic import pint

SIZE = (6, 5)


def picture(number: int, mode: str = "RGB", size: tuple[int, int] = SIZE) -> Image.Image:
    rng = np.random.default_rng(number)
    shape = (*size, 3) if mode == "RGB" else size
    return Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))


def fill(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 5, **options: object) -> Path:
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture(10 * label + number, **options).save(folder / name / f"{number}.png")
    return folder


def test_classes_are_numbered_by_name_and_pixels_kept(tmp_path):
    data = load_dataset(str(fill(tmp_path / "pets", ("dog", "cat"))))
    assert data.name == "pets" and data.classes == 2
    assert data.train_x.shape == (8, 3, *SIZE) and data.test_x.shape == (2, 3, *SIZE)
    found = np.concatenate([data.train_x, data.test_x])
    labels = np.concatenate([data.train_y, data.test_y])
    pixels = 256 * np.ldexp(pint.decode(found).astype(np.float64), data.exponent)
    for number in (*range(5), *range(10, 15)):
        # "dog" was filled first, with numbers from 0, and is class 1 by name.
        true = np.asarray(picture(number), np.float64).transpose(2, 0, 1)
        match = [i for i in range(10) if np.abs(pixels[i] - true).max() <= 3]
        assert len(match) == 1 and labels[match[0]] == int(number < 5), number


@pytest.mark.parametrize("test", ["test", "val"])
def test_train_and_test_folders(tmp_path, test):
    fill(tmp_path / "train", count=4)
    fill(tmp_path / test, ("dog",), count=2)
    data = load_dataset(str(tmp_path))
    assert len(data.train_y) == 8 and np.array_equal(data.test_y, [1, 1])


def test_grey_images_and_jpeg(tmp_path):
    fill(tmp_path, mode="L")
    picture(99, mode="L").save(tmp_path / "cat" / "more.JPG", format="JPEG")
    (tmp_path / ".hidden").write_text("left alone")
    data = load_dataset(str(tmp_path))
    assert data.train_x.shape[1:] == (1, *SIZE) and len(data.train_y) + len(data.test_y) == 11


def spoil_size(folder: Path) -> str:
    picture(1, size=(7, 5)).save(folder / "dog" / "odd.png")
    return r"odd\.png is 3 channels of 7 x 5, the images before it are 3 channels of 6 x 5.*crop"


def spoil_colours(folder: Path) -> str:
    picture(1, mode="L").save(folder / "dog" / "grey.png")
    return r"grey\.png is 1 channel of"


def spoil_mode(folder: Path) -> str:
    picture(1).convert("RGBA").save(folder / "dog" / "alpha.png")
    return r"alpha\.png has colour mode RGBA.*convert"


def spoil_bytes(folder: Path) -> str:
    (folder / "dog" / "broken.png").write_bytes((folder / "dog" / "0.png").read_bytes()[:60])
    return r"broken\.png cannot be read"


def spoil_format(folder: Path) -> str:
    picture(1).save(folder / "dog" / "disguised.png", format="BMP")
    return r"disguised\.png cannot be read"


def spoil_kind(folder: Path) -> str:
    (folder / "dog" / "notes.txt").write_text("woof")
    return r"notes\.txt is no PNG or JPEG"


def spoil_class(folder: Path) -> str:
    (folder / "eel").mkdir()
    return r"eel holds no image"


@pytest.mark.parametrize(
    "spoil", [spoil_size, spoil_colours, spoil_mode, spoil_bytes, spoil_format, spoil_kind, spoil_class]
)
def test_unfit_files_are_refused_by_name(tmp_path, spoil):
    words = spoil(fill(tmp_path))
    with pytest.raises(UserError, match=words):
        load_dataset(str(tmp_path))


def test_test_images_of_unknown_classes_or_other_size(tmp_path):
    fill(tmp_path / "train")
    fill(tmp_path / "test", ("fox",))
    with pytest.raises(UserError, match="fox belongs to no class"):
        load_dataset(str(tmp_path))
    (tmp_path / "test" / "fox").rename(tmp_path / "spare")
    (tmp_path / "spare").rename(tmp_path / "test" / "cat")
    picture(3, size=(8, 8)).save(tmp_path / "test" / "cat" / "0.png")
    with pytest.raises(UserError, match=r"test.cat.0\.png is 3 channels of 8 x 8"):
        load_dataset(str(tmp_path))
    (tmp_path / "val").mkdir()
    with pytest.raises(UserError, match="train, test and val"):
        load_dataset(str(tmp_path))


def test_single_image(tmp_path):
    fill(tmp_path)
    with pytest.raises(UserError, match="single image"):
        load_dataset(str(tmp_path / "cat" / "0.png"))


def test_without_pillow(tmp_path, monkeypatch):
    fill(tmp_path)
    original = builtins.__import__

    def without(name, *arguments, **options):
        if name == "PIL":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"Pillow.*pip install 'gradloom\[images\]'"):
        load_dataset(str(tmp_path))
