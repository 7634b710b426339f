"""Results of experiments: a JSON file that grows by one run at a time, so that an interrupted experiment goes on where it was."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradloom.host.files import UserError, write_json
from gradloom.verif.checkout import DOCS

__all__ = ["DOCS", "RESULTS", "Store", "load_results"]

RESULTS = DOCS / "results"

Job = tuple[str, int]
"""Name of a contestant, and a seed."""


def load_results(name: str, folder: Path = RESULTS) -> dict[str, Any] | None:
    """An experiment's results, or ``None`` if it has not been run."""
    file = folder / f"accuracy-{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


class Store:
    """The results of one experiment.

    Parameters
    ----------
    settings : dict
        What all runs have in common; results of other settings are not mixed with these.

    Raises
    ------
    :exc:`UserError`
        If the file holds results of other settings.
    """

    def __init__(self, name: str, settings: dict[str, Any], folder: Path = RESULTS) -> None:
        self.file = folder / f"accuracy-{name}.json"
        found = load_results(name, folder)
        self.record: dict[str, Any] = found or {"experiment": name, "settings": settings, "runs": []}
        if self.record["settings"] != json.loads(json.dumps(settings)):
            raise UserError(f"{self.file} holds results of other settings: move it away, or restore the settings")

    def run(self, jobs: Sequence[Job], work: Callable[[str, int], dict[str, Any]], *, only: Sequence[str] | None = None,
            limit: int | None = None) -> None:
        """Do the jobs that have no result yet, those of the contestants ``only``, ``limit`` at most; each is written at once."""
        done = {(run["contestant"], run["seed"]) for run in self.record["runs"]}
        left = [job for job in jobs if job not in done and (only is None or job[0] in only)]
        left = left[:limit]
        began = time.monotonic()
        for number, (contestant, seed) in enumerate(left):
            start = time.monotonic()
            result = work(contestant, seed)
            seconds = time.monotonic() - start
            self.record["runs"].append({"contestant": contestant, "seed": seed, "seconds": round(seconds, 1), **result})
            self.record["runs"].sort(key=lambda run: jobs.index((run["contestant"], run["seed"])))
            write_json(self.file, self.record)
            rest = (time.monotonic() - began) / (number + 1) * (len(left) - number - 1)
            print(f"{contestant}, seed {seed}: {result['summary']} ({seconds:.0f} s, about {rest / 60:.0f} min left)", flush=True)
