"""AXI4 manager and AXI4-Lite subordinate signals, and the split of requests into legal bursts.

The members are flat, so that ports carry the names that bus models and vendor tools look for (``m_axi_araddr``).
"""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import exact_log2

from gradloom.contracts.config import Config
from gradloom.contracts.pipeline import BURST_BEATS

__all__ = ["ERROR_READ_RESPONSE", "ERROR_READ_WINDOW", "ERROR_WRITE_RESPONSE", "ERROR_WRITE_WINDOW",
           "REQUEST", "SETTLE", "BurstSplitter", "FaultReport", "connect_flat", "lite_members", "port_prefix", "read_members",
           "response_layout", "write_members"]

SETTLE = 8
"""Cycles from the last answer of a command to the end of the command in its queue, at most, if its data find their memory free
(``waiting`` says that they do not). An error is reported so long
after everything ahead of it is answered, so that the command at fault is the oldest one under way."""

ERROR_READ_RESPONSE = 0x30
ERROR_READ_WINDOW = 0x31
ERROR_WRITE_RESPONSE = 0x32
ERROR_WRITE_WINDOW = 0x33

REQUEST = StructLayout({"address": 32, "beats": 17, "end": 1})
"""A contiguous transfer: byte address (a multiple of the beat; low bits are ignored) and beats, 1..65536. ``end`` marks
the last of a command."""

BURST = StructLayout({"address": 32, "behind": 33, "beats": 7, "last": 1, "end": 1})
"""A legal burst of 1..64 beats; ``last`` marks the last of a request, ``end`` the last of a command. ``behind`` is the address of
the byte behind it, without a wrap at 2^32: the window is checked with it."""


def response_layout(config: Config) -> StructLayout:
    """A beat of read data; ``last`` marks the last beat of a request."""
    return StructLayout({"data": 16 * config.group, "last": 1})


def _address_members(prefix: str, channel: str) -> dict[str, Member]:
    return {f"{prefix}{channel}{name}": Out(width) for name, width in (
        ("id", 1), ("addr", 32), ("len", 8), ("size", 3), ("burst", 2), ("cache", 4), ("prot", 3),
        ("valid", 1))} | {f"{prefix}{channel}ready": In(1)}


def port_prefix(channel: int) -> str:
    """Prefix of the machine's AXI4 manager signals of a channel: ``m_axi_``, ``m1_axi_``, ...."""
    return f"m{channel or ''}_axi_"


def read_members(config: Config, prefix: str = "m_axi_") -> dict[str, Member]:
    """The read half (AR, R) of an AXI4 manager: 32-bit addresses, 1-bit ids (always 0), data of one beat."""
    return _address_members(prefix, "ar") | {
        f"{prefix}rid": In(1), f"{prefix}rdata": In(8 * config.beat_bytes), f"{prefix}rresp": In(2),
        f"{prefix}rlast": In(1), f"{prefix}rvalid": In(1), f"{prefix}rready": Out(1)}


def write_members(config: Config, prefix: str = "m_axi_") -> dict[str, Member]:
    """The write half (AW, W, B) of an AXI4 manager."""
    return _address_members(prefix, "aw") | {
        f"{prefix}wdata": Out(8 * config.beat_bytes), f"{prefix}wstrb": Out(config.beat_bytes),
        f"{prefix}wlast": Out(1), f"{prefix}wvalid": Out(1), f"{prefix}wready": In(1),
        f"{prefix}bid": In(1), f"{prefix}bresp": In(2), f"{prefix}bvalid": In(1), f"{prefix}bready": Out(1)}


def lite_members(prefix: str = "s_axil_") -> dict[str, Member]:
    """An AXI4-Lite subordinate: 32-bit data, 16-bit addresses."""
    return {f"{prefix}{name}": direction(width) for name, width, direction in (
        ("awaddr", 16, In), ("awprot", 3, In), ("awvalid", 1, In), ("awready", 1, Out),
        ("wdata", 32, In), ("wstrb", 4, In), ("wvalid", 1, In), ("wready", 1, Out),
        ("bresp", 2, Out), ("bvalid", 1, Out), ("bready", 1, In),
        ("araddr", 16, In), ("arprot", 3, In), ("arvalid", 1, In), ("arready", 1, Out),
        ("rdata", 32, Out), ("rresp", 2, Out), ("rvalid", 1, Out), ("rready", 1, In))}


def connect_flat(m: Module, inner: object, outer: object, members: Mapping[str, Member], *, prefix: str = "",
                 outer_prefix: str = "") -> None:
    """Hand flat ports of a part on to what it is a part of.

    Flat ports are there for bus models and vendors' tools, which look for their names; no signature gives such names, so this is
    the one place where ports are found by them.

    Parameters
    ----------
    members : mapping
        Ports of ``inner``, as it sees them.
    prefix, outer_prefix : :class:`str`
        How their names begin there, and how those of ``outer`` do instead.
    """
    for name, member in members.items():
        port, outside = getattr(inner, name), getattr(outer, outer_prefix + name.removeprefix(prefix))
        m.d.comb += outside.eq(port) if member.flow == Out else port.eq(outside)


def constant_address_signals(manager: wiring.Component, channel: str, config: Config) -> list:
    """Assignments of what never changes on AR or AW: id 0, full beats, INCR, non-cacheable bufferable."""
    return [
        getattr(manager, f"m_axi_{channel}id").eq(0),
        getattr(manager, f"m_axi_{channel}size").eq(exact_log2(config.beat_bytes)),
        getattr(manager, f"m_axi_{channel}burst").eq(1),
        getattr(manager, f"m_axi_{channel}cache").eq(0b0011),
        getattr(manager, f"m_axi_{channel}prot").eq(0),
    ]


class FaultReport(wiring.Component):
    """The first fault of a manager, told when the commands ahead of the faulty one have ended.

    Members
    -------
    window, response : ``In(1)``, client : ``In(1)``
        A burst was refused; an answer was an error. ``client`` is the one that it belongs to. An answer counts before a
        burst that was refused earlier, for it belongs to an earlier burst.
    drained : ``In(1)``
        Every issued burst is answered.
    waiting : ``In(1)``
        The client cannot yet use all of the answers ahead: the commands that they belong to have not ended.
    clear : ``In(1)``
        Forget everything.
    refused, failed : ``Out(1)``
        From the next cycle on, until ``clear``.
    valid, of_response, of_client : ``Out(1)``
        One cycle, :data:`SETTLE` cycles after an error answer, or after the last answer ahead of a refused burst, and not while
        the client is ``waiting``, nor within SETTLE cycles behind that.
    """

    def __init__(self) -> None:
        super().__init__({"window": In(1), "response": In(1), "client": In(1), "drained": In(1), "waiting": In(1),
                          "clear": In(1),
                          "refused": Out(1), "failed": Out(1), "valid": Out(1), "of_response": Out(1), "of_client": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(SETTLE + 1))
        m.d.comb += [self.of_response.eq(self.failed), self.valid.eq(left == 1)]
        with m.If(self.clear):
            m.d.sync += [self.refused.eq(0), self.failed.eq(0), left.eq(0)]
        with m.Elif(self.response & ~self.failed):
            m.d.sync += [self.failed.eq(1), self.of_client.eq(self.client), left.eq(SETTLE)]
        with m.Elif(self.window & ~self.refused & ~self.failed):
            m.d.sync += [self.refused.eq(1), self.of_client.eq(self.client), left.eq(SETTLE)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(Mux((self.failed | self.drained) & ~self.waiting, left - 1, SETTLE))
        return m


class BurstSplitter(wiring.Component):
    """Splits requests into bursts of at most :data:`BURST_BEATS` that cross no 4 KiB boundary.

    One burst a cycle, 1 cycle after its request. A request of 0 beats is dropped.

    Members
    -------
    request : ``In(stream.Signature(REQUEST))``
    burst : ``Out(stream.Signature(BURST))``
    clear : ``In(1)``
        Drops everything; no request is taken.
    busy : ``Out(1)``
        A taken request is not completely handed out.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({
            "request": In(stream.Signature(REQUEST)),
            "burst": Out(stream.Signature(BURST)),
            "clear": In(1),
            "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = exact_log2(self.config.beat_bytes)
        rest = Signal()
        rest_beats = Signal(17, reset_less=True)
        rest_end = Signal(reset_less=True)

        beat = Signal(32 - shift)
        beats = Signal(17)
        room = Signal(range(BURST_BEATS + 1))
        length = Signal(range(BURST_BEATS + 1))
        # Bursts end at multiples of BURST_BEATS: what lies behind one is found without the length, which is known late.
        grid = exact_log2(BURST_BEATS)
        reach = Signal(range(3 * BURST_BEATS))
        final = Signal()
        free = ~self.burst.valid | self.burst.ready
        step = Signal()
        m.d.comb += [
            beat.eq(Mux(rest, self.burst.p.behind[shift:], self.request.p.address[shift:])),
            beats.eq(Mux(rest, rest_beats, self.request.p.beats)),
            room.eq(BURST_BEATS - beat[:grid]),
            reach.eq(beat[:grid] + beats[:grid + 1]),
            final.eq(~beats[grid + 1:].any() & (reach <= BURST_BEATS)),
            length.eq(Mux(final, beats, room)),
            self.request.ready.eq(free & ~rest & ~self.clear),
            step.eq(free & (rest | self.request.valid)),
            self.busy.eq(rest | self.burst.valid),
        ]
        with m.If(free):
            m.d.sync += self.burst.valid.eq(0)
        with m.If(step):
            m.d.sync += [
                self.burst.valid.eq(beats != 0),
                self.burst.p.address.eq(beat << shift),
                self.burst.p.behind.eq(Cat(Mux(final, reach[:grid], 0), beat[grid:] + (~final | reach[grid])) << shift),
                self.burst.p.beats.eq(length),
                self.burst.p.last.eq(final),
                self.burst.p.end.eq(final & Mux(rest, rest_end, self.request.p.end)),
                rest.eq(~final),
                rest_beats.eq(beats - room),
            ]
        with m.If(self.request.valid & self.request.ready):
            m.d.sync += rest_end.eq(self.request.p.end)
        with m.If(self.clear):
            m.d.sync += [self.burst.valid.eq(0), rest.eq(0)]
        return m
