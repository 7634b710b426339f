"""Which images each step of a run trains on, and how they are moved."""

import numpy as np

from gradloom.host.datasets.data import Dataset, epoch_order
from gradloom.host.files import UserError
from gradloom.models.images import Augmentation
from gradloom.models.network import Network

__all__ = ["RunBatches", "check_augmentation"]


def check_augmentation(augmentation: Augmentation, data: Dataset, network: Network) -> None:
    """Refuse what would spoil the images.

    Raises
    ------
    :exc:`UserError`
        If digits would be mirrored, or a crop would leave nothing of an image.
    """
    if augmentation.flip and data.name == "digits":
        raise UserError("digits cannot be mirrored, a mirrored 2 is no 2: leave flip out of --augment")
    least = min(network.input_shape[1:])
    if augmentation.crop >= least:
        raise UserError(f"a crop by {augmentation.crop} rows and columns leaves nothing of images of {least}: give --augment a "
                        f"smaller one")


class RunBatches:
    """Batches of a run by the number of the step.

    Parameters
    ----------
    batch : :class:`int`
        Images a step; the last images of an epoch that fill no batch are left out.
    seed : :class:`int`
        The run's.
    """

    def __init__(self, data: Dataset, batch: int, seed: int, augmentation: Augmentation) -> None:
        self._data, self._batch, self._seed, self._augmentation = data, batch, seed, augmentation
        self.per_epoch = len(data.train_y) // batch
        self._order: tuple[int, np.ndarray] | None = None

    def of(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes (B, C, Y, X) and class numbers (B,) of a step, from 0."""
        epoch, position = divmod(step, self.per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, epoch_order(len(self._data.train_y), self._seed, epoch))
        chosen = self._order[1][position * self._batch : (position + 1) * self._batch]
        images = self._augmentation.moved(self._data.train_x[chosen], chosen, self._seed, epoch)
        return images, self._data.train_y[chosen]
