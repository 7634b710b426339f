"""A folder of PNG and JPEG images, a sub-folder for each class; with ``train`` and ``test`` (or ``val``) above them, or not."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from gradloom.host.datasets.data import RawImages
from gradloom.host.files import UserError

__all__ = ["load", "recognises"]

_SUFFIXES = (".png", ".jpg", ".jpeg")
_CHANNELS = {"L": 1, "RGB": 3}
_TESTS = ("test", "val")


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _classes(folder: Path) -> list[Path]:
    return [entry for entry in _visible(folder) if entry.is_dir()]


def recognises(path: Path) -> bool:
    """Whether ``path`` is a folder whose entries (but hidden ones) are folders, or an image file."""
    if path.is_dir():
        entries = _visible(path)
        return bool(entries) and all(entry.is_dir() for entry in entries)
    return path.suffix.lower() in _SUFFIXES


def load(path: Path) -> RawImages:
    """Classes are numbered by their folders' names in order. Without a test folder there are no test images.

    Raises
    ------
    :exc:`UserError`
        If Pillow is missing, or a file is no image, or not of the size and colours of the first one; nothing is resized.
    """
    if not path.is_dir():
        raise UserError(f"{path} is a single image: give the folder that holds a sub-folder for each class")
    pillow = _pillow()
    names = {entry.name for entry in _classes(path)}
    tests = [name for name in _TESTS if name in names]
    if "train" not in names or not tests:
        return RawImages(path.name, *_read(pillow, path, None, None))
    if len(names) > 2:
        extra = ", ".join(sorted(names - {"train", tests[0]}))
        raise UserError(f"{path} holds train, {tests[0]} and {extra}: leave train and one of test and val there")
    classes = [entry.name for entry in _classes(path / "train")]
    train = _read(pillow, path / "train", classes, None)
    test = _read(pillow, path / tests[0], classes, train[0].shape[1:])
    return RawImages(path.name, *train, test)


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("folders of images need Pillow, which is not installed: pip install 'gradloom[images]'") from None
    return Image


def _files(folder: Path, classes: list[str]) -> Iterator[tuple[Path, int]]:
    for entry in _visible(folder):
        if entry.name not in classes:
            raise UserError(f"{entry} belongs to no class of the training images: move it away, or add that class to them")
        files = _visible(entry)
        if not files:
            raise UserError(f"{entry} holds no image: add some, or remove the folder")
        for file in files:
            if file.suffix.lower() not in _SUFFIXES or not file.is_file():
                raise UserError(f"{file} is no PNG or JPEG file ({', '.join(_SUFFIXES)}): convert it, or move it away")
            yield file, classes.index(entry.name)


def _read(
    pillow: ModuleType, folder: Path, classes: list[str] | None, shape: tuple[int, ...] | None
) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images (N, C, Y, X) and int64 class numbers (N,); every image has the first one's ``shape`` (C, Y, X)."""
    images, labels = [], []
    found = list(_files(folder, classes if classes is not None else [entry.name for entry in _classes(folder)]))
    if not found:
        raise UserError(f"{folder} holds no class folder: make one for each class")
    for file, label in found:
        image = _image(pillow, file)
        if shape is not None and image.shape != shape:
            raise UserError(f"{file} is {_text(image.shape)}, the images before it are {_text(shape)}: all must be equal, and "
                            f"nothing is resized silently; crop or scale it first")
        shape = image.shape
        images.append(image)
        labels.append(label)
    return np.stack(images), np.array(labels, np.int64)


def _image(pillow: ModuleType, file: Path) -> np.ndarray:
    try:
        with pillow.open(file, formats=("PNG", "JPEG")) as image:
            mode = image.mode
            if mode in _CHANNELS:
                pixels = np.asarray(image, np.uint8)
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, pillow.DecompressionBombError) as error:
        raise UserError(f"{file} cannot be read as an image: {error}") from None
    if mode not in _CHANNELS:
        raise UserError(f"{file} has colour mode {mode}, only grey (L) and RGB are read: convert it")
    return pixels[None] if mode == "L" else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _text(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} channel{'s' if shape[0] > 1 else ''} of {shape[1]} x {shape[2]}"
