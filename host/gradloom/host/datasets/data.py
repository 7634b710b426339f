"""Training data as PINT images: scikit-learn's digits, ``.npz`` files, MNIST idx files, CIFAR-10, folders of images.

Every source becomes a :class:`Dataset` of PINT(8, 3) codes with one exponent. Images of whole numbers (bytes above all) are
divided by the least power of two that brings them into -1..1, which changes the exponent alone; real numbers stay as they are.
On demand every channel is normalised instead. The order of the images of an epoch and the split of sources without test images
come from the project's own hash, so they are the same with every library version.
"""

import dataclasses
import gzip
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.host.files import UserError
from gradloom.models import digits
from gradloom.models.arithmetic import dither, pint

__all__ = ["DAMAGED", "Dataset", "Preparation", "RawImages", "channel_statistics", "epoch_order", "load_dataset", "make_dataset",
           "normalise", "quantise", "raw_images"]

DAMAGED = (OSError, ValueError, TypeError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What numpy, zipfile and gzip raise on files that are no archive, damaged, encrypted or larger than the memory."""
_EXPONENTS = range(-64, 128)
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


Channels = tuple[tuple[float, float], ...]
"""Mean and standard deviation of every channel."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images as PINT codes.

    Parameters
    ----------
    train_x, test_x : uint8 array (N, C, Y, X)
        PINT(8, 3) codes.
    train_y, test_y : int64 array (N,)
        Class numbers from 0.
    exponent : :class:`int`
        Value of an element = decode(code) * 2^exponent.
    whole : :class:`bool`
        Whether the source holds whole numbers.
    divisor : :class:`int`
        Power of two by which these are divided; 1 for real numbers, for the built-in digits, and where channels are normalised.
    channels : tuple of pairs of floats
        Mean and standard deviation of every channel by which it was normalised; none if it was not.
    valid_x, valid_y : arrays as of the others
        Training images that are held out (:meth:`held_out`), none unless asked for.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    exponent: int
    whole: bool = False
    divisor: int = 1
    channels: Channels = ()
    valid_x: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 1, 1, 1), np.uint8))
    valid_y: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

    def divided(self, divisor: int) -> "Dataset":
        """The same images divided by another power of two; real numbers stay as they are."""
        if not self.whole or self.channels:
            return self
        exponent = self.exponent + self.divisor.bit_length() - divisor.bit_length()
        return dataclasses.replace(self, exponent=exponent, divisor=divisor)

    def held_out(self, count: int) -> "Dataset":
        """The same images, ``count`` of the training images held out for validation: the first of ``epoch_order(N, 0, -2)``.

        The choice is one for all runs, so that they can be compared; the rest stays in its order.

        Raises
        ------
        :exc:`UserError`
            If none would be left to train with.
        """
        if count == 0:
            return self
        held, kept = _validation_split(self.name, len(self.train_y), count)
        return dataclasses.replace(self, train_x=self.train_x[kept], train_y=self.train_y[kept], valid_x=self.train_x[held],
                                   valid_y=self.train_y[held])

    @property
    def note(self) -> str:
        """What was done with the images, a clause for messages; empty if nothing."""
        if self.channels:
            return "every channel normalised to mean 0 and standard deviation 1"
        return f"images of whole numbers, divided by {self.divisor} to lie in -1..1" if self.divisor > 1 else ""

    @property
    def title(self) -> str:
        """Name and note."""
        return f"{self.name}, {self.note}" if self.note else self.name

    @property
    def classes(self) -> int:
        return max(int(labels.max(initial=0)) for labels in (self.train_y, self.valid_y, self.test_y)) + 1

    def digest(self) -> str:
        """SHA-256 over images, class numbers and exponent."""
        digest = hashlib.sha256(f"{self.train_x.shape} {self.test_x.shape} {self.exponent}".encode())
        held_out = (self.valid_x, self.valid_y) if len(self.valid_y) else ()
        for array in (self.train_x, self.train_y, self.test_x, self.test_y, *held_out):
            digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()


def quantise(images: np.ndarray) -> tuple[np.ndarray, int]:
    """Real images to PINT codes; the largest magnitude lands in [2048, 4095], as the delayed scale would put it.

    Raises
    ------
    :exc:`UserError`
        If the exponent leaves the range of the machine's exponent file.
    """
    if images.dtype == np.uint8:
        # By a table: millions of pixels as float64 would take eight times their memory.
        levels = np.arange(int(images.max(initial=0)) + 1, dtype=np.float64)
        codes, exponent = quantise(levels)
        return codes[images], exponent
    images = np.asarray(images, dtype=np.float64)
    peak = float(np.abs(images).max()) if images.size else 0.0
    exponent = 0 if peak == 0.0 else int(np.floor(np.log2(peak))) - 11
    if exponent not in _EXPONENTS:
        raise UserError(f"the largest magnitude of the images is {peak:g}, it must lie in 2^-53..2^139: rescale them")
    fraction_bits = 20
    wide = np.rint(np.ldexp(images, fraction_bits - exponent)).astype(np.int64)
    return pint.encode(wide, fraction_bits).code, exponent


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What is done with the numbers of a data set before anything trains on them.

    Parameters
    ----------
    divisor : :class:`int`, optional
        Power of two by which images of whole numbers are divided, 1 to take them as they are; default: :func:`make_dataset`'s.
    normalise : :class:`str`
        "none", or "channel" (:func:`normalise`), which leaves nothing to divide.
    channels : tuple of pairs of floats
        Mean and standard deviation to normalise every channel by; default: those of the training images that are not held out.
    validation : :class:`int`
        Training images that are held out (:meth:`Dataset.held_out`).
    """

    divisor: int | None = None
    normalise: str = "none"
    channels: Channels = ()
    validation: int = 0

    @classmethod
    def asked(cls, integers: str, normalise: str = "none", validation: int | None = None) -> "Preparation":
        """By the options ``--integers`` ("unit" or "raw"), ``--normalise`` and ``--validation``."""
        return cls(1 if integers == "raw" else None, normalise, validation=validation or 0)

    @classmethod
    def recorded(cls, record: dict[str, Any]) -> "Preparation":
        """Of the run with this record. Runs before divisors were recorded took whole numbers as they are."""
        data = record["data"]
        channels = tuple((float(mean), float(deviation)) for mean, deviation in data.get("channels", ()))
        return cls(int(data.get("divisor", 1)), "channel" if channels else "none", channels, data.get("validation", 0))


@dataclasses.dataclass(frozen=True)
class RawImages:
    """What a source holds, as it is: images (N, C, Y, X), class numbers (N,), and these two for testing if it has them."""

    name: str
    x: np.ndarray
    y: np.ndarray
    test: tuple[np.ndarray, np.ndarray] | None = None


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """Permutation of ``range(count)`` for one epoch: indices sorted by a hash of (seed, epoch, index)."""
    start = dither.mix32(seed + 0x51ED2701 * (epoch + 1))
    return np.argsort(dither.mix32(np.arange(count, dtype=np.int64) + start), kind="stable")


def _validation_split(name: str, images: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the held-out ones and, in their order, of those that are left to train with (:meth:`Dataset.held_out`)."""
    if count >= images:
        raise UserError(f"{count} of the {images} training images of {name} cannot be held out for validation, "
                        f"none would be left: give a smaller --validation")
    order = epoch_order(images, 0, -2)
    return order[:count], np.sort(order[count:])


def channel_statistics(x: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Mean and standard deviation of every channel of images (N, C, Y, X); of one that is all the same 1 as the latter."""
    found = []
    for channel in np.moveaxis(x, 1, 0):
        # By levels: millions of bytes as float64 would take eight times their memory.
        levels, counts = (np.arange(256.0), np.bincount(channel.ravel(), minlength=256)) if x.dtype == np.uint8 else (
            channel.ravel().astype(np.float64), None)
        mean = float(np.average(levels, weights=counts))
        deviation = float(np.sqrt(np.average((levels - mean) ** 2, weights=counts)))
        found.append((mean, deviation or 1.0))
    return tuple(found)


def normalise(x: np.ndarray, test: np.ndarray, channels: Channels) -> tuple[np.ndarray, np.ndarray, int]:
    """Images (N, C, Y, X) of any numbers, every channel less its mean, by its standard deviation.

    Returns
    -------
    codes of both, uint8 arrays, and their exponent
    """
    mean, deviation = np.array(channels).T[:, :, None, None]
    if x.dtype == np.uint8 and test.dtype == np.uint8:
        # A table of the 256 bytes for each channel.
        codes, exponent = quantise(((np.arange(256.0) - mean) / deviation)[:, 0])
        own = np.arange(x.shape[1])[None, :, None, None]
        return codes[own, x], codes[own, test], exponent
    codes, exponent = quantise((np.concatenate([x, test]) - mean) / deviation)
    return codes[: len(x)], codes[len(x) :], exponent


def make_dataset(raw: RawImages, *, seed: int = 0, preparation: Preparation | None = None) -> Dataset:
    """A source's images as a data set with one exponent; none are held out for validation.

    Images of an integer type are divided by the least power of two that is not below their largest magnitude, unless the
    ``preparation`` has another divisor or normalises every channel.
    Without ``test`` a fifth of the images, the first ones in the order ``epoch_order(N, seed, -1)``, is held out for testing.
    """
    x, y, test = raw.x, raw.y, raw.test
    if test is None:
        order = epoch_order(len(x), seed, -1)
        held_out, kept = order[: len(x) // 5], order[len(x) // 5 :]
        x, y, test = x[kept], y[kept], (x[held_out], y[held_out])
    preparation = preparation or Preparation()
    if preparation.normalise == "channel":
        # Images that are held out do not shift or scale those to train with. The exponent is one for all, as all have to fit.
        trained = x[_validation_split(raw.name, len(x), preparation.validation)[1]] if preparation.validation else x
        channels = preparation.channels or channel_statistics(trained)
        if len(channels) != x.shape[1]:
            raise UserError(f"{raw.name} has {x.shape[1]} channels, the training {len(channels)}: give images like its own")
        codes, test_codes, exponent = normalise(x, test[0], channels)
        return Dataset(raw.name, codes, y, test_codes, test[1], exponent, whole=x.dtype.kind in "iu", channels=channels)
    images = np.concatenate([x, test[0]])
    codes, exponent = quantise(images)
    data = Dataset(raw.name, codes[: len(x)], y, codes[len(x) :], test[1], exponent, whole=images.dtype.kind in "iu")
    if not data.whole:
        return data
    return data.divided(_unit(images) if preparation.divisor is None else preparation.divisor)


def _unit(images: np.ndarray) -> int:
    """The least power of two that is not below the largest magnitude of integers: 256 of bytes up to 255, 1 of zeros and ones."""
    peak = max(int(images.max(initial=0)), -int(images.min(initial=0)), 1)
    return 1 << (peak - 1).bit_length()


def load_dataset(source: RawImages | str, *, seed: int = 0, preparation: Preparation = Preparation()) -> Dataset:
    """A built-in data set (``digits``), an ``.npz`` file, MNIST idx files, CIFAR-10, a folder of images (docs/bench.md), or
    images that are given as they are.

    Parameters
    ----------
    preparation : :class:`Preparation`

    Raises
    ------
    :exc:`UserError`
        If there is no such data, or its arrays cannot be used.
    """
    if source == "digits":
        data = _digits(preparation)
    else:
        raw = source if isinstance(source, RawImages) else _read(source)
        data = make_dataset(raw, seed=seed, preparation=preparation)
    return data.held_out(preparation.validation)


def _digits(preparation: Preparation) -> Dataset:
    try:
        train_x, train_y, test_x, test_y, exponent = digits.load_digits_split()
    except ImportError:
        raise UserError("the digits come with scikit-learn, which is not installed: pip install 'gradloom[data]'") from None
    labels = np.asarray(train_y, np.int64), np.asarray(test_y, np.int64)
    if preparation.normalise == "channel":
        real = (np.ldexp(pint.decode(codes).astype(np.float64), exponent) for codes in (train_x, test_x))
        return make_dataset(RawImages("digits", next(real), labels[0], (next(real), labels[1])), preparation=preparation)
    return Dataset("digits", train_x, labels[0], test_x, labels[1], exponent)


def _read(source: str) -> RawImages:
    path = Path(source)
    if not path.exists():
        raise UserError(f"there is no data {source!r}: give digits, an .npz file, or a folder of MNIST idx files, of CIFAR-10 "
                        f"batches or of images (a sub-folder for each class)")
    from gradloom.host.datasets import data_cifar, data_images

    if data_cifar.recognises(path):
        return data_cifar.load(path)
    if data_images.recognises(path):
        return data_images.load(path)
    if path.is_dir() or "idx" in path.name:
        return _from_idx(path)
    if path.suffix == ".npz":
        return _from_npz(path)
    raise UserError(f"{path} is no .npz file, MNIST idx file or CIFAR-10 batch: convert it to .npz with arrays x and y")


def _images(name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise UserError(f"{name} must hold numbers, not {x.dtype}")
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4 or 0 in x.shape:
        raise UserError(
            f"{name} must have the shape (images, channels, rows, columns) or (images, rows, columns), not {x.shape}"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise UserError(f"{name} holds values that are not finite: replace them before training")
    return x


def _labels(name: str, y: np.ndarray, count: int) -> np.ndarray:
    if y.ndim != 1 or len(y) != count:
        raise UserError(f"{name} must hold one class number for each of the {count} images, its shape is {y.shape}")
    if y.dtype.kind not in "biuf":
        raise UserError(f"{name} must hold whole class numbers from 0, not {y.dtype}")
    if y.dtype.kind == "f" and not np.array_equal(y, np.rint(np.asarray(y, np.float64))):
        raise UserError(f"{name} must hold whole class numbers from 0, not {y.dtype}")
    if len(y) and not 0 <= float(y.min()) <= float(y.max()) <= 65535:
        raise UserError(f"{name} must hold class numbers in 0..65535, it holds {y.min()}..{y.max()}")
    return y.astype(np.int64)


def _from_npz(path: Path) -> RawImages:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except DAMAGED as error:
        raise UserError(f"{path} cannot be read as an .npz file: {error}") from None
    return raw_images(path.stem, arrays, str(path))


def raw_images(name: str, arrays: Mapping[str, np.ndarray], where: str) -> RawImages:
    """Arrays ``x`` (images) and ``y`` (class numbers), perhaps ``x_test`` and ``y_test``, as an ``.npz`` file has them.

    Parameters
    ----------
    name : :class:`str`
        Of the data.
    where : :class:`str`
        Where the arrays are from, for messages.

    Raises
    ------
    :exc:`UserError`
        If one is missing or cannot be used.
    """
    for key in ("x", "y"):
        if key not in arrays:
            raise UserError(
                f"{where} has no array {key!r}: it needs x (images) and y (class numbers), "
                f"and may have x_test and y_test; it has {', '.join(arrays) or 'none'}"
            )
    x = _images(f"{where}: x", arrays["x"])
    y = _labels(f"{where}: y", arrays["y"], len(x))
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise UserError(f"{where} has only one of x_test and y_test: give both or none")
    if "x_test" in arrays:
        test_x = _images(f"{where}: x_test", arrays["x_test"])
        test_y = _labels(f"{where}: y_test", arrays["y_test"], len(test_x))
        if test_x.shape[1:] != x.shape[1:]:
            raise UserError(
                f"{where}: images of x_test are {test_x.shape[1:]}, those of x are {x.shape[1:]}: make them equal"
            )
        return RawImages(name, x, y, (test_x, test_y))
    return RawImages(name, x, y)


def _read_idx(path: Path) -> np.ndarray:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except DAMAGED as error:
            raise UserError(f"{path} is a damaged gzip file: {error}") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise UserError(
            f"{path} is not an idx file: it must start with two zero bytes, a type and a number of dimensions"
        )
    dims = raw[3]
    if len(raw) < 4 + 4 * dims:
        raise UserError(f"{path} is cut short: its header promises {dims} dimensions")
    shape = struct.unpack(f">{dims}I", raw[4 : 4 + 4 * dims])
    dtype = np.dtype(_IDX_TYPES[raw[2]])
    expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(raw) - 4 - 4 * dims != expected:
        raise UserError(
            f"{path} is cut short or too long: shape {shape} needs {expected} bytes of data, "
            f"it has {len(raw) - 4 - 4 * dims}"
        )
    return np.frombuffer(raw, dtype, offset=4 + 4 * dims).reshape(shape)


def _from_idx(path: Path) -> RawImages:
    folder = path if path.is_dir() else path.parent
    found: dict[str, np.ndarray] = {}
    for part in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        files = sorted(file for file in folder.iterdir() if file.name.startswith(part))
        if not files:
            raise UserError(
                f"{folder} has no file {part}-idx...: MNIST needs train-images, train-labels, t10k-images "
                f"and t10k-labels (gzip is fine); CIFAR-10 needs data_batch_1, images a sub-folder for each class"
            )
        found[part] = _read_idx(files[0])
    train_x = _images(f"{folder}: train-images", found["train-images"])
    test_x = _images(f"{folder}: t10k-images", found["t10k-images"])
    train_y = _labels(f"{folder}: train-labels", found["train-labels"], len(train_x))
    test_y = _labels(f"{folder}: t10k-labels", found["t10k-labels"], len(test_x))
    if train_x.shape[1:] != test_x.shape[1:]:
        raise UserError(
            f"{folder}: training images are {train_x.shape[1:]}, test images {test_x.shape[1:]}: they must be equal"
        )
    return RawImages(folder.name or "idx", train_x, train_y, (test_x, test_y))
