"""The whole machine behind RtlDevice: a program that moves bytes through PBUF, its error paths, and the next start after them."""

import random

import numpy as np
import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.isa import Dest, Opcode, Source
from gradloom.contracts.regmap import PERF_MAC_USE, ErrorCode, offset, perf_index
from gradloom.sim.rtl_device import BusError, DramModel, RtlDevice
from gradloom.verif.program_case import command, program

CONFIG = PRESETS["nano"]
PROGRAM, SOURCE, TARGET, LIMIT = 0x400, 0x2000, 0x6000, 0x10000
BEATS = 320
SEMAPHORE = 1


@pytest.fixture
def device():
    with RtlDevice(CONFIG, dram_bytes=LIMIT, dram=DramModel(stall=0.1, latency=30)) as device:
        yield device


def start(device, source=SOURCE, target=TARGET, limit=LIMIT):
    """Load BEATS beats into PBUF, store them elsewhere; returns the error code and the cycles of the run."""
    return run(device, [
        command(Opcode.LOAD, signal=SEMAPHORE, dest=Dest.PBUF, offset=source, n0=BEATS, n1=1, n2=1),
        command(Opcode.STORE, wait=SEMAPHORE, src=Source.PBUF, offset=target, n0=BEATS, n1=1, n2=1),
    ], limit)


def run(device, commands, limit=LIMIT):
    """Run these commands and END; returns the error code and the cycles of the run."""
    device.write(PROGRAM, program(CONFIG, *commands, command(Opcode.END)))
    for name, value in (("PROGRAM", PROGRAM), ("WINDOW_BASE", PROGRAM), ("WINDOW_LIMIT", limit), ("STEPS", 1),
                        ("CONTROL", 0x101)):
        device.csr_write(offset(name), value)
    cycles = device.run(200000)
    assert device.irq, "the machine did not end"
    return device.csr_read(offset("ERROR")) & 0xFF, cycles


def test_copy_through_the_parameter_buffer(device):
    data = random.Random(1).randbytes(BEATS * CONFIG.beat_bytes)
    device.write(SOURCE, data)
    accesses = device.host_accesses
    code, cycles = start(device)
    assert code == ErrorCode.NONE
    assert device.read(TARGET, len(data)) == data
    assert cycles > 2 * BEATS
    assert device.host_accesses == accesses + 6
    assert device.csr_read(offset("CONFIG")) == CONFIG.digest()


@pytest.mark.parametrize(("fault", "code"), [
    ({"source": SOURCE, "bad": (SOURCE + 100, SOURCE + 101)}, ErrorCode.READ_RESPONSE),
    ({"bad": (TARGET + 100, TARGET + 101)}, ErrorCode.WRITE_RESPONSE),
    ({"source": LIMIT - 16}, ErrorCode.READ_WINDOW),
    ({"source": 0}, ErrorCode.READ_WINDOW),
    ({"target": LIMIT - 16}, ErrorCode.WRITE_WINDOW),
    ({"target": 0xFFFFFFF0}, ErrorCode.WRITE_WINDOW),
])
def test_faults_and_the_next_start(device, fault, code):
    fault = dict(fault)
    bad = fault.pop("bad", None)
    data = random.Random(2).randbytes(BEATS * CONFIG.beat_bytes)
    device.write(SOURCE, data)
    if bad:
        device.fail(*bad)
    assert start(device, **fault)[0] == code
    device.fail_nowhere()
    assert start(device)[0] == ErrorCode.NONE
    assert device.read(TARGET, len(data)) == data


def test_commands_of_an_engine_start_and_end_in_cycles_apart(device):
    """Neither in two successive cycles (:class:`gradloom.rtl.command.CommandPort`), with commands of one beat."""
    shape = {"n0": 1, "n1": 1, "n2": 1}
    commands = [command(Opcode.LOAD, dest=dest, offset=SOURCE, xb=1, **shape) for dest in (Dest.PBUF, Dest.AA, Dest.IBUF)] * 10
    commands += [command(Opcode.STORE, src=src, offset=TARGET, **shape) for src in (Source.OA, Source.OB)] * 15
    commands += [command(Opcode.CONV, units=1, upi=1, steps=1, cols=1, nr=1, nk=1, yin=1, xe=2)] * 10
    device.set_dram(DramModel(latency=0, write_latency=0))
    device.record_events()
    assert run(device, commands)[0] == ErrorCode.NONE
    cycles, events = device.events()
    for bit in range(2 * len(units(CONFIG))):
        at = cycles[events >> bit & 1 == 1]
        assert np.all(np.diff(at) >= 2), f"engine {bit // 2}, {'ends' if bit % 2 else 'starts'}"
        assert len(at) == (0 if units(CONFIG)[bit // 2] == Unit.ACORE else sum(events >> (bit ^ 1) & 1))


def test_registers_of_absent_engines_read_0(device):
    """Also behind a run that keeps every present engine busy."""
    start(device)
    present = units(CONFIG)
    assert device.csr_read(offset("BUSY_LOAD_LOW")) and device.csr_read(offset("WAIT_STORE_LOW"))
    for unit in Unit:
        if unit == Unit.SEQ or unit in present:
            continue
        for name in (f"{kind}_{unit.name}_{half}" for kind in ("BUSY", "WAIT") for half in ("LOW", "HIGH")):
            assert device.csr_read(offset(name)) == 0, name
        device.csr_write(offset("PERF_INDEX"), perf_index(unit, 0))
        assert (device.csr_read(offset("PERF_LOW")), device.csr_read(offset("PERF_HIGH"))) == (0, 0)
    for table in (0, PERF_MAC_USE + 1, 15):
        device.csr_write(offset("PERF_INDEX"), perf_index(table, 0))
        assert device.csr_read(offset("PERF_LOW")) == 0


def test_nothing_is_asked_of_memory_outside_the_window(device):
    """Whatever the end: the fence tells a burst even where the memory would answer it."""
    device.fence(PROGRAM, 0x8000)
    for source, target in ((0, TARGET), (0x8000 - 64, TARGET), (SOURCE, 0), (SOURCE, 0x8000 - 64), (SOURCE, 0xFFFFFFF0)):
        assert start(device, source=source, target=target, limit=0x8000)[0] in (ErrorCode.READ_WINDOW, ErrorCode.WRITE_WINDOW)
    assert start(device, limit=0x8000)[0] == ErrorCode.NONE


def test_refused_register_accesses(device):
    with pytest.raises(BusError, match=r"SLVERR$"):
        device.csr_write(offset("ID"), 1)
    with pytest.raises(BusError, match=r"SLVERR$"):
        device.csr_read(0xFFC)
