"""Softmax unit: random batches of logits and labels against the rules in integers, faults, cycles."""

import os
import random

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, Opcode
from gradloom.contracts.pipeline import softmax_cycles, squared_cycles
from gradloom.contracts.regmap import ErrorCode
from gradloom.rtl.acore.softmax import Softmax
from gradloom.verif.cocotb_run import run_cocotb

MAX_CLASSES = {1: 40, 2: 40, 8: 1024, 16: 100}
CONFIGS = {(g, bits): Config(name="t", clusters=g, wpus=1, cols=min(g, 8), dw_depth=144, max_classes=most, divider_bits=bits,
                             apu_shifters="multiplier" if bits == 2 else "lut")
           for g, most in MAX_CLASSES.items() for bits in (2, 1)}
EXP = [round(32768 * 2 ** (-i / 256)) for i in range(256)]


def encode(a: int, shift: int) -> int:
    """Code of a wide integer, nearest, F = 8."""
    g = a >> shift - 9 if shift > 9 else a << 9 - shift
    t = g >> 9
    if t >= 4096:
        return 0x3F
    if t < -4096:
        return 0x40
    s = 0 if -8 <= t <= 7 else 3 if -512 <= t <= 511 else 6
    v = min((((g >> s) + 256) >> 9) << s, 4032)
    if -8 <= v <= 7:
        return v & 127
    return 128 | (v >> 3 & 127) if -512 <= v <= 511 else v >> 6 & 127


def errors(logits: list[int], label: int, squared: bool) -> list[int]:
    if squared:
        return [encode(logit - 256 * (c == label), 0) for c, logit in enumerate(logits)]
    exponentials = []
    for logit in logits:
        t = min(max(logits) - logit, 32767) * 369 >> 8
        exponentials.append(EXP[t & 255] >> min(t >> 8, 16))
    total = sum(exponentials)
    return [encode((ex << 16) // total - 65536 * (c == label), 4) for c, ex in enumerate(exponentials)]


def command(**values: int) -> int:
    words = 0
    for field in COMMANDS[Opcode.SOFTMAX].fields:
        words |= values[field.name] << 32 * field.word + field.lsb
    return words


def batch(rng: random.Random, images: int, classes: int) -> tuple[list[list[int]], list[int]]:
    """Images of several kinds: plausible logits, ties, one winner by far, 24-bit and 32-bit extremes."""
    rows = []
    for image in range(images):
        kind = image % 5
        if kind == 0:
            row = [round(rng.gauss(0, 600)) for _ in range(classes)]
        elif kind == 1:
            row = [rng.choice((-256, 256)) for _ in range(classes)]
        elif kind == 2:
            row = [-30000] * classes
            row[rng.randrange(classes)] = 30000
        elif kind == 3:
            row = [rng.choice((-(1 << 23), (1 << 23) - 1, rng.randrange(-20, 20))) for _ in range(classes)]
        else:
            row = [rng.choice((-(1 << 31), (1 << 31) - 1, 0)) for _ in range(classes)]
        rows.append(row)
    return rows, [rng.randrange(classes) for _ in range(images)]


class Bench:
    """The memories around the unit, and one command at a time."""

    def __init__(self, dut, g: int) -> None:
        self.dut, self.g = dut, g
        self.logits: dict[int, list[int]] = {}
        self.labels: list[int] = []

    async def reset(self) -> None:
        Clock(self.dut.clk, 10, unit="ns").start()
        self.dut.rst.value = 1
        for port in (self.dut.port__start, self.dut.port__cmd, self.dut.logits__data, self.dut.labels__data):
            port.value = 0
        self.dut.logits__free.value = 1
        await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def run(self, *, limit: int, rival: random.Random | None = None, **fields: int) -> tuple[dict[int, int], int, int]:
        """Output writes, fault code and cycles of one command; a ``rival`` reads the logits now and then."""
        dut = self.dut
        dut.port__cmd.value = command(**fields)
        dut.port__start.value = 1
        writes: dict[int, int] = {}
        pipe: list[int | None] = [None]
        for cycle in range(limit):
            await FallingEdge(dut.clk)
            if int(dut.oa__we.value):
                address = int(dut.oa__addr.value)
                assert address not in writes, f"address {address} written twice"
                writes[address] = int(dut.oa__data.value)
            pipe.append(int(dut.logits__addr.value) if int(dut.reading.value) and int(dut.logits__free.value) else None)
            label = int(dut.labels__addr.value)
            done, fault = int(dut.port__done.value), int(dut.port__fault.value)
            await RisingEdge(dut.clk)
            dut.port__start.value = 0
            address = pipe.pop(0)
            entry = [0x5A5A5A5A] * self.g if address is None else self.logits[address]
            dut.logits__data.value = sum((logit & 0xFFFFFFFF) << 32 * c for c, logit in enumerate(entry))
            dut.logits__free.value = int(rival is None or rival.random() < 0.6)
            dut.labels__data.value = self.labels[label] if label < len(self.labels) else 0xFFFF
            if done:
                return writes, fault, cycle
            assert not fault, "fault without done"
        raise AssertionError(f"not done after {limit} cycles")

    def load(self, rows: list[list[int]], labels: list[int], logit0: int) -> None:
        self.logits, self.labels = {}, labels
        groups = -(-len(rows[0]) // self.g)
        for n, row in enumerate(rows):
            # Padding classes hold the largest logit: they must not count.
            padded = row + [(1 << 31) - 1] * (groups * self.g - len(row))
            for group in range(groups):
                self.logits[logit0 + n * groups + group] = padded[group * self.g:(group + 1) * self.g]


def divider_bits() -> int:
    """Of the unit that ``test_softmax`` built."""
    return int(os.environ["SOFTMAX_BITS"])


@cocotb.test()
async def batches(dut):
    g = int(os.environ["SOFTMAX_G"])
    rng = random.Random(g)
    bench = Bench(dut, g)
    await bench.reset()
    for classes in (1, 2, 3, 10, g, 17, MAX_CLASSES[g]):
        images = 10 if classes <= 40 else 2
        for squared in (0, 1):
            rows, labels = batch(rng, images, classes)
            logit0, oa0 = rng.randrange(1000), rng.randrange(1000)
            bench.load(rows, labels, logit0)
            writes, fault, cycles = await bench.run(
                limit=images * (22 * classes + 50), images=images, classes=classes, squared=squared, logit0=logit0,
                oa0=oa0)
            groups = -(-classes // g)
            expected = {}
            for n, (row, label) in enumerate(zip(rows, labels, strict=True)):
                codes = errors(row, label, bool(squared)) + [0] * (groups * g - classes)
                for group in range(groups):
                    beat = bytes(codes[group * g:(group + 1) * g])
                    expected[oa0 + n * groups + group] = int.from_bytes(beat, "little")
            assert not fault
            assert writes == expected, f"{classes} classes, squared {squared}"
            a_class, an_image = (squared_cycles if squared else softmax_cycles)(CONFIGS[g, divider_bits()])
            assert cycles == 1 + images * (a_class * classes + an_image), f"{classes} classes"
            again, fault, _ = await bench.run(limit=images * (26 * classes + 90), rival=rng, images=images, classes=classes,
                                              squared=squared, logit0=logit0, oa0=oa0)
            assert not fault
            assert again == expected, f"{classes} classes, squared {squared}, beside a Storer"


@cocotb.test()
async def as_many_classes_as_there_may_be(dut):
    """Equal logits make the largest sum of exponentials; a single winner, the smallest one. The label is the first, the last or any
    class between; addresses reach the end of their 16 bits."""
    g = int(os.environ["SOFTMAX_G"])
    rng = random.Random(g + 1)
    bench = Bench(dut, g)
    await bench.reset()
    classes = MAX_CLASSES[g]
    for level in (0, -(1 << 31), (1 << 31) - 1, 5):
        rows = [[level] * classes for _ in range(3)]
        # Distances of the limit of 15 bits, one below and one beyond.
        rows.append([level - distance if level > 0 else level for distance in [0, 32766, 32767, 32768] + [1 << 24] * (classes - 4)])
        labels = [0, classes - 1, rng.randrange(classes), 0]
        groups = -(-classes // g)
        logit0, oa0 = 65536 - len(rows) * groups, 65536 - len(rows) * groups
        bench.load(rows, labels, logit0)
        writes, fault, _ = await bench.run(limit=22 * len(rows) * (classes + 50), images=len(rows), classes=classes, squared=0,
                                           logit0=logit0, oa0=oa0)
        assert not fault
        for n, (row, label) in enumerate(zip(rows, labels, strict=True)):
            codes = errors(row, label, False) + [0] * (groups * g - classes)
            for group in range(groups):
                beat = bytes(codes[group * g:(group + 1) * g])
                assert writes[oa0 + n * groups + group] == int.from_bytes(beat, "little"), (level, n)


@cocotb.test()
async def exact_quotients(dut):
    """Distances whose p is 192, 8 and 320: exact divisions by every digit, at ties of the encoder."""
    g = int(os.environ["SOFTMAX_G"])
    bench = Bench(dut, g)
    await bench.reset()
    rows = [[-d for d in distances] for distances in (
        (0, 1485, 915, 2384), (0, 2206, 356, 1910), (0, 1355, 934, 2310))]
    bench.load(rows, [0, 2, 0], 0)
    writes, fault, _ = await bench.run(limit=1000, images=3, classes=4, squared=0, logit0=0, oa0=0)
    packed = b"".join(writes[address].to_bytes(2 * g, "little")[:g] for address in sorted(writes))
    stride = -(-4 // g) * g
    assert not fault
    assert [packed[stride * n + 1] for n in range(3)] == [0x80 | 2, 1, 0x80 | 3]
    for n, (row, label) in enumerate(zip(rows, [0, 2, 0], strict=True)):
        assert list(packed[stride * n:stride * n + 4]) == errors(row, label, False)


@cocotb.test()
async def faults(dut):
    g = int(os.environ["SOFTMAX_G"])
    rng = random.Random(g)
    bench = Bench(dut, g)
    await bench.reset()
    rows, labels = batch(rng, 3, 5)
    common = {"limit": 1000, "squared": 0, "logit0": 0, "oa0": 0}
    for bad, fault in ((5, ErrorCode.LABEL_RANGE), (0xFFFF, ErrorCode.LABEL_RANGE), (4, 0)):
        bench.load(rows, [labels[0], bad, labels[2]], 0)
        writes, got, _ = await bench.run(images=3, classes=5, **common)
        assert got == fault
        assert len(writes) == (1 if fault else 3) * -(-5 // g)
    for classes in (0, MAX_CLASSES[g] + 1):
        writes, got, _ = await bench.run(images=3, classes=classes, **common)
        assert got == ErrorCode.ILLEGAL_FIELD and not writes
    writes, got, _ = await bench.run(images=0, classes=5, **common)
    assert not got and not writes


@pytest.mark.parametrize(("g", "bits"), [
    pytest.param(g, bits, marks=[pytest.mark.long("the same with another number of channels or classes")]
                 if g in (2, 16) or (bits == 1 and g != 1) else []) for g, bits in CONFIGS])
def test_softmax(g, bits, tmp_path):
    environment = {"SOFTMAX_G": str(g), "SOFTMAX_BITS": str(bits)}
    assert run_cocotb(lambda: Softmax(CONFIGS[g, bits]), __file__, tmp_path, env=environment) == 4
