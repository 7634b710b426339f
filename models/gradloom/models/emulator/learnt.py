"""What a training run of the emulator learns: weights layer by layer, all parameters in one vector."""

import dataclasses

from torch import Tensor

__all__ = ["Learnt", "Parameters"]


@dataclasses.dataclass
class Learnt:
    """Weights of a layer (M, C, Ky, Kx) and what their updates need.

    Attributes
    ----------
    w : float32
        Values of the format's codes.
    v : float32 values, or int64 (Q.24) in formats with masters; ``None`` in formats without velocities.
    master : int64 (Q.24) or ``None``
    wide : float32 or ``None``
        With error feedback: the numbers of 16 bits that ``w`` was rounded from, in units of 2^-8
        (:func:`gradloom.models.arithmetic.feedback.join`).
    """

    w: Tensor
    v: Tensor | None = None
    master: Tensor | None = None
    wide: Tensor | None = None


@dataclasses.dataclass
class Parameters:
    """All parameters of a network, one after the other.

    Attributes
    ----------
    master, velocity : int64 (P,), Q.24
    places : dict of slice
        By (layer, parameter).
    """

    master: Tensor
    velocity: Tensor
    places: dict[tuple[str, str], slice]

    def by_layer(self, vector: Tensor) -> dict[str, dict[str, Tensor]]:
        """Views of a vector of this layout by layer and parameter."""
        found: dict[str, dict[str, Tensor]] = {}
        for (layer, key), place in self.places.items():
            found.setdefault(layer, {})[key] = vector[place]
        return found
