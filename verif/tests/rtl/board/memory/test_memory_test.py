"""The memory's self-test: no error on a good memory; each kind of fault of a board or a part shows in the pattern that is meant for
it, with its first address."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect

from gradloom.rtl.board.memory.memory_test import MemoryTest, Pattern
from gradloom.rtl.board.memory.sdram import SdramController
from gradloom.sim.sdram_model import SdramModel, model_settings
from gradloom.verif.board.axi_memory import PortChecker, Subordinate
from gradloom.verif.board.packed import Ports, simulate
from gradloom.verif.board.sdram_bench import CLOCK, PinDriver, small_part
from gradloom.verif.formal.bugs import bug_params
from gradloom.verif.formal.run import planted_bug

SIZE = 1 << 12
STALLS = dict.fromkeys(("ar", "r", "aw", "w", "b"), 0.2)


class Host:
    """Starts a test, and keeps the results at its end."""

    def __init__(self, pattern, base=0, limit=SIZE, pause=0):
        self.settings = {"mode": pattern.value, "base": base, "limit": limit, "pause": pause}
        self.results, self.cycle, self.busy = None, 0, 0

    def drive(self, ports):
        ports.update(self.settings)
        ports["start"] = self.cycle == 2

    def sample(self, ports):
        self.cycle += 1
        self.busy += ports["busy"]
        if self.cycle > 4 and not ports["busy"] and self.results is None:
            self.results = {name: ports[name] for name in ("tested", "errors", "first_bad", "expected", "found", "aliases")}

    def done(self):
        return self.results is not None


class Faulty(Subordinate):
    """A memory whose stored bytes go through ``store``, and addresses through ``place``."""

    def __init__(self, *args, store=lambda data: data, place=lambda address: address, **kwargs):
        super().__init__(*args, **kwargs)
        self.store, self.place = store, place

    def _word(self):
        kept = self.reads[0][0]
        self.reads[0][0] = self.place(kept)
        word = super()._word()
        self.reads[0][0] = kept
        return word

    def _write(self, payload):
        mask = (1 << 8 * self.beat) - 1
        kept = self.writes[0][0]
        self.writes[0][0] = self.place(kept)
        burst = self.writes[0]
        super()._write(payload & ~mask | self.store(payload & mask))
        burst[0] = kept + self.beat


def run(pattern, beat=4, *, base=0, limit=SIZE, stalls=None, design=MemoryTest, cycles=10_000, **faults):
    host = Host(pattern, base, limit)
    memory = Faulty("bus", beat, bytearray(b"\x5a" * SIZE), stalls=stalls or {}, **faults)
    checker = PortChecker("bus", beat)
    simulate(design(beat), [host, memory, checker], host.done, limit=cycles)
    assert checker.violations == []
    return host.results, memory


PASSES = {Pattern.DATA: 3, Pattern.ADDRESS: 2, Pattern.REFRESH: 1}


@pytest.mark.parametrize("beat", [2, 4, 8])
@pytest.mark.parametrize("pattern", PASSES)
def test_a_good_memory_has_no_error(beat, pattern):
    """All of the range is tested, and nothing outside it is touched. Bursts are a machine's, by the checker."""
    limit = 192 * beat
    results, memory = run(pattern, beat, base=64 * beat, limit=limit, stalls=STALLS)
    assert results["errors"] == results["aliases"] == 0 and results["tested"] == 128 * PASSES[pattern]
    assert memory.memory[:64 * beat] == b"\x5a" * 64 * beat and memory.memory[limit:] == b"\x5a" * (SIZE - limit)


@pytest.mark.parametrize("beat", [2, 8])
def test_patterns(beat):
    """The last pass of a test remains: every data bit was 1 and 0 alone, and every word has its number."""
    _, memory = run(Pattern.ADDRESS, beat, limit=128 * beat)
    assert memory.memory[:128 * beat] == bytes(128 * beat)  # upper halves of the numbers of the first words
    seen = []
    run(Pattern.DATA, beat, limit=64 * beat, store=lambda data: seen.append(data) or data)
    ones, zeros, others = seen[:64], seen[64:128], seen[128:]
    mask = (1 << 8 * beat) - 1
    assert ones == [1 << n % (8 * beat) for n in range(64)] and zeros == [mask ^ one for one in ones]
    assert len(set(others)) > 60


@pytest.mark.parametrize(("name", "faults", "pattern", "first"), [
    ("data bit stuck at 0", {"store": lambda data: data & ~(1 << 7)}, Pattern.DATA, 7 * 4),
    ("data bits swapped", {"store": lambda data: data & ~3 | data >> 1 & 1 | (data & 1) << 1}, Pattern.DATA, 0),
    ("data bits shorted", {"store": lambda data: data | (data >> 30 & 1) << 31}, Pattern.DATA, 30 * 4),
    ("address bit stuck", {"place": lambda address: address & ~(1 << 9)}, Pattern.ADDRESS, 0),
    ("address bits shorted", {"place": lambda address: address & ~(1 << 9) | (address >> 8 & 1) << 9}, Pattern.ADDRESS, 0),
])
def test_faults_are_found(name, faults, pattern, first):
    results, _ = run(pattern, limit=1024, **faults)
    assert results["errors"] > 0 and results["first_bad"] == first, name
    assert results["expected"] != results["found"]


def test_errors_are_counted_and_told():
    results, _ = run(Pattern.DATA, limit=512, store=lambda data: data & ~1)
    assert results["first_bad"] == 0 and results["expected"] == 1 and results["found"] == 0
    # The walking one is there in every 32nd beat, the walking zero in all others.
    assert results["errors"] == 4 + 124 + _odd_randoms(128)


def _odd_randoms(count):
    """How many of the first pseudo-random words are odd: a shift register with taps 32, 22, 2 and 1, 16 steps a word."""
    value, odd = 0x2545F491, 0
    for _ in range(count):
        odd += value & 1
        for _ in range(16):
            value = (value << 1 | (value >> 31 ^ value >> 21 ^ value >> 1 ^ value) & 1) & 0xFFFFFFFF
    return odd


def test_error_responses_are_errors():
    """Beyond the memory's size every write burst and every read beat."""
    results, _ = run(Pattern.REFRESH, base=SIZE - 256, limit=SIZE + 256)
    assert results["errors"] == 1 + 64 and results["first_bad"] == SIZE and results["tested"] == 128


@pytest.mark.parametrize(("base", "limit"), [(0, 0), (0, 255), (1024, 1024), (1024, 512)])
def test_an_empty_range_tests_nothing(base, limit):
    results, memory = run(Pattern.DATA, base=base, limit=limit)
    assert results["tested"] == results["errors"] == 0 and memory.bursts == []


@pytest.mark.parametrize(("missing", "size"), [([], SIZE), ([11], SIZE), ([8, 10], SIZE), ([2], SIZE), ([], 1024)])
def test_probe(missing, size):
    """Address bits that do nothing are found, all bits below the range's size are looked at, and no other address is touched."""
    mask = ~sum(1 << bit for bit in missing)
    results, memory = run(Pattern.PROBE, limit=size, place=lambda address: address & mask)
    assert results["aliases"] == sum(1 << bit for bit in missing) and results["errors"] == 0
    places = [1 << bit for bit in range(2, size.bit_length() - 1)]
    assert [address for _, address, _ in memory.bursts] == [*places, 0, *places]


class Board(wiring.Component):
    """The self-test on an SDRAM controller."""

    def __init__(self, part):
        self.controller, self.test = SdramController(part, CLOCK), MemoryTest(part.word_bytes)
        self.names = [name for name in self.controller.signature.members if name not in ("bus", "ready")]
        settings = {"start": In(1), "mode": In(Pattern), "base": In(32), "limit": In(32), "pause": In(32)}
        self.results = {name: member for name, member in self.test.signature.members.items() if name not in ("bus", *settings)}
        super().__init__(settings | self.results | {name: self.controller.signature.members[name] for name in self.names})

    def elaborate(self, platform):
        m = Module()
        m.submodules.controller, m.submodules.test = self.controller, self.test
        connect(m, self.test.bus, self.controller.bus)
        ports = [name for name in self.test.signature.members if name != "bus"]
        for source, names in ((self.controller, self.names), (self.test, ports)):
            for name in names:
                ours, theirs = getattr(self, name), getattr(source, name)
                m.d.comb += theirs.eq(ours) if source.signature.members[name].flow == In else ours.eq(theirs)
        return m


def run_board(pattern, *, limit, wires=None, part=None, real=None, pause=0, **settings):
    """The test on the pin-level model of ``real`` behind a controller for ``part``."""
    part = part or small_part(columns=32, rows=8, retention=8 * 1500)
    real = real or part
    host = Host(pattern, 0, limit, pause)
    with SdramModel(model_settings(real, real.timing(CLOCK), **settings)) as model:
        simulate(Board(part), [host], host.done, limit=30_000, pins=PinDriver(model, wires))
        return host.results, model.violations


def test_a_good_sdram():
    for pattern, limit in ((Pattern.ADDRESS, 1024), (Pattern.PROBE, 2048)):
        results, violations = run_board(pattern, limit=limit)
        assert results["errors"] == results["aliases"] == 0 and results["tested"] > 0 and violations == []


def test_the_true_number_of_columns_shows_in_a_probe():
    """A controller made for twice the columns of the part: the highest column bit does nothing."""
    part = small_part(columns=64, rows=8, retention=8 * 1500)
    real = small_part(columns=32, rows=8, retention=8 * 1500)
    assert run_board(Pattern.PROBE, limit=part.size, part=part, real=real, ignores_columns=True)[0]["aliases"] == 32 * 2


def swap_rows(ports: Ports) -> None:
    if not ports["ras_n"] and ports["cas_n"] and ports["we_n"]:
        ports["a"] = ports["a"] & ~1 | 0


def swap_data(ports: Ports) -> None:
    data = ports["dq_o"]
    ports["dq_o"] = data & ~3 | data >> 1 & 1 | (data & 1) << 1


def one_bank(ports: Ports) -> None:
    ports["ba"] &= 1


def test_faults_of_a_board():
    """Pins that are stuck or swapped between controller and memory. The model's own rules may be broken, too."""
    assert run_board(Pattern.DATA, limit=128, wires=swap_data)[0]["errors"] > 0
    results, _ = run_board(Pattern.PROBE, limit=2048, wires=swap_rows)
    assert results["aliases"] == 1 << 8  # word, 5 column and 2 bank bits below
    assert run_board(Pattern.ADDRESS, limit=1024, wires=swap_rows)[0]["errors"] > 0
    assert run_board(Pattern.ADDRESS, limit=1024, wires=one_bank)[0]["errors"] > 0


def test_missing_refreshes_show_after_a_pause():
    """The commands of refreshes do not reach the memory, which forgets: not at once, but after its retention time."""
    def no_refresh(ports: Ports) -> None:
        if not ports["ras_n"] and not ports["cas_n"] and ports["we_n"] and seen[0] > 600:
            ports["cs_n"] = 1
        seen[0] += 1

    part = small_part(columns=32, rows=8, retention=8 * 1500)
    for pause, wires, bad in ((1300, no_refresh, True), (0, no_refresh, False), (1300, None, False)):
        seen = [0]
        results, _ = run_board(Pattern.REFRESH, limit=128, wires=wires, part=part, pause=pause, forgets=True)
        assert (results["errors"] > 0) == bad, (pause, results)


BUGS = [
    ("last.eq(probing | (beat == BURST_BEATS - 1))", "last.eq(beat == BURST_BEATS - 1)"),
    ("range_ends.eq(left == 1)", "range_ends.eq(left == 2)"),
    ("(bus.r.p.data != pattern)", "(bus.r.p.data[8:] != pattern[8:])"),
    ("(answered & (bus.b.p.resp != 0))", "(answered & 0)"),
    ("with m.If(first < self", "with m.If(first <= self"),
    ("(number + 1 == passes)", "(number == passes)"),
    ("self.aliases.eq(self.aliases | bit)", "self.aliases.eq(bit)"),
    ("walk.eq(walk.rotate_left(1))", "walk.eq(walk.rotate_left(2))"),
]


@pytest.mark.parametrize(("before", "after"), bug_params(BUGS, suite=4))
def test_planted_bugs(before, after):
    """The tests above notice each."""
    design = planted_bug("gradloom.rtl.board.memory.memory_test", before, after).MemoryTest
    with pytest.raises(AssertionError):
        for pattern, passes in PASSES.items():
            results, _ = run(pattern, limit=256, design=design, cycles=2000)
            assert results["tested"] == 64 * passes and results["errors"] == 0
        assert run(Pattern.DATA, limit=256, store=lambda data: data & ~(1 << 7), design=design)[0]["first_bad"] == 28
        assert run(Pattern.REFRESH, base=SIZE - 256, limit=SIZE + 256, design=design)[0]["errors"] == 65
        assert run(Pattern.DATA, limit=0, design=design, cycles=200)[1].bursts == []
        assert run(Pattern.PROBE, place=lambda address: address & ~0x500, design=design)[0]["aliases"] == 0x500


def test_parameters():
    with pytest.raises(ValueError, match=r"^beat_bytes of the memory test must be a power of two from 2 on, not 1$"):
        MemoryTest(1)
