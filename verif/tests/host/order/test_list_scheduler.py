"""Interleaving of independent work: what may come, and what comes first."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Dest, Opcode
from gradloom.contracts.microprograms import TABLE
from gradloom.host.order.accesses import Access, row_access
from gradloom.host.order.allocators import FreeListAllocator
from gradloom.host.order.list_scheduler import ListScheduler
from gradloom.host.order.pieces import BoundEngine, DataRegion, Piece
from gradloom.host.order.synchronize import Recorder

CONFIG = PRESETS["eta"]


class Bench:
    """Works that emit CONV commands of 100 units, LOADs of some beats or RUNs, and a log of their order."""

    def __init__(self):
        self.log, self.recorder = [], Recorder(CONFIG)
        self.scheduler = ListScheduler(self.recorder, {"IBUF": Unit.LOAD, "EBUF": Unit.LOAD1, "WBUF": Unit.LOAD1})

    def work(self, name, *pieces):
        for n, piece in enumerate(pieces):
            yield piece
            self.log.append(f"{name}{n}")
            if piece.lane == BoundEngine.LOAD:
                fields = {"dest": int(Dest.IBUF), "n0": piece.cycles, "n1": 1, "n2": 1}
                self.recorder.emit(Opcode.LOAD, fields, writes=[row_access("IBUF", 0, 1)])
            elif piece.lane == BoundEngine.ARRAY:
                fields = {"units": 3 * piece.cycles, "cols": 1, "steps": 1, "preload": 0, "wg": 0}
                self.recorder.emit(Opcode.CONV, fields)
            else:
                self.recorder.emit(Opcode.RUN, {"uprog": TABLE["BP_OUT"], "planes": 1, "nb": piece.cycles, "pool": 0})


def array(cycles, **fields):
    return Piece(BoundEngine.ARRAY, cycles, **fields)


def test_in_order_if_the_array_never_waits():
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(100), array(100)))
    bench.scheduler.add(bench.work("b", array(100)))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "b0"]


def test_a_line_fills_the_time_that_others_wait():
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    bench.scheduler.add(bench.work("a", array(100), array(100, needs=(loaded,))))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 3000, gives=(loaded,))))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 6), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["l0", "a0", "w0", "w1", "w2", "a1", "w3", "w4", "w5"]


@pytest.mark.parametrize("idle", [False, True])
def test_gradients_that_end_in_time_come_where_a_set_waits(idle):
    """Its next chunk waits 3,000 cycles: two tiles of gradients of 1,000 have time, a third one has not."""
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    bench.scheduler.add(bench.work("a", array(100), array(100, needs=(loaded,), inside=True, idle=idle)))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 3000, gives=(loaded,))))
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
        yield array(22, sweeps=36, passes=True)
        bench.log.append("v0")
        bench.recorder.emit(Opcode.CONV, {"units": 3, "cols": 22, "steps": 1, "preload": 0, "wg": 0}, writes=[space])
        yield array(22, sweeps=36, passes=True)
        bench.log.append("v1")
        bench.recorder.emit(Opcode.RUN, {"uprog": TABLE["WU"], "planes": 1, "nb": 36, "pool": 0}, reads=[space])

    bench.scheduler.add(bench.work("a", array(80), array(80, inside=True)))
    bench.scheduler.add(bench.work("w", array(1000, takes=lambda: (free, space))), line="gradients")
    bench.scheduler.add(later(), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["a0", "v0", "a1", "v1", "w0"]


def test_the_a_core_takes_what_is_loaded_before_what_is_in_memory():
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    bench.scheduler.add(bench.work("q", Piece(BoundEngine.ACORE, 300)))
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 1000, needs=(loaded,))))
    bench.scheduler.add(bench.work("r", Piece(BoundEngine.ACORE, 600)))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 500, gives=(loaded,))))
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
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    bench.scheduler.add(bench.work("b", array(10, needs=(loaded,))))
    bench.scheduler.add(bench.work("a", array(80), *[array(80, inside=True)] * 2))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 1, gives=(loaded,))))
    bench.scheduler.finish()
    assert bench.log == ["l0", "a0", "a1", "a2", "b0"]


@pytest.mark.parametrize(("weights", "log"), [(0, ["a0", "a1", "l0", "a2"]), (9, ["a0", "a1", "a2", "l0"])])
def test_weights_of_others_do_not_come_between_the_commands_of_a_tile(weights, log):
    """Those of its further commands lie on chip and could be overwritten."""
    bench, begun = Bench(), DataRegion("begun", (0, 1))
    bench.scheduler.add(bench.work("a", array(80), array(80, inside=True, gives=(begun,)), array(80, inside=True)))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 1, (begun,), weights=weights)))
    bench.scheduler.finish()
    assert bench.log == log


@pytest.mark.parametrize("apart", [False, True])
def test_sums_that_lie_apart_come_between_the_commands_of_a_tile(apart):
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(80), *[array(80, inside=True)] * 2))
    bench.scheduler.add(bench.work("b", *[array(100, sweeps=150, apart=lambda: apart)] * 3))
    bench.scheduler.finish()
    assert (bench.log.index("b1") < bench.log.index("a2")) == apart


def test_a_tile_gives_its_results_with_its_last_command():
    bench, made = Bench(), DataRegion("made", (0, 1))
    bench.scheduler.add(bench.work("a", array(200, gives=(made,)), *[array(200, inside=True)] * 2))
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 10, needs=(made,))))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "a2", "p0"]


def test_what_is_inside_a_tile_may_give_results_of_its_own():
    """Of a set of tiles the first one's results are there before the last one's; the operands of all are kept until the end."""
    bench, whole, first = Bench(), DataRegion("whole", (0, 1)), DataRegion("first", (0, 1))
    inside = array(200, inside=True, gives=(first,)), array(200, inside=True)
    bench.scheduler.add(bench.work("a", array(200, gives=(whole,)), *inside))
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 10, needs=(whole,))))
    bench.scheduler.add(bench.work("q", Piece(BoundEngine.ACORE, 10, needs=(first,))))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "q0", "a2", "p0"]


@pytest.mark.parametrize("there", [False, True])
def test_places_between_commands_only_where_something_could_come(there):
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    bench.scheduler.add(bench.work("w", *[array(22, sweeps=36, needs=(loaded,))] * 9), line="gradients")
    found = []

    def work():
        for _ in range(3):
            yield array(200)
            found.append(bench.scheduler.sweeps_wait())

    bench.scheduler.add(work())
    if there:
        bench.scheduler.give(loaded)
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 9000, gives=(loaded,))))
    bench.scheduler.finish()
    assert found == [there] * 3


def test_brief_pieces_come_first():
    bench = Bench()
    bench.scheduler.add(bench.work("a", *[array(1000)] * 2))
    bench.scheduler.add(bench.work("b", *[array(10)] * 2))
    bench.scheduler.finish()
    assert bench.log == ["b0", "b1", "a0", "a1"]


def test_works_of_a_line_follow_each_other():
    bench = Bench()
    bench.scheduler.add(bench.work("v", *[array(10)] * 2), line="gradients")
    bench.scheduler.add(bench.work("w", *[array(10)] * 2), line="gradients")
    bench.scheduler.add(bench.work("a", *[array(10)] * 2))
    bench.scheduler.finish()
    assert bench.log == ["a0", "a1", "v0", "v1", "w0", "w1"]


def test_images_follow_images():
    bench = Bench()
    given = [array(100, gives=(DataRegion("z", (n, n + 2)),)) for n in (0, 2)]
    bench.scheduler.add(bench.work("b", *[array(100, needs=(DataRegion("z", images),)) for images in ((0, 1), (1, 3))]))
    bench.scheduler.add(bench.work("a", *given))
    bench.scheduler.finish()
    assert bench.log == ["a0", "b0", "a1", "b1"]


def test_what_is_there_already_is_not_waited_for():
    bench = Bench()
    bench.scheduler.give(DataRegion("input", (0, 4)))
    bench.scheduler.add(bench.work("a", array(100, needs=(DataRegion("input", (1, 3)),))))
    bench.scheduler.finish()
    assert bench.log == ["a0"]


def test_the_auxiliary_core_works_where_the_array_need_not_wait_for_it():
    bench = Bench()
    bench.scheduler.add(bench.work("p", *[Piece(BoundEngine.ACORE, 400)] * 4))
    bench.scheduler.add(bench.work("a", *[array(1000, lag=500)] * 3))
    bench.scheduler.finish()
    assert bench.log == ["p0", "a0", "p1", "p2", "a1", "p3", "a2"]


def test_fillers_take_turns_with_the_auxiliary_core():
    bench = Bench()
    bench.scheduler.add(bench.work("p", *[Piece(BoundEngine.ACORE, 3000)] * 3))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 4), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "p0", "w1", "p1", "w2", "p2", "w3"]


@pytest.mark.parametrize(("silent", "log"), [(False, "w0 c0 w1 c1 w2 c2 a0 w3 w4 w5"), (True, "c0 w0 w1 c1 w2 w3 w4 c2 a0 w5")])
def test_fillers_that_give_the_auxiliary_core_nothing_take_no_turns(silent, log):
    """They come until the A-Core is through with what it has."""
    bench, sums = Bench(), DataRegion("sums", (0, 1))
    bench.scheduler.add(bench.work("c", *[Piece(BoundEngine.ACORE, 2000)] * 2, Piece(BoundEngine.ACORE, 2000, gives=(sums,))))
    bench.scheduler.add(bench.work("a", array(100, needs=(sums,))))
    bench.scheduler.add(bench.work("w", *[array(700, silent=silent)] * 6), line="gradients")
    bench.scheduler.finish()
    assert " ".join(bench.log) == log


def test_slow_fillers_keep_out_of_the_auxiliary_cores_way():
    """The array waits for what it does: tiles whose 360 beats would keep it from that come later."""
    bench, made = Bench(), DataRegion("made", (0, 1))
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 400), Piece(BoundEngine.ACORE, 400, gives=(made,))))
    bench.scheduler.add(bench.work("a", array(100, needs=(made,))))
    bench.scheduler.add(bench.work("w", *[array(22, sweeps=360)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["p0", "p1", "a0", "w0", "w1", "w2"]


def test_of_two_lines_the_first_comes_first():
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    bench.scheduler.add(bench.work("a", array(100), array(100, needs=(loaded,))))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 3000, gives=(loaded,))))
    bench.scheduler.add(bench.work("v", *[array(1000)] * 3), line="gradients, long updates")
    bench.scheduler.add(bench.work("w", *[array(1000)] * 2), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["l0", "a0", "w0", "w1", "v0", "a1", "v1", "v2"]


def test_what_nobody_waits_for_comes_where_the_auxiliary_core_is_idle():
    """The second of the others is there after about 700 cycles and loaded after another 360."""
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))
    late = Piece(BoundEngine.ACORE, 400, late=True)
    bench.scheduler.add(bench.work("u", late, late, late))
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 300), Piece(BoundEngine.ACORE, 300, needs=(loaded,))))
    bench.scheduler.add(bench.work("l", Piece(BoundEngine.LOAD, 600, gives=(loaded,))))
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
    bench.scheduler.add(bench.work("p", Piece(BoundEngine.ACORE, 2000), Piece(BoundEngine.ACORE, 2000)))
    bench.scheduler.add(bench.work("q", Piece(BoundEngine.ACORE, 300, room=((pool, 6),))))
    bench.scheduler.finish()
    assert bench.log.index("u0") < bench.log.index("q0") < bench.log.index("p1")


def test_a_starved_array_is_served_from_the_end():
    bench = Bench()
    parts = [DataRegion("x", (n, n + 1)) for n in range(3)]
    bench.scheduler.add(bench.work("p", *[Piece(BoundEngine.ACORE, 400, gives=(part,)) for part in parts]))
    bench.scheduler.add(bench.work("q", *[Piece(BoundEngine.ACORE, 400, needs=(part,)) for part in parts]))
    bench.scheduler.finish()
    assert bench.log == ["p0", "q0", "p1", "q1", "p2", "q2"]


def test_weights_on_their_way_are_waited_for_by_another_work():
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(100, weights=2000)))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "w1", "a0", "w2"]


def test_results_go_where_nobody_reads_any_more():
    bench = Bench()
    sums = Access("PSUM0", ((0, 1),))
    bench.recorder.emit(Opcode.LOAD, {"dest": int(Dest.AA), "n0": 3000, "n1": 1, "n2": 1}, reads=[sums])
    bench.scheduler.add(bench.work("a", array(100, target=lambda: sums)))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 4), line="gradients")
    bench.scheduler.finish()
    assert bench.log == ["w0", "w1", "w2", "a0", "w3"]


def test_operands_wait_for_room_on_chip():
    bench, pool = Bench(), FreeListAllocator("IBUF", 10)

    def works(count):
        done = [DataRegion("loaded", (n, n + 1)) for n in range(count)]
        starts = []

        def loads():
            for part in done:
                yield Piece(BoundEngine.LOAD, 10, gives=(part,), room=((pool, 6),), opens="tiles")
                starts.append(pool.take(6))
                bench.log.append("load")

        def computes():
            for n, part in enumerate(done):
                yield array(10, needs=(part,), closes="tiles")
                pool.give_back(starts[n])
                bench.log.append("compute")

        return loads(), computes()

    bench.scheduler.add(*works(3))
    bench.scheduler.finish()
    assert bench.log == ["load", "compute"] * 3


def test_operands_are_loaded_two_ahead():
    bench = Bench()
    parts = [DataRegion("loaded", (n, n + 1)) for n in range(4)]
    bench.scheduler.add(
        bench.work("l", *[Piece(BoundEngine.LOAD, 10, gives=(part,), opens="tiles") for part in parts]),
        bench.work("a", *[array(1000, needs=(part,), closes="tiles") for part in parts]),
    )
    bench.scheduler.finish()
    assert bench.log == ["l0", "l1", "l2", "a0", "l3", "a1", "a2", "a3"]


def test_works_that_wait_for_room_give_back_their_own():
    """Two hold a place each, and each wants another one."""
    bench, pool = Bench(), FreeListAllocator("PARAMETERS", 2)
    begun = {name: DataRegion(name, (0, 1)) for name in "ab"}

    def work(name):
        held = []

        def yields():
            bench.log.append(f"{name} yields")
            places, held[:] = tuple(held), []
            for place in places:
                pool.give_back(place)
            return bool(places)

        for needs, gives in (((), (begun[name],)), (tuple(begun.values()), ())):
            yield Piece(BoundEngine.ACORE, 100, needs, gives, room=((pool, 1),), yields=yields)
            held.append(pool.take(1))
            bench.log.append(name)
        yields()

    bench.scheduler.add(work("a"))
    bench.scheduler.add(work("b"))
    bench.scheduler.finish()
    assert bench.log == ["b", "a", "a yields", "b", "b yields", "a", "a yields"]


def test_works_that_wait_for_each_other():
    bench = Bench()
    bench.scheduler.add(bench.work("a", array(10, needs=(DataRegion("b", (0, 1)),), gives=(DataRegion("a", (0, 1)),))))
    with pytest.raises(RuntimeError, match="the works of a program wait for each other"):
        bench.scheduler.finish()


def test_operands_are_there_when_the_last_of_their_loads_is_done():
    """The second load of the piece is done first: it takes another channel."""
    bench, loaded = Bench(), DataRegion("loaded", (0, 1))

    def loads():
        yield Piece(BoundEngine.LOAD, 3000, gives=(loaded,))
        for dest, beats in ((Dest.IBUF, 3000), (Dest.EBUF, 10)):
            fields = {"dest": int(dest), "n0": beats, "n1": 1, "n2": 1}
            bench.recorder.emit(Opcode.LOAD, fields, writes=[row_access(dest.name, 0, 1)])

    bench.scheduler.add(loads())
    bench.scheduler.add(bench.work("a", array(100, needs=(loaded,))))
    bench.scheduler.add(bench.work("w", *[array(1000)] * 3), line="gradients")
    bench.scheduler.finish()
    assert bench.log[0] == "w0" and bench.log.index("a0") > 1


def test_a_queue_of_operands_may_be_shorter_than_others():
    bench = Bench()
    pieces = [Piece(BoundEngine.LOAD, 10, opens="few", ahead=1), Piece(BoundEngine.LOAD, 10, opens="few", ahead=1)]
    bench.scheduler.add(bench.work("l", *pieces))
    bench.scheduler.add(bench.work("a", array(1000), array(1000, closes="few"), array(1000)))
    bench.scheduler.finish()
    assert bench.log.index("l1") > bench.log.index("a1")
