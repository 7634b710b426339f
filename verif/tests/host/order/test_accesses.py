"""What has been accessed of a memory: found by place as by looking at all of it."""

import random

import pytest

from gradloom.contracts.engines import Unit
from gradloom.host.order.accesses import AccessIndex

UNITS = (Unit.LOAD, Unit.CCORE, Unit.STORE)


class Everything:
    """As an index, from the definition: (position, engine, write, box) of all accesses that nothing stands for."""

    def __init__(self):
        self.live = []

    def latest(self, engine, box, write):
        found = {}
        for position, other, wrote, past in self.live:
            if other != engine and (write or wrote) and all(a < d and c < b for (a, b), (c, d) in zip(past, box, strict=True)):
                found[other] = max(position, found.get(other, -1))
        return found

    def add(self, position, engine, box, write):
        def stands_for(other, wrote, past):
            inside = all(c <= a and b <= d for (a, b), (c, d) in zip(past, box, strict=True))
            return inside and (write or (other == engine and not wrote))

        self.live = [one for one in self.live if not stands_for(*one[1:])] + [(position, engine, write, box)]


def box(rng, sizes):
    """Some place in a memory; often a small one, or one that begins where others do."""
    found = []
    for size in sizes:
        low = rng.randrange(size) // 4 * 4 if rng.random() < 0.5 else rng.randrange(size)
        found.append((low, rng.randint(low + 1, min(size, low + rng.choice((1, 8, size))))))
    return tuple(found)


@pytest.mark.parametrize("sizes", [(300, 3), (9, 20, 6), (30, 30, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_accesses_are_found_as_by_looking_at_all_of_them(sizes, seed):
    rng, index, every = random.Random(seed), AccessIndex(len(sizes)), Everything()
    met = 0
    for position in range(600):
        engine, write, place = rng.choice(UNITS), rng.random() < 0.4, box(rng, sizes)
        needs, new = {}, index.record(engine, place, write=write)
        known = {unit: rng.randrange(position + 1) for unit in UNITS if rng.random() < 0.2}
        index.latest(new, needs, known)
        everything = every.latest(engine, place, write)
        assert needs == {other: last for other, last in everything.items() if last > known.get(other, -1)}
        met += len(needs)
        index.add(new, position)
        every.add(position, engine, place, write)
    assert met > 300, "most accesses have others before them"


def test_what_is_known_is_not_noted_anew():
    index = AccessIndex(2)
    index.add(index.record(Unit.LOAD, ((0, 8), (0, 1)), write=True), 3)
    needs = {Unit.LOAD: 5}
    index.latest(index.record(Unit.CCORE, ((4, 6), (0, 1)), write=False), needs, {})
    assert needs == {Unit.LOAD: 5}


def test_a_cleared_index_has_nothing_before_an_access():
    index, needs = AccessIndex(2), {}
    index.add(index.record(Unit.LOAD, ((0, 8), (0, 1)), write=True), 3)
    index.clear()
    new = index.record(Unit.CCORE, ((0, 8), (0, 1)), write=True)
    index.latest(new, needs, {})
    assert not needs
    index.add(new, 4)
    index.latest(index.record(Unit.LOAD, ((0, 1), (0, 1)), write=True), needs, {})
    assert needs == {Unit.CCORE: 4}


def test_an_access_of_other_dimensions_is_refused():
    with pytest.raises(ValueError, match="an access of 3 dimensions to a memory of 2"):
        AccessIndex(2).record(Unit.LOAD, ((0, 8), (0, 1), (0, 1)), write=True)
