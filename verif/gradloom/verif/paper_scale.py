"""Training steps of the networks of the ETA paper in RTL at its size, and the page that tells of them.

``python -m gradloom.verif.paper_scale run [CASE ...]`` runs ``gradloom bench`` for cases of :data:`CASES` (default: all that have
no result yet) and keeps each ``bench.json`` in docs/results/paper-scale/. ``... curve RTL GOLDEN`` takes two finished folders of
``gradloom train`` that must hold the same bytes. ``... page`` writes docs/paper-scale.md and its figure from what lies there.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from gradloom.host import cli
from gradloom.host.files import UserError, write_json, write_text
from gradloom.verif.paper_scale_page import curve_figure, page

__all__ = ["CASES", "Case", "join_curves", "results"]

DOCS = Path(__file__).resolve().parents[3] / "docs"
RESULTS = DOCS / "results" / "paper-scale"
BYTES_PER_CYCLE, LATENCY = 149, 40
"""ETA's 29.9 GB/s at 200 MHz are 149.5 bytes a cycle, reads and writes together."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of ``gradloom bench``. ``minutes`` on two idle cores, to tell how long a list will take."""

    network: str
    config: str
    batch: int
    minutes: int

    @property
    def name(self) -> str:
        return f"{self.network}-{self.config}-{self.batch}"

    def arguments(self, out: Path) -> list[str]:
        return ["bench", "--network", self.network, "--config", self.config, "--batch", str(self.batch), "--steps", "1",
                "--dram-bytes-per-cycle", str(BYTES_PER_CYCLE), "--dram-latency", str(LATENCY), "--check", "last", "--compare",
                "--out", str(out)]


CASES = (
    Case("resnet20", "eta", 16, 6),
    Case("resnet20", "eta", 1, 3),
    Case("resnet20", "eta", 4, 4),
    Case("resnet20", "small", 4, 6),
    Case("vgg16", "eta", 4, 12),
    Case("vgg16", "eta", 16, 30),
    Case("vgg16", "ulx3s", 4, 25),
    Case("resnet18", "eta", 1, 20),
)
"""Every network on ``eta``, and two of them on a much smaller machine that must end with the same digest."""


def results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Kept ``bench.json`` by case, in the order of :data:`CASES`."""
    kept = {case.name: folder / f"{case.name}.json" for case in CASES}
    return {name: json.loads(path.read_text()) for name, path in kept.items() if path.is_file()}


def run_cases(names: list[str], folder: Path = RESULTS) -> int:
    """Run cases one after another; each result is kept as soon as it is there, so that an interrupted list goes on where it was.

    Raises
    ------
    :exc:`UserError`
        If there is no such case.
    """
    by_name = {case.name: case for case in CASES}
    for name in names:
        if name not in by_name:
            raise UserError(f"there is no case {name!r}: give one of {', '.join(by_name)}")
    chosen = [by_name[name] for name in names] or [case for case in CASES if not (folder / f"{case.name}.json").is_file()]
    print(f"{len(chosen)} runs, about {sum(case.minutes for case in chosen)} minutes on two idle cores", flush=True)
    for case in chosen:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "out"
            code = cli.main(case.arguments(out))
            if code:
                return code
            write_json(folder / f"{case.name}.json", json.loads((out / "bench.json").read_text()))
    return 0


def join_curves(rtl: Path, golden: Path, classes: int) -> dict[str, Any]:
    """The learning curve of a run in RTL, whose losses and parameters equal those of the same run on the golden model.

    Parameters
    ----------
    classes : :class:`int`
        Classes that the images show; a network may have more.

    Raises
    ------
    :exc:`UserError`
        If the runs differ in what was trained, or in a loss or a digest of parameters.
    """
    runs = [json.loads((folder / "run.json").read_text()) for folder in (rtl, golden)]
    if (runs[0]["device"], runs[1]["device"]) != ("rtl", "golden"):
        raise UserError(f"{rtl} must be a run with --device rtl and {golden} one with --device golden: give them in this order")
    for key in ("network", "data", "batch", "total_steps", "seed", "hyper", "rounding"):
        if runs[0][key] != runs[1][key]:
            raise UserError(f"{rtl} and {golden} trained with another {key}: repeat one with the other's options")
    losses = [[step["loss"] for step in run["steps"]] for run in runs]
    digests = [[epoch["sha256"] for epoch in run["epochs"]] for run in runs]
    if losses[0] != losses[1] or digests[0] != digests[1] or not digests[0]:
        raise UserError(f"{rtl} and {golden} differ in a loss or a digest: find the first difference with gradloom diff")
    run = runs[0]
    return {
        "network": run["network"]["name"], "configuration": run["configuration"]["name"], "macs": run["macs"],
        "data": run["data"], "classes": classes,
        "batch": run["batch"], "hyper": run["hyper"], "memory": run["memory"], "losses": losses[0],
        "epochs": [{key: entry.get(key) for key in ("steps", "train_accuracy", "test_accuracy", "test_loss", "sha256")}
                   for entry in run["epochs"]],
        "simulated_cycles": run["cycles"]["total"],
    }


def write_page(folder: Path = RESULTS, docs: Path = DOCS) -> None:
    curve_file = folder / "learning-curve.json"
    curve = json.loads(curve_file.read_text()) if curve_file.is_file() else None
    if curve is not None:
        write_text(docs / "figures" / "learning-curve.svg", curve_figure(curve))
    write_text(docs / "paper-scale.md", page(results(folder), curve))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.paper_scale")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run cases in RTL").add_argument("case", nargs="*", help="default: all without a result")
    curve = commands.add_parser("curve", help="keep a learning curve")
    curve.add_argument("rtl", type=Path, help="finished folder of gradloom train --device rtl")
    curve.add_argument("golden", type=Path, help="the same with --device golden")
    curve.add_argument("--classes", type=int, required=True, help="classes that the images show")
    commands.add_parser("page", help="write docs/paper-scale.md")
    options = parser.parse_args(arguments)
    if shutil.which("g++") is None and options.command == "run":
        parser.error("the simulated machine needs a C++ compiler: install g++ and make")
    try:
        if options.command == "run":
            code = run_cases(options.case)
            if code:
                return code
        elif options.command == "curve":
            write_json(RESULTS / "learning-curve.json", join_curves(options.rtl, options.golden, options.classes))
        write_page()
    except UserError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
