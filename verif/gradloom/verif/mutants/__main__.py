"""``python -m gradloom.verif.mutants``: run the committed sample, go on where it stopped, write the page."""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence

from gradloom.verif.mutants import equivalence, page, plan
from gradloom.verif.mutants.instrument import Mutant
from gradloom.verif.mutants.killers import MACHINE, killers
from gradloom.verif.mutants.run import RESULTS, Result, Runner, read_results, untried
from gradloom.verif.mutants.surroundings import SURROUNDINGS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gradloom.verif.mutants", description=__doc__)
    parser.add_argument("--plan", action="store_true", help="draw the sample anew from the sources and the seed, and stop")
    parser.add_argument("--first", type=int, default=plan.TOTAL * 2, metavar="N", help="only the first N mutants of the sample")
    parser.add_argument("--module", metavar="FILE", help="only mutants of this file of gradloom.rtl, such as ccore/drain.py")
    parser.add_argument("--mutant", metavar="NAME", action="append", help="only the mutant of this name; may be given again")
    parser.add_argument("--test", metavar="NODE", action="append",
                        help="what this test says of them, instead of their own; may be given again; only kills by their own count")
    parser.add_argument("--fresh", action="store_true", help="run also what has a result that still counts")
    parser.add_argument("--living", action="store_true", help="run only those that lived when they were last tried")
    parser.add_argument("--equivalent", action="store_true",
                        help="try to show of those that live, or of those named, that they compute the same")
    parser.add_argument("--page", action="store_true", help="write docs/mutants.md, and stop")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (1)")
    chosen = parser.parse_args(arguments)
    if chosen.plan:
        mutants = plan.sample(plan.statements())
        plan.write_plan(mutants)
        print(f"{len(mutants)} mutants in {plan.PLAN}")
        return 0
    if chosen.page:
        page.PAGE.write_text(page.render(plan.read_plan(), read_results(), page.read_shown()))
        return 0
    mutants = plan.read_plan()
    if unknown := set(chosen.mutant or ()) - {mutant.name for mutant in mutants}:
        parser.error(f"no mutant of the sample is called {', '.join(sorted(unknown))}")
    asked = {number: mutant for number, mutant in enumerate(mutants[:chosen.first], 1)
             if chosen.module in (None, mutant.place.file) and mutant.name in (chosen.mutant or (mutant.name,))}
    if chosen.equivalent:
        try:
            return _equivalent(list(asked.values()), named=bool(chosen.mutant))
        except equivalence.ToolError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if chosen.test:
        return _try(mutants, list(asked), chosen.test, chosen.jobs)
    found = {} if chosen.fresh else read_results()
    earlier = read_results(stale=True)
    wanted = [number for number, mutant in asked.items() if not page.settled(mutant, found.get(mutant.name))
              and not (chosen.living and (mutant.name not in earlier or earlier[mutant.name].dead))]
    if not wanted:
        print("every mutant has a result")
        return 0
    by_name = {mutant.name: mutant for mutant in mutants}
    runner = Runner(mutants, jobs=chosen.jobs)
    runner.warm(MACHINE)
    began, count, dead = time.monotonic(), 0, 0

    def done(result: Result) -> None:
        nonlocal count, dead
        ended = result.outcome != "lives" or not untried(killers(by_name[result.name]), result)
        count += ended
        dead += result.dead
        _keep(result)
        mutant = by_name[result.name]
        left = (time.monotonic() - began) / max(1, count) * (len(wanted) - count) / 60
        place = f"{mutant.place.file}:{mutant.place.line}"
        outcome = result.outcome if ended else "lives so far"
        print(f"{count}/{len(wanted)} {dead} dead, {left:.0f} min left: {outcome} {result.name} {place} "
              f"{mutant.operator}: {mutant.what} ({result.seconds} s) {result.killer}", flush=True)

    runner.run(wanted, done, found)
    return 0


def _keep(result: Result) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(result)) + "\n")


def _said(mutant: Mutant, words: str) -> str:
    return f"{mutant.name} {mutant.place.file}:{mutant.place.line} {mutant.operator}: {mutant.what}: {words}"


def _try(mutants: Sequence[Mutant], numbers: Sequence[int], tests: Sequence[str], jobs: int) -> int:
    """Whether these tests notice them."""
    by_name = {mutant.name: mutant for mutant in mutants}

    def done(result: Result) -> None:
        mutant = by_name[result.name]
        if result.dead and result.killer in killers(mutant):
            _keep(result)
        said = (f"{result.outcome} by {result.killer}: {result.message}" if result.dead
                else f"passes {len(result.passed)} of {len(tests)}")
        print(_said(mutant, said), flush=True)

    Runner(mutants, jobs=jobs, choose=lambda mutant: tests).run(numbers, done)
    return 0


def _equivalent(mutants: Sequence[Mutant], *, named: bool) -> int:
    """Show what can be shown of those that live; ``named``: of all that are given, tried or not."""
    results, shown = read_results(stale=True), page.read_shown()
    lived = {name for name, result in results.items() if not result.dead} - shown.keys()
    living = [mutant for mutant in mutants if named or mutant.name in lived]
    different: list[Mutant] = []
    for surroundings in (None, SURROUNDINGS):
        for mutant, found in equivalence.miters(living if surroundings is None else different, surroundings=surroundings):
            relies = "; ".join(dict.fromkeys(both.relies for both in found if both.relies))
            if surroundings and not relies:
                continue
            verdict = equivalence.show_all(found)
            if verdict.how is not None:
                shown[mutant.name] = page.Shown(mutant.name, verdict.how, f"{verdict.how}, as {relies}" if relies else "")
                page.write_shown(shown.values())
            elif surroundings is None:
                different.append(mutant)
            said = verdict.how or ("not shown" if verdict.differs is None else f"differs in cycle {verdict.differs}")
            print(_said(mutant, f"{said}, as {relies}" if relies else said), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
