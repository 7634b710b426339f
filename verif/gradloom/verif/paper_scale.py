"""Training steps of the networks of the ETA paper in RTL at its size, and the page that tells of them.

``python -m gradloom.verif.paper_scale run [CASE ...]`` runs ``gradloom bench`` for cases of :data:`CASES` (default: all that have
no result yet) and keeps each ``bench.json`` in docs/results/paper-scale/. ``... estimate [CASE ...]`` sets the present cost model
beside what was simulated, as long as the scheduler still makes the program that was run. ``... curve RTL GOLDEN ...`` takes
finished folders of ``gradloom train`` that must hold the same bytes. ``... page`` writes docs/paper-scale.md and its figure from
what lies there.
"""

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradloom.contracts.config import load_config
from gradloom.host import cli
from gradloom.host.bench.bench_measure import estimate
from gradloom.host.bench.bench_record import compare, figures
from gradloom.host.cost_model.cost import DramCost
from gradloom.host.files import UserError, write_json, write_text
from gradloom.host.schedule import compile_network
from gradloom.models.network import load_network
from gradloom.verif.checkout import DOCS
from gradloom.verif.paper_scale_page import curve_figure, page

__all__ = ["CASES", "Case", "estimate_cases", "join_curves", "results", "revision"]

RESULTS = DOCS / "results" / "paper-scale"
BYTES_PER_CYCLE, LATENCY = 149, 40
"""ETA's 29.9 GB/s at 200 MHz are 149.5 bytes a cycle, reads and writes together."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One run of ``gradloom bench``.

    Parameters
    ----------
    config : a preset, or a TOML file in docs/results/paper-scale/
    minutes : on two idle cores, to tell how long a list will take
    steps : of the start behind the calibrating step; the last one is measured. The first of a start has the program's head, 2 k
        cycles, which counts for something in a step of a million only, and a second step of the larger networks takes long.
    calibrate : who takes the calibrating step
    """

    network: str
    config: str
    batch: int
    minutes: int
    steps: int = 1
    calibrate: str = "device"

    @property
    def name(self) -> str:
        return f"{self.network}-{self.config.removesuffix('.toml')}-{self.batch}"

    @property
    def source(self) -> str:
        """The machine, as ``--config`` takes it."""
        return str(RESULTS / self.config) if self.config.endswith(".toml") else self.config

    def arguments(self, out: Path) -> list[str]:
        return ["bench", "--network", self.network, "--config", self.source, "--batch", str(self.batch), "--steps", str(self.steps),
                "--dram-bytes-per-cycle", str(BYTES_PER_CYCLE), "--dram-latency", str(LATENCY), "--check", "last", "--compare",
                "--calibrate", self.calibrate,
                "--out", str(out)]


CASES = (
    Case("resnet20", "eta", 16, 8, steps=2),
    Case("resnet20", "eta", 1, 3, steps=3),
    Case("resnet20", "eta", 4, 4),
    Case("resnet20", "small", 4, 6),
    Case("vgg16", "eta", 4, 12),
    Case("vgg16", "eta", 16, 30),
    Case("vgg16", "ulx3s", 4, 25),
    Case("resnet20", "eta2x", 16, 15, steps=2),
    Case("vgg16", "eta2x", 16, 45),
    Case("resnet18", "eta", 1, 9, calibrate="golden"),
    Case("resnet18", "eta", 4, 30, calibrate="golden"),
    Case("resnet18", "eta", 16, 110, calibrate="golden"),
    Case("resnet18", "ulx3s-1000.toml", 1, 20, calibrate="golden"),
)
"""Every network on ``eta``, on a much smaller machine and on one of twice the MACs, which must end with the same digest."""


def results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Kept ``bench.json`` by case, in the order of :data:`CASES`."""
    kept = {case.name: folder / f"{case.name}.json" for case in CASES}
    return {name: json.loads(path.read_text()) for name, path in kept.items() if path.is_file()}


def revision() -> str:
    """Short name of the checked out commit, or "unknown"."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=DOCS, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _named(names: list[str]) -> list[Case]:
    by_name = {case.name: case for case in CASES}
    for name in names:
        if name not in by_name:
            raise UserError(f"there is no case {name!r}: give one of {', '.join(by_name)}")
    return [by_name[name] for name in names]


def run_cases(names: list[str], folder: Path = RESULTS) -> int:
    """Run cases one after another; each result is kept as soon as it is there, so that an interrupted list goes on where it was.

    Raises
    ------
    :exc:`UserError`
        If there is no such case.
    """
    chosen = _named(names) or [case for case in CASES if not (folder / f"{case.name}.json").is_file()]
    print(f"{len(chosen)} runs, about {sum(case.minutes for case in chosen)} minutes on two idle cores", flush=True)
    for case in chosen:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "out"
            code = cli.main(case.arguments(out))
            if code:
                return code
            bench = json.loads((out / "bench.json").read_text()) | {"revision": revision()}
            write_json(folder / f"{case.name}.json", bench)
    return 0


def estimate_cases(names: list[str], folder: Path = RESULTS) -> None:
    """The present cost model beside kept results (default: all of them), in place of the one of the day they were simulated.

    Raises
    ------
    :exc:`UserError`
        If there is no such case or result, or if another program was simulated than the scheduler makes now.
    """
    for case in _named(names) or [case for case in CASES if (folder / f"{case.name}.json").is_file()]:
        path = folder / f"{case.name}.json"
        if not path.is_file():
            raise UserError(f"there is no result of {case.name}: simulate it with run {case.name}")
        bench = json.loads(path.read_text())
        network, config = load_network(case.network), load_config(case.source)
        plan = compile_network(network, config, case.batch, slots=case.steps, table=case.steps)
        if bench.get("program") != plan.digest():
            raise UserError(f"{case.name}: its program has changed since it was simulated: simulate it with run {case.name}")
        timeline = estimate(plan, DramCost(latency=LATENCY, bytes_per_cycle=BYTES_PER_CYCLE), case.steps)
        guess = figures(timeline, network, config, case.batch, clock_mhz=bench["clock_mhz"], peak_bytes=BYTES_PER_CYCLE)
        write_json(path, bench | {"compare": compare(bench, guess)})
        print(f"{case.name}: {bench['total']['cycles']:,} cycles simulated, {guess['total']['cycles']:,} estimated", flush=True)


def join_curves(rtl: Path, others: Sequence[Path], classes: int) -> dict[str, Any]:
    """The learning curve of a run in RTL, whose losses and parameters equal those of the same run on other devices.

    Parameters
    ----------
    others : folders of runs on the golden model and the emulator
    classes : :class:`int`
        Classes that the images show; a network may have more.

    Raises
    ------
    :exc:`UserError`
        If the runs differ in what was trained, or in a loss or a digest of parameters.
    """
    run, *software = (json.loads((folder / "run.json").read_text()) for folder in (rtl, *others))
    if run["device"] != "rtl":
        raise UserError(f"{rtl} is a run with --device {run['device']}: give one with --device rtl first")
    told = _told(run)
    for folder, other in zip(others, software, strict=True):
        if other["device"] == "rtl":
            raise UserError(f"{folder} is a run with --device rtl: give one with --device golden or emulator")
        for key in ("network", "data", "batch", "total_steps", "seed", "hyper", "rounding"):
            if _without_source(run[key]) != _without_source(other[key]):
                raise UserError(f"{rtl} and {folder} trained with another {key}: repeat one with the other's options")
        if _told(other) != told or not told[1]:
            raise UserError(f"{rtl} and {folder} differ in a loss or a digest: find the first difference with gradloom diff")
    return {
        "network": run["network"]["name"], "configuration": run["configuration"]["name"], "macs": run["macs"],
        "data": {key: run["data"][key] for key in ("name", "sha256", "train", "test")}, "classes": classes,
        "batch": run["batch"], "hyper": run["hyper"], "memory": run["memory"], "losses": told[0],
        "epochs": [{key: entry.get(key) for key in ("steps", "train_accuracy", "test_accuracy", "test_loss", "sha256")}
                   for entry in run["epochs"]],
        "equal_to": [other["device"] for other in software],
        "simulated_cycles": run["cycles"]["total"],
    }


def _without_source(value: Any) -> Any:
    """A record without the place on disk that it was read from."""
    return {key: part for key, part in value.items() if key != "source"} if isinstance(value, dict) else value


def _told(run: dict[str, Any]) -> tuple[list[float], list[str]]:
    """Losses of all steps, digests of the parameters of all epochs."""
    return [step["loss"] for step in run["steps"]], [epoch["sha256"] for epoch in run["epochs"]]


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
    commands.add_parser("estimate", help="set the present cost model beside kept results").add_argument(
        "case", nargs="*", help="default: all that have a result")
    curve = commands.add_parser("curve", help="keep a learning curve")
    curve.add_argument("rtl", type=Path, help="finished folder of gradloom train --device rtl")
    curve.add_argument("others", type=Path, nargs="+", help="the same with --device golden, and perhaps emulator")
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
        elif options.command == "estimate":
            estimate_cases(options.case)
        elif options.command == "curve":
            write_json(RESULTS / "learning-curve.json", join_curves(options.rtl, options.others, options.classes))
        write_page()
    except UserError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
