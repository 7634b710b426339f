"""Golden model and device side by side, every tensor of every step compared."""

import contextlib
import dataclasses

from gradloom.contracts.config import Config
from gradloom.host.devices.board_choice import machine_config
from gradloom.host.devices.device import device_name
from gradloom.host.devices.limits import sum_widths, told
from gradloom.host.devices.opening import MemoryOptions
from gradloom.host.devices.session import Session
from gradloom.host.devices.verification import Difference, compare_tensors
from gradloom.host.environment import check_device
from gradloom.host.knobs import choose
from gradloom.host.requests import CONFIG, SCHEDULE, check_types
from gradloom.host.runs.reporting import Reporter
from gradloom.host.runs.steps import StepsRequest, material, steps_on
from gradloom.models import digests
from gradloom.models.golden import step as golden

__all__ = ["VerifyRequest", "VerifyResult", "verify_steps"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyRequest(StepsRequest):
    """Steps that a device and the golden model both train.

    Parameters
    ----------
    config : :class:`~gradloom.contracts.config.Config` or :class:`str`, optional
        The machine, a preset's name or a TOML file; default: "small", or the board's.
    device : :class:`str`
        Name of a device (:func:`~gradloom.host.devices.device.device_name`).
    schedule : :class:`str`, optional
        File of ``gradloom tune``, or "rules"; default: the package's schedule, if it has one.
    memory : :class:`~gradloom.host.devices.opening.MemoryOptions`
        DRAM and waveform of the simulated machine.
    """

    config: Config | str | None = None
    device: str = "rtl"
    schedule: str | None = None
    memory: MemoryOptions = dataclasses.field(default_factory=MemoryOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, config=CONFIG)
        device_name(self.device)
        check_types(self, schedule=SCHEDULE)
        self.memory.check_trace(self.device)


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """What was compared.

    Parameters
    ----------
    steps : :class:`int`
        That were compared, the differing one included.
    tensors, bytes : :class:`int`
        In all of them.
    difference : :class:`~gradloom.host.devices.verification.Difference`, optional
        The first element that differs; ``None`` if not one byte does.
    digest : :class:`str`
        SHA-256 over all parameters after the last step, of the golden model.
    cycles : :class:`int`, optional
        Of the machine; ``None`` on a device that counts none.
    """

    steps: int
    tensors: int
    bytes: int
    difference: Difference | None
    digest: str
    cycles: int | None

    @property
    def equal(self) -> bool:
        """Whether every byte is the golden model's."""
        return self.difference is None


def verify_steps(request: VerifyRequest, reporter: Reporter) -> VerifyResult:
    """Train the steps on the device and on the golden model, up to the first difference.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the device cannot be had here, or something does not fit together.
    :exc:`~gradloom.host.devices.device.MachineError`
        If a step cannot be computed or the machine stops otherwise.
    """
    config = machine_config(request.device, request.config)
    check_device(request.device, config, request.memory.trace)
    given = material(request)
    network, state, first = given.network, given.state, given.state.step
    trained = f", from step {first} on" if request.weights else ""
    reporter.line(f"verifying {network.name} on {config.name} ({config.macs} MACs), device {request.device}, "
                  f"{request.steps} steps of {request.batch} images ({given.title}){trained}, seed {state.seed}")
    tensors = size = done = 0
    difference: Difference | None = None
    knobs = choose(request.schedule, network, config, request.batch, reporter.notice)
    with Session(network, config, request.batch, request.device, given.exponent, state.seed, request.memory,
                 knobs=knobs) as session:
        with contextlib.closing(steps_on(session, given, request, reporter)) as steps:
            for step, part in steps:
                with told(f"golden model beside the device, step {first + step}"):
                    result = golden.train_step(network, state, given.images[part], given.labels[part],
                                               given.hypers[step], widths=sum_widths(network, config))
                comparison = compare_tensors(network, first + step, result, state, session)
                tensors, size, done = tensors + comparison.tensors, size + comparison.bytes, step + 1
                difference = comparison.difference
                if difference is not None:
                    break
        cycles, kind = session.cycles, session.kind
        cost = session.cost() if difference is None else None
    digest = digests.parameters_digest(network, state)
    found = VerifyResult(done, tensors, size, difference, digest, cycles)
    if difference is not None:
        reporter.line(f"DIFFERENT: {difference}")
        return found
    spent = "" if cycles is None else f", {cycles:,} {kind} cycles"
    reporter.line(f"0 differences: {tensors:,} tensors, {size:,} bytes compared over {request.steps} steps{spent}, "
                  f"parameters {digest[:16]}")
    if cost is not None:
        reporter.line(f"on the board: {cost}")
    return found
