"""The two software models behind one interface: the numpy golden model, and the exact emulator in PyTorch."""

import contextlib
import re
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from gradloom.host.files import UserError
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Evaluation, Hyper
from gradloom.models.network import Network
from gradloom.models.state import State
from gradloom.models.widths import FULL_WIDTHS, SumWidths

__all__ = ["GoldenModel", "Step", "StepModel", "check_emulator", "check_torch_device", "emulator"]


class Step(Protocol):
    """What a model's training step wrote, as :class:`~gradloom.models.golden.step.StepResult` has it."""

    @property
    def tensors(self) -> Mapping[tuple[str, str], np.ndarray]: ...

    @property
    def loss(self) -> float: ...

    @property
    def correct(self) -> int: ...

    @property
    def near(self) -> Mapping[tuple[str, str], int]: ...


class StepModel(Protocol):
    """A network in training, as :class:`~gradloom.models.emulator.step.Emulator` has it."""

    @property
    def exponents(self) -> dict[int, int]: ...

    def load(self, state: State) -> None: ...

    def state(self) -> State: ...

    def train_step(self, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper) -> Step: ...

    def evaluate(self, x_codes: np.ndarray, labels: np.ndarray) -> Evaluation: ...


class GoldenModel:
    """The golden model with the state that its functions change; ``widths`` of the machine that it stands for."""

    def __init__(self, network: Network, state: State, widths: SumWidths = FULL_WIDTHS) -> None:
        self._network, self._widths = network, widths
        self.load(state)

    @property
    def exponents(self) -> dict[int, int]:
        return self._state.exponents

    def load(self, state: State) -> None:
        self._state = state.copy()

    def state(self) -> State:
        return self._state.copy()

    def train_step(self, x_codes: np.ndarray, labels: np.ndarray, hyper: Hyper) -> Step:
        # A step that overflows changes nothing, as on the emulator.
        state = self._state.copy()
        with self._quiet():
            result = golden.train_step(self._network, state, x_codes, labels, hyper, widths=self._widths)
        self._state = state
        return result

    def evaluate(self, x_codes: np.ndarray, labels: np.ndarray) -> Evaluation:
        with self._quiet():
            return golden.evaluate(self._network, self._state, x_codes, labels, widths=self._widths)

    def _quiet(self) -> contextlib.AbstractContextManager[None]:
        """Floating point may overflow; the loss tells."""
        real = self._network.arithmetic.real
        return np.errstate(over="ignore", invalid="ignore", divide="ignore") if real else contextlib.nullcontext()


def check_torch_device(name: str) -> None:
    """See that PyTorch has this device: "cpu", "cuda" or "cuda:N".

    Raises
    ------
    :exc:`UserError`
        If it does not.
    """
    import torch

    if name == "cpu":
        return
    if not re.fullmatch(r"cuda(:\d{1,3})?", name):
        raise UserError(f"there is no PyTorch device {name!r} that computes exactly here: give cpu, cuda or cuda:N")
    count = torch.cuda.device_count()
    if int(name.partition(":")[2] or 0) >= count:
        raise UserError(f"{name} is not there: PyTorch finds {count} CUDA device{'' if count == 1 else 's'} on this computer: "
                        f"train on the CPU, or install a driver and a PyTorch that see the GPU")


def check_emulator(device: str = "emulator") -> None:
    """See that the emulator of this name can be had: PyTorch, and the GPU if it names one.

    Raises
    ------
    :exc:`UserError`
        If not.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UserError("--device emulator needs PyTorch, which is not installed: pip install 'gradloom[torch]'") from None
    check_torch_device(_torch_device(device))


def _torch_device(device: str) -> str:
    """PyTorch's name of where an emulator computes."""
    return device.partition(":")[2] or "cpu"


def emulator(network: Network, state: State, device: str = "emulator", widths: SumWidths = FULL_WIDTHS) -> StepModel:
    """The emulator, on the CPU or on the GPU that the device's name says; ``widths`` of the machine that it stands for.

    Raises
    ------
    :exc:`UserError`
        Without PyTorch or that GPU, or of a network in floating point.
    """
    if network.arithmetic.real:
        raise UserError(f"the format {network.format} is floating point, the emulator is exact: give --device golden")
    check_emulator(device)
    from gradloom.models.emulator.step import Emulator

    return Emulator(network, state, _torch_device(device), widths=widths)
