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
    average : :class:`bool`
        Take the weights after this step into their average (not in the table: the machine has no averages).
    """

    lm: int
    le: int
    momentum: int = 230
    decay_n: int = NO_DECAY
    average: bool = False

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
    def eta(self) -> int:
        """Logarithm of the learning rate in units of 2^-7, to the nearest integer: DarkFPGA's shift (docs/formats.md)."""
        # 181 is 128 sqrt(2) rounded.
        return (8 if self.lm >= 181 else 7) - self.le + 7

    @property
    def lr(self) -> float:
        return math.ldexp(self.lm, -self.le)


_AVERAGED_QUARTER = 0.75
_AVERAGED_RATE = 0.2
"""Learning rate while weights are averaged, of the run's peak: 0.01 of 0.05 in Fox's VGG16 (section IV-B)."""
_AVERAGES = 16
"""Least number of averaged states where there are so many steps; Fox averages once an epoch, 60 times or more."""


def schedule_table(train: Training, steps: int, *, average: bool = False) -> list[Hyper]:
    """Hyperparameters of every step of a run: constant, or falling on a line or a cosine towards zero, after the warm-up.

    With ``average`` (Fox, section IV-B) the last quarter has a constant rate, and its weights are averaged once an epoch,
    in short runs more often.
    """
    first = math.floor(steps * _AVERAGED_QUARTER)
    period = max(1, min(steps // train.epochs, (steps - first) // _AVERAGES))
    warm = round(steps * (train.warmup or 0) / train.epochs)
    table = []
    for step in range(steps):
        if step < warm:
            factor = (step + 1) / warm
        else:
            left = (steps - step) / (steps - warm)
            factor = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[train.schedule]
        averaging = average and step >= first
        hyper = Hyper.from_floats(max(train.lr * (_AVERAGED_RATE if averaging else factor), 2.0**-30), train.momentum,
                                  train.weight_decay)
        table.append(dataclasses.replace(hyper, average=averaging and (steps - 1 - step) % period == 0))
    return table
