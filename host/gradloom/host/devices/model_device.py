"""A software model as a device: it trains without program, memory image or cycles."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import finite, saturated, told
from gradloom.host.devices.models import Step, StepModel
from gradloom.host.devices.network_device import Outcome
from gradloom.models.golden.step import Evaluation, Hyper
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["ModelDevice"]


class ModelDevice:
    """Implements :class:`~gradloom.host.devices.network_device.NetworkDevice` with the golden model or the emulator."""

    kind = "simulated"
    cycles: int | None = None

    def __init__(self, network: Network, model: StepModel) -> None:
        self._network, self._model = network, model
        self._step = 0
        self._result: Step | None = None

    def load(self, state: State) -> None:
        self._step = state.step
        self._model.load(state)

    def state(self) -> State:
        return self._model.state()

    def expect(self, images: Callable[[], Sequence[np.ndarray]]) -> None:
        """Images cost a model nothing to bring."""

    def train(self, images: Sequence[np.ndarray], labels: Sequence[np.ndarray], hypers: Sequence[Hyper],
              report: Callable[[float], None] | None = None) -> list[Outcome]:
        outcomes: list[Outcome] = []
        try:
            for x, y, hyper in zip(images, labels, hypers, strict=True):
                outcomes.append(self._train_step(x, y, hyper))
                if report is not None:
                    report(len(outcomes))
        except MachineError as error:
            error.outcomes = tuple(outcomes)
            raise
        return outcomes

    def _train_step(self, x: np.ndarray, y: np.ndarray, hyper: Hyper) -> Outcome:
        when = f"step {self._step}"
        with told(when):
            self._result = result = self._model.train_step(x, y, hyper)
        # Logits in floating point have no ends of their range.
        extreme = 0 if self._network.arithmetic.real else saturated(result.tensors[self._network.logits.name, "logits"])
        outcome = Outcome(finite(when, result.loss), result.correct, extreme, result.near)
        self._step += 1
        return outcome

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Evaluation:
        with told(f"evaluation after {self._step} steps"):
            return self._model.evaluate(images, labels)

    def tensor(self, layer: str, name: str) -> np.ndarray:
        assert self._result is not None
        return self._result.tensors[layer, name]

    def exponents(self) -> dict[int, int]:
        return self._model.exponents

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        return None

    def cycle_table(self, previous: dict[str, Any] | None) -> dict[str, Any] | None:
        return None

    def cost(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing to give up."""
