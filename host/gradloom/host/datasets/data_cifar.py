"""CIFAR-10 as its authors publish it: binary batches, and Python batches, whose pickles are read without running anything."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.host.datasets.data import DAMAGED, RawImages
from gradloom.host.files import UserError

__all__ = ["load", "recognises"]

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS
_CLASSES = 10
_TRAIN, _TEST = "data_batch_", "test_batch"


def recognises(path: Path) -> bool:
    """Whether ``path`` is a CIFAR-10 batch, or a folder of them (or of the folder that its archives unpack to)."""
    if path.is_dir():
        return bool(_batches(path)) or _inner(path) is not None
    return _is_batch(path)


def load(path: Path) -> RawImages:
    """Training images from every ``data_batch_N`` in order of N, test images from ``test_batch``; a single file has none."""
    if path.is_file():
        return RawImages(path.name, *_read(path))
    folder = path if _batches(path) else _inner(path) or path
    train, tests = _batches(folder), [file for file in folder.iterdir() if file.name.removesuffix(".bin") == _TEST]
    if len(tests) != 1:
        what = "no file test_batch" if not tests else "both a binary and a Python test_batch"
        raise UserError(f"{folder} has {what}: CIFAR-10 needs data_batch_1 to data_batch_5 and test_batch, all of one format; "
                        f"of a single batch file a fifth is held out for testing")
    formats = {file.suffix for file in [*train, *tests]}
    if len(formats) > 1:
        raise UserError(f"{folder} holds binary and Python batches: leave the files of one format")
    parts = [_read(file) for file in train]
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return RawImages("cifar-10", x, y, _read(tests[0]))


def _is_batch(path: Path) -> bool:
    name = path.name.removesuffix(".bin")
    return name == _TEST or (name.startswith(_TRAIN) and name[len(_TRAIN) :].isdigit())


def _batches(folder: Path) -> list[Path]:
    found = [file for file in folder.iterdir() if _is_batch(file) and file.name.startswith(_TRAIN)]
    return sorted(found, key=lambda file: (int(file.name.removesuffix(".bin")[len(_TRAIN) :]), file.name))


def _inner(folder: Path) -> Path | None:
    candidates = (folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin")
    return next((inner for inner in candidates if inner.is_dir() and _batches(inner)), None)


def _read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images (N, 3, 32, 32) and int64 class numbers (N,)."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    images, labels = _binary(file, raw) if file.suffix == ".bin" else _python(file, raw)
    if not len(labels):
        raise UserError(f"{file} holds no image: fetch it anew")
    if labels.min() < 0 or labels.max() >= _CLASSES:
        found = f"{labels.min()}..{labels.max()}"
        raise UserError(f"{file} holds class numbers {found}, CIFAR-10 has 0..{_CLASSES - 1}: give batches of CIFAR-10")
    return images.reshape(-1, *_SHAPE), labels


def _binary(file: Path, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    if len(raw) % _RECORD:
        raise UserError(f"{file} is cut short or no CIFAR-10 batch: its {len(raw)} bytes are no multiple of {_RECORD}; "
                        f"fetch it anew")
    records = np.frombuffer(raw, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:], records[:, 0].astype(np.int64)


# Python batches


class _Type:
    """Stands for numpy.dtype; only its name is kept."""

    def __init__(self, name: Any, *_: Any) -> None:
        self.name = name.decode("latin-1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like do not matter for bytes."""


class _Array:
    """Stands for numpy.ndarray: a state that can only be an array of bytes."""

    value: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, raw = state
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        self.value = _array(raw, kind, shape, by_columns)


def _array(raw: Any, kind: Any, shape: Any, by_columns: Any) -> np.ndarray:
    if not isinstance(kind, _Type) or kind.name not in ("u1", "|u1", "uint8"):
        raise ValueError("its images are not arrays of unsigned bytes")
    return np.frombuffer(bytes(raw), np.uint8).reshape(shape, order="F" if by_columns else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(raw: Any, kind: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.value = _array(raw, kind, shape, order == "F")
    return array


def _encode(text: Any, encoding: Any = "latin-1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise ValueError("it calls an encoder")
    return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], Any] = {("numpy", "ndarray"): _Array, ("numpy", "dtype"): _Type, ("_codecs", "encode"): _encode}
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED |= {(f"{_core}.multiarray", "_reconstruct"): _reconstruct, (f"{_core}.numeric", "_frombuffer"): _frombuffer}


class _Unpickler(pickle.Unpickler):
    """Knows the names above, which stand for harmless parts of this module, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no part of a CIFAR-10 batch")
        return found


def _python(file: Path, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
        entries = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
        images, labels = entries["data"].value, np.array(entries["labels"], np.int64)
    except (*DAMAGED, pickle.UnpicklingError, AttributeError, IndexError, OverflowError, ImportError, RecursionError) as error:
        reason = f"it has no entry {error}" if isinstance(error, KeyError) else error
        raise UserError(f"{file} is no Python batch of CIFAR-10 ({reason}): fetch it anew; nothing in it was run") from None
    if images.ndim != 2 or images.shape[1] != _PIXELS or labels.shape != (len(images),):
        raise UserError(f"{file} holds images of shape {images.shape} and labels of shape {labels.shape}, a batch of CIFAR-10 has "
                        f"(N, {_PIXELS}) and (N,): fetch it anew")
    return images, labels
