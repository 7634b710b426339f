"""The buses between the memory engines and the on-chip memories (``docs/machine.md`` section 3)."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config

__all__ = ["LoadBus", "StoreBus"]


class LoadBus(wiring.Signature):
    """From a Loader to every memory that it fills; one beat a cycle, always accepted (memories take it flipped).

    :class:`gradloom.rtl.memory_path.load_arbiter.LoadArbiter` sees to it that no bank gets two beats in one cycle.

    Members
    -------
    valid : ``Out(1)``
        A beat is on the bus.
    dest : ``Out(4)``
        Memory, :class:`gradloom.contracts.isa.Dest`.
    bank : ``Out(4)``
        Bank of IBUF, EBUF (0 .. ``3 wpus - 1``) or WBUF (0..2).
    addr : ``Out(16)``
        Entry, weight block, parameter entry or beat within the memory or bank.
    sub : ``Out(4)``
        Beat of the block or entry.
    data : ``Out(16 G)``
        The beat: byte ``lane * G + i`` is column lane ``lane`` (0 = even column), channel ``i``.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"valid": Out(1), "dest": Out(4), "bank": Out(4), "addr": Out(16), "sub": Out(4),
                          "data": Out(16 * config.group)})


class StoreBus(wiring.Signature):
    """Between the Storer and the memories that it empties, as seen by the Storer (memories take it flipped).

    Members
    -------
    en : ``Out(1)``
        Read request.
    src : ``Out(4)``
        Memory, :class:`gradloom.contracts.isa.Source`.
    addr : ``Out(16)``
        Beat or entry.
    sub : ``Out(4)``
        Beat of the entry.
    data : ``In(16 G)``
        The beat, exactly 2 cycles after ``en``.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"en": Out(1), "src": Out(4), "addr": Out(16), "sub": Out(4), "data": In(16 * config.group)})
