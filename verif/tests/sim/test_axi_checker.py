"""The checker of the AXI ports: every rule broken once, alone; legal traffic that breaks none; what the device does about it."""

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

import gradloom.sim.verilate
from gradloom.sim.rtl_device import RtlDevice
from gradloom.sim.simulation import ProtocolError

BEAT = 4
BYTES = ["rst"]
BYTES += [f"{channel}{name}" for channel in ("ar", "aw")
          for name in ("valid", "ready", "id", "len", "size", "burst", "cache", "prot")]
BYTES += ["rvalid", "rready", "rid", "rresp", "rlast", "wvalid", "wready", "wlast", "wstrb", "bvalid", "bready", "bid", "bresp"]
BYTES += [f"lite_{name}" for name in ("awvalid", "awready", "wvalid", "wready", "bvalid", "bready", "bresp", "arvalid", "arready",
                                      "rvalid", "rready", "rresp")]
WORDS = ["araddr", "awaddr", "rdata", "wdata", "lite_rdata"]


class Signals(ctypes.Structure):
    """All signals of a read port, a write port and an AXI4-Lite port."""

    _fields_ = [(name, ctypes.c_uint8) for name in BYTES] + [(name, ctypes.c_uint32) for name in WORDS]


def _address(channel: str) -> str:
    names = ("valid", "ready", "id", "len", "size", "burst", "cache", "prot", "addr")
    return "{" + ", ".join(f"&s->{channel}{name}" for name in names) + "}"


def _pointers(*names: str) -> str:
    return ", ".join(f"&s->{name}" for name in names)


WRAPPER = f"""
#include "axi_checker.h"
using namespace gradloom;
struct Signals {{ uint8_t {", ".join(BYTES)}; uint32_t {", ".join(WORDS)}; }};
extern "C" AxiChecker* checker_new(Signals* s) {{
    auto checker = new AxiChecker({BEAT});
    checker->add(ReadPort{{"read", {_address("ar")}, {_pointers("rvalid", "rready", "rid", "rresp", "rlast", "rdata")}}});
    checker->add(WritePort{{"write", {_address("aw")}, {_pointers("wvalid", "wready", "wlast", "bvalid", "bready", "bid", "bresp",
                                                                  "wdata", "wstrb")}}});
    checker->add(LitePort{{"lite", {_pointers(*(f"lite_{name}" for name in (
        "awvalid", "awready", "wvalid", "wready", "bvalid", "bready", "bresp", "arvalid", "arready", "rvalid", "rready", "rresp",
        "rdata")))}}});
    return checker;
}}
extern "C" void checker_check(AxiChecker* checker, uint64_t cycle, int reset) {{ checker->check(cycle, reset); }}
extern "C" void checker_fence(AxiChecker* checker, uint64_t first, uint64_t limit) {{ checker->fence(first, limit); }}
extern "C" void checker_own_beat(AxiChecker* checker, uint32_t bytes) {{ checker->own_beat(bytes); }}
extern "C" const char* checker_violations(AxiChecker* checker) {{ return checker->violations().c_str(); }}
extern "C" void checker_delete(AxiChecker* checker) {{ delete checker; }}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checker")
    (folder / "wrapper.cpp").write_text(WRAPPER)
    sources = Path(gradloom.sim.verilate.__file__).parent
    subprocess.run(["c++", "-std=gnu++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{sources}",
                    str(folder / "wrapper.cpp"), "-o", str(folder / "checker.so")], check=True)
    found = ctypes.CDLL(str(folder / "checker.so"))
    found.checker_new.restype = ctypes.c_void_p
    found.checker_violations.restype = ctypes.c_char_p
    for name, arguments in (("check", [ctypes.c_uint64, ctypes.c_int]), ("fence", [ctypes.c_uint64] * 2), ("violations", []),
                            ("own_beat", [ctypes.c_uint32]),
                            ("delete", [])):
        getattr(found, f"checker_{name}").argtypes = [ctypes.c_void_p, *arguments]
    return found


def play(library, cycles, fence=None, own_beat=BEAT):
    """Violations of a waveform: each cycle gives the signals that are not 0 (BREADY: not 1), behind a reset of two cycles."""
    signals = Signals()
    checker = library.checker_new(ctypes.byref(signals))
    library.checker_own_beat(checker, own_beat)
    if fence:
        library.checker_fence(checker, *fence)
    for number, cycle in enumerate(cycles):
        for name in (*BYTES, *WORDS):
            setattr(signals, name, cycle.get(name, int(name in ("bready", "wready"))))
        library.checker_check(checker, number, signals.rst)
    text = library.checker_violations(checker).decode()
    library.checker_delete(checker)
    return text.split("\n") if text else []


RESET = [{"rst": 1}, {"rst": 1}, {}]
"""Three cycles: the first one of a waveform is cycle 3."""


def offer(channel, address=0x1000, beats=1, ready=1, **changes):
    """A legal burst on AR or AW."""
    signals = {"valid": 1, "ready": ready, "addr": address, "len": beats - 1, "size": 2, "burst": 1, "cache": 3} | changes
    return {channel + name: value for name, value in signals.items()}


def beat(data=0, last=0, strobes=15, ready=1):
    return {"wvalid": 1, "wready": ready, "wdata": data, "wlast": last, "wstrb": strobes}


B = {"bvalid": 1}
ADDRESS = {
    "VALID was withdrawn before READY": ([{"ready": 0}, None], 4),
    "the address or its attributes changed before READY": ([{"ready": 0}, {"len": 1}], 4),
    "BURST is not INCR": ([{"burst": 2}], 3),
    "SIZE is not a whole beat": ([{"size": 1}], 3),
    "LEN is more than 64 beats": ([{"len": 64}], 3),
    "the address is no multiple of the beat": ([{"addr": 0x1002}], 3),
    "the burst crosses 4 KiB": ([{"addr": 0x1FFC, "len": 1}], 3),
    "ID is not 0": ([{"id": 1}], 3),
    "CACHE or PROT is not the machine's": ([{"cache": 2}], 3),
}


@pytest.mark.parametrize("rule", ADDRESS)
@pytest.mark.parametrize("channel", ["ar", "aw"])
def test_address_channels(library, channel, rule):
    offers, cycle = ADDRESS[rule]
    waveform = [{} if changes is None else offer(channel, **changes) for changes in offers]
    port = {"ar": "read", "aw": "write"}[channel]
    place = f"{waveform[-1][f'{channel}addr']:#x}" if waveform[-1] else "0"
    assert play(library, [*RESET, *waveform]) == [f"{port} in cycle {cycle}: {channel.upper()}: {rule}, address {place}"]


@pytest.mark.parametrize("name", ["addr", "len", "id", "size", "burst", "cache", "prot"])
@pytest.mark.parametrize("channel", ["ar", "aw"])
def test_every_part_of_an_address_must_stay(library, channel, name):
    """The change alone is told, for the first offer was a legal one."""
    first = offer(channel, ready=0)
    changed = first | {channel + name: first.get(channel + name, 0) ^ 4}
    assert [line.split(": ")[2].split(",")[0] for line in play(library, [*RESET, first, changed])] == [
        "the address or its attributes changed before READY"]


def test_a_withdrawn_and_a_new_offer_are_two(library):
    waveform = [offer("ar", ready=0), {}, offer("ar", 0x2000)]
    assert len(play(library, [*RESET, *waveform])) == 1


@pytest.mark.parametrize(("address", "beats", "inside"), [
    (0x1000, 1, True), (0x0FFC, 1, False), (0x0FFC, 2, False), (0x1FF8, 2, True), (0x1FFC, 1, True), (0x2000, 1, False)])
@pytest.mark.parametrize("channel", ["ar", "aw"])
def test_fence(library, channel, address, beats, inside):
    seen = play(library, [*RESET, offer(channel, address, beats)], fence=(0x1000, 0x2000))
    assert any("the burst leaves the fence" in line for line in seen) == (not inside)


AW2 = offer("aw", 0x1000, 2)
DATA = {
    "W: VALID was withdrawn before READY": [AW2, beat(ready=0), {}],
    "W: data, strobes or LAST changed before READY": [AW2, beat(1, ready=0), beat(2)],
    "W: a beat without an address": [beat(last=1)],
    "WLAST before the last beat": [AW2, beat(last=1)],
    "no WLAST at the last beat": [AW2, beat(), beat()],
    "WSTRB is neither all nor none": [AW2, beat(strobes=7)],
    "WSTRB is set again while bursts end without strobes": [AW2, beat(strobes=0), beat(last=1)],
    "AW: a new address while bursts end without strobes": [AW2, beat(strobes=0), offer("aw", 0x1000, 1)],
    "BREADY is low while a response waits": [AW2, beat(), beat(last=1), B | {"bready": 0}],
}


@pytest.mark.parametrize("rule", DATA)
def test_write_data_and_responses(library, rule):
    waveform = [*RESET, *DATA[rule]]
    seen = play(library, waveform)
    assert len(seen) == 1 and seen[0].startswith(f"write in cycle {len(waveform) - 1}: {rule}")


@pytest.mark.parametrize("changed", [{"wdata": 1}, {"wstrb": 0}, {"wlast": 1}])
def test_every_part_of_a_beat_must_stay(library, changed):
    seen = play(library, [*RESET, AW2, beat(ready=0), beat(ready=0) | changed])
    assert len(seen) == 1 and "W: data, strobes or LAST changed before READY" in seen[0]


def test_the_place_of_a_beat_is_told(library):
    seen = play(library, [*RESET, offer("aw", 0x1100, 3), beat(), beat(strobes=1), beat(last=1), B])
    assert seen == ["write in cycle 5: WSTRB is neither all nor none, address 0x1104"]


PART, AGAIN = "WSTRB is not that of whole beats side by side", "WSTRB is set again while bursts end without strobes"


@pytest.mark.parametrize(("own", "strobes", "rule"), [
    (2, (0b1100, 0b1111, 0b0011), None), (2, (0b1111, 0b0011, 0), None), (2, (0b0011, 0, 0), None), (2, (0, 0, 0), None),
    (1, (0b1000, 0b1111, 0b0111), None), (1, (0b1110, 0b1111, 0b0001), None),
    (2, (0b1111, 0b1100, 0b1111), PART), (2, (0b0110, 0b1111, 0b1111), PART), (2, (0b1110, 0b1111, 0b1111), PART),
    (1, (0b1010, 0b1111, 0b1111), PART), (2, (0b1111, 0b0011, 0b1111), AGAIN), (2, (0b1111, 0, 0b1111), AGAIN)])
def test_ports_wider_than_the_beats(library, own, strobes, rule):
    """Only a burst's first word may lack its first beats; where another than its last one lacks the last beats, nothing is written
    any more."""
    words = [beat(strobes=word, last=n == 2) for n, word in enumerate(strobes)]
    seen = play(library, [*RESET, offer("aw", 0x1000, 3), *words, B], own_beat=own)
    assert [line.split(": ")[1].split(",")[0] for line in seen] == ([] if rule is None else [rule])


LITE_WRITE = {f"lite_{name}": 1 for name in ("awvalid", "awready", "wvalid", "wready")}
LITE_READ = {"lite_arvalid": 1, "lite_arready": 1}
LITE_B, LITE_R = {"lite_bvalid": 1}, {"lite_rvalid": 1}
LITE = {
    "BVALID was withdrawn before BREADY": [LITE_WRITE, LITE_B, {}],
    "BRESP changed before BREADY": [LITE_WRITE, LITE_B, LITE_B | {"lite_bresp": 2}],
    "BVALID without an address and its data": [LITE_WRITE, LITE_B | {"lite_bready": 1}, LITE_B | {"lite_bready": 1}],
    "BRESP is neither OKAY nor SLVERR": [LITE_WRITE, LITE_B | {"lite_bresp": 1}],
    "RVALID was withdrawn before RREADY": [LITE_READ, LITE_R, {}],
    "RDATA or RRESP changed before RREADY": [LITE_READ, LITE_R, LITE_R | {"lite_rdata": 1}],
    "RVALID without an address": [LITE_READ, LITE_R | {"lite_rready": 1}, LITE_R | {"lite_rready": 1}],
    "RRESP is neither OKAY nor SLVERR": [LITE_READ, LITE_R | {"lite_rresp": 3}],
}


@pytest.mark.parametrize("rule", LITE)
def test_registers(library, rule):
    waveform = [*RESET, *LITE[rule]]
    assert play(library, waveform) == [f"lite in cycle {len(waveform) - 1}: {rule}"]


@pytest.mark.parametrize("missing", [("lite_awvalid",), ("lite_wvalid",), ("lite_awready",), ("lite_wready",)])
def test_a_write_of_a_register_needs_address_and_data(library, missing):
    asked = {name: value for name, value in LITE_WRITE.items() if name not in missing}
    assert play(library, [*RESET, asked, LITE_B]) == ["lite in cycle 4: BVALID without an address and its data"]


@pytest.mark.parametrize(("port", "name"), [("read", "arvalid"), ("write", "awvalid"), ("write", "wvalid"), ("lite", "lite_bvalid"),
                                            ("lite", "lite_rvalid")])
@pytest.mark.parametrize(("cycle", "rule"), [
    (0, None), (1, None), (2, "is high in reset"), (3, "is high in the first cycle behind reset")])
def test_reset(library, port, name, cycle, rule):
    """The reset is synchronous, and reaches the engines a cycle later: in its first two cycles the machine may still go on."""
    waveform = [{"rst": 1}, *(dict(signals) for signals in RESET)]
    waveform[cycle][name] = 1
    shown = name.removeprefix("lite_").upper()
    assert play(library, [*waveform, {}]) == ([f"{port} in cycle {cycle}: {shown} {rule}"] if rule else [])


def test_a_reset_forgets_everything(library):
    """No offer is held over it, and no burst or register access is open behind it."""
    open_ones = [AW2 | offer("ar", ready=0) | LITE_WRITE | LITE_READ, beat(ready=0, strobes=0) | offer("ar", ready=0)]
    assert play(library, [*RESET, *open_ones, *RESET, AW2, beat(), beat(last=1), B, {}]) == []
    assert len(play(library, [*RESET, *open_ones, *RESET, beat(last=1) | LITE_B | LITE_R])) == 3


def test_no_more_than_32_are_kept(library):
    assert len(play(library, [*RESET, *[offer("ar", burst=0)] * 100])) == 32


def legal_traffic(seed):
    """Random bursts with stalls on every channel, some of them ended without strobes, and register accesses."""
    rng = random.Random(seed)
    cycles, bursts, answers = [dict(signals) for signals in RESET], [], 0
    address = held_beat = held_ar = None
    lite_reads = lite_writes = finishing = 0
    for _ in range(2000):
        now = {"wready": 0}
        if address is None and not finishing and rng.random() < 0.2 and len(bursts) < 3:
            beats = rng.randint(1, 64)
            page = rng.randrange(4, 100) * 4096
            address = page + 4 * rng.randrange(1024 - beats + 1), beats
            bursts.append([address[1], 0])
        if address is not None:
            ready = int(rng.random() < 0.4)
            now |= offer("aw", *address, ready=ready)
            address = None if ready else address
        if held_beat is None and bursts and rng.random() < 0.7:
            finishing = finishing or rng.random() < 0.01
            held_beat = beat(rng.getrandbits(32), bursts[0][1] + 1 == bursts[0][0], 0 if finishing else 15)
        if held_beat is not None:
            ready = int(rng.random() < 0.6)
            now |= held_beat | {"wready": ready}
            if ready:
                held_beat = None
                bursts[0][1] += 1
                if bursts[0][1] == bursts[0][0]:
                    bursts.pop(0)
                    answers += 1
        elif answers and rng.random() < 0.3:
            now |= B
            answers -= 1
            finishing = bool(finishing and (answers or bursts))
        if held_ar is None and rng.random() < 0.5:
            held_ar = offer("ar", 4096 + 256 * rng.randrange(16), rng.randint(1, 64), ready=0)
        if held_ar is not None:
            ready = int(rng.random() < 0.5)
            now |= held_ar | {"arready": ready}
            held_ar = None if ready else held_ar
        if lite_writes:
            now |= LITE_B | {"lite_bready": int(rng.random() < 0.5), "lite_bresp": 2}
            lite_writes -= now["lite_bready"]
        elif rng.random() < 0.3:
            now |= LITE_WRITE
            lite_writes = 1
        if lite_reads:
            now |= LITE_R | {"lite_rready": int(rng.random() < 0.5), "lite_rdata": 5}
            lite_reads -= now["lite_rready"]
        elif rng.random() < 0.3:
            now |= LITE_READ
            lite_reads = 1
        cycles.append(now)
    return cycles


@pytest.mark.parametrize("seed", range(4))
def test_legal_traffic(library, seed):
    assert play(library, legal_traffic(seed)) == []


MACHINE = """
module machine(
  input clk, input rst, output irq,
  input [15:0] s_axil_awaddr, input [2:0] s_axil_awprot, input s_axil_awvalid, output s_axil_awready,
  input [31:0] s_axil_wdata, input [3:0] s_axil_wstrb, input s_axil_wvalid, output s_axil_wready,
  output [1:0] s_axil_bresp, output reg s_axil_bvalid, input s_axil_bready,
  input [15:0] s_axil_araddr, input [2:0] s_axil_arprot, input s_axil_arvalid, output s_axil_arready,
  output [31:0] s_axil_rdata, output [1:0] s_axil_rresp, output reg s_axil_rvalid, input s_axil_rready,
  PORTS);
  assign irq = 0;
  assign s_axil_awready = s_axil_awvalid & s_axil_wvalid & ~s_axil_bvalid, s_axil_wready = s_axil_awready, s_axil_bresp = 0;
  assign s_axil_arready = s_axil_arvalid & ~s_axil_rvalid, s_axil_rdata = 0, s_axil_rresp = 0;
  // The host writes a burst to a register: bits 31:1 << 1 are its address, bit 0 says on which of two ports; 64 beats.
  reg [1:0] show = 0; reg [31:0] address; reg run = 0;
  always @(posedge clk) begin
    run <= ~rst;
    show <= s_axil_awready ? (s_axil_wdata[0] ? 2'd2 : 2'd1) : 2'd0;
    address <= {s_axil_wdata[31:1], 1'b0};
    s_axil_bvalid <= s_axil_awready;
    s_axil_rvalid <= s_axil_arready;
  end
  BODY
endmodule
"""
PORT = """
  output {0}arid, output [31:0] {0}araddr, output [7:0] {0}arlen, output [2:0] {0}arsize, output [1:0] {0}arburst,
  output [3:0] {0}arcache, output [2:0] {0}arprot, output {0}arvalid, input {0}arready,
  input {0}rid, input [31:0] {0}rdata, input [1:0] {0}rresp, input {0}rlast, input {0}rvalid, output {0}rready"""
BODY = """
  assign {0}arid = 0, {0}araddr = address, {0}arlen = 63, {0}arsize = 2, {0}arburst = 1, {0}arcache = 3, {0}arprot = 0;
  assign {0}arvalid = show[{1}] | ({2}), {0}rready = 1;"""


def machine(early=("0", "0")):
    """Two read ports; ``early`` says when each raises ARVALID unasked."""
    ports = ("m_axi_", "m1_axi_")
    return {"machine.v": MACHINE.replace("PORTS", ",".join(PORT.format(port) for port in ports)).replace(
        "BODY", "".join(BODY.format(port, n, when) for n, (port, when) in enumerate(zip(ports, early, strict=True))))}


GOOD, CROSSING = 0x2000, 0x2F80


@pytest.fixture
def device():
    with RtlDevice(machine(), top="machine", dram_bytes=1 << 16) as device:
        device._told = True  # the violations below are wanted, and looked at one by one
        yield device


def violate(device, port=1):
    device._library.gradloom_csr_write(device._self, 0, CROSSING | port)


@pytest.mark.parametrize("access", [lambda device: device.run(10), lambda device: device.read(0, 1),
                                    lambda device: device.csr_read(0), lambda device: device.csr_write(0, GOOD)])
def test_every_access_after_a_violation_raises(device, access):
    access(device)
    cycle = device.cycle
    violate(device)
    for _ in range(2):
        with pytest.raises(ProtocolError) as told:
            access(device)
        line = told.value.violations[0]
        assert str(told.value) == f"AXI protocol violated: {line}"
        assert line.startswith(f"m1_axi_ in cycle {cycle + 1}: AR: the burst crosses 4 KiB, address {CROSSING:#x}")


def test_several_violations_are_one_error(device):
    violate(device)
    violate(device, port=0)
    with pytest.raises(ProtocolError, match=r"^AXI protocol violated: m1_axi_ in cycle .* \(and 1 more\)$") as told:
        device.run(1)
    assert [line.split()[0] for line in told.value.violations] == ["m1_axi_", "m_axi_"]


def test_a_device_is_not_closed_in_silence():
    """Nor does it hide another error behind its own."""
    device = RtlDevice(machine(), top="machine", dram_bytes=1 << 16)
    violate(device)
    with pytest.raises(ProtocolError):
        device.close()
    device.close()
    with pytest.raises(ProtocolError), RtlDevice(machine(), top="machine", dram_bytes=1 << 16) as device:
        violate(device)
    with pytest.raises(ZeroDivisionError), RtlDevice(machine(), top="machine", dram_bytes=1 << 16) as device:
        violate(device)
        raise ZeroDivisionError


def test_the_fence_of_a_device(device):
    device.fence(GOOD, GOOD + 256)
    device.csr_write(0, GOOD)
    device.fence(GOOD, GOOD + 252)
    with pytest.raises(ProtocolError, match=f"m_axi_ in cycle .*: AR: the burst leaves the fence, address {GOOD:#x}"):
        device.csr_write(0, GOOD)


def test_a_machine_is_silent_in_reset_and_a_cycle_longer():
    with pytest.raises(ProtocolError) as told:
        RtlDevice(machine(("rst", "~rst & ~run")), top="machine", dram_bytes=1 << 16).close()
    seen = [line.split(" in cycle ") for line in told.value.violations]
    assert [(port, rule.split(": ")[1]) for port, rule in seen] == [
        *[("m_axi_", "ARVALID is high in reset")] * 6, ("m1_axi_", "ARVALID is high in the first cycle behind reset")]
