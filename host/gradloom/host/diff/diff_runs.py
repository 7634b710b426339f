"""Two run folders: which settings, which step and which element of the trained state differ first."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.datasets.batches import RunBatches
from gradloom.host.datasets.data import Preparation, load_dataset
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.tensor_order import element_text, phase
from gradloom.host.diff.diff_live import Batches, Side
from gradloom.host.files import UserError
from gradloom.host.runs.run_folder import RunFolder, load_checkpoint, recorded_network
from gradloom.host.runs.trainer import schedule
from gradloom.models.images import Augmentation
from gradloom.models.layers import NetworkError
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["Evidence", "Run", "compare_runs", "read_run", "replay"]

_SETTINGS = ("batch", "seed", "number_format", "rounding", "hyper")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's folder, its record, network and last state."""

    path: Path
    record: dict[str, Any]
    network: Network
    state: State | None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What two runs differ in.

    Parameters
    ----------
    settings : tuple of :class:`str`
        Settings that make different runs.
    step : :class:`int`, optional
        First step whose record differs.
    lines : tuple of :class:`str`
        What the records and the checkpoints say.
    """

    settings: tuple[str, ...]
    step: int | None
    lines: tuple[str, ...]

    @property
    def same(self) -> bool:
        return not self.settings and not self.lines


def read_run(path: Path) -> Run:
    """The run in a folder.

    Raises
    ------
    :exc:`UserError`
        If it holds none.
    """
    if not (path / "run.json").is_file():
        raise UserError(f"{path} holds no run.json: give the folder of a run")
    record = RunFolder(path).read()
    network = _network(path, record)
    checkpoint = path / "checkpoint.npz"
    return Run(path, record, network, load_checkpoint(checkpoint, network) if checkpoint.is_file() else None)


def _network(path: Path, record: dict[str, Any]) -> Network:
    source = record["network"]["source"]
    try:
        network = recorded_network(record)
    except NetworkError as error:
        raise UserError(f"{path}: its network cannot be read, {error}") from None
    if network.to_toml() != record["network"]["toml"]:
        raise UserError(f"{path}: network {source!r} has changed since the run began: restore it to compare")
    return network.formatted(record["number_format"]).rounded(record["rounding"])


def compare_runs(first: Run, second: Run) -> Evidence:
    """Compare settings, the records of every step and epoch, and the checkpoints."""
    a, b = first.record, second.record
    settings = [key for key in _SETTINGS if a[key] != b[key]]
    settings += ["network"] if a["network"]["toml"] != b["network"]["toml"] else []
    settings += ["data"] if a["data"]["sha256"] != b["data"]["sha256"] else []
    settings += ["augment"] if _augmentation(a) != _augmentation(b) else []
    step, lines = _steps(a, b)
    lines += _epochs(a, b)
    if a["network"]["toml"] == b["network"]["toml"] and a["number_format"] == b["number_format"]:
        lines += _states(first, second)
    return Evidence(tuple(settings), step, tuple(lines))


def _augmentation(record: dict[str, Any]) -> Augmentation:
    return Augmentation.parse(record["data"].get("augment", "none"))


def _steps(a: dict[str, Any], b: dict[str, Any]) -> tuple[int | None, list[str]]:
    equal = None
    for left, right in zip(a["steps"], b["steps"], strict=False):
        for key in ("loss", "accuracy", "sha256"):
            if key in left and key in right and left[key] != right[key]:
                since = "none was compared before" if equal is None else f"they were last equal after step {equal}"
                what = "parameters after it" if key == "sha256" else key
                return left["step"], [
                    f"step {left['step']}: {what} {_short(left[key])} and {_short(right[key])}; digests of the parameters: {since}"
                ]
        if "sha256" in left and "sha256" in right:
            equal = left["step"]
    return None, []


def _epochs(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    for left, right in zip(a["epochs"], b["epochs"], strict=False):
        if left["steps"] == right["steps"] and left["sha256"] != right["sha256"]:
            return [f"epoch {left['epoch'] + 1}: parameters {_short(left['sha256'])} and {_short(right['sha256'])}"]
    return []


def _short(value: object) -> str:
    return value[:16] if isinstance(value, str) else repr(value)


def _states(first: Run, second: Run) -> list[str]:
    if first.state is None or second.state is None:
        return [f"{(first if first.state is None else second).path} has no checkpoint"] if first.state is not second.state else []
    if first.state.step != second.state.step:
        return [f"the checkpoints are of steps {first.state.step} and {second.state.step}, they are not compared"]
    network = first.network
    tables = [_arrays(network, run.state) for run in (first, second) if run.state is not None]
    for (layer, tensor), left in tables[0].items():
        unequal = left != tables[1][layer, tensor]
        if unequal.any():
            index = tuple(int(i) for i in np.argwhere(unequal)[0])
            values = " and ".join(element_text(network, tensor, int(table[layer, tensor][index])) for table in tables)
            return [f"checkpoint after {first.state.step} steps, layer {layer!r}, phase {phase(tensor)}, tensor {tensor}, element "
                    f"{list(index)}: {values}"]
    for tid, exponent in first.state.exponents.items():
        other = second.state.exponents[tid]
        if exponent != other:
            layer = network.layers[tid // 8 - 1].name if tid >= 8 else "input"
            return [f"checkpoint after {first.state.step} steps, layer {layer!r}, phase scales, exponent {tid % 8}: {exponent} and "
                    f"{other}"]
    return []


def _arrays(network: Network, state: State) -> dict[tuple[str, str], np.ndarray]:
    """Weights, what their updates keep, and parameters, the last layer first, as a step updates them."""
    found: dict[tuple[str, str], np.ndarray] = {}
    for layer in reversed(network.weighted):
        name = layer.name
        for key, table in state.weight_tables().items():
            if name in table:
                found[name, key] = table[name]
        for key in network.parameters(name):
            found[name, key] = state.parameters[name][key]
            found[name, f"v{key}"] = state.parameter_velocities[name][key]
    return found


def replay(first: Run, second: Run, steps: int) -> tuple[Batches, tuple[Side, Side]]:
    """What it takes to train both runs again for some steps.

    Raises
    ------
    :exc:`UserError`
        If the data is not kept or has changed, or the configuration is of another version.
    """
    record = first.record
    if record["data"]["source"] is None:
        raise UserError(f"the images of {first.path} were given as arrays and are not kept: leave --replay out")
    data = load_dataset(record["data"]["source"], preparation=Preparation.recorded(record))
    if data.digest() != record["data"]["sha256"]:
        raise UserError(f"data {record['data']['source']!r} has changed since the run began: restore it to replay")
    drawn = RunBatches(data, record["batch"], record["seed"], _augmentation(record))
    images, labels = zip(*(drawn.of(step) for step in range(steps)), strict=True)
    hypers = schedule(record, first.network)[:steps]
    initial = State.initial(first.network, record["seed"], data.exponent)
    batches = Batches(first.network, initial, list(images), list(labels), hypers)
    return batches, (_side(first, "A"), _side(second, "B"))


def _side(run: Run, letter: str) -> Side:
    try:
        config = Config(**run.record["configuration"])
    except TypeError:
        raise UserError(f"{run.path} holds no configuration of this version: replay it with the one that wrote it") from None
    memory = MemoryOptions.from_record(run.record["memory"])
    return Side(run.record["device"], config, memory, f"{letter} ({run.record['device']})")
