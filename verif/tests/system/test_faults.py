"""Nothing fails silently.

Bus errors, windows, broken and random programs, abort and watchdog end with their documented code, write nothing outside the
window, never hang, and the next start on the same machine gives the bytes of the golden model.
"""

import random
import struct

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import Unit
from gradloom.contracts.isa import COMMANDS, PROGRAM_MAGIC, PROGRAM_VERSION, Opcode, pairs
from gradloom.contracts.regmap import ERROR_DOCS, ErrorCode, offset, register
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.program.assembler import HEADER_BYTES, Instruction, assemble, offsets
from gradloom.sim.rtl_device import BusError, DramModel, RtlDevice
from gradloom.verif.fuzzing.programs import random_command
from gradloom.verif.system_bench import make_case, open_runner, verify_step

SPARE = 1 << 16
"""Bytes behind the window: a burst there is answered with DECERR, and the device's fence tells it."""
GUARD = bytes(range(256)) * (SPARE // 256)
MOST_CYCLES = 3_000_000
NAME = "tiny-branches"


class Bench:
    """A machine with a calibrated network in its memory, ready to run the second step."""

    def __init__(self, config: str = "small", dram: DramModel | None = None) -> None:
        self.case = make_case(NAME, 2, 2)
        self.runner: ProgramRunner = open_runner(self.case, config, slots=1, spare=SPARE, dram=dram)
        self.device: RtlDevice = self.runner.device
        self.plan = self.runner.steady
        self.limit = self.runner._limit
        self.device.write(self.limit, GUARD)
        self.image = self.plan.program(1)
        self.check_healthy()

    def prepare(self) -> None:
        """State, batch and program of step 1, with the registers as a healthy start leaves them."""
        self.fail_inside()
        self.plan.write_state(self.device, self.case.initial())
        self.plan.write_batch(self.device, 0, self.case.images[1], self.case.labels[1])
        self.plan.write_hyper(self.device, self.case.hypers[1:])
        self.plan.write_program(self.device, 1)
        for name, value in (
            ("PROGRAM", self.plan.program_address),
            ("STEPS", 1),
            ("STEP", 1),
            ("SEED", 3),
            ("WINDOW_BASE", 0),
            ("WINDOW_LIMIT", self.limit),
            ("WATCHDOG", 1 << 16),
        ):
            self.device.csr_write(offset(name), value)

    def fail_inside(self, *ranges: tuple[int, int], decode_error: bool = False) -> None:
        """Let these ranges answer with errors, and all that lies behind the window, whose use is a violation, too."""
        self.device.fail_nowhere()
        self.device.fail(self.limit, self.limit + SPARE, decode_error=True)
        self.device.fence(0, self.limit)
        for first, limit in ranges:
            self.device.fail(first, limit, decode_error=decode_error)

    def status(self, name: str) -> int:
        return int(bool(self.device.csr_read(offset("STATUS")) & register("STATUS").field(name).mask))

    def start(self) -> None:
        control = register("CONTROL")
        self.device.csr_write(
            offset("CONTROL"), control.field("start").mask | control.field("irq_enable").mask
        )

    def abort(self) -> None:
        control = register("CONTROL")
        self.device.csr_write(
            offset("CONTROL"), control.field("abort").mask | control.field("irq_enable").mask
        )

    def end(self, most: int = MOST_CYCLES) -> int:
        """Run to the end. Returns the error code; 0 is a good end."""
        self.device.run(most)
        assert self.device.irq, (
            f"no end within {most} cycles, the Sequencer is at byte {self.device.csr_read(offset('OFFSET'))}"
        )
        assert self.status("idle") and not self.status("running")
        code = self.device.csr_read(offset("ERROR")) & 0xFF
        assert self.status("error") == (code != 0) and self.status("done") == (code == 0)
        ErrorCode(code)
        return code

    def engine(self) -> int:
        field = register("ERROR").field("engine")
        return (self.device.csr_read(offset("ERROR")) & field.mask) >> field.lsb

    def check_guard(self) -> None:
        assert self.device.read(self.limit, SPARE) == GUARD, "the machine wrote behind its window"

    def check_healthy(self) -> None:
        """A whole run of two steps, every byte compared, on the machine as the fault left it."""
        self.prepare()
        state = self.case.initial()
        self.runner.load(state)
        for step in range(2):
            verify_step(self.case, self.runner, state, step)
        self.check_guard()


@pytest.fixture(scope="module")
def bench():
    found = Bench()
    yield found
    found.runner.close()


def region(bench: Bench, layer: str, name: str) -> tuple[int, int]:
    found = bench.plan.memory[layer, name]
    return found.address, found.address + found.data_bytes()


BUS = {
    "program header": (("program", 0, 16), ErrorCode.READ_RESPONSE, Unit.SEQ),
    "program body": (("program", 2048, 2052), ErrorCode.READ_RESPONSE, Unit.SEQ),
    "hyperparameters": (("", "hyper"), ErrorCode.READ_RESPONSE, Unit.SEQ),
    "input": (("input", "z"), ErrorCode.READ_RESPONSE, Unit.LOAD1),
    "labels": (("input", "labels"), ErrorCode.READ_RESPONSE, Unit.LOAD1),
    "weights": (("merge", "w"), ErrorCode.READ_RESPONSE, Unit.LOAD),
    "parameters": (("left", "parameters"), ErrorCode.READ_RESPONSE, Unit.LOAD1),
    "velocities": (("logits", "v"), ErrorCode.READ_RESPONSE, Unit.LOAD1),
    "features": (("left", "z"), ErrorCode.WRITE_RESPONSE, Unit.STORE),
    "bitmap": (("merge", "bit"), ErrorCode.WRITE_RESPONSE, Unit.STORE),
    "logits": (("logits", "logits"), ErrorCode.WRITE_RESPONSE, Unit.STORE),
    "weight gradients": (("logits", "dw"), ErrorCode.WRITE_RESPONSE, Unit.STORE),
    "reciprocals": (("right", "reciprocals"), ErrorCode.WRITE_RESPONSE, Unit.STORE),
}


@pytest.mark.parametrize("decode_error", [False, True], ids=["SLVERR", "DECERR"])
@pytest.mark.parametrize("place", list(BUS))
def test_bus_error(bench, place, decode_error):
    key, code, engine = BUS[place]
    bench.prepare()
    if key[0] == "program":
        first, last = (bench.plan.program_address + place for place in key[1:])
    else:
        first, last = region(bench, *key)
    bench.fail_inside((first, last), decode_error=decode_error)
    bench.start()
    assert bench.end() == code
    assert bench.engine() == engine
    bench.fail_inside()
    if not decode_error:
        bench.check_healthy()


def test_bus_errors_under_stalls_and_again():
    """Errors while many bursts are under way, with random timing, one after the other on the same machine."""
    found = Bench(dram=DramModel(latency=60, stall=0.4, seed=5))
    for place in ("features", "weights", "labels", "weight gradients", "program body"):
        key, code, _ = BUS[place]
        found.prepare()
        first, last = (found.plan.program_address + 2048,) * 2 if key[0] == "program" else region(found, *key)
        found.fail_inside((first, max(last, first + 4)))
        found.start()
        assert found.end() == code
    found.fail_inside()
    found.check_healthy()
    found.runner.close()


def test_window_violations(bench):
    """A window that begins inside a region stops the transfer that would leave it, in either direction; nothing outside changes."""
    codes = set()
    for found in bench.plan.memory.regions.values():
        base = (found.address + found.data_bytes() // 2) // 64 * 64
        if base == 0:
            continue
        bench.prepare()
        bench.device.csr_write(offset("WINDOW_BASE"), base)
        bench.device.fence(base, bench.limit)
        before = bench.device.read(0, base)
        bench.start()
        code = bench.end()
        codes.add(code)
        assert code in (ErrorCode.READ_WINDOW, ErrorCode.WRITE_WINDOW)
        assert bench.device.read(0, base) == before
    assert ErrorCode.READ_WINDOW in codes
    bench.check_healthy()


def test_write_outside_the_window(bench):
    """Every STORE of the program in turn is sent behind the window: it is not issued, whatever it is."""
    instructions = list(bench.plan.instructions)
    stores = [n for n, instruction in enumerate(instructions) if instruction.opcode == Opcode.STORE]
    for number in stores[:: max(1, len(stores) // 12)]:
        changed = list(instructions)
        fields = dict(changed[number].fields) | {"offset": bench.limit + 4096}
        changed[number] = Instruction(
            Opcode.STORE, fields, (), changed[number].tag, changed[number].wait, changed[number].signal
        )
        bench.prepare()
        bench.device.write(
            bench.plan.program_address, assemble(changed, PRESETS["small"], labels=bench.plan.labels)
        )
        bench.start()
        assert bench.end() == ErrorCode.WRITE_WINDOW
        assert bench.engine() == Unit.STORE
        assert bench.device.csr_read(offset("ERROR_OFFSET")) == offsets(changed)[number]
        bench.check_guard()
    bench.check_healthy()


def put(bench: Bench, image: bytes) -> None:
    bench.prepare()
    room = bench.limit - bench.plan.program_address
    bench.device.write(bench.plan.program_address, image[:room])


@pytest.mark.parametrize(
    ("word", "value", "code"),
    [
        (0, 0x12345678, ErrorCode.PROGRAM_HEADER),
        (1, PROGRAM_VERSION + 1, ErrorCode.PROGRAM_HEADER),
        (3, 0, ErrorCode.PROGRAM_HEADER),
        (2, 0xFFFFFFF8, ErrorCode.PROGRAM_ADDRESS),
        (2, 0, ErrorCode.MALFORMED_COMMAND),
        (2, 4, ErrorCode.PROGRAM_HEADER),
        (2, 8, ErrorCode.MALFORMED_COMMAND),
    ],
)
def test_headers(bench, word, value, code):
    image = bytearray(bench.image)
    image[4 * word : 4 * word + 4] = value.to_bytes(4, "little")
    put(bench, bytes(image))
    bench.start()
    assert bench.end() == code
    bench.check_healthy()


def test_program_addresses(bench):
    for address in (bench.plan.program_address + 4, bench.limit, 0xFFFFFFC0):
        bench.prepare()
        bench.device.csr_write(offset("PROGRAM"), address)
        bench.start()
        assert bench.end() == ErrorCode.PROGRAM_ADDRESS
    bench.check_healthy()


def test_truncated_programs(bench):
    """Cut after any number of pairs of words: the end without END is an error, wherever it falls."""
    total = len(bench.image) - HEADER_BYTES
    rng = random.Random(4)
    for size in [8, 16, 24, *(8 * rng.randrange(total // 8) for _ in range(12)), total - 8, total - 16]:
        image = bytearray(bench.image)
        image[8:12] = size.to_bytes(4, "little")
        put(bench, bytes(image))
        bench.start()
        assert bench.end() == ErrorCode.MALFORMED_COMMAND
    bench.check_healthy()


def settle(bench: Bench) -> int:
    """End of a program that may be a long one: what is still running after a while must heed the abort at once."""
    bench.device.run(150_000)
    if not bench.device.irq:
        bench.abort()
        bench.device.run(20_000)
    code = bench.end(1)
    bench.check_guard()
    return code


def random_image(rng: random.Random) -> bytes:
    """Commands of a legal opcode and length, with words of chance in all fields and without tokens; a few have an illegal head."""
    words = []
    for _ in range(rng.randrange(1, 40)):
        opcode = rng.choice([op for op in Opcode if op not in (Opcode.END, Opcode.LOOP)])
        entry = COMMANDS[opcode]
        length = entry.words + (rng.randrange(8) if entry.tail else 0)
        head = [opcode | length << 8 | rng.getrandbits(16) << 16, 0, 0]
        if rng.random() < 0.02:
            head[0] ^= 1 << rng.randrange(16)
        words += [*head, *(rng.getrandbits(32) for _ in range(length - 3)), 0][: 2 * pairs(length)]
    header = [PROGRAM_MAGIC, PROGRAM_VERSION, 4 * len(words), PRESETS["small"].digest()]
    return struct.pack(f"<{len(header) + len(words)}I", *header, *words)


def test_random_programs(bench):
    """Commands of random words reach their engines, which refuse them, all with a documented code."""
    codes = set()
    for seed in range(40):
        put(bench, random_image(random.Random(seed)))
        bench.device.csr_write(offset("WATCHDOG"), 2000)
        bench.start()
        codes.add(settle(bench))
    assert {ErrorCode.MALFORMED_COMMAND, ErrorCode.ILLEGAL_FIELD} < codes, codes
    bench.check_healthy()


def test_random_commands(bench):
    """Well-formed commands with fields of chance reach the engines; every end has a documented code."""
    codes: dict[int, int] = {}
    for seed in range(120):
        rng = random.Random(1000 + seed)
        commands = [random_command(rng) for _ in range(rng.randrange(1, 9))] + [Instruction(Opcode.END)]
        put(bench, assemble(commands, PRESETS["small"]))
        bench.device.csr_write(offset("WATCHDOG"), 2000)
        bench.start()
        code = settle(bench)
        codes[code] = codes.get(code, 0) + 1
    assert len(codes) >= 4, codes
    bench.check_healthy()


def test_mutated_programs(bench):
    """The network's own program with a few bits flipped behind the header ends, well or with a code, and the machine lives."""
    codes: dict[int, int] = {}
    for seed in range(60):
        rng = random.Random(2000 + seed)
        image = bytearray(bench.image)
        for _ in range(rng.choice((1, 2, 8))):
            image[rng.randrange(HEADER_BYTES, len(image))] ^= 1 << rng.randrange(8)
        put(bench, bytes(image))
        bench.device.csr_write(offset("WATCHDOG"), 5000)
        bench.start()
        code = settle(bench)
        codes[code] = codes.get(code, 0) + 1
        if seed % 20 == 19:
            bench.check_healthy()
    assert len(codes) >= 4, codes


def test_abort_anywhere(bench):
    """At any cycle of a step an abort ends it within the time of a few bursts, and the next start is a good one."""
    bench.prepare()
    bench.start()
    whole = bench.device.run(MOST_CYCLES)
    assert bench.end() == ErrorCode.NONE
    rng = random.Random(6)
    for moment in [0, 1, 2, 50, *(rng.randrange(whole - 500) for _ in range(20))]:
        bench.prepare()
        bench.start()
        if moment:
            assert bench.device.run(moment) == moment
        bench.abort()
        assert bench.end(2000) == ErrorCode.ABORTED
    bench.check_healthy()


def test_watchdog(bench):
    """A command that waits for a semaphore that nobody signals."""
    for opcode in (
        Opcode.END,
        Opcode.BARRIER,
        Opcode.LOAD,
        Opcode.STORE,
        Opcode.CONV,
        Opcode.RUN,
        Opcode.SOFTMAX,
    ):
        bench.prepare()
        bench.device.csr_write(offset("WATCHDOG"), 700)
        stuck = Instruction(opcode, {}, (), 17, 1 << 5, 0)
        bench.device.write(
            bench.plan.program_address, assemble([stuck, Instruction(Opcode.END)], PRESETS["small"])
        )
        bench.start()
        assert 700 < bench.device.run(3000) < 1500
        assert bench.end() == ErrorCode.WATCHDOG
        assert bench.device.csr_read(offset("ERROR_STATE")) >> 8, "the register tells which engine waited"
    bench.check_healthy()


def test_labels_out_of_range(bench):
    bench.prepare()
    bench.device.write(bench.plan.memory["input", "labels"].address, (3).to_bytes(2, "little"))
    bench.start()
    assert bench.end() == ErrorCode.LABEL_RANGE
    assert bench.engine() == Unit.ACORE
    bench.check_healthy()


def test_registers_while_running(bench):
    """What needs an idle machine is refused while it runs, and the run is not disturbed."""
    bench.prepare()
    bench.start()
    for name in ("PROGRAM", "STEPS", "STEP", "SEED", "WINDOW_BASE", "WINDOW_LIMIT", "EXP_INDEX", "EXP_VALUE"):
        with pytest.raises(BusError, match="SLVERR"):
            bench.device.csr_write(offset(name), 0)
    bench.start()
    assert bench.end() == ErrorCode.NONE
    bench.check_healthy()


def test_every_code_is_documented():
    assert set(ERROR_DOCS) == set(ErrorCode)
