"""``docs/mutants.md``: kills by module, every mutant that lives, and how the equivalent ones were shown to be so."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gradloom.verif.checkout import DOCS, ROOT
from gradloom.verif.mutants import plan
from gradloom.verif.mutants.instrument import RTL, Mutant
from gradloom.verif.mutants.killers import killers
from gradloom.verif.mutants.operators import OPERATORS
from gradloom.verif.mutants.run import Result, untried
from gradloom.verif.planted.faults import FAULTS

__all__ = ["EQUIVALENT", "PAGE", "Shown", "read_shown", "render", "settled", "write_shown"]

PAGE = DOCS / "mutants.md"
EQUIVALENT = ROOT / "docs" / "results" / "mutants" / "equivalent.jsonl"
"""Mutants that compute the same, and how that was shown."""


@dataclasses.dataclass(frozen=True)
class Shown:
    """Why a mutant computes the same.

    Parameters
    ----------
    how : :class:`str`
        A method of :mod:`gradloom.verif.mutants.equivalence`, or ``words``.
    why : :class:`str`
        The argument, with ``words``.
    """

    name: str
    how: str
    why: str = ""


def read_shown(path: Path = EQUIVALENT) -> dict[str, Shown]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {entry["name"]: Shown(**entry) for entry in map(json.loads, lines)}


def write_shown(shown: Iterable[Shown], path: Path = EQUIVALENT) -> None:
    path.write_text("".join(json.dumps(dataclasses.asdict(entry)) + "\n" for entry in shown))


def settled(mutant: Mutant, result: Result | None) -> bool:
    """Whether nothing is left to try: it is dead, cannot be elaborated, computes the same, or has met all tests as they are now."""
    if result is None:
        return False
    return result.outcome != "lives" or mutant.name in read_shown() or not untried(killers(mutant), result)


def _rate(dead: int, count: int) -> str:
    return f"{100 * dead / count:.1f} %" if count else "-"


def _source(mutant: Mutant) -> str:
    text = (RTL / mutant.place.file).read_text().splitlines()[mutant.place.line - 1].strip()
    return "`" + text.replace("|", "\\|").replace("`", "'")[:90] + "`"


def _row(mutant: Mutant, last: str) -> str:
    owner = mutant.place.owner.split(":")[0]
    inside = "" if owner == mutant.place.file else f" in {owner}"
    return (f"| {mutant.name} | {mutant.place.file}:{mutant.place.line}{inside} | {_source(mutant)} | "
            f"{mutant.operator}: {mutant.what.replace('|', chr(92) + '|')} | {last} |")


def _table(title: str, mutants: list[Mutant], column: str, last: Callable[[Mutant], str], text: str = "") -> list[str]:
    rows = [_row(mutant, last(mutant)) for mutant in mutants] or ["| none | | | | |"]
    return ["", f"## {title}", "", *([text, ""] if text else []), f"| mutant | place | statement | change | {column} |",
            "|---|---|---|---|---|", *rows]


def render(mutants: list[Mutant], results: Mapping[str, Result], shown: Mapping[str, Shown]) -> str:
    """The page, of those mutants of the sample that have a result or were shown to compute the same."""
    met = [mutant for mutant in mutants if mutant.name in results or mutant.name in shown]
    invalid = [mutant for mutant in met if mutant.name in results and results[mutant.name].outcome == "invalid"]
    tried = [mutant for mutant in met if mutant not in invalid]
    dead = [mutant for mutant in tried if mutant.name in results and results[mutant.name].dead]
    same = [mutant for mutant in tried if mutant not in dead and mutant.name in shown]
    argued = [mutant for mutant in same if shown[mutant.name].how == "words"]
    rest = [mutant for mutant in tried if mutant not in dead and mutant not in same]
    pending = [mutant for mutant in rest if untried(killers(mutant), results[mutant.name])]
    living = [mutant for mutant in rest if mutant not in pending]
    lines = [
        "# Mutants", "", "<!-- written by python -m gradloom.verif.mutants --page -->", "",
        "Small wrong changes of every RTL module, each run against the tests of the suite until one notices it. A sample of",
        f"{len(mutants)} was drawn from a seed ({plan.SEED}) before any was run: by statement, modules by their number of",
        f"statements and at least {plan.LEAST} each unless a module has fewer. `python -m gradloom.verif.mutants` goes on where",
        "the last run stopped; `--help` says the rest. A kill counts only by a test that the suite runs, and as long as the module",
        "that was changed stays as it is; other modules may have changed since. What was only tried in part counts as not killed.",
        "", "| | mutants |", "|---|---|", f"| in the sample | {len(mutants)} |", f"| tried | {len(tried)} |",
        f"| killed | {len(dead)} ({_rate(len(dead), len(tried))} of those tried, "
        f"{_rate(len(dead), len(tried) - len(same))} of those not shown to compute the same) |",
        f"| compute the same | {len(same)}, of these {len(argued)} argued by words |",
        f"| live | {len(living)} |",
        f"| tried in part: the first tests did not notice them | {len(pending)} |",
        f"| cannot be elaborated, not counted | {len(invalid)} |",
        "", "## What is changed", "", "| operator | change | killed of those tried |", "|---|---|---|"]
    for operator, words in OPERATORS.items():
        of = [mutant for mutant in tried if mutant.operator == operator]
        lines.append(f"| {operator} | {words} | {sum(mutant in dead for mutant in of)} of {len(of)} |")
    lines += ["", "## By module", "",
              "| module | sample | tried | killed | compute the same | live | in part | killed of the others |",
              "|---|---|---|---|---|---|---|---|"]
    for file in sorted({mutant.place.file for mutant in mutants}):
        counts = [sum(mutant.place.file == file for mutant in group) for group in (mutants, tried, dead, same, living, pending)]
        lines.append(f"| {file} | {' | '.join(map(str, counts))} | {_rate(counts[2], counts[1] - counts[3])} |")
    lines += _table("Those that live", living, "tests that ran", lambda mutant: str(len(results[mutant.name].passed)))
    lines += _table("Those tried in part", pending, "tests that ran", lambda mutant: str(len(results[mutant.name].passed)),
                    "Two training steps on the smallest machine did not notice them; the tests of the part have not all run.")
    lines += _table("Those that compute the same", same, "shown by",
                    lambda mutant: shown[mutant.name].why or shown[mutant.name].how)
    lines += ["", "## Planted by hand", "",
              f"{len(FAULTS)} faults of the RTL and of the host, each noticed by its test (`nox -s faults`,",
              "[table](verification.md#6-planted-faults)).", ""]
    return "\n".join(lines)
