"""What the tests of the whole machine share: a network with data, a runner on simulated hardware, a step compared in every byte."""

import dataclasses
from collections.abc import Callable

import numpy as np

from gradloom.contracts.config import Config
from gradloom.host.datasets.synthetic import synthetic_images
from gradloom.host.devices.device import Device
from gradloom.host.devices.runner import ProgramRunner
from gradloom.host.devices.verification import Comparison, compare_tensors
from gradloom.models import digests
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Hyper
from gradloom.models.network import Network, load_network
from gradloom.models.state import State
from gradloom.sim.rtl_device import DramModel, RtlDevice
from gradloom.verif.checkout import NETWORKS
from gradloom.verif.configs import machine_config

__all__ = [
    "Case",
    "golden_digest",
    "make_case",
    "open_runner",
    "train_digest",
    "verify_step",
    "verify_steps",
]

SEED = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A network and hashed batches for a few steps.

    Parameters
    ----------
    images, labels : list of arrays
        One batch each, codes (B, C, Y, X) and class numbers (B,).
    """

    network: Network
    batch: int
    exponent: int
    images: list[np.ndarray]
    labels: list[np.ndarray]
    hypers: list[Hyper]

    def initial(self) -> State:
        """The state before the first step."""
        return State.initial(self.network, SEED, self.exponent)


def make_case(network: Network | str, batch: int, steps: int) -> Case:
    """``network`` is a network, a built-in name or the name of a file in :data:`NETWORKS`."""
    if isinstance(network, str):
        file = NETWORKS / f"{network}.toml"
        network = load_network(str(file) if file.exists() else network)
    images, labels, exponent = synthetic_images(network, batch * steps, SEED)
    chosen = [slice(batch * step, batch * (step + 1)) for step in range(steps)]
    return Case(
        network,
        batch,
        exponent,
        [images[part] for part in chosen],
        [labels[part] for part in chosen],
        golden.schedule_table(network.train, steps),
    )


def open_runner(
    case: Case,
    config: str | Config,
    *,
    slots: int = 8,
    dram: DramModel | None = None,
    spare: int = 0,
    power_up: int = 0,
    wrap: Callable[[RtlDevice], Device] = lambda device: device,
    simulate: Callable[..., RtlDevice] = RtlDevice,
) -> ProgramRunner:
    """A runner on the simulated machine; ``spare`` bytes of memory lie behind its window. ``power_up`` as for :class:`RtlDevice`.

    ``config`` is a configuration or the name of one. Its device is what ``wrap`` makes of the machine, which ``simulate`` makes as
    :class:`RtlDevice` does.
    """
    machine = config if isinstance(config, Config) else machine_config(config)
    return ProgramRunner(
        case.network,
        machine,
        case.batch,
        slots,
        lambda size: wrap(simulate(machine, dram_bytes=size + spare, dram=dram, track_writes=True, power_up=power_up)),
    )


def verify_step(case: Case, runner: ProgramRunner, state: State, step: int) -> Comparison:
    """Run step ``step`` on the runner and on ``state``, compare all that the network says it writes, and exponents and loss."""
    images, labels, hyper = case.images[step], case.labels[step], case.hypers[step]
    outcome = runner.train([images], [labels], [hyper])[0]
    result = golden.train_step(case.network, state, images, labels, hyper)
    comparison = compare_tensors(case.network, step, result, state, runner)
    assert comparison.difference is None, str(comparison.difference)
    assert (outcome.loss, outcome.correct) == (result.loss, result.correct)
    assert comparison.tensors == len(golden.expected_tensors(case.network, export_dw=runner.export_dw)) + len(state.exponents)
    return comparison


def verify_steps(case: Case, config: str | Config, *, dram: DramModel | None = None, power_up: int = 0,
                 simulate: Callable[..., RtlDevice] = RtlDevice) -> str:
    """Every step of the case on a machine, compared in every byte. Returns the digest of the parameters."""
    runner, state = open_runner(case, config, dram=dram, power_up=power_up, simulate=simulate), case.initial()
    try:
        runner.load(state)
        for step in range(len(case.labels)):
            verify_step(case, runner, state, step)
        digest = digests.parameters_digest(case.network, runner.state())
    finally:
        runner.close()
    assert digest == digests.parameters_digest(case.network, state)
    return digest


def train_digest(case: Case, config: str, *, dram: DramModel | None = None) -> str:
    """Digest of the parameters after training without looking in between."""
    runner = open_runner(case, config, dram=dram)
    try:
        runner.load(case.initial())
        runner.train(case.images, case.labels, case.hypers)
        return digests.parameters_digest(case.network, runner.state())
    finally:
        runner.close()


def golden_digest(case: Case) -> str:
    """The same on the golden model."""
    state = case.initial()
    for x, y, hyper in zip(case.images, case.labels, case.hypers, strict=True):
        golden.train_step(case.network, state, x, y, hyper)
    return digests.parameters_digest(case.network, state)
