"""The whole machine under cocotb: memory with stalls and planted errors, registers by name, runs to the interrupt."""

import random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, First, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiWriteBus

from gradloom.contracts.config import Config
from gradloom.contracts.engines import LOAD_UNITS, STORE_UNITS
from gradloom.contracts.regmap import ErrorCode, offset, register
from gradloom.rtl.memory_path.axi import port_prefix
from gradloom.verif.configs import machines
from gradloom.verif.memory_bench import BurstLog, FaultyRead, FaultyWrite, stall, start_clock

__all__ = ["MEMORY", "PROGRAM", "WINDOW", "MachineBench", "RegisterBench"]

MEMORY = 1 << 18
WINDOW = (0x2000, 0x20000)
"""DRAM that the machine may touch; the rest of the memory shows any access beyond it."""
PROGRAM = 0x4000


class RegisterBench:
    """Registers by name on ``s_axil``."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)

    async def read(self, name: str) -> int:
        answer = await self.axil.read(offset(name), 4)
        assert answer.resp == 0, f"read of {name}: {answer.resp!r}"
        return int.from_bytes(answer.data, "little")

    async def write(self, name: str, value: int) -> None:
        answer = await self.axil.write(offset(name), (value & 0xFFFFFFFF).to_bytes(4, "little"))
        assert answer.resp == 0, f"write of {name}: {answer.resp!r}"

    async def fields(self, name: str) -> dict[str, int]:
        value = await self.read(name)
        return {bits.name: (value & bits.mask) >> bits.lsb for bits in register(name).fields}

    async def wide(self, name: str) -> int:
        low = await self.read(f"{name}_LOW")
        return await self.read(f"{name}_HIGH") << 32 | low


class MachineBench(RegisterBench):
    """A reset machine with its memory.

    Parameters
    ----------
    seed : :class:`int`
        Of the memory's contents and stalls.
    share : :class:`float`
        Share of the cycles in which a memory channel stands still.
    """

    def __init__(self, dut: Any, *, seed: int = 0, share: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.share = share
        self.dut = dut
        self.beat = len(dut.m_axi_rdata) // 8
        self.read_ports = [port_prefix(n) for n in range(len(LOAD_UNITS)) if hasattr(dut, f"{port_prefix(n)}arvalid")]
        self.write_ports = [port_prefix(n) for n in range(len(STORE_UNITS)) if hasattr(dut, f"{port_prefix(n)}awvalid")]

    @property
    def config(self) -> Config:
        """The preset, or test configuration, with this memory width and these ports."""
        shape = (self.beat, len(self.read_ports), len(self.write_ports))
        return next(config for config in machines().values()
                    if (config.beat_bytes, config.load_channels, config.store_channels) == shape)

    async def begin(self) -> "MachineBench":
        dut = self.dut
        await start_clock(dut)
        super().__init__(dut)
        self.reads, self.writes = [], []
        memory: dict[str, Any] = {"size": MEMORY}
        for prefix in self.read_ports:
            self.reads.append(FaultyRead(AxiReadBus.from_prefix(dut, prefix.removesuffix("_")), dut.clk, dut.rst, **memory))
            memory["mem"] = self.reads[0].mem
        for prefix in self.write_ports:
            self.writes.append(FaultyWrite(AxiWriteBus.from_prefix(dut, prefix.removesuffix("_")), dut.clk, dut.rst, **memory))
        self.ram = self.reads[0]
        self.image = self.rng.randbytes(MEMORY)
        self.ram.write(0, self.image)
        if self.share:
            channels = [channel for port in self.reads for channel in (port.ar_channel, port.r_channel)]
            channels += [channel for port in self.writes for channel in (port.aw_channel, port.w_channel, port.b_channel)]
            for channel in channels:
                channel.set_pause_generator(stall(self.rng, self.share))
        self.bursts = [BurstLog(dut, channel, self.beat, prefix) for channel, ports in
                       (("ar", self.read_ports), ("aw", self.write_ports)) for prefix in ports]
        await self.write("WINDOW_BASE", WINDOW[0])
        await self.write("WINDOW_LIMIT", WINDOW[1])
        await self.write("PROGRAM", PROGRAM)
        await self.write("WATCHDOG", 3000)
        return self

    async def start(self, image: bytes | None = None, *, steps: int = 1, clear: bool = True) -> None:
        if image is not None:
            self.ram.write(PROGRAM, image)
        await self.write("STEPS", steps)
        control = {bits.name: bits.mask for bits in register("CONTROL").fields}
        await self.write("CONTROL", control["start"] | control["irq_enable"] | (control["clear"] if clear else 0))

    async def end(self, limit: int = 100_000) -> dict[str, int]:
        """Wait for the interrupt; STATUS and ERROR fields."""
        if not int(self.dut.irq.value):
            await First(RisingEdge(self.dut.irq), ClockCycles(self.dut.clk, limit))
        assert int(self.dut.irq.value), "no interrupt"
        status = await self.fields("STATUS")
        assert (status["idle"], status["running"], status["stopping"], status["irq"]) == (1, 0, 0, 1)
        assert status["done"] != status["error"]
        await self.write("STATUS", register("STATUS").field("irq").mask)
        await RisingEdge(self.dut.clk)
        assert not int(self.dut.irq.value)
        # Nothing may be under way on the memory port of an idle machine.
        valid = [f"{prefix}arvalid" for prefix in self.read_ports]
        valid += [f"{prefix}{name}" for prefix in self.write_ports for name in ("awvalid", "wvalid")]
        for name in valid:
            assert not int(getattr(self.dut, name).value), name
        error = await self.fields("ERROR")
        assert (error["code"] != 0) == bool(status["error"])
        return status | error

    async def run(self, image: bytes | None = None, *, steps: int = 1, clear: bool = True,
                  limit: int = 100_000) -> dict[str, int]:
        await self.start(image, steps=steps, clear=clear)
        return await self.end(limit)

    async def run_well(self, image: bytes | None = None, **options: Any) -> None:
        outcome = await self.run(image, **options)
        assert outcome["code"] == 0, f"{ErrorCode(outcome['code']).name}, offset {await self.read('ERROR_OFFSET')}"

    def check_window(self) -> None:
        """Every burst so far lay inside the window, and nothing outside was written."""
        for log in self.bursts:
            for address, beats in log.bursts:
                assert WINDOW[0] <= address and address + beats * self.beat <= WINDOW[1], hex(address)
        assert self.ram.read(0, WINDOW[0]) == self.image[:WINDOW[0]]
        assert self.ram.read(WINDOW[1], MEMORY - WINDOW[1]) == self.image[WINDOW[1]:]

    def bad(self, *, reads: range = range(0), writes: range = range(0)) -> None:
        """Addresses that answer with SLVERR on every port."""
        for port in self.reads:
            port.bad = reads
        for port in self.writes:
            port.bad = writes

    def background(self, coroutine: Any) -> None:
        cocotb.start_soon(coroutine)
