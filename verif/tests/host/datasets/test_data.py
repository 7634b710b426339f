"""Data sources: digits, .npz files, MNIST idx files (plain and gzip), and the ways in which a file can be damaged."""

import dataclasses
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from gradloom.host.datasets.data import Preparation, epoch_order, load_dataset, quantise
from gradloom.host.files import UserError
from gradloom.models.arithmetic import pint

PARTS = {
    "train-images-idx3-ubyte": (12, 5, 4),
    "train-labels-idx1-ubyte": (12,),
    "t10k-images-idx3-ubyte": (6, 5, 4),
    "t10k-labels-idx1-ubyte": (6,),
}


def idx(array: np.ndarray) -> bytes:
    """An idx file of bytes."""
    return (
        struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    )


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for name, shape in PARTS.items():
        (tmp_path / name).write_bytes(idx(rng.integers(0, 10 if len(shape) == 1 else 256, shape)))
    return tmp_path


def values(codes: np.ndarray, exponent: int) -> np.ndarray:
    return np.ldexp(pint.decode(codes).astype(np.float64), exponent)


def test_digits_are_exact():
    data = load_dataset("digits")
    assert (
        data.train_x.shape == (1437, 1, 8, 8) and data.test_x.shape == (360, 1, 8, 8) and data.classes == 10
    )
    pixels = values(data.train_x, data.exponent) * 16
    assert set(np.unique(pixels)) == set(range(17))


def test_idx_folder(mnist):
    data = load_dataset(str(mnist))
    raw = np.frombuffer((mnist / "train-images-idx3-ubyte").read_bytes()[16:], np.uint8).reshape(12, 1, 5, 4)
    assert data.train_x.shape == (12, 1, 5, 4) and data.test_x.shape == (6, 1, 5, 4)
    assert np.abs(256 * values(data.train_x, data.exponent) - raw).max() <= 2
    labels = np.frombuffer((mnist / "t10k-labels-idx1-ubyte").read_bytes()[8:], np.uint8)
    assert np.array_equal(data.test_y, labels)
    assert load_dataset(str(mnist / "train-images-idx3-ubyte")).digest() == load_dataset(str(mnist)).digest()


def test_gzip_gives_the_same(mnist):
    plain = load_dataset(str(mnist)).digest()
    for name in PARTS:
        (mnist / f"{name}.gz").write_bytes(gzip.compress((mnist / name).read_bytes()))
        (mnist / name).unlink()
    assert load_dataset(str(mnist)).digest() == plain


def damage_cut(raw: bytes) -> bytes:
    return raw[:-1]


def damage_long(raw: bytes) -> bytes:
    return raw + b"\0"


def damage_header(raw: bytes) -> bytes:
    return raw[:7]


def damage_magic(raw: bytes) -> bytes:
    return b"\1" + raw[1:]


def damage_type(raw: bytes) -> bytes:
    return raw[:2] + b"\x07" + raw[3:]


def damage_dimensions(raw: bytes) -> bytes:
    return raw[:3] + b"\xff" + raw[4:]


def damage_size(raw: bytes) -> bytes:
    return raw[:4] + b"\xff\xff\xff\xff" + raw[8:]


def damage_gzip(raw: bytes) -> bytes:
    return gzip.compress(raw)[:-6]


def damage_deflate(raw: bytes) -> bytes:
    packed = bytearray(gzip.compress(raw))
    packed[20] ^= 0xFF
    return bytes(packed)


def damage_empty(raw: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut,
        damage_long,
        damage_header,
        damage_magic,
        damage_type,
        damage_dimensions,
        damage_size,
        damage_gzip,
        damage_deflate,
        damage_empty,
    ],
)
@pytest.mark.parametrize("name", list(PARTS))
def test_damaged_idx_file_is_refused_by_name(mnist, name, damage):
    (mnist / name).write_bytes(damage((mnist / name).read_bytes()))
    with pytest.raises(UserError, match=name):
        load_dataset(str(mnist))


@pytest.mark.parametrize("name", list(PARTS))
def test_missing_idx_file_is_refused_by_name(mnist, name):
    (mnist / name).unlink()
    with pytest.raises(UserError, match=name[: name.index("-idx")]):
        load_dataset(str(mnist))


def test_folder_in_place_of_an_idx_file(mnist):
    (mnist / "train-labels-idx1-ubyte").unlink()
    (mnist / "train-labels-idx1-ubyte").mkdir()
    with pytest.raises(UserError, match="train-labels-idx1-ubyte cannot be read"):
        load_dataset(str(mnist))


def test_idx_files_that_do_not_belong_together(mnist):
    (mnist / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((6, 5, 5))))
    with pytest.raises(UserError, match=r"test images \(1, 5, 5\)"):
        load_dataset(str(mnist))
    (mnist / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((7, 5, 4))))
    with pytest.raises(UserError, match="7 images"):
        load_dataset(str(mnist))


def test_npz_with_its_own_test_images(tmp_path):
    x = np.linspace(-1, 1, 2 * 5 * 3 * 4).reshape(10, 3, 4)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(10) % 4, x_test=x[:3], y_test=np.arange(3))
    data = load_dataset(str(tmp_path / "d.npz"))
    assert data.train_x.shape == (10, 1, 3, 4) and data.test_x.shape == (3, 1, 3, 4) and data.classes == 4
    assert np.array_equal(data.train_x[:3], data.test_x), "one exponent for both"
    assert data.train_y.dtype == np.int64


def test_npz_without_test_images_is_split(tmp_path):
    x = np.arange(50.0)[:, None, None] + np.zeros((50, 2, 2))
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(50) % 5)
    data = load_dataset(str(tmp_path / "d.npz"))
    assert len(data.train_y) == 40 and len(data.test_y) == 10
    assert load_dataset(str(tmp_path / "d.npz")).digest() == data.digest()
    assert load_dataset(str(tmp_path / "d.npz"), seed=1).digest() != data.digest()


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.float16, np.float32, np.uint64])
def test_number_types(tmp_path, dtype):
    x = (np.arange(5 * 4) % 2).reshape(5, 2, 2).astype(dtype)
    np.savez(tmp_path / "d.npz", x=x, y=(np.arange(5) % 2).astype(dtype))
    data = load_dataset(str(tmp_path / "d.npz"))
    assert set(np.unique(values(np.concatenate([data.train_x, data.test_x]), data.exponent))) == {0, 1}


@pytest.mark.parametrize(("images", "divisor"), [
    ([0, 255], 256), ([0, 128], 128), ([0, 129], 256), ([0, 16], 16), ([0, 1], 1), ([0, 0], 1), ([-128, 127], 128), ([-3, 2], 4),
    ([0, 65535], 65536), ([-(2**63), 0], 2**63),
])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int64, np.float32])
def test_whole_numbers_are_divided_by_a_power_of_two(tmp_path, images, divisor, dtype):
    """Codes stay, the exponent changes: the images are those of real numbers that were divided before. Floats stay as they are."""
    x = np.resize(np.array(images, np.int64), (20, 2, 2))
    if np.dtype(dtype).kind != "f" and not np.array_equal(x.astype(dtype), x):
        dtype = np.int64
    y = np.arange(20) % 2
    np.savez(tmp_path / "whole.npz", x=x.astype(dtype), y=y)
    np.savez(tmp_path / "real.npz", x=x / (1 if np.dtype(dtype).kind == "f" else divisor), y=y)
    whole, real = (load_dataset(str(tmp_path / f"{name}.npz")) for name in ("whole", "real"))
    assert whole.digest() == real.digest() and np.array_equal(whole.train_x, real.train_x)
    assert (whole.whole, whole.divisor) == ((False, 1) if np.dtype(dtype).kind == "f" else (True, divisor))
    assert not real.whole and not real.note and bool(whole.note) == (whole.divisor > 1)


def test_another_divisor(mnist):
    """1 is how integers were taken before; a run's own divisor holds whatever images it is asked for later."""
    unit, raw, dim = (load_dataset(str(mnist), preparation=Preparation(divisor)) for divisor in (None, 1, 1024))
    assert (unit.divisor, raw.divisor, dim.divisor) == (256, 1, 1024)
    assert (unit.exponent, raw.exponent, dim.exponent) == (-12, -4, -14)
    assert all(np.array_equal(data.train_x, raw.train_x) for data in (unit, dim))
    assert load_dataset("digits", preparation=Preparation(1)).digest() == load_dataset("digits").digest()


def test_the_digits_keep_their_digest():
    assert load_dataset("digits").digest() == "8fff151961e678947b485db3ce8a45daf4f373ffb2eccfda539100ef25e78543"


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_channels_are_normalised(tmp_path, dtype):
    """By the training images alone, the same numbers whatever type holds them."""
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.normal(70, 20, (60, 1, 4, 4)), rng.normal(150, 5, (60, 1, 4, 4)), np.full((60, 1, 4, 4), 9.0)], axis=1)
    x = np.rint(x).astype(dtype)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(60) % 3, x_test=x[:20] + dtype(30), y_test=np.arange(20) % 3)
    data = load_dataset(str(tmp_path / "d.npz"), preparation=Preparation(normalise="channel"))
    mean, deviation = x.mean((0, 2, 3), np.float64), x.std((0, 2, 3), np.float64)
    deviation[2] = 1.0  # a channel that is all the same
    assert np.allclose(data.channels, np.stack([mean, deviation], 1), rtol=1e-12) and data.divisor == 1
    for codes, given in ((data.train_x, x), (data.test_x, x[:20] + dtype(30))):
        wanted = (given - mean[:, None, None]) / deviation[:, None, None]
        # PINT's step is 64 beyond a fourth of the range, half of it is lost.
        assert np.abs(values(codes, data.exponent) - wanted).max() <= np.ldexp(32.0, data.exponent)
    assert data.title == "d, every channel normalised to mean 0 and standard deviation 1"


def test_images_that_are_held_out_do_not_normalise(tmp_path):
    x = np.random.default_rng(7).integers(0, 256, (20, 2, 3, 3), np.uint8)
    held = epoch_order(20, 0, -2)[:5]
    found = []
    for changed in (None, held[0], np.setdiff1d(np.arange(20), held)[0]):
        images = x.copy()
        if changed is not None:
            images[changed] = 255
        np.savez(tmp_path / "d.npz", x=images, y=np.arange(20) % 3, x_test=x[:2], y_test=np.arange(2))
        found.append(load_dataset(str(tmp_path / "d.npz"), preparation=Preparation(normalise="channel", validation=5)).channels)
    assert found[0] == found[1] != found[2]


def test_channels_of_the_training_hold_for_other_images(mnist, tmp_path):
    """Dark images are dark for a network that was trained on bright ones."""
    bright = load_dataset(str(mnist), preparation=Preparation(normalise="channel"))
    np.savez(tmp_path / "dark.npz", x=np.full((4, 1, 5, 4), 3, np.uint8), y=np.arange(4))
    dark = load_dataset(str(tmp_path / "dark.npz"), preparation=Preparation(normalise="channel", channels=bright.channels))
    mean, deviation = bright.channels[0]
    assert np.allclose(values(dark.train_x, dark.exponent), (3 - mean) / deviation, rtol=0.04)
    np.savez(tmp_path / "colours.npz", x=np.zeros((4, 3, 5, 4), np.uint8), y=np.arange(4))
    with pytest.raises(UserError, match="colours has 3 channels, the training 1: give images like its own"):
        load_dataset(str(tmp_path / "colours.npz"), preparation=Preparation(normalise="channel", channels=bright.channels))


def test_digits_are_normalised():
    data = load_dataset("digits", preparation=Preparation(normalise="channel"))
    real = values(data.train_x, data.exponent)
    # Images are PINT codes, whose rounding moves mean and deviation by less than 0.01; 0.305 is the pixels' mean to three digits.
    assert abs(real.mean()) < 0.01 and abs(real.std() - 1) < 0.01 and data.channels[0][0] == pytest.approx(0.305, abs=0.01)


def test_images_held_out_for_validation(mnist):
    """They leave the training images, whose order stays; all runs hold out the same."""
    whole, data = load_dataset("digits"), load_dataset("digits", preparation=Preparation(validation=200))
    assert (len(data.train_y), len(data.valid_y), len(data.test_y)) == (1237, 200, 360)
    held = epoch_order(1437, 0, -2)[:200]
    assert np.array_equal(data.valid_x, whole.train_x[held]) and np.array_equal(data.valid_y, whole.train_y[held])
    kept = np.setdiff1d(np.arange(1437), held)
    assert np.array_equal(data.train_x, whole.train_x[kept]) and np.array_equal(data.train_y, whole.train_y[kept])
    assert data.digest() != whole.digest()
    rare = dataclasses.replace(whole, train_y=np.where(np.arange(1437) == held[0], 11, whole.train_y))
    assert rare.classes == rare.held_out(1).classes == 12
    with pytest.raises(UserError, match="1437 of the 1437 training images of digits cannot be held out for validation"):
        load_dataset("digits", preparation=Preparation(validation=1437))


def test_quantise():
    codes, exponent = quantise(np.zeros((2, 3)))
    assert exponent == 0 and not pint.decode(codes).any()
    for peak in (1e-12, 0.3, 1.0, 255.0, 1e30):
        codes, exponent = quantise(np.array([peak, -peak / 3]))
        assert 2048 <= int(pint.decode(codes)[0]) <= 4095
        assert np.allclose(values(codes, exponent), [peak, -peak / 3], rtol=0.04)


def test_epoch_order_is_a_permutation_of_its_own():
    orders = [epoch_order(1000, seed, epoch) for seed in (1, 2) for epoch in (0, 1)]
    assert all(np.array_equal(np.sort(order), np.arange(1000)) for order in orders)
    assert len({order.tobytes() for order in orders}) == 4
    assert np.array_equal(epoch_order(1000, 1, 0), orders[0])
