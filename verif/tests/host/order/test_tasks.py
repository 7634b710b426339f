"""Tasks: commands that are known before they come, on places that are found when they do."""

import dataclasses
import functools

import pytest

from gradloom.contracts.isa import Dest, Opcode, Source
from gradloom.host.order.accesses import Access, tensor_access
from gradloom.host.order.allocators import CachedRing, FreeListAllocator, RingAllocator
from gradloom.host.order.pieces import BoundEngine, Deferred, Kept, Piece, Relief
from gradloom.host.order.tasks import Address, Call, Collector, Command, Later, Place, PlannedAccess, Region, Uses, Way, emitted


class Emitter:
    """Notes what is emitted, in order; channels are numbered as they are asked for."""

    def __init__(self):
        self.log, self.tags, self.ways = [], [], 0

    def emit(self, command, fields, reads, writes):
        self.log.append(dataclasses.replace(command, fields=fields, reads=tuple(reads), writes=tuple(writes)))

    def way(self, dest, *, shared, most=None):
        assert shared
        self.ways += 1
        return self.ways

    def set_tag(self, tag):
        self.tags.append(tag)


def collector(tag=0):
    return Collector({"AA": RingAllocator(8, grain=2)}, {"IBUF": FreeListAllocator("IBUF", 10)}, tag, open=True)


def load(address, count, **fields):
    return Command(Opcode.LOAD, {"dest": int(Dest.AA), "addr0": address, **fields}, (tensor_access("t", ((0, 1), (0, 1))),),
                   (PlannedAccess("AA", ((address, address + count),)),), (), False, 5)


def test_addresses_are_found_when_the_task_is_emitted():
    made, emitter = collector(), Emitter()

    def work():
        for count in (3, 4, 2):
            yield Piece(BoundEngine.LOAD, count)
            made.add(load(made.rings["AA"].take(count) + 1, count - 1))

    first, second, third = (made.tasks(work()))
    for task in (second, first, third):
        assert list(emitted([task], emitter)) != []
    assert [command.fields["addr0"] for command in emitter.log] == [1, 5, 1], "in the order of emission, round and round"
    assert emitter.log[0].writes == (Access("AA", ((1, 4),)),)


def test_an_address_is_asked_for_before_it_is_known():
    address = Address(Place(4))
    with pytest.raises(ValueError, match="a command uses addresses that nothing has taken before it"):
        int(address + 3)
    address.place.start = 7
    assert int(address + 3) == 10 and (address + 3).find() == 10
    assert (address & 3).find() == 3 and (address % 5 + 1).find() == 3
    assert (address % 5 + 1).source is address.place


def test_places_of_a_pool_are_free_when_they_have_been_given_back():
    made, emitter = collector(), Emitter()

    def work():
        yield Piece(BoundEngine.LOAD, 1)
        first = made.pools["IBUF"].take(6)
        yield Piece(BoundEngine.ARRAY, 1)
        made.pools["IBUF"].give_back(first)
        made.pools["IBUF"].from_end().take(7)

    tasks, pool = made.tasks(work()), made.pools["IBUF"].real
    assert pool.find(10) == 0, "nothing is taken before a task is emitted"
    pieces = emitted(tasks, emitter)
    next(pieces), next(pieces)
    assert pool.find(5) is None and pool.find(4) == 6
    assert next(pieces, None) is None and pool.find(4) is None and pool.find(3) == 0


def test_loads_share_the_channel_that_the_first_of_them_chooses():
    emitter, way, other = Emitter(), Way(Dest.IBUF, None), Way(Dest.IBUF, None)
    for chosen in (other, way, way):
        load(4, 1, way=chosen).perform(emitter)
    assert [command.fields["way"] for command in emitter.log] == [1, 2, 2]


def test_nothing_belongs_to_no_task():
    with pytest.raises(RuntimeError, match="belongs to no task"):
        Collector({"AA": RingAllocator(8)}, {}).rings["AA"].take(1)


def test_a_region_is_asked_before_it_is_open():
    region = Region(4)
    with pytest.raises(ValueError, match="a command uses a region that nothing has opened before it"):
        region.take(1)
    region.ring = RingAllocator(4, first=6)
    assert region.take(3) == 6 and region.held("key") is None and region.take_for("key", 2) == 6


def test_a_step_may_leave_places_for_others():
    class Divided:
        def perform(self, emitter):
            emitter.set_tag(1)
            yield Piece(BoundEngine.ARRAY, 7, inside=True)
            emitter.set_tag(2)

        def uses(self):
            return Uses()

    made, emitter = collector(), Emitter()

    def work():
        yield Piece(BoundEngine.ARRAY, 9)
        made.add(Divided())

    pieces = emitted(made.tasks(work()), emitter)
    assert [piece.cycles for piece in pieces] == [9, 7] and emitter.tags == [1, 2]


def test_what_has_been_done_by_others_is_passed_over():
    made, emitter, log = collector(3), Emitter(), []
    updates = [Deferred(functools.partial(log.append, name)) for name in "abc"]

    def work():
        for update in updates:
            yield Piece(BoundEngine.ACORE, 1, deferred=update)
            made.add(Call(update.do, made.tag, (), Uses()))

    tasks, relief = made.tasks(work()), Relief(tuple(updates), 1)
    assert relief.give() and log == ["a"]
    assert len(list(emitted(tasks, emitter))) == 2 and emitter.tags == [3, 3] and log == ["a", "b", "c"]
    assert not relief.give() and log == ["a", "b", "c"]
    assert all(task.emitted for task in tasks)


def test_weights_that_are_kept_are_not_waited_for():
    """Asked when the work comes to the piece: the first one loads what the second one needs, and something else takes its place."""
    made, ring = collector(), CachedRing(8)

    def work():
        for key in ("a", "b"):
            yield Piece(BoundEngine.ARRAY, 1, weights=10, kept=Kept(ring, "a"))
            made.add(Call(lambda key=key: ring.take_for(key, 8), 0, (), Uses()))
        yield Piece(BoundEngine.ARRAY, 1, weights=10, kept=Kept(ring, "a"))

    assert [piece.weights for piece in emitted(made.tasks(work()), Emitter())] == [10, 0, 10]


def test_uses_of_a_command():
    tensor, place = tensor_access("t", ((0, 1), (0, 1))), Place(2)
    there = PlannedAccess("OA", ((Address(place), Address(place, 2)),))
    store = Command(Opcode.STORE, {"src": int(Source.OA)}, (there,), (tensor,), (), False, 0)
    assert store.uses() == Uses([], [tensor], [place], [], [])
    sums, gradients = PlannedAccess(Later(place, lambda: "PSUM1"), ((0, 1),)), PlannedAccess("DW", there.box)
    run = Command(Opcode.RUN, {}, (sums, gradients, there), (), (), False, 0)
    assert run.uses().made == [sums, gradients] and run.uses().reads == run.uses().writes == []
    place.start = 4
    assert sums.known() == Access("PSUM1", ((0, 1),)) and there.known() == Access("OA", ((4, 6),))


def test_a_call_uses_what_its_steps_do():
    tensor = tensor_access("t", ((0, 1), (0, 1)))
    call = Call(lambda: None, 0, (load(Address(Place(1)), 1),), Uses(writes=[tensor]))
    assert list(call.uses().reads) == [tensor] and list(call.uses().writes) == [tensor] and len(call.uses().filled) == 1
