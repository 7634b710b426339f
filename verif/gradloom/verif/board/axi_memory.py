"""A plain AXI4 subordinate in Python with latency and random stalls, and the project's AXI4 checker at a port."""

import ctypes
import functools
import random
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import gradloom.sim.verilate
from gradloom.verif.board.axi_traffic import DECERR
from gradloom.verif.board.packed import Ports

__all__ = ["PortChecker", "Subordinate"]


class Subordinate:
    """A memory at the ports ``prefix`` of a component that is the manager there. It answers in order, DECERR beyond its size.

    Attributes
    ----------
    bursts : :class:`list` of (channel, address, beats)
        In the order in which their addresses came.
    """

    def __init__(self, prefix: str, beat: int, memory: bytearray, *, latency: int = 3, seed: int = 1,
                 stalls: Mapping[str, float] | None = None, outstanding: int = 64) -> None:
        self.prefix, self.beat, self.memory, self.latency, self.outstanding = prefix, beat, memory, latency, outstanding
        self.rng, self.stalls = random.Random(seed), dict(stalls or {})
        self.bursts: list[tuple[str, int, int]] = []
        self.reads: deque[list[int]] = deque()   # address, beats left, cycle of the first
        self.writes: deque[list[int]] = deque()  # address, beats left, response
        self.early: deque[int] = deque()         # write data ahead of their address
        self.answers: deque[tuple[int, int]] = deque()
        self.shown: dict[str, int | None] = {"r": None, "b": None}
        self.cycle = 0

    def _moves(self, channel: str) -> bool:
        return not (channel in self.stalls and self.rng.random() < self.stalls[channel])

    def _word(self) -> int:
        """The read beat that is due: data, response, last."""
        address, left, _ = self.reads[0]
        beyond = address + self.beat > len(self.memory)
        data = 0 if beyond else int.from_bytes(self.memory[address:address + self.beat], "little")
        return data | (DECERR if beyond else 0) << 8 * self.beat | (left == 1) << 8 * self.beat + 2

    def drive(self, ports: Ports) -> None:
        prefix = self.prefix
        if self.shown["r"] is None and self.reads and self.reads[0][2] <= self.cycle and self._moves("r"):
            self.shown["r"] = self._word()
        if self.shown["b"] is None and self.answers and self.answers[0][0] <= self.cycle and self._moves("b"):
            self.shown["b"] = self.answers[0][1]
        for channel, payload in self.shown.items():
            ports[f"{prefix}__{channel}__valid"] = payload is not None
            ports[f"{prefix}__{channel}__payload"] = payload or 0
        ports[f"{prefix}__ar__ready"] = len(self.reads) < self.outstanding and self._moves("ar")
        ports[f"{prefix}__aw__ready"] = len(self.writes) < self.outstanding and self._moves("aw")
        ports[f"{prefix}__w__ready"] = self._moves("w")

    def sample(self, ports: Ports) -> None:
        prefix = self.prefix
        self.cycle += 1
        if self.shown["r"] is not None and ports[f"{prefix}__r__ready"]:
            self.shown["r"] = None
            self.reads[0][0] += self.beat
            self.reads[0][1] -= 1
            if not self.reads[0][1]:
                self.reads.popleft()
        if self.shown["b"] is not None and ports[f"{prefix}__b__ready"]:
            self.shown["b"] = None
            self.answers.popleft()
        for channel, queue in (("ar", self.reads), ("aw", self.writes)):
            if ports[f"{prefix}__{channel}__valid"] and ports[f"{prefix}__{channel}__ready"]:
                payload = ports[f"{prefix}__{channel}__payload"]
                address, beats = payload & 0xFFFFFFFF, (payload >> 32) + 1
                self.bursts.append((channel, address, beats))
                address = address // self.beat * self.beat
                queue.append([address, beats, self.cycle + self.latency] if channel == "ar" else [address, beats, 0])
        if ports[f"{prefix}__w__ready"] and ports[f"{prefix}__w__valid"]:
            self.early.append(ports[f"{prefix}__w__payload"])
        while self.early and self.writes:
            self._write(self.early.popleft())

    def _write(self, payload: int) -> None:
        burst, bits = self.writes[0], 8 * self.beat
        for i in range(self.beat):
            if burst[0] + i >= len(self.memory):
                burst[2] = DECERR
            elif payload >> bits + i & 1:
                self.memory[burst[0] + i] = payload >> 8 * i & 255
        burst[0] += self.beat
        burst[1] -= 1
        assert (payload >> bits + self.beat) == (burst[1] == 0), f"{self.prefix} cycle {self.cycle}: last of write data"
        if not burst[1]:
            self.answers.append((self.cycle + self.latency, burst[2]))
            self.writes.popleft()


_NAMES = ("arvalid", "arready", "arlen", "awvalid", "awready", "awlen", "rvalid", "rready", "rlast", "rresp",
          "wvalid", "wready", "wlast", "bvalid", "bready", "bresp", "id", "size", "burst", "cache", "prot")
_WRAPPER = """
#include "axi_checker.h"
using namespace gradloom;
struct Signals {{ uint8_t {names}; uint8_t wstrb[8]; uint32_t araddr, awaddr; uint8_t rdata[64], wdata[64]; }};
extern "C" AxiChecker* checker_new(Signals* s, uint32_t beat) {{
    auto checker = new AxiChecker(beat);
    checker->add(ReadPort{{"read", {{&s->arvalid, &s->arready, &s->id, &s->arlen, &s->size, &s->burst, &s->cache, &s->prot,
                                    &s->araddr}}, &s->rvalid, &s->rready, &s->id, &s->rresp, &s->rlast, s->rdata}});
    checker->add(WritePort{{"write", {{&s->awvalid, &s->awready, &s->id, &s->awlen, &s->size, &s->burst, &s->cache, &s->prot,
                                      &s->awaddr}},
                           &s->wvalid, &s->wready, &s->wlast, &s->bvalid, &s->bready, &s->id, &s->bresp, s->wdata, s->wstrb}});
    return checker;
}}
extern "C" void checker_own_beat(AxiChecker* checker, uint32_t bytes) {{ checker->own_beat(bytes); }}
extern "C" void checker_check(AxiChecker* checker, uint64_t cycle) {{ checker->check(cycle, false); }}
extern "C" const char* checker_violations(AxiChecker* checker) {{ return checker->violations().c_str(); }}
extern "C" void checker_delete(AxiChecker* checker) {{ delete checker; }}
""".format(names=", ".join(_NAMES))


class _Signals(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_uint8) for name in _NAMES), ("wstrb", ctypes.c_uint8 * 8), ("araddr", ctypes.c_uint32),
                ("awaddr", ctypes.c_uint32), ("rdata", ctypes.c_uint8 * 64), ("wdata", ctypes.c_uint8 * 64)]


@functools.cache
def _checker() -> ctypes.CDLL:
    sources = Path(gradloom.sim.verilate.__file__).parent
    with tempfile.TemporaryDirectory(prefix="checker-") as folder:
        (Path(folder) / "wrapper.cpp").write_text(_WRAPPER)
        subprocess.run([gradloom.sim.verilate.compiler() or "c++", "-std=gnu++17", "-O1", "-shared", "-fPIC", f"-I{sources}",
                        f"{folder}/wrapper.cpp", "-o", f"{folder}/checker.so"], check=True)
        library = ctypes.CDLL(f"{folder}/checker.so")
    library.checker_new.restype, library.checker_new.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint32]
    library.checker_own_beat.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.checker_check.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.checker_violations.restype, library.checker_violations.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    library.checker_delete.argtypes = [ctypes.c_void_p]
    return library


class PortChecker:
    """``axi_checker.h`` at the ports ``prefix``, the same that looks at a machine's ports in every simulation.

    What :class:`~gradloom.rtl.board.memory.axi_bus.AxiSignature` does not carry has its constant value. The manager must take every
    answer at once and write whole beats, as a machine does; of ``own`` bytes each, if the port is wider than those.
    """

    def __init__(self, prefix: str, beat: int, *, own: int | None = None) -> None:
        self.prefix, self.beat, self.cycle = prefix, beat, 0
        self._library = _checker()
        self._signals = _Signals(size=beat.bit_length() - 1, burst=1, cache=3)
        self._handle: int | None = self._library.checker_new(ctypes.byref(self._signals), beat)
        if own is not None:
            self._library.checker_own_beat(self._handle, own)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.checker_delete(self._handle)

    def drive(self, ports: Ports) -> None:
        pass

    def sample(self, ports: Ports) -> None:
        signals, bits = self._signals, 8 * self.beat
        for channel in ("ar", "r", "aw", "w", "b"):
            for name in ("valid", "ready"):
                setattr(signals, channel + name, ports[f"{self.prefix}__{channel}__{name}"])
        payload = {channel: ports[f"{self.prefix}__{channel}__payload"] for channel in ("ar", "r", "aw", "w", "b")}
        for channel in ("ar", "aw"):
            setattr(signals, f"{channel}addr", payload[channel] & 0xFFFFFFFF)
            setattr(signals, f"{channel}len", payload[channel] >> 32)
        signals.wdata[:self.beat] = (payload["w"] & (1 << bits) - 1).to_bytes(self.beat, "little")
        signals.wstrb[:8] = (payload["w"] >> bits & (1 << self.beat) - 1).to_bytes(8, "little")
        signals.wlast, signals.rlast = payload["w"] >> bits + self.beat, payload["r"] >> bits + 2
        signals.rresp, signals.bresp = payload["r"] >> bits & 3, payload["b"]
        self._library.checker_check(self._handle, self.cycle)
        self.cycle += 1

    @property
    def violations(self) -> list[str]:
        text = self._library.checker_violations(self._handle).decode()
        return text.split("\n") if text else []
