"""Bundles between the host's registers (:class:`gradloom.rtl.registers.csr.Csr`) and the rest of the machine."""

from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from gradloom.contracts.regmap import TOTALS

__all__ = ["BASE_BITS", "BASE_READS", "COUNTER_WIDTH", "BaseAccess", "CounterRead", "Hyperparameters", "MacUse"]

COUNTER_WIDTH = 48
"""Bits of every cycle and beat counter."""
BASE_BITS = 3
"""Bits of a base register's number."""
BASE_READS = 2
"""Base registers that the Sequencer looks at in a cycle."""


class CounterRead(wiring.Signature):
    """Readout of :class:`gradloom.rtl.registers.counters.Counters` (as seen by the registers).

    Members
    -------
    totals : ``In(ArrayLayout(48, n))``
        In the order of :data:`gradloom.contracts.regmap.TOTALS`; 0 with ``counters = "none"``.
    tag, table : ``Out(16)``, ``Out(4)``
        Entry of a table, while no command ends.
    value : ``In(48)``
        That entry (36 bits) two cycles later; 0 but with ``counters = "all"``.
    """

    def __init__(self) -> None:
        super().__init__({"totals": In(ArrayLayout(COUNTER_WIDTH, len(TOTALS))), "tag": Out(16), "table": Out(4),
                          "value": In(COUNTER_WIDTH)})


class BaseAccess(wiring.Signature):
    """The Sequencer's access to the base registers, while the machine runs.

    Members
    -------
    at : ``Out(ArrayLayout(3, BASE_READS))``
        Registers that are looked at.
    read : ``In(ArrayLayout(32, BASE_READS))``
        Their values, combinational.
    write, index, value : ``Out(1)``, ``Out(3)``, ``Out(32)``
        Write of one.
    """

    def __init__(self) -> None:
        super().__init__({"at": Out(ArrayLayout(BASE_BITS, BASE_READS)), "read": In(ArrayLayout(32, BASE_READS)),
                          "write": Out(1), "index": Out(BASE_BITS), "value": Out(32)})


class Hyperparameters(wiring.Signature):
    """Hyperparameters of the step, from the registers to the A-Core (``docs/machine.md`` section 2).

    Members
    -------
    lm, momentum : ``Out(8)``
        Mantissa of the learning rate; momentum.
    decay_off : ``Out(1)``
        Weight decay is off (n = 255).
    """

    def __init__(self) -> None:
        super().__init__({"lm": Out(8), "momentum": Out(8), "decay_off": Out(1)})


class MacUse(wiring.Signature):
    """What the array does in a cycle, from the C-Core to the counters.

    Members
    -------
    use : ``Out(1)``
        A token with useful MACs (a window) is issued in this cycle.
    last, tag : ``Out(1)``, ``Out(16)``
        It is the last one of its command, whose tag is ``tag``. An illegal command has none.
    """

    def __init__(self) -> None:
        super().__init__({"use": Out(1), "last": Out(1), "tag": Out(16)})
