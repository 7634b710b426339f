"""Ports of the A-Core's memories (:class:`gradloom.rtl.acore.buffers.Buffers`), as seen by those who read or write them.

    sweep --StreamAddresses--> buffers --StreamData--> lanes --ResultWrites--> buffers
    first pass <--FirstPassReads--> buffers,   scalars <--SharedRead, ParameterWrite--> buffers (PBUF)
"""

from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.config import Config
from gradloom.rtl.acore.turns import Turns

__all__ = ["FirstPassReads", "MemoryRead", "ParameterWrite", "ResultWrite", "ResultWrites", "SharedRead", "StreamAddresses",
           "StreamData", "StreamUse", "result_bits"]


class MemoryRead(wiring.Signature):
    """A read port of its own; one read a cycle.

    Parameters
    ----------
    shape : shape-like
        Of an entry.

    Members
    -------
    addr : ``Out(16)``
        Addresses beyond the memory wrap.
    data : ``In(shape)``
        The entry, one cycle later.
    """

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"addr": Out(16), "data": In(shape)})


class SharedRead(wiring.Signature):
    """A read of a memory that a Storer reads as well. The Storer cannot wait, so the A-Core does: ``addr`` counts in a cycle of
    ``free`` only.

    Parameters
    ----------
    shape : shape-like
        Of an entry.

    Members
    -------
    addr : ``Out(16)``
    free : ``In(1)``, 1 where nothing is connected
        No Storer reads the memory in this cycle.
    data : ``In(shape)``
        The entry, one cycle after such a cycle; of LOGIT two cycles.
    """

    def __init__(self, shape: ShapeLike) -> None:
        super().__init__({"addr": Out(16), "free": In(1, init=1), "data": In(shape)})


class ParameterWrite(wiring.Signature):
    """A write to the parameter buffer, one channel of an entry.

    Members
    -------
    valid, ready : ``Out(1)``, ``In(1)``
        It is written in a cycle in which both are high. ``ready``: the Loader, which cannot wait, is not writing the buffer.
    addr, channel : ``Out(16)``, ``Out(G)``
        Entry, and its channel as one bit of G.
    data : ``Out(64)``
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"valid": Out(1), "ready": In(1), "addr": Out(16), "channel": Out(config.group), "data": Out(64)})


class StreamAddresses(wiring.Signature):
    """What the sweep reads for the lanes, one beat a cycle.

    Members
    -------
    en : ``Out(1)``
        AA and AB are read. They then go before the first pass, which shares their even, resp. odd, halves.
    rests_en : ``Out(1)``
        With ``en``: AA is read at ``rest``, too, an address of the other parity than ``aa``; not beside a read of the first pass.
    aa, rest, ab, am, xin : ``Out(16)``
        Addresses of the two byte streams, of AA's rests, of the bitmaps and of XIN; beyond a memory they wrap.
    """

    def __init__(self) -> None:
        super().__init__({"en": Out(1), "rests_en": Out(1), "aa": Out(16), "rest": Out(16), "ab": Out(16), "am": Out(16),
                          "xin": Out(16)})


class StreamData(wiring.Signature):
    """What was read, one cycle after its address (as seen by the memories).

    Members
    -------
    aa, rest, ab, am : ``Out(16 G)``
        A beat: bytes [column][channel]; of AM bits of eight beats.
    xin : ``Out(128 G)``
        64-bit sums [column][channel]; 0 where ``export_depth`` is 0.
    """

    def __init__(self, config: Config) -> None:
        beat = 8 * config.beat_bytes
        super().__init__({"aa": Out(beat), "rest": Out(beat), "ab": Out(beat), "am": Out(beat), "xin": Out(8 * beat)})


class StreamUse(wiring.Signature):
    """What the sweep tells the first pass of the reads of the next cycle, with the issue of their beat.

    Members
    -------
    reads : ``Out(1)``
        It reads the streams.
    both : ``Out(1)``
        AA at an even and at an odd address (rests).
    aa_odd, ab_odd : ``Out(1)``
        AA, resp. AB, at an odd address.
    """

    def __init__(self) -> None:
        super().__init__({"reads": Out(1), "both": Out(1), "aa_odd": Out(1), "ab_odd": Out(1)})


class FirstPassReads(wiring.Signature):
    """Reads of the first pass, in any cycle; in one in which the sweep reads too not of the halves of AA and AB that it reads.

    Members
    -------
    aa, ab, am : ``Out(MemoryRead(16 G))``
    """

    def __init__(self, config: Config) -> None:
        read = MemoryRead(8 * config.beat_bytes)
        super().__init__({"aa": Out(read), "ab": Out(read), "am": Out(read)})


class ResultWrite(wiring.Signature):
    """Writes to one of the memories that Storers empty.

    Parameters
    ----------
    parts : :class:`int`
        Bits of ``we``: parts of a beat that are written each on its own, by turn (:class:`gradloom.rtl.acore.turns.Turns`).
    shape : shape-like
        Of an entry.

    Members
    -------
    we, addr, data : ``Out(parts)``, ``Out(16)``, ``Out(shape)``
        Addresses beyond the memory wrap.
    """

    def __init__(self, parts: int, shape: ShapeLike) -> None:
        super().__init__({"we": Out(parts), "addr": Out(16), "data": Out(shape)})


def result_bits(config: Config) -> dict[str, int]:
    """Bits of an entry of each output: beats of bytes or bits, of XOUT 64-bit sums, of LOGIT 32 bits a channel."""
    beat = 8 * config.beat_bytes
    return {"oa": beat, "rest": beat, "ob": beat, "om": beat, "xout": 8 * beat, "logit": 2 * beat}


class ResultWrites(wiring.Signature):
    """Everything that the lanes write.

    Members
    -------
    oa, rest, ob, om, xout, logit : ``Out(ResultWrite(parts, width))``
        Codes and rests, both to OA (in one cycle at addresses of different parity), output B, bitmaps (whole beats: one part),
        sums, logits. A machine without export buffers loses what goes to XOUT.
    """

    def __init__(self, config: Config) -> None:
        parts = Turns(config).count
        super().__init__({name: Out(ResultWrite(1 if name == "om" else parts, Shape.cast(bits)))
                          for name, bits in result_bits(config).items()})
