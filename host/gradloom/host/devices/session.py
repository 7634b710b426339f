"""A network on a device: load a state, train steps, read tensors, evaluate. What the command line talks to.

The same calls serve every device (:class:`~gradloom.host.devices.network_device.NetworkDevice`); here lies what they have in
common: batches of an evaluation, warnings, cycles over sessions.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.datasets.data import Dataset
from gradloom.host.devices.device import MachineError
from gradloom.host.devices.limits import near_text, saturated, saturation_text, sum_widths
from gradloom.host.devices.network_device import Outcome
from gradloom.host.devices.opening import MemoryOptions, open_network_device
from gradloom.host.files import UserError
from gradloom.host.knobs import Knobs
from gradloom.models.golden.step import Hyper
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["Score", "Session", "check_fit"]


@dataclasses.dataclass(frozen=True)
class Score:
    """Evaluation of a set of images."""

    loss: float
    correct: int
    images: int


def check_fit(network: Network, data: Dataset, batch: int) -> None:
    """Raises :exc:`UserError` if the network cannot take this data in batches of this size."""
    if data.train_x.shape[1:] != network.input_shape:
        raise UserError(
            f"network {network.name} takes images of {network.input_shape} (channels, rows, columns), "
            f"data {data.name} has {data.train_x.shape[1:]}: give fitting data or change the network's input"
        )
    if data.classes > network.classes:
        raise UserError(
            f"data {data.name} has {data.classes} classes, network {network.name} only {network.classes}: "
            "give a network with as many outputs"
        )
    if batch > len(data.train_y):
        raise UserError(f"--batch {batch} is more than the {len(data.train_y)} training images of {data.name}")


def _batches(images: np.ndarray) -> list[np.ndarray]:
    """A batch of these images, if there are any."""
    return [images] if len(images) else []


def _print_warning(text: str) -> None:
    print(f"gradloom: warning: {text}", file=sys.stderr, flush=True)


class Session:
    """One network on one device, as a context manager."""

    def __init__(
        self,
        network: Network,
        config: Config,
        batch: int,
        device: str,
        input_exponent: int,
        seed: int,
        memory: MemoryOptions,
        *,
        export_dw: bool = True,
        knobs: Knobs | None = None,
    ) -> None:
        self._network, self._batch, self._widths = network, batch, sum_widths(network, config)
        self._step = 0
        self._told: set[tuple[str, str]] = set()
        self.notice: Callable[[str], None] = _print_warning
        """Takes warnings: of sums near their limit and of saturated logits, each kind once for every layer."""
        self._device = open_network_device(device, network, config, batch, State.initial(network, seed, input_exponent), memory,
                                           export_dw=export_dw, knobs=knobs)
        self.export_dw = export_dw and getattr(self._device, "export_dw", True)
        """Whether the weight gradients are stored, and so can be compared."""

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._device.close()
        except MachineError:
            # A board that is lost cannot be left in order, either; what lost it has been told.
            if error is None:
                raise

    @property
    def cycles(self) -> int | None:
        """Cycles of this session so far; ``None`` on a device that counts none."""
        return self._device.cycles

    @property
    def kind(self) -> str:
        """What cycles are called in reports: "simulated" or "on-board"."""
        return self._device.kind

    def cost(self) -> str | None:
        """What the session so far takes of a board; :class:`None` of what is none."""
        return self._device.cost()

    def cycles_total(self, previous: dict[str, Any] | None) -> int | None:
        """Cycles of the run: those that an earlier session's ``cycle_table`` holds and those since."""
        return None if self.cycles is None else (previous or {}).get("total", 0) + self.cycles

    def cycle_table(self, previous: dict[str, Any] | None) -> dict[str, Any] | None:
        """Busy cycles of every engine by layer and phase, added to the table of earlier calls."""
        return self._device.cycle_table(previous)

    def load(self, state: State) -> None:
        """Put a state on the device."""
        self._step = state.step
        self._device.load(state)

    def state(self) -> State:
        """The device's state."""
        return self._device.state()

    def expect(self, images: Callable[[], Sequence[np.ndarray]]) -> None:
        """Tell what images come behind the next :meth:`train`; a device may fetch them while it computes."""
        self._device.expect(images)

    def train(
        self,
        images: Sequence[np.ndarray],
        labels: Sequence[np.ndarray],
        hypers: Sequence[Hyper],
        report: Callable[[float], None] | None = None,
    ) -> list[Outcome]:
        """Train one step per batch, all from one start of the machine; ``report`` hears how many steps are done.

        Raises
        ------
        :exc:`~gradloom.host.devices.device.MachineError`
            If a step cannot be computed (:exc:`~gradloom.host.devices.limits.LimitReached`) or the machine stops otherwise.
        """
        try:
            outcomes = self._device.train(images, labels, hypers, report)
        except MachineError as error:
            self._count(error.outcomes, labels)
            raise
        self._count(outcomes, labels)
        return outcomes

    def _count(self, outcomes: Sequence[Outcome], labels: Sequence[np.ndarray]) -> None:
        """Steps that were done, with their warnings."""
        for outcome, batch in zip(outcomes, labels, strict=False):
            self._warn(f"step {self._step}", outcome, len(batch))
            self._step += 1

    def _warn(self, when: str, outcome: Outcome, images: int) -> None:
        """Tell of an outcome what has not been told before."""
        self._warn_saturated(when, outcome.saturated, images)
        new = {key: bits for key, bits in outcome.near.items() if key not in self._told}
        self._told |= set(new)
        for text in near_text(when, new, self._widths):
            self.notice(text)

    def _warn_saturated(self, when: str, count: int, images: int) -> None:
        layer = self._network.logits.name
        if count and (layer, "logits") not in self._told:
            self._told.add((layer, "logits"))
            self.notice(saturation_text(when, layer, count, images * self._network.classes))

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Score:
        """Forward passes over all images; the state stays as it is."""
        loss, correct, extreme = 0.0, 0, 0
        for start in range(0, len(labels), self._batch):
            part, following = slice(start, start + self._batch), images[start + self._batch:start + 2 * self._batch]
            self._device.expect(functools.partial(_batches, following))
            found = self._device.evaluate(images[part], labels[part])
            loss, correct = loss + found.loss * len(labels[part]), correct + found.correct
            extreme += saturated(found.logits)
        self._warn_saturated(f"evaluation after {self._step} steps", extreme, len(labels))
        return Score(loss / len(labels), correct, len(labels))

    def tensor(self, layer: str, name: str) -> np.ndarray:
        """A tensor that the latest step wrote, in its logical shape."""
        return self._device.tensor(layer, name)

    def exponents(self) -> dict[int, int]:
        """Exponents by tensor number, after the latest step."""
        return self._device.exponents()

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        """Cycle in which an element was last written, where the device knows."""
        return self._device.written_at(layer, name, index)
