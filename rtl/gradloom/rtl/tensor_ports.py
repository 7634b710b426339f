"""What is kept of every tensor, its exponent, statistic and seed, and the ports to it (``docs/machine.md`` section 6).

Exponents and statistics lie in :class:`gradloom.rtl.sequencer.scale_unit.ScaleUnit`, seeds in
:class:`gradloom.rtl.sequencer.seed_unit.SeedUnit`. Each signature is as seen by the one that asks; the units take it flipped.
"""

from amaranth.hdl import signed
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["EXPONENT", "STATISTIC_BITS", "TID_BITS", "ExponentRead", "HostScale", "ScaleOp", "ScaleRequest", "SeedRead",
           "SeedRequest", "StatisticUpdate"]

TID_BITS = 11
"""Bits of a tensor number."""
EXPONENT = signed(16)
"""Shape of an exponent."""
STATISTIC_BITS = 64
SEED_BITS = 32


class ScaleOp(enum.Enum, shape=2):
    """What the Sequencer asks of the scale unit."""

    SCALE = 0
    """e[target] = rule of (e[target], stat[tid], f); stat[tid] = 0."""
    SET = 1
    """e[target] = value; stat[target] = 0 with ``clear``."""
    ADD = 2
    """result = value + e[tid], or value - e[tid] with ``clear``: one term of a shift list."""


class ExponentRead(wiring.Signature):
    """The A-Core's read of an exponent; one a cycle.

    Members
    -------
    en, tid : ``Out(1)``, ``Out(11)``
    e : ``In(signed(16))``
        In the cycle after ``en``, until the next one; 0 of tensor 0 and of a number that there is not.
    """

    def __init__(self) -> None:
        super().__init__({"en": Out(1), "tid": Out(TID_BITS), "e": In(EXPONENT)})


class StatisticUpdate(wiring.Signature):
    """The A-Core's update: stat[tid] \\|= value; any number of cycles in a row.

    Members
    -------
    valid, tid : ``Out(1)``, ``Out(11)``
    value : ``Out(64)``
        Readable two cycles later.
    """

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "tid": Out(TID_BITS), "value": Out(STATISTIC_BITS)})


class ScaleRequest(wiring.Signature):
    """One operation of the Sequencer on exponents and statistics.

    Members
    -------
    start : ``Out(1)``, op : ``Out(ScaleOp)``, tid, target : ``Out(11)``, f : ``Out(5)``, value : ``Out(signed(16))``,
    clear : ``Out(1)``
        All hold until ``done``.
    done : ``In(1)``
        One cycle.
    result : ``In(signed(16))``
        Of ADD; from ``done`` until the next operation.
    """

    def __init__(self) -> None:
        super().__init__({"start": Out(1), "op": Out(ScaleOp), "tid": Out(TID_BITS), "target": Out(TID_BITS), "f": Out(5),
                          "value": Out(EXPONENT), "clear": Out(1), "done": In(1), "result": In(EXPONENT)})


class HostScale(wiring.Signature):
    """The host's access through its registers, while no operation is under way.

    Members
    -------
    tid : ``Out(11)``
    e, stat : ``In(signed(16))``, ``In(64)``
        Exponent and statistic of ``tid`` two cycles later.
    write, value : ``Out(1)``, ``Out(signed(16))``
        Set e[tid].
    clear : ``Out(1)``
        Clear stat[tid].
    """

    def __init__(self) -> None:
        super().__init__({"tid": Out(TID_BITS), "e": In(EXPONENT), "stat": In(STATISTIC_BITS), "write": Out(1),
                          "value": Out(EXPONENT), "clear": Out(1)})


class SeedRequest(wiring.Signature):
    """The Sequencer has seeds computed.

    Members
    -------
    begin : ``Out(1)``
        A new step begins: run seed and step hold their values from the next cycle on.
    start, tid : ``Out(1)``, ``Out(11)``
        Compute the seed of ``tid``; both hold until ``done``.
    done : ``In(1)``
        One cycle; the seed is readable from the next cycle on.
    """

    def __init__(self) -> None:
        super().__init__({"begin": Out(1), "start": Out(1), "tid": Out(TID_BITS), "done": In(1)})


class SeedRead(wiring.Signature):
    """The A-Core's read of a seed; one a cycle.

    Members
    -------
    en, tid : ``Out(1)``, ``Out(11)``
    value : ``In(32)``
        In the cycle after ``en``, until the next one; 0 for a number that there is not.
    """

    def __init__(self) -> None:
        super().__init__({"en": Out(1), "tid": Out(TID_BITS), "value": In(SEED_BITS)})
