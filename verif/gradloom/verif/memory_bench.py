"""What the cocotb testbenches of the AXI4 units share: memories that stall and fail, command words, handshakes."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge
from cocotbext.axi import AxiRamRead, AxiRamWrite

from gradloom.contracts.isa import COMMANDS, HEADER_FIELDS, Opcode
from gradloom.verif.program_case import ANY_COMMAND

__all__ = [
    "MEMORY_BYTES",
    "WINDOW",
    "BurstLog",
    "FaultyRead",
    "FaultyWrite",
    "ManagerBench",
    "command_bits",
    "put",
    "run_command",
    "stall",
    "start_clock",
    "stream_commands",
]

MEMORY_BYTES = 1 << 18
WINDOW = (0x1000, 0x3F000)
"""What an AXI4 manager under test may read or write of it."""


def command_bits(opcode: Opcode, **values: int) -> int:
    """The words of a command as ``CommandPort.cmd`` shows them, word 0 lowest."""
    command = COMMANDS[opcode]
    fields = {field.name: field for field in (*HEADER_FIELDS, *command.fields)}
    bits = 0
    for name, value in ({"opcode": opcode, "length": command.words} | values).items():
        field = fields[name]
        low, high = (-(1 << field.width - 1), 1 << field.width - 1) if field.signed else (0, 1 << field.width)
        if not low <= value < high:
            raise ValueError(f"{opcode.name}.{name} must lie in {low}..{high - 1}, not {value}")
        bits |= (value & (1 << field.width) - 1) << 32 * field.word + field.lsb
    return bits


async def start_clock(dut: Any, **inputs: int) -> None:
    """Start the clock, set ``inputs``, and release the reset."""
    for name, value in inputs.items():
        getattr(dut, name).value = value
    dut.rst.value = 1
    Clock(dut.clk, 10, unit="ns").start()
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


def stall(rng: random.Random, share: float) -> Iterator[bool]:
    """Pause generator: a channel stands still in this share of the cycles, in bursts of random length."""
    while True:
        paused = rng.random() < share
        for _ in range(rng.randint(1, 4)):
            yield paused


async def put(dut: Any, stream: str, payload: int) -> None:
    """Transfer one payload on an input stream."""
    getattr(dut, f"{stream}__payload").value = payload
    getattr(dut, f"{stream}__valid").value = 1
    while True:
        await ReadOnly()
        taken = bool(getattr(dut, f"{stream}__ready").value)
        await RisingEdge(dut.clk)
        if taken:
            break
    getattr(dut, f"{stream}__valid").value = 0


async def run_command(bench: Any, opcode: Opcode, fields: dict[str, int], limit: int = 20000) -> int:
    """Run one command; returns its cycles from start to done (0 after a fault).

    ``bench`` has ``dut`` (with a ``port``), counts ``cycle``, and notes the cycle ``done`` or a ``fault``.
    """
    dut = bench.dut
    bench.done = bench.fault = 0
    dut.port__cmd.value = command_bits(opcode, **fields)
    dut.port__start.value = 1
    await RisingEdge(dut.clk)
    dut.port__start.value = 0
    began = bench.cycle
    for _ in range(limit):
        await RisingEdge(dut.clk)
        if int(dut.port__free.value) and not int(dut.port__start.value):
            dut.port__cmd.value = ANY_COMMAND
        if bench.fault:
            return 0
        if bench.done:
            return bench.done - began
    raise AssertionError(f"timeout: {fields}")


async def stream_commands(bench: Any, opcode: Opcode, commands: list[dict[str, int]], in_flight: int, limit: int = 100000) -> int:
    """Run commands as a queue does that lets them overlap; returns the cycles to the last `done` or to a fault.

    Parameters
    ----------
    bench
        Has ``dut`` (with a ``port``), counts ``cycle``, lists the ``ends`` of commands, notes a ``fault``, and gets in ``most``
        how many commands were under way at once.
    """
    dut = bench.dut
    started, began, wait = 0, bench.cycle, False
    for _ in range(limit):
        free = int(dut.port__free.value) and not wait
        if free:
            dut.port__cmd.value = ANY_COMMAND
        wait = bool(free and started - len(bench.ends) < in_flight and started < len(commands))
        if wait:
            dut.port__cmd.value = command_bits(opcode, **commands[started])
            started += 1
            bench.most = max(bench.most, started - len(bench.ends))
        dut.port__start.value = int(wait)
        await RisingEdge(dut.clk)
        if bench.fault or len(bench.ends) == len(commands):
            return bench.cycle - began
    raise AssertionError(f"timeout after {len(bench.ends)} of {len(commands)} commands")


class ManagerBench:
    """An AXI4 manager under test, with beats of ``beat`` bytes in a memory of :data:`MEMORY_BYTES`."""

    def __init__(self, dut: Any, seed: int, beat: int) -> None:
        self.dut, self.beat, self.rng = dut, beat, random.Random(seed)
        self.errors: list[Any] = []
        self.cycle = 0

    async def until(self, condition: Callable[[], bool], limit: int = 20000) -> None:
        """Wait for a condition."""
        for _ in range(limit):
            if condition():
                return
            await RisingEdge(self.dut.clk)
        raise AssertionError("timeout")

    async def idle(self) -> None:
        """Wait until the manager is idle."""
        await RisingEdge(self.dut.clk)  # a request taken at this edge shows from the next one on
        await self.until(lambda: bool(self.dut.idle.value))

    def requests(self, count: int, longest: int) -> list[tuple[int, int]]:
        """Random ones in the window: (address, beats), short ones more often than others."""
        found = []
        for _ in range(count):
            beats = self.rng.choice([1, 2, 3, self.rng.randint(1, longest)])
            first = self.rng.randrange(WINDOW[0] // self.beat, WINDOW[1] // self.beat - beats)
            found.append((first * self.beat, beats))
        return found


class _Faults:
    """Address ranges that answer with SLVERR."""

    bad: range = range(0)

    def _check(self, address: int) -> None:
        if address in self.bad:
            raise ValueError(f"planted error response at {address:#x}")


class FaultyRead(_Faults, AxiRamRead):
    """AxiRam read half; addresses in ``bad`` answer with SLVERR."""

    async def _read(self, address: int, length: int) -> bytes:
        self._check(address)
        return await super()._read(address, length)


class FaultyWrite(_Faults, AxiRamWrite):
    """AxiRam write half; addresses in ``bad`` answer with SLVERR and are not written."""

    async def _write(self, address: int, data: bytes) -> None:
        self._check(address)
        await super()._write(address, data)


class BurstLog:
    """Records the bursts on an address channel (``ar`` or ``aw``) and checks what AXI4 asks of them.

    Length at most 64 beats, full beats, INCR, no 4 KiB crossing, and signals stable while ``valid`` waits for ``ready``.
    """

    def __init__(self, dut: Any, channel: str, beat_bytes: int, prefix: str = "m_axi_") -> None:
        self.dut = dut
        self.channel = prefix + channel
        self.beat_bytes = beat_bytes
        self.bursts: list[tuple[int, int]] = []
        """Address and beats."""
        cocotb.start_soon(self._watch())

    def _value(self, name: str) -> int:
        return int(getattr(self.dut, f"{self.channel}{name}").value)

    async def _watch(self) -> None:
        held = None
        while True:
            await RisingEdge(self.dut.clk)
            now = (self._value("addr"), self._value("len")) if self._value("valid") else None
            assert held is None or now == held, f"{self.channel} changed from {held} to {now} before it was accepted"
            held = None if now is None or self._value("ready") else now
            if now is None or held is not None:
                continue
            address, beats = now[0], now[1] + 1
            assert beats <= 64
            assert 1 << self._value("size") == self.beat_bytes
            assert self._value("burst") == 1
            assert address % self.beat_bytes == 0
            assert address // 4096 == (address + beats * self.beat_bytes - 1) // 4096, f"{address:#x} crosses 4 KiB"
            self.bursts.append((address, beats))
