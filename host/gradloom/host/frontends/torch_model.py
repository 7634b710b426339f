"""A training loop's view of the machine: ``model.step(images, labels)``, tensors by layer name, evaluation."""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from gradloom.contracts.config import Config
from gradloom.contracts.matrix_config import load_training_machine
from gradloom.host.devices.device import device_name
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.host.files import UserError
from gradloom.host.frontends.imported import Imported, build
from gradloom.host.frontends.torch_batches import Encoder, image_shape, images_array, labels_array
from gradloom.host.frontends.torch_given import check_given
from gradloom.host.frontends.torch_tensors import LayerTensors, Tensors
from gradloom.host.frontends.torch_trace import trace
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Hyper
from gradloom.models.layers import Training
from gradloom.models.network import Network
from gradloom.models.rounding import Rounding
from gradloom.models.state import State

__all__ = ["Evaluation", "Model", "Step"]


@dataclasses.dataclass(frozen=True)
class Step:
    """One training step.

    Parameters
    ----------
    number : :class:`int`
        From 0.
    loss, accuracy : :class:`float`
        Mean loss and share of correct images of the batch, before the step's update.
    cycles : :class:`int`, optional
        Simulated cycles of the step.
    """

    number: int
    loss: float
    accuracy: float
    cycles: int | None


@dataclasses.dataclass
class _Past:
    """What is remembered of a step. ``before`` is given where the exponents that the step used are not known yet."""

    used: dict[int, int]
    after: dict[int, int]
    before: tuple[State, np.ndarray, np.ndarray, Hyper] | None
    tensors: dict[tuple[str, str], np.ndarray] | None


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Mean loss and share of correct images of a data set."""

    loss: float
    accuracy: float
    images: int


class Model:
    """A module on a device. Close it, or use it as a context manager.

    Parameters
    ----------
    module : :class:`torch.nn.Module` or :class:`~gradloom.host.frontends.imported.Imported`
    config : :class:`str` or :class:`~gradloom.contracts.config.Config`
        Machine: a preset's name, a TOML file or a configuration.
    device : :class:`str`
        "golden", "emulator", "emulator:cuda" or "rtl".
    batch : :class:`int`, optional
        Images of a step; default: those of the first one.
    lr, momentum, weight_decay : :class:`float`
        SGD; :attr:`lr` may be changed between steps.
    loss : :class:`str`
        "softmax" or "squared".
    rounding : dict, optional
        :meth:`~gradloom.models.network.Network.rounded`'s changes.
    seed : :class:`int`
        Of the stochastic rounding.
    input_shape : (channels, rows, columns) or (features,), optional
        Default: that of the first step's images; the network is made then.
    input_exponent : :class:`int`, optional
        Images are quantised to PINT values times 2^input_exponent; default: the first step's largest magnitude fits just.
    keep : :class:`int`
        Steps of which :meth:`tensors` can tell. Those before the latest are copied to the host.
    memory : :class:`~gradloom.host.devices.opening.MemoryOptions`, optional
        DRAM of the simulated hardware.
    quiet : :class:`bool`
        Do not print :attr:`notes`.
    """

    def __init__(
        self,
        module: "nn.Module | Imported",  # quoted: the documentation is made without PyTorch
        *,
        config: str | Config = "small",
        device: str = "golden",
        batch: int | None = None,
        lr: float = 0.02,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        loss: str = "softmax",
        rounding: Mapping[str, str] | None = None,
        seed: int = 1,
        input_shape: tuple[int, ...] | None = None,
        input_exponent: int | None = None,
        name: str | None = None,
        keep: int = 1,
        memory: MemoryOptions | None = None,
        quiet: bool = False,
    ) -> None:
        if not isinstance(module, Imported):
            check_given(module)
        device_name(device)
        if keep < 1:
            raise UserError(f"keep must be 1 or more steps, not {keep}")
        self._encoder = Encoder(input_exponent)
        self._module, self._device, self._loss, self._seed = module, device, loss, seed
        self._config = load_training_machine(config) if isinstance(config, str) else config
        self._batch, self._keep, self._quiet = batch, keep, quiet
        self._memory = memory or MemoryOptions()
        self._name = name
        self._settings: dict[str, Any] = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        self._rounding = Rounding().changed(rounding or {})
        self._imported: Imported | None = None
        self._session: Session | None = None
        self._past: dict[int, _Past] = {}
        self.steps = 0
        """Steps done."""
        if isinstance(module, Imported) or input_shape is not None:
            self._import(input_shape)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give up the device."""
        if self._session is not None:
            self._session.__exit__(None, None, None)
            self._session = None

    @property
    def imported(self) -> Imported:
        """The network and its parameters' names."""
        if self._imported is None:
            raise UserError("the network is made at the first step, from the shape of its images: give input_shape to have it now")
        return self._imported

    @property
    def network(self) -> Network:
        return self.imported.network

    @property
    def notes(self) -> tuple[str, ...]:
        """What is trained otherwise than the module says."""
        return self.imported.notes

    @property
    def batch(self) -> int:
        """Images of a step."""
        if self._batch is None:
            raise UserError("the batch is that of the first step: give batch to have it now")
        return self._batch

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return self._settings["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        settings = self._settings | {"lr": value}
        if self._imported is not None:
            dataclasses.replace(self._imported.network, train=Training(**settings))
        self._settings = settings

    def step(self, images: Any, labels: Any) -> Step:
        """Train on a batch: float or uint8 images (B, C, Y, X), or features (B, F), and class numbers (B,).

        Raises
        ------
        :exc:`UserError`
            If they do not fit the network or the batch.
        """
        x, y = images_array(images), labels_array(labels)
        if self._imported is None:
            self._import(image_shape(x))
        if self._batch is None:
            self._batch = len(x)
        codes = self._encoder.codes(x, y, self.network)
        if len(y) != self.batch:
            raise UserError(f"a step takes {self.batch} images, this batch has {len(y)}: set drop_last=True in the DataLoader, "
                            f"or batch={len(y)}")
        session = self._open()
        before = session.state() if not self._past and self.steps == 0 else None
        used = dict(session.exponents())
        cycles = session.cycles
        hyper = Hyper.from_floats(**self._settings)
        outcome = session.train([codes], [y], [hyper])[0]
        number, self.steps = self.steps, self.steps + 1
        replay = None if before is None else (before, codes, y, hyper)
        self._past[number] = _Past(used, dict(session.exponents()), replay, self._copy() if self._keep > 1 else None)
        self._past.pop(number - self._keep, None)
        spent = None if session.cycles is None else session.cycles - (cycles or 0)
        return Step(number, outcome.loss, outcome.correct / self.batch, spent)

    def evaluate(self, loader: Iterable[tuple[Any, Any]]) -> Evaluation:
        """Forward passes over a loader's (images, labels); the state stays as it is, and batches may have any size."""
        if self.steps == 0:
            raise UserError("there is nothing to evaluate before the first step: it calibrates the exponents")
        loss, correct, count = 0.0, 0, 0
        for images, labels in loader:
            y = labels_array(labels)
            score = self._open().evaluate(self._encoder.codes(images_array(images), y, self.network), y)
            loss, correct, count = loss + score.loss * score.images, correct + score.correct, count + score.images
        if not count:
            raise UserError("the loader gave no images: give one with at least a batch")
        return Evaluation(loss / count, correct / count, count)

    def tensors(self, step: int | None = None) -> Mapping[str, LayerTensors]:
        """Tensors of a step, by default the latest, by layer name."""
        if self.steps == 0:
            raise UserError("there are no tensors before the first step")
        number = self.steps - 1 if step is None else step
        if number not in self._past:
            raise UserError(f"there are no tensors of step {number}: those of steps {min(self._past)}..{max(self._past)} are "
                            "kept, give keep to keep more")
        past = self._past[number]
        if past.before is not None:
            # The first step finds its exponents itself, and only what follows from them is on the device afterwards.
            state, codes, labels, hyper = past.before
            past.used, past.before = golden.train_step(self.network, state, codes, labels, hyper).exponents, None
        return Tensors({
            layer.name: LayerTensors(self.network, layer, self.batch, functools.partial(self._read, number), past.used, past.after)
            for layer in self.network.layers
        })

    def state(self) -> State:
        """The device's state."""
        return self._open().state()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Trained parameters by the module's own names (:func:`gradloom.api.pytorch.to_state_dict`)."""
        return {name: torch.from_numpy(array) for name, array in self.imported.arrays(self.state()).items()}

    # Inside

    def _import(self, shape: tuple[int, ...] | None) -> None:
        if isinstance(self._module, Imported):
            imported = self._module
        else:
            assert shape is not None
            name = self._name or type(self._module).__name__
            imported = build(trace(self._module, shape).found, name, None, self._loss, None)
        train = Training(batch=self._batch or 1, **self._settings)
        network = dataclasses.replace(imported.network, train=train, rounding=self._rounding)
        self._imported = dataclasses.replace(imported, network=network)
        if not self._quiet:
            for note in imported.notes:
                print(f"gradloom: note: {note}", file=sys.stderr)

    def _open(self) -> Session:
        if self._session is None:
            if self.steps:
                raise UserError("this model is closed: compile the module anew")
            exponent = self._encoder.exponent
            if exponent is None or self._batch is None:
                raise UserError("the device is opened at the first step: give batch and input_exponent to have it now")
            self._session = Session(self.network, self._config, self._batch, self._device, exponent, self._seed, self._memory)
            self._session.load(self.imported.state(seed=self._seed, input_exponent=exponent))
        return self._session

    def _copy(self) -> dict[tuple[str, str], np.ndarray]:
        session = self._open()
        return {key: np.array(session.tensor(*key)) for key in golden.expected_tensors(self.network)}

    def _read(self, step: int, layer: str, tensor: str) -> np.ndarray:
        past = self._past.get(step)
        if past is not None and past.tensors is not None:
            return past.tensors[layer, tensor]
        if step != self.steps - 1:
            raise UserError(f"the tensors of step {step} are gone, step {self.steps - 1} has overwritten them: give keep to keep "
                            "more")
        return np.asarray(self._open().tensor(layer, tensor))
