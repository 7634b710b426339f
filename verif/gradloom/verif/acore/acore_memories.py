"""What the A-Core's plain reference works on: the memories around the A-Core, where a command's operands lie, its converters.

Written from docs/machine.md sections 2, 3, 4 and 5 alone.
"""

import random
from collections import defaultdict
from collections.abc import Iterator

from gradloom.contracts.config import Config
from gradloom.contracts.isa import PsumLayout, XSource
from gradloom.verif.plain_arith import MASK64, encode, encode_rest, hash24, saturate, wrap

__all__ = ["AuxMemories"]


class AuxMemories:
    """The memories around the A-Core, and one RUN command that works on them.

    Parameters
    ----------
    psum_bits, dw_bits : :class:`int`
        Size of the random partial sums and weight gradients that the C-Core's buffers hold.

    Attributes
    ----------
    f, sh : dict, list
        Fields of the command that is executed, and its shift registers.
    outputs : dict
        Statistics of its converters 1 and 2.
    fault : :class:`int`
        Error code of the last command that had one; for tests to clear.
    """

    def __init__(self, config: Config, seed: int, *, psum_bits: int = 24, dw_bits: int = 30) -> None:
        self.config, self.seed = config, seed
        self.psum_bits, self.dw_bits = psum_bits, dw_bits
        self.rng = random.Random(seed)
        memories: list[dict[int, int]] = [defaultdict(int) for _ in range(11)]
        self.aa, self.ab, self.am, self.xin, self.label = memories[:5]
        self.oa, self.ob, self.om, self.xout, self.logit, self.pbuf = memories[5:]
        self.exponents: dict[int, int] = {}
        self.seeds: dict[int, int] = {}
        self.stats: dict[int, int] = defaultdict(int)
        self.lm, self.momentum, self.decay_off = 200, 230, 0
        self.psum_override: dict[tuple[int, ...], int] = {}
        self.norms: dict[tuple[int, ...], list[int]] = {}
        """Sums of abs(X) that the C-Core has gathered: (half, k, image slot) to one a channel."""
        self.fault = 0
        self.f: dict[str, int] = defaultdict(int)
        self.sh = [0] * 8
        self.outputs: dict[int, int] = defaultdict(int)

    def psum(self, half: int, wpu: int, bank: int, addr: int, channel: int) -> int:
        """A partial sum in the C-Core."""
        key = (half, wpu, bank, addr & 0xFFFF, channel)
        if key in self.psum_override:
            return self.psum_override[key]
        rng = random.Random(f"{self.seed} {key}")
        return rng.getrandbits(self.psum_bits) - (1 << (self.psum_bits - 1)) >> rng.choice((0, 0, 0, 4, 12))

    def dw(self, addr: int, lane: int, channel: int) -> int:
        """A weight gradient in the C-Core."""
        rng = random.Random(f"{self.seed} dw {addr} {lane} {channel}")
        return rng.getrandbits(self.dw_bits) - (1 << (self.dw_bits - 1)) >> rng.choice((0, 0, 8))

    def entry(self, address: int, channel: int, *, signed: bool = True) -> int:
        """64 bits of the parameter buffer."""
        value = self.pbuf[address] >> (64 * channel) & MASK64
        return wrap(value) if signed else value

    def set_entry(self, address: int, channel: int, value: int) -> None:
        """To the parameter buffer."""
        self.pbuf[address] &= ~(MASK64 << (64 * channel))
        self.pbuf[address] |= (value & MASK64) << (64 * channel)

    def master(self, address: int, channel: int) -> tuple[int, int]:
        """(master, velocity)."""
        value = self.entry(address, channel, signed=False)
        return wrap(value, 32), wrap(value >> 32, 32)

    def byte(self, memory: dict[int, int], address: int, lane: int, channel: int) -> int:
        """A code of a stream."""
        return memory[address & 0xFFFF] >> (8 * (lane * self.config.group + channel)) & 0xFF

    def put(self, memory: dict[int, int], address: int, lane: int, channel: int, value: int, width: int = 8) -> None:
        """``width`` bits to an entry of an output."""
        at = width * (lane * self.config.group + channel)
        memory[address] &= ~(((1 << width) - 1) << at)
        memory[address] |= (value & ((1 << width) - 1)) << at

    def beats(self, f: dict[str, int]) -> Iterator[tuple[int, int, int, bool, int]]:
        """(plane, beat, lane, valid, stochastic index of channel 0) of everything that a sweep visits."""
        weights = f["xsrc"] == XSource.DW
        columns = 2 * f["xe"] - f["xodd"]
        for plane in range(f["planes"]):
            for beat in range(f["nb"]):
                o, t = divmod(beat, f["xe"])
                for lane in range(2):
                    valid = not (f["xodd"] and t == f["xe"] - 1 and lane) and not (weights and self.config.group == 1 and lane)
                    if weights:
                        block, b = divmod(beat, self.config.block_beats)
                        block, side = divmod(block, f["side"] + 1)
                        r, k = divmod(block, f["nk"])
                        index = f[f"idx{min(r, 2)}"] + (plane + side) * f["s_t"] + k * f["s_k"] + (2 * b + lane) * f["s_lane"]
                    else:
                        every = 2 if f["layout"] == PsumLayout.K1_UP and f["psr"] else 1
                        index = f["idx0"] + plane * f["s_k"] + every * o * columns + 2 * t + lane
                    yield plane, beat, lane, valid, index

    def partial_sum(self, f: dict[str, int], plane: int, beat: int, lane: int, channel: int) -> int:
        """docs/machine.md sections 4 and 5: where position (plane, o, x) lies."""
        o, t = divmod(beat, f["xe"])
        x, rows, wpus = 2 * t + lane, f["py"], self.config.wpus
        first = f["prg0"] * wpus + f["pw0"]
        if f["layout"] == PsumLayout.ROWS:
            unit, beat = first + plane * rows + o, x >> 1
            dealt = first + f["planes"] * rows - f["shared"]
            if unit >= dealt:
                # As if the WPU had a whole unit in a row group that is the row's.
                part = min(t // f["sbeats"], wpus - 1)
                unit, beat = (dealt // wpus + unit - dealt) * wpus + part, t - part * f["sbeats"]
            g = unit // wpus
            bank, addr = 2 * (g & 1) + (x & 1), f["pbase"] + (g >> 1) * ((f["pj"] + 1) // 2) + beat
        elif f["layout"] == PsumLayout.SPLIT:
            per_image = (rows + f["psr"] + 1) // 2
            unit = first + plane * per_image + (o + f["psr"] >> 1)
            g = unit // wpus
            bank = 2 * (o + f["psr"] & 1) + (x + f["psc"] & 1)
            addr = f["pbase"] + g * f["pj"] + (x + f["psc"] >> 1)
        else:
            if f["layout"] == PsumLayout.K1_UP:
                if x % 2 or (o % 2 and not f["psr"]):
                    return 0
                unit = first + (plane * rows + o if f["psr"] else plane * ((rows + 1) // 2) + o // 2)
                x //= 2
            else:
                unit = first + plane * rows + o
            g = unit // wpus
            n = g * ((f["pj"] + 1) & ~1) + x
            bank = f["pk"] if x % 2 == 0 else (f["pk"] + 2) % 4
            addr = f["pbase"] + 2 * (n >> 1) + (f["pk"] == 2)
        return self.psum(f["half"], unit % wpus, bank, addr, channel)

    def convert(self, which: int, a: int, sh: int, index: int, channel: int) -> tuple[int, int]:
        """(value, code) that converter ``which`` gives of ``a`` at shift ``sh``."""
        bits = self.f[f"f{which}"]
        r = self._random(which, index, channel) >> (24 - bits) if self.f[f"r{which}"] else None
        v, code, stat = encode(a, sh, bits, r)
        self.outputs[which] |= stat
        return v, code

    def convert_rest(self, a: int, sh: int, index: int, channel: int) -> tuple[int, int]:
        """(code, rest) that converter 2 gives with error feedback."""
        _, code, stat, rest = encode_rest(a, sh, self._random(2, index, channel) >> 16)
        self.outputs[2] |= stat
        return code, rest

    def _random(self, which: int, index: int, channel: int) -> int:
        return hash24(self.seeds[self.f[f"t{which}"]], index + channel * self.f["s_ch"] & 0xFFFFFF)

    def x(self, plane: int, beat: int, lane: int, channel: int) -> int:
        """The wide operand."""
        f = self.f
        if f["xsrc"] == XSource.PSUM:
            return self.partial_sum(f, plane, beat, lane, channel)
        if f["xsrc"] == XSource.DW:
            at = f["dwbase"] + plane * f["nb"] + beat
            wide = wrap(self.xin[at] >> (64 * (lane * self.config.group + channel))) if f["xin"] else 0
            return wrap(self.dw(at, lane, channel) + wide)
        return 0

    def bit(self, plane: int, beat: int, lane: int, channel: int) -> int:
        """Of the stored bitmap."""
        group = self.config.group
        address = self.f["sm0"] + plane * -(-self.f["nb"] // 8) + beat // 8
        return self.am[address] >> ((beat % 8 * 2 + lane) * group + channel) & 1

    def put_bit(self, plane: int, beat: int, lane: int, channel: int, bit: int) -> None:
        """To the bitmap that is written; the first one of an entry clears it."""
        address = self.f["om0"] + plane * -(-self.f["nb"] // 8) + beat // 8
        if beat % 8 == 0 and lane == 0 and channel == 0:
            self.om[address] = 0
        self.put(self.om, address, beat % 8 * 2 + lane, channel, bit, 1)

    def add_sums(self, c: int, values: dict[int, int]) -> None:
        """Values to the sums of entries relative to pb0, by their numbers; an overflow is a fault."""
        for offset, value in values.items():
            total = self.entry(self.f["pb0"] + offset, c) + value
            if total != saturate(total, 64):
                self.fault = 0x12
            if not self.f["dry"]:
                self.set_entry(self.f["pb0"] + offset, c, saturate(total, 64))
