"""The last commands that accessed an on-chip memory, as found address by address."""

import random

import pytest

from gradloom.contracts.engines import Unit
from gradloom.host.order.addresses import AddressIndex

UNITS = (Unit.LOAD, Unit.CCORE, Unit.STORE)


class EveryAddress:
    """As an index, from the definition: for each address of each bank who read and wrote it last; a write stands for all before."""

    def __init__(self):
        self.last = {}

    @staticmethod
    def _places(box):
        banks = range(*box[1]) if len(box) > 1 else (0,)
        return [(address, bank) for address in range(*box[0]) for bank in banks]

    def latest(self, engine, box, write):
        found = {}
        for place in self._places(box):
            for (other, wrote), position in self.last.get(place, {}).items():
                if other != engine and (write or wrote):
                    found[other] = max(position, found.get(other, -1))
        return found

    def add(self, position, engine, box, write):
        for place in self._places(box):
            if write:
                self.last[place] = {}
            self.last.setdefault(place, {})[engine, write] = position


def box(rng, sizes):
    found = []
    for size in sizes:
        low = rng.randrange(size)
        found.append((low, rng.randint(low + 1, min(size, low + rng.choice((1, 8, size))))))
    return tuple(found)


@pytest.mark.parametrize("sizes", [(40,), (1500,), (60, 3)], ids=["small", "grows", "banks"])
@pytest.mark.parametrize("seed", range(3))
def test_accesses_are_found_as_address_by_address(sizes, seed):
    rng, index, every = random.Random(seed), AddressIndex(len(sizes)), EveryAddress()
    met = 0
    for position in range(400):
        engine, write, place = rng.choice(UNITS), rng.random() < 0.4, box(rng, sizes)
        needs, new = {}, index.record(engine, place, write=write)
        known = {unit: rng.randrange(position + 1) for unit in UNITS if rng.random() < 0.2}
        index.latest(new, needs, known)
        everything = every.latest(engine, place, write)
        assert needs == {other: last for other, last in everything.items() if last > known.get(other, -1)}
        met += len(needs)
        index.add(new, position)
        every.add(position, engine, place, write)
    assert met > 200, "most accesses have others before them"


def test_what_is_known_is_not_noted_anew():
    index = AddressIndex(1)
    index.add(index.record(Unit.LOAD, ((0, 8),), write=True), 3)
    needs = {Unit.LOAD: 5}
    index.latest(index.record(Unit.CCORE, ((4, 6),), write=False), needs, {})
    assert needs == {Unit.LOAD: 5}


def test_a_cleared_index_has_nothing_before_an_access():
    index, needs = AddressIndex(1), {}
    index.add(index.record(Unit.LOAD, ((0, 8),), write=True), 3)
    index.clear()
    new = index.record(Unit.CCORE, ((0, 8),), write=True)
    index.latest(new, needs, {})
    assert not needs
    index.add(new, 4)
    index.latest(index.record(Unit.LOAD, ((0, 1),), write=True), needs, {})
    assert needs == {Unit.CCORE: 4}


def test_searches_are_the_same_until_there_is_more():
    index = AddressIndex(1)
    before = index.reads, index.writes
    index.latest(index.record(Unit.LOAD, ((0, 4),), write=True), {}, {})
    assert (index.reads, index.writes) == before
    index.add(index.record(Unit.LOAD, ((0, 4),), write=False), 0)
    index.add(index.record(Unit.LOAD, ((0, 4),), write=True), 1)
    assert index.reads > before[0] and index.writes > before[1]


def test_an_access_of_other_dimensions_is_refused():
    with pytest.raises(ValueError, match="an access of 2 dimensions to a memory of 1"):
        AddressIndex(1).record(Unit.LOAD, ((0, 8), (0, 1)), write=True)
