"""The whole machine behind RtlDevice: a program that moves bytes through PBUF, its error paths, and the next start after them."""

import random

import pytest

from gradloom.rtl.config import PRESETS
from gradloom.rtl.isa import Dest, Opcode, Source
from gradloom.rtl.regmap import ErrorCode, offset
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
    device.write(PROGRAM, program(
        CONFIG,
        command(Opcode.LOAD, signal=SEMAPHORE, dest=Dest.PBUF, offset=source, n0=BEATS, n1=1, n2=1),
        command(Opcode.STORE, wait=SEMAPHORE, src=Source.PBUF, offset=target, n0=BEATS, n1=1, n2=1),
        command(Opcode.END),
    ))
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


def test_refused_register_accesses(device):
    with pytest.raises(BusError, match=r"SLVERR$"):
        device.csr_write(offset("ID"), 1)
    with pytest.raises(BusError, match=r"SLVERR$"):
        device.csr_read(0xFFC)
