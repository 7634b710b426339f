"""Hyperparameters of a step as the table in DRAM holds them, and the schedules of a run."""

import dataclasses
import math

from gradloom.models.layers import Training

__all__ = ["NO_DECAY", "Hyper", "schedule_table"]

NO_DECAY = 255


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Hyperparameters of one step, as the table in DRAM holds them.

    Parameters
    ----------
    lm, le : :class:`int`
        Learning rate lm * 2^-le, lm in 128..255.
    momentum : :class:`int`
        Of 256.
    decay_n : :class:`int`
        Weight decay 2^-decay_n; 255 is none.
    """

    lm: int
    le: int
    momentum: int = 230
    decay_n: int = NO_DECAY

    @classmethod
    def from_floats(cls, lr: float, momentum: float = 0.9, weight_decay: float = 0.0) -> "Hyper":
        """Nearest representable values: an 8-bit mantissa, momentum of 256, decay to a power of two."""
        mantissa, exponent = math.frexp(lr)
        lm, le = round(mantissa * 256), 8 - exponent
        if lm == 256:
            lm, le = 128, le - 1
        decay_n = NO_DECAY if weight_decay == 0 else max(0, round(-math.log2(weight_decay)))
        return cls(lm, le, min(255, round(momentum * 256)), decay_n)

    @property
    def lr(self) -> float:
        return math.ldexp(self.lm, -self.le)


def schedule_table(train: Training, steps: int) -> list[Hyper]:
    """Hyperparameters of every step of a run: constant, or falling on a line or a cosine towards zero."""
    table = []
    for step in range(steps):
        left = (steps - step) / steps
        factor = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[
            train.schedule
        ]
        table.append(Hyper.from_floats(max(train.lr * factor, 2.0**-30), train.momentum, train.weight_decay))
    return table
