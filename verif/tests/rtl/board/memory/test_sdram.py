"""SDRAM controller against the pin-level model and a byte array: random AXI4 traffic, addresses beyond the memory, throughput; and
faults planted in the controller, each of which the model names."""

import pytest

from gradloom.contracts.sdram_timing import PARTS
from gradloom.rtl.board.memory import sdram
from gradloom.rtl.board.memory.board_memory import BoardMemory
from gradloom.rtl.board.memory.sdram import SdramController
from gradloom.sim.sdram_model import SdramModel, model_settings
from gradloom.verif.board.axi_traffic import Manager, Scoreboard, Traffic, stream
from gradloom.verif.board.packed import simulate
from gradloom.verif.board.sdram_bench import CLOCK, Padded, PinDriver, run_bursts, run_traffic, small_part
from gradloom.verif.formal.run import planted_bug

STALLS = dict.fromkeys(("ar", "r", "aw", "w", "b"), 0.3)


def traffic(part, beat, *, bursts=110, seed=1, **changes):
    """Bursts all over the memory, often in the same few rows, some of them beyond its end."""
    places = (range(part.size), range(256), range(part.size // 2, part.size // 2 + 1024), range(part.size, part.size + 4096),
              range(1 << 31, (1 << 31) + 64))
    return Traffic(**{"bursts": bursts, "seed": seed, "places": (*places[:3], *places[:3], *places), "longest": 64} | changes)


@pytest.mark.parametrize(("word_bits", "clock", "capture", "stalls"), [
    (16, CLOCK, 0, {}), (32, 133_000_000, 1, STALLS), (16, 133_000_000, 0, STALLS), (32, CLOCK, 1, {}),
    (16, 40_000_000, 0, {})])
def test_random_traffic(word_bits, clock, capture, stalls):
    """CAS latency 2 (up to 100 MHz) and 3, times of one cycle (40 MHz). Every answer, all bytes, and every rule."""
    part = small_part(word_bits, retention=16 * (1500 if clock >= CLOCK else 3000))
    dut = SdramController(part, clock, capture=capture)
    assert dut.timing.cas == (2 if clock <= CLOCK else 3)
    outcome = run_traffic(dut, part, [traffic(part, word_bits // 8, stalls=stalls)], word_bits // 8, clock=clock, capture=capture)
    assert outcome.violations == []
    assert outcome.counts.reads > 300 and outcome.counts.writes > 300 and outcome.counts.refreshes > 8


@pytest.mark.parametrize("capture", [0, 1])
def test_registers_in_the_pads(capture):
    """With its pins' registers outside, as on a board, a controller does in every cycle what it does with its own."""
    part = small_part()
    asked = traffic(part, 2, bursts=60, stalls=STALLS)
    own, pads = (run_traffic(dut, part, [asked], 2, capture=capture) for dut in (
        SdramController(part, CLOCK, capture=capture), Padded(SdramController(part, CLOCK, capture=capture, pad_registers=True))))
    assert own.violations == pads.violations == []
    assert (own.cycles, own.counts, own.memory) == (pads.cycles, pads.counts, pads.memory)


@pytest.mark.parametrize(("beat", "word_bits"), [(2, 16), (4, 16), (8, 16), (16, 16), (2, 32), (4, 32), (8, 32)])
def test_board_memory(beat, word_bits):
    """Two managers with beats narrower than, as wide as and wider than a word."""
    part = small_part(word_bits, rows=8)
    dut = BoardMemory(2, beat, part, CLOCK)
    asked = [traffic(part, beat, seed=seed, bursts=30, longest=24, stalls=stalls) for seed, stalls in ((1, {}), (5, STALLS))]
    outcome = run_traffic(dut, part, asked, beat, prefixes=("manager__0", "manager__1"))
    assert outcome.violations == [] and outcome.counts.writes > 100


@pytest.mark.long("ten times as much random traffic on every width")
@pytest.mark.parametrize("word_bits", [16, 32])
@pytest.mark.parametrize("clock", [CLOCK, 133_000_000])
@pytest.mark.parametrize("seed", range(5))
def test_more_random_traffic(word_bits, clock, seed):
    part = small_part(word_bits)
    stalls = {channel: 0.1 * (seed + n & 3) for n, channel in enumerate(STALLS)}
    asked = traffic(part, word_bits // 8, bursts=1200, seed=seed, stalls=stalls)
    outcome = run_traffic(SdramController(part, clock), part, [asked], word_bits // 8, clock=clock)
    assert outcome.violations == []


@pytest.mark.parametrize("write", [False, True])
def test_nothing_beyond_the_memory(write):
    """DECERR, no command, and the next burst is served."""
    part = small_part()
    def bursts(*addresses):
        return [burst for address in addresses for burst in stream(2, address=address, size=128, write=write)]

    outside = (part.size, 1 << 31, (1 << 32) - 128)
    outcome = run_bursts(SdramController(part, CLOCK), part, [bursts(*outside)], 2, settle=20)
    assert outcome.violations == []
    assert outcome.counts.reads == outcome.counts.writes == outcome.counts.activates == 0
    outcome = run_bursts(SdramController(part, CLOCK), part, [bursts(*outside, 0, *outside, 0)], 2)
    assert (outcome.counts.reads, outcome.counts.writes) == ((0, 128) if write else (128, 0))


@pytest.mark.parametrize(("name", "clock", "word_bits"), [("ULX3S", 50_000_000, 16), ("AS4C32M16SB-7", 133_000_000, 32)])
@pytest.mark.parametrize("write", [False, True])
def test_streams_reach_nine_tenths_of_a_word_a_cycle(name, clock, word_bits, write):
    """Rows, refreshes and turns of real parts included: 96 to 97 % (docs/memory.md). Only the power-up is shortened."""
    real = PARTS[name].widened(word_bits)
    part = small_part(word_bits, columns=real.columns, rows=16, retention=real.retention / real.rows * 16, t_ck=real.t_ck, **{
        field: getattr(real, field) for field in ("t_rp", "t_rcd", "t_ras", "t_rc", "t_rfc", "t_rrd", "t_wr", "t_mrd", "mrd_clocks",
                                                  "wr_clocks")})
    beat = word_bits // 8
    outcome = run_bursts(SdramController(part, clock), part, [stream(beat, address=64 * beat, size=1536 * beat, write=write)], beat,
                         clock=clock)
    assert outcome.violations == []
    assert outcome.counts.refreshes > part.init_refreshes
    assert outcome.managers[0].beats == 1536 and 1536 / outcome.cycles > 0.95


def test_bursts_in_an_open_row_follow_one_another_without_a_gap():
    """16 bursts of 4 words of one row, one word a cycle from the first to the last."""
    part = small_part()
    bursts = [burst for n in range(16) for burst in stream(2, address=0, size=128, write=False)]
    for n, burst in enumerate(bursts):
        burst.address, burst.beats = 8 * n % 128, 4
    outcome = run_bursts(SdramController(part, CLOCK), part, [bursts], 2)
    assert outcome.managers[0].beats == 64 and outcome.cycles <= 64 + 14


@pytest.mark.parametrize("capture", [0, 1])
@pytest.mark.parametrize("clock", [CLOCK, 133_000_000])
def test_latency_of_a_read(clock, capture):
    """``cas`` + ``capture`` + 4 cycles from the address in an open row to the word."""
    part = small_part()
    dut = SdramController(part, clock, capture=capture)
    opens, reads = stream(2, address=0, size=256, write=False)
    opens.beats = reads.beats = 1
    reads.address = 8
    board = Scoreboard(bytes(part.size))
    manager = Manager("bus", 2, [opens, reads], board, outstanding=1)
    with SdramModel(model_settings(part, part.timing(clock), capture=capture)) as model:
        simulate(dut, [manager], manager.done, limit=1000, pins=PinDriver(model))
    assert manager.cycle - reads.begun - 1 == dut.timing.cas + capture + 4


def test_a_refresh_waits_for_no_manager():
    """A manager that takes no data and sends none holds up other bursts, but no refresh."""
    part = small_part()
    for channel in "rw":
        asked = Traffic(bursts=12, seed=2, places=(range(part.size),), longest=12, stalls={channel: 0.95}, writes=channel == "w")
        outcome = run_traffic(SdramController(part, CLOCK), part, [asked], 2)
        assert outcome.violations == [] and outcome.counts.refreshes > 6


PLANTED = {
    "tRP": ("(precharge, busy, timing.rp)", "(precharge, busy, timing.rp - 1)"),
    "tRCD": ("(activate, busy, timing.rcd)", "(activate, busy, timing.rcd - 1)"),
    "tRAS": ("(activate, active, timing.ras)", "(activate, active, 1)"),
    "tRC": ("ras=max(timing.ras, timing.rc - timing.rp)", "ras=timing.ras"),
    "tRFC": ("(refresh, busy, timing.rfc)", "(refresh, busy, timing.rfc - 1)"),
    "tRRD": ("rcd=max(timing.rcd, timing.rrd - 1)", "rcd=timing.rcd"),
    "tWR": ("(write, recovery, timing.wr)", "(write, recovery, timing.wr - 1)"),
    "tMRD": ("(load_mode, busy, timing.mrd)", "(load_mode, busy, 1)"),
    "tREFI": ("m.d.sync += self.due.eq(1)", "m.d.sync += self.due.eq(0)"),
    "refresh count": ("// part.rows\n", "// part.rows + 5\n"),
    "power-up": ("-(-power_up // interval)", "1"),
    "power-up ": ("init=refreshes)", "init=1)"),
    "CAS latency": ("self.timing.cas << 4", "2 << 4"),
    "mode": ("self.timing.cas << 4", "self.timing.cas << 4 | 1"),
    "DQM": ("self.dqm.eq(Mux(write, ", "self.dqm.eq(Mux(self.dq_oe, "),
    "bus contention": ("(read, turn, timing.cas + 2)", "(read, turn, timing.cas + 1)"),
    "bank state": ("self.ba.eq(bank)", "self.ba.eq(bank & 1)"),
    "bank state ": ("(precharge_all << _ALL_BANKS)", "((precharge_all & ~self.ready) << _ALL_BANKS)"),
    "row end": ("column = current.address[:column_bits]", "column = current.address[:column_bits + 1]"),
    "row": ("Mux(activate, row, ", "Mux(activate, row | 64, "),
    "auto precharge": ("(precharge_all << _ALL_BANKS)", "((precharge_all | write) << _ALL_BANKS)"),
    "command": ("self.ras_n.eq(~(activate | precharge |", "self.ras_n.eq(~(activate |"),
    "CKE": ("self.cke.eq(1)", "self.cke.eq(self.ready)"),
    "data pins": ("self.dq_oe.eq(write)", "self.dq_oe.eq(write & bus.w.p.strb.all())"),
}
"""Rule that the model names (a blank: the same rule again), text of the controller, and what it becomes."""
PARTS_OF = {"tRC": {"t_rc": 100}, "tRRD": {"t_rrd": 45}, "tWR": {"t_wr": 25}, "tMRD": {"mrd_clocks": 9}}
"""Parts in which the rule is not kept by keeping the others."""


@pytest.mark.parametrize("rule", PLANTED)
def test_a_fault_in_the_controller_is_named(rule):
    """The bank's number and the cycle are in the line, and the rule comes before any wrong data."""
    part = small_part(retention=16 * 1500, **PARTS_OF.get(rule, {}))
    clock = 133_000_000 if rule == "CAS latency" else CLOCK
    asked = [Traffic(bursts=60, seed=8, places=(range(2048),), longest=5, rate=1)]
    dut = planted_bug("gradloom.rtl.board.memory.sdram", *PLANTED[rule]).SdramController(part, clock)
    told = run_bursts(dut, part, [], 2, traffic=asked, clock=clock, first_violation=True, settle=3000).violations
    assert told and told[0].split(": ")[1] == rule.strip(), told


SILENT = {
    "a row bit that is stuck": ("Mux(activate, row, ", "Mux(activate, row & ~1, "),
    "data pins swapped": ("self.dq_o.eq(bus.w.p.data)", "self.dq_o.eq(Cat(bus.w.p.data[1], bus.w.p.data[0], bus.w.p.data[2:]))"),
    "read data a cycle late": ("range(self.timing.cas + self.capture + 1)", "range(self.timing.cas + self.capture + 2)"),
    "a column bit that is stuck": ("Mux(activate, row, Cat(column, ", "Mux(activate, row, Cat(column & ~2, "),
    "strobes of no byte": ("self.dqm.eq(Mux(write, ~bus.w.p.strb,", "self.dqm.eq(Mux(write, 0,"),
    "words of read data without room": ("(current.left == 0)), space.any())", "(current.left == 0)), 1)"),
    "a burst stays in its row": ("current.address.eq(current.address + 1)", "current.address[:5].eq(current.address[:5] + 1)"),
    "an answer over another": ("& ~(bus.b.valid & (current.left == 0))", ""),
    "the last word's answer": ("resp.eq(Mux(beyond, DECERR, OKAY))", "resp.eq(OKAY)"),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_fault_that_breaks_no_rule_shows_in_the_data(name):
    part = small_part(retention=16 * 1500)
    dut = planted_bug("gradloom.rtl.board.memory.sdram", *SILENT[name]).SdramController(part, CLOCK)
    with pytest.raises(AssertionError):
        run_traffic(dut, part, [traffic(part, 2, bursts=80, stalls={"r": 0.6, "b": 0.9})], 2, limit=5000)


def test_parameters():
    with pytest.raises(ValueError, match=r"^capture must be 0 or 1, not 2$"):
        sdram.SdramController(small_part(), CLOCK, capture=2)
