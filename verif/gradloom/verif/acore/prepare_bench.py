"""The A-Core's second stage alone: its memories, a reference of LOAD and SCALAR in plain integers, programs within the rules.

The reference executes one microinstruction after the other, value by value, from the docstrings of
:mod:`gradloom.contracts.microcode`; it knows no pipeline. So it shows whether microinstructions that overlap in
:mod:`gradloom.rtl.acore.scalar_stage` see what they should.
"""

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any

from gradloom.contracts.config import Config
from gradloom.contracts.isa import Opcode
from gradloom.contracts.microcode import (
    Each,
    Kind,
    Register,
    ScalarDestination,
    ScalarFactor,
    ScalarOperand,
    ScalarTerm,
    Shift,
    encode,
)
from gradloom.rtl.acore.scalar_stage import ScalarStage
from gradloom.verif.acore.acore_commands import command, shift_word
from gradloom.verif.acore.tail_memory import TailMemory, head
from gradloom.verif.plain_arith import align, saturate, wrap

__all__ = ["PLANE_ENTRY", "Bench", "Reference", "conflict", "random_program"]

PLANE_ENTRY = 16
"""pl0: entries of planes, behind those of parameters."""
_PLANES = 4
_ENTRIES = PLANE_ENTRY + _PLANES
_SHIFTS = (-20, -9, -1, 0, 2, -30, -14, 5)
_OVERFLOW = 0x12
_READS = {ScalarOperand.ENTRY, ScalarOperand.MASTER, ScalarOperand.VELOCITY, ScalarOperand.Q}
_R_WRITERS = {ScalarDestination.R, ScalarDestination.R32}
_WRITERS = {ScalarDestination.ENTRY, ScalarDestination.PARAMETER, ScalarDestination.DIVIDE}


def _get(micro: Mapping[str, int], name: str) -> int:
    return micro.get(name, 0)


def _place(micro: Mapping[str, int]) -> tuple[int, int]:
    """Which entries a SCALAR sees."""
    return _get(micro, "each"), 0 if _get(micro, "each") == Each.PLANE else _get(micro, "reg")


def _reads_r(micro: Mapping[str, int]) -> bool:
    return (_get(micro, "sx") == ScalarOperand.R or _get(micro, "st2") == ScalarTerm.R
            or micro["sdst"] == ScalarDestination.PARAMETER)


def conflict(micro: Mapping[str, int], earlier: Sequence[Mapping[str, int]]) -> str:
    """Why a SCALAR must not be chained behind others whose results may be outstanding; empty if it may be."""
    for before in earlier:
        if before["sdst"] == ScalarDestination.DIVIDE:
            return "a division before it gives its results later than what follows it"
        reads = _get(micro, "sx") in _READS or _get(micro, "st2") == ScalarTerm.MASTER or micro["sdst"] == ScalarDestination.SCALE
        if reads and before["sdst"] in _WRITERS and _place(before) == _place(micro):
            return "it reads an entry that is yet to be written"
        if before["sdst"] in _R_WRITERS and _reads_r(micro) and _get(micro, "r") == _get(before, "r") == 0:
            return "it uses register R[0], for which no SCALAR waits"
    return ""


class Reference:
    """What a second stage holds, and its microinstructions one after the other."""

    def __init__(self, config: Config, rng: random.Random) -> None:
        self.group, self.rng = config.group, rng
        channels = range(config.group)
        self.entries = [[rng.getrandbits(rng.choice((16, 32, 48, 60))) for _ in channels] for _ in range(_ENTRIES)]
        self.sums = [[rng.randint(-(1 << 42), (1 << 42) - 1) >> rng.randint(0, 40) for _ in channels] for _ in range(_PLANES)]
        self.norms = [[rng.getrandbits(rng.randint(1, 48)) for _ in channels] for _ in range(_PLANES)]
        self.totals = [{"product": rng.randint(-(1 << 49), (1 << 49) - 1), "kept": rng.randint(-(1 << 37), (1 << 37) - 1),
                        "cut": rng.randint(-(1 << 37), (1 << 37) - 1)} for _ in channels]
        self.momentum, self.lm = rng.getrandbits(8), rng.getrandbits(8)
        self.parameters = [[0] * config.group for _ in range(3)]
        self.r = [[0] * config.group for _ in range(4)]
        self.epsilon = 0
        self.planes: dict[tuple[int, int], dict[str, int]] = {}
        self.code = 0

    def begin(self, planes: int, *, n: int, inv: int, dry: int) -> None:
        """A command."""
        self.planes.clear()
        self.code, self.count, self.n, self.inv, self.dry = 0, planes, n, inv, dry

    def state(self) -> tuple[Any, ...]:
        """What microinstructions change."""
        return copy.deepcopy((self.entries, self.parameters, self.r, self.epsilon, self.planes, self.code))

    def restore(self, state: tuple[Any, ...]) -> None:
        self.entries, self.parameters, self.r, self.epsilon, self.planes, self.code = state

    def execute(self, micro: Mapping[str, int]) -> bool:
        """One microinstruction; False if its division would have no result."""
        if micro["kind"] == Kind.LOAD:
            for entry in range(micro["reg"], min(micro["reg"] + micro["count"], 3)):
                self.parameters[entry] = [wrap(value >> 12, 16) for value in self.entries[entry]]
        if micro["kind"] == Kind.SCALAR:
            for plane in range(self.count if _get(micro, "each") == Each.PLANE else 1):
                for channel in range(self.group):
                    if not self._scalar(micro, plane, channel):
                        return False
                    if micro["sdst"] == ScalarDestination.EPSILON:
                        return True
        return True

    def _scalar(self, micro: Mapping[str, int], plane: int, channel: int) -> bool:
        at = PLANE_ENTRY + plane if _get(micro, "each") == Each.PLANE else micro["reg"]
        entry, r = self.entries[at][channel], self.r[_get(micro, "r")]
        x = {
            ScalarOperand.ENTRY: wrap(entry), ScalarOperand.MASTER: wrap(entry, 32), ScalarOperand.VELOCITY: wrap(entry >> 32, 32),
            ScalarOperand.R: r[channel], ScalarOperand.Q: entry & 0xFFFF, ScalarOperand.PLANE: self.sums[plane][channel],
            ScalarOperand.NORM: self.norms[plane][channel], ScalarOperand.N: self.n,
        }[ScalarOperand(_get(micro, "sx"))]
        factor = {
            ScalarFactor.INV: self.inv, ScalarFactor.MOMENTUM: self.momentum, ScalarFactor.LM: self.lm,
            ScalarFactor.GAMMA: self.parameters[0][channel],
        }.get(ScalarFactor(_get(micro, "sf")))
        if factor is not None:
            if x != saturate(x, 48):
                self.code = _OVERFLOW
            x = wrap(x, 48) * factor
        amount = dict(enumerate(_SHIFTS, Shift.SH0)) | {Shift.ZERO: 0, Shift.RIGHT8: -8, Shift.RIGHT16: -16}
        product = align(x, amount[_get(micro, "ssh")] * (-1 if _get(micro, "sright") else 1))
        kind = "product" if _get(micro, "reg") == Register.PLANE else ("product", "kept", "cut")[_get(micro, "reg") % 3]
        term = {
            ScalarTerm.NONE: 0, ScalarTerm.R: r[channel], ScalarTerm.MASTER: wrap(entry, 32),
            ScalarTerm.TOTAL: self.totals[channel][kind], ScalarTerm.EPSILON: self.epsilon,
            ScalarTerm.ONE: 1,
        }[ScalarTerm(_get(micro, "st2"))]
        t = saturate(exact := term + (-product if _get(micro, "sminus") else product), 64)
        if t != exact and micro["sdst"] != ScalarDestination.DIVIDE:
            self.code = _OVERFLOW
        return self._put(micro, (at, plane, channel), t, entry)

    def _put(self, micro: Mapping[str, int], place: tuple[int, int, int], t: int, entry: int) -> bool:
        (at, plane, channel), destination = place, micro["sdst"]
        written: int | None = None
        register = self.planes.setdefault((plane, channel), {})
        if destination in _R_WRITERS:
            self.r[_get(micro, "r")][channel] = saturate(t, 32) if destination == ScalarDestination.R32 else t
        elif destination == ScalarDestination.ENTRY:
            written = t & (1 << 64) - 1
        elif destination == ScalarDestination.PARAMETER:
            written = (self.r[_get(micro, "r")][channel] & 0xFFFFFFFF) << 32 | saturate(t, 28) & 0xFFFFFFFF
        elif destination == ScalarDestination.EPSILON:
            self.epsilon = t | (t == 0)
        elif destination == ScalarDestination.MEAN:
            register["mean"] = saturate(t >> 1, 24)
        elif destination == ScalarDestination.SCALE:
            register |= {"scale": wrap(t, 16), "le": entry >> 16 & 0xFF}
        else:
            if t < 1:
                return False
            le = max(0, t.bit_length() - self.n.bit_length() + 15)
            while (self.n << le) // t < 1 << 15:
                le += 1
            written = (self.n << le) // t | le << 16
            register |= {"scale": wrap(written, 16), "le": le}
        if written is not None and not self.dry:
            self.entries[at][channel] = written
        return True


class Bench:
    """Memories around a :class:`Prepare`; ``rest``: how often each of those that others use, too, is not there."""

    def __init__(self, ctx: Any, dut: ScalarStage, reference: Reference, rest: float = 0.0) -> None:
        self.ctx, self.dut, self.ref, self.rest = ctx, dut, reference, rest
        self.rng, self.group = reference.rng, dut.config.group
        self.memory = [0] * dut.config.microcode_depth
        self.entries = [list(entry) for entry in reference.entries]
        self.cycles = 0
        self.stored: set[int] = set()
        self.loaded: set[int] = set()
        """Cycles in which a Storer reads the parameter buffer, resp. a Loader writes it."""
        self.tails = TailMemory()
        self._norms: list[int | None] = [None, None]
        for name in ("legal", "empty"):
            ctx.set(getattr(dut, name), 1)
        ctx.set(dut.hyper.momentum, reference.momentum)
        ctx.set(dut.hyper.lm, reference.lm)
        ctx.set(dut.gradient_sums.totals, reference.totals)
        ctx.set(dut.exponents.e, 0)

    def _there(self) -> bool:
        return self.rng.random() >= self.rest

    async def tick(self) -> None:
        """One cycle; what is not read is garbage."""
        ctx, dut, rng = self.ctx, self.dut, self.rng
        free, granted, taken = self._there(), self._there(), self._there()
        free, taken = free and self.cycles not in self.stored, taken and self.cycles not in self.loaded
        for port, value in ((dut.parameters.free, free), (dut.micro_grant, granted), (dut.parameter_writes.ready, taken)):
            ctx.set(port, value)
        micro = self.memory[ctx.get(dut.micro_addr) % len(self.memory)] if granted else rng.getrandbits(96)
        at = ctx.get(dut.parameters.addr)
        entry = list(self.entries[at]) if free and at < _ENTRIES else [rng.getrandbits(64) for _ in range(self.group)]
        writes = dut.parameter_writes
        if taken and ctx.get(writes.valid):
            channels = ctx.get(writes.channel)
            assert channels.bit_count() == 1, "one channel at a time"
            self.entries[ctx.get(writes.addr)][channels.bit_length() - 1] = ctx.get(writes.data)
        request = dut.plane_sums.request
        self._norms = [self._norms[1], ctx.get(request.plane) if ctx.get(request.en) else None]
        plane, pair = ctx.get(dut.gradient_sums.plane) % _PLANES, self.tails.read(ctx.get(dut.tail_at.as_value()))
        await ctx.tick()
        self.cycles += 1
        norms = self._norms[0]
        ctx.set(dut.micro_data, micro)
        ctx.set(dut.parameters.data, sum(value << (64 * c) for c, value in enumerate(entry)))
        ctx.set(dut.tail, pair)
        ctx.set(dut.gradient_sums.sums, self.ref.sums[plane])
        ctx.set(dut.plane_sums.data, [rng.getrandbits(48) for _ in range(self.group)] if norms is None else self.ref.norms[norms])

    async def run(self, address: int, *, words: int | None = None, tail: list[int] | None = None, **fields: int) -> Any:
        """One command, accepted in the next cycle in which the stage is ready. Returns what is handed over; ``words``: of its shift
        list, by default all eight registers; ``tail``: this list instead."""
        ctx, dut = self.ctx, self.dut
        tail = tail or [shift_word(dst=i % 8, first=1, const=_SHIFTS[i % 8], neg=0, tid=0)
                        for i in range(8 if words is None else words)]
        values = command(Opcode.RUN, tail, uprog=address, pl0=PLANE_ENTRY, nb=1, xe=1, **fields)
        self.offer(values)
        while not ctx.get(dut.ready):
            await self.tick()
        self.accepted = self.cycles
        await self.tick()
        ctx.set(dut.valid, 0)
        for _ in range(5000):
            ready = self._there()
            ctx.set(dut.o.ready, ready)
            if ready and ctx.get(dut.o.valid):
                handed = ctx.get(dut.o.command)
                await self.tick()
                ctx.set(dut.o.ready, 0)
                return handed
            await self.tick()
        raise AssertionError("not handed over within 5000 cycles")

    def offer(self, words: list[int]) -> None:
        """A command that the stage may take."""
        self.ctx.set(self.dut.cmd, head(words))
        self.ctx.set(self.dut.slot, self.tails.put(words))
        self.ctx.set(self.dut.valid, 1)

    def store(self, address: int, program: Sequence[Mapping[str, int]]) -> None:
        for i, micro in enumerate(program):
            self.memory[address + i] = sum(word << (32 * k) for k, word in enumerate(encode(**micro)))


def _random_scalar(rng: random.Random) -> dict[str, int]:
    each = rng.choice(list(Each))
    operands = [x for x in ScalarOperand if x != ScalarOperand.NORM or each == Each.PLANE]
    total = rng.random() < 0.2
    return {
        "kind": Kind.SCALAR, "each": each, "reg": rng.choice((3, 4, 5, 6)) if total else rng.randrange(7), "r": rng.randrange(4),
        "sx": rng.choice(operands), "sf": rng.choice(list(ScalarFactor)), "ssh": rng.choice(list(Shift)),
        "sright": int(rng.random() < 0.2), "sminus": rng.randrange(2),
        "st2": ScalarTerm.TOTAL if total else rng.choice([term for term in ScalarTerm if term != ScalarTerm.TOTAL]),
        "sdst": rng.choice(list(ScalarDestination)), "chain": 1,
    }


def random_program(reference: Reference, length: int) -> list[dict[str, int]]:
    """Executed on the reference as it is made: a LOAD and SCALARs without a fault, chained wherever they may be."""
    rng = reference.rng
    program: list[dict[str, int]] = [{"kind": Kind.LOAD, "reg": rng.randrange(3), "count": rng.randrange(4)}]
    reference.execute(program[0])
    under_way: list[dict[str, int]] = []
    while len(program) < length:
        micro = _random_scalar(rng)
        before = reference.state()
        # The values of one SCALAR overlap, too.
        accumulates = micro["each"] == Each.PLANE and micro["sdst"] in _R_WRITERS and _reads_r(micro)
        if accumulates or not reference.execute(micro) or reference.code:
            reference.restore(before)
            continue
        if conflict(micro, under_way):
            micro["chain"], under_way = 0, []
        under_way.append(micro)
        program.append(micro)
    return program
