"""Disturb the machine in every way there is, again and again: each disturbed run is followed by a good one compared byte for byte.

``python -m gradloom.verif.fuzz run`` goes on where it was interrupted; ``... page`` publishes counts and ``docs/fuzz.md``;
``... case nano-123`` runs one case again and says everything about it.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gradloom.host.files import UserError
from gradloom.verif.checkout import ROOT
from gradloom.verif.fuzzing.bench import Bench, Hang
from gradloom.verif.fuzzing.classes import make_trouble
from gradloom.verif.fuzzing.page import publish
from gradloom.verif.fuzzing.record import BLOCK, CONFIGS
from gradloom.verif.fuzzing.run import run_all, run_one

__all__ = ["CASES", "SEED", "WORK", "main"]

CASES, SEED = 30_000, 1
WORK = ROOT / "runs" / "fuzz"
"""Where a run keeps its blocks."""


def revision() -> str:
    """Commit of the sources; with ``+`` if files differ from it."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 if a problem was found, 2 if the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run what is left of so many cases")
    run.add_argument("--config", nargs="+", choices=CONFIGS, default=list(CONFIGS), help="machines (default: all)")
    run.add_argument("--cases", type=int, default=CASES, help=f"of all machines together, in blocks of {BLOCK} (default: {CASES})")
    page = commands.add_parser("page", help="publish the counts and docs/fuzz.md")
    case = commands.add_parser("case", help="run one case again")
    case.add_argument("id", help="machine and number, as in nano-123")
    case.add_argument("--alone", action="store_true", help="without the cases before it in its block")
    for command in (run, page, case):
        command.add_argument("--seed", type=int, default=SEED, help=f"of all cases (default: {SEED})")
        command.add_argument("--work", type=Path, default=WORK, help="folder of the blocks (default: runs/fuzz)")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "run":
            if chosen.cases < 1:
                raise UserError(f"--cases must be at least 1, not {chosen.cases}")
            return int(run_all(chosen.work, chosen.config, chosen.cases, chosen.seed, revision()) != 0)
        if chosen.command == "page":
            publish(chosen.work, chosen.seed)
            return 0
        return _case(chosen.id, chosen.seed, alone=chosen.alone)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on", file=sys.stderr)
        return 1


def _case(name: str, seed: int, *, alone: bool) -> int:
    config, _, number = name.rpartition("-")
    if config not in CONFIGS or not number.isdecimal():
        raise UserError(f"there is no case {name!r}: give a machine ({', '.join(CONFIGS)}) and a number, as in nano-123")
    bench = Bench(config)
    try:
        trouble, outcome = run_one(bench, seed, int(number), alone=alone)
    except (Hang, RuntimeError) as error:
        trouble = make_trouble(seed, config, int(number), bench.scenes, bench.cycles)
        print(f"case      {name}, seed {seed}: {trouble.kind}, {trouble.text}\nPROBLEM   {type(error).__name__}: {error}")
        return 1
    finally:
        bench.close()
    print(f"case      {name}, seed {seed}, scene {bench.scenes[trouble.scene].name}\n"
          f"class     {trouble.kind}, {trouble.target}: {trouble.text}\n"
          f"memory    {trouble.dram}\n"
          f"host      {', '.join(map(str, trouble.events)) or 'only starts the program'}\n"
          f"ended     {outcome.name} ({outcome.reported or 'no error'}), {outcome.cycles} cycles with the good run of scene "
          f"{bench.scenes[trouble.good].name}")
    for problem in outcome.problems:
        print(f"PROBLEM   {problem}")
    return int(bool(outcome.problems))


if __name__ == "__main__":
    sys.exit(main())
