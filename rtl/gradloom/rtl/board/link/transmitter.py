"""From answers to bytes: the ring in which they stay until the host has them, and the frames around them."""

from collections.abc import Sequence

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.contracts.frame_format import ESCAPE, ESCAPE_BIT, FCS_BYTES, FLAG, RING_BYTES, Reply
from gradloom.rtl.board.link.crc32 import Crc32
from gradloom.rtl.board.link.receiver import RING_BITS, RING_WORD

__all__ = ["Transmitter"]


class Transmitter(wiring.Component):
    """Sends answers in their order and keeps each until it is acknowledged, and sends WELCOME and STATE when asked to.

    Parameters
    ----------
    identity : sequence of :class:`int`
        Bytes of WELCOME.

    Members
    -------
    data : ``In(8)``, write : ``In(1)``, last : ``In(1)``
        Next byte of an answer, from its kind on.
    room : ``Out(1)``
        More than half of the ring was free in the cycle before: an answer may begin.
    session : ``In(8)``, expected : ``In(8)``, open : ``In(1)``, tag : ``In(8)``
        What STATE tells.
    proposed, token : ``In(8)``
        Session and number of WELCOME.
    welcome, state : ``In(1)``
        One cycle: tell it.
    ack : ``In(8)``, acknowledge : ``In(1)``
        The host has all answers before ``ack``; nonsense, and what a late frame says, changes nothing.
    again : ``In(1)``
        One cycle: send all again that is not acknowledged (what comes with it counts before).
    o : ``Out(stream.Signature(8))``
    idle : ``Out(1)``
        Nothing is to be sent or under way.
    between : ``Out(1)``
        No frame is under way.
    clear : ``In(1)``
        Forget all answers; only ``between`` frames.
    """

    def __init__(self, identity: Sequence[int]) -> None:
        self.identity = tuple(identity)
        super().__init__({
            "data": In(8), "write": In(1), "last": In(1), "room": Out(1),
            "session": In(8), "expected": In(8), "open": In(1), "tag": In(8), "proposed": In(8), "token": In(8),
            "welcome": In(1), "state": In(1), "ack": In(8), "acknowledge": In(1), "again": In(1),
            "o": Out(stream.Signature(8)), "idle": Out(1), "between": Out(1), "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=RING_WORD, depth=RING_BYTES, init=[])
        put, get = memory.write_port(), memory.read_port()
        m.submodules.crc = crc = Crc32()

        # Positions, and the numbers of the answers that begin there.
        write_at, tail, send = Signal(RING_BITS), Signal(RING_BITS), Signal(RING_BITS)
        next_number, tail_number, send_number = Signal(8), Signal(8), Signal(8)
        used = Signal(RING_BITS)
        m.d.comb += [put.en.eq(self.write), put.addr.eq(write_at), put.data.data.eq(self.data), put.data.last.eq(self.last),
                     used.eq(write_at - tail)]
        m.d.sync += self.room.eq(~used[-1])
        with m.If(self.write):
            m.d.sync += [write_at.eq(write_at + 1), next_number.eq(next_number + self.last)]

        welcome, state, again = Signal(), Signal(), Signal()
        acknowledged, heard = Signal(8), Signal()
        # Both counts shrink alike while the tail walks, so one comparison tells nonsense at every step.
        gone, kept = Signal(8), Signal(8)
        walk = Signal()
        m.d.comb += [gone.eq(acknowledged - tail_number), kept.eq(next_number - tail_number),
                     walk.eq(heard & (gone != 0) & (gone <= kept))]

        # One frame: its bytes come from `byte`, and `held` has each until it has left, stuffed if need be. A line is slower by far
        # than a byte in two cycles, and what a byte is decides nothing in the cycle in which the ring gives it.
        byte, kind = Signal(8), Signal(8)
        raw, offered, step = Signal(), Signal(), Signal()
        held, plain, filled, second = Signal(8), Signal(), Signal(), Signal()
        special = Signal()
        m.d.comb += [
            step.eq(offered & ~filled),
            crc.byte.eq(byte),
            special.eq(~plain & ((held == FLAG) | (held == ESCAPE)) & ~second),
            self.o.valid.eq(filled),
            self.o.payload.eq(Mux(special, ESCAPE, held ^ Mux(second, ESCAPE_BIT, 0))),
        ]
        with m.If(step):
            m.d.sync += [held.eq(byte), plain.eq(raw), filled.eq(1)]
        with m.If(filled & self.o.ready):
            m.d.sync += [second.eq(special), filled.eq(special)]

        ring = Signal()  # the frame is an answer, else WELCOME or STATE
        greets = Signal()
        place = Signal(range(max(len(self.identity), FCS_BYTES)))
        body = Signal(8)
        rom = Array(Const(value, 8) for value in self.identity)
        last = Signal()
        walking = Signal()
        with m.If(ring):
            m.d.comb += [body.eq(get.data.data), last.eq(get.data.last)]
        with m.Elif(greets):
            m.d.comb += [body.eq(rom[place]), last.eq(place == len(self.identity) - 1)]
        with m.Else():
            m.d.comb += [body.eq(Mux(place[0], self.tag, self.open)), last.eq(place[0])]
        m.d.comb += kind.eq(Mux(greets, Reply.WELCOME, Reply.STATE))

        advance = Signal()
        following = Signal(RING_BITS)
        fresh = Signal()  # the byte that was read is that of the position
        # Never in one cycle with a write, so that the block RAM needs no logic for a collision.
        m.d.comb += [following.eq(send + advance), get.en.eq(~put.en), get.addr.eq(Mux(walking, tail, following))]
        m.d.sync += [send.eq(following), fresh.eq(get.en)]

        waits = Signal()
        m.d.comb += [waits.eq(welcome | state | again | heard | (send_number != next_number)),
                     self.idle.eq(self.between & ~waits & ~filled)]
        with m.FSM():
            with m.State("BETWEEN"):
                m.d.comb += self.between.eq(1)
                m.d.sync += place.eq(0)
                with m.If(self.clear):
                    pass
                with m.Elif(walk):
                    m.d.comb += walking.eq(1)
                    m.next = "WALK"
                with m.Elif(heard):
                    m.d.sync += heard.eq(0)
                with m.Elif(again):
                    m.d.sync += [again.eq(0), send.eq(tail), send_number.eq(tail_number)]
                with m.Elif(waits):
                    m.d.sync += [ring.eq(~welcome & ~state), greets.eq(welcome)]
                    with m.If(welcome):
                        m.d.sync += welcome.eq(0)
                    with m.Else():
                        m.d.sync += state.eq(0)
                    m.next = "BEGIN"
            with m.State("WALK"):
                m.next = "SKIP"
                with m.If(fresh):
                    # What is to be sent again may be acknowledged before: by a host that had it already.
                    with m.If(send_number == tail_number):
                        m.d.sync += send.eq(tail + 1)
                        with m.If(get.data.last):
                            m.d.sync += send_number.eq(tail_number + 1)
                    m.d.sync += tail.eq(tail + 1)
                    with m.If(get.data.last):
                        m.d.sync += tail_number.eq(tail_number + 1)
                        m.next = "BETWEEN"
            with m.State("SKIP"):
                m.d.comb += walking.eq(1)
                m.next = "WALK"
            with m.State("BEGIN"):
                m.d.comb += [offered.eq(1), raw.eq(1), byte.eq(FLAG), crc.clear.eq(1)]
                with m.If(step):
                    m.next = "SESSION"
            with m.State("SESSION"):
                m.d.comb += [offered.eq(1), byte.eq(Mux(greets & ~ring, self.proposed, self.session)), crc.enable.eq(step)]
                with m.If(step):
                    m.next = "NUMBER"
            with m.State("NUMBER"):
                m.d.comb += [offered.eq(1), crc.enable.eq(step),
                             byte.eq(Mux(ring, send_number, Mux(greets, self.token, self.expected)))]
                with m.If(step):
                    m.next = "KIND"
                    with m.If(ring):
                        m.next = "BODY"
            with m.State("KIND"):
                m.d.comb += [offered.eq(1), byte.eq(kind), crc.enable.eq(step)]
                with m.If(step):
                    m.next = "BODY"
            with m.State("BODY"):
                m.d.comb += [offered.eq(fresh | ~ring), byte.eq(body), crc.enable.eq(step), advance.eq(step & ring)]
                with m.If(step):
                    m.d.sync += place.eq(place + 1)
                    with m.If(last):
                        m.d.sync += place.eq(0)
                        m.next = "FCS"
            with m.State("FCS"):
                m.d.comb += [offered.eq(1), byte.eq(~crc.state[:8]), crc.shift.eq(step)]
                with m.If(step):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == FCS_BYTES - 1):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [offered.eq(1), raw.eq(1), byte.eq(FLAG)]
                with m.If(step):
                    m.d.sync += send_number.eq(send_number + ring)
                    m.next = "BETWEEN"

        with m.If(self.acknowledge):
            m.d.sync += [acknowledged.eq(self.ack), heard.eq(1)]
        with m.If(self.welcome):
            m.d.sync += welcome.eq(1)
        with m.If(self.state):
            m.d.sync += state.eq(1)
        with m.If(self.again):
            m.d.sync += again.eq(1)
        with m.If(self.clear):
            m.d.sync += [write_at.eq(0), tail.eq(0), send.eq(0), next_number.eq(0), tail_number.eq(0), send_number.eq(0),
                         heard.eq(0), again.eq(0)]
        return m
