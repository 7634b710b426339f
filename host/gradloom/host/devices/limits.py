"""What reaches a limit of the numbers, told alike of every device: overflows, sums near them, saturated logits, losses that are no
numbers.

An overflow is an :exc:`~gradloom.models.arithmetic.arith.ArithmeticFault` of the models and an error code of the machine; both
become the same sentence here. How near sums come to their limit only the models know: the machine compares, it keeps no sums.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.devices.device import MachineError
from gradloom.models.arithmetic.activation import LOGIT_BITS, LOGIT_EXPONENT
from gradloom.models.arithmetic.arith import ArithmeticFault
from gradloom.models.arithmetic.conv import GRADIENT_BITS, SUM_BITS
from gradloom.models.network import Network
from gradloom.models.widths import FULL_WIDTHS, SumWidths

__all__ = ["LimitReached", "finite", "near_text", "overflow_text", "saturated", "saturation_text", "sum_widths", "told"]

_ADVICE = "lower the learning rate, or scale the images (and given weights) down"
_NUMBERS = {"forward sum": "a forward sum", "backward sum": "a backward sum", "weight gradient": "a weight gradient"}
"""The array's sums, by the models' names; all other numbers are the A-Core's."""


class LimitReached(MachineError):
    """A step that cannot be computed: a number outgrew its width, or the loss is none."""


def sum_widths(network: Network, config: Config) -> SumWidths:
    """Widths of the array's sums in a model that stands for a machine: the machine's, but none beyond those of the arithmetic.

    A format that no machine runs has the arithmetic's widths.
    """
    if not network.arithmetic.hardware:
        return FULL_WIDTHS
    return SumWidths(min(config.psum_width, SUM_BITS), min(config.wg_width, GRADIENT_BITS))


def overflow_text(when: str, layer: str | None, phase: str | None, name: str | None, bits: int) -> str:
    """The sentence for a number that does not fit its width.

    Parameters
    ----------
    when : :class:`str`
        "step 3", "evaluation after 3 steps", ...
    phase : :class:`str` or :class:`None`
        As cycle tables call it; it tells which of the A-Core's numbers it was.
    name : :class:`str` or :class:`None`
        "forward sum", "backward sum" or "weight gradient" of the array, else a number of the A-Core.
    bits : :class:`int`
        Of the array's sum.
    """
    place = "" if layer is None else f", layer {layer!r}"
    if name in _NUMBERS:
        return f"{when}{place}: {_NUMBERS[name]} does not fit its {bits} bits: {_ADVICE}"
    part = "" if phase is None else f" ({phase})"
    return f"{when}{place}: a sum of the A-Core{part} does not fit its 64 bits, or a factor its 48: {_ADVICE}"


@contextlib.contextmanager
def told(when: str) -> Iterator[None]:
    """A fault of a model within this context is a :exc:`LimitReached` with the sentence that the machine's error has."""
    try:
        yield
    except ArithmeticFault as fault:
        raise LimitReached(overflow_text(when, fault.layer, fault.phase, fault.name, fault.bits)) from None


def finite(when: str, loss: float) -> float:
    """The loss, if it is a number; with floating point (the format fp32) it may be none."""
    if not math.isfinite(loss):
        raise LimitReached(f"{when}: the loss is {loss}, no number: {_ADVICE}")
    return loss


def near_text(when: str, near: Mapping[tuple[str, str], int], widths: SumWidths) -> list[str]:
    """A warning for every sum that comes within two bits of its limit; ``near`` as a training step of the models has it."""
    return [
        f"{when}, layer {layer!r}: {_NUMBERS[name]} takes {bits} of its {widths.of(name)} bits, and the run stops where one does "
        f"not fit: {_ADVICE}"
        for (layer, name), bits in near.items()
    ]


def saturated(logits: np.ndarray) -> int:
    """How many logits (Q8) are at the ends of their range."""
    top = (1 << (LOGIT_BITS - 1)) - 1
    return int(((logits >= top) | (logits <= -1 - top)).sum())


def saturation_text(when: str, layer: str, count: int, total: int) -> str:
    """A warning for logits at the ends of their range."""
    bound = 1 << (LOGIT_BITS - 1 + LOGIT_EXPONENT)
    return (f"{when}, layer {layer!r}: {count} of {total} logits saturate at the ends of their range, {-bound} and {bound}, where "
            f"neither loss nor gradient follows them: {_ADVICE}")
