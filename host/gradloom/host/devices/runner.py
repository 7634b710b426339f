"""Drive a machine through programs: compile, load, start, poll, read back; the same for every kind of device."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.regmap import ERROR_DOCS, PERF_MAC_USE, ErrorCode, offset, perf_index, register
from gradloom.host.compilation.fit import ScheduleError
from gradloom.host.devices.device import Device, MachineError, csr_batch, fetch
from gradloom.host.devices.limits import LimitReached, overflow_text, saturated
from gradloom.host.devices.network_device import Outcome
from gradloom.host.devices.residence import Images, Programs, Snapshot
from gradloom.host.files import UserError
from gradloom.host.knobs import Knobs
from gradloom.host.machine_program import MachineProgram
from gradloom.host.schedule import compile_network
from gradloom.models.golden import step as golden
from gradloom.models.golden.step import Evaluation, Hyper
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["PHASES", "MachineError", "ProgramRunner", "compile_programs", "largest_batch", "merge_cycles"]

PHASES = ("FP", "BP", "norm BP", "WG + WU")
"""Phases by the low bits of a command's tag (8 * layer + phase)."""

_OVERFLOWS = (ErrorCode.PSUM_OVERFLOW, ErrorCode.WG_OVERFLOW, ErrorCode.GRADIENT_SUM_OVERFLOW)
_POLL_CYCLES = 1 << 19
"""Simulated cycles between two looks at STATUS and STEP."""


def _shifted(report: Callable[[float], None], done: int, steps: float) -> None:
    report(done + steps)


def _field(name: str, bits: str, value: int) -> int:
    field = register(name).field(bits)
    return (value & field.mask) >> field.lsb


def compile_programs(network: Network, config: Config, batch: int, slots: int, *, export_dw: bool, knobs: Knobs | None = None,
                     base: int = 0) -> tuple[MachineProgram, MachineProgram, MachineProgram]:
    """The programs of every step but a run's first, of the first, and of a forward pass, which lies behind them and shares their
    weights."""
    steady, first = (
        compile_network(network, config, batch, calibrate=calibrate, slots=slots, table=slots, export_dw=export_dw, knobs=knobs,
                        memory_base=base) for calibrate in (False, True))
    return steady, first, compile_network(network, config, batch, training=False, memory_base=base, beside=(steady, first))


def largest_batch(network: Network, config: Config, batch: int, slots: int, memory_bytes: int, *, export_dw: bool) -> int:
    """The most images a step, below ``batch``, whose programs and tensors fit so many bytes of memory; 0 if none do."""
    fits, too_many = 0, batch
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        try:
            size = compile_programs(network, config, middle, slots, export_dw=export_dw)[2].size
        except ScheduleError:
            size = memory_bytes + 1
        fits, too_many = (middle, too_many) if size <= memory_bytes else (fits, middle)
    return fits


class ProgramRunner:
    """One network on one machine: implements :class:`~gradloom.host.devices.network_device.NetworkDevice` for whatever has memory
    and registers (:class:`~gradloom.host.devices.device.Device`).

    Parameters
    ----------
    slots : :class:`int`
        The most steps of one start.
    open_device : callable
        Takes the bytes of memory needed and gives the device.
    export_dw : :class:`bool`
        Store the weight gradients too, so that they can be compared; it costs memory traffic. A machine without buffers for that
        (``export_depth`` 0) stores none.
    knobs : :class:`~gradloom.host.knobs.Knobs`, optional
        Of the training steps' schedule; by default those of the package or the rules'.
    base : :class:`int`
        First byte of memory that the machine may touch.

    Raises
    ------
    :exc:`UserError`
        If the network does not fit the machine.
    """

    def __init__(self, network: Network, config: Config, batch: int, slots: int, open_device: Callable[[int], Device], *,
                 export_dw: bool = True, knobs: Knobs | None = None, base: int = 0) -> None:
        self.network, self.config, self.batch, self.slots = network, config, batch, slots
        self.export_dw = export_dw and config.export_depth > 0
        try:
            self.steady, self._first, self._forward = compile_programs(network, config, batch, slots, export_dw=self.export_dw,
                                                                       knobs=knobs, base=base)
        except ScheduleError as error:
            raise UserError(str(error)) from None
        self._limit = base + self._forward.size
        self.device = open_device(self._limit)
        self._programs, self._images = Programs(), Images(self.device, self.steady, self._limit, slots * batch)
        self.kind: str = getattr(self.device, "kind", "simulated")
        """What its cycles are called."""
        self.cycles = 0
        """Cycles in which a program ran, since the device was opened."""
        self._expected: Callable[[], Sequence[np.ndarray]] = tuple
        """Batches that come behind the next start."""
        self._step, self._seed, self._calibrated = 0, 0, False
        self._failed = False
        """Whether a program has stopped with an error since a state was loaded: what is in memory then is no step's."""
        self._tids: tuple[int, ...] = ()
        self._exponents: dict[int, int] | None = None
        """Those that were read since the machine ran last."""
        self._snapshot: Snapshot | None = None
        """The state's bytes after the latest training start."""
        found = self.device.csr_read(offset("CONFIG"))
        if found != config.digest():
            raise UserError(f"the device was built for configuration digest {found:#010x}, "
                            f"{config.name} has {config.digest():#010x}: build it anew")
        for name, value in (("WINDOW_BASE", base), ("WINDOW_LIMIT", self._limit)):
            self.device.csr_write(offset(name), value)

    def cost(self) -> str | None:
        own: Callable[[int, int], str] | None = getattr(self.device, "cost", None)
        return None if own is None else own(self.cycles, self._images.ahead)

    def close(self) -> None:
        self.device.close()

    # State

    def load(self, state: State) -> None:
        """Put weights, velocities, parameters and exponents on the device."""
        self.steady.write_state(self.device, state)
        exponents = self.steady.exponents(state)
        for tid, value in exponents.items():
            self.device.csr_write(offset("EXP_INDEX"), tid)
            self.device.csr_write(offset("EXP_VALUE"), value & 0xFFFF)
        self._tids = tuple(exponents)
        self._exponents = self._snapshot = None
        self._step, self._seed, self._calibrated = state.step, state.seed, state.calibrated
        if self._failed:
            self._programs.forget()
        self._failed = False

    def exponents(self) -> dict[int, int]:
        """The exponent file's entries that the network uses."""
        if self._exponents is None:
            self._exponents = self._decode(csr_batch(self.device, self._exponent_accesses()))
        return dict(self._exponents)

    def _exponent_accesses(self) -> list[tuple[int, int | None]]:
        return [access for tid in self._tids for access in ((offset("EXP_INDEX"), tid), (offset("EXP_VALUE"), None))]

    def _decode(self, raws: Sequence[int]) -> dict[int, int]:
        codes = {tid: raw & 0xFFFF for tid, raw in zip(self._tids, raws, strict=True)}
        return {tid: code - (1 << 16) if code >> 15 else code for tid, code in codes.items()}

    def state(self) -> State:
        exponents = self.exponents()
        if self._snapshot is None:
            ranges = self.steady.state_ranges()
            self._snapshot = Snapshot(ranges, fetch(self.device, [], ranges)[1])
        state = self.steady.read_state(self._snapshot, exponents, step=self._step, seed=self._seed)
        state.calibrated = self._calibrated
        return state

    # Programs

    def expect(self, images: Callable[[], Sequence[np.ndarray]]) -> None:
        """What comes behind the next start; it travels while the machine computes."""
        self._expected = images

    def train(self, images: Sequence[np.ndarray], labels: Sequence[np.ndarray], hypers: Sequence[Hyper],
              report: Callable[[float], None] | None = None) -> list[Outcome]:
        """One step per batch. The first step of a run calibrates the exponents and takes a start of its own."""
        outcomes: list[Outcome] = []
        place = 0
        while place < len(labels):
            count = min(self.slots, len(labels) - place) if self._calibrated else 1
            plan = self.steady if self._calibrated else self._first
            for slot in range(count):
                self._images.place(plan, slot, images[place + slot], labels[place + slot])
            plan.write_hyper(self.device, hypers[place:place + count])
            self._programs.place(self.device, plan, self._step)
            ranges = [*plan.logits_ranges(count), *plan.state_ranges()]
            following = images[place + count:place + count + self.slots]
            self._snapshot = found = self._run(plan, count, functools.partial(_shifted, report, place) if report else None, ranges,
                                               following)
            self._step += count
            self._calibrated = True
            for slot in range(count):
                logits = plan.read_logits(found, slot)
                outcomes.append(Outcome(*golden.score(self.network, logits, np.asarray(labels[place + slot])), saturated(logits)))
            place += count
            self._latest = count - 1
        return outcomes

    def logits(self, images: np.ndarray) -> np.ndarray:
        """Logits (N, classes), int32 Q8, of at most a batch of images with the state that is loaded; the state stays."""
        plan = self._forward
        self._images.place(plan, 0, self._whole(images), np.zeros(self.batch, np.int64))
        self._programs.place(self.device, plan, 0)
        return plan.read_logits(self._run(plan, 1, None, plan.logits_ranges(1)))[:len(images)]

    def _whole(self, images: np.ndarray) -> np.ndarray:
        """A batch of at most as many images, with black ones behind them."""
        batch = np.zeros((self.batch, *self.network.input_shape), np.uint8)
        batch[:len(images)] = images
        return batch

    def evaluate(self, images: np.ndarray, labels: np.ndarray) -> Evaluation:
        """Loss and correct images of at most a batch; the state stays."""
        logits = self.logits(images)
        return Evaluation(*golden.score(self.network, logits, labels), logits)

    def _run(self, plan: MachineProgram, steps: int, report: Callable[[float], None] | None, ranges: Sequence[tuple[int, int]],
             following: Sequence[np.ndarray] = ()) -> Snapshot:
        """Start a program and wait for its end, bringing the images that follow meanwhile; bytes of these ranges of the memory
        then."""
        device = self.device
        if self._failed:
            raise MachineError("the machine has stopped with an error before, and its memory holds half a step: load a state first")
        for name, value in (("PROGRAM", plan.program_address), ("STEPS", steps), ("STEP", self._step), ("SEED", self._seed)):
            device.csr_write(offset(name), value)
        control = register("CONTROL")
        self._exponents = None
        device.csr_write(offset("CONTROL"), control.field("start").mask | control.field("irq_enable").mask)
        expected, self._expected = self._expected, tuple
        self._images.bring(lambda: map(self._whole, following or expected()))
        # What is asked of the machine when it has ended. A device on a cable tells its end by itself and answers all in one round
        # trip; of others only STATUS is read before.
        accesses = [*((offset(name), None) for name in ("STATUS", "CYCLES_LOW", "CYCLES_HIGH")), *self._exponent_accesses()]
        found: tuple[list[int], list[bytes]] | None = None
        while True:
            interrupted = device.run(_POLL_CYCLES) < _POLL_CYCLES
            found = fetch(device, accesses, ranges) if interrupted and hasattr(device, "fetch") else None
            status = found[0][0] if found is not None else device.csr_read(offset("STATUS"))
            if _field("STATUS", "done", status) or _field("STATUS", "error", status):
                break
            if report is not None:
                report(float(device.csr_read(offset("STEP")) - self._step))
        (low, high, *raws), pieces = (found[0][1:], found[1]) if found is not None else fetch(device, accesses[1:], ranges)
        self.cycles = low | high << 32
        if _field("STATUS", "error", status):
            self._failed = True
            raise self._error(plan)
        self._exponents = self._decode(raws)
        return Snapshot(ranges, pieces)

    def _error(self, plan: MachineProgram) -> MachineError:
        value = self.device.csr_read(offset("ERROR"))
        code = ErrorCode(_field("ERROR", "code", value))
        tag = _field("ERROR", "tag", value)
        layer = self.network.layers[tag // 8 - 1].name if 8 <= tag < 8 * (len(self.network.layers) + 1) else None
        if code in _OVERFLOWS:
            phase = PHASES[tag % 8] if layer is not None and tag % 8 < len(PHASES) else None
            when = f"evaluation after {self._step} steps"
            if plan.training:
                # A carried update is that of the step before the one which the machine counts.
                late = phase == PHASES[-1] and layer in plan.carried
                when = f"step {self.device.csr_read(offset('STEP')) - late}"
            name = {ErrorCode.PSUM_OVERFLOW: "forward sum" if phase == "FP" else "backward sum",
                    ErrorCode.WG_OVERFLOW: "weight gradient"}.get(code)
            bits = self.config.psum_width if code is ErrorCode.PSUM_OVERFLOW else self.config.wg_width
            return LimitReached(overflow_text(when, layer, phase, name, bits))
        place = self.device.csr_read(offset("ERROR_OFFSET"))
        return MachineError(f"the machine stopped with error {int(code):#04x} ({ERROR_DOCS[code]}), layer {layer or 'none'!r}, "
                            f"command at byte {place}")

    # Results

    def tensor(self, layer: str, name: str) -> np.ndarray:
        """A tensor that the latest training step wrote, in its logical shape."""
        return np.asarray(self.steady.read(self.device, layer, name, self._latest if name == "logits" else 0))

    def written_at(self, layer: str, name: str, index: tuple[int, ...]) -> int | None:
        """Cycle in which the element was last written, if the device remembers."""
        remember: Any = getattr(self.device, "last_write", None)
        key = (layer, name)
        if remember is None or key not in self.steady.memory:
            return None
        region = self.steady.memory[key]
        weights = name in ("w", "v", "rest", "dw")
        marked = np.zeros(self.network.weight_shape(layer) if weights else region.shape, np.int64)
        marked[index] = 1
        if weights:
            marked = self.steady.lowered.weights(layer, marked)
        data = np.frombuffer(region.pack(marked, self.config.group), np.uint8)
        return int(remember(region.address + int(np.flatnonzero(data)[0])))

    def cycle_table(self, previous: dict[str, Any] | None) -> dict[str, Any]:
        """Busy cycles of every engine by layer and phase since power-up, added to an earlier table. On a machine without these
        counters (``config.counters``) no rows, and the engines' totals if it has them."""
        rows: list[dict[str, Any]] = []
        engines = units(self.config)
        if self.config.counters != "all":
            busy = self._totals(engines) if self.config.counters == "totals" else {}
            return merge_cycles(previous, {"kind": self.kind, "total": self.cycles, "by_layer_phase": rows, "engines": busy})
        tags = {(layer.name, phase): 8 * self.network.index(layer.name) + number
                for layer in self.network.layers for number, phase in enumerate(PHASES)}
        counts = iter(self._counters([(table, tag) for tag in tags.values() for table in (*engines, PERF_MAC_USE)]))
        for layer_name, phase in tags:
            busy = {unit.name.lower(): next(counts) for unit in engines}
            windows = next(counts)
            if any(busy.values()):
                rows.append({"layer": layer_name, "phase": phase, "busy": busy, "windows": windows})
        return merge_cycles(previous, {"kind": self.kind, "total": self.cycles, "by_layer_phase": rows})

    def _totals(self, engines: Sequence[Unit]) -> dict[str, int]:
        """Busy cycles of every engine since power-up."""
        names = [f"BUSY_{unit.name}_{half}" for unit in engines for half in ("LOW", "HIGH")]
        halves = csr_batch(self.device, [(offset(name), None) for name in names])
        return {unit.name.lower(): low | high << 32 for unit, low, high in zip(engines, halves[::2], halves[1::2], strict=True)}

    def _counters(self, wanted: Sequence[tuple[int, int]]) -> list[int]:
        """Counters by table and tag."""
        halves = csr_batch(self.device, [access for table, tag in wanted for access in (
            (offset("PERF_INDEX"), perf_index(table, tag)), (offset("PERF_LOW"), None), (offset("PERF_HIGH"), None))])
        return [low | high << 32 for low, high in zip(halves[::2], halves[1::2], strict=True)]


def merge_cycles(previous: dict[str, Any] | None, table: dict[str, Any]) -> dict[str, Any]:
    """Sum of two cycle tables, with each engine's total and the array's occupancy (windows / busy cycles of the C-Core). A table
    without rows brings the engines' totals itself, if they are known.

    Busy cycles count for the oldest command under way, windows for the one that takes them: where they are taken beside another
    layer's drain, a row's occupancy may be above 1.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for source in (previous or {}).get("by_layer_phase", []), table["by_layer_phase"]:
        for row in source:
            key = (row["layer"], row["phase"])
            old = rows.get(key, {"busy": {}, "windows": 0})
            busy = {name: old["busy"].get(name, 0) + cycles for name, cycles in row["busy"].items()}
            windows = old["windows"] + row["windows"]
            use = windows / busy["ccore"] if busy["ccore"] else None
            rows[key] = {"layer": row["layer"], "phase": row["phase"], "busy": busy, "windows": windows, "use": use}
    names = dict.fromkeys(name for row in rows.values() for name in row["busy"])
    engines = {name: sum(row["busy"].get(name, 0) for row in rows.values()) for name in names}
    if not rows:
        before = (previous or {}).get("engines", {})
        engines = {name: before.get(name, 0) + cycles for name, cycles in table.get("engines", {}).items()}
    return {
        "kind": table["kind"],
        "total": (previous or {}).get("total", 0) + table["total"],
        "engines": engines,
        "by_layer_phase": list(rows.values()),
    }
