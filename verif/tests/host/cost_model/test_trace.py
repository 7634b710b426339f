"""Timelines: recordings become commands' starts and ends, waits get a cause, and traces hold every command."""

import itertools
import json

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Opcode
from gradloom.host.cost_model.trace import SEQUENCER, Timeline, TraceError, chrome_trace, cut, step_programs, timelines
from gradloom.host.program.assembler import Instruction

CONFIG = PRESETS["nano"]
LOAD, CONV, RUN, STORE = (Instruction(opcode) for opcode in (Opcode.LOAD, Opcode.CONV, Opcode.RUN, Opcode.STORE))


def command(opcode: Opcode, tag: int = 8, wait: int = 0, signal: int = 0) -> Instruction:
    return Instruction(opcode, {"n0": 1, "n1": 1, "n2": 1}, tag=tag, wait=wait, signal=signal)


def timeline(*rows: tuple[Instruction, int, int], cycles: int) -> Timeline:
    program, start, done = zip(*rows, strict=True)
    return Timeline(program, CONFIG, np.array(start), np.array(done), cycles, "simulated")


CHAIN = timeline(
    (command(Opcode.LOAD, signal=1), 0, 50),
    (command(Opcode.LOAD, signal=1), 10, 90),
    (command(Opcode.CONV, wait=1, signal=2), 52, 80),
    (command(Opcode.CONV, wait=1, signal=2), 92, 120),
    (command(Opcode.RUN, wait=2, tag=16), 82, 119),
    (command(Opcode.RUN, wait=2, tag=16, signal=4), 122, 160),
    (Instruction(Opcode.BARRIER), -1, -1),
    (command(Opcode.STORE, wait=4, tag=16), 200, 230),
    cycles=230,
)


def test_recording_is_matched_in_order():
    body = (LOAD, LOAD, CONV, STORE)
    programs = step_programs((RUN, *body, Instruction(Opcode.LOOP), Instruction(Opcode.END)), {5: 1}, 2)
    assert [len(program) for program in programs] == [6, 5]
    events = {3: "a+", 5: "l+", 7: "l+", 8: "a-", 10: "l-", 12: "l- c+", 20: "c-", 21: "s+", 30: "s-",
              103: "l+", 104: "l+", 110: "l-", 112: "l- c+", 120: "c-", 121: "s+", 131: "s-"}
    bit = {letter: 2 * number for number, letter in enumerate("lcas")}
    cycles = np.array(list(events))
    bits = np.array([sum(1 << bit[e[0]] + (e[1] == "-") for e in text.split()) for text in events.values()])
    first, second = timelines(programs, CONFIG, cycles, bits)
    assert first.cycles == 27 and second.cycles == 101, "the first begins with its first command, the second where that ends"
    assert first.start.tolist() == [0, 2, 4, 9, 18, -1] and first.done.tolist() == [5, 7, 9, 17, 27, -1]
    assert second.start.tolist() == [73, 74, 82, 91, -1] and second.done.tolist() == [80, 82, 90, 101, -1]
    with pytest.raises(TraceError, match="STORE ended 1 commands, the program has 2"):
        timelines(programs, CONFIG, cycles[:-1], bits[:-1])


def test_busy_cycles_of_overlapping_commands_count_once():
    assert CHAIN.busy[:2].tolist() == [50, 40]
    assert CHAIN.busy[CHAIN.by_engine[Unit.CCORE]].tolist() == [28, 28]


def test_waits_have_a_cause():
    assert CHAIN.producers[3] == (1,) and CHAIN.producers[5] == (3,)
    assert CHAIN.gap(2) == (52, "load") and CHAIN.gap(3) == (12, "load")
    assert CHAIN.gap(5) == (3, "ccore")
    assert CHAIN.gap(7) == (200, "acore")
    assert CHAIN.gap(1) == (0, SEQUENCER), "started before the one before it ended"


def test_blame_follows_the_chain():
    assert CHAIN.blame(3) == {"load": 10, SEQUENCER: 2}
    # The A-Core's second command waited for the C-Core, which worked during all of that time but the handover.
    assert CHAIN.blame(5) == {"ccore": 1, SEQUENCER: 2}
    for place in range(len(CHAIN.program)):
        if CHAIN.start[place] >= 0:
            assert sum(CHAIN.blame(place).values()) == CHAIN.gap(place)[0]


def test_critical_path_covers_the_step():
    path = CHAIN.critical_path()
    assert sum(path.values()) == CHAIN.cycles
    assert path["store", 16] == 30 and path["acore", 16] == 38 and path["ccore", 8] == 28 and path["load", 8] == 90
    assert path[SEQUENCER, 16] == 42 and path[SEQUENCER, 8] == 2


def test_long_wait_without_a_semaphore_goes_to_what_ended_last():
    held = timeline(
        (command(Opcode.CONV), 0, 100), (Instruction(Opcode.BARRIER), -1, -1), (command(Opcode.STORE), 105, 130), cycles=130
    )
    assert held.critical_path() == {("store", 8): 25, (SEQUENCER, 8): 5, ("ccore", 8): 100}


def test_cut_keeps_every_cycle():
    programs = [(LOAD, CONV), (LOAD, CONV)]
    steps = cut(programs, CONFIG, np.array([5, 9, 40, 44]), np.array([8, 30, 43, 61]), "estimated")
    assert [step.cycles for step in steps] == [25, 31] and steps[1].start.tolist() == [10, 14]
    assert {step.kind for step in steps} == {"estimated"}


def test_chrome_trace_has_a_slice_for_every_command():
    trace = json.loads(json.dumps(chrome_trace(CHAIN, lambda c: f"tag {c.tag} {c.opcode.name}", title="chain")))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event.get("name") == "thread_name"}
    assert set(names.values()) == {"load", "ccore", "acore", "store"}
    assert len(slices) == 7 and trace["otherData"]["cycles"] == 230
    for engine in CHAIN.by_engine:
        spans = sorted((s["ts"], s["ts"] + s["dur"]) for s in slices if s["tid"] == int(engine))
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), "slices of a track do not overlap"
    run = next(s for s in slices if s["args"]["command"] == 5)
    assert run["name"] == "tag 16 RUN" and run["ts"] == 122 and run["dur"] == 38
    assert run["args"]["waited"] == 3 and run["args"]["waited for"] == "ccore"


def test_recording_without_commands():
    assert timelines([(Instruction(Opcode.END),)], CONFIG, np.zeros(0, np.int64), np.zeros(0, np.int64))[0].cycles == 0
