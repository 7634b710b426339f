"""The golden model as a device: it reads and writes the same memory image as a machine."""

from collections.abc import Sequence

import numpy as np

from gradloom.host.devices.limits import sum_widths
from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.host.machine_program import MachineProgram
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Hyper
from gradloom.models.network import INPUT
from gradloom.models.state import State

__all__ = ["GoldenDevice"]


class GoldenDevice(SoftwareDevice):
    """Runs :func:`gradloom.models.golden.step.train_step` where a machine would run a program.

    Parameters
    ----------
    plans : sequence of :class:`~gradloom.host.machine_program.MachineProgram`
        The programs that may be started; the bytes at PROGRAM say which.
    """

    def __init__(self, plans: Sequence[MachineProgram], size: int) -> None:
        super().__init__(plans[0].config, size)
        self.plans = list(plans)

    def execute(self, address: int, steps: int) -> None:
        plan = self._plan(address)
        for slot in range(steps):
            if plan.training:
                self._train(plan, slot)
            else:
                self._forward(plan, slot)
            self.step += 1

    def _plan(self, address: int) -> MachineProgram:
        for plan in self.plans:
            program = plan.program(self.step if plan.training else 0)
            if plan.program_address == address and self.read(address, len(program)) == program:
                return plan
        raise ValueError(f"the bytes at {address:#x} are none of the programs that this device knows")

    def _state(self, plan: MachineProgram) -> State:
        if plan.training:
            state = plan.read_state(self, dict(enumerate(self.exponents)), step=self.step, seed=self.run_seed)
        else:
            state = State.initial(plan.network, self.run_seed, 0)
            state.exponents = {tid: self.exponents[tid] for tid in state.exponents}
            plan.read_weights(self, state)
        state.calibrated = not plan.calibrate
        return state

    def _train(self, plan: MachineProgram, slot: int) -> None:
        state = self._state(plan)
        entry = self.read(plan.memory_base + plan.memory["", "hyper"].address + 16 * slot, 16)
        hyper = Hyper(entry[0], int.from_bytes(entry[1:2], "little", signed=True), entry[2], entry[3])
        x, labels = plan.read(self, INPUT, "z", slot), plan.read_labels(self, slot)
        result = golden.train_step(plan.network, state, x, labels, hyper, widths=sum_widths(plan.network, plan.config))
        plan.write_state(self, state)
        plan.write_results(self, result.tensors, slot)
        for tid, value in state.exponents.items():
            self.exponents[tid] = value

    def _forward(self, plan: MachineProgram, slot: int) -> None:
        x = plan.read(self, INPUT, "z", slot)
        result = golden.evaluate(plan.network, self._state(plan), x, np.zeros(len(x), np.int64),
                                 widths=sum_widths(plan.network, plan.config))
        plan.write_results(self, {(plan.network.logits.name, "logits"): result.logits}, slot)
