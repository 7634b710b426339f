"""Ports of 32 bits for beats of 16: every byte to its place and every response to its beat, legal AXI4, nothing that waits for what
a subordinate may hold back, no path through; and planted bugs of each."""

import random

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.rtl import axi32
from gradloom.rtl.memory_path.axi import lite_members
from gradloom.verif.board.axi_memory import PortChecker, Subordinate
from gradloom.verif.board.axi_traffic import Burst, Manager, Scoreboard, Traffic, stream
from gradloom.verif.board.packed import simulate
from gradloom.verif.formal.run import planted_bug

BEAT, WORD = 2, axi32.PORT_BYTES
SIZE = 1 << 13
STALLS = dict.fromkeys(("ar", "r", "aw", "w", "b"), 0.3)


class Waiting(Subordinate):
    """Takes the address of a write only when data are offered, as AXI4 allows."""

    def drive(self, ports):
        super().drive(ports)
        ports[f"{self.prefix}__aw__ready"] &= ports[f"{self.prefix}__w__valid"]


class Whole(Subordinate):
    """Wants addresses that are multiples of its words."""

    def sample(self, ports):
        super().sample(ports)
        assert all(address % WORD == 0 for _, address, _ in self.bursts[-2:])


def run(*, bursts=None, stalls=None, design=axi32, partial=False, subordinate=Whole, limit=20_000):
    """Random bursts of half of which some end beyond the memory, or the given ones. The memory, and the cycles."""
    image = bytes(n * 31 & 255 for n in range(SIZE))
    memory = subordinate("port", WORD, bytearray(image), stalls=stalls or {})
    board = Scoreboard(image)
    if bursts is None:
        bursts = Traffic(bursts=90, seed=5, places=(range(SIZE), range(3900, 4200), range(SIZE - 100, SIZE + 200)), partial=partial,
                         ).generate(BEAT)
    # A machine takes responses of writes at once, and all else when it likes.
    manager = Manager("manager", BEAT, bursts, board, stalls=(stalls or {}) | {"b": 0})
    checkers = [] if partial else [PortChecker("manager", BEAT), PortChecker("port", WORD, own=BEAT)]
    cycles = simulate(design.PortWidener(BEAT), [manager, memory, *checkers], manager.done, limit=limit)
    assert memory.memory == board.image
    for checker in checkers:
        assert checker.violations == []
    return memory, cycles


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("stalls", [{}, STALLS])
def test_random_traffic(stalls, partial):
    """Legal on both sides, and in every byte; a machine's own strobes are all or none, others pass as well."""
    memory, _ = run(stalls=stalls, partial=partial)
    for _, address, words in memory.bursts:
        assert words <= 32 and address // 4096 == (address + WORD * words - 1) // 4096


def test_a_subordinate_may_wait_for_write_data():
    run(subordinate=Waiting)


@pytest.mark.parametrize(("address", "beats", "at", "words"), [
    (0x100, 1, 0x100, 1), (0x102, 1, 0x100, 1), (0x102, 2, 0x100, 2), (0x100, 64, 0x100, 32), (0x102, 63, 0x100, 32),
    (0xFFE, 1, 0xFFC, 1), (0xFFC, 2, 0xFFC, 1)])
@pytest.mark.parametrize("channel", ["ar", "aw"])
def test_bursts(address, beats, at, words, channel):
    """One burst of the words that hold the beats."""
    burst = Burst(channel == "aw", address, beats, [0] * beats, [3] * beats)
    assert run(bursts=[burst])[0].bursts == [(channel, at, words)]


@pytest.mark.parametrize("write", [False, True])
def test_a_beat_a_cycle(write):
    assert run(bursts=stream(BEAT, address=0, size=2048, write=write))[1] <= 2048 // BEAT + 16


def paths(design=axi32):
    """Outputs of the port that other inputs of the port change within a cycle, whatever the registers hold."""
    rng, dut, found = random.Random(1), design.PortWidener(BEAT), set()
    ports = [(path, member.flow == In, Value.cast(value)) for path, member, value in dut.signature.flatten(dut)]
    near, far = ([value for path, is_input, value in ports if is_input and path[0] == side] for side in ("manager", "port"))
    outputs = [(path, value) for path, is_input, value in ports if not is_input and path[0] == "port"]

    async def bench(ctx):
        def draw(values):
            for value in values:
                ctx.set(value, rng.getrandbits(len(value)))

        for _ in range(500):
            draw(near)
            seen = []
            for _ in range(3):
                draw(far)
                seen.append([ctx.get(value) for _, value in outputs])
            found.update(path[1:] for (path, _), values in zip(outputs, zip(*seen, strict=True), strict=True) if len({*values}) > 1)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def no_paths(design=axi32, **_):
    assert paths(design) == set()


def test_no_output_of_the_port_follows_its_inputs():
    """The specification allows no combinational path between them (AMBA AXI, A3.1)."""
    no_paths()


BUGS = {
    "addresses of reads within a word": (run, "reads.p.addr[low:] << low", "reads.p.addr"),
    "addresses of writes within a word": (run, "writes.p.addr[low:] << low", "writes.p.addr"),
    "an address is lost": (
        lambda **given: run(limit=4000, **given), "free = ~self.port.aw.valid | self.port.aw.ready", "free = 1"),
    "data wait for their address": (
        lambda **given: run(subordinate=Waiting, limit=3000, **given), "writes.ready.eq(free)",
        "writes.ready.eq(self.port.aw.valid & self.port.aw.ready)"),
    "a path from VALID to READY": (
        no_paths,
        "connect(m, flipped(self.port.r), read_data.i)", "connect(m, flipped(self.port.r), packer.words.r)",
        "        connect(m, read_data.o, packer.words.r)\n", ""),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs(bug):
    check, *changes = BUGS[bug]
    design = planted_bug("gradloom.rtl.axi32", *changes)
    with pytest.raises(AssertionError):
        check(design=design, stalls=STALLS)


def test_signals_that_pass_the_widener_by(monkeypatch):
    """Registers, interrupt, attributes of addresses and the response of a write, between the machine's ports and the top's."""
    joined = {}
    monkeypatch.setattr(axi32, "Instance", lambda name, **ports: joined.update(ports) or Module())
    dut = axi32.Axi32Machine(PRESETS["nano"])
    names = [*lite_members(), "irq", "m_axi_bresp", *(f"m_axi_{channel}{name}" for channel in ("ar", "aw") for name in (
        "id", "burst", "cache", "prot"))]

    async def bench(ctx):
        for name in names:
            outwards = f"o_{name}" in joined
            inner, outer = joined[f"{'o' if outwards else 'i'}_{name}"], getattr(dut, name)
            source, target = (inner, outer) if outwards else (outer, inner)
            ctx.set(source, (1 << len(source)) - 1)
            assert ctx.get(target) == ctx.get(source), name
        assert (ctx.get(dut.m_axi_arsize), ctx.get(dut.m_axi_awsize)) == (2, 2)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_only_narrow_machines_are_widened():
    assert [name for name, config in PRESETS.items() if axi32.is_narrow(config)] == ["nano", "ecp5-9"]
    with pytest.raises(ValueError, match=r"^small has beats of 4 bytes, which need no widening to 4$"):
        axi32.Axi32Machine(PRESETS["small"])
