"""The committed sample: every module of the RTL that has statements is in it, it follows from the seed, and it fits the sources."""

import ast
from collections import Counter

import pytest

from gradloom.verif.checkout import ROOT
from gradloom.verif.mutants import plan
from gradloom.verif.mutants.instrument import RTL, Mutant, Place
from gradloom.verif.mutants.killers import MACHINE, killers
from gradloom.verif.mutants.operators import OPERATORS


@pytest.fixture(scope="module")
def found() -> plan.Found:
    """The statements of the smallest machine; a sample takes them from several."""
    return plan.statements(("nano",))


@pytest.fixture(scope="module")
def sample() -> list[Mutant]:
    return plan.read_plan()


WITHOUT = {
    "verilog.py": "writes files",
    "shared_module.py": "writes Verilog",
    "core_reads.py": "ports",
    "tensor_ports.py": "ports",
    "acore/buffer_ports.py": "ports",
    "acore/micro_layout.py": "a shape",
    "acore/plane_ports.py": "ports",
    "memory_path/buses.py": "ports",
    "registers/register_ports.py": "ports",
    "xc7.py": "Verilog text of slices, with planted faults in formal/",
}
"""Sources without a statement of hardware, and what they hold."""


def test_every_module_is_in_the_sample(sample, found):
    """Every source of the RTL but those without statements, at least 10 mutants each unless it has fewer."""
    # Of machines: what surrounds one on a board, or in a package, is no part of any machine's RTL.
    files = {str(path.relative_to(RTL)) for path in RTL.rglob("*.py")} - {"__init__.py"}
    files -= {file for file in files if file.startswith("board/") or file == "axi32.py"}
    counts = Counter(mutant.place.file for mutant in sample)
    assert files - counts.keys() == WITHOUT.keys()
    assert plan.modules(found).keys() <= counts.keys()
    for file in counts:
        fewer = counts[file] < plan.LEAST
        # Few statements give few changes: all of them were drawn.
        assert not fewer or len(plan.modules(found)[file]) < plan.LEAST, file
    assert len(sample) >= 1000
    assert {mutant.place.file for mutant in sample[:plan.FIRST]} == counts.keys()
    assert {mutant.operator for mutant in sample} == OPERATORS.keys()
    assert len({mutant.name for mutant in sample}) == len(sample)


def test_the_sample_fits_the_sources(sample, found):
    """After an edit of the RTL: python -m gradloom.verif.mutants --plan."""
    for mutant in sample:
        if mutant.config != "nano":
            continue
        assert mutant.place in found, f"{mutant.place} is no statement: draw a sample (python -m gradloom.verif.mutants --plan)"
        _, instances = found[mutant.place]
        variants = instances[mutant.instance * len(instances) >> 16]
        of_kind = [what for operator, what in variants if operator == mutant.operator]
        assert of_kind[mutant.site * len(of_kind) >> 16] == mutant.what, mutant


def test_it_follows_from_the_seed(found):
    """The same seed gives the same mutants whatever the order of the statements, another seed others; statements come once before
    one comes twice."""
    drawn = plan.sample(found, total=300)
    turned = dict(reversed(found.items()))
    assert plan.sample(turned, total=300) == drawn
    assert len({mutant.name for mutant in drawn} & {mutant.name for mutant in plan.sample(found, total=300, seed=1)}) < 150
    for file, places in plan.modules(found).items():
        of = [mutant.place for mutant in drawn if mutant.place.file == file]
        assert len(set(of)) == min(len(of), sum(any(map(len, found[place][1])) for place in places)), file


def test_the_sample_is_kept(tmp_path, sample):
    plan.write_plan(sample[:30], tmp_path / "plan.jsonl")
    assert plan.read_plan(tmp_path / "plan.jsonl") == sample[:30]


def test_killers_are_tests_that_the_suite_runs(sample):
    """Each exists, none is marked long, and the part's own come before whole machines other than the smallest."""
    for file in sorted({mutant.place.file for mutant in sample}):
        nodes = killers(Mutant(Place(f"{file}:1", file, 1), 0, "statement", 0, "left out", "nano"))
        assert tuple(nodes[:2]) == MACHINE and len(nodes) > 4
        for node in nodes:
            path, _, name = node.partition("::")
            tree = ast.parse((ROOT / path).read_text())
            functions = {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}
            assert not name or name.partition("[")[0] in functions, node
            assert any(function.startswith("test_") for function in functions), node
