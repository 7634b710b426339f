"""Between start and done the host does nothing but look at STATUS, for one step and for many; and the engines overlap meanwhile."""

import pytest

from gradloom.contracts.config import PRESETS
from gradloom.contracts.engines import units
from gradloom.contracts.isa import Opcode
from gradloom.contracts.regmap import offset, perf_index, register
from gradloom.host.devices.device import Device
from gradloom.host.devices.runner import PHASES, ProgramRunner
from gradloom.host.program.assembler import Instruction, assemble
from gradloom.models import digests
from gradloom.sim.rtl_device import RtlDevice
from gradloom.verif.system_bench import golden_digest, make_case, open_runner


class Recorder:
    """A device that notes every access of the host."""

    def __init__(self, device: RtlDevice) -> None:
        self.device = device
        self.log: list[tuple[str, int]] = []

    def write(self, addr: int, data: bytes) -> None:
        self.log.append(("write", addr))
        self.device.write(addr, data)

    def read(self, addr: int, n: int) -> bytes:
        self.log.append(("read", addr))
        return self.device.read(addr, n)

    def csr_write(self, place: int, value: int) -> None:
        start = place == offset("CONTROL") and value & register("CONTROL").field("start").mask
        self.log.append(("start" if start else "csr_write", place))
        self.device.csr_write(place, value)

    def csr_read(self, place: int) -> int:
        value = self.device.csr_read(place)
        done = place == offset("STATUS") and value & register("STATUS").field("done").mask
        self.log.append(("done" if done else "csr_read", place))
        return value

    def run(self, max_cycles: int) -> int:
        self.log.append(("run", max_cycles))
        return self.device.run(min(max_cycles, 5000))

    def close(self) -> None:
        self.device.close()


@pytest.mark.parametrize(("config", "steps"), [("small", 7), ("nano", 4)])
def test_many_steps_from_one_start_without_the_host(config, steps):
    case = make_case("digits-cnn", 4, steps + 1)
    recorders: list[Recorder] = []

    def wrap(device: RtlDevice) -> Device:
        recorders.append(Recorder(device))
        return recorders[0]

    runner = open_runner(case, config, wrap=wrap)
    recorder = recorders[0]
    runner.load(case.initial())
    runner.train(case.images[:1], case.labels[:1], case.hypers[:1])
    recorder.log.clear()
    accesses = recorder.device.memory_accesses
    runner.train(case.images[1:], case.labels[1:], case.hypers[1:])
    kinds = [kind for kind, _ in recorder.log]
    assert kinds.count("start") == kinds.count("done") == 1, "all steps come from one start"
    between = recorder.log[kinds.index("start") + 1 : kinds.index("done")]
    assert {entry for entry in between if entry[0] != "run"} <= {("csr_read", offset("STATUS"))}
    assert len(between) > 2 * steps, "the host looked often, so it would have been seen doing more"
    assert recorder.device.memory_accesses > accesses
    assert recorder.device.csr_read(offset("STEP")) == steps + 1
    assert digests.parameters_digest(case.network, runner.state()) == golden_digest(case)
    runner.close()


def stretches(runner: ProgramRunner) -> dict[tuple[str, str], tuple[int, int]]:
    """First and last place in the program of the commands of each layer and phase."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for place, instruction in enumerate(runner.steady.instructions):
        if instruction.tag >= 8:
            layer = runner.network.layers[instruction.tag // 8 - 1].name
            key = layer, PHASES[instruction.tag % 8]
            found[key] = (found.get(key, (place, 0))[0], place + 1)
    return found


def test_engines_overlap():
    """From the first to the last command of a layer's phase, behind a barrier, with what is emitted in between: the engines'
    busy cycles are at least 1.3 times the cycles that pass.
    """
    case, config = make_case("digits-cnn", 16, 2), PRESETS["small"]
    runner = open_runner(case, "small", slots=1, spare=1 << 16)
    runner.load(case.initial())
    runner.train(case.images[:1], case.labels[:1], case.hypers[:1])
    plan, device = runner.steady, runner.device
    plan.write_batch(device, 0, case.images[1], case.labels[1])
    plan.write_hyper(device, case.hypers[1:])
    device.csr_write(offset("WINDOW_LIMIT"), device.dram_bytes)
    instructions, end = list(plan.instructions), Instruction(Opcode.END)

    def cycles(program: list[Instruction]) -> int:
        device.write(plan.program_address, assemble(program, config))
        for name, value in (("PROGRAM", plan.program_address), ("STEPS", 1), ("STEP", 0)):
            device.csr_write(offset(name), value)
        control = register("CONTROL")
        device.csr_write(
            offset("CONTROL"), sum(control.field(name).mask for name in ("start", "clear", "irq_enable"))
        )
        passed = device.run(5_000_000)
        assert device.csr_read(offset("STATUS")) & register("STATUS").field("done").mask
        return passed

    tags = sorted({instruction.tag for instruction in instructions})

    def busy() -> int:
        """Busy cycles of all engines since the start."""
        total = 0
        for unit in units(config):
            for tag in tags:
                device.csr_write(offset("PERF_INDEX"), perf_index(unit, tag))
                total += device.csr_read(offset("PERF_LOW"))
        return total

    ratios = {}
    for key, (first, last) in stretches(runner).items():
        passed, worked = cycles([*instructions[:first], end]), busy()
        passed = cycles([*instructions[:first], Instruction(Opcode.BARRIER), *instructions[first:last], end]) - passed
        ratios[key] = (busy() - worked) / passed
    runner.close()
    print({" ".join(key): round(ratio, 2) for key, ratio in ratios.items()})
    assert ratios["conv1", "FP"] >= 1.3 and ratios["conv2", "BP"] >= 1.3 and ratios["conv2", "WG + WU"] >= 1.3
    assert sum(ratio >= 1.3 for ratio in ratios.values()) >= 12
