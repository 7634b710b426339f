"""The page of the boards is what its results say; every case can be built."""

import pytest

from gradloom.boards.board import BOARDS
from gradloom.host import cli
from gradloom.verif import board_builds
from gradloom.verif.board_builds import CASES, Case, page
from gradloom.verif.board_reports import REPORT
from gradloom.verif.checkout import DOCS, ROOT
from gradloom.verif.ecp5 import routed_machine


def test_page_is_up_to_date():
    assert (DOCS / "boards.md").read_text() == page()


def test_every_board_is_on_the_page():
    assert all(f"| {name} | {board.die} |" in page() for name, board in BOARDS.items())


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """One case, and builds that leave a report."""
    options = ("--board", "ulx3s-85f", "--config", "boards/machines/pico.toml")
    monkeypatch.setattr(board_builds, "CASES", (Case("one", options, 5, (1, 2)),))
    monkeypatch.setattr(board_builds, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(board_builds, "DOCS", tmp_path)
    calls = []

    def fake(arguments):
        calls.append(arguments)
        folder = tmp_path / f"build{len(calls)}"
        folder.mkdir()
        (folder / "report.json").write_text(REPORT.json())
        board_builds.keep(folder, board_builds.CASES[0], len(calls))
        return 0

    monkeypatch.setattr(cli, "main", fake)
    return calls


def test_run(bench, tmp_path, capsys):
    """Every seed is built once; the machine's file is found from wherever it is run."""
    assert board_builds.main(["run"]) == 0
    assert [call[call.index("--seed") + 1] for call in bench] == ["1", "2"]
    assert bench[0][bench[0].index("--config") + 1] == str(ROOT / "boards/machines/pico.toml")
    assert "1/2 one, seed 1: about 10 min left" in capsys.readouterr().out
    text = (tmp_path / "boards.md").read_text()
    assert "| one | 7 | 25, 31.25 | 41,820 (50%) |" in text and "2 cells, 75% of it wires" in text
    board_builds.main(["run"])
    assert len(bench) == 2


@pytest.mark.parametrize("code", [0, 1])
def test_what_was_routed_takes_a_step(bench, monkeypatch, code, capsys):
    """The first seed's; if it is not golden, no further one is built."""
    monkeypatch.setattr(board_builds, "CASES", (Case("one", ("--board", "ulx3s-85f"), 5, (1, 2), stepped=True),))
    steps = []
    monkeypatch.setattr(routed_machine, "main", lambda arguments: steps.append(arguments) or code)
    assert board_builds.main(["run"]) == code
    assert steps == [["ulx3s-85f", str(ROOT / "build/boards/one-1")]] and len(bench) == 2 - code
    assert ("is not the machine" in capsys.readouterr().err) == bool(code)


def test_unknown_case(bench, capsys):
    with pytest.raises(SystemExit):
        board_builds.main(["run", "none"])
    assert "there is no case none: give of one" in capsys.readouterr().err


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_can_be_built(case):
    """Their options are those of gradloom build, and their machines exist."""
    options = cli.parse(["build", *case.options])
    assert options.board in BOARDS
    assert options.config is None or not options.config.endswith(".toml") or (ROOT / options.config).is_file()
