"""RtlDevice on a stand-in machine that copies DRAM to DRAM: bytes, cycles, stalls, errors, counters, waveforms, build cache."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect

from gradloom.contracts.config import PRESETS
from gradloom.rtl import shared_module
from gradloom.rtl.fifo import Fifo
from gradloom.rtl.memory_path.axi import lite_members, port_prefix, read_members, write_members
from gradloom.rtl.memory_path.axi_read import ReadManager
from gradloom.rtl.memory_path.axi_write import WriteManager
from gradloom.sim import verilate
from gradloom.sim.rtl_device import BusError, DramModel, RtlDevice

SOURCE, TARGET, BEATS, START = 0, 4, 8, 12
LANE = 0x4000


class Copier(wiring.Component):
    """Copies ``BEATS`` beats from ``SOURCE`` to ``TARGET`` when START is written; irq when every write is answered.

    Port n of ``ports`` does so LANE * n bytes further, at the same time.
    Registers at 0..12, also readable; START reads as the number of error codes seen. Others answer with SLVERR.
    """

    def __init__(self, config, ports=1):
        self.config = config
        self.ports = ports
        members = lite_members() | {"irq": Out(1)}
        for n in range(ports):
            members |= read_members(config, port_prefix(n)) | write_members(config, port_prefix(n))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        managers = [(ReadManager(self.config), WriteManager(self.config)) for _ in range(self.ports)]
        for n, pair in enumerate(managers):
            for half, members, manager in zip(("reads", "writes"), (read_members, write_members), pair, strict=True):
                m.submodules[f"{half}{n}"] = manager
                for name, member in members(self.config).items():
                    outer, inner = getattr(self, port_prefix(n) + name.removeprefix("m_axi_")), getattr(manager, name)
                    m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        registers = Array([Signal(32, name=f"register{n}") for n in range(3)])
        errors = Signal(32)
        m.d.sync += errors.eq(errors + sum(manager.error != 0 for pair in managers for manager in pair))

        write = self.s_axil_awvalid & self.s_axil_wvalid & ~self.s_axil_bvalid
        start = write & (self.s_axil_awaddr == START)
        m.d.comb += [self.s_axil_awready.eq(write), self.s_axil_wready.eq(write)]
        with m.If(self.s_axil_bready):
            m.d.sync += self.s_axil_bvalid.eq(0)
        with m.If(write):
            m.d.sync += [self.s_axil_bvalid.eq(1), self.s_axil_bresp.eq((self.s_axil_awaddr > START) << 1)]
            with m.If(self.s_axil_awaddr < START):
                m.d.sync += registers[self.s_axil_awaddr[2:4]].eq(self.s_axil_wdata)
        read = self.s_axil_arvalid & ~self.s_axil_rvalid
        m.d.comb += self.s_axil_arready.eq(read)
        with m.If(self.s_axil_rready):
            m.d.sync += self.s_axil_rvalid.eq(0)
        with m.If(read):
            m.d.sync += [self.s_axil_rvalid.eq(1), self.s_axil_rresp.eq((self.s_axil_araddr > START) << 1),
                         self.s_axil_rdata.eq(Array([*registers, errors])[self.s_axil_araddr[2:4]])]

        running = Signal()
        asking = Signal(2 * self.ports)
        idle = Cat(manager.idle for pair in managers for manager in pair).all()
        for n, (reads, writes) in enumerate(managers):
            for half, request in enumerate((reads.request[1], writes.request)):
                bit = asking[2 * n + half]
                m.d.comb += [request.valid.eq(bit), request.p.address.eq(registers[half] + LANE * n),
                             request.p.beats.eq(registers[2])]
                with m.If(request.ready):
                    m.d.sync += bit.eq(0)
            fifo = shared_module.add(m, f"fifo{n}", "copier_fifo", Fifo(8 * self.config.beat_bytes, 8))
            m.d.comb += [
                fifo.i.valid.eq(reads.response[1].valid),
                fifo.i.payload.eq(reads.response[1].p.data),
                reads.response[1].ready.eq(fifo.i.ready),
                reads.window_limit.eq(0xFFFFFFFF),
                writes.window_limit.eq(0xFFFFFFFF),
            ]
            connect(m, fifo.o, writes.data)
        # A manager that met an error drops data, so the copy would not end by itself.
        failed = Cat(manager.error != 0 for pair in managers for manager in pair).any()
        with m.If(start):
            m.d.sync += [asking.eq(-1), running.eq(1), self.irq.eq(0)]
        with m.Elif(running & ~start & (((asking == 0) & idle) | failed)):
            m.d.sync += [running.eq(0), self.irq.eq(1)]
        return m


@pytest.fixture(scope="module", params=["nano", "small", "ulx3s", "eta", "eta2x"])
def config(request):
    return PRESETS[request.param]


def source_text(config, ports=1):
    return {"copier.v": shared_module.convert(lambda: Copier(config, ports), "copier")}


@pytest.fixture(scope="module")
def files(config):
    return source_text(config)


@pytest.fixture(scope="module")
def small_files():
    return source_text(PRESETS["small"])


@pytest.fixture(scope="module")
def two_ports():
    return source_text(PRESETS["small"], 2)


def copy(device, beats, source=0x1000, target=0x9000):
    data = random.Random(beats).randbytes(beats * device.beat_bytes)
    device.write(source, data)
    for register, value in ((SOURCE, source), (TARGET, target), (BEATS, beats), (START, 1)):
        device.csr_write(register, value)
    cycles = device.run(100000)
    assert device.irq
    return data, cycles


def test_copy(config, files):
    with RtlDevice(files, top="copier", dram_bytes=1 << 20) as device:
        assert device.beat_bytes == config.beat_bytes
        device.write(0x9000 - 16, b"\xa5" * (700 * device.beat_bytes + 32))
        data, cycles = copy(device, 700)
        assert device.read(0x9000, len(data)) == data
        assert device.read(0x9000 - 16, 16) == b"\xa5" * 16
        assert device.read(0x9000 + len(data), 16) == b"\xa5" * 16
        assert 700 <= cycles < 850
        assert device.csr_read(SOURCE) == 0x1000
        assert device.host_accesses == 5
        assert device.counts() == {"read_beats": 700, "write_beats": 700, "read_bursts": 11, "write_bursts": 11}
        assert device.cycle > cycles


def test_hierarchical_block(small_files):
    runs = []
    for blocks in (frozenset(), frozenset({"copier_fifo"})):
        with RtlDevice(small_files, top="copier", dram_bytes=1 << 20, blocks=blocks) as device:
            data, cycles = copy(device, 100)
            assert device.read(0x9000, len(data)) == data
            runs.append(cycles)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("stall", [0.3, {"r": 0.8, "b": 0.9}])
def test_stalls_change_cycles_not_bytes(small_files, stall):
    runs = []
    for seed in (1, 1, 2):
        with RtlDevice(small_files, top="copier", dram_bytes=1 << 20, dram=DramModel(stall=stall, seed=seed)) as device:
            data, cycles = copy(device, 300)
            assert device.read(0x9000, len(data)) == data
            runs.append(cycles)
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize(("bandwidth", "low", "high"), [(8, 300, 345), (4, 600, 650), (Fraction(1, 3), 7150, 7300)])
def test_bandwidth(small_files, bandwidth, low, high):
    # 300 beats of 4 bytes read and as many written.
    with RtlDevice(small_files, top="copier", dram_bytes=1 << 20, dram=DramModel(bandwidth=bandwidth)) as device:
        data, cycles = copy(device, 300)
        assert device.read(0x9000, len(data)) == data
        assert low <= cycles <= high


@pytest.mark.parametrize(("dram", "low", "high"), [
    (DramModel(), 300, 340),
    (DramModel(bandwidth=16), 300, 345),
    (DramModel(bandwidth=8), 600, 660),
    (DramModel(bandwidth=Fraction(1, 2)), 9550, 9750),
    (DramModel(stall=0.3, seed=4), 380, 800),
    (DramModel(bandwidth=6, stall={"r": 0.4}, latency=50), 800, 1000),
])
def test_ports_share_the_bandwidth(two_ports, dram, low, high):
    """Two ports copy 300 beats of 4 bytes each: both see the whole memory, none is starved."""
    rng = random.Random(9)
    with RtlDevice(two_ports, top="copier", dram_bytes=1 << 20, dram=dram, track_writes=True) as device:
        lanes = [rng.randbytes(300 * device.beat_bytes) for _ in range(2)]
        for n, data in enumerate(lanes):
            device.write(0x1000 + LANE * n, data)
        for register, value in ((SOURCE, 0x1000), (TARGET, 0x9000), (BEATS, 300), (START, 1)):
            device.csr_write(register, value)
        began = device.cycle
        cycles = device.run(100000)
        for n, data in enumerate(lanes):
            assert device.read(0x9000 + LANE * n, len(data)) == data
        assert low <= cycles <= high
        ends = [device.last_write(0x9000 + LANE * n + 299 * device.beat_bytes) - began for n in range(2)]
        assert min(ends) > 0.75 * cycles
        assert device.counts() == {"read_beats": 600, "write_beats": 600, "read_bursts": 10, "write_bursts": 10}


def test_ports_stall_independently(two_ports):
    with RtlDevice(two_ports, top="copier", dram_bytes=1 << 20, dram=DramModel(stall=0.5), track_writes=True) as device:
        copy(device, 100)
        at = [[device.last_write(0x9000 + LANE * n + 4 * beat) for beat in range(100)] for n in range(2)]
        assert at[0] != at[1]


def test_latency(small_files):
    cycles = []
    for latency, write_latency in ((0, 0), (100, 0), (0, 70)):
        model = DramModel(latency=latency, write_latency=write_latency)
        with RtlDevice(small_files, top="copier", dram_bytes=1 << 20, dram=model) as device:
            cycles.append(copy(device, 4)[1])
    assert cycles == [cycles[0], cycles[0] + 100, cycles[0] + 70]


def errors(device):
    """Errors of the managers. They are told some cycles after the answer (``axi.SETTLE``), and each read takes two."""
    for _ in range(8):
        count = device.csr_read(START)
    return count


def test_errors(small_files):
    with RtlDevice(small_files, top="copier", dram_bytes=1 << 16) as device:
        device.fail(0x1010, 0x1011)
        copy(device, 4)
        assert errors(device) == 0
        copy(device, 6)
        assert errors(device) == 1
    with RtlDevice(small_files, top="copier", dram_bytes=1 << 16) as device:
        device.fail(0x9000, 0x9004, decode_error=True)
        data, _ = copy(device, 4)
        assert errors(device) == 1
        assert device.read(0x9000, 16) == bytes(4) + data[4:]
    with RtlDevice(small_files, top="copier", dram_bytes=1 << 16) as device:
        copy(device, 3, target=0xFFF8)
        assert errors(device) == 1, "a write behind the end of the memory must be refused"


def test_last_write(small_files):
    with RtlDevice(small_files, top="copier", dram_bytes=1 << 16, track_writes=True) as device:
        assert device.last_write(0x9000) == 0
        began = device.cycle
        copy(device, 10)
        at = [device.last_write(0x9000 + 4 * n) for n in range(11)]
        assert began < at[0] and at[:10] == sorted(set(at[:10])) and at[9] <= device.cycle
        assert at[10] == 0


def test_misuse(small_files):
    device = RtlDevice(small_files, top="copier", dram_bytes=1 << 16)
    with pytest.raises(BusError, match=r"^write of 0x1 to register 0x20: SLVERR$"):
        device.csr_write(0x20, 1)
    with pytest.raises(BusError, match=r"^read of register 0x20: SLVERR$"):
        device.csr_read(0x20)
    with pytest.raises(IndexError, match=r"^2 bytes at 0xffff lie outside the DRAM of 0x10000 bytes$"):
        device.write(0xFFFF, b"ab")
    with pytest.raises(RuntimeError, match="this build has none"):
        device.trace("x.fst")
    assert device.run(1000) == 1000
    device.close()
    device.close()
    with pytest.raises(ValueError, match=r"^this device is closed$"):
        device.csr_read(0)
    with pytest.raises(ValueError, match=r"^stall names channels x; they are ar, r, aw, w, b$"):
        DramModel(stall={"x": 0.5})
    with pytest.raises(ValueError, match=r"^bandwidth must be positive"):
        DramModel(bandwidth=0)


def test_waveform(small_files, tmp_path):
    sizes = []
    for cycles in (40, 4000):
        path = tmp_path / f"{cycles}.fst"
        with RtlDevice(small_files, top="copier", dram_bytes=1 << 20, trace=True) as device:
            device.trace(path, first=device.cycle + 10, cycles=cycles)
            data, _ = copy(device, 3000)
            assert device.read(0x9000, len(data)) == data
        assert b"m_axi_araddr" in path.read_bytes(), "the hierarchy is stored as literals"
        sizes.append(path.stat().st_size)
    assert 0 < sizes[0] < sizes[1]


def test_build_cache(small_files, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = verilate.build_library(small_files, top="copier")
    assert first.is_relative_to(tmp_path)
    before = first.stat().st_mtime_ns
    assert verilate.build_library(small_files, top="copier") == first
    assert first.stat().st_mtime_ns == before
    edited = {"copier.v": small_files["copier.v"].replace("'h1", "'h0", 1)}
    assert edited != small_files
    assert verilate.build_library(edited, top="copier") != first
    with pytest.raises(verilate.BuildError, match="verilator failed"):
        verilate.build_library({"copier.v": "module copier(; endmodule"}, top="copier")
    assert [path.name for path in (tmp_path / "gradloom" / "sim").iterdir() if path.name.startswith("build-")] == []


def test_what_two_want_at_once_is_built_once(tmp_path, monkeypatch):
    """The second one waits for the first; when that fails, it builds itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    builds = []

    def build(work, *_):
        builds.append(work)
        time.sleep(0.3)
        if len(builds) == 1:
            raise verilate.BuildError("interrupted")
        (work / "obj").mkdir()
        (work / "obj" / "libmachine.so").write_text("a library")
        (work / "build.log").write_text("")

    monkeypatch.setattr(verilate, "_build", build)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(verilate.build_library, {"a.v": ""}, top="a") for _ in range(4)]
    failed = [job for job in found if job.exception()]
    assert len(builds) == 2 and len(failed) == 1
    assert {job.result().read_text() for job in found if job not in failed} == {"a library"}
