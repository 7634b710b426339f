"""Bitstreams of the boards, and the page that tells of them.

``python -m gradloom.verif.board_builds run [CASE ...]`` builds cases of :data:`CASES` for each of their seeds (default: all that
have no result yet), keeps each report in docs/results/boards/, and simulates what was routed
(:mod:`gradloom.verif.ecp5.routed_machine`). ``... page`` writes docs/boards.md from what lies there.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from gradloom.boards.board import BOARDS
from gradloom.boards.build_report import BuildReport
from gradloom.host import cli
from gradloom.host.files import write_text
from gradloom.verif.checkout import DOCS, ROOT
from gradloom.verif.ecp5 import routed_machine

__all__ = ["CASES", "RESULTS", "Case", "page", "results"]

RESULTS = DOCS / "results" / "boards"
SEEDS = (1, 2, 3)


@dataclasses.dataclass(frozen=True)
class Case:
    """One design, built with several seeds.

    Parameters
    ----------
    options : tuple of :class:`str`
        Of ``gradloom build``, relative to the repository.
    minutes : :class:`int`
        Of a build on a quiet core, to tell how long a list will take.
    stepped : :class:`bool`
        What the first seed made takes a step of a tiny network, cell by cell, and the step that planted faults spoil.
    """

    name: str
    options: tuple[str, ...]
    minutes: int
    seeds: tuple[int, ...] = SEEDS
    stepped: bool = False

    @property
    def board(self) -> str:
        """Its name."""
        return self.options[self.options.index("--board") + 1]


CASES = (
    Case("pico-block-ram", (
        "--board", "ulx3s-85f", "--config", "boards/machines/pico.toml", "--block-ram", "128", "--freq", "18.75"), 25, (1,)),
    Case("9-macs-sdram", ("--board", "ulx3s-85f"), 20, stepped=True),
)


def results() -> dict[str, list[BuildReport]]:
    """Reports by case, by seed."""
    found: dict[str, list[BuildReport]] = {}
    for case in CASES:
        files = [RESULTS / f"{case.name}-{seed}.json" for seed in case.seeds]
        found[case.name] = [BuildReport.from_json(file.read_text()) for file in files if file.exists()]
    return found


def _part(cell: str) -> str:
    return ".".join(cell.split(".")[:-1][:4]) or cell


def _slowest(report: BuildReport) -> str:
    """The slowest path between registers, by the parts of its ends."""
    inside = [path for path in report.paths if "<async>" not in (path.begin, path.end)]
    if not inside:
        return ""
    path = inside[0]
    return (f"`{_part(path.hops[0].cell)}` to `{_part(path.hops[-1].cell)}`, {len(path.hops)} cells, "
            f"{path.routing_share:.0%} of it wires")


def _use(report: BuildReport, kind: str) -> str:
    used, available = report.use.get(kind, (0, 1))
    return f"{used:,} ({used / available:.0%})"


def page() -> str:
    """docs/boards.md."""
    lines = ["# Boards", "", "Made by `python -m gradloom.verif.board_builds page`; edit that module and the boards' data "
             "(`boards/gradloom/boards/board.py`), not this file.", "",
             "**No hardware was at hand.** Nothing here was tried on a board; every figure is *routed* (by nextpnr, with its data "
             "of the slowest parts of the speed grade) unless it says otherwise.", "",
             "| board | part | machine | MACs | clock | memory | cable |", "|---|---|---|---|---|---|---|"]
    for board in BOARDS.values():
        lines.append(f"| {board.name} | {board.die} | {board.machine} | {board.config.macs} | {board.clock / 1e6:g} MHz | "
                     f"{board.part.size >> 20} MiB, {board.part.word_bits} bits | {board.baud / 1e6:g} Mbaud |")
    lines += ["", "## What was built", "",
              "| design | seed | clock asked, reached (MHz) | TRELLIS_COMB | flip-flops | block RAM | multipliers | minutes |",
              "|---|---|---|---|---|---|---|---|"]
    found = results()
    for name, reports in found.items():
        for report in reports:
            missed = "" if report.reached else " (missed)"
            lines.append(
                f"| {name} | {report.seed} | {report.clock_mhz:g}, {report.reached_mhz:.2f}{missed} | "
                f"{_use(report, 'TRELLIS_COMB')} | {_use(report, 'TRELLIS_FF')} | {_use(report, 'DP16KD')} | "
                f"{_use(report, 'MULT18X18D')} | {sum(report.seconds.values()) / 60:.0f} |")
    lines += ["", "A bitstream is that of the sources as they were: `gradloom build` prints the number of a checkout's, and where "
              "it is another one, so are clock and bitstream ([what has changed](ecp5.md#the-whole-machine-on-an-lfe5u-85f)).", "",
              "| design, seed | build | slowest path | SHA-256 of the bitstream | tools |", "|---|---|---|---|---|"]
    for name, reports in found.items():
        for report in reports:
            bitstream = report.files.get("top.bit", "none")[:16]
            lines.append(f"| {name}, {report.seed} | `{report.build}` | {_slowest(report)} | `{bitstream}` | "
                         f"{', '.join(report.versions)} |")
    lines += ["", "The commands, each from the root of a checkout with `pip install -e '.[boards]'`:", ""]
    lines += [f"    gradloom build {' '.join(case.options)} --seed {seed}" for case in CASES for seed in case.seeds]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gradloom.verif.board_builds", description=__doc__)
    parser.add_argument("work", choices=("run", "page"))
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(case.name for case in CASES))
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.cases) - {case.name for case in CASES}:
        parser.error(f"there is no case {', '.join(sorted(unknown))}: give of {', '.join(case.name for case in CASES)}")
    if chosen.work == "run":
        todo = [(case, seed) for case in CASES for seed in case.seeds
                if case.name in chosen.cases or (not chosen.cases and not (RESULTS / f"{case.name}-{seed}.json").exists())]
        for place, (case, seed) in enumerate(todo, 1):
            left = sum(other.minutes for other, _ in todo[place - 1:])
            print(f"{place}/{len(todo)} {case.name}, seed {seed}: about {left} min left", flush=True)
            folder = ROOT / "build" / "boards" / f"{case.name}-{seed}"
            options = [str(ROOT / option) if option.endswith(".toml") else option for option in case.options]
            code = cli.main(["build", *options, "--seed", str(seed), "--out", str(folder)])
            keep(folder, case, seed)
            if code not in (0, 1):
                return code
            if case.stepped and seed == case.seeds[0] and routed_machine.main([case.board, str(folder)]):
                print(f"error: what was routed in {folder} is not the machine: the line above says where", file=sys.stderr)
                return 1
    write_text(DOCS / "boards.md", page())
    return 0


def keep(folder: Path, case: Case, seed: int) -> None:
    """The report of a build among the results."""
    source = folder / "report.json"
    if source.exists():
        RESULTS.mkdir(parents=True, exist_ok=True)
        write_text(RESULTS / f"{case.name}-{seed}.json", source.read_text())


if __name__ == "__main__":
    sys.exit(main())
