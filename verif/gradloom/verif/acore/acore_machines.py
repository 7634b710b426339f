"""The A-Cores that are simulated with cocotb, and how a bench of one begins."""

from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from gradloom.verif.acore.acore_bench import Bench, bench_config, fill
from gradloom.verif.acore.acore_case import AuxReference

__all__ = ["CONFIGS", "CocotbDriver", "start"]

CONFIGS = {"g1w1": bench_config(1, 1), "g2w3": bench_config(2, 3), "g4w2": bench_config(4, 2),
           "g16w1": bench_config(16, 1),
           # In turns of channels, of columns, and of both.
           "g2w1t4": bench_config(2, 1, apu_channels=2, apu_lanes=1, divider_bits=1, apu_shifters="lut"),
           "g4w1t4": bench_config(4, 1, apu_channels=4, divider_bits=1),
           "g4w1t8": bench_config(4, 1, apu_channels=4, apu_lanes=1, divider_bits=1, apu_shifters="lut"),
           "g4w2t2": bench_config(4, 2, apu_channels=2), "g1w1t2": bench_config(1, 1, apu_lanes=1)}

_PERIOD, _SETTLE = 10, 1
"""Nanoseconds of a clock cycle, and from a change to where all that depends on it has its value."""


class CocotbDriver:
    """Ports that the emitted module lacks (unused) are ignored.

    A bench calls this some ten times a cycle, so ports are looked up once, a value that stays is not written again, nobody waits
    for a circuit to settle that nothing has moved, and a cycle is one wait to where it has settled behind the clock's edge.
    """

    def __init__(self, dut) -> None:
        self.dut = dut
        self._ports: dict[str, Any] = {}
        self._held: dict[str, int] = {}
        self._moved = True
        self._since = 0
        """Nanoseconds since the clock's last edge; 0: no edge has been seen."""

    def _port(self, name: str) -> Any:
        if name not in self._ports:
            self._ports[name] = getattr(self.dut, name, None)
        return self._ports[name]

    def set(self, name: str, value: int) -> None:
        port = self._port(name)
        if port is None or self._held.get(name) == value:
            return
        self._held[name], self._moved = value, True
        port.value = value & ((1 << len(port)) - 1)

    def get(self, name: str) -> int:
        return int(self._port(name).value)

    async def settle(self) -> None:
        if self._moved:
            await Timer(_SETTLE, unit="ns")
            self._since += _SETTLE if self._since else 0
            self._moved = False

    async def tick(self) -> None:
        assert self._since < _PERIOD, "the clock's edge has gone by"
        if self._since:
            await Timer(_PERIOD + _SETTLE - self._since, unit="ns")
        else:
            await RisingEdge(self.dut.clk)
            await Timer(_SETTLE, unit="ns")
        self._since, self._moved = _SETTLE, False


async def start(dut, config_name: str, seed: int, *, clock: bool = True) -> Bench:
    """A bench behind a reset, everything quiet, memories filled; ``clock``: it does not run yet."""
    if clock:
        Clock(dut.clk, _PERIOD, unit="ns").start()
    driver = CocotbDriver(dut)
    machine = CONFIGS[config_name]
    quiet = [*(f"load__{n}__valid" for n in range(machine.load_channels)),
             *(f"store__{n}__en" for n in range(machine.store_channels))]
    for name in ("port__start", "port__cmd", "port__slot", "port__tail", *quiet, "psums__data", "gradients__data",
                 "gradients__request__wait", "exponents__e", "seeds__value"):
        driver.set(name, 0)
    dut.rst.value = 1
    for _ in range(3):
        await driver.tick()
    dut.rst.value = 0
    await driver.tick()
    bench = Bench(driver, AuxReference(CONFIGS[config_name], seed))
    bench.set_hyper()
    await bench.adopt(24)
    fill(bench.ref)
    await bench.load_all()
    return bench
