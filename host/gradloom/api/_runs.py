"""Training, verification and evaluation from Python: the command line's work, with values in the place of options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradloom.api._errors import plain_errors
from gradloom.api._given import Data, Source, Watcher, images_of, name_of, path_of, reporter_of
from gradloom.contracts.config import Config
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.files import UserError
from gradloom.host.runs import evaluation, training
from gradloom.host.runs.evaluation import EvalRequest, EvalResult
from gradloom.host.runs.training import TrainRequest, TrainResult
from gradloom.host.runs.verify import VerifyRequest, VerifyResult, verify_steps
from gradloom.models.network import Network

__all__ = ["evaluate", "resume", "train", "verify"]


def _memory(given: Any) -> MemoryOptions:
    if given is not None and not isinstance(given, MemoryOptions):
        raise UserError(f"memory must be a MemoryOptions, not {given!r}")
    return MemoryOptions() if given is None else given


@plain_errors()
def train(
    network: Network | Source,
    data: Data = "digits",
    *,
    config: Config | Source | None = None,
    device: str = "golden",
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    warmup: int | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    seed: int = 1,
    out: Path | str | None = None,
    check: str = "last",
    integers: str = "unit",
    normalise: str | None = None,
    augment: str | None = None,
    validation: int | None = None,
    format: str | None = None,
    rounding: Mapping[str, str] | None = None,
    schedule: Source | None = None,
    memory: MemoryOptions | None = None,
    progress: Watcher = False,
) -> TrainResult:
    """Train a network, and keep its weights, its record and a report in a folder.

    What is ``None`` is the network's own. Every device gives the same bytes.

    Parameters
    ----------
    network : :class:`Network`, or name or file
        A network, or what :func:`load_network` takes.
    data : name, file or arrays
        "digits", an ``.npz`` file, a folder of MNIST, CIFAR-10 or images; or arrays (x, y) or (x, y, x_test, y_test):
        images (N, C, Y, X) or (N, Y, X), class numbers (N,). Without test images a fifth is held out.
    config : :class:`Config`, or name or file, optional
        The machine; default: "small", or the board's.
    device : :class:`str`
        "golden", "rtl", "emulator", "emulator:cuda", a board, or "sim:" or "netlist:" and a board (:func:`devices`).
    epochs, steps : :class:`int`, optional
        Passes over the training images, or steps; at most one of the two.
    batch : :class:`int`, optional
        Images of a step.
    lr : :class:`float`, optional
        Peak learning rate, 2^-30..64.
    warmup : :class:`int`, optional
        Epochs in which the rate rises to it.
    momentum, weight_decay : :class:`float`, optional
        0..255/256 and 0..0.5; rounded to 1/256 and to a power of two.
    seed : :class:`int`
        Of weights, order and rounding, 32 bits.
    out : path, optional
        Folder of the results, empty or new; default: runs/NETWORK-CONFIG-N.
    check : :class:`str`
        What is compared with the golden model: "all" steps, the "last" one, or "off".
    integers : :class:`str`
        Images of whole numbers are divided by a power of two to lie in -1..1 ("unit"), or taken as they are ("raw").
    normalise : :class:`str`, optional
        "channel": every channel gets the mean 0 and the standard deviation 1; or "none".
    augment : :class:`str`, optional
        "crop", "crop=N", "flip", both joined by a comma, or "none".
    validation : :class:`int`, optional
        Training images that are held out and evaluated after every epoch.
    format : :class:`str`, optional
        Number format; the machine runs "pint8".
    rounding : mapping, optional
        Changes by kind of tensor, such as ``{"errors": "stochastic"}``.
    schedule : name or file, optional
        As of :func:`compile`.
    memory : :class:`MemoryOptions`, optional
        DRAM and waveform of the simulated hardware.
    progress : :class:`bool` or function
        True prints what the command line prints; a function is called with a :class:`Progress` now and then.

    Returns
    -------
    :class:`TrainResult`

    Raises
    ------
    :exc:`UserError`
        If a value cannot be used, the device cannot be had here, or the folder is taken.
    :exc:`CheckFailed`
        If a checked step differs from the golden model.
    :exc:`MachineError`
        If a step cannot be computed or the machine stops otherwise; :func:`resume` goes on where it was.
    """
    request = TrainRequest(
        network=name_of(network), data=images_of(data), config=name_of(config), device=device, epochs=epochs,
        steps=steps, batch=batch, lr=lr, warmup=warmup, momentum=momentum, weight_decay=weight_decay, seed=seed,
        out=path_of(out), check=check, integers=integers, normalise=normalise, augment=augment, validation=validation,
        format=format, rounding=rounding, schedule=name_of(schedule), memory=_memory(memory),
    )
    return training.train(request, reporter_of(progress))


@plain_errors()
def resume(run: Path | str, *, data: Data | None = None, memory: MemoryOptions | None = None,
           progress: Watcher = False) -> TrainResult:
    """Train an interrupted run to its end: the same bytes as without the interruption.

    Parameters
    ----------
    run : path
        The run's folder.
    data : arrays, optional
        Those that the run was given, if it was given arrays.
    memory : :class:`MemoryOptions`, optional
        Of it only the waveform counts: a run keeps its settings.
    progress : :class:`bool` or function
        As of :func:`train`.

    Returns
    -------
    :class:`TrainResult`

    Raises
    ------
    :exc:`UserError`
        If the folder holds no run, or what the run was given has changed; else as :func:`train`.
    """
    if not isinstance(run, Path | str):
        raise UserError(f"run must be a run's folder, not {run!r}")
    images = None if data is None else images_of(data)
    if isinstance(images, str):
        raise UserError(f"a run keeps the name of its data: leave data={images!r} out")
    return training.resume(Path(run), reporter_of(progress), data=images, memory=_memory(memory))


@plain_errors()
def evaluate(
    network: Network | Source,
    weights: Path | str,
    data: Data = "digits",
    *,
    config: Config | Source | None = None,
    device: str = "golden",
    batch: int | None = None,
    integers: str | None = None,
    normalise: str | None = None,
    format: str | None = None,
    rounding: Mapping[str, str] | None = None,
    memory: MemoryOptions | None = None,
) -> EvalResult:
    """Accuracy of trained weights on test images. What is ``None`` is as in the training.

    Parameters
    ----------
    network : :class:`Network`, or name or file
        That was trained.
    weights : path
        A run's folder (:attr:`TrainResult.run`) or its checkpoint.npz.
    data : name, file or arrays
        As of :func:`train`; the test images count.
    config, device, batch, integers, normalise, format, rounding, memory
        As of :func:`train`.

    Returns
    -------
    :class:`EvalResult`

    Raises
    ------
    :exc:`UserError`
        If there are no weights or test images, or something does not fit together.
    :exc:`MachineError`
        If the machine stops.
    """
    request = EvalRequest(
        network=name_of(network), weights=path_of(weights), data=images_of(data), config=name_of(config), device=device,
        batch=batch, integers=integers, normalise=normalise, format=format, rounding=rounding, memory=_memory(memory),
    )
    return evaluation.evaluate(request, reporter_of(False))


@plain_errors()
def verify(
    network: Network | Source,
    config: Config | Source | None = None,
    *,
    device: str = "rtl",
    data: Data = "digits",
    steps: int = 5,
    batch: int = 4,
    weights: Path | str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    seed: int = 1,
    integers: str = "unit",
    normalise: str | None = None,
    format: str | None = None,
    rounding: Mapping[str, str] | None = None,
    schedule: Source | None = None,
    memory: MemoryOptions | None = None,
    progress: Watcher = False,
) -> VerifyResult:
    """Train some steps on a device and on the golden model, and compare every byte of every tensor.

    Parameters
    ----------
    network : :class:`Network`, or name or file
        A network, or what :func:`load_network` takes.
    config : :class:`Config`, or name or file, optional
        The machine; default: "small", or the board's.
    device : :class:`str`
        As of :func:`train`; default: the simulated hardware, which is built first.
    data : name, file or arrays
        As of :func:`train`; where they do not fit the network, or of "random", hashed images are taken.
    steps, batch : :class:`int`
        How many steps, and images of each.
    weights : path, optional
        A run's folder or its checkpoint.npz, at whose state the steps begin; default: at initial weights.
    lr, momentum, weight_decay, seed, integers, normalise, format, rounding, schedule, memory, progress
        As of :func:`train`.

    Returns
    -------
    :class:`VerifyResult`
        Its ``equal`` tells whether not one byte differs.

    Raises
    ------
    :exc:`UserError`
        If a value cannot be used or the device cannot be had here.
    :exc:`MachineError`
        If a step cannot be computed or the machine stops otherwise.
    """
    request = VerifyRequest(
        network=name_of(network), config=name_of(config), device=device, data=images_of(data), steps=steps, batch=batch,
        weights=path_of(weights), lr=lr, momentum=momentum, weight_decay=weight_decay, seed=seed, integers=integers,
        normalise=normalise, format=format, rounding=rounding, schedule=name_of(schedule), memory=_memory(memory),
    )
    return verify_steps(request, reporter_of(progress))
