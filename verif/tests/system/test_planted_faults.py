"""The planted faults apply to the sources as they are; the quickest are planted here, all of them by ``nox -s faults``."""

import pytest

from gradloom.verif.checkout import DOCS, ROOT
from gradloom.verif.planted.fault import run_fault
from gradloom.verif.planted.faults import FAULTS, QUICK, named


def test_every_fault_applies():
    """Each text to replace occurs exactly once, each test exists, and no two faults share a name."""
    assert len(FAULTS) >= 20 and len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        text = (ROOT / fault.file).read_text()
        assert text.count(fault.before) == 1, f"{fault.name}: {fault.before!r} in {fault.file}"
        file, _, node = fault.test.partition("::")
        assert not node or f"def {node.partition('[')[0]}(" in (ROOT / file).read_text(), fault.test


def test_every_fault_is_in_the_verification_plan():
    plan = (DOCS / "verification.md").read_text()
    for fault in FAULTS:
        assert f"| {fault.name} |" in plan, (
            f"{fault.name}: python -m gradloom.verif.planted --table prints the table"
        )


@pytest.mark.parametrize("name", QUICK)
def test_quick_fault_is_noticed(name, tmp_path):
    outcome = run_fault(named(name), tmp_path)
    assert outcome.caught, outcome.log
