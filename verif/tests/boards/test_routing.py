"""When a router is given up: only where it moves away from an end."""

import pytest

from gradloom.boards.routing import Diverges

# Of nextpnr: wires that several nets want, by iteration. Two of the seeds of one design.
ENDS = dict(enumerate((
    43741, 25634, 16048, 10091, 6604, 4707, 3445, 2534, 1920, 1439, 1084, 789, 637, 457, 410, 283, 232, 197, 160, 137,
    115, 90, 74, 66, 72, 56, 44, 40, 31, 29, 27, 23, 25, 18, 19, 16, 12, 11, 10, 7, 6, 9, 5, 5, 5, 4, 4, 4, 3, 3, 3, 3,
    3, 4, 3, 4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 0), 1))
GROWS = {1: 44807, 2: 26074, 3: 16185, 4: 10440, 5: 7228, 6: 5111, 7: 3866, 9: 2234, 11: 1474, 14: 854, 18: 479, 24:
         382, 30: 251, 37: 221, 44: 166, 49: 197, 54: 326, 57: 330, 60: 484, 62: 630, 64: 761, 66: 959, 67: 1176, 68:
         1285}


def given_up(counts):
    """The iteration."""
    diverges = Diverges()
    return next((n for n, count in counts.items()
                 if diverges(f"Info:     iter={n} wires=727057 overused={count} overuse={count} archfail=NA\n")), None)


def test_one_that_ends_is_left_alone():
    assert given_up(ENDS) is None


def test_one_that_moves_away_from_an_end_is_given_up():
    assert given_up(GROWS) == 64


@pytest.mark.parametrize("counts", [
    [100, *[1] * 60, 0], [100, 1, *[4] * 60, 0], [*range(2000, 100, -1)], [10, *[900] * 18, 9, *[36] * 40]])
def test_plateaus_and_short_rises_are_none(counts):
    assert given_up(dict(enumerate(counts, 1))) is None


def test_other_lines_say_nothing():
    diverges = Diverges()
    assert not any(diverges(line) for line in ("Info: Routing..", "iter=1", "Info: Max frequency for clock: 50.89 MHz") * 40)
