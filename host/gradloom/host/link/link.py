"""The host's side of a session: every request is executed once and in order, or :exc:`LinkError` says that it is not known.

The rules are in ``docs/link.md``.
"""

import dataclasses
from collections import deque
from collections.abc import Callable

from gradloom.contracts.frame_format import (
    ANSWER_TRAILER,
    LINK_REGISTERS,
    LINK_WINDOW,
    MAX_UNANSWERED,
    PROTOCOL,
    RING_BYTES,
    STATUS_DOCS,
    UNNUMBERED,
    Kind,
    Reply,
    Status,
    bit_step,
)
from gradloom.host.devices.device import MachineError
from gradloom.host.link.frames import FrameReader, Identity, ReceivedFrame, encode, write
from gradloom.host.link.frames import script_request as script
from gradloom.host.link.transport import Transport

__all__ = ["Answer", "Link", "LinkError", "Statistics", "check"]

_TRIES = 12
"""Times that the host asks in vain before it gives up."""
_PATIENCE = 1000
"""Times that the board may say that it is there and has the requests, without answering one."""
_SPARE = 32
"""Bytes of the board's ring that are never filled."""
_ACK_BYTES = 400
"""Bytes of answers after which the host acknowledges them even if it has nothing to ask: less than half of the board's ring."""
_TRAILER = sum(field.size for field in ANSWER_TRAILER)


class LinkError(MachineError):
    """The board does not answer, has lost its session, or refused a request."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came back for a request."""

    data: bytes
    entries: int
    status: int

    @classmethod
    def parse(cls, body: bytes) -> "Answer":
        if len(body) < _TRAILER:
            raise LinkError("the board gave an answer without a status: it speaks another protocol")
        return cls(body[:-_TRAILER], body[-2], body[-1])


@dataclasses.dataclass
class Statistics:
    """What happened on the cable so far, seen from here.

    ``round_trips`` counts how often the host waited until all that it had asked was answered; ``bad_frames`` what was no frame;
    ``repeated`` answers that it had already; ``missed`` answers that came although one before them had not; ``strange`` frames
    that no one had asked for; ``syncs`` how often the host asked where the board is; ``resent`` requests that it sent again.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    round_trips: int = 0
    bad_frames: int = 0
    repeated: int = 0
    missed: int = 0
    strange: int = 0
    syncs: int = 0
    resent: int = 0


@dataclasses.dataclass
class _Request:
    number: int
    content: bytes
    answered: Callable[[Answer], None]


class Link:
    """A session with a board.

    Parameters
    ----------
    transport : :class:`~gradloom.host.link.transport.Transport`
    session : :class:`int`
        Number of the first session less 1; a host that begins at random is not mistaken for the one before.

    Members
    -------
    identity
        What the board said when the session was opened.
    interrupt : :class:`int` or :class:`None`
        STATUS of the latest interrupt that :meth:`wait_interrupt` has not told.
    """

    def __init__(self, transport: Transport, *, session: int = 0) -> None:
        self.transport = transport
        self.statistics = Statistics()
        self.interrupt: int | None = None
        self._session = session % 256
        self._reader = FrameReader()
        self._opened = False
        self._requests: deque[_Request] = deque()
        self._number = self._expected = self._tag = 0
        self._unacknowledged = 0
        self._welcome: ReceivedFrame | None = None
        self._state: ReceivedFrame | None = None
        self._since = 0.0
        self._tries = self._stuck = 0
        self._asked = self._sent = False
        self.identity = self._open()

    # Sessions

    def _open(self) -> Identity:
        for attempt in range(_TRIES):
            self._session = (self._session + 1) % 256
            self._welcome = self._state = None
            self._number = self._expected = 0
            self._requests.clear()
            self._send(Kind.HELLO, 0)
            if not self._listen(lambda: self._welcome is not None):
                if attempt == _TRIES // 2:
                    self.transport.line_break()
                continue
            assert self._welcome is not None
            identity, token = Identity.parse(self._welcome.body), self._welcome.number
            if identity is None or identity.protocol != PROTOCOL:
                raise LinkError(f"the board does not speak version {PROTOCOL} of the protocol: build it anew, or update gradloom")
            self._tag = token
            for _ in range(3):
                self._send(Kind.OPEN, token)
                if self._listen(lambda: self._state is not None):
                    break
            if self._state is not None and self._state.body[0] and self._state.number == 0:
                self._opened = True
                self._state = None
                return identity
        raise LinkError("the board does not answer: look whether it is powered and configured, and whether this is its port")

    def _listen(self, heard: Callable[[], bool]) -> bool:
        """Wait for a frame that needs no session, as long as one may take."""
        limit = self.transport.now() + self.transport.patience + 128 * self.transport.byte_time
        while not heard():
            left = limit - self.transport.now()
            if left <= 0:
                return False
            self._pump(left)
        return True

    # Requests

    def submit(self, request: bytes, answered: Callable[[Answer], None]) -> None:
        """Send a request as soon as the board has room for it; ``answered`` gets its answer while the host waits for something.

        Raises
        ------
        :exc:`LinkError`
            If the board is lost.
        """
        if len(request) > RING_BYTES - _SPARE:
            raise ValueError(f"a request has at most {RING_BYTES - _SPARE} bytes, not {len(request)}")
        while self._requests and (sum(len(other.content) for other in self._requests) + len(request) > RING_BYTES - _SPARE
                                  or len(self._requests) >= MAX_UNANSWERED):
            self._wait()
        self._begin_waiting(first=not self._requests)
        self._requests.append(_Request(self._number, request, answered))
        self._number = (self._number + 1) % 256
        self._sent = True
        self._send_request(self._requests[-1])
        # What has come already costs no waiting.
        self._pump(0.0)

    def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer, and so for all before it."""
        answers: list[Answer] = []
        self.submit(request, answers.append)
        self.drain()
        return answers[0]

    @property
    def pending(self) -> bool:
        """Whether requests wait for their answers."""
        return bool(self._requests)

    def drain(self) -> None:
        """Wait until every request is answered."""
        self.statistics.round_trips += self._sent
        self._sent = False
        while self._requests:
            self._wait()

    def wait_interrupt(self, seconds: float) -> int | None:
        """STATUS of the next interrupt, or :class:`None` if none comes in so many seconds of the board's time."""
        limit = self.transport.now() + seconds
        self._begin_waiting(first=True)
        while self.interrupt is None:
            left = limit - self.transport.now()
            if left <= 0:
                return None
            # An interrupt that was lost on its way comes again when the board is asked where it is.
            self._step(min(left, 25 * self.transport.patience))
        status, self.interrupt = self.interrupt, None
        return status

    def set_baud(self, baud: int) -> None:
        """Another rate of the line, and proof that it carries.

        Raises
        ------
        :exc:`ValueError`
            If the board's clock cannot make it.
        :exc:`LinkError`
            If the line does not carry it; the session goes on at the first rate.
        """
        register = next(register for register in LINK_REGISTERS if register.name == "BAUD")
        self.ask(script([write(LINK_WINDOW + register.offset, bit_step(baud, self.identity.clock))]))
        self.transport.set_baud(baud)
        for _ in range(3):
            self._sync()
            if self._listen(lambda: self._state is not None):
                return
        self.transport.line_break()
        self._sync()
        raise LinkError(f"the line does not carry {baud} baud: choose a lower rate")

    def close(self) -> None:
        """Give up the transport; requests without an answer are lost."""
        self.transport.close()

    # Frames

    def _send(self, kind: int, number: int, body: bytes = b"") -> None:
        data = encode(bytes([self._session, number, self._expected, kind]) + body)
        self.statistics.frames_sent += 1
        self.statistics.bytes_sent += len(data)
        self._unacknowledged = 0
        self.transport.write(data)

    def _send_request(self, request: _Request) -> None:
        self._send(request.content[0], request.number, request.content[1:])

    def _begin_waiting(self, *, first: bool) -> None:
        if first:
            self._since, self._tries, self._stuck, self._asked = self.transport.now(), 0, 0, False

    def _wait(self) -> None:
        """Let something come, or ask again."""
        pending = sum(len(request.content) for request in self._requests) + RING_BYTES
        self._step(self.transport.patience + pending * self.transport.byte_time)

    def _step(self, timeout: float) -> None:
        left = self._since + timeout - self.transport.now()
        if left > 0:
            self._pump(left)
            return
        if self._tries >= _TRIES:
            raise LinkError("the board has stopped to answer: what was asked last may have happened or not")
        self._tries += 1
        self._since = self.transport.now()
        self._sync()

    def _sync(self) -> None:
        self._tag = (self._tag + 1) % 256
        self._state = None
        self._asked = True
        self.statistics.syncs += 1
        self._send(Kind.SYNC, self._tag)

    def _pump(self, wait: float) -> None:
        data = self.transport.read(wait)
        if not data:
            return
        self.statistics.bytes_received += len(data)
        for content in self._reader.feed(data):
            self.statistics.frames_received += 1
            self._receive(ReceivedFrame.parse(content))
        self.statistics.bad_frames = self._reader.bad
        if self._unacknowledged > _ACK_BYTES:
            self._send(Kind.ACK, 0)

    def _receive(self, frame: ReceivedFrame | None) -> None:
        if frame is not None and frame.kind >= UNNUMBERED:
            self._receive_unnumbered(frame)
        elif frame is None or frame.session != self._session or not self._opened:
            self.statistics.strange += 1
        elif frame.number != self._expected:
            ahead = (frame.number - self._expected) % 256
            if ahead > MAX_UNANSWERED + 1:
                self.statistics.repeated += 1
            else:
                self.statistics.missed += 1
                if not self._asked:
                    self._sync()
        else:
            self._expected = (self._expected + 1) % 256
            self._unacknowledged += len(frame.body)
            self._since, self._tries, self._stuck, self._asked = self.transport.now(), 0, 0, False
            answer = Answer.parse(frame.body)
            if frame.kind == Reply.INTERRUPT:
                self.interrupt = int.from_bytes(answer.data, "little")
            elif not self._requests:
                raise LinkError("the board answered what nobody asked: it speaks another protocol")
            else:
                self._requests.popleft().answered(answer)

    def _receive_unnumbered(self, frame: ReceivedFrame) -> None:
        if frame.kind == Reply.WELCOME and not self._opened and frame.session == self._session:
            self._welcome = frame
        elif (frame.kind == Reply.STATE and len(frame.body) == 2 and frame.body[1] == self._tag
              and (self._asked or not self._opened)):
            if not self._opened:
                if frame.session == self._session:
                    self._state = frame
                return
            if frame.session != self._session or not frame.body[0]:
                raise LinkError("the board was reset, or another host took it: what was asked last may have happened or not")
            self._state = frame
            self._asked = False
            self._tries = 0
            self._stuck += bool(self._requests)
            if self._stuck > _PATIENCE:
                raise LinkError("the board has a request and does not end it: a bus on it may hang; reset it")
            self._since = self.transport.now()
            self._send_again(frame.number)
        else:
            self.statistics.strange += 1

    def _send_again(self, expected: int) -> None:
        """Send what the board has not got: all from ``expected`` on."""
        if not self._requests:
            return
        had = (expected - self._requests[0].number) % 256
        if had > len(self._requests):
            return  # an old state
        for request in list(self._requests)[had:]:
            self.statistics.resent += 1
            self._send_request(request)


def check(answer: Answer, what: str) -> None:
    """Raise :exc:`LinkError` if ``what``, a request, was not done."""
    if answer.status != Status.OK:
        reasons = {int(status): text for status, text in STATUS_DOCS.items()}
        raise LinkError(f"{what}: {reasons.get(answer.status, f'status {answer.status}')}")
