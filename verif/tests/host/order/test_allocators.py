"""Addresses of on-chip memories: what is handed out, and what still lies where."""

import pytest

from gradloom.host.order.allocators import CachedRing, FreeListAllocator, LruSlots, RingAllocator


def test_a_ring_begins_anew_unless_all_lies_ahead():
    ring = RingAllocator(10, first=4)
    assert ring.take(3) == 4
    ring.turn(7)
    assert ring.take(3) == 7
    ring.turn(5)
    assert [ring.take(2), ring.take(3)] == [4, 6]


def test_a_plain_ring_keeps_nothing():
    ring = RingAllocator(10, first=4)
    assert ring.take_for("a", 3) == 4 and ring.held("a") is None and ring.take(3) == 7


def test_a_ring_with_a_grain():
    ring = RingAllocator(10, first=4, grain=2)
    assert [ring.take(3), ring.take(1), ring.take(4), ring.take(3)] == [4, 8, 10, 4]


def test_a_ring_knows_what_still_lies_where():
    ring = CachedRing(10)
    assert ring.held("a") is None
    assert [ring.take_for(name, 3) for name in "abc"] == [0, 3, 6]
    assert [ring.held(name) for name in "abc"] == [0, 3, 6]
    assert ring.take_for("d", 2) == 0
    assert [ring.held(name) for name in "abcd"] == [None, 3, 6, 0]
    assert ring.take_for("b", 2) == 2
    assert [ring.held(name) for name in "abcd"] == [None, 2, 6, 0]


def test_slots_give_up_what_has_not_been_used_for_longest():
    slots = LruSlots(2, 3, first=4)
    assert slots.held("a") is None and slots.take_for("a", 3) == 4 and slots.take_for("b", 2) == 7
    assert slots.held("a") == 4, "used again, so b is the older one"
    assert slots.take_for("c", 1) == 7
    assert slots.held("b") is None and slots.held("a") == 4 and slots.held("c") == 7
    with pytest.raises(ValueError, match="4 addresses do not fit in a place of 3"):
        slots.take_for("d", 4)


def test_pool_hands_out_what_is_free():
    pool = FreeListAllocator("memory", 10)
    assert [pool.take(4), pool.take(4)] == [0, 4]
    assert pool.find(2) == 8
    assert pool.find(3) is None
    with pytest.raises(ValueError, match="3 addresses do not fit in a memory of 10"):
        pool.take(3)
    pool.give_back(0)
    assert pool.find(2) == 8, "what has been in use last is taken last"
    assert pool.find(3) == 0
    pool.give_back(4)
    assert pool.take(10) == 0


def test_rings_hand_out_addresses_in_turn():
    ring = RingAllocator(10, first=3)
    assert [ring.take(4), ring.take(4), ring.take(4), ring.take(6)] == [3, 7, 3, 7]
    with pytest.raises(ValueError, match="11 addresses do not fit in a memory of 10"):
        ring.take(11)
