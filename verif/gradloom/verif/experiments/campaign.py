"""Several runs of :mod:`~gradloom.verif.experiments.losses` side by side on one device, as many as a time allows.

``python -m gradloom.verif.experiments.campaign --data FILE.npz --work FOLDER --out FOLDER --jobs fp32:1,mean:1,mean+dx16:1
--start 6 --seconds 500 -- --device cuda --sums float32``: jobs (VARIANT:SEED) in the order of their importance, options of
``losses`` behind ``--``. So many as ``--start`` says begin at once; when their rate is known, further ones begin as long as all can
end in time. A run that fails takes no other down. ``--out`` always holds all that is known: ``summary.txt``, ``runs.json``,
``log.txt`` and, in tar files of 15 MB at most, the checkpoints, those of unfinished runs first; unpacked into ``--work`` they are
what runs go on from.
"""

import argparse
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradloom.host.commands.cli_arguments import positive, seed
from gradloom.host.files import UserError, write_bytes, write_json, write_text
from gradloom.verif.experiments.refusals import told_in_a_sentence

__all__ = ["Job", "affordable", "main", "summary"]

_POLL = 2.0
_SHARE = 0.93
"""Of the measured rate that is counted on."""
_KNOWN = 2
"""Epochs after which a run's rate is believed."""
_PACK = 15_000_000
_PACKS = 4
_PACK_SECONDS = 45.0


class Job:
    """A run and its process.

    Parameters
    ----------
    text : :class:`str`
        VARIANT:SEED, or a variant with seed 1.

    Raises
    ------
    :exc:`UserError`
        If it is neither.
    """

    def __init__(self, text: str, work: Path) -> None:
        self.variant, _, number = text.partition(":")
        if not self.variant:
            raise UserError(f"job {text!r} names no variant: give VARIANT:SEED")
        try:
            self.seed = seed(number or "1")
        except argparse.ArgumentTypeError as error:
            raise UserError(f"job {text!r} is no VARIANT:SEED: the seed {error}") from None
        self.name, self.work = f"{self.variant}-{self.seed}", work
        self.process: subprocess.Popen[bytes] | None = None
        self.epochs_before = 0

    @property
    def record_file(self) -> Path:
        return self.work / f"run-{self.name}.json"

    @property
    def log(self) -> Path:
        return self.work / f"log-{self.name}.txt"

    def record(self) -> dict[str, Any]:
        return json.loads(self.record_file.read_text()) if self.record_file.exists() else {"curve": [], "epochs": 0}

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, options: Sequence[str], data: Path, seconds: float) -> None:
        self.epochs_before = len(self.record()["curve"])
        command = [sys.executable, "-m", "gradloom.verif.experiments.losses", "--data", str(data), "--variants", self.variant,
                   "--seed", str(self.seed), "--out", str(self.work), "--stop-after", f"{seconds:.0f}", *options]
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)


def affordable(left: Sequence[int], rates: Sequence[float], whole: int, seconds: float) -> int:
    """Further runs of ``whole`` images for which a time suffices, beside runs with so many images ``left`` at these rates."""
    spare = _SHARE * sum(rates) * seconds - sum(left)
    return max(0, int(spare // whole)) if whole else 0


def _further(jobs: Sequence[Job], seconds: float) -> int:
    """Runs that may begin now."""
    left, rates, whole = [], [], 0
    for job in jobs:
        if not job.running:
            continue
        record = job.record()
        curve = record["curve"]
        if len(curve) < job.epochs_before + _KNOWN:
            return 0
        images = record["images"] // record["batch"] * record["batch"]
        left.append((record["epochs"] - len(curve)) * images)
        rates.append(curve[-1]["images_per_second"])
        whole = record["epochs"] * images
    return affordable(left, rates, whole, seconds)


def summary(records: Sequence[dict[str, Any]]) -> str:
    """A line for every run, and one of its losses."""
    lines = []
    for record in records:
        curve = record["curve"]
        if not curve:
            continue
        accuracy = "-" if record["test_accuracy"] is None else f"{100 * record['test_accuracy']:.2f} %"
        lines.append(f"{record['variant']:24} seed {record['seed']}  epoch {len(curve):3} of {record['epochs']}  "
                     f"loss {curve[-1]['loss']:.4f}  test {accuracy}  {curve[-1]['seconds']:.0f} s")
        lines.append("    " + " ".join(f"{point['loss']:.4f}" for point in curve))
    return "\n".join(lines) + "\n"


def _packs(jobs: Sequence[Job]) -> list[bytes]:
    """Tar files of the records and checkpoints, unfinished runs first."""
    groups: list[list[tuple[str, bytes]]] = [[]]
    for job in sorted(jobs, key=lambda job: job.record().get("test_accuracy") is not None):
        file = job.record_file.with_suffix(".pt")
        if not file.exists():
            continue
        content = file.read_bytes()
        if groups[-1] and sum(len(other) for _, other in groups[-1]) + len(content) > _PACK:
            groups.append([])
        groups[-1] += [(job.record_file.name, job.record_file.read_bytes()), (file.name, content)]
    return [_tar(group) for group in groups[:_PACKS]]


def _tar(files: Sequence[tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def _tell(jobs: Sequence[Job], out: Path, *, pack: bool) -> None:
    records = [job.record() for job in jobs if job.record_file.exists()]
    write_json(out / "runs.json", {"runs": records})
    write_text(out / "summary.txt", summary(records))
    logs = [f"== {job.name}, exit {job.process.poll() if job.process else None}\n{job.log.read_text(errors='replace')[-40000:]}"
            for job in jobs if job.log.exists()]
    write_text(out / "log.txt", "\n".join(logs))
    if pack:
        for number, content in enumerate(_packs(jobs), 1):
            write_bytes(out / f"checkpoints-{number}.tar", content)


def _jobs(text: str, work: Path) -> list[Job]:
    jobs: list[Job] = []
    for part in text.split(","):
        job = Job(part, work)
        if job.name in [other.name for other in jobs]:
            raise UserError(f"job {part!r} is there twice: give each VARIANT:SEED once")
        jobs.append(job)
    return jobs


@told_in_a_sentence
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gradloom.verif.experiments.campaign", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--jobs", required=True, metavar="VARIANT:SEED,...")
    parser.add_argument("--start", type=positive, default=6, metavar="N")
    parser.add_argument("--most", type=positive, default=14, metavar="N", help="runs at once, at most")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("options", nargs="*", metavar="OPTION")
    given = parser.parse_args(arguments)
    jobs = _jobs(given.jobs, given.work)
    ends = time.monotonic() + given.seconds
    for folder in (given.work, given.out):
        folder.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs if job.record().get("test_accuracy") is None]

    def begin(count: int) -> None:
        for job in waiting[:count]:
            print(f"{given.seconds - ends + time.monotonic():.0f} s: {job.name} begins", flush=True)
            job.start(given.options, given.data, ends - time.monotonic())
        del waiting[:count]

    begin(given.start)
    packed = time.monotonic()
    while (now := time.monotonic()) < ends and any(job.running for job in jobs):
        time.sleep(_POLL)
        pack = now - packed > _PACK_SECONDS
        packed = now if pack else packed
        _tell(jobs, given.out, pack=pack)
        room = given.most - sum(job.running for job in jobs)
        begin(max(0, min(_further(jobs, ends - now), room)))
    for job in jobs:
        if job.running:
            assert job.process is not None
            job.process.terminate()
            job.process.wait()
    _tell(jobs, given.out, pack=True)
    print((given.out / "summary.txt").read_text(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
