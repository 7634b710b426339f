"""The tables of the frames: nothing twice, everything described, and sizes that the rings can hold."""

import pytest

from gradloom.contracts import frame_format as ff
from gradloom.contracts.config import PRESETS
from gradloom.rtl.board.link.board_link import identity_bytes


def test_every_code_is_described():
    assert set(ff.STATUS_DOCS) == set(ff.Status)
    assert set(ff.FIELDS_OF) == set(ff.Kind)
    assert set(ff.ENTRIES) == set(ff.Access)


def test_requests_and_replies_without_a_number_are_told_by_one_bit():
    assert {kind for kind in ff.Kind if kind >= ff.UNNUMBERED} == {ff.Kind.HELLO, ff.Kind.OPEN, ff.Kind.SYNC, ff.Kind.ACK}
    assert {reply for reply in ff.Reply if reply >= ff.UNNUMBERED} == {ff.Reply.WELCOME, ff.Reply.STATE}


def test_the_longest_answers_fit_into_the_half_ring_that_is_free_when_they_begin():
    trailer = sum(field.size for field in ff.ANSWER_TRAILER)
    assert 1 + ff.MAX_DATA + trailer < ff.RING_BYTES // 2
    assert 1 + 4 * ff.MAX_ENTRIES + trailer < ff.RING_BYTES // 2
    assert 1 + sum(field.size for field in ff.MEMORY_FIELDS) + ff.MAX_DATA < ff.RING_BYTES


@pytest.mark.parametrize("access", ff.Access)
def test_an_entry_holds_any_address(access):
    assert ff.entry_word(access, 0xFFFC) == int(access) << 14 | 0x3FFF
    for address in (2, -4, 1 << 16):
        with pytest.raises(ValueError, match=f"must be a multiple of 4 below 65536, not {address:#x}"):
            ff.entry_word(access, address)


def test_identity():
    body = identity_bytes(PRESETS["nano"], board="TEST", clock=25_000_000, memory_base=0, memory_bytes=1 << 32, build=5)
    assert len(body) == sum(field.size for field in ff.IDENTITY) and b"TEST" in body
    with pytest.raises(ValueError, match="four ASCII letters, not 'LONGER'"):
        identity_bytes(PRESETS["nano"], board="LONGER", clock=1, memory_base=0, memory_bytes=4096, build=0)
