"""What the A-Core does next where its work comes in many small pieces."""

import pytest

from gradloom.host.order.acore_turns import AcoreWork, Turn, acore_turn

SWEEP, UPDATE, PASS, SCALARS = Turn.SWEEP, Turn.UPDATE, Turn.PASS, Turn.SCALARS


def chosen(*works, accepts=1000, free=1000, lanes=1000, crowded=False):
    start, number = acore_turn([AcoreWork(*work) for work in works], accepts, free, lanes, crowded=crowded)
    return works[number][0], start


def test_lanes_without_work_come_first():
    assert chosen((PASS, 0, 144), (SWEEP, 0, 144)) == (SWEEP, 1000)
    assert chosen((PASS, 0, 144), (SWEEP, 1090, 144)) == (SWEEP, 1090)
    assert chosen((PASS, 0, 144), (SWEEP, 1200, 144)) == (PASS, 1000)


def test_a_first_pass_runs_beside_what_is_swept():
    assert chosen((SWEEP, 0, 144), (PASS, 0, 144), free=1144, lanes=1144) == (PASS, 1000)
    assert chosen((SWEEP, 0, 144), (PASS, 1300, 144), free=1144, lanes=1144)[0] == SWEEP


def test_the_first_of_those_that_are_alike():
    works = [AcoreWork(SWEEP, 500, 10), AcoreWork(SWEEP, 400, 10), AcoreWork(SWEEP, 1001, 10)]
    assert acore_turn(works, 1000, 1000, 1000, crowded=False) == (1000, 0)


@pytest.mark.parametrize(
    ("cycles", "ready", "turn"), [(252, 1060, UPDATE), (252, 1000, SWEEP), (500, 1200, SWEEP), (500, 1300, UPDATE)]
)
def test_an_update_keeps_others_waiting_for_a_short_time_only(cycles, ready, turn):
    assert chosen((UPDATE, 0, cycles), (SWEEP, ready, 144))[0] == turn


def test_scalars_come_beside_long_sweeps_in_gaps_or_for_their_room():
    sweep, scalars = (SWEEP, 0, 144), (SCALARS, 0, 380)
    assert chosen(sweep, scalars, free=1400, lanes=1400)[0] == SCALARS
    assert chosen(sweep, scalars, free=1390, lanes=1390)[0] == SWEEP
    assert chosen((SWEEP, 1380, 144), scalars)[0] == SCALARS
    assert chosen(sweep, scalars, crowded=True)[0] == SCALARS


def test_what_is_left_when_nobody_waits():
    assert chosen((UPDATE, 0, 1000))[0] == UPDATE
    assert chosen((SCALARS, 0, 250))[0] == SCALARS
