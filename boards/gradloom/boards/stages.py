"""Stages of a build: each is done once for the same inputs, and an interrupted build goes on behind the last one that ended."""

import dataclasses
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gradloom.boards.tools import BuildError

__all__ = ["Stages", "locked"]

_RECORD = "stages.json"


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """No other build works in the folder meanwhile; it is made if need be.

    Raises
    ------
    :exc:`BuildError`
        If one does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BuildError(f"another build works in {folder}: wait for it, or give another --out") from None
        yield


@dataclasses.dataclass
class Stages:
    """What was done in a folder, kept in its ``stages.json``: for each stage a hash of what it was done with, hashes of its files,
    and its seconds.

    Parameters
    ----------
    folder : path
    fresh : :class:`bool`
        Do everything again.
    """

    folder: Path
    fresh: bool = False

    def __post_init__(self) -> None:
        self._done: dict[str, dict[str, object]] = {}
        try:
            kept = json.loads((self.folder / _RECORD).read_text())
            self._done = kept if isinstance(kept, dict) and not self.fresh else {}
        except (OSError, ValueError):
            pass  # no build yet, or one that was ended while it wrote: everything is done again
        self.seconds: dict[str, float] = {}

    def run(self, name: str, given: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], work: Callable[[], None]) -> bool:
        """Do a stage unless its files are there and were made of the same; returns whether it was done.

        Parameters
        ----------
        given : sequence of :class:`str`
            Whatever decides the outputs and is in no file: commands, versions of tools.
        inputs, outputs : sequence of :class:`str`
            Names of files in the folder.
        """
        asked = hashlib.sha256(json.dumps([list(given), [_digest(self.folder / file) for file in inputs]]).encode()).hexdigest()
        if self._kept(name, asked, outputs):
            self.seconds[name] = float(str(self._done[name]["seconds"]))
            return False
        self._done.pop(name, None)
        began = time.monotonic()
        work()
        self.seconds[name] = round(time.monotonic() - began, 1)
        self._done[name] = {"asked": asked, "files": {file: _digest(self.folder / file) for file in outputs},
                            "seconds": self.seconds[name]}
        staging = self.folder / f"{_RECORD}.new"
        staging.write_text(json.dumps(self._done, indent=1, sort_keys=True) + "\n")
        os.replace(staging, self.folder / _RECORD)
        return True

    def _kept(self, name: str, asked: str, outputs: Sequence[str]) -> bool:
        done = self._done.get(name)
        if not isinstance(done, dict) or done.get("asked") != asked:
            return False
        files = done.get("files")
        return isinstance(files, dict) and all(
            (self.folder / file).is_file() and _digest(self.folder / file) == files.get(file) for file in outputs)
