"""Interleaving of independent work: what may come, and what comes first."""

import functools
from typing import NamedTuple

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Dest, Opcode
from gradloom.contracts.microprograms import TABLE
from gradloom.host.order.accesses import Access, row_access, tensor_access
from gradloom.host.order.allocators import FreeListAllocator, RingAllocator
from gradloom.host.order.dependences import Dependences
from gradloom.host.order.list_scheduler import ListScheduler
from gradloom.host.order.pieces import BoundEngine, Deferred, Gate, Piece, Relief
from gradloom.host.order.synchronize import Recorder
from gradloom.host.order.tasks import Call, Collector, Command, PlannedAccess, Task, Uses, emitted

CONFIG = PRESETS["eta"]


class Planned(NamedTuple):
    """A piece, and the regions that its commands read and write."""

    piece: Piece
    reads: tuple = ()
    writes: tuple = ()


def planned(lane, cycles, *, reads=(), writes=(), **fields):
    return Planned(Piece(lane, cycles, **fields), reads, writes)


array, load, acore = (functools.partial(planned, lane) for lane in (BoundEngine.ARRAY, BoundEngine.LOAD, BoundEngine.ACORE))


def region(first=0, last=None):
    return tensor_access("x", ((first, last or first + 1), (0, 1)))


class Goes:
    """Where results go."""

    def __init__(self, place=None, unused=(), readers=(), disjoint=False):
        answers = place, unused, readers, disjoint
        self.place, self.unused, self.readers, self.disjoint = ((lambda answer=answer: answer) for answer in answers)


class Bench:
    """Works that emit CONV commands of 100 units, LOADs of some beats or RUNs, and a log of their order. Those that write a region
    are made before those that read it, in whatever order they are added."""

    def __init__(self):
        self.log, self.recorder, self.dependences = [], Recorder(CONFIG), Dependences()
        self.scheduler = ListScheduler(self.recorder, {"IBUF": Unit.LOAD, "EBUF": Unit.LOAD1, "WBUF": Unit.LOAD1})

    def work(self, name, *pieces):
        tasks = []
        for n, (piece, reads, writes) in enumerate(pieces):
            step = Call(functools.partial(self.emit_piece, f"{name}{n}", piece), 0, (), Uses(reads, writes))
            tasks.append(Task(piece, (step,)))
        self.dependences.add(tasks)
        return emitted(tasks, self)

    def divided(self, name, pieces):
        """One task, with places for others between the commands of its pieces."""
        first, *further = [piece for piece, _, _ in pieces]

        class Divided:
            def perform(_, emitter):
                self.emit_piece(f"{name}0", first)
                for n, piece in enumerate(further, 1):
                    yield piece
                    self.emit_piece(f"{name}{n}", piece)

            def uses(_):
                return Uses((), [access for _, _, writes in pieces for access in writes])

        task = Task(first, (Divided(),))
        self.dependences.add([task])
        return emitted([task], self)

    def set_tag(self, tag):
        pass

    def emit(self, command, fields, reads, writes):
        """Of a task that has commands of its own."""
        self.recorder.emit(command.opcode, fields, reads=reads, writes=writes)

    def emit_piece(self, name, piece):
        self.log.append(name)
        if piece.lane == BoundEngine.LOAD:
            fields = {"dest": int(Dest.IBUF), "n0": piece.cycles, "n1": 1, "n2": 1}
            self.recorder.emit(Opcode.LOAD, fields, writes=[row_access("IBUF", 0, 1)])
        elif piece.lane == BoundEngine.ARRAY:
            fields = {"units": 3 * piece.cycles, "cols": 1, "steps": 1, "preload": 0, "wg": 0}
            self.recorder.emit(Opcode.CONV, fields)
        else:
            self.recorder.emit(Opcode.RUN, {"uprog": TABLE["BP_OUT"], "planes": 1, "nb": piece.cycles, "pool": 0})


def test_in_order_if_the_array_never_waits():
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(100), array(100)))
    bench.scheduler.add(bench.work("b", array(100)))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "b0"]


def test_a_line_fills_the_time_that_others_wait():
    bench, loaded = Bench(), region()
    loads = bench.work("l", load(3000, writes=(loaded,)))
    bench.scheduler.add(bench.work("a", array(100), array(100, reads=(loaded,))))
    bench.scheduler.add(loads)
    bench.scheduler.add(bench.work("w", *[array(1000)] * 6), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["l0", "a0", "w0", "w1", "w2", "a1", "w3", "w4", "w5"]


@pytest.mark.parametrize("idle", [False, True])
def test_gradients_that_end_in_time_come_where_a_set_waits(idle):
    """Its next chunk waits 3,000 cycles: two tiles of gradients of 1,000 have time, a third one has not."""
    bench, loaded = Bench(), region()
    loads = bench.work("l", load(3000, writes=(loaded,)))
    bench.scheduler.add(bench.work("a", array(100), array(100, reads=(loaded,), inside=True, idle=idle)))
    bench.scheduler.add(loads)
    bench.scheduler.add(bench.work("w", *[array(1000)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log == (["l0", "a0", "w0", "w1", "a1", "w2"] if idle else ["l0", "a0", "a1", "w0", "w1", "w2"])


@pytest.mark.parametrize("passes", [False, True])
def test_a_later_work_of_a_line_passes_one_that_cannot_come(passes):
    """While a set is under way only gradients that leave the array slowly come; those of several spans wait for their line."""
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(80), *[array(80, inside=True)] * 2))
    bench.scheduler.add(bench.work("w", array(1000)), line="gradients")
    bench.scheduler.add(bench.work("v", array(22, sweeps=36, passes=passes)), line="gradients")
    bench.scheduler.finish()
    assert (bench.log.index("v0") < bench.log.index("w0")) == passes


def test_gradients_wait_for_room_that_others_of_their_line_have_not_used():
    """A work has passed another one whose gradients would go where its own wait for their update."""
    bench, space, free = Bench(), Access("DW", ((0, 36),)), Access("AB", ((0, 36),))

    def later():
        yield array(22, sweeps=36, passes=True).piece
        bench.log.append("v0")
        bench.recorder.emit(Opcode.CONV, {"units": 3, "cols": 22, "steps": 1, "preload": 0, "wg": 0}, writes=[space])
        yield array(22, sweeps=36, passes=True).piece
        bench.log.append("v1")
        bench.recorder.emit(Opcode.RUN, {"uprog": TABLE["WU"], "planes": 1, "nb": 36, "pool": 0}, reads=[space])

    bench.scheduler.add(bench.work("a", array(80), array(80, inside=True)))
    bench.scheduler.add(bench.work("w", array(1000, results=Goes(unused=(free, space)))), line="gradients")
    bench.scheduler.add(later(), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["a0", "v0", "a1", "v1", "w0"]


def test_the_a_core_takes_what_is_loaded_before_what_is_in_memory():
    bench, loaded = Bench(), region()
    bench.scheduler.add(bench.work("q", acore(300)))
    loads = bench.work("l", load(500, writes=(loaded,)))
    bench.scheduler.add(bench.work("p", acore(1000, reads=(loaded,))))
    bench.scheduler.add(bench.work("r", acore(600)))
    bench.scheduler.add(loads)
    bench.scheduler.finish()
    assert bench.log == ["l0", "r0", "q0", "p0"]


def test_slow_results_go_between_the_commands_of_a_tile():
    """A tile of gradients whose 36 beats leave the array in more than its 22 cycles waits for what else the array has."""
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(200), *[array(80, inside=True)] * 3))
    bench.scheduler.add(bench.work("w", *[array(22, sweeps=36)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "a0", "w1", "a1", "w2", "a2", "a3"]


def test_sums_of_others_do_not_come_between_the_commands_of_a_tile():
    bench, loaded = Bench(), region()
    loads = bench.work("l", load(1, writes=(loaded,)))
    bench.scheduler.add(bench.work("b", array(10, reads=(loaded,))))
    bench.scheduler.add(bench.work("a", array(80), *[array(80, inside=True)] * 2))
    bench.scheduler.add(loads)
    bench.scheduler.finish()
    assert bench.log in (["l0", "a0", "a1", "a2", "b0"], ["l0", "b0", "a0", "a1", "a2"])


@pytest.mark.parametrize(("weights", "log"), [(0, ["a0", "a1", "l0", "a2"]), (9, ["a0", "a1", "a2", "l0"])])
def test_weights_of_others_do_not_come_between_the_commands_of_a_tile(weights, log):
    """Those of its further commands lie on chip and could be overwritten."""
    bench, begun = Bench(), region()
    bench.scheduler.add(bench.work("a", array(80), array(80, inside=True, writes=(begun,)), array(80, inside=True)))
    bench.scheduler.add(bench.work("l", load(1, reads=(begun,), weights=weights)))
    bench.scheduler.finish()
    assert bench.log == log


@pytest.mark.parametrize("disjoint", [False, True])
def test_sums_that_lie_apart_come_between_the_commands_of_a_tile(disjoint):
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(80), *[array(80, inside=True)] * 2))
    bench.scheduler.add(bench.work("b", *[array(100, sweeps=150, results=Goes(disjoint=disjoint))] * 3))
    bench.scheduler.finish()
    assert (bench.log.index("b1") < bench.log.index("a2")) == disjoint


def test_a_tile_gives_its_results_with_its_last_command():
    bench, made = Bench(), region()
    bench.scheduler.add(bench.divided("a", [array(200, writes=(made,)), *[array(200, inside=True)] * 2]))
    bench.scheduler.add(bench.work("p", acore(10, reads=(made,))))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "a2", "p0"]


def test_what_is_inside_a_tile_may_give_results_of_its_own():
    """Of a set of tiles the first one's results are there before the last one's; the operands of all are kept until the end."""
    bench, first, second = Bench(), region(0), region(1)
    inside = array(200, inside=True, writes=(first,)), array(200, inside=True, writes=(second,))
    bench.scheduler.add(bench.work("a", array(200), *inside))
    bench.scheduler.add(bench.work("p", acore(10, reads=(first, second))))
    bench.scheduler.add(bench.work("q", acore(10, reads=(first,))))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "q0", "a2", "p0"]


@pytest.mark.parametrize("there", [False, True])
def test_places_between_commands_only_where_something_could_come(there):
    bench, loaded = Bench(), region()
    p = bench.work("p", acore(9000, writes=(loaded,)))
    bench.scheduler.add(bench.work("w", *[array(22, sweeps=36, reads=() if there else (loaded,))] * 9), line="gradients")
    found = []

    def work():
        for _ in range(3):
            yield Piece(BoundEngine.ARRAY, 200)
            found.append(bench.scheduler.wgrad_waits())

    bench.scheduler.add(work())
    bench.scheduler.add(p)
    bench.scheduler.finish()
    assert found == [there] * 3


def test_works_of_a_line_follow_each_other():
    bench = Bench()
    bench.scheduler.add(bench.work("v", *[array(10)] * 2), line="gradients")
    bench.scheduler.add(bench.work("w", *[array(10)] * 2), line="gradients")
    bench.scheduler.add(bench.work("a", *[array(10)] * 2))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "v0", "v1", "w0", "w1"]


def test_images_follow_images():
    bench = Bench()
    given = [array(100, writes=(region(n, n + 2),)) for n in (0, 2)]
    a = bench.work("a", *given)
    bench.scheduler.add(bench.work("b", *[array(100, reads=(region(*images),)) for images in ((0, 1), (1, 3))]))
    bench.scheduler.add(a)
    bench.scheduler.finish()
    assert bench.log == ["a0", "b0", "a1", "b1"]


def test_what_nobody_writes_is_not_waited_for():
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(100, reads=(region(1, 3),))))
    bench.scheduler.finish()
    assert bench.log == ["a0"]


@pytest.mark.parametrize(("gate", "log"), [(Gate(), ["a0", "a1", "p0"]), (Gate(written=(region(),)), ["p0", "a0", "a1"])])
def test_a_gate_keeps_a_task_that_could_come(gate, log):
    bench = Bench()
    made = bench.work("p", acore(3000, writes=(region(),)))
    bench.scheduler.add(bench.work("a", array(100, gate=gate), array(100)))
    bench.scheduler.add(made)
    bench.scheduler.finish()
    assert bench.log == log


def test_the_auxiliary_core_works_where_the_array_need_not_wait_for_it():
    bench = Bench()
    bench.scheduler.add(bench.work("p", *[acore(400)] * 4))
    bench.scheduler.add(bench.work("a", *[array(1000, lag=500)] * 3))
    bench.scheduler.finish()
    assert bench.log == ["p0", "a0", "p1", "p2", "a1", "p3", "a2"]


def test_fillers_take_turns_with_the_auxiliary_core():
    bench = Bench()
    bench.scheduler.add(bench.work("p", *[acore(3000)] * 3))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 4), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "p0", "w1", "p1", "w2", "p2", "w3"]


@pytest.mark.parametrize(("silent", "log"), [(False, "w0 c0 w1 c1 w2 c2 a0 w3 w4 w5"), (True, "c0 w0 w1 c1 w2 w3 w4 c2 a0 w5")])
def test_fillers_that_give_the_auxiliary_core_nothing_take_no_turns(silent, log):
    """They come until the A-Core is through with what it has."""
    bench, sums = Bench(), region()
    bench.scheduler.add(bench.work("c", *[acore(2000)] * 2, acore(2000, writes=(sums,))))
    bench.scheduler.add(bench.work("a", array(100, reads=(sums,))))
    bench.scheduler.add(bench.work("w", *[array(700, silent=silent)] * 6), line="gradients")
    bench.scheduler.finish()
    assert " ".join(bench.log) == log


def test_slow_fillers_keep_out_of_the_auxiliary_cores_way():
    """While the array waits for what it does: tiles whose 360 beats would keep it from that come later."""
    bench, made = Bench(), region()
    bench.scheduler.add(bench.work("p", acore(400), acore(400, writes=(made,))))
    bench.scheduler.add(bench.work("a", array(100, reads=(made,))))
    bench.scheduler.add(bench.work("w", *[array(22, sweeps=360)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log[:2] == ["p0", "p1"]


def test_of_two_lines_the_first_comes_first():
    bench, loaded = Bench(), region()
    loads = bench.work("l", load(3000, writes=(loaded,)))
    bench.scheduler.add(bench.work("a", array(100), array(100, reads=(loaded,))))
    bench.scheduler.add(loads)
    bench.scheduler.add(bench.work("v", *[array(1000)] * 3), line="gradients, long updates")
    bench.scheduler.add(bench.work("w", *[array(1000)] * 2), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["l0", "a0", "w0", "w1", "v0", "a1", "v1", "v2"]


def test_what_nobody_waits_for_comes_where_the_auxiliary_core_is_idle():
    """The second of the others is there after about 700 cycles and loaded after another 360."""
    bench, loaded = Bench(), region()
    late = acore(400, late=True)
    bench.scheduler.add(bench.work("u", late, late, late))
    loads = bench.work("l", load(600, writes=(loaded,)))
    bench.scheduler.add(bench.work("p", acore(300), acore(300, reads=(loaded,))))
    bench.scheduler.add(loads)
    bench.scheduler.finish()
    assert bench.log == ["l0", "p0", "u0", "p1", "u1", "u2"]


def test_what_is_late_comes_where_others_wait_for_its_room():
    bench, pool = Bench(), FreeListAllocator("PARAMETERS", 6)
    taken = pool.take(6)

    def late():
        yield Piece(BoundEngine.ACORE, 300, late=True)
        bench.log.append("u0")
        pool.give_back(taken)

    bench.scheduler.add(bench.work("w", *[array(1000)] * 3), line="gradients")
    bench.scheduler.add(late())
    bench.scheduler.add(bench.work("p", acore(2000), acore(2000)))
    bench.scheduler.add(bench.work("q", acore(300, room=((pool, 6),))))
    bench.scheduler.finish()
    assert bench.log.index("u0") < bench.log.index("q0") < bench.log.index("p1")


def test_a_waiting_array_is_served_from_the_end():
    bench = Bench()
    parts = [region(n) for n in range(3)]
    bench.scheduler.add(bench.work("p", *[acore(400, writes=(part,)) for part in parts]))
    bench.scheduler.add(bench.work("q", *[acore(400, reads=(part,)) for part in parts]))
    bench.scheduler.finish()
    assert bench.log == ["p0", "q0", "p1", "q1", "p2", "q2"]


def test_weights_on_their_way_are_waited_for_by_another_work():
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(100, weights=1800)))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "w1", "a0", "w2"]


def test_results_go_where_all_that_read_them_have_come():
    bench, reader = Bench(), Task(Piece(BoundEngine.ACORE, 1), ())
    bench.scheduler.add(bench.work("a", array(100, results=Goes(readers=(reader,)))))

    def reads():
        yield Piece(BoundEngine.ACORE, 3000)
        bench.log.append("r")
        reader.come()

    bench.scheduler.add(reads())
    bench.scheduler.finish()
    assert bench.log == ["r", "a0"]


def test_what_a_ring_still_holds_is_used_before_its_place_is_taken():
    """Of two planes that the ring holds one has not been used yet when the third one would come in its place."""
    bench, ring = Bench(), RingAllocator(20, name="AA")
    made = Collector({"AA": ring}, {}, open=True)

    def planes():
        for n in range(3):
            yield Piece(BoundEngine.ACORE, 10)
            place = made.rings["AA"].take(10)
            at = PlannedAccess("AA", ((place, place + 10),))
            made.add(Command(Opcode.LOAD, {"dest": int(Dest.AA), "n0": 10, "n1": 1, "n2": 1}, (), (at,), (), False, 0))
            made.add(Call(lambda n=n: bench.log.append(f"p{n}"), 0, (), Uses()))

    def uses():
        yield Piece(BoundEngine.ACORE, 10, late=True)
        made.add(Call(lambda: bench.log.append("u"), 0, (), Uses()))
        read = Access("AA", ((0, 10),))
        made.add(Command(Opcode.RUN, {"uprog": TABLE["BP_OUT"], "planes": 1, "nb": 10, "pool": 0}, (read,), (), (), False, 0))

    tasks = [made.tasks(work()) for work in (planes, uses)]
    bench.scheduler.add(*(emitted(each, bench) for each in tasks))
    bench.scheduler.finish()
    assert bench.log == ["p0", "p1", "u", "p2"]


def test_results_go_where_nobody_reads_any_more():
    bench = Bench()
    sums = Access("PSUM0", ((0, 1),))
    bench.recorder.emit(Opcode.LOAD, {"dest": int(Dest.AA), "n0": 2800, "n1": 1, "n2": 1}, reads=[sums])
    bench.scheduler.add(bench.work("a", array(100, results=Goes(place=sums))))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 4), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "w1", "w2", "a0", "w3"]


def test_operands_wait_for_room_on_chip():
    bench, pool = Bench(), FreeListAllocator("IBUF", 10)

    def works(count):
        made = Collector({}, {"IBUF": pool}, open=True)
        starts = []

        def loads():
            for _ in range(count):
                yield Piece(BoundEngine.LOAD, 10, room=((pool, 6),), opens="tiles")
                starts.append(made.pools["IBUF"].take(6))
                made.add(Call(lambda: bench.log.append("load"), 0, (), Uses()))

        def computes():
            for n in range(count):
                yield Piece(BoundEngine.ARRAY, 10, closes="tiles")
                made.pools["IBUF"].give_back(starts[n])
                made.add(Call(lambda: bench.log.append("compute"), 0, (), Uses()))

        tasks = [made.tasks(work()) for work in (loads, computes)]
        for each in tasks:
            bench.dependences.add(each)
        return [emitted(each, bench) for each in tasks]

    bench.scheduler.add(*works(3))
    bench.scheduler.finish()
    assert bench.log == ["load", "compute"] * 3


def test_operands_are_loaded_two_ahead():
    bench = Bench()
    parts = [region(n) for n in range(4)]
    bench.scheduler.add(
        bench.work("l", *[load(10, writes=(part,), opens="tiles") for part in parts]),
        bench.work("a", *[array(1000, reads=(part,), closes="tiles") for part in parts]),
    )
    bench.scheduler.finish()
    assert bench.log == ["l0", "l1", "l2", "a0", "l3", "a1", "a2", "a3"]


def test_works_that_wait_for_room_give_back_their_own():
    """Two hold a place each, and each wants another one."""
    bench, pool = Bench(), FreeListAllocator("PARAMETERS", 2)
    begun = {name: Task(Piece(BoundEngine.ACORE, 100), ()) for name in "ab"}
    both = Task(Piece(BoundEngine.ACORE, 100), (), after=tuple(begun.values()))

    def work(name):
        held = []

        def yields():
            bench.log.append(f"{name} yields")
            for place in held:
                pool.give_back(place)
            held.clear()

        first = Deferred(yields)
        for task in (begun[name], both):
            yield Piece(BoundEngine.ACORE, 100, room=((pool, 1),), relief=Relief((first,) if held else (), 1), task=task)
            held.append(pool.take(1))
            bench.log.append(name)
            task.come()
        yields()

    bench.scheduler.add(work("a"))
    bench.scheduler.add(work("b"))
    bench.scheduler.finish()
    assert bench.log == ["b", "a", "a yields", "b", "b yields", "a", "a yields"]


def test_works_that_wait_for_each_other():
    bench, pool = Bench(), FreeListAllocator("IBUF", 1)
    pool.take(1)
    bench.scheduler.add(bench.work("a", array(10, room=((pool, 1),))))
    with pytest.raises(RuntimeError, match="the works of a program wait for each other"):
        bench.scheduler.finish()


def test_operands_are_there_when_the_last_of_their_loads_is_done():
    """The second load of the piece is done first: it takes another channel."""
    bench, loaded = Bench(), region()

    def loads(name, piece):
        for dest, beats in ((Dest.IBUF, 3000), (Dest.EBUF, 10)):
            fields = {"dest": int(dest), "n0": beats, "n1": 1, "n2": 1}
            bench.recorder.emit(Opcode.LOAD, fields, writes=[row_access(dest.name, 0, 1)])

    bench.emit_piece, plain = loads, bench.emit_piece
    bench.scheduler.add(bench.work("l", load(3000, writes=(loaded,))))
    bench.emit_piece = plain
    bench.scheduler.add(bench.work("a", array(100, reads=(loaded,))))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log[0] == "w0" and bench.log.index("a0") > 1


def test_a_queue_of_operands_may_be_shorter_than_others():
    bench = Bench()
    pieces = [load(10, opens="few", ahead=1)] * 2
    bench.scheduler.add(bench.work("l", *pieces))
    bench.scheduler.add(bench.work("a", array(1000), array(1000, closes="few"), array(1000)))
    bench.scheduler.finish()
    assert bench.log.index("l1") > bench.log.index("a1")
