"""Compare what a device wrote in a step with the golden model: every tensor that the *network* says must exist, byte for byte."""

import dataclasses
import math
from typing import Protocol

import numpy as np

from gradloom.host.devices.tensor_order import execution_order
from gradloom.models.golden.step import StepResult, expected_tensors
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["CheckFailed", "Comparison", "Difference", "TensorSource", "compare_tensors"]


class CheckFailed(Exception):
    """A step differs from the golden model; the message says where first."""


class TensorSource(Protocol):
    """Where the device's tensors of the latest step come from; without ``export_dw`` it holds no weight gradients."""

    export_dw: bool

    def tensor(self, layer: str, name: str) -> np.ndarray:
        """A logical tensor (NCHW, OIHW) as the golden model shapes it."""

    def exponents(self) -> dict[int, int]:
        """Exponent file by tensor number."""

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        """Cycle in which the element was last written, if the device knows."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A differing element of a step."""

    step: int
    layer: str
    tensor: str
    index: tuple[int, ...]
    golden: int
    device: int
    cycle: int | None

    def __str__(self) -> str:
        written = "" if self.cycle is None else f", written in cycle {self.cycle}"
        return (
            f"step {self.step}, layer {self.layer!r}, tensor {self.tensor}, element {list(self.index)}: "
            f"golden {self.golden}, device {self.device}{written}"
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How much was compared, and a difference, if any: of the tensors that differ, of the one that was written first.

    Where the device knows no cycles, the order of a step's operations decides.
    """

    tensors: int
    bytes: int
    difference: Difference | None


def compare_tensors(
    network: Network, step: int, result: StepResult, state: State, source: TensorSource
) -> Comparison:
    """Compare one step.

    Parameters
    ----------
    result : :class:`~gradloom.models.golden.step.StepResult`
        What the golden model wrote in this step.
    state : :class:`~gradloom.models.state.State`
        The golden state after the step (its exponents are compared as well).
    """
    tensors = size = 0
    found: list[Difference] = []
    for layer, name in expected_tensors(network, export_dw=source.export_dw):
        golden = np.asarray(result.tensors[layer, name])
        device = np.asarray(source.tensor(layer, name))
        tensors += 1
        size += golden.nbytes
        if device.shape != golden.shape:
            raise AssertionError(f"{layer}/{name}: device shape {device.shape}, golden shape {golden.shape}")
        unequal = device != golden
        if unequal.any():
            index = tuple(int(i) for i in np.argwhere(unequal)[0])
            cycle = source.written_at(layer, name, index)
            found.append(Difference(step, layer, name, index, int(golden[index]), int(device[index]), cycle))
    exponents = source.exponents()
    for tid, golden_exponent in sorted(state.exponents.items()):
        tensors += 1
        size += 1
        if exponents[tid] != golden_exponent:
            layer = network.layers[tid // 8 - 1].name if tid >= 8 else "input"
            found.append(Difference(step, layer, f"exponent {tid % 8}", (), golden_exponent, exponents[tid], None))
    found.sort(key=lambda difference: (
        math.inf if difference.cycle is None else difference.cycle,
        execution_order(network, difference.layer, difference.tensor),
    ))
    return Comparison(tensors, size, found[0] if found else None)
