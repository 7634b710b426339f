"""The AXI4 bus between a board's memory parts, and its joint with the flat ports of a machine.

Only what changes is carried: every burst is INCR, of full beats, with ID 0 (AMBA AXI and ACE protocol specification, ARM IHI 0022,
section A3.4.1). A burst begins at a multiple of the beat and does not cross a multiple of 64 beats, as those of the machine's
managers (:mod:`gradloom.rtl.memory_path.axi`).
"""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

__all__ = ["DECERR", "LENGTH_BITS", "OKAY", "AxiSignature", "connect_manager", "flat_manager_members"]

LENGTH_BITS = 8
"""Bits of AxLEN (beats minus 1)."""
OKAY = 0b00
DECERR = 0b11
"""Response of an address that no memory is behind."""


class AxiSignature(wiring.Signature):
    """A manager's view of the bus.

    Parameters
    ----------
    beat_bytes : :class:`int`
        Bytes of a data beat, a power of two.
    length_bits : :class:`int`
        Bits of a burst's length. Between the packer and a memory of narrow words bursts may have more than 256 beats.

    Members
    -------
    ar, aw : ``Out(stream.Signature({"addr": 32, "len": length_bits}))``
        Byte address and beats minus 1.
    r : ``In(stream.Signature({"data": 8 * beat_bytes, "resp": 2, "last": 1}))``
    w : ``Out(stream.Signature({"data": 8 * beat_bytes, "strb": beat_bytes, "last": 1}))``
    b : ``In(stream.Signature({"resp": 2}))``
    """

    def __init__(self, beat_bytes: int, *, length_bits: int = LENGTH_BITS) -> None:
        if not isinstance(beat_bytes, int) or beat_bytes < 1 or beat_bytes & (beat_bytes - 1):
            raise ValueError(f"beat_bytes must be a power of two, not {beat_bytes!r}")
        self.beat_bytes, self.length_bits = beat_bytes, length_bits
        address = stream.Signature(StructLayout({"addr": 32, "len": length_bits}))
        super().__init__({
            "ar": Out(address),
            "r": In(stream.Signature(StructLayout({"data": 8 * beat_bytes, "resp": 2, "last": 1}))),
            "aw": Out(address),
            "w": Out(stream.Signature(StructLayout({"data": 8 * beat_bytes, "strb": beat_bytes, "last": 1}))),
            "b": In(stream.Signature(StructLayout({"resp": 2}))),
        })


def flat_manager_members(beat_bytes: int, prefix: str = "m_axi_") -> dict[str, wiring.Member]:
    """Ports of a whole AXI4 manager with the names that vendors' tools and bus models look for, 32-bit addresses, 1-bit ids."""
    ports: dict[str, wiring.Member] = {}
    for channel in ("ar", "aw"):
        ports |= {f"{prefix}{channel}{name}": Out(width) for name, width in (
            ("id", 1), ("addr", 32), ("len", 8), ("size", 3), ("burst", 2), ("cache", 4), ("prot", 3), ("valid", 1))}
        ports[f"{prefix}{channel}ready"] = In(1)
    for name, width, direction in (
            ("rid", 1, In), ("rdata", 8 * beat_bytes, In), ("rresp", 2, In), ("rlast", 1, In), ("rvalid", 1, In),
            ("rready", 1, Out),
            ("wdata", 8 * beat_bytes, Out), ("wstrb", beat_bytes, Out), ("wlast", 1, Out), ("wvalid", 1, Out), ("wready", 1, In),
            ("bid", 1, In), ("bresp", 2, In), ("bvalid", 1, In), ("bready", 1, Out)):
        ports[f"{prefix}{name}"] = direction(width)
    return ports


def connect_manager(m: Module, manager: object, bus: wiring.PureInterface, prefix: str = "m_axi_") -> None:
    """Join the flat ports of ``manager`` to ``bus``, on which it is the manager. A read or write half that it lacks stays silent.

    Parameters
    ----------
    manager : component or interface
        Has ``m_axi_arvalid`` and so on (:func:`gradloom.rtl.memory_path.axi.read_members`).
    bus : interface of :class:`AxiSignature`, as the manager sees it
    """
    def port(name: str):
        return getattr(manager, prefix + name)

    if hasattr(manager, f"{prefix}arvalid"):
        m.d.comb += [
            bus.ar.valid.eq(port("arvalid")), bus.ar.p.addr.eq(port("araddr")), bus.ar.p.len.eq(port("arlen")),
            port("arready").eq(bus.ar.ready), bus.r.ready.eq(port("rready")), port("rvalid").eq(bus.r.valid),
            port("rdata").eq(bus.r.p.data), port("rresp").eq(bus.r.p.resp), port("rlast").eq(bus.r.p.last), port("rid").eq(0),
        ]
    if hasattr(manager, f"{prefix}awvalid"):
        m.d.comb += [
            bus.aw.valid.eq(port("awvalid")), bus.aw.p.addr.eq(port("awaddr")), bus.aw.p.len.eq(port("awlen")),
            port("awready").eq(bus.aw.ready), bus.w.valid.eq(port("wvalid")), bus.w.p.data.eq(port("wdata")),
            bus.w.p.strb.eq(port("wstrb")), bus.w.p.last.eq(port("wlast")), port("wready").eq(bus.w.ready),
            bus.b.ready.eq(port("bready")), port("bvalid").eq(bus.b.valid), port("bresp").eq(bus.b.p.resp), port("bid").eq(0),
        ]
