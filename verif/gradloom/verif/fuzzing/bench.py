"""A machine that takes one disturbed run after the other, each followed by a good one compared byte for byte."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from gradloom.contracts.engines import Unit, units
from gradloom.contracts.isa import Opcode
from gradloom.contracts.pipeline import BURST_BEATS, OUTSTANDING_READS
from gradloom.contracts.regmap import ErrorCode, offset, register
from gradloom.sim.rtl_device import BusError, DramModel, RtlDevice
from gradloom.verif.configs import machine_config
from gradloom.verif.fuzzing.cases import Event, Trouble
from gradloom.verif.fuzzing.outcomes import Outcome, possible
from gradloom.verif.fuzzing.scenes import STEP, Scene, build_scenes

__all__ = ["Bench", "Hang", "heed_bound", "open_machine"]

WATCHDOG = 1500
"""Cycles without progress after which a disturbed run is stopped by the machine; a good one comes nowhere near it."""
_MOST_GOOD = 400_000
"""Cycles within which a good run ends on the slowest memory."""
_BUSY, _WAITING = register("ERROR_STATE").field("busy"), register("ERROR_STATE").field("waiting")


class Hang(AssertionError):
    """The machine did not end, not even when it was told to: it cannot be used any more."""


@functools.cache
def _bit(name: str, field: str) -> int:
    return register(name).field(field).mask


def heed_bound(model: DramModel) -> int:
    """Cycles within which a machine is idle after an abort: all bursts that may be under way on a port, at the memory's pace.

    A share of stalls can be exceeded for a while by chance, so that a stalling memory has four times as long.
    """
    beats = OUTSTANDING_READS * BURST_BEATS
    stall = max(model.shares())
    pace = 4 / (1 - stall) if stall else 1
    return 100 + model.latency + model.write_latency + int(beats * pace)


@dataclasses.dataclass(frozen=True)
class _After:
    """What a good run leaves."""

    memory: bytes
    exponents: tuple[int, ...]
    registers: tuple[tuple[str, int], ...]


def open_machine(config: str, scenes: Sequence[Scene]) -> RtlDevice:
    """A machine with the memory of its scenes."""
    return RtlDevice(machine_config(config), dram_bytes=len(scenes[0].image))


class Bench:
    """Runs cases on one machine after the other.

    Parameters
    ----------
    config : :class:`str`
        Name of the machine.
    open_device : callable, optional
        Takes the name and the scenes and gives the machine.

    Raises
    ------
    :exc:`AssertionError`
        If a good run on a fresh machine differs from the golden model.
    """

    def __init__(self, config: str, open_device: Callable[[str, Sequence[Scene]], RtlDevice] = open_machine) -> None:
        self.name, self.config = config, machine_config(config)
        self.scenes = build_scenes(config)
        self._open = open_device
        self.device = open_device(config, self.scenes)
        self._possible = set(possible(self.config))
        self._units = sum(1 << unit for unit in (Unit.SEQ, *units(self.config)))
        self.cycles: list[int] = []
        """Of a good run of each scene."""
        self._after: list[_After] = []
        for scene in self.scenes:
            self._set(scene)
            self.cycles.append(self._run_good())
            after = self._read(scene)
            scene.check(after.memory, after.exponents)
            assert after.memory[:scene.base] == scene.image[:scene.base], "a good run wrote in front of its window"
            assert after.memory[scene.limit:] == scene.image[scene.limit:], "a good run wrote behind its window"
            self._after.append(after)

    def close(self) -> None:
        self.device.close()

    def renew(self) -> None:
        """A machine fresh from reset in the place of this one."""
        self.device.close()
        self.device = self._open(self.name, self.scenes)

    # One case

    def run(self, trouble: Trouble) -> Outcome:
        """The disturbed run, then a good one on the same machine.

        Raises
        ------
        :exc:`Hang`
            If the machine does not end.
        """
        begin = self.device.cycle
        outcome = self._disturb(trouble)
        problems = [*outcome.problems, *self._good(trouble)]
        return dataclasses.replace(outcome, cycles=self.device.cycle - begin, problems=tuple(problems))

    def _disturb(self, trouble: Trouble) -> Outcome:
        device, scene = self.device, self.scenes[trouble.scene]
        image = bytearray(scene.image)
        image[scene.plan.program_address : scene.plan.program_address + len(trouble.program)] = trouble.program
        for address, data in trouble.writes:
            image[address : address + len(data)] = data
        assert len(image) == len(scene.image)
        self._set(scene, bytes(image), trouble.registers, trouble.exponents)
        device.set_dram(trouble.dram)
        base, limit = (trouble.registers.get(name, value)
                       for name, value in (("WINDOW_BASE", scene.base), ("WINDOW_LIMIT", scene.limit)))
        base, limit = min(base, len(image)), min(max(base, limit), len(image))
        for first, last in ((0, base), (limit, len(image))):
            if first < last:
                device.fail(first, last, decode_error=True)
        for first, last, decode in trouble.faults:
            device.fail(first, last, decode_error=decode)
        problems: list[str] = []
        stopped, heeded = self._go(trouble, problems)
        device.fail_nowhere()
        memory = device.read(0, len(image))
        if memory[:base] != image[:base] or memory[limit:] != image[limit:]:
            problems.append("a byte outside the window was changed")
        code, engine = self._check_end(trouble, problems, aborted=heeded != 0)
        ended = "error"
        if code == ErrorCode.NONE:
            due = bytearray(self._after[trouble.scene].memory)
            due[scene.plan.program_address : scene.plan.program_address + len(trouble.program)] = trouble.program
            ended = "good" if memory == due else "other"
            if ended == "other" and not trouble.altered and device.csr_read(offset("STEP")) == STEP + 1:
                problems.append("a good end, but not the bytes of the golden model")
        elif stopped and code == ErrorCode.ABORTED:
            ended = "stopped"
        return Outcome(ended, code, engine, 0, heeded, tuple(problems))

    def _go(self, trouble: Trouble, problems: list[str]) -> tuple[bool, int]:
        """Start, do what the host does meanwhile, and run to the end. Whether the bench had to stop it, and how long that took."""
        device, enable = self.device, _bit("CONTROL", "irq_enable")
        clear = _bit("CONTROL", "clear") if trouble.clear else 0
        device.csr_write(offset("CONTROL"), _bit("CONTROL", "start") | clear | enable)
        began, aborted = device.cycle, None
        for event in trouble.events:
            device.run(max(0, began + event.cycle - device.cycle))
            if aborted is None and event.aborts and not self._idle():
                aborted = device.cycle
            self._perform(event, problems)
            if event.starts:
                aborted = None
        bound = heed_bound(trouble.dram)
        if aborted is None:
            self._until_idle(began + trouble.most - device.cycle)
            if self._idle():
                return False, 0
            aborted = device.cycle
            device.csr_write(offset("CONTROL"), _bit("CONTROL", "abort") | enable)
            self._until_idle(bound)
            stopped = True
        else:
            self._until_idle(aborted + bound - device.cycle)
            stopped = False
        heeded = device.cycle - aborted
        if not self._idle():
            raise Hang(f"still running {heeded} cycles after an abort, the Sequencer is at byte "
                       f"{device.csr_read(offset('OFFSET'))}")
        return stopped, heeded

    def _idle(self) -> bool:
        return bool(self.device.csr_read(offset("STATUS")) & _bit("STATUS", "idle"))

    def _until_idle(self, most: int) -> None:
        """To the interrupt, or, where that was acknowledged or is disabled, to the idle machine."""
        device = self.device
        last = device.cycle + most
        while device.cycle < last and not device.irq:
            device.run(min(2000, last - device.cycle))
            if not device.irq and self._idle():
                return

    def _perform(self, event: Event, problems: list[str]) -> None:
        """What the host does, and whether it was answered as docs/registers.md says."""
        device = self.device
        idle = event.idle_only and self._idle()
        try:
            if event.value is None:
                device.csr_read(event.offset)
            else:
                device.csr_write(event.offset, event.value)
        except BusError:
            if not event.refused and (idle or not event.idle_only):
                problems.append(f"register {event.offset:#x} refused an access that is legal")
        else:
            if event.refused:
                problems.append(f"register {event.offset:#x} took an access that is never legal")
            elif event.idle_only and not self._idle():
                problems.append(f"register {event.offset:#x} took an access that needs an idle machine while a program ran")

    def _check_end(self, trouble: Trouble, problems: list[str], *, aborted: bool) -> tuple[ErrorCode, Unit]:
        device = self.device
        status, error = device.csr_read(offset("STATUS")), device.csr_read(offset("ERROR"))
        field = register("ERROR").field
        code, engine = ErrorCode(error & field("code").mask), Unit((error & field("engine").mask) >> field("engine").lsb)
        tag = (error & field("tag").mask) >> field("tag").lsb
        place, state = device.csr_read(offset("ERROR_OFFSET")), device.csr_read(offset("ERROR_STATE"))
        expected = _bit("STATUS", "idle") | _bit("STATUS", "error" if code else "done") | _bit("STATUS", "irq")
        if status | (_bit("STATUS", "irq") if trouble.acknowledges else 0) != expected:
            problems.append(f"STATUS is {status:#x} at the end, not {expected:#x}")
        if code == ErrorCode.NONE:
            if error or place or state:
                problems.append(f"a good end, and ERROR, ERROR_OFFSET, ERROR_STATE are {error:#x}, {place:#x}, {state:#x}")
            if ErrorCode.NONE not in trouble.codes:
                problems.append("a good end where an error was due")
            return code, engine
        if (engine, code) not in self._possible:
            problems.append(f"{engine.name} reported {code.name}, which it cannot")
        if code not in trouble.codes and not (aborted and code == ErrorCode.ABORTED):
            problems.append(f"{code.name} cannot come of this")
        if (state & _BUSY.mask) >> _BUSY.lsb & ~self._units or (state & _WAITING.mask) >> _WAITING.lsb & ~self._units:
            problems.append(f"ERROR_STATE {state:#x} names engines that the machine lacks")
        if place % 8:
            problems.append(f"ERROR_OFFSET {place:#x} is no command's")
        if engine != Unit.SEQ and trouble.instructions is not None:
            if place not in trouble.offsets:
                problems.append(f"ERROR_OFFSET {place:#x} is no command's")
            else:
                named = trouble.instructions[trouble.offsets[place]]
                if named.unit(self.config) != engine or named.tag != tag:
                    problems.append(f"ERROR names {engine.name} and tag {tag}, ERROR_OFFSET a command of "
                                    f"{named.unit(self.config).name} with tag {named.tag}")
        return code, engine

    # Good runs

    def _good(self, trouble: Trouble) -> list[str]:
        scene, after = self.scenes[trouble.good], self._after[trouble.good]
        self._set(scene)
        self.device.set_dram(trouble.good_dram)
        self._run_good()
        found = self._read(scene)
        problems = []
        if found.memory != after.memory:
            place = next(n for n, (x, y) in enumerate(zip(found.memory, after.memory, strict=True)) if x != y)
            problems.append(f"the good run behind it left other bytes, from {place:#x} on: {found.memory[place]:#04x}, not "
                            f"{after.memory[place]:#04x}")
        if found.exponents != after.exponents:
            problems.append("the good run behind it left other exponents")
        problems += [f"the good run behind it left {name} at {value:#x}, not {due:#x}"
                     for (name, value), (_, due) in zip(found.registers, after.registers, strict=True) if value != due]
        return problems

    def _run_good(self) -> int:
        device = self.device
        device.csr_write(offset("CONTROL"), _bit("CONTROL", "start") | _bit("CONTROL", "irq_enable"))
        cycles = device.run(_MOST_GOOD)
        if not device.irq:
            raise Hang(f"a good run does not end within {_MOST_GOOD} cycles, the Sequencer is at byte "
                       f"{device.csr_read(offset('OFFSET'))}")
        return cycles

    def _set(self, scene: Scene, image: bytes | None = None, registers: dict[str, int] | None = None,
             exponents: dict[int, int] | None = None) -> None:
        """Memory, registers and exponents before a run. Statistics stay as they are: a program clears those that it uses."""
        device = self.device
        device.write(0, scene.image if image is None else image)
        values = {"PROGRAM": scene.plan.program_address, "STEPS": 1, "STEP": STEP, "SEED": scene.seed, "WINDOW_BASE": scene.base,
                  "WINDOW_LIMIT": scene.limit, "WATCHDOG": WATCHDOG, "EXP_INDEX": 0}
        for name, value in (values | (registers or {})).items():
            device.csr_write(offset(name), value)
        for tid, exponent in enumerate(scene.exponents):
            device.csr_write(offset("EXP_VALUE"), (exponents or {}).get(tid, exponent) & 0xFFFF)

    def _read(self, scene: Scene) -> _After:
        device = self.device
        names = ["STATUS", "ERROR", "ERROR_OFFSET", "ERROR_STATE", "STEP", "HYPER"]
        names += [f"BASE{i['breg']}" for i in scene.instructions if i.opcode == Opcode.SETBASE]
        values = tuple((name, device.csr_read(offset(name))) for name in names)
        device.csr_write(offset("EXP_INDEX"), 0)
        raw = [device.csr_read(offset("EXP_VALUE")) & 0xFFFF for _ in scene.exponents]
        exponents = tuple(value - (value >> 15 << 16) for value in raw)
        return _After(device.read(0, len(scene.image)), exponents, values)
