"""The whole link in RTL against its model, byte for byte: requests, refused requests, nonsense, a host on a line with faults."""

import itertools
import random

import pytest
from amaranth.sim import Simulator

from gradloom.contracts.config import PRESETS
from gradloom.contracts.frame_format import BOARD_WINDOW, FLAG, LINK_WINDOW, MAX_DATA, Kind, Reply, Status, bit_step
from gradloom.host.link.frames import (
    encode,
    fill_request,
    gather_request,
    poll,
    read,
    read_request,
    script_request,
    write,
    write_request,
)
from gradloom.host.link.link import Link, LinkError
from gradloom.host.link.transport import SimulatedTransport
from gradloom.rtl.board.link.board_link import BoardLink, UartLink
from gradloom.sim.link.link_device import BYTE_LOST, CLOCK, LinkSimulation
from gradloom.verif.link.board_model import MemoryBackend
from gradloom.verif.link.link_bench import LinkBench, frames
from gradloom.verif.link.model_transport import DISTURBANCES, FaultyTransport
from gradloom.verif.link.traffic import MEMORY_BYTES, Traffic

CONFIGS = [PRESETS["nano"], pytest.param(PRESETS["ulx3s"], marks=pytest.mark.long("beats of 8 bytes; nano has those of 2"))]


@pytest.fixture
def bench():
    with LinkBench(PRESETS["nano"]) as bench:
        bench.open()
        yield bench
        bench.compare()


def status(frame):
    return Status(frame.body[-1])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_requests_of_every_kind_and_size(config):
    """Also such as cross bursts, begin and end in any byte of a beat, and fail at either end of the memory."""
    rng, beat, top = random.Random(1), config.beat_bytes, LinkBench.MEMORY_BYTES
    with LinkBench(config) as bench:
        bench.open()
        bench.simulation.set_memory(latency=7, stall=0.2, take_share=0.8)
        for n in [1, 2, 3, beat - 1, beat, beat + 1, 16 * beat, MAX_DATA - 1, MAX_DATA] * 2:
            at = rng.randrange(0, top - MAX_DATA)
            for address in (at, at // beat * beat, top - n):
                assert status(bench.ask(write_request(address, rng.randbytes(n)))) == Status.OK
                bench.compare()  # at once: the next write covers what this one may have spoilt beside its bytes
                assert status(bench.ask(read_request(address, n))) == Status.OK
        for n in (0, 1, 15, 16, 17, 100):
            assert status(bench.ask(fill_request(beat * rng.randrange(50), n * beat, 0x7E))) == Status.OK
            pieces = [(beat * rng.randrange(500), beat * rng.randrange(1000, 2000)) for _ in range(5)]
            answer = bench.ask(gather_request(n * beat, pieces))
            assert answer.body == bytes([5, Status.OK])
        bench.compare()


def test_requests_that_are_refused(bench):
    top = bench.MEMORY_BYTES
    beat = bench.config.beat_bytes
    header = write_request(0x100, b"12345678")
    for request, wanted in (
        (bytes([0x3F]), Status.OPERATION), (bytes([Kind.READ]), Status.LENGTH), (read_request(0, 5)[:-1], Status.LENGTH),
        (read_request(0, 5) + b"x", Status.LENGTH), (header[:-1], Status.LENGTH), (header + b"x", Status.LENGTH),
        (bytes([Kind.READ]) + bytes(12), Status.LENGTH), (bytes([Kind.READ, 0xE1, 3]) + bytes(10), Status.LENGTH),
        (bytes([Kind.READ, 1, 0, 1]) + bytes(9), Status.LENGTH), (bytes([Kind.WRITE]) + bytes(12), Status.LENGTH),
        (read_request(top - 1, 2), Status.ADDRESS), (read_request(1 << 31, 4), Status.ADDRESS),
        (write_request(top - 2, b"1234"), Status.ADDRESS), (write_request(0xFFFFFFFE, b"1234"), Status.ADDRESS),
        (fill_request(top - 64, 128, 1), Status.ADDRESS), (fill_request(0, 1 << 31, 1), Status.ADDRESS),
        (fill_request(1, beat), Status.ALIGNMENT), (fill_request(0, beat + 1), Status.ALIGNMENT),
        (gather_request(beat, [(1, 0)]), Status.ALIGNMENT), (gather_request(beat, [(0, 1)]), Status.ALIGNMENT),
        (gather_request(beat, [(0, 64), (0, top)]), Status.ADDRESS), (gather_request(beat, [(top, 0)]), Status.ADDRESS),
        (gather_request(beat, []), Status.LENGTH), (gather_request(beat, [(0, 8)]) + b"1234567", Status.LENGTH),
        (bytes([Kind.SCRIPT]), Status.LENGTH), (bytes([Kind.SCRIPT, 1]), Status.LENGTH),
        (script_request([write(4, 5)])[:-1], Status.LENGTH), (bytes([Kind.SCRIPT, 1, 0]), Status.ENTRY),
        (script_request([write(4 * n, n) for n in range(251)]), Status.LENGTH),
        (script_request([write(8, 1), poll(8, 3, 2, 9), write(8, 7)]), Status.POLL),
    ):
        assert status(bench.ask(request)) == wanted, (request[:16].hex(), wanted)


def test_errors_of_the_buses(bench):
    beat = bench.config.beat_bytes
    bench.backend.bad_memory = range(0x1000, 0x1000 + beat)
    bench.simulation.fail(0x1000, 0x1000 + beat)
    bench.backend.bad_registers = range(0x200, 0x204)
    bench.simulation.refuse(0x200, 0x204)
    for request, wanted in (
        # The first of several beats of a burst, and the last one.
        (read_request(0xF00, 600), Status.READ_RESPONSE), (read_request(0x1000, 1), Status.READ_RESPONSE),
        (write_request(0xFF0, bytes(600)), Status.WRITE_RESPONSE),
        (fill_request(0xF00, 600), Status.WRITE_RESPONSE), (gather_request(600, [(0xF00, 0)]), Status.READ_RESPONSE),
        (gather_request(600, [(0, 0xF00)]), Status.WRITE_RESPONSE), (script_request([read(0x200)]), Status.REGISTER),
        (script_request([write(0x100, 1), write(0x200, 2), write(0x104, 3)]), Status.REGISTER),
        (script_request([poll(0x200, 1, 1, 3)]), Status.REGISTER), (read_request(0x1002, 4), Status.OK),
    ):
        assert status(bench.ask(request)) == wanted
    bench.compare()


def test_registers_of_machine_board_and_link(bench):
    window = BOARD_WINDOW + 0x20
    answer = bench.ask(script_request([write(0x10, 0xDEADBEEF), read(0x10), write(window, 7), read(window), poll(window, 5, 5, 0),
                                       read(LINK_WINDOW + 4)]))
    assert [int.from_bytes(answer.body[n:n + 4], "little") for n in range(0, 16, 4)] == [0xDEADBEEF, 7, 7, 0]
    assert answer.body[-2:] == bytes([6, Status.OK])
    for _ in range(20):
        bench.ask(script_request([read(MemoryBackend.COUNTS_READS), write(MemoryBackend.COUNTS_WRITES, 0)]))


def test_rate_changes_when_its_answer_has_left_and_a_break_takes_it_back(bench):
    step = bit_step(3_000_000, CLOCK)
    simulation = bench.simulation
    simulation.set_line(tx_idle=False)
    bench.ask(script_request([write(LINK_WINDOW, step), read(LINK_WINDOW)]))
    assert simulation.bit_step == bit_step(115_200, CLOCK)
    simulation.set_line(tx_idle=True)
    simulation.settle()
    assert simulation.bit_step == step
    simulation.set_line(line_break=True)
    simulation.settle()
    assert simulation.bit_step == bit_step(115_200, CLOCK)


def test_faults_are_counted_by_the_side_that_sees_them(bench):
    frame = encode(bytes([bench.session, 99, 0]) + read_request(0, 1))
    bench.exchange([*frame[:5], BYTE_LOST, *frame[5:]])
    bench.exchange(frame[:6] + bytes([frame[6] ^ 1]) + frame[7:])
    bench.exchange(frame)  # not its number
    bench.exchange(frame[:9])
    answer = bench.ask(script_request([read(LINK_WINDOW + 4)]))
    assert list(answer.body[:4]) == [3, 1, 0, 1]


def test_interrupts(bench):
    for level in (1, 0, 1):
        bench.simulation.set_irq(level)
        bench.model.set_irq(level)
        told = bench.exchange(b"")
        assert [frame.kind for frame in told] == [Reply.INTERRUPT] * level
        bench.ack += level
    # What was told is told again until it is acknowledged, and a host that comes later hears of it.
    assert len(bench.send(Kind.SYNC, ack=1)) == 2
    bench.open(session=8)


@pytest.mark.parametrize("seeds", [range(1), range(1, 2), pytest.param(range(2, 402), id="hundred thousand", marks=pytest.mark.long(
    "more frames of chance, six minutes"))])
def test_nonsense_changes_nothing_that_its_model_does_not_change(seeds):
    """Frames of random content of which half have a good FCS, and noise, 250 a seed: the link comes to rest, answers as its model
    does, and no burst leaves the memory that it may touch."""
    for seed in seeds:
        _nonsense(seed, apart=len(seeds) > 1)


def _nonsense(seed: int, *, apart: bool) -> None:
    """``apart``: the link comes to rest behind every flag. Else what comes beside a script that polls for long may be answered or
    counted before it is done, while the model takes no time: no two runs of so many frames would be the same."""
    rng = random.Random(seed)
    with LinkBench(PRESETS["nano"], seed) as bench:
        bench.open(rng.randrange(256))
        bench.simulation.fence(0, bench.MEMORY_BYTES)
        for _ in range(250):
            kind = rng.choice([*Kind, rng.randrange(256)])
            body = rng.choice([rng.randbytes(rng.randint(0, 40)), bytes(rng.choice([0, 0, 0, 1, 64, 255]) for _ in range(13))])
            ours = rng.random() < 0.8
            header = bytes([bench.session if ours else rng.randrange(256), bench.model.expected if ours else rng.randrange(256),
                            rng.choice([bench.model._first + len(bench.model._kept), rng.randrange(256)]) % 256, kind])
            frame = encode(header + body)
            kind = rng.choice([*DISTURBANCES, *[""] * len(DISTURBANCES)])
            items = list(DISTURBANCES[kind](rng, frame) if kind not in ("", "double") else frame)
            ends = [place + 1 for place, item in enumerate(items) if item == FLAG] if apart else []
            for first, last in itertools.pairwise((0, *ends, len(items))):
                bench.exchange(items[first:last])
            if kind == "double":  # later: a script that reads the counters may be done before the second is there, or after
                bench.exchange(frame)
            bench.session = bench.model.session
        bench.compare()


@pytest.mark.parametrize(("config", "seed"), [
    pytest.param(PRESETS[name], seed, id=f"{name}-{seed}",
                 marks=() if (name, seed) == ("nano", 0) else pytest.mark.long("more faults, and beats of 8 bytes"))
    for name in ("nano", "ulx3s") for seed in range(6)])
def test_a_host_on_a_line_with_faults(config, seed):
    """Some 300 faults of every kind, in both directions: nothing is lost, and nothing happens twice."""
    rng = random.Random(seed)
    with LinkSimulation(config, memory_bytes=MEMORY_BYTES) as simulation:
        simulation.set_memory(latency=12, stall=0.1, seed=seed + 1)
        line = FaultyTransport(SimulatedTransport(simulation), rng, 0.12)
        traffic = Traffic(line, rng, config.beat_bytes, longest=300)
        for _ in range(1000):
            traffic.step()
        line.rate = 0.0
        traffic.finish()
        assert simulation.read(0, MEMORY_BYTES) == traffic.memory
        assert simulation.register_writes() == traffic.writes
        assert sum(line.faults.values()) > 250 and min(line.faults.values()) > 10, line.faults


def test_a_board_that_is_reset_is_noticed_and_serves_the_next_session():
    """Requests of which no answer came were done once or not at all, the first ones first."""
    rng = random.Random(5)
    with LinkSimulation(PRESETS["nano"], memory_bytes=MEMORY_BYTES) as simulation:
        transport = SimulatedTransport(simulation)
        asked: list[tuple[int, int]] = []
        for session in range(12):
            link = Link(transport, session=session)
            before = len(simulation.register_writes())
            batch = [(4 * rng.randrange(64), n) for n in range(30)]
            for address, value in batch:
                link.submit(script_request([write(address, value)]), lambda answer: None)
            simulation.run(rng.randrange(1, 400))
            if session % 3:
                simulation.reset()
                with pytest.raises(LinkError, match="the board was reset, or another host took it"):
                    link.drain()
            # Every third time the host is gone instead, and its requests are still on the line.
            simulation.settle()
            done = simulation.register_writes()[before:]
            assert done == batch[:len(done)]
            asked += done
        assert simulation.register_writes() == asked and 12 < len(asked) < 12 * 30


def test_a_session_over_the_pins():
    """Bytes as bits on two wires, at 10 clocks a bit, and then at 8: WELCOME, STATE, a change of the rate, STATE at the new one."""
    baud = 115_200
    dut = UartLink(PRESETS["nano"], clock=10 * baud, baud=baud)
    faster = 65536 // 8

    async def send(ctx, clocks, content):
        """Give a frame to the pin, then listen to the other one until it has been at rest for 30 bits."""
        bits = [bit for byte in encode(content) for bit in (0, *(byte >> n & 1 for n in range(8)), 1)]
        wave = []
        for cycle in itertools.count():
            ctx.set(dut.rx_pin, bits[cycle // clocks] if cycle // clocks < len(bits) else 1)
            wave.append(ctx.get(dut.tx_pin))
            await ctx.tick()
            if cycle > clocks * (len(bits) + 30) and all(wave[-30 * clocks:]):
                break
        found, place = bytearray(), 0
        while 0 in wave[place:]:
            place = wave.index(0, place) + clocks // 2
            found.append(sum(wave[place + clocks * (n + 1)] << n for n in range(8)))
            assert wave[place + 9 * clocks] == 1
            place += 9 * clocks
        return frames(bytes(found))

    async def testbench(ctx):
        welcome, = await send(ctx, 10, bytes([3, 0, 0, Kind.HELLO]))
        state, = await send(ctx, 10, bytes([3, welcome.number, 0, Kind.OPEN]))
        assert (state.kind, state.body) == (Reply.STATE, bytes([1, welcome.number]))
        answer, = await send(ctx, 10, bytes([3, 0, 0]) + script_request([write(LINK_WINDOW, faster)]))
        assert answer.body == bytes([1, Status.OK])
        state, = await send(ctx, 8, bytes([3, 77, 1, Kind.SYNC]))
        assert (state.number, state.body) == (1, bytes([1, 77]))

    simulation = Simulator(dut)
    simulation.add_clock(1e-6)
    simulation.add_testbench(testbench)
    simulation.run()


@pytest.mark.parametrize(("option", "message"), [
    ({"memory_bytes": 5000}, "memory_bytes must be a power of two from 4096 to 2\\^32, not 5000"),
    ({"memory_bytes": 8192, "memory_base": 4096}, "memory_base must be a multiple of memory_bytes below 2\\^32, not 4096"),
    ({"baud": 10_000_000}, "a bit must last 8 to 4096 clocks"), ({"board": "NO"}, "board must be four ASCII letters"),
])
def test_refused_parameters(option, message):
    with pytest.raises(ValueError, match=message):
        BoardLink(PRESETS["nano"], **option)
