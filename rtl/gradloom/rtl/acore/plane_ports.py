"""Numbers of planes that pass between the stages of the A-Core: sums of the first pass, and the plane registers."""

from amaranth.hdl import signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout, StructLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config

__all__ = ["PLANE_BITS", "TOTAL_BITS", "GradientSums", "PlaneScalars", "PlaneScalarsRead", "Totals"]

PLANE_BITS = 43
"""Sum of products over a plane: 26 bits each, at most 2^17 of them."""
TOTAL_BITS = 50
"""Over 128 planes."""
_VALUE_BITS = 38
"""Sum of values over 128 planes."""

Totals = StructLayout({"product": signed(TOTAL_BITS), "kept": signed(_VALUE_BITS), "cut": signed(_VALUE_BITS)})
"""Sums of d b, d and a - d over all planes of a command."""

PlaneScalars = StructLayout({"scale": signed(16), "le": 8, "mean": signed(24)})
"""Plane registers of one channel; ``scale`` is q (unsigned) or gl."""


class GradientSums(wiring.Signature):
    """Sums of gradients (ETA, Algorithm 2, lines 10 to 12) of the command that the second stage has taken, as seen by that stage.

    Members
    -------
    plane : ``Out(7)``
    sums : ``In(ArrayLayout(signed(43), G))``
        Sum of d b over that plane, by channel, in the next cycle.
    totals : ``In(ArrayLayout(Totals, G))``
        Over all planes.
    channel, total_channel : ``Out(range(apu_channels))``, where an APU serves several channels
        With ``plane``, and in the cycle of ``totals``: the channel of each APU that is read; its sums are given for all channels
        of its APU.
    """

    def __init__(self, config: Config) -> None:
        served = {name: Out(range(config.apu_channels)) for name in ("channel", "total_channel")} if config.apu_channels > 1 else {}
        super().__init__({"plane": Out(7), "sums": In(ArrayLayout(signed(PLANE_BITS), config.group)),
                          "totals": In(ArrayLayout(Totals, config.group)), **served})


class PlaneScalarsRead(wiring.Signature):
    """The lanes' read of the plane registers.

    Members
    -------
    at : ``Out(8)``
        Plane in bits 6:0, half in bit 7.
    scalars : ``In(ArrayLayout(PlaneScalars, G))``
        By channel, in the next cycle.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"at": Out(8), "scalars": In(ArrayLayout(PlaneScalars, config.group))})
