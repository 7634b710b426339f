"""Frames to bytes and back."""

import random
import zlib

import pytest

from gradloom.contracts.frame_format import IDENTITY, MAX_DATA, REQUEST_HEADER
from gradloom.host.link.frames import FrameReader, Identity, ReceivedFrame, encode, pack, poll, read_request, unpack, write_request


def test_a_frame_on_the_line():
    """RFC 1662: the FCS of "123456789" is CBF43926; flag and escape are sent as 7D 5E and 7D 5D."""
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert encode(b"123456789") == b"\x7e123456789\x26\x39\xf4\xcb\x7e"
    assert encode(b"\x7e\x7d")[1:5] == b"\x7d\x5e\x7d\x5d"


def test_every_content_comes_back_whatever_lies_between_the_frames():
    rng = random.Random(1)
    contents = [rng.choice([rng.randbytes(n), bytes(rng.choice([0x7D, 0x7E]) for _ in range(n))]) for n in range(1, 60)]
    reader, found = FrameReader(), []
    for content in contents:
        noise = bytes(rng.randrange(256) for _ in range(rng.randrange(5))).replace(b"\x7e", b"")
        line = noise + encode(content)
        place = rng.randrange(len(line))
        found += [*reader.feed(line[:place]), *reader.feed(line[place:])]
    assert found == contents


@pytest.mark.parametrize("length", [5, 40])
def test_no_damage_of_up_to_three_bits_is_taken_for_a_frame(length):
    rng = random.Random(length)
    frame = encode(rng.randbytes(length))
    for _ in range(3000):
        damaged = bytearray(frame)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(1, len(frame) - 1)] ^= 1 << rng.randrange(8)
        if damaged != frame:
            assert list(FrameReader().feed(bytes(damaged))) == []


def test_an_aborted_frame_is_none():
    reader = FrameReader()
    assert list(reader.feed(encode(b"frame")[:-1] + b"\x7d\x7e")) == [] and reader.bad == 1
    assert list(reader.feed(b"\x7d\x7d\x01\x7e" + encode(b"next"))) == [b"next"] and reader.bad == 2


def test_fields():
    data = pack(REQUEST_HEADER, session=1, number=2, ack=3, kind=4)
    assert unpack(REQUEST_HEADER, data) == {"session": 1, "number": 2, "ack": 3, "kind": 4}
    with pytest.raises(ValueError, match="fields are session, number, ack, kind, not session"):
        pack(REQUEST_HEADER, session=1)


def test_what_is_too_short_is_no_frame_of_the_board():
    assert ReceivedFrame.parse(b"ab") is None and Identity.parse(b"short") is None
    size = sum(field.size for field in IDENTITY)
    identity = Identity.parse(bytes(size))
    assert identity is not None and identity.memory_bytes == 1 << 32


def test_sizes_that_no_frame_has():
    for n in (0, MAX_DATA + 1):
        with pytest.raises(ValueError, match=f"one frame reads 1 to {MAX_DATA} bytes, not {n}"):
            read_request(0, n)
        with pytest.raises(ValueError, match=f"one frame writes 1 to {MAX_DATA} bytes, not {n}"):
            write_request(0, bytes(n))
    with pytest.raises(ValueError, match=r"the limit of a poll must lie in 0\.\.65535, not 65536"):
        poll(0, 0, 0, 65536)
