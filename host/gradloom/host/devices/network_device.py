"""What a network trains on, whatever computes it: golden model, emulator, simulated machine, board."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gradloom.models.golden.step import Evaluation, Hyper
from gradloom.models.state import State

__all__ = ["NetworkDevice", "Outcome"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Mean loss of a step's batch and how many of its images were classified correctly, before the step's update.

    ``saturated`` logits are at the ends of their range; ``near`` has the bits that sums take near their limit
    (:class:`~gradloom.models.golden.step.StepResult`), which a machine cannot tell.
    """

    loss: float
    correct: int
    saturated: int = 0
    near: Mapping[tuple[str, str], int] = dataclasses.field(default_factory=dict)


class NetworkDevice(Protocol):
    """One network on one device."""

    @property
    def kind(self) -> str:
        """What its cycles are called: "simulated" or "on-board"."""

    @property
    def cycles(self) -> int | None:
        """Cycles since the device was opened; :class:`None` where none are counted."""

    def load(self, state: State) -> None:
        """Put a state on the device, which keeps no reference to it."""

    def state(self) -> State:
        """A copy of the device's state."""

    def expect(self, images: Callable[[], Sequence[np.ndarray]]) -> None:
        """Tell what will be given behind the next :meth:`train` or :meth:`evaluate`: batches of codes (N, C, Y, X), of at most a
        batch of images each. A device behind a cable asks for them while it computes, and has them when they are needed; others
        never ask."""

    def train(self, images: Sequence[np.ndarray], labels: Sequence[np.ndarray], hypers: Sequence[Hyper],
              report: Callable[[float], None] | None = None) -> list[Outcome]:
        """One step for each batch of codes (B, C, Y, X) and class numbers (B,); ``report`` hears how many steps are done.

        Raises
        ------
        :exc:`~gradloom.host.devices.device.MachineError`
            If a step cannot be computed (:exc:`~gradloom.host.devices.limits.LimitReached`) or the machine stops otherwise.
        """

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Evaluation:
        """A forward pass of at most a batch of images; the state stays. Raises as :meth:`train`."""

    def tensor(self, layer: str, name: str) -> np.ndarray:
        """A tensor that the latest step wrote, in its logical shape."""

    def exponents(self) -> dict[int, int]:
        """Exponents by tensor number, after the latest step."""

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        """Cycle in which an element was last written, where the device knows."""

    def cycle_table(self, previous: dict[str, Any] | None) -> dict[str, Any] | None:
        """Busy cycles of every engine by layer and phase, added to an earlier table; :class:`None` where none are counted."""

    def cost(self) -> str | None:
        """What the run so far takes of a board; :class:`None` of what is none."""

    def close(self) -> None:
        """Give up the device."""
