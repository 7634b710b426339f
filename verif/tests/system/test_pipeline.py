"""Depths of the memory path (:mod:`gradloom.contracts.pipeline`), counted on the RTL command by command."""

from collections.abc import Iterator

import pytest

from gradloom.contracts import pipeline
from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import Dest, Opcode, Source
from gradloom.contracts.regmap import offset, register
from gradloom.host.cost_model.trace import Timeline, timelines
from gradloom.host.program.assembler import Instruction, assemble
from gradloom.sim.rtl_device import DramModel, RtlDevice

NANO = PRESETS["nano"]
LATENCY = 40
START = register("CONTROL").field("start").mask | register("CONTROL").field("irq_enable").mask
ALONE = 3
"""Cycles by which a LOAD is sooner done that has its port to itself: the contract's is one beside the program's fetch."""


def simulated(latency: int) -> Iterator[RtlDevice]:
    with RtlDevice(NANO, dram_bytes=1 << 20, dram=DramModel(latency=latency, write_latency=latency)) as device:
        device.csr_write(offset("WINDOW_LIMIT"), 1 << 20)
        yield device


@pytest.fixture(scope="module")
def machine():
    yield from simulated(LATENCY)


@pytest.fixture(scope="module")
def slow():
    yield from simulated(10 * LATENCY)


def run(machine: RtlDevice, *instructions: Instruction) -> Timeline:
    program = (*instructions, Instruction(Opcode.END))
    machine.write(0, assemble(program, NANO))
    machine.csr_write(offset("PROGRAM"), 0)
    machine.csr_write(offset("STEPS"), 1)
    machine.record_events()
    machine.csr_write(offset("CONTROL"), START)
    machine.run(100_000)
    assert machine.csr_read(offset("ERROR")) == 0
    return timelines([program], NANO, *machine.events())[0]


def walk(beats: int, runs: int) -> dict[str, int]:
    """Runs lie 16 beats apart, so that each takes a burst."""
    return {"n0": beats, "n1": runs, "n2": 1, "stride1": 16 * NANO.beat_bytes}


def load(beats: int, runs: int = 1, dest: Dest = Dest.AA) -> Instruction:
    rows = {"xe": 4, "xb": 4, "bstep": 1} if dest in (Dest.IBUF, Dest.EBUF) else {"ostep": 1} if dest == Dest.WBUF else {}
    return Instruction(Opcode.LOAD, {"dest": dest, "offset": 4096, **walk(beats, runs), **rows})


def store(beats: int, runs: int = 1, src: Source = Source.OA) -> Instruction:
    return Instruction(Opcode.STORE, {"src": src, "offset": 8192, **walk(beats, runs)})


@pytest.mark.parametrize(("beats", "runs"), [(1, 1), (8, 1), (64, 1), (200, 1), (4, 30)])
def test_a_load_alone(machine, beats, runs):
    timeline = run(machine, load(beats, runs))
    assert timeline.done[0] - timeline.start[0] == (
        pipeline.READ_LATENCY + LATENCY + beats * runs + pipeline.READ_END - ALONE)


@pytest.mark.parametrize("dest", [Dest.AB, Dest.AM, Dest.IBUF, Dest.EBUF, Dest.WBUF, Dest.PBUF, Dest.LABEL],
                         ids=lambda dest: dest.name)
def test_a_load_takes_as_long_to_every_memory(machine, dest):
    timeline = run(machine, load(8, dest=dest))
    assert timeline.done[0] - timeline.start[0] == pipeline.READ_LATENCY + LATENCY + 8 + pipeline.READ_END - ALONE


@pytest.mark.parametrize(("beats", "runs"), [(1, 1), (8, 1), (64, 1), (200, 1), (4, 30)])
def test_a_store_alone(machine, beats, runs):
    timeline = run(machine, store(beats, runs))
    assert timeline.done[0] - timeline.start[0] == pipeline.WRITE_LATENCY + beats * runs + LATENCY + pipeline.WRITE_END


@pytest.mark.parametrize("src", [Source.OB, Source.OM, Source.PBUF, Source.LOGIT], ids=lambda src: src.name)
def test_a_store_takes_as_long_from_every_memory(machine, src):
    timeline = run(machine, store(8, src=src))
    assert timeline.done[0] - timeline.start[0] == pipeline.WRITE_LATENCY + 8 + LATENCY + pipeline.WRITE_END


@pytest.mark.parametrize(("unit", "command"), [(Unit.LOAD, load(1)), (Unit.STORE, store(1))], ids=["load", "store"])
def test_as_many_are_under_way_as_may_be(slow, unit, command):
    """The first ones start as the Sequencer hands them out, the next one when there is room again."""
    most = pipeline.in_flight(unit)
    timeline = run(slow, *[command] * (most + 1))
    assert timeline.start[most - 1] < timeline.done[0]
    assert timeline.start[most] == timeline.done[0] + pipeline.QUEUE_ROOM + pipeline.QUEUE_START
