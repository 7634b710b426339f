"""What is done with a network's images: normalisation by channel, and random crops and flips that our own hash decides.

How an image is moved depends on (run seed, epoch, number of the image) alone: the same bytes on every device, and after a run that
was interrupted. The hash takes numpy arrays and PyTorch tensors alike, so that a GPU moves its images by the same rule.
"""

import dataclasses
from typing import Any

import numpy as np

from gradloom.models.arithmetic.dither import mix32
from gradloom.models.layers import NetworkError

__all__ = ["MAX_CROP", "NORMALISATIONS", "Augmentation", "ImageSettings", "epoch_moves"]

NORMALISATIONS = ("none", "channel")
MAX_CROP = 16
_CROP = 4
"""Of CIFAR-10 as it is usually trained with (He et al., 2016, section 4.2)."""
_EPOCH = 0x2F3B6A15
"""By which the epoch's number is multiplied."""
_FORMS = "none, crop, crop=N, flip, or a crop and flip joined by a comma"


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """How training images are moved.

    Parameters
    ----------
    crop : :class:`int`
        Rows and columns by which an image may be moved, either way; what comes in from outside is the code of 0.
    flip : :class:`bool`
        Whether every other image, at random, is mirrored left to right.
    """

    crop: int = 0
    flip: bool = False

    @classmethod
    def parse(cls, text: str) -> "Augmentation":
        """Of "none", or of "crop", "crop=N" and "flip" joined by ",".

        Raises
        ------
        :exc:`NetworkError`
            If it is none of these.
        """
        found = cls()
        for part in () if text == "none" else text.split(","):
            name, given, number = part.strip().partition("=")
            if name == "crop" and not found.crop and (not given or number.isdecimal()):
                crop = int(number) if given else _CROP
                if not 1 <= crop <= MAX_CROP:
                    raise NetworkError(f"augment: a crop moves images by 1..{MAX_CROP} rows and columns, not {number}: change it")
                found = dataclasses.replace(found, crop=crop)
            elif part.strip() == "flip" and not found.flip:
                found = dataclasses.replace(found, flip=True)
            else:
                raise NetworkError(f"augment: {text!r} is not known: give {_FORMS}")
        return found

    def __bool__(self) -> bool:
        return self.crop > 0 or self.flip

    def __str__(self) -> str:
        return ",".join([f"crop={self.crop}"] * (self.crop > 0) + ["flip"] * self.flip) or "none"

    def moved(self, x: np.ndarray, numbers: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """Images as an epoch (from 0) trains on them.

        Parameters
        ----------
        x : uint8 array (B, C, Y, X)
        numbers : int64 array (B,)
            Of these images among all training images.

        Returns
        -------
        uint8 array (B, C, Y, X)
        """
        if not self:
            return x
        down, right, flips = epoch_moves(numbers, seed, epoch, self.crop)
        rows, columns = x.shape[2:]
        row = down[:, None] + np.arange(rows)
        column = np.broadcast_to(np.arange(columns), (len(x), columns))
        if self.flip:
            column = np.where(flips[:, None] != 0, columns - 1 - column, column)
        column = column + right[:, None]
        # The code of 0 is 0.
        wide = np.pad(x, ((0, 0), (0, 0), (self.crop, self.crop), (self.crop, self.crop)))
        image, channel = np.arange(len(x))[:, None, None, None], np.arange(x.shape[1])[None, :, None, None]
        found: np.ndarray = wide[image, channel, row[:, None, :, None], column[:, None, None, :]]
        return found


def epoch_moves(numbers: Any, seed: int, epoch: int, crop: int) -> tuple[Any, Any, Any]:
    """Of images by their numbers: rows and columns that the crop leaves out (0 to 2 ``crop``), and whether it is flipped (1 or 0).

    ``numbers`` : array or tensor of int64, and so are the results.
    """
    found = mix32(numbers + mix32(seed + _EPOCH * (epoch + 1)))
    places = 2 * crop + 1
    return (found & 0x7FFF) % places, ((found >> 15) & 0x7FFF) % places, (found >> 30) & 1


@dataclasses.dataclass(frozen=True)
class ImageSettings:
    """A network's ``[data]``: what a run does with its images unless it is told otherwise.

    Parameters
    ----------
    normalise : :class:`str`
        "none", or "channel": every channel less its mean over the training images, by its standard deviation.
    augment : :class:`str`
        As :meth:`Augmentation.parse` takes it.

    Raises
    ------
    :exc:`NetworkError`
        If one of the two is not known.
    """

    normalise: str = "none"
    augment: str = "none"

    def __post_init__(self) -> None:
        if self.normalise not in NORMALISATIONS:
            raise NetworkError(f"data: normalise must be one of {', '.join(NORMALISATIONS)}, not {self.normalise!r}: change it")
        if not isinstance(self.augment, str):
            raise NetworkError(f"data: augment must be a text, not {self.augment!r}: give {_FORMS}")
        try:
            Augmentation.parse(self.augment)
        except NetworkError as error:
            raise NetworkError(f"data: {error}") from None
