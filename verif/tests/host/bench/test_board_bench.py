"""What a board's start costs beside its steps."""

import pytest

from gradloom.host.bench.board_bench import report_lines, step_and_head, steps_before


@pytest.mark.parametrize(("alone", "count", "step", "head"), [(130, 2, 100, 30), (130, 7, 100, 30), (0, 1, 130, 0)])
def test_a_step_and_the_head_of_its_start(alone, count, step, head):
    """A start of 100 cycles a step and 30 beside them. A single step has no other to tell them apart by, and takes none for it."""
    assert step_and_head(alone, 30 + 100 * count, count) == (step, head)
    assert (alone > 0) == (steps_before(count) == 2)


@pytest.mark.parametrize(("count", "said"), [
    (2, "a start of 2 steps    5.8 ms in the machine, 30 cycles of them beside its steps"),
    (1, "a start of 1 step     3.2 ms in the machine, what a start has beside its steps among them"),
])
def test_what_is_said_of_a_start(count, said):
    step, head = step_and_head(130, 30 + 100 * count, count)
    start = {"steps": count, "head_cycles": head, "machine_seconds": (30 + 100 * count) / 40_000, "cable_seconds": 0.5,
             "seconds": 1.0, "bytes_sent": 5, "bytes_received": 6, "round_trips": 2}
    bench = {"kind": "on-board", "batch": 4, "clock_mhz": 0.04, "start": start, "estimated": {"cycles": 99, "error": -0.01},
             "total": {"cycles": step, "images_per_second": 1.0, "busy": {}}, "check": {"tensors": 0, "bytes": 0, "steps": 0},
             "parameters": "0" * 64, "program": "0" * 64}
    assert said in report_lines(bench)
