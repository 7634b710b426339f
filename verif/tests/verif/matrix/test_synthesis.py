"""Resources of matrix machines: the page shows what is kept, and the multipliers of each are those of its array."""

import json

from gradloom.contracts.matrix_config import load_machine
from gradloom.verif.checkout import DOCS
from gradloom.verif.matrix.synthesis import KEPT, MACHINES, table


def test_the_page_shows_what_is_kept():
    kept = json.loads(KEPT.read_text())
    assert list(kept) == list(MACHINES)
    assert table(kept) in (DOCS / "matrix.md").read_text()
    assert all(cells["dsps"] == load_machine(name).macs for name, cells in kept.items())
