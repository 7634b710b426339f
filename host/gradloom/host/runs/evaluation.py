"""Accuracy of trained weights on test images, by forward-only programs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from gradloom.contracts.config import Config
from gradloom.host.datasets.data import Dataset, Preparation, RawImages, load_dataset
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.device import device_name
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session, check_fit
from gradloom.host.environment import check_device
from gradloom.host.files import UserError
from gradloom.host.requests import (
    CONFIG,
    COUNT,
    FORMAT,
    IMAGES,
    INTEGERS,
    NETWORK,
    ROUNDING,
    WEIGHTS,
    check_choice,
    check_fields,
    check_types,
    given_network,
)
from gradloom.host.runs.reporting import Reporter
from gradloom.host.runs.run_folder import load_checkpoint, trained_preparation
from gradloom.models import digests
from gradloom.models.images import NORMALISATIONS
from gradloom.models.network import Kind, Network

__all__ = ["EvalRequest", "EvalResult", "evaluate"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalRequest:
    """An evaluation. What is ``None`` is as in the training, or the network's.

    Parameters
    ----------
    weights : path
        A run's folder or its checkpoint.npz.
    network : :class:`~gradloom.models.network.Network` or :class:`str`
        A network, or the name or TOML file of one.
    data : :class:`~gradloom.host.datasets.data.RawImages` or :class:`str`
        Images, or the name or file of some, with test images among them.
    config : :class:`~gradloom.contracts.config.Config` or :class:`str`, optional
        The machine, a preset's name or a TOML file; default: "small", or the board's.
    device : :class:`str`
        Name of a device (:func:`~gradloom.host.devices.device.device_name`).
    integers, normalise : :class:`str`, optional
        What images of whole numbers mean, and whether channels are normalised.
    batch : :class:`int`, optional
        Images of a program's run.
    format : :class:`str`, optional
        Number format.
    rounding : mapping, optional
        Changes of the rounding, by kind of tensor.
    memory : :class:`~gradloom.host.devices.opening.MemoryOptions`
        DRAM and waveform of the simulated machine.

    Raises
    ------
    :exc:`~gradloom.host.requests.FieldError`
        If a value is out of its range.
    """

    weights: Path
    network: Network | str = "digits-cnn"
    data: RawImages | str = "digits"
    config: Config | str | None = None
    device: str = "rtl"
    integers: str | None = None
    normalise: str | None = None
    batch: int | None = None
    format: str | None = None
    rounding: Mapping[str, str] | None = None
    memory: MemoryOptions = dataclasses.field(default_factory=MemoryOptions)

    def __post_init__(self) -> None:
        check_fields(self, batch=COUNT)
        check_types(self, weights=WEIGHTS, network=NETWORK, data=IMAGES, config=CONFIG, format=FORMAT, rounding=ROUNDING)
        check_choice(self, "integers", INTEGERS)
        check_choice(self, "normalise", NORMALISATIONS)
        device_name(self.device)
        self.memory.check_trace(self.device)


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """Test images under trained weights.

    Parameters
    ----------
    network : :class:`~gradloom.models.network.Network`
        In the number format and rounding of the evaluation.
    config : :class:`~gradloom.contracts.config.Config`
    data : :class:`~gradloom.host.datasets.data.Dataset`
        As it was prepared.
    steps : :class:`int`
        Steps of training behind the weights.
    loss : :class:`float`
        Mean over the images.
    correct, images : :class:`int`
    digest : :class:`str`
        SHA-256 over all parameters.
    cycles : :class:`int`, optional
        Of the machine; ``None`` on a device that counts none.
    """

    network: Network
    config: Config
    data: Dataset = dataclasses.field(repr=False)
    steps: int
    loss: float
    correct: int
    images: int
    digest: str
    cycles: int | None

    @property
    def accuracy(self) -> float:
        """Share of images that are classified correctly."""
        return self.correct / self.images


def evaluate(request: EvalRequest, reporter: Reporter) -> EvalResult:
    """Forward passes over all test images.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the device cannot be had here, there are no weights or test images, or something does not fit together.
    :exc:`~gradloom.host.devices.device.MachineError`
        If the machine stops.
    """
    network = given_network(request.network).formatted(request.format)
    config = machine_config(request.device, request.config)
    check_device(request.device, config, request.memory.trace)
    preparation = trained_preparation(request.weights)
    if request.integers is not None:
        preparation = dataclasses.replace(preparation, divisor=Preparation.asked(request.integers).divisor)
    if request.normalise is not None:
        preparation = dataclasses.replace(preparation, normalise=request.normalise, channels=())
    data = load_dataset(request.data, preparation=preparation)
    batch = request.batch or network.train.batch
    check_fit(network, data, batch)
    state = load_checkpoint(request.weights, network)
    network = dataclasses.replace(network, rounding=state.rounding).rounded(request.rounding)
    if not state.calibrated:
        raise UserError(f"{request.weights} holds an untrained state: train at least one step first")
    if not len(data.test_y):
        raise UserError(f"{data.name} has no test images: give an .npz file with x_test and y_test")
    digest = digests.parameters_digest(network, state)
    state.exponents[Kind.Z] = data.exponent
    with Session(network, config, batch, request.device, data.exponent, state.seed, request.memory) as session:
        session.notice = reporter.warn
        session.load(state)
        score = session.evaluate(data.test_x, data.test_y)
        cycles, kind, cost = session.cycles, session.kind, session.cost()
    found = EvalResult(network, config, data, state.step, score.loss, score.correct, score.images, digest, cycles)
    if data.note:
        reporter.line(data.note)
    text = "" if cycles is None else f", {cycles:,} {kind} cycles"
    reporter.line(f"{network.name} after {state.step} steps: test accuracy {100 * found.accuracy:.2f} % "
                  f"({found.correct} of {found.images}), loss {found.loss:.4f}{text}")
    if cost is not None:
        reporter.line(f"on the board: {cost}")
    return found
