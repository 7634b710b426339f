"""The rules of a session: which frame is executed, which is answered at once, and which leaves no trace."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gradloom.contracts.frame_format import REQUEST_HEADER, Kind

__all__ = ["Session"]


class Session(wiring.Component):
    """Looks at the header of every frame whose FCS is good.

    A request is kept if it is of the open session, has the expected number and finds room; nothing else is ever executed. A
    session is opened by an OPEN that brings back the token of the latest WELCOME, so no late frame can open one.

    Members
    -------
    session, number, ack, kind : ``In(8)``, good : ``In(1)``, full : ``In(1)``
        A frame, and that it does not fit into the ring.
    keep : ``Out(1)``
        With ``good``: it is executed.
    refused, crowded : ``Out(1)``
        One cycle: a request of another session or number; the expected one, but without room.
    current, expected, proposed, token, tag : ``Out(8)``, open : ``Out(1)``
        Of :class:`~gradloom.rtl.board.link.transmitter.Transmitter`.
    welcome, state, acknowledge, again : ``Out(1)``
        One cycle, as there.
    opening : ``Out(1)``
        A new session waits until nothing of the old one is under way: no frame may come meanwhile.
    quiet : ``In(1)``
        Nothing is.
    begin : ``Out(1)``
        One cycle: the new session begins; everything of the old one is to be forgotten.
    """

    def __init__(self) -> None:
        super().__init__({
            **{field.name: In(8) for field in REQUEST_HEADER}, "good": In(1), "full": In(1), "keep": Out(1),
            "refused": Out(1), "crowded": Out(1),
            "current": Out(8), "expected": Out(8), "proposed": Out(8), "token": Out(8), "tag": Out(8), "open": Out(1),
            "welcome": Out(1), "state": Out(1), "acknowledge": Out(1), "again": Out(1),
            "opening": Out(1), "quiet": In(1), "begin": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ours, numbered, wanted = Signal(), Signal(), Signal()
        m.d.comb += [
            ours.eq(self.open & (self.session == self.current)), numbered.eq(~self.kind[7]),
            wanted.eq(self.good & numbered & ours & (self.number == self.expected)),
            self.keep.eq(wanted & ~self.full), self.crowded.eq(wanted & self.full),
            self.refused.eq(self.good & numbered & ~wanted),
        ]
        with m.If(self.keep):
            m.d.comb += self.acknowledge.eq(1)
            m.d.sync += self.expected.eq(self.expected + 1)

        offered = Signal()
        with m.If(self.good), m.Switch(self.kind):
            with m.Case(Kind.HELLO):
                m.d.comb += self.welcome.eq(1)
                m.d.sync += [self.proposed.eq(self.session), self.token.eq(self.token + 1), offered.eq(1)]
            with m.Case(Kind.OPEN):
                m.d.sync += self.tag.eq(self.number)
                with m.If(offered & (self.session == self.proposed) & (self.number == self.token)):
                    m.d.sync += [self.opening.eq(1), offered.eq(0)]
                with m.Elif(ours):
                    m.d.comb += self.state.eq(1)
            with m.Case(Kind.SYNC):
                m.d.sync += self.tag.eq(self.number)
                m.d.comb += [self.state.eq(1), self.acknowledge.eq(ours), self.again.eq(ours)]
            with m.Case(Kind.ACK):
                m.d.comb += self.acknowledge.eq(ours)

        with m.If(self.opening & self.quiet):
            m.d.comb += [self.begin.eq(1), self.state.eq(1)]
            m.d.sync += [self.opening.eq(0), self.current.eq(self.proposed), self.open.eq(1), self.expected.eq(0)]
        return m
