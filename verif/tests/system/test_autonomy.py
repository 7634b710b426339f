"""Between start and done the host does nothing but look at STATUS, for one step and for many; and the engines overlap meanwhile."""

import pytest

from gradloom.host.device import Device
from gradloom.models import digests
from gradloom.rtl.regmap import offset, register
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
