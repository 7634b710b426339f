"""A device that multiplies matrices of codes, and the software twin of one."""

import time
from typing import Protocol

import numpy as np

from gradloom.host.files import UserError
from gradloom.models.matrix.gemm import product

__all__ = ["DEVICES", "MatrixDevice", "TwinDevice", "open_matrix_device"]


class MatrixDevice(Protocol):
    """What :func:`~gradloom.host.offload.offloaded.offload` multiplies on.

    Attributes
    ----------
    seconds : :class:`float`
        That its products have taken so far.
    """

    seconds: float

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sums (M, N) of int32 of codes (M, K) and (K, N) of int8."""


class TwinDevice:
    """The golden model of the product as a device (:mod:`gradloom.models.matrix.gemm`)."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """As of :class:`MatrixDevice`."""
        begin = time.perf_counter()
        found = product(a, b)
        self.seconds += time.perf_counter() - begin
        return found


DEVICES = {"twin": TwinDevice}


def open_matrix_device(name: str) -> MatrixDevice:
    """A device by its name.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If there is none of that name.
    """
    if name not in DEVICES:
        raise UserError(f"there is no device {name!r} that multiplies for PyTorch: give {', '.join(map(repr, DEVICES))}, or an "
                        "object with product(a, b) and seconds")
    return DEVICES[name]()
