"""Widths of the array's sums: those of the arithmetic, or the narrower ones of a machine (docs/arithmetic.md, section 2)."""

import dataclasses

from gradloom.models.arithmetic.conv import GRADIENT_BITS, SUM_BITS

__all__ = ["FULL_WIDTHS", "SumWidths"]


@dataclasses.dataclass(frozen=True)
class SumWidths:
    """Signed bits of the sums of a model that stands for a machine; by default those of the arithmetic.

    A model looks at sums when they are complete, and a step with a sum that does not fit is a fault. What fits does not depend on
    the widths. Wider sums than those of the arithmetic there are not: the emulator's kernels are exact for these.

    Parameters
    ----------
    psum : :class:`int`
        Of forward and backward sums, at most :data:`~gradloom.models.arithmetic.conv.SUM_BITS`.
    wg : :class:`int`
        Of weight gradients, at most :data:`~gradloom.models.arithmetic.conv.GRADIENT_BITS`.

    Raises
    ------
    :exc:`ValueError`
        If a width is none of these.
    """

    psum: int = SUM_BITS
    wg: int = GRADIENT_BITS

    def __post_init__(self) -> None:
        for name, width, most in (("psum", self.psum, SUM_BITS), ("wg", self.wg, GRADIENT_BITS)):
            if not 2 <= width <= most:
                raise ValueError(f"{name} must lie in 2..{most} bits, not {width}")

    def of(self, name: str) -> int:
        """Bits of a sum by its name: "forward sum", "backward sum" or "weight gradient"."""
        return {"forward sum": self.psum, "backward sum": self.psum, "weight gradient": self.wg}[name]


FULL_WIDTHS = SumWidths()
"""Those of the arithmetic."""
