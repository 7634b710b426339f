"""What tasks come behind follows from what they read and write, in the order of their meaning."""

import numpy as np
import pytest

from gradloom.contracts.isa import Opcode
from gradloom.host.order.accesses import overlap, tensor_access
from gradloom.host.order.dependences import Dependences
from gradloom.host.order.pieces import BoundEngine, Gate, Piece
from gradloom.host.order.tasks import Address, Call, Command, Later, Place, PlannedAccess, Start, Take, Task, Uses
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.configs import machine_config


def task(*steps, lane=BoundEngine.ACORE):
    return Task(Piece(lane, 1), tuple(steps))


def using(**uses):
    return Call(lambda: None, 0, (), Uses(**uses))


def part(images, groups=(0, 1)):
    return tensor_access("z", (images, groups))


def added(*tasks):
    Dependences().add(tasks)
    return [[other.number for other in task.after] for task in tasks]


def test_readers_follow_writers_and_writers_all():
    write, other, read, again = (task(using(writes=[part((0, 2))])), task(using(writes=[part((2, 4))])),
                                 task(using(reads=[part((1, 2))])), task(using(writes=[part((0, 4))])))
    assert added(write, other, read, again) == [[], [], [0], [0, 1, 2]]


def test_readers_do_not_follow_each_other_nor_other_groups():
    assert added(task(using(reads=[part((0, 1))])), task(using(reads=[part((0, 1))])),
                 task(using(writes=[part((0, 1), (1, 2))]))) == [[], [], []]


def test_what_is_on_chip_follows_who_took_and_filled_it():
    place = Place(4)
    at = PlannedAccess("IBUF", ((Address(place), Address(place, 4)),))
    take, fill = task(Take(None, place)), task(Command(Opcode.LOAD, {}, (part((0, 1)),), (at,), (), False, 0))
    use = task(Command(Opcode.CONV, {}, (at,), (), (), False, 0))
    assert added(take, fill, use, task()) == [[], [0], [0, 1], []]


def test_when_a_task_has_what_it_reads():
    """Parts of tensors, and what others made on the array; of its own sums it knows nothing before."""
    own, other = (PlannedAccess(Later(Place(1), lambda: "PSUM0"), ((3, 4),)) for _ in range(2))
    reader = task(using(filled=own.sources), using(reads=[part((0, 1))]),
                  Command(Opcode.RUN, {}, (own, other), (), (), False, 0))
    added(reader)
    assert [access.space for access in reader.read()] == ["z", "PSUM0"]


def test_one_may_come_in_the_place_of_another():
    write, read, usual, instead = task(using(writes=[part((0, 1))])), task(using(reads=[part((0, 1))])), task(), task()
    added(write, task(Start([usual], [instead])), read)
    usual.after = read.after
    instead.come()
    assert usual.emitted and not write.emitted


@pytest.mark.parametrize(("gate", "found"), [
    (Gate(), []), (Gate(written=(part((0, 1)),)), [1]), (Gate(settled=(part((0, 1)),)), [1, 2]),
    (Gate(settled=(part((1, 2)),)), [3]), (Gate(summed=(part((2, 3)),)), [4]), (Gate(summed=(part((3, 4)),)), [6]),
    (Gate(written=(part((3, 4)),), settled=(part((1, 2)),)), [3, 6]), (Gate(written=(part((2, 3)),)), [5])])
def test_a_gate_waits_for_those_who_have_used_regions(gate, found):
    """The array's own results, and those that the A-Core makes of its sums: either are summed by the array."""
    sums = Place(1)
    gated = Task(Piece(BoundEngine.LOAD, 1, gate), ())
    after = added(
        task(), task(using(writes=[part((0, 1))])), task(using(reads=[part((0, 1))])), task(using(reads=[part((1, 2))])),
        task(using(filled=[sums]), lane=BoundEngine.ARRAY), task(using(places=[sums], writes=[part((2, 3))])),
        task(using(writes=[part((3, 4))]), lane=BoundEngine.ARRAY), gated, task(using(writes=[part((0, 4))])),
    )
    assert [other.number for other in gated.gated] == found and after[7] == []
    gated.come()
    assert list(gated.read()) == []


def test_what_a_gate_waits_for_has_to_be_in_memory():
    gated = Task(Piece(BoundEngine.LOAD, 1, Gate(written=(part((0, 1)),), settled=(part((1, 2)),))), ())
    added(gated)
    assert gated.read() == [part((0, 1))]


def test_what_is_started_comes_after_the_task_that_starts_it():
    """In the order of meaning: its sums are there, and what the next task of the work reads is not."""
    sums = Place(1)
    started, others = ([task(using(places=[sums], writes=[part((0, 1))]))] for _ in range(2))
    tile, following = task(using(filled=[sums]), Start(started, others)), task(using(reads=[part((0, 1))]))
    assert added(tile, following) == [[], [1]]
    assert started[0].after == others[0].after == (tile,) and others[0].twin is started[0]


@pytest.mark.parametrize("seed", range(8))
def test_any_order_that_keeps_them_is_right(seed):
    """Against every pair of accesses: a task comes behind another, perhaps by way of others, if and only if they conflict."""
    rng, tasks, accesses = np.random.default_rng(seed), [], []
    for _ in range(60):
        mine = []
        for _ in range(rng.integers(1, 4)):
            low = rng.integers(0, 12, 3)
            box = tuple((int(first), int(first + size)) for first, size in zip(low, rng.integers(1, 5, 3), strict=True))
            mine.append((bool(rng.integers(2)), tensor_access("z", box)))
        accesses.append(mine)
        tasks.append(task(using(reads=[a for write, a in mine if not write], writes=[a for write, a in mine if write])))
    added(*tasks)
    behind = []
    for number, here in enumerate(tasks):
        direct = {other.number for other in here.after}
        behind.append(direct.union(*(behind[other] for other in direct)))
        for other in range(number):
            conflict = any((a or b) and overlap(x.box, y.box) for a, x in accesses[number] for b, y in accesses[other])
            assert not conflict or other in behind[number], (number, other)
            assert conflict or other not in direct, (number, other)


@pytest.mark.parametrize(("network", "config", "batch"), [
    ("tiny-residual", "small", 3), ("tiny-subsample", "kept", 3), ("tiny-rows", "rows", 2), ("tiny-branches", "eta", 1)])
def test_tasks_of_a_step_come_behind_what_they_need(network, config, batch, monkeypatch):
    """In the order in which the scheduler emits them; and nearly every task needs another one."""
    seen, come = [], Task.come

    def watched(self):
        assert all(other.emitted for other in self.after), "a task has come before one that it needs"
        seen.append(self)
        come(self)

    monkeypatch.setattr(Task, "come", watched)
    compile_network(load_network(str(NETWORKS / f"{network}.toml")), machine_config(config), batch)
    assert len(seen) > 30 and sum(bool(here.after) for here in seen) > len(seen) // 2
    order = [here.number for here in seen if here.twin is None]
    assert order != sorted(order), "it is not that of their meaning"


def _before(tasks):
    """All tasks that some tasks come after, or by way of others."""
    found, left = set(), list(tasks)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [*one.after, *one.gated]
    return found


@pytest.mark.parametrize(("network", "config", "batch"), [
    ("tiny-residual", "small", 3), ("tiny-branches", "small", 3), ("tiny-rows", "rows", 2), ("tiny-subsample", "eta", 3)])
def test_a_gate_waits_for_all_that_its_tiles_come_after(network, config, batch, monkeypatch):
    """Gates name regions by hand; the accesses of all tiles that have the same one say no more than it does."""
    works, alike, add = {}, {}, Dependences.add

    def watched(self, tasks):
        add(self, tasks)
        for task in tasks:
            works[task] = tasks
            gate = task.piece.gate
            if gate.written and task.piece.lane != BoundEngine.ACORE:
                alike.setdefault(gate, []).append(task)

    monkeypatch.setattr(Dependences, "add", watched)
    compile_network(load_network(str(NETWORKS / f"{network}.toml")), machine_config(config), batch)
    assert len(alike) > 10
    for tasks in alike.values():
        behind, first = _before(tasks[0].gated), min(task.number for task in tasks)
        others = {other for task in tasks for other in task.after if other.number < first and works[other] is not works[task]}
        late = sorted(other.number for other in others - behind)
        assert not late, f"{tasks[0].piece.gate} does not wait for tasks {late}"
