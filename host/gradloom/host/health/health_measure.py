"""How well a training step's numbers sit in PINT(8, 3): zeros, segments and saturated elements of every tensor that it writes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradloom.host.devices.tensor_order import PINT_TENSORS
from gradloom.host.devices.verification import TensorSource
from gradloom.models.arithmetic import pint
from gradloom.models.arithmetic.frn import XHAT_EXPONENT
from gradloom.models.golden.step import expected_tensors
from gradloom.models.network import Kind, Network

__all__ = ["CLASSES", "TITLES", "Found", "Health", "classes", "measure"]

CLASSES = ("zero", "fine", "middle", "coarse", "saturated")
"""What an element can be: 0; of the segment with steps of 1, 8 or 64; one of the two ends of the range, -4096 and 4032."""
TITLES = {
    "z": "features (z)", "xhat": "normalised sums (xhat)", "error": "gradient of the loss (error)", "dz": "errors of features (dz)",
    "ds": "errors of a second reader (ds)", "dx": "errors before a convolution (dx)", "w": "weights (w)", "v": "velocities (v)"}
"""Of tensors, in the order of reports."""
_FINE, _MIDDLE = 8, 512


def _class_table() -> np.ndarray:
    """Class number by code."""
    value = pint.decode(np.arange(256, dtype=np.uint8)).astype(np.int64)
    found = np.full(256, CLASSES.index("coarse"))
    found[(value >= -_MIDDLE) & (value < _MIDDLE)] = CLASSES.index("middle")
    found[(value >= -_FINE) & (value < _FINE)] = CLASSES.index("fine")
    found[value == 0] = CLASSES.index("zero")
    found[(value == pint.MIN_VALUE) | (value == pint.MAX_VALUE)] = CLASSES.index("saturated")
    return found


_CLASS = _class_table()


def classes(codes: np.ndarray) -> np.ndarray:
    """Elements of every class, int64 array (5,), of an array of PINT(8, 3) codes."""
    return np.bincount(_CLASS, weights=np.bincount(codes.ravel(), minlength=256), minlength=len(CLASSES)).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Health:
    """A tensor over some steps.

    Parameters
    ----------
    counts : int64 array (steps, 5)
        Elements by :data:`CLASSES`.
    exponent : :class:`int`
        After the last step.
    """

    layer: str
    tensor: str
    counts: np.ndarray
    exponent: int

    def share(self, name: str) -> float:
        """Of a class in all steps, 0..1."""
        return float(self.counts[:, CLASSES.index(name)].sum() / self.counts.sum())

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {"layer": self.layer, "tensor": self.tensor, "exponent": self.exponent,
                "steps": [dict(zip(CLASSES, map(int, row), strict=True)) for row in self.counts]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Health":
        counts = np.array([[row[name] for name in CLASSES] for row in record["steps"]], np.int64)
        return cls(record["layer"], record["tensor"], counts, record["exponent"])


Found = dict[tuple[str, str], Health]
"""By layer and tensor."""


def measure(network: Network, source: TensorSource, before: Found | None = None) -> Found:
    """Add the latest step of a device to what was found in the steps before it."""
    exponents, found = source.exponents(), Found()
    for layer, tensor in expected_tensors(network, export_dw=False):
        if tensor in PINT_TENSORS:
            counts = classes(np.asarray(source.tensor(layer, tensor)))[None]
            if before is not None:
                counts = np.concatenate([before[layer, tensor].counts, counts])
            found[layer, tensor] = Health(layer, tensor, counts, _exponent(network, layer, tensor, exponents))
    return found


def _exponent(network: Network, layer: str, tensor: str, exponents: Mapping[int, int]) -> int:
    if tensor == "xhat":
        return XHAT_EXPONENT
    numbers = {"z": network.z_tid, "dz": network.dz_tid, "error": network.dz_tid, "dx": network.dx_tid, "ds": network.ds_tid}
    if tensor in numbers:
        return exponents[numbers[tensor](layer)]
    return exponents[network.tid(layer, Kind.W if tensor == "w" else Kind.V)]
