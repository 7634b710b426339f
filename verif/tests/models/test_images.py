"""Crops and flips of training images: what they may be, and that the hash alone decides them."""

import numpy as np
import pytest

from gradloom.models.arithmetic import pint
from gradloom.models.images import Augmentation, ImageSettings, epoch_moves
from gradloom.models.layers import NetworkError


@pytest.mark.parametrize(("text", "found"), [
    ("none", Augmentation()), ("crop", Augmentation(4)), ("crop=2", Augmentation(2)), ("flip", Augmentation(flip=True)),
    ("crop,flip", Augmentation(4, True)), ("flip, crop=16", Augmentation(16, True)),
])
def test_forms(text, found):
    assert Augmentation.parse(text) == found
    assert Augmentation.parse(str(found)) == found and bool(found) == (text != "none")


@pytest.mark.parametrize("text", ["", "mirror", "crop=", "crop=-1", "crop=4,crop=5", "flip,flip", "flip=2", "none,flip"])
def test_unknown_forms(text):
    with pytest.raises(NetworkError, match=r"augment: .* is not known: give none, crop, crop=N, flip, or a crop and flip"):
        Augmentation.parse(text)


@pytest.mark.parametrize("number", [0, 17, 10**9])
def test_crops_out_of_range(number):
    with pytest.raises(NetworkError, match=rf"a crop moves images by 1\.\.16 rows and columns, not {number}: change it"):
        Augmentation.parse(f"crop={number}")


def test_settings_of_a_network():
    assert ImageSettings("channel", "crop,flip").augment == "crop,flip"
    for settings, message in (({"normalise": "image"}, "data: normalise must be one of none, channel, not 'image': change it"),
                              ({"augment": "turn"}, "data: augment: 'turn' is not known"),
                              ({"augment": 4}, "data: augment must be a text, not 4")):
        with pytest.raises(NetworkError, match=message):
            ImageSettings(**settings)


def by_hand(image, down, right, flip, crop):
    """One image (C, Y, X), pixel by pixel."""
    channels, rows, columns = image.shape
    found = np.zeros_like(image)
    for channel, y, x in np.ndindex(channels, rows, columns):
        row, column = y + down - crop, (columns - 1 - x if flip else x) + right - crop
        if 0 <= row < rows and 0 <= column < columns:
            found[channel, y, x] = image[channel, row, column]
    return found


@pytest.mark.parametrize("text", ["crop", "flip", "crop=1,flip", "crop=3,flip"])
def test_images_are_moved_by_the_hash(text):
    augmentation = Augmentation.parse(text)
    rng = np.random.default_rng(4)
    x = rng.integers(1, 256, (40, 2, 5, 6), np.uint8)
    numbers = rng.permutation(1000)[:40]
    found = augmentation.moved(x, numbers, 7, 3)
    down, right, flips = epoch_moves(numbers, 7, 3, augmentation.crop)
    for index, image in enumerate(x):
        flip = bool(flips[index]) and augmentation.flip
        assert np.array_equal(found[index], by_hand(image, int(down[index]), int(right[index]), flip, augmentation.crop)), index
    # The order of a batch, and who else is in it, changes nothing.
    again = augmentation.moved(x[::-1][:7], numbers[::-1][:7], 7, 3)
    assert np.array_equal(again, found[::-1][:7])
    assert not np.array_equal(augmentation.moved(x, numbers, 7, 4), found), "another epoch"
    assert not np.array_equal(augmentation.moved(x, numbers, 8, 3), found), "another seed"


def test_nothing_asked_for_changes_nothing():
    x = np.arange(24, dtype=np.uint8).reshape(2, 1, 3, 4)
    assert Augmentation().moved(x, np.array([5, 6]), 1, 0) is x


def test_what_comes_in_is_zero():
    assert int(pint.decode(np.zeros(1, np.uint8))[0]) == 0


def test_moves_are_evenly_spread():
    down, right, flips = epoch_moves(np.arange(3000), 7, 4, 4)
    for places in (down, right):
        # 333 of each expected, deviation 17.
        assert places.min() == 0 and places.max() == 8 and np.bincount(places).min() > 250
    assert 1380 < int(flips.sum()) < 1620
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.1 and abs(np.corrcoef(down, flips)[0, 1]) < 0.1
    # They are part of what a run is.
    assert down[:8].tolist() == [8, 7, 6, 4, 6, 8, 0, 3] and right[:8].tolist() == [5, 3, 7, 0, 6, 8, 4, 1]
    assert flips[:8].tolist() == [1, 1, 0, 0, 0, 0, 1, 0]
