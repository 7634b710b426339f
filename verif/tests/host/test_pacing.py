"""Interleaving of independent work."""

from gradloom.host.pacing import Pacer


def piece(name, log, cycles):
    for n, count in enumerate(cycles):
        log.append(f"{name}{n}")
        yield count


def test_deferred_work_keeps_pace():
    log, pacer = [], Pacer()
    pacer.defer(piece("w", log, [10] * 6))
    pacer.run(piece("a", log, [20, 20]))
    assert log == ["a0", "w0", "w1", "a1", "w2", "w3"]
    pacer.flush()
    assert log[6:] == ["w4", "w5"]
    pacer.flush()


def test_second_run_goes_on_where_the_first_left_off():
    log, pacer = [], Pacer()
    pacer.defer(piece("w", log, [25] * 4))
    pacer.run(piece("a", log, [10]))
    pacer.run(piece("b", log, [10, 10, 10]))
    assert log == ["a0", "w0", "b0", "w1", "b1", "b2", "w2"]


def test_several_deferred_pieces_stay_in_order():
    log, pacer = [], Pacer()
    pacer.defer(piece("v", log, [5]))
    pacer.defer(piece("w", log, [5]))
    pacer.flush()
    assert log == ["v0", "w0"]


def test_work_alone():
    log, pacer = [], Pacer()
    pacer.run(piece("a", log, [1, 2]))
    assert log == ["a0", "a1"]
