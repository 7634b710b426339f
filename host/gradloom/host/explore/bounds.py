"""A quick reckoning of a training step's cycles, by which machines are sorted before the cost model runs for the few best.

The array needs a cycle for every useful multiply-accumulate of each MAC, and the A-Core one for every beat that must pass its
lanes: no schedule saves these. What the memory has to move depends on the schedule, and is reckoned with what steps of ResNet20 and
VGG16 moved on ``eta`` (docs/paper-scale.md, simulated).
"""

import dataclasses

from gradloom.contracts.config import Config
from gradloom.models.network import Network
from gradloom.systems.networks import workload
from gradloom.systems.vocabulary import ceil_div, step_macs

__all__ = ["LIMITS", "Bound", "StepWork", "bound", "step_work"]

LIMITS = ("MACs", "bandwidth", "A-Core")
"""What may keep a step from being faster, as reports name it."""
_BYTES_PER_OUTPUT, _BYTES_PER_WEIGHT = 12, 9
"""Of DRAM in a step, for an element of a layer's output and for a weight."""


@dataclasses.dataclass(frozen=True)
class StepWork:
    """What a step has to do on any machine.

    Parameters
    ----------
    macs : :class:`int`
        Useful multiply-accumulates.
    planes : tuple of (channels, positions)
        Outputs of the layers with weights, of an image.
    weights : tuple of (outputs, inputs, taps)
        Of each such layer.
    """

    batch: int
    macs: int
    planes: tuple[tuple[int, int], ...]
    weights: tuple[tuple[int, int, int], ...]


def step_work(network: Network, batch: int) -> StepWork:
    """Of a network of this project."""
    layers = workload(network).layers
    return StepWork(batch, step_macs(layers, batch), tuple((shape.outputs, shape.positions) for shape in layers),
                    tuple((shape.outputs, shape.inputs, shape.taps) for shape in layers))


@dataclasses.dataclass(frozen=True)
class Bound:
    """Cycles that each of :data:`LIMITS` needs."""

    array: float
    memory: float
    acore: float

    @property
    def cycles(self) -> float:
        return max(self.array, self.memory, self.acore)

    @property
    def limit(self) -> str:
        """Which of them needs most."""
        return LIMITS[(self.array, self.memory, self.acore).index(self.cycles)]


def bound(work: StepWork, config: Config, bytes_per_cycle: float) -> Bound:
    """Of a machine behind a memory of so many bytes a cycle.

    A-Core: an element of an output passes once forward and once backward, a weight once in its update; a beat of two columns of a
    channel group takes ``turns`` cycles. Channels are filled up to groups.
    """
    group = config.group
    weights = sum(ceil_div(outputs, group) * ceil_div(inputs, group) * group**2 * taps for outputs, inputs, taps in work.weights)
    outputs = work.batch * sum(ceil_div(channels, group) * group * positions for channels, positions in work.planes)
    moved = _BYTES_PER_OUTPUT * outputs + _BYTES_PER_WEIGHT * weights
    return Bound(work.macs / config.macs, moved / bytes_per_cycle, (2 * outputs + weights) / config.beat_bytes * config.turns)
