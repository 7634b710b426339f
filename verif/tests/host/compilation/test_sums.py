"""Who has which half of the partial sums."""

import pytest

from gradloom.host.compilation.sums import PsumAllocator, PsumRegion, norm_access
from gradloom.host.order.accesses import Access


def test_tiles_take_the_halves_in_turns():
    sums = PsumAllocator(64)
    for half in (1, 0, 1, 0):
        assert sums.next().space == f"PSUM{half}" and sums.take().half == half
    assert sums.take(5, 7) == PsumRegion(1, 7, 5) and sums.take() == PsumRegion(0, 0, 64)


@pytest.mark.parametrize(("tiles", "room"), [(1, 54), (2, 54), (3, 44), (4, 44)])
def test_a_set_leaves_room_at_the_end_of_the_half_that_it_has_used_last(tiles, room):
    sums = PsumAllocator(64)
    assert sums.beside(1) is None
    sums.begin_set(tiles, 10)
    for half in (1, 0):
        sums.used = half
        assert sums.beside(room) == PsumRegion(half, 64 - room, room)
    assert sums.beside(room + 1) is None
    sums.end_set()
    assert sums.beside(1) is None


def test_sums_that_are_added_to_are_read_too():
    sums = PsumRegion(1, 8, 4)
    place, port = Access("PSUM1", ((8, 12),)), Access("PORT1", ((0, 1),))
    assert sums.written(added=False) == [place] and sums.written(added=True) == [place, port]
    assert sums.read == [("PSUM1", 8, 4), ("PORT1", 0, 1)]
    assert sums.norms == ("NORM1", 0, 1) and norm_access(1) == Access("NORM1", ((0, 1),))
