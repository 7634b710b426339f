"""Slow functional machine: executes programs on numpy memories as docs/machine.md describes.

Engines take their commands from queues of the machine's length, ordered by semaphores alone; with a seed the
next engine is chosen at random, so that a missing token shows as a wrong byte. Memories start with noise. The
interpreter has the interface of :class:`gradloom.host.devices.device.Device` and stands in for the RTL wherever only
results matter.
"""

import random

import numpy as np

from gradloom.contracts.config import Config
from gradloom.contracts.engines import Unit, units
from gradloom.contracts.isa import SEMAPHORES, Dest, Opcode, Source
from gradloom.host.devices.software_device import SoftwareDevice
from gradloom.host.program.assembler import Instruction, split_program
from gradloom.models.arithmetic import dither, scale
from gradloom.verif.interpreting import interpreter_acore, interpreter_ccore

__all__ = ["Interpreter", "MachineFault"]


class MachineFault(RuntimeError):
    """The program did what the machine answers with an error, or what no program may do."""


class Memories:
    """On-chip memories as arrays.

    Attributes
    ----------
    ibuf, ebuf : uint8 [bank][address][column][G]
    wbuf : uint8 [bank][block][beat][2 G]
    psum : int64 [half][wpu][bank][address][G]
    norms : int64 [half][wpu][output group][image slot][G], sums of magnitudes of the partial sums
    running : int64 [wpu][output group][G], the sum that each is at
    dw, xin, xout : int64 [beat][lane][G]
    aa, ab, oa, ob : uint8 [beat][lane][G]; am, om : uint8 [beat][2 G]
    pbuf : uint8 [entry][8 G]; label : int64; logit : int32 [entry][G]
    """

    def __init__(self, config: Config, noise: np.random.Generator) -> None:
        g, depth = config.group, config.abuf_depth

        def memory(*shape: int) -> np.ndarray:
            return noise.integers(0, 256, shape, dtype=np.uint8)

        def wide(*shape: int) -> np.ndarray:
            return noise.integers(-1000, 1000, shape, dtype=np.int64)

        self.ibuf = memory(config.row_banks, config.ibuf_depth, 2, g)
        self.ebuf = memory(config.row_banks, config.ebuf_depth, 2, g)
        self.wbuf = memory(3, config.wbuf_depth, config.block_beats, 2 * g)
        self.psum = wide(2, config.wpus, 4, config.psum_depth, g)
        self.norms = wide(2, config.wpus, 3, config.max_planes, g)
        self.running = wide(config.wpus, 3, g)
        self.dw, self.xin, self.xout = (wide(depth, 2, g) for depth in (config.dw_depth, *[config.export_depth] * 2))
        self.aa, self.ab, self.oa, self.ob = (memory(depth, 2, g) for _ in range(4))
        self.am, self.om = (memory(config.mbuf_depth, 2 * g) for _ in range(2))
        self.pbuf = memory(config.pbuf_depth, 8 * g)
        self.label = wide(config.max_planes)
        self.logit = wide(config.logit_depth, g).astype(np.int32)


class Interpreter(SoftwareDevice):
    """One machine with ``size`` bytes of memory from address 0.

    Parameters
    ----------
    seed : :class:`int`, optional
        Choose the next engine at random; without it, commands run in program order.
    """

    def __init__(self, config: Config, size: int, *, seed: int | None = None) -> None:
        noise = np.random.default_rng(0 if seed is None else seed)
        super().__init__(config, size)
        self.memory[:] = noise.bytes(size)
        self.chip = Memories(config, noise)
        self.random = None if seed is None else random.Random(seed)
        self.statistics = [0] * config.tensors
        self.seeds = [0] * config.tensors
        self.bases = [0] * 8
        self.lm = self.momentum = 0
        self.commands = 0

    def exponent(self, tid: int) -> int:
        return 0 if tid == 0 else int(self.exponents[tid])

    # Programs

    def execute(self, address: int, steps: int) -> None:
        size = int.from_bytes(self.memory[address + 8 : address + 12], "little")
        header, instructions = split_program(bytes(self.memory[address : address + 16 + size]))
        if header[3] != self.config.digest():
            raise MachineFault("the program is for another configuration")
        places = {}
        place = 0
        for number, instruction in enumerate(instructions):
            places[place] = number
            place += 4 * instruction.size
        self.semaphores = [0] * SEMAPHORES
        self.queues: dict[Unit, list[Instruction]] = {unit: [] for unit in units(self.config)}
        self.left, self.places = steps, places
        counter = 0
        while counter < len(instructions):
            instruction = instructions[counter]
            unit = instruction.unit(self.config)
            if unit != Unit.SEQ:
                while not self._room(unit, instruction):
                    self._advance()
                self.queues[unit].append(instruction)
                if self.random is None:
                    self._drain()
                elif self.random.random() < 0.5:
                    self._advance(idle_ok=True)
                counter += 1
                continue
            if instruction.opcode in (Opcode.BARRIER, Opcode.END):
                self._drain()
            while not self._signalled(instruction):
                self._advance()
            self._take(instruction)
            counter = self._sequencer(instruction, counter)
            self._give(instruction)
        if any(self.semaphores):
            raise MachineFault(f"semaphores do not end at 0: {self.semaphores}")

    def _room(self, unit: Unit, instruction: Instruction) -> bool:
        words = sum(queued.queued for queued in self.queues[unit])
        return words + instruction.queued <= self.config.queue_words

    def _ready(self) -> list[Unit]:
        found = []
        for unit, queue in self.queues.items():
            if queue and self._signalled(queue[0]):
                found.append(unit)
        return found

    def _signalled(self, instruction: Instruction) -> bool:
        return all(self.semaphores[i] for i in range(SEMAPHORES) if instruction.wait >> i & 1)

    def _take(self, instruction: Instruction) -> None:
        for i in range(SEMAPHORES):
            self.semaphores[i] -= instruction.wait >> i & 1

    def _give(self, instruction: Instruction) -> None:
        for i in range(SEMAPHORES):
            self.semaphores[i] += instruction.signal >> i & 1
            if self.semaphores[i] > 255:
                raise MachineFault(f"semaphore {i} overflows")

    def _advance(self, *, idle_ok: bool = False) -> None:
        ready = self._ready()
        if not ready:
            if idle_ok:
                return
            raise MachineFault("deadlock: no engine can go on")
        unit = ready[0] if self.random is None else self.random.choice(ready)
        instruction = self.queues[unit].pop(0)
        self._take(instruction)
        self.command(instruction)
        self._give(instruction)

    def _drain(self) -> None:
        while any(self.queues.values()):
            self._advance()

    def _sequencer(self, instruction: Instruction, counter: int) -> int:
        """Execute a command of the Sequencer. Returns the number of the next one."""
        f = instruction.fields
        match instruction.opcode:
            case Opcode.END:
                return 1 << 30
            case Opcode.SETBASE:
                self.bases[f["breg"]] = f["value"]
            case Opcode.ADDBASE:
                self.bases[f["breg"]] = self.bases[f["breg"]] + f["value"] & 0xFFFFFFFF
            case Opcode.LOOP:
                self.step += 1
                self.left -= 1
                if self.left > 0:
                    return self.places[f["target"]]
            case Opcode.LDHYP:
                entry = self.read(self.bases[f["breg"]] + f["offset"] + 16 * self.step & 0xFFFFFFFF, 16)
                self.lm, self.momentum = entry[0], entry[2]
                self.exponents[1], self.exponents[3] = (
                    int.from_bytes(entry[1:2], "little", signed=True),
                    entry[3],
                )
            case Opcode.SEED:
                self.seeds[f["tid"]] = dither.tensor_seed(self.run_seed, self.step, f["tid"])
            case Opcode.SCALE:
                e = scale.next_exponent(self.exponent(f["target"]), self.statistics[f["tid"]], f["f"])
                self.exponents[f["target"]] = e
                self.statistics[f["tid"]] = 0
            case Opcode.EXPSET:
                self.exponents[f["target"]] = sum(
                    entry.const + (-1 if entry.neg else 1) * self.exponent(entry.tid)
                    for entry in instruction.tail
                )
                if f["clear"]:
                    self.statistics[f["target"]] = 0
        return counter + 1

    # Engines

    def command(self, instruction: Instruction) -> None:
        """One command of an engine, from start to done."""
        self.commands += 1
        match instruction.opcode:
            case Opcode.LOAD:
                self._load(instruction.fields)
            case Opcode.STORE:
                self._store(instruction.fields)
            case Opcode.CONV:
                interpreter_ccore.conv(self.config, self.chip, instruction.fields)
            case Opcode.RUN:
                interpreter_acore.run(self, instruction)
            case Opcode.SOFTMAX:
                interpreter_acore.softmax(self, instruction.fields)
            case Opcode.UCODE:
                pass

    def _beats(self, f: dict[str, int]) -> np.ndarray:
        """Index in the memory of every byte of every beat, in the order of the loops."""
        if not (f["n0"] and f["n1"] and f["n2"]):
            raise MachineFault("a transfer of no beats")
        size = self.config.beat_bytes
        i2, i1, i0 = np.ogrid[: f["n2"], : f["n1"], : f["n0"]]
        start = self.bases[f["breg"]] + f["offset"]
        addresses = (start + i2 * f["stride2"] + i1 * f["stride1"] + i0 * size & 0xFFFFFFFF).reshape(-1)
        outside = addresses[addresses + size > len(self.memory)]
        if outside.size:
            self.read(int(outside[0]), size)  # which refuses
        return addresses[:, None] + np.arange(size)

    def _load(self, f: dict[str, int]) -> None:
        data = np.frombuffer(self.memory, np.uint8)[self._beats(f)]
        dest, chip, g = Dest(f["dest"]), self.chip, self.config.group
        if dest in (Dest.IBUF, Dest.EBUF):
            bank, addr = np.array(self._row_places(f)).T
            (chip.ibuf if dest == Dest.IBUF else chip.ebuf)[bank, addr] = data.reshape(-1, 2, g)
        elif dest == Dest.WBUF:
            bank, addr, sub = np.array(self._block_places(f)).T
            chip.wbuf[bank, addr, sub] = data
        elif dest == Dest.LABEL:
            chip.label[f["addr0"] : f["addr0"] + len(data)] = data[:, 0] | data[:, 1].astype(int) << 8
        elif dest == Dest.PBUF:
            self._fill(chip.pbuf, f["addr0"], data.reshape(-1, 8 * g))
        elif dest == Dest.XIN:
            values = data.reshape(-1).view("<i8").reshape(-1, 2, g)
            chip.xin[(f["addr0"] + np.arange(len(values))) % len(chip.xin)] = values
        elif dest == Dest.AM:
            self._fill(chip.am, f["addr0"], data)
        else:
            self._fill(chip.aa if dest == Dest.AA else chip.ab, f["addr0"], data.reshape(-1, 2, g))

    def _fill(self, memory: np.ndarray, addr: int, values: np.ndarray) -> None:
        if addr + len(values) > len(memory):
            raise MachineFault(f"{len(values)} values at {addr} leave a memory of {len(memory)}")
        memory[addr : addr + len(values)] = values

    def _row_places(self, f: dict[str, int]) -> list[tuple[int, int]]:
        """(bank, address) of every beat of a load of rows."""
        places = []
        for i2 in range(f["n2"]):
            bank, addr = f["bank0"], f["addr0"] + i2 * f["ostep"]
            column = 0
            for _ in range(f["n1"] * f["n0"]):
                places.append((bank, addr + column))
                column += 1
                if column == f["xb"]:
                    column, bank = 0, bank + f["bstep"]
                    if bank >= self.config.row_banks:
                        bank, addr = bank - self.config.row_banks, addr + f["xe"]
        return places

    def _block_places(self, f: dict[str, int]) -> list[tuple[int, int, int]]:
        """(bank, block, beat of the block) of every beat of a load of weight blocks."""
        places = []
        for i in range(f["n2"] * f["n1"]):
            bank, addr = f["bank0"], f["addr0"] + i * f["ostep"]
            for beat in range(f["n0"]):
                places.append((bank, addr, beat % self.config.block_beats))
                if (beat + 1) % self.config.block_beats == 0:
                    if f["linear"]:
                        addr += 1
                    else:
                        bank += 1
                        if bank == 3:
                            bank, addr = 0, addr + 1
        return places

    def _store(self, f: dict[str, int]) -> None:
        chip = self.chip
        source = {
            Source.OA: chip.oa,
            Source.OB: chip.ob,
            Source.OM: chip.om,
            Source.PBUF: chip.pbuf,
            Source.XOUT: chip.xout,
            Source.LOGIT: chip.logit,
        }[Source(f["src"])]
        places = self._beats(f)
        count = -(-places.size // source[0].nbytes)
        if f["src"] == Source.XOUT:
            source = np.roll(source, -f["addr0"], axis=0)
            f = f | {"addr0": 0}
        if f["addr0"] + count > len(source):
            raise MachineFault(f"{count} values at {f['addr0']} leave a memory of {len(source)}")
        data = np.ascontiguousarray(source[f["addr0"] : f["addr0"] + count]).reshape(-1).view(np.uint8)
        np.frombuffer(self.memory, np.uint8)[places] = data[: places.size].reshape(places.shape)
