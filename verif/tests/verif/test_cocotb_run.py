"""Benches: the simulator of a component is built once, and again when anything that it is made of changes."""

from pathlib import Path

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import Timer
from cocotb_tools import runner

from gradloom.verif.cocotb_run import run_cocotb


class Adder(wiring.Component):
    """``sum`` is ``a`` and ``more``."""

    def __init__(self, more: int) -> None:
        self.more = more
        super().__init__({"a": In(8), "sum": Out(9)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.sum.eq(self.a + self.more)
        return m


@cocotb.test()
async def one_is_added(dut):
    dut.a.value = 7
    await Timer(1, unit="ns")
    assert dut.sum.value == 8


def test_the_same_simulator_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    builds = []
    build = runner.Verilator.build
    monkeypatch.setattr(runner.Verilator, "build", lambda self, **named: (builds.append(named), build(self, **named)))
    for run in range(2):
        assert run_cocotb(lambda: Adder(1), __file__, tmp_path / f"run{run}") == 1
    assert len(builds) == 1
    with pytest.raises(AssertionError, match="cocotb tests failed"):
        run_cocotb(lambda: Adder(2), __file__, tmp_path / "other")
    assert len(builds) == 2
