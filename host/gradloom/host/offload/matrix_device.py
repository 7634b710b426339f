"""Devices that multiply matrices of codes: the software twin, and a matrix machine in simulated hardware."""

import time
from typing import Protocol

import numpy as np

from gradloom.contracts.config import ConfigError
from gradloom.contracts.matrix_config import MatrixConfig, load_machine
from gradloom.host.devices.device import Device
from gradloom.host.files import UserError
from gradloom.host.matrix.machine import MatrixMachine
from gradloom.host.matrix.product import plan_product
from gradloom.models.matrix.gemm import product

__all__ = ["DEFAULT_CONFIG", "DEVICES", "MachineProducts", "MatrixDevice", "RtlDevice", "TwinDevice", "load_matrix_config",
           "open_matrix_device"]

DEVICES = ("twin", "rtl")
DEFAULT_CONFIG = "fox-8"
"""Of a simulated machine: 64 multipliers."""
_RTL_BYTES = 1 << 30
"""Memory of the simulated machine, which costs nothing until it is touched."""


class MatrixDevice(Protocol):
    """What :func:`~gradloom.host.offload.offloaded.offload` multiplies on. One with ``cycles`` has its cycles counted, too, and one
    with ``close`` is closed when the model is given back, if it was opened by its name.

    Attributes
    ----------
    seconds : :class:`float`
        That its products have taken so far.
    """

    seconds: float

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sums (M, N) of int32 of codes (M, K) and (K, N) of int8."""


class TwinDevice:
    """The golden model of the product as a device (:mod:`gradloom.models.matrix.gemm`)."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """As of :class:`MatrixDevice`."""
        begin = time.perf_counter()
        found = product(a, b)
        self.seconds += time.perf_counter() - begin
        return found


class MachineProducts:
    """A matrix machine behind memory and registers as a device.

    Parameters
    ----------
    device : :class:`~gradloom.host.devices.device.Device`
    memory_bytes : :class:`int`
        Of its memory; a product takes them from the first one on.

    Attributes
    ----------
    cycles : :class:`int`
        Of all programs so far, from start to end.
    steps : :class:`int`
        Of them those in which the array multiplied.
    """

    def __init__(self, config: MatrixConfig, device: Device, memory_bytes: int) -> None:
        self.machine = MatrixMachine(config, device, memory_bytes)
        self.seconds, self.steps = 0.0, 0

    @property
    def cycles(self) -> int:
        return self.machine.cycles

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """As of :class:`MatrixDevice`.

        Raises
        ------
        :exc:`~gradloom.host.files.UserError`
            If operands and sums need more memory than the machine has, or :func:`plan_product` refuses the product.
        """
        begin = time.perf_counter()
        machine = self.machine
        plan = plan_product(machine.config, a.shape[0], a.shape[1], b.shape[1])
        layout = plan.layout()
        program = plan.instructions(layout)
        needed = layout.end + machine.program_bytes(program)
        if needed > machine.memory_bytes:
            raise UserError(f"a product of {a.shape} and {b.shape} needs {needed:,} bytes of the machine's memory, which has "
                            f"{machine.memory_bytes:,}: take smaller batches")
        first, second = (b.T, a.T) if plan.swapped else (a, b)
        machine.device.write(layout.w, plan.pack_w(first))
        machine.device.write(layout.x, plan.pack_x(second))
        machine.run(program, layout.end)
        found = plan.unpack(machine.device.read(layout.p, layout.end - layout.p))
        self.steps += plan.steps
        self.seconds += time.perf_counter() - begin
        return found

    def close(self) -> None:
        """Give up the machine."""
        self.machine.device.close()


class RtlDevice(MachineProducts):
    """A matrix machine in simulated hardware; the first one of a configuration is built, which takes half a minute or more.

    Parameters
    ----------
    config : :class:`~gradloom.contracts.matrix_config.MatrixConfig` or :class:`str`
        The machine, a preset's name or a TOML file.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If it is no matrix machine, or the simulator cannot be built.
    """

    def __init__(self, config: MatrixConfig | str = DEFAULT_CONFIG) -> None:
        from gradloom.sim import rtl_device
        from gradloom.sim.verilate import BuildError

        if isinstance(config, str):
            try:
                config = load_matrix_config(config)
            except ConfigError as error:
                raise UserError(str(error)) from None
        try:
            device = rtl_device.RtlDevice(config, dram_bytes=_RTL_BYTES)
        except BuildError as error:
            raise UserError(f"the simulator cannot be built ({error}): run gradloom doctor") from None
        super().__init__(config, device, _RTL_BYTES)


def load_matrix_config(name: str) -> MatrixConfig:
    """A matrix machine by name or file.

    Raises
    ------
    :exc:`~gradloom.contracts.config.ConfigError`
        If there is none of that name, it breaks a rule, or it is a training machine.
    """
    found = load_machine(name)
    if not isinstance(found, MatrixConfig):
        raise ConfigError(f"{name} trains networks as a whole and has no products of its own: give a matrix machine, such as "
                          f"{DEFAULT_CONFIG}")
    return found


def open_matrix_device(name: str, config: MatrixConfig | str | None = None) -> MatrixDevice:
    """A device by its name.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If there is none of that name, or it does not take ``config``.
    """
    if name not in DEVICES:
        raise UserError(f"there is no device {name!r} that multiplies for PyTorch: give {', '.join(map(repr, DEVICES))}, or an "
                        "object with product(a, b) and seconds")
    if name == "rtl":
        return RtlDevice(config or DEFAULT_CONFIG)
    if config is not None:
        raise UserError("the software twin is no machine and has no configuration: leave config out, or give device='rtl'")
    return TwinDevice()
