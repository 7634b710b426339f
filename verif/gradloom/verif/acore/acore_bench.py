"""Runs the A-Core under any simulator against :class:`gradloom.verif.acore.acore_case.AuxReference`: what surrounds it, its
memories."""

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from gradloom.contracts.config import Config
from gradloom.contracts.engines import load_channels, store_channel
from gradloom.contracts.isa import FIRST_SHIFT_WORD, Dest, Opcode, Source
from gradloom.verif.acore.acore_case import AuxReference
from gradloom.verif.acore.acore_commands import command, shift_word
from gradloom.verif.acore.tail_memory import TailMemory, head
from gradloom.verif.program_case import ANY_COMMAND

__all__ = ["Bench", "Driver", "bench_config", "fill"]


class Driver(Protocol):
    """What the bench needs of a simulator; names are those of the emitted Verilog's ports."""

    def set(self, name: str, value: int) -> None: ...
    def get(self, name: str) -> int: ...
    async def settle(self) -> None: ...
    async def tick(self) -> None: ...


class Bench:
    """Plays the Sequencer, the Loader, the Storer, the C-Core's read ports and the scale unit for one A-Core."""

    def __init__(self, driver: Driver, reference: AuxReference) -> None:
        self.driver, self.ref, self.config = driver, reference, reference.config
        self.stats: dict[int, int] = defaultdict(int)
        self.cycles = 0
        self.ends: list[int] = []
        """Cycles in which the commands of the last stream were done."""
        self.rivals: random.Random | None = None
        """While commands run, others read what only one of both can read in a cycle: Storers PBUF and LOGIT, the drain DW."""
        self.tails = TailMemory()
        self._held: dict[tuple[Dest, int], int] = {}
        """What :meth:`load_all` has put into memories that the A-Core only reads."""
        self._next: dict[str, int] = {}
        self._waited = 0

    async def cycle(self) -> None:
        """One clock cycle; answers the read ports."""
        d = self.driver
        await d.settle()
        psum = gradient = norms = None
        if d.get("psums__request__en"):
            psum = [d.get(f"psums__request__{k}") for k in ("half", "wpu", "bank0", "addr0", "bank1", "addr1")]
            assert psum[2] != psum[4], "the banks of a read of partial sums must differ"
        if d.get("gradients__request__en"):
            gradient = d.get("gradients__request__addr")
            assert not self._waited, "a read of weight gradients in a cycle that is the drain's"
        if d.get("plane_sums__request__en"):
            norms = self.ref.norms.get(tuple(d.get(f"plane_sums__request__{k}") for k in ("half", "k", "plane")))
        exp = self.ref.exponents.get(d.get("exponents__tid"), 0) if d.get("exponents__en") else None
        seed = self.ref.seeds.get(d.get("seeds__tid"), 0) if d.get("seeds__en") else None
        pair = self.tails.read(d.get("port__tail_at"))
        if d.get("statistics__valid"):
            self.stats[d.get("statistics__tid")] |= d.get("statistics__value")
        await d.tick()
        self.cycles += 1
        # Data two cycles after the request: one cycle has gone by, the value is due in the next.
        for name, value in self._next.items():
            d.set(name, value)
        group = self.config.group
        self._next = {"plane_sums__data": (1 << (48 * group)) // 3 if norms is None else self._pack(norms, 48)}
        if psum:
            half, wpu, *banks = psum
            self._next["psums__data"] = self._pack(
                [self.ref.psum(half, wpu, banks[2 * lane], banks[2 * lane + 1], c) for lane in range(2) for c in range(group)],
                self.config.psum_width)
        if gradient is not None:
            self._next["gradients__data"] = self._pack(
                [self.ref.dw(gradient, lane, c) for lane in range(2) for c in range(group)], self.config.wg_width)
        d.set("exponents__e", (exp if exp is not None else 0x5A5A) & 0xFFFF)
        d.set("seeds__value", seed if seed is not None else 0x5A5A5A5A)
        d.set("port__tail", pair)

    @staticmethod
    def _pack(values: list[int], width: int) -> int:
        return sum((value & ((1 << width) - 1)) << (width * i) for i, value in enumerate(values))

    async def load(self, dest: Dest, addr: int, sub: int, data: int) -> None:
        self._held.pop((dest, addr), None)
        d, bus = self.driver, f"load__{load_channels(self.config, dest)[0]}"
        for name, value in (("valid", 1), ("dest", dest), ("bank", 0), ("addr", addr), ("sub", sub), ("data", data)):
            d.set(f"{bus}__{name}", value)
        await self.cycle()
        d.set(f"{bus}__valid", 0)

    async def load_all(self) -> None:
        """Everything that the reference's input memories hold, but for what this has loaded and nothing has written since."""
        bits = 16 * self.config.group
        for dest, memory, beats in ((Dest.AA, self.ref.aa, 1), (Dest.AB, self.ref.ab, 1), (Dest.AM, self.ref.am, 1),
                                    (Dest.XIN, self.ref.xin, 8), (Dest.PBUF, self.ref.pbuf, 4), (Dest.LABEL, self.ref.label, 1)):
            for addr, value in list(memory.items()):
                if self._held.get((dest, addr)) == value:
                    continue
                for sub in range(beats):
                    await self.load(dest, addr, sub, value >> (bits * sub) & ((1 << bits) - 1))
                if dest != Dest.PBUF:  # which the A-Core writes, too
                    self._held[dest, addr] = value

    async def read(self, src: Source, addresses: Sequence[int]) -> list[int]:
        """Whole entries through the store bus, a beat asked for in every cycle; data come two cycles behind."""
        bits = 16 * self.config.group
        beats = {Source.PBUF: 4, Source.XOUT: 8, Source.LOGIT: 2}.get(src, 1)
        asked = [(place, sub) for place in range(len(addresses)) for sub in range(beats)]
        d, bus, values = self.driver, f"store__{store_channel(self.config, src)}", [0] * len(addresses)
        d.set(f"{bus}__src", src)
        for number in range(len(asked) + 1):
            d.set(f"{bus}__en", int(number < len(asked)))
            if number < len(asked):
                place, sub = asked[number]
                d.set(f"{bus}__addr", addresses[place])
                d.set(f"{bus}__sub", sub)
            await self.cycle()
            if number:
                await d.settle()
                place, sub = asked[number - 1]
                values[place] |= d.get(f"{bus}__data") << (bits * sub)
        return values

    async def adopt(self, entries: int) -> None:
        """Take the first entries of every output memory into the reference, so that a stray write shows."""
        for src, memory in self._outputs():
            memory |= enumerate(await self.read(src, range(entries)))

    def _outputs(self) -> list[tuple[Source, dict[int, int]]]:
        ref = self.ref
        return [(Source.OA, ref.oa), (Source.OB, ref.ob), (Source.OM, ref.om), (Source.XOUT, ref.xout),
                (Source.LOGIT, ref.logit), (Source.PBUF, ref.pbuf)]

    async def execute(self, words: list[int], limit: int = 100_000, *,
                      disturb: Callable[[], Awaitable[None]] | None = None) -> tuple[int, int]:
        """Run one command; returns (cycles, fault). ``disturb`` is awaited in every cycle."""
        begin = self.cycles
        [fault] = await self.stream([words], limit, disturb=disturb)
        return self.cycles - begin, fault

    async def stream(self, commands: list[list[int]], limit: int = 100_000, *, in_flight: int = 1,
                     disturb: Callable[[], Awaitable[None]] | None = None) -> list[int]:
        """Run commands, each as soon as the A-Core is free and fewer than ``in_flight`` are under way. Returns their faults."""
        d = self.driver
        started, slot = 0, self.tails.put(commands[0])
        faults: list[int] = []
        ends: list[int] = []
        for now in range(limit):
            await d.settle()
            # Two cycles lie between two starts, and what runs sees its words as long as the A-Core is not free.
            free = d.get("port__free") and not d.get("port__start")
            start = started < len(commands) and started - len(faults) < in_flight and free
            if d.get("port__done"):
                faults.append(d.get("port__fault"))
                ends.append(now)
                assert len(ends) < 2 or ends[-1] - ends[-2] >= 2, "two commands are done in successive cycles"
            else:
                assert not d.get("port__fault"), "a fault without done"
            if disturb is not None:
                await disturb()
            else:
                await self.cycle()
            self._compete(running=len(faults) < len(commands))
            d.set("port__start", int(start))
            if start:
                d.set("port__cmd", head(commands[started]))
                d.set("port__slot", slot)
                started += 1
                # The next command is collected at once.
                slot = self.tails.put(commands[started]) if started < len(commands) else slot
            elif free:
                d.set("port__cmd", ANY_COMMAND)
            if len(faults) == len(commands):
                self.ends = ends
                return faults
        raise AssertionError(f"{len(commands)} commands did not end within {limit} cycles")

    def _compete(self, *, running: bool) -> None:
        """What the next cycle brings of :attr:`rivals`."""
        if self.rivals is None:
            return
        d, rng = self.driver, self.rivals
        self._waited = d.get("gradients__request__wait")
        d.set("gradients__request__wait", int(running and rng.random() < 0.3))
        for src in (Source.PBUF, Source.LOGIT):
            bus, reads = f"store__{store_channel(self.config, src)}", running and rng.random() < 0.5
            d.set(f"{bus}__en", int(reads))
            if reads:
                d.set(f"{bus}__src", src)
                d.set(f"{bus}__addr", rng.randrange(16))

    def set_hyper(self) -> None:
        for name in ("lm", "momentum", "decay_off"):
            self.driver.set(f"hyper__{name}", getattr(self.ref, name))

    def prepare(self, name: str, address: int, fields: dict[str, int], shifts: list[dict[str, int]]) -> list[int]:
        """Run microprogram ``name`` on the reference; returns the words of the command."""
        self.ref.run(name, fields, shifts)
        words = command(Opcode.RUN, [shift_word(**s) for s in shifts], uprog=address, **fields)
        assert len(words) == FIRST_SHIFT_WORD + len(shifts)
        return words

    async def run(self, name: str, address: int, fields: dict[str, int], shifts: list[dict[str, int]]) -> int:
        """Run microprogram ``name`` on both sides and compare every output memory. Returns the cycles of the RTL."""
        self.set_hyper()
        self.ref.fault = 0
        cycles, fault = await self.execute(self.prepare(name, address, fields, shifts))
        assert fault == self.ref.fault, f"{name}: fault {fault:#x}, expected {self.ref.fault:#x}"
        await self.compare(name)
        return cycles

    async def compare(self, context: str) -> None:
        for src, memory in self._outputs():
            expected = sorted(memory.items())
            for (addr, value), got in zip(expected, await self.read(src, [addr for addr, _ in expected]), strict=True):
                assert got == value, f"{context}: {src.name}[{addr}] is {got:#x}, expected {value:#x}"
        # An illegal command may OR 0 into the statistic of a tensor that nothing else has touched.
        # Of a statistic only the bit length counts.
        found, due = ({tid: value.bit_length() for tid, value in stats.items() if value}
                           for stats in (self.stats, self.ref.stats))
        assert found == due, f"{context}: statistics"


def bench_config(group: int, wpus: int, **fields: Any) -> Config:
    """A machine whose memories are small enough to be compared whole; with further fields of a :class:`Config`."""
    return Config(name="bench", clusters=group, cols=min(group, 8), wpus=wpus, abuf_depth=512, mbuf_depth=128, pbuf_depth=64,
                  dw_depth=max(64, 18 * max(1, group // 2)), max_planes=8, max_classes=64, **fields)


def fill(ref: AuxReference, *, beats: int = 64, wide_bits: int = 40) -> None:
    """Random streams, bitmaps and parameters (entries 0..6: gamma, beta, tau, sums; from 16: lam)."""
    rng, group = ref.rng, ref.config.group
    for memory in (ref.aa, ref.ab):
        for address in range(beats):
            memory[address] = sum(rng.choice((rng.getrandbits(8), rng.getrandbits(4), 0)) << (8 * i) for i in range(2 * group))
    for address in range(beats // 4):
        ref.am[address] = rng.getrandbits(16 * group)
    for address in range(32):
        ref.xin[address] = sum((rng.getrandbits(wide_bits) - (1 << (wide_bits - 1)) & 2**64 - 1) << (64 * i)
                               for i in range(2 * group))
    for channel in range(group):
        for entry in range(3):
            master, velocity = rng.getrandbits(28) - (1 << 27), rng.getrandbits(32)
            ref.set_entry(entry, channel, velocity << 32 | master & 0xFFFFFFFF)
        for entry in range(3, 7):
            ref.set_entry(entry, channel, rng.getrandbits(30) - (1 << 29))
        for entry in range(16, 24):
            ref.set_entry(entry, channel, rng.randrange(1 << 15, 1 << 16) | rng.randrange(10, 40) << 16)
    ref.exponents = {1: 8, 3: 12} | {tid: rng.randrange(-20, 5) for tid in range(8, 16)}
    ref.seeds = {tid: rng.getrandbits(32) for tid in range(8, 16)}
