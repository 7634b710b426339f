"""The folder of a run: ``run.json``, ``checkpoint.npz``, ``weights.npz``, ``report.html`` and its drawings, ``report.svg``.

``checkpoint.npz`` is written after every start of the machine and holds the state; ``run.json`` holds what was decided
and measured. A record of a step that the checkpoint does not hold yet is dropped on resume and made again, to the same bytes.
"""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import numpy as np

from gradloom.host.datasets.data import Preparation
from gradloom.host.environment import check_output_folder
from gradloom.host.files import UserError, write_json, write_text, write_with
from gradloom.host.runs.report import picture, render
from gradloom.models.floatref import from_state
from gradloom.models.golden.averaging import averaged
from gradloom.models.network import Network, load_network
from gradloom.models.state import State, StateError

__all__ = ["RunFolder", "load_checkpoint", "recorded_network", "trained_preparation"]

RUN_FORMAT = 3
_KEYS = ("network", "configuration", "macs", "data", "device", "batch", "total_steps", "steps_per_epoch", "seed", "check",
         "number_format", "rounding", "hyper", "memory", "versions", "steps", "epochs", "cycles")


def load_checkpoint(path: Path, network: Network) -> State:
    """A state from a run's folder or a checkpoint file."""
    file = path / "checkpoint.npz" if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"there is no {file}: give a run's folder or a checkpoint.npz")
    try:
        return State.load(file, network)
    except StateError as error:
        raise UserError(str(error)) from None


def recorded_network(record: dict[str, Any]) -> Network:
    """The network of a run as its source has it now, or, of one that was given as an object, as the record has it."""
    found = record["network"]
    return Network.from_toml(found["toml"]) if found["source"] is None else load_network(found["source"])


def trained_preparation(weights: Path) -> Preparation:
    """What the run did with its images that the weights (its folder, or a file in it) come from; none are held out.

    By the defaults where this is not known: there is no record, or the run's images were real numbers and have no divisor.
    """
    folder = weights if weights.is_dir() else weights.parent
    if not (folder / "run.json").is_file():
        return Preparation()
    record = RunFolder(folder).read()
    found = dataclasses.replace(Preparation.recorded(record), validation=0)
    return found if record["data"].get("whole", True) else dataclasses.replace(found, divisor=None)


class RunFolder:
    """One run's files.

    Raises
    ------
    :exc:`UserError`
        If the folder cannot be made, holds something else already, or holds no run to resume.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def check_free(path: Path, again: str = "or --resume {path}") -> None:
        """See that results can be written to a folder that is empty or does not exist; ``again`` is the second advice."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} exists already and is not empty: give another --out, {again.format(path=path)}")
        check_output_folder(path)

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        cls.check_free(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path} cannot be made: {error.strerror}; give another --out") from None
        return cls(path)

    @classmethod
    def free_name(cls, base: Path, name: str) -> Path:
        """The first of NAME-1, NAME-2, ... that does not exist."""
        number = 1
        while (base / f"{name}-{number}").exists():
            number += 1
        return base / f"{name}-{number}"

    def read(self) -> dict[str, Any]:
        """``run.json`` of a run that is to be resumed."""
        file = self.path / "run.json"
        try:
            record = json.loads(file.read_text())
        except FileNotFoundError:
            raise UserError(f"{self.path} holds no run.json: give the folder of a run to --resume") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read: {error}") from None
        if not isinstance(record, dict) or record.get("format") != RUN_FORMAT:
            raise UserError(f"{file} is not a run of format {RUN_FORMAT}: resume it with the version that wrote it")
        missing = [key for key in _KEYS if key not in record]
        if missing:
            raise UserError(f"{file} lacks {missing[0]!r}: restore it, or begin a new run")
        return record

    def discard_empty(self) -> None:
        """Remove the folder of a run that never began."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def begin(self, record: dict[str, Any]) -> None:
        """Write the record of a run without steps, so that even a run that is stopped at once can go on."""
        write_json(self.path / "run.json", record)

    def save(self, state: State, record: dict[str, Any]) -> None:
        """Write the record, then the checkpoint that makes it count."""
        write_json(self.path / "run.json", record)
        state.save(self.path / "checkpoint.npz")

    def finish(self, state: State, record: dict[str, Any], network: Network) -> None:
        """Write the trained weights (or their averages) as real numbers, and the report."""
        self.save(state, record)
        learnt = averaged(network, state)
        arrays = {f"{name}.{'weight' if key == 'w' else key}": value
                  for (name, key), value in from_state(network, learnt, np.float32).parameters.items()}
        write_with(self.path / "weights.npz", lambda stream: np.savez(stream, **cast(Any, arrays)))
        write_text(self.path / "report.html", render(record))
        write_text(self.path / "report.svg", picture(record))
