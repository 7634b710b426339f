"""The host's side of a session against the model of a board: faults on the line, resets, boards that say nothing or nonsense."""

import random

import pytest

from gradloom.contracts.frame_format import MAX_UNANSWERED, RING_BYTES, Kind, Reply
from gradloom.host.link.frames import encode, read_request, script_request, write
from gradloom.host.link.link import Answer, Link, LinkError
from gradloom.verif.link.board_model import BoardModel, MemoryBackend
from gradloom.verif.link.model_transport import DISTURBANCES, FaultyTransport, ModelTransport
from gradloom.verif.link.traffic import MEMORY_BYTES, Traffic


@pytest.fixture
def backend():
    return MemoryBackend(MEMORY_BYTES)


@pytest.fixture
def board(backend):
    return BoardModel(backend, 2, memory_bytes=MEMORY_BYTES)


class Silent(ModelTransport):
    """A board that can be cut off in either direction."""

    hears = speaks = True

    def write(self, data):
        super().write(data if self.hears else b"")

    def read(self, wait):
        data = super().read(wait)
        return data if self.speaks else b""


@pytest.mark.parametrize("kinds", [(*DISTURBANCES, "late"), *((kind,) for kind in (*DISTURBANCES, "late"))], ids="+".join)
def test_ten_thousand_faults(board, backend, kinds):
    """All kinds at once, and each alone: nothing is lost, nothing happens twice, and nothing comes back wrong."""
    rng = random.Random(len(kinds))
    line = FaultyTransport(ModelTransport(board), rng, 0.15, kinds)
    traffic = Traffic(line, rng, 2, longest=60)
    wanted = 5000 if len(kinds) > 1 else 800
    while sum(line.faults.values()) < wanted:
        traffic.step()
    line.rate = 0.0
    traffic.finish()
    assert backend.memory == traffic.memory
    assert backend.writes == traffic.writes
    seen = traffic.device.link.statistics
    if kinds != ("noise",):
        assert seen.syncs or seen.repeated


def test_what_is_in_doubt_when_a_board_is_reset_is_said(board, backend):
    link = Link(ModelTransport(board))
    link.ask(script_request([write(0x10, 1)]))
    board.reset()
    with pytest.raises(LinkError, match="the board was reset, or another host took it: what was asked last may have happened"):
        link.ask(script_request([write(0x10, 2)]))
    again = Link(ModelTransport(board), session=9)
    again.ask(script_request([write(0x10, 3)]))
    assert backend.writes == [(0x10, 1), (0x10, 3)]


def test_another_host_takes_the_board(board):
    first = Link(ModelTransport(board))
    Link(ModelTransport(board), session=50)
    with pytest.raises(LinkError, match="another host took it"):
        first.ask(read_request(0, 1))


def test_frames_of_an_older_session_do_nothing(board, backend):
    """Also the frames that open one, when they come late."""
    old = Link(ModelTransport(board))
    hello, opening = encode(bytes([1, 0, 0, Kind.HELLO])), encode(bytes([1, 1, 0, Kind.OPEN]))
    late = encode(bytes([1, 0, 0]) + script_request([write(0x10, 1)]))
    assert old.identity.board == "SIM0"
    link = Link(ModelTransport(board), session=20)
    for frame in (late, hello, opening, late, hello, late, opening):
        board.feed(frame)
    board.take()
    link.ask(script_request([write(0x14, 2)]))
    assert backend.writes == [(0x14, 2)] and board.session == 21


def test_a_board_that_never_answers(board):
    transport = Silent(board)
    transport.speaks = False
    with pytest.raises(LinkError, match="the board does not answer: look whether it is powered and configured"):
        Link(transport)


@pytest.mark.parametrize("direction", ["hears", "speaks"])
def test_a_line_that_breaks(board, direction):
    transport = Silent(board)
    link = Link(transport)
    setattr(transport, direction, False)
    began = transport.now()
    with pytest.raises(LinkError, match="the board has stopped to answer: what was asked last may have happened or not"):
        link.ask(read_request(0, 1))
    assert transport.now() - began < 1


def test_a_board_of_another_protocol(board):
    board.identity = bytes([9]) + board.identity[1:]
    with pytest.raises(LinkError, match="the board does not speak version 1 of the protocol"):
        Link(ModelTransport(board))


def test_answers_that_nobody_asked_for(board):
    link = Link(transport := ModelTransport(board))
    board._tell(1, 0, bytes([Reply.ANSWER, 0, 0]))
    with pytest.raises(LinkError, match="the board answered what nobody asked"):
        link.wait_interrupt(1)
    with pytest.raises(LinkError, match="an answer without a status"):
        Answer.parse(b"\0")
    link.close()
    assert transport.closed


def test_a_board_that_has_a_request_and_does_not_end_it(board, monkeypatch):
    link = Link(ModelTransport(board))
    monkeypatch.setattr(board, "_execute", lambda: None)
    with pytest.raises(LinkError, match="the board has a request and does not end it"):
        link.ask(read_request(0, 1))


def test_no_more_is_under_way_than_the_board_can_hold(board, monkeypatch):
    execute = board._execute
    link = Link(ModelTransport(board))
    most = [0, 0]

    def hold():
        most[:] = max(most[0], len(board._requests)), max(most[1], sum(map(len, board._requests)))
        if len(board._requests) == MAX_UNANSWERED or sum(map(len, board._requests)) > RING_BYTES - 200 or link._asked:
            execute()

    monkeypatch.setattr(board, "_execute", hold)
    for n in range(200):
        link.submit(script_request([write(4, n)]), lambda answer: None)
    link.drain()
    for n in range(100):
        link.submit(script_request([write(4, n)] * 25), lambda answer: None)
    link.drain()
    assert most[0] == MAX_UNANSWERED and RING_BYTES - 200 < most[1] < RING_BYTES
    assert board._faults[2] == 0
    with pytest.raises(ValueError, match="a request has at most 2016 bytes, not 2017"):
        link.submit(bytes(2017), lambda answer: None)


def test_answers_are_acknowledged_before_the_board_has_no_room_for_more(board):
    link = Link(ModelTransport(board))
    for _ in range(30):
        link.submit(read_request(0, 500), lambda answer: None)
    link.drain()
    assert link.statistics.syncs == 0


@pytest.mark.parametrize("lost", [False, True])
def test_interrupts(board, lost):
    """One that is lost on the line comes when the board is asked where it is."""
    transport = Silent(board)
    link = Link(transport)
    assert link.wait_interrupt(0.01) is None
    board.set_irq(1)
    if lost:
        board.take()
    assert link.wait_interrupt(1.0) == 0
    assert (link.statistics.syncs > 0) == lost
    assert link.wait_interrupt(0.01) is None


def test_a_rate_that_the_line_does_not_carry(board):
    transport = Silent(board)
    link = Link(transport)
    link.set_baud(3_000_000)
    assert board.step == 3932
    real = transport.set_baud
    transport.set_baud = lambda baud: setattr(transport, "speaks", False) or real(baud)
    with pytest.raises(LinkError, match="the line does not carry 2000000 baud: choose a lower rate"):
        link.set_baud(2_000_000)
    with pytest.raises(ValueError, match="a bit must last 8 to 4096 clocks"):
        link.set_baud(20_000_000)
