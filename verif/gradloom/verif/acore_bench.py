"""Runs the A-Core under any simulator against :class:`gradloom.verif.acore_case.AuxReference`: driver, scenarios."""

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol

from gradloom.rtl.channels import load_channels, store_channel
from gradloom.rtl.config import Config
from gradloom.rtl.isa import FIRST_SHIFT_WORD, Dest, Opcode, PsumLayout, Source, XSource
from gradloom.rtl.microprograms import TABLE
from gradloom.verif.acore_case import AuxReference, command, shift_word

__all__ = ["SCENARIOS", "Bench", "Driver", "bench_config", "fill", "reciprocal", "shift_sum"]


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
        self._next: dict[str, int] = {}
        self._waited = 0

    async def cycle(self) -> None:
        """One clock cycle; answers the read ports."""
        d = self.driver
        await d.settle()
        prd = drd = srd = None
        if d.get("prd_en"):
            prd = [d.get(f"prd_{k}") for k in ("half", "wpu", "bank0", "addr0", "bank1", "addr1")]
            assert prd[2] != prd[4], "the banks of a read of partial sums must differ"
        if d.get("drd_en"):
            drd = d.get("drd_addr")
            assert not self._waited, "a read of weight gradients in a cycle that is the drain's"
        if d.get("srd_en"):
            srd = self.ref.norms.get(tuple(d.get(f"srd_{k}") for k in ("half", "k", "plane")))
        exp = self.ref.exponents.get(d.get("exp_tid"), 0) if d.get("exp_en") else None
        seed = self.ref.seeds.get(d.get("seed_tid"), 0) if d.get("seed_en") else None
        if d.get("stat_valid"):
            self.stats[d.get("stat_tid")] |= d.get("stat_value")
        await d.tick()
        self.cycles += 1
        # Data two cycles after the request: one cycle has gone by, the value is due in the next.
        for name, value in self._next.items():
            d.set(name, value)
        group = self.config.group
        self._next = {"srd_data": (1 << (48 * group)) // 3 if srd is None else self._pack(srd, 48)}
        if prd:
            half, wpu, *banks = prd
            self._next["prd_data"] = self._pack(
                [self.ref.psum(half, wpu, banks[2 * lane], banks[2 * lane + 1], c) for lane in range(2) for c in range(group)],
                self.config.psum_width)
        if drd is not None:
            self._next["drd_data"] = self._pack(
                [self.ref.dw(drd, lane, c) for lane in range(2) for c in range(group)], self.config.wg_width)
        d.set("exp_e", (exp if exp is not None else 0x5A5A) & 0xFFFF)
        d.set("seed_value", seed if seed is not None else 0x5A5A5A5A)

    @staticmethod
    def _pack(values: list[int], width: int) -> int:
        return sum((value & ((1 << width) - 1)) << (width * i) for i, value in enumerate(values))

    async def load(self, dest: Dest, addr: int, sub: int, data: int) -> None:
        d, bus = self.driver, f"load__{load_channels(self.config, dest)[0]}"
        for name, value in (("valid", 1), ("dest", dest), ("bank", 0), ("addr", addr), ("sub", sub), ("data", data)):
            d.set(f"{bus}__{name}", value)
        await self.cycle()
        d.set(f"{bus}__valid", 0)

    async def load_all(self) -> None:
        """Everything that the reference's input memories hold."""
        bits = 16 * self.config.group
        for dest, memory, beats in ((Dest.AA, self.ref.aa, 1), (Dest.AB, self.ref.ab, 1), (Dest.AM, self.ref.am, 1),
                                    (Dest.XIN, self.ref.xin, 8), (Dest.PBUF, self.ref.pbuf, 4), (Dest.LABEL, self.ref.label, 1)):
            for addr, value in list(memory.items()):
                for sub in range(beats):
                    await self.load(dest, addr, sub, value >> (bits * sub) & ((1 << bits) - 1))

    async def read(self, src: Source, addr: int) -> int:
        """A whole entry through the store bus."""
        bits = 16 * self.config.group
        beats = {Source.PBUF: 4, Source.XOUT: 8, Source.LOGIT: 2}.get(src, 1)
        d, bus, value = self.driver, f"store__{store_channel(self.config, src)}", 0
        for sub in range(beats):
            for name, number in (("en", 1), ("src", src), ("addr", addr), ("sub", sub)):
                d.set(f"{bus}__{name}", number)
            await self.cycle()
            d.set(f"{bus}__en", 0)
            await self.cycle()
            await d.settle()
            value |= d.get(f"{bus}__data") << (bits * sub)
        return value

    async def adopt(self, entries: int) -> None:
        """Take the first entries of every output memory into the reference, so that a stray write shows."""
        for src, memory in self._outputs():
            for addr in range(entries):
                memory[addr] = await self.read(src, addr)

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
        started = 0
        faults: list[int] = []
        ends: list[int] = []
        for now in range(limit):
            await d.settle()
            # Two cycles lie between two starts, and what runs sees its words until the next start.
            start = (started < len(commands) and started - len(faults) < in_flight and d.get("port__free")
                     and not d.get("port__start"))
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
                d.set("port__cmd", sum(word << (32 * i) for i, word in enumerate(commands[started])))
                started += 1
            if len(faults) == len(commands):
                self.ends = ends
                return faults
        raise AssertionError(f"{len(commands)} commands did not end within {limit} cycles")

    def _compete(self, *, running: bool) -> None:
        """What the next cycle brings of :attr:`rivals`."""
        if self.rivals is None:
            return
        d, rng = self.driver, self.rivals
        self._waited = d.get("drd_wait")
        d.set("drd_wait", int(running and rng.random() < 0.3))
        for src in (Source.PBUF, Source.LOGIT):
            bus, reads = f"store__{store_channel(self.config, src)}", running and rng.random() < 0.5
            d.set(f"{bus}__en", int(reads))
            if reads:
                d.set(f"{bus}__src", src)
                d.set(f"{bus}__addr", rng.randrange(16))

    def set_hyper(self) -> None:
        for name in ("lm", "momentum", "decay_off"):
            self.driver.set(name, getattr(self.ref, name))

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
            for addr, value in sorted(memory.items()):
                got = await self.read(src, addr)
                assert got == value, f"{context}: {src.name}[{addr}] is {got:#x}, expected {value:#x}"
        # An illegal command may OR 0 into the statistic of a tensor that nothing else has touched.
        # Of a statistic only the bit length counts.
        found, expected = ({tid: value.bit_length() for tid, value in stats.items() if value}
                           for stats in (self.stats, self.ref.stats))
        assert found == expected, f"{context}: statistics"


# -- scenarios: each runs some microprograms on random planes and compares every memory --------------------------------------


def bench_config(group: int, wpus: int) -> Config:
    """A machine whose memories are small enough to be compared whole."""
    return Config(name="bench", clusters=group, cols=min(group, 8), wpus=wpus, abuf_depth=512, mbuf_depth=128, pbuf_depth=64,
                  dw_depth=max(64, 18 * max(1, group // 2)), max_planes=8, max_classes=64)


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


def shift_sum(dst: int, const: int, *tids: int) -> list[dict[str, int]]:
    """Shift words of SH[dst] = const + sum of e[tid], a negative tid subtracts."""
    return [{"dst": dst, "first": int(i == 0), "const": const if i == 0 else 0, "neg": int(tid < 0), "tid": abs(tid)}
            for i, tid in enumerate(tids or (0,))]


def reciprocal(n: int) -> tuple[int, int]:
    """(inv, k) of docs/machine.md section 8."""
    k = (n - 1).bit_length()
    return ((1 << (16 + k)) // n + 1) // 2, k


def _plane(rng: random.Random, layout: PsumLayout | None = None, *, widest: int = 4) -> dict[str, int]:
    """Geometry of some planes."""
    py, xe, odd = rng.randint(1, 5), rng.randint(1, widest), rng.randint(0, 1)
    layout = PsumLayout(rng.randrange(4)) if layout is None else layout
    width = 2 * xe - odd
    pj = {PsumLayout.ROWS: width, PsumLayout.SPLIT: (width + 2) // 2, PsumLayout.K1: width, PsumLayout.K1_UP: (width + 1) // 2}
    fields = {"planes": rng.randint(1, 4), "nb": py * xe, "xe": xe, "xodd": odd, "py": py, "layout": layout, "pj": pj[layout],
              "half": rng.randint(0, 1), "pbase": rng.randrange(0, 64, 2), "prg0": rng.randint(0, 9),
              "pk": rng.randint(0, 2), "psr": rng.randint(0, 1), "psc": rng.randint(0, 1), "n": py * width,
              "sa0": rng.randrange(4), "sb0": rng.randrange(4), "sm0": rng.randrange(4), "oa0": rng.randrange(9),
              "ob0": rng.randrange(9), "om0": rng.randrange(9), "pl0": 16, "ps0": rng.randrange(250),
              "t1": 8, "t2": 9, "f1": 8, "f2": 8}
    if layout is not PsumLayout.SPLIT:
        fields["psc"] = 0
    if layout in (PsumLayout.ROWS, PsumLayout.K1):
        fields["psr"] = 0
    return fields


def _shared(rng: random.Random, wpus: int, fields: dict[str, int]) -> dict[str, int]:
    """Shared rows at the end of the planes, behind a whole row group; none in half of the cases, or of too few beats."""
    if fields["layout"] != PsumLayout.ROWS or wpus == 1 or fields["xe"] < wpus or rng.random() < 0.5:
        return {}
    shared = rng.randint(1, min(2, fields["py"]))
    return {"shared": shared, "sbeats": rng.randint(1, (fields["xe"] - 1) // (wpus - 1)),
            "pw0": (shared - fields["planes"] * fields["py"]) % wpus}


_NORMS = ("FRN_NORM", "FRN_NORM_ADD", "FRN_NORM_ADD", "FRN_LAM")
"""Sums of several tiles become lambda."""
_NORMALISED = ("FRN_FWD", "FRN_ROWS_RES", "FRN_FWD_RES", "FRN_ROWS", "FRN_FWD_LIN", "FRN_ROWS_LIN", *_NORMS)
_TILE = {"planes": 1, "pl0": 22}


async def forward(bench: Bench, seed: int) -> None:
    """FRN, ReLU, linear and backward output programs from partial sums in every layout."""
    ref, rng = bench.ref, random.Random(seed)
    for name in (*_NORMALISED, "RELU_FWD", "LIN_FWD", "BP_OUT", "BP_OUT_RES", "BP_OUT_ADD"):
        fields = _plane(rng) | {"pw0": rng.randrange(bench.config.wpus)}
        if name.startswith("FRN"):
            fields |= _TILE if name in _NORMS else {}
            shifts = shift_sum(0, -12, -10) + shift_sum(1, 20, 9) + shift_sum(2, 20, 11)
            ref.exponents[9] = rng.randint(-14, -8)
        elif name.startswith("BP"):
            shifts = shift_sum(1, 24, 9, -9) + shift_sum(2, rng.randint(-4, 20))
        else:
            shifts = shift_sum(0, rng.randint(-12, 6)) + shift_sum(1, rng.randint(4, 14))
        fields |= _shared(rng, bench.config.wpus, fields)
        if rng.random() < 0.3:
            fields |= {"r2": 1, "f2": 16, "idx0": rng.getrandbits(24), "s_k": rng.getrandbits(10), "s_ch": rng.getrandbits(8)}
        await bench.run(name, TABLE[name], fields, shifts)


async def layouts(bench: Bench, seed: int) -> None:
    """Every layout of partial sums, first units and parities."""
    rng = random.Random(seed)
    for layout in PsumLayout:
        for _ in range(4):
            fields = _plane(rng, layout) | {"pw0": rng.randrange(bench.config.wpus)}
            await bench.run("BP_OUT", TABLE["BP_OUT"], fields, shift_sum(1, rng.randint(8, 14)))


async def shared_rows(bench: Bench, seed: int) -> None:
    """Rows that WPUs share, behind others or all of a plane, with parts of all sizes."""
    rng, wpus, ran = random.Random(seed), bench.config.wpus, 0
    for trial in range(40 if wpus > 1 else 0):
        fields = _plane(rng, PsumLayout.ROWS, widest=9)
        if trial % 4 == 0:
            fields |= {"planes": 1, "py": 1 + trial // 4 % 2}
            fields["nb"] = fields["py"] * fields["xe"]
        if shared := _shared(rng, wpus, fields):
            await bench.run("BP_OUT", TABLE["BP_OUT"], fields | shared, shift_sum(1, rng.randint(8, 14)))
            ran += 1
    assert ran >= 10 or wpus == 1


async def logits(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        fields = {"planes": rng.randint(1, 8), "nb": 1, "xe": 1, "py": 1, "xodd": 1, "layout": PsumLayout.K1, "pj": 1,
                  "pk": rng.randint(0, 2), "pbase": 8, "ob0": rng.randint(0, 3), "om0": rng.randint(1, 2)}
        await bench.run("LOGITS", TABLE["LOGITS"], fields, shift_sum(0, rng.randint(-6, 6)) + shift_sum(1, rng.randint(-12, 4)))


_ROWS = ("FRN_SUM", "FRN_ADD", "FRN_ERR", "FRN_SUM_LIN", "FRN_ADD_LIN", "FRN_ADD", "FRN_ERR_LIN")


async def backward(bench: Bench, seed: int) -> None:
    """Backward of the normalisation and of the activations, dry and real, then the parameter updates."""
    rng = random.Random(seed)
    for name in ("FRN_BWD", "FRN_BWD_LIN", "RELU_BWD", "LIN_BWD", *_ROWS):
        for dry in (1, 0):
            fields = _plane(rng) | {"xsrc": XSource.NONE, "dry": dry}
            fields |= {"planes": 1} if name in _ROWS else {}
            fields["inv"], k = reciprocal(fields["n"])
            shifts = shift_sum(1, rng.randint(-12, -4) if name.startswith("FRN") else 0) + shift_sum(3, 19 + k)
            await bench.run(name, TABLE[name], fields, shifts)
    inv, k = reciprocal(rng.randint(1, 40))
    shifts = shift_sum(0, rng.randint(-20, -2) - k) + shift_sum(1, rng.randint(-12, -2) - k) + shift_sum(2, 0, -1)
    for name in ("PARAM_UPD", "BIAS_UPD", "PARAM_UPD"):
        await bench.run(name, TABLE[name], {"planes": 1, "nb": 1, "xe": 1, "xsrc": XSource.NONE, "inv": inv}, shifts)


def _tiles(bench: Bench, rng: random.Random, nr: int, nk: int) -> tuple[int, int]:
    """Tiles of one update, and further ones beside each of them, with room for 5 beats before them."""
    most = (bench.config.dw_depth - 5) // (nr * nk * bench.config.block_beats)
    planes = rng.randint(1, min(3, most))
    return planes, rng.randint(0, min(3, most // planes - 1))


async def weights(bench: Bench, seed: int) -> None:
    """Weight updates with stochastic rounding, weight decay on and off, and the export of weight gradients."""
    ref, rng, config = bench.ref, random.Random(seed), bench.config
    for i in range(5):
        nr, nk = rng.randint(1, 3), rng.randint(1, 3)
        planes, side = _tiles(bench, rng, nr, nk)
        nb = nr * nk * (side + 1) * config.block_beats
        inv, k = reciprocal(rng.randint(1, 40))
        ref.decay_off = i & 1
        ref.lm, ref.momentum = rng.getrandbits(8), rng.getrandbits(8)
        fields = {"planes": planes, "nb": nb, "xe": nb, "xsrc": XSource.DW, "nr": nr, "nk": nk, "side": side, "inv": inv,
                  "s_t": rng.getrandbits(12), "dwbase": rng.randint(0, 5), "xin": rng.randint(0, 1), "r1": 1, "r2": 1,
                  "f1": 16, "f2": 16, "t1": 12, "t2": 13, "oa0": 3, "ob0": 1, "sa0": 2, "sb0": 5} | {
                      name: rng.getrandbits(24) for name in ("idx0", "idx1", "idx2", "s_k", "s_lane", "s_ch")}
        shifts = (shift_sum(0, rng.randint(-36, -14) - k) + shift_sum(1, 16, 12, -12) + shift_sum(2, rng.randint(-4, 8))
                  + shift_sum(3, rng.randint(-4, 8)) + shift_sum(4, 16))
        await bench.run("WU", TABLE["WU"], fields, shifts)
        await bench.run("DW_EXPORT", TABLE["DW_EXPORT"], fields, [])


_WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 2, 0), (2, 3, 0), (1, 1, 0), (5, 3, 2), (1, 2, 0))
"""Size, stride and padding of pooling windows."""


def _pooling(rng: random.Random, kernel: int, stride: int, pad: int) -> tuple[dict[str, int], dict[str, int], int]:
    """Fields of a pool's forward and backward pass, and k of its reciprocal."""
    rows, columns = rng.randint(kernel, 6), rng.randint(kernel, 7)
    out_rows, out_columns = ((n + 2 * pad - kernel) // stride + 1 for n in (rows, columns))
    inv, k = reciprocal(kernel * kernel)
    base = {"planes": rng.randint(1, 3), "xsrc": XSource.NONE, "pkern": kernel, "pstride": stride, "ppad": pad, "inv": inv,
            "t2": 9, "f2": 8, "f1": 8, "sa0": 1, "sb0": 2, "oa0": rng.randint(0, 9), "ob0": rng.randint(0, 9)}

    def size(y: int, x: int) -> dict[str, int]:
        return {"py": y, "xe": (x + 1) // 2, "nb": y * ((x + 1) // 2), "xodd": x & 1}

    # Any number of rows may lie above the first stored one, as for a tile of rows.
    poff = rng.randint(-pad, 2)
    return (base | size(out_rows, out_columns) | {"pool": 1, "pyi": rows, "pxi": columns, "poff": min(0, poff)},
            base | size(rows, columns) | {"pool": 2, "pyi": out_rows, "pxi": out_columns, "poff": poff}, k)


async def pools(bench: Bench, seed: int) -> None:
    """Maximum and average pools with every relation of window, stride and padding."""
    ref, rng = bench.ref, random.Random(seed)
    for window in _WINDOWS:
        forward_fields, backward_fields, k = _pooling(rng, *window)
        await bench.run("MAXPOOL_FWD", TABLE["MAXPOOL_FWD"], forward_fields | {"pmax": 1}, shift_sum(1, rng.randint(-2, 1)))
        for beat in range(forward_fields["planes"] * forward_fields["nb"]):
            ref.ab[forward_fields["sb0"] + beat] = ref.ob[forward_fields["ob0"] + beat]
        await bench.load_all()
        await bench.run("MAXPOOL_BWD", TABLE["MAXPOOL_BWD"], backward_fields | {"pmax": 1}, shift_sum(1, rng.randint(-2, 3)))
        await bench.run("AVGPOOL_FWD", TABLE["AVGPOOL_FWD"], forward_fields, shift_sum(1, 15 + k + rng.randint(-2, 1)))
        await bench.run("AVGPOOL_BWD", TABLE["AVGPOOL_BWD"], backward_fields, shift_sum(1, 15 + k + rng.randint(-2, 1)))


def any_run(bench: Bench, rng: random.Random, slot: int) -> tuple[str, dict[str, int], list[dict[str, int]]]:
    """Some microprogram with its fields and shifts. ``slot``: image slot of the sums that FRN takes."""
    config = bench.config
    name = rng.choice(list(TABLE))
    if "POOL" in name:
        forward_fields, backward_fields, k = _pooling(rng, *rng.choice(_WINDOWS))
        fields = forward_fields if name.endswith("FWD") else backward_fields
        maximum = int(name.startswith("MAX"))
        return name, fields | {"pmax": maximum}, shift_sum(1, 0 if maximum else 15 + k)
    fields = _plane(rng) | {"pw0": rng.randrange(config.wpus), "t1": rng.randint(8, 11), "t2": rng.randint(12, 15), "ps0": slot,
                            "pb0": rng.choice((0, 7)), "r2": rng.randint(0, 1), "idx0": rng.getrandbits(24),
                            "s_ch": rng.getrandbits(8)}
    inv, k = reciprocal(fields["n"])
    shifts = shift_sum(0, rng.randint(-12, 4)) + shift_sum(1, rng.randint(8, 20)) + shift_sum(2, rng.randint(-4, 12))
    if name.startswith("FRN_BWD"):
        shifts = shift_sum(1, rng.randint(-12, -4)) + shift_sum(3, 19 + k)
    elif name in _ROWS:
        fields |= {"planes": 1, "pb0": 0}
        shifts = shift_sum(1, rng.randint(-12, -4)) + shift_sum(3, 19 + k)
    elif name.startswith("FRN"):
        fields |= _TILE if name in _NORMS else {}
        fields |= {"r1": rng.randint(0, 1), "s_k": rng.getrandbits(16)}
        shifts = shift_sum(0, -12, -10) + shift_sum(1, 20, 9) + shift_sum(2, 8)
    elif name.endswith("BWD"):
        shifts = []
    elif name.endswith("UPD"):
        fields |= {"planes": 1, "nb": 1, "xe": 1}
        shifts = shift_sum(0, rng.randint(-20, -2) - k) + shift_sum(1, rng.randint(-12, -2) - k) + shift_sum(2, 0, -1)
    elif name in ("WU", "DW_EXPORT"):
        nr, nk = rng.randint(1, 3), rng.randint(1, 3)
        planes, side = _tiles(bench, rng, nr, nk)
        nb = nr * nk * (side + 1) * config.block_beats
        fields |= {"planes": planes, "nb": nb, "xe": nb, "xodd": 0, "nr": nr, "nk": nk, "side": side, "r1": 1, "f1": 16,
                   "xin": rng.randint(0, 1), "s_k": rng.getrandbits(20), "s_t": rng.getrandbits(12), "s_lane": rng.getrandbits(8)}
        shifts += shift_sum(3, rng.randint(-4, 8)) + shift_sum(4, 16)
    elif name == "LOGITS":
        fields |= {"nb": 1, "xe": 1, "py": 1, "xodd": 1, "layout": PsumLayout.K1, "pj": 1, "ob0": 0, "om0": 1, "t1": 0, "t2": 0}
        shifts = shift_sum(0, rng.randint(-6, 6)) + shift_sum(1, rng.randint(-12, 4))
    if "BWD" in name or "UPD" in name or name in _ROWS:
        fields["xsrc"] = XSource.NONE
    elif name in ("WU", "DW_EXPORT"):
        fields["xsrc"] = XSource.DW
    else:
        fields |= _shared(rng, config.wpus, fields)
    return name, fields | {"inv": inv}, shifts


async def overlapping(bench: Bench, seed: int) -> None:
    """Commands that follow each other as closely as they can, now and then one that is illegal, and one to the program memory."""
    await _overlapping(bench, seed)


async def rivalling(bench: Bench, seed: int) -> None:
    """The same while Storers and the drain read memories of the A-Core's as well."""
    bench.rivals = random.Random(seed)
    await _overlapping(bench, seed)


async def _overlapping(bench: Bench, seed: int) -> None:
    ref, rng = bench.ref, random.Random(seed)
    bench.set_hyper()
    for in_flight in (4, 2, 4):
        commands, faults = [], []
        for i in range(25):
            ref.fault = 0
            name, fields, shifts = any_run(bench, rng, 10 * i)
            kind = rng.random()
            if kind < 0.05:
                commands.append(command(Opcode.RUN, [], uprog=TABLE[name], **(fields | {"nb": 0})))
                faults.append(0x20)
            elif kind < 0.1:
                commands.append(command(Opcode.UCODE, [rng.getrandbits(32)] * 3, address=4 * (bench.config.microcode_depth - 1)))
                faults.append(0)
            else:
                commands.append(bench.prepare(name, TABLE[name], fields, shifts))
                faults.append(ref.fault)
        assert await bench.stream(commands, in_flight=in_flight) == faults
        await bench.compare(f"{in_flight} commands under way")


SCENARIOS: dict[str, Callable[[Bench, int], Awaitable[None]]] = {
    "forward": forward, "layouts": layouts, "shared_rows": shared_rows, "logits": logits, "backward": backward,
    "weights": weights, "pools": pools, "overlapping": overlapping, "rivalling": rivalling}
"""By name; a scenario expects a bench whose reference was filled and loaded."""
