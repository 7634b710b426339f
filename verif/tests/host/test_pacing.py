"""Interleaving of independent work."""

from gradloom.host.pacing import Lane, Pacer


def piece(name, log, cycles):
    for n, count in enumerate(cycles):
        log.append(f"{name}{n}")
        yield count


def test_deferred_work_keeps_one_step_ahead():
    log, pacer = [], Pacer()
    pacer.defer(piece("w", log, [10] * 8), Lane.ARRAY)
    pacer.run(piece("a", log, [20, 20]))
    assert log == ["a0", "w0", "w1", "w2", "w3", "a1", "w4", "w5"]
    pacer.flush()
    assert log[8:] == ["w6", "w7"]
    pacer.flush()


def test_next_run_begins_with_deferred_work():
    log, pacer = [], Pacer()
    pacer.run(piece("a", log, [10]))
    pacer.defer(piece("w", log, [5] * 9), Lane.ARRAY)
    pacer.run(piece("b", log, [10, 10]))
    assert log == ["a0", "w0", "w1", "b0", "w2", "w3", "b1", "w4", "w5"]


def test_lanes_are_independent():
    log, pacer = [], Pacer()
    pacer.defer(piece("w", log, [100] * 2), Lane.ARRAY)
    pacer.defer(piece("p", log, [10] * 3), Lane.ACORE)
    pacer.run(piece("a", log, [10, 10]))
    assert log == ["a0", "w0", "p0", "p1", "a1", "p2"]


def test_what_is_needed_comes_first():
    log, pacer = [], Pacer()
    pacer.defer(piece("v", log, [5]), Lane.ACORE, "v")
    pacer.defer(piece("w", log, [5]), Lane.ACORE, "w")
    pacer.need(None, "x")
    assert log == []
    pacer.need("v")
    assert log == ["v0"]
    pacer.need("w")
    assert log == ["v0", "w0"]


def test_work_alone():
    log, pacer = [], Pacer()
    pacer.run(piece("a", log, [1, 2]))
    assert log == ["a0", "a1"]
