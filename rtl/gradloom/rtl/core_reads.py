"""How the A-Core reads what the C-Core has computed: partial sums, drained weight gradients, first-pass sums.

Each bundle is a request and its data, as seen by the A-Core; the C-Core takes it flipped. The data follow the request by two
cycles, and nothing waits: one request a cycle. Requests are signatures of their own, because they come from another part of the
A-Core (:class:`gradloom.rtl.acore.sweep.Sweep`) than the one that takes the data (:class:`gradloom.rtl.acore.lanes.Lanes`).
"""

from amaranth.hdl import signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config

__all__ = ["LANES", "PLANE_SUM_BITS", "SLOT_BITS", "GradientRead", "GradientRequest", "PlaneSumRead", "PlaneSumRequest",
           "PsumRead", "PsumRequest", "gradient_lanes", "psum_lanes"]

LANES = 2
"""Columns, or output channels of a block of weight gradients, that a read gives at once."""
PLANE_SUM_BITS = 48
"""Bits of a first-pass sum, those of a DSP48E1."""
SLOT_BITS = 8
"""Bits of an image slot."""


def psum_lanes(config: Config) -> ArrayLayout:
    """Partial sums that a read gives: [lane][channel]."""
    return ArrayLayout(ArrayLayout(signed(config.psum_width), config.group), LANES)


def gradient_lanes(config: Config) -> ArrayLayout:
    """Weight gradients that a read gives: [lane][input channel], lane l of beat b being output channel 2 b + l of its block."""
    return ArrayLayout(ArrayLayout(signed(config.wg_width), config.group), LANES)


class PsumRequest(wiring.Signature):
    """Where the two lanes of a beat lie in the partial-sum buffer (``docs/machine.md`` section 4).

    Members
    -------
    en : ``Out(1)``
        There is a read in this cycle.
    half : ``Out(1)``
        Not the one that a CONV works on: each half's read ports serve the C-Core or the A-Core (fault ``FAULT_ILLEGAL``).
    wpu : ``Out(2)``
        The WPU whose buffer it is, for both lanes.
    bank0, addr0, bank1, addr1 : ``Out(2)``, ``Out(16)``, ``Out(2)``, ``Out(16)``
        Bank and word of each lane; the two banks differ. Words beyond the buffer wrap.
    """

    def __init__(self) -> None:
        super().__init__({"en": Out(1), "half": Out(1), "wpu": Out(2), "bank0": Out(2), "addr0": Out(16), "bank1": Out(2),
                          "addr1": Out(16)})


class PsumRead(wiring.Signature):
    """A read of partial sums.

    Members
    -------
    request : ``Out(PsumRequest())``
    data : ``In(psum_lanes(config))``
        [lane][channel], signed ``psum_width``, 2 cycles after ``request.en``.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"request": Out(PsumRequest()), "data": In(psum_lanes(config))})


class GradientRequest(wiring.Signature):
    """Which beat of the weight-gradient buffer is read.

    Members
    -------
    en, addr : ``Out(1)``, ``Out(16)``
        There is a read, of this beat; addresses beyond the buffer wrap.
    wait : ``In(1)``
        The drain takes the read port in the next cycle, for sums that are added to: no read then.
    """

    def __init__(self) -> None:
        super().__init__({"en": Out(1), "addr": Out(16), "wait": In(1)})


class GradientRead(wiring.Signature):
    """A read of drained sums: weight gradients summed over the WPUs.

    Members
    -------
    request : ``Out(GradientRequest())``
    data : ``In(gradient_lanes(config))``
        [lane][input channel], signed ``wg_width``, 2 cycles after ``request.en``.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"request": Out(GradientRequest()), "data": In(gradient_lanes(config))})


class PlaneSumRequest(wiring.Signature):
    """Which first-pass sum is read.

    Members
    -------
    en : ``Out(1)``
    half : ``Out(1)``
        Of the partial-sum buffer.
    k : ``Out(2)``
        Output group of K1, else 0.
    plane : ``Out(8)``
        Image slot.
    """

    def __init__(self) -> None:
        super().__init__({"en": Out(1), "half": Out(1), "k": Out(2), "plane": Out(SLOT_BITS)})


class PlaneSumRead(wiring.Signature):
    """A read of the sums of abs(X) over a plane (ETA, Algorithm 2), gathered while its partial sums were written.

    Members
    -------
    request : ``Out(PlaneSumRequest())``
    data : ``In(ArrayLayout(unsigned(48), G))``
        By output channel, 2 cycles after ``request.en``; 0 of a slot that has none.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"request": Out(PlaneSumRequest()), "data": In(ArrayLayout(unsigned(PLANE_SUM_BITS), config.group))})
