"""Which images a step trains on: every image once an epoch, moved by a hash of seed, epoch and image."""

import numpy as np
import pytest

from gradloom.host.datasets.batches import RunBatches, check_augmentation
from gradloom.host.datasets.data import Dataset, epoch_order
from gradloom.host.files import UserError
from gradloom.models.images import Augmentation
from gradloom.models.network import load_network


def data(name: str = "photos", count: int = 23) -> Dataset:
    rng = np.random.default_rng(3)
    x = rng.integers(1, 256, (count, 1, 8, 8), np.uint8)
    return Dataset(name, x, np.arange(count), x[:5], np.arange(5), -11)


def test_an_epoch_takes_every_image_once_in_its_order():
    batches = RunBatches(data(), 4, 9, Augmentation())
    assert batches.per_epoch == 5
    for epoch in (0, 2, 1):
        order = epoch_order(23, 9, epoch)
        for position in range(5):
            images, labels = batches.of(5 * epoch + position)
            chosen = order[4 * position : 4 * position + 4]
            assert np.array_equal(labels, chosen) and np.array_equal(images, data().train_x[chosen])


def test_an_image_is_moved_alike_in_every_batch():
    augmentation, found = Augmentation(2, True), {}
    for batch in (4, 5):
        batches = RunBatches(data(), batch, 9, augmentation)
        for step in range(batches.per_epoch):
            for image, label in zip(*batches.of(step), strict=True):
                assert np.array_equal(found.setdefault(int(label), image), image)
    moved = sum(not np.array_equal(image, data().train_x[label]) for label, image in found.items())
    assert moved > 15


def test_digits_are_not_mirrored():
    network = load_network("digits-cnn")
    check_augmentation(Augmentation(2), data("digits"), network)
    check_augmentation(Augmentation(2, True), data(), network)
    with pytest.raises(UserError, match="digits cannot be mirrored, a mirrored 2 is no 2: leave flip out of --augment"):
        check_augmentation(Augmentation(0, True), data("digits"), network)
    with pytest.raises(UserError, match="a crop by 8 rows and columns leaves nothing of images of 8: give --augment a smaller one"):
        check_augmentation(Augmentation(8), data(), network)
