"""Reference of the A-Core in plain Python integers.

Written from docs/machine.md sections 2, 3, 5 and 8 alone: :class:`AuxReference` holds the memories that a RUN command reads and
writes and executes a microprogram by name. It shares no code with the golden model.
"""

import random
from collections import defaultdict
from collections.abc import Iterator

from gradloom.rtl.config import Config
from gradloom.rtl.isa import COMMANDS, SHIFT_FIELDS, Opcode, PsumLayout, XSource

__all__ = ["AuxReference", "align", "code_of", "command", "decode", "encode", "hash24", "saturate", "shift_word", "wrap"]

MASK64 = (1 << 64) - 1


# -- arithmetic ----------------------------------------------------------------------------------------------------------


def saturate(x: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, x))


def wrap(x: int, bits: int = 64) -> int:
    return ((x + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))


def align(x: int, n: int) -> int:
    return saturate(x << min(n, 400), 64) if n >= 0 else x >> -n


def decode(code: int) -> int:
    m = code & 0x7F
    m -= (m & 64) << 1
    if code & 0x80:
        return m * 8
    return m if -8 <= m <= 7 else m * 64


def code_of(v: int) -> int:
    if -8 <= v <= 7:
        return v & 0x7F
    return 0x80 | (v >> 3 & 0x7F) if -512 <= v <= 511 else v >> 6 & 0x7F


def encode(a: int, sh: int, f: int = 8, r: int | None = None) -> tuple[int, int, int]:
    """(value, code, stat) of ``a`` at shift ``sh``; ``r`` = random bits, None = to nearest."""
    g = align(a, f + 1 - sh)
    stat = (g ^ (g >> 63)) & MASK64
    t = g >> (f + 1)
    if t >= 4096:
        v = 4032
    elif t < -4096:
        v = -4096
    else:
        s = 0 if -8 <= t <= 7 else 3 if -512 <= t <= 511 else 6
        v = min((((g >> s) + (1 << f if r is None else 2 * r + 1)) >> (f + 1)) << s, 4032)
    return v, code_of(v), stat


def hash24(seed: int, idx: int) -> int:
    m = (1 << 24) - 1
    x = (idx ^ seed) & m
    x = (x + (x << 7)) & m
    x ^= x >> 5
    x ^= seed >> 24
    x = (x + (x << 3)) & m
    x ^= x >> 9
    return (x + (x << 11)) & m


def command(opcode: Opcode, tail: list[int] | None = None, **values: int) -> list[int]:
    """Words of a command."""
    spec = COMMANDS[opcode]
    words = [0] * spec.words
    names = {field.name: field for field in spec.fields}
    for name, value in values.items():
        field = names[name]
        words[field.word] |= (int(value) & ((1 << field.width) - 1)) << field.lsb
    words += tail or []
    words[0] |= opcode | len(words) << 8
    return words


def shift_word(**values: int) -> int:
    return sum((int(values.get(field.name, 0)) & ((1 << field.width) - 1)) << field.lsb for field in SHIFT_FIELDS)


# -- memories and microprograms --------------------------------------------------------------------------------------------


class AuxReference:
    """The memories around the A-Core and the effect of RUN commands on them.

    Parameters
    ----------
    psum_bits, dw_bits : :class:`int`
        Size of the random partial sums and weight gradients that the C-Core's buffers hold.
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

    # memories

    def psum(self, half: int, wpu: int, bank: int, addr: int, channel: int) -> int:
        key = (half, wpu, bank, addr & 0xFFFF, channel)
        if key in self.psum_override:
            return self.psum_override[key]
        rng = random.Random(f"{self.seed} {key}")
        return rng.getrandbits(self.psum_bits) - (1 << (self.psum_bits - 1)) >> rng.choice((0, 0, 0, 4, 12))

    def dw(self, addr: int, lane: int, channel: int) -> int:
        rng = random.Random(f"{self.seed} dw {addr} {lane} {channel}")
        return rng.getrandbits(self.dw_bits) - (1 << (self.dw_bits - 1)) >> rng.choice((0, 0, 8))

    def entry(self, address: int, channel: int, *, signed: bool = True) -> int:
        value = self.pbuf[address] >> (64 * channel) & MASK64
        return wrap(value) if signed else value

    def set_entry(self, address: int, channel: int, value: int) -> None:
        self.pbuf[address] &= ~(MASK64 << (64 * channel))
        self.pbuf[address] |= (value & MASK64) << (64 * channel)

    def master(self, address: int, channel: int) -> tuple[int, int]:
        """(master, velocity)."""
        value = self.entry(address, channel, signed=False)
        return wrap(value, 32), wrap(value >> 32, 32)

    def _byte(self, memory: dict[int, int], address: int, lane: int, channel: int) -> int:
        return memory[address & 0xFFFF] >> (8 * (lane * self.config.group + channel)) & 0xFF

    def _put(self, memory: dict[int, int], address: int, lane: int, channel: int, value: int, width: int = 8) -> None:
        at = width * (lane * self.config.group + channel)
        memory[address] &= ~(((1 << width) - 1) << at)
        memory[address] |= (value & ((1 << width) - 1)) << at

    # geometry

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

    # commands

    def run(self, name: str, fields: dict[str, int], shifts: list[dict[str, int]]) -> None:
        """Execute microprogram ``name``."""
        f = defaultdict(int, fields)
        sh = [0] * 8
        for s in shifts:
            e = self.exponents.get(s["tid"], 0)
            sh[s["dst"]] = (0 if s["first"] else sh[s["dst"]]) + s["const"] + (-e if s["neg"] else e)
        self.outputs: dict[int, int] = defaultdict(int)
        self.f, self.sh = f, sh
        if f["pool"]:
            self._pool(name)
        else:
            for channel in range(self.config.group):
                getattr(self, "_" + self.METHODS[name])(name, channel)
        for tid, which in ((f["t1"], 1), (f["t2"], 2)):
            if tid:
                self.stats[tid] |= self.outputs[which]

    METHODS = {
        **dict.fromkeys(("FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "FRN_ROWS", "FRN_ROWS_RES", "FRN_ROWS_LIN"), "frn_forward"),
        **dict.fromkeys(("FRN_NORM", "FRN_NORM_ADD", "FRN_LAM"), "frn_norm"),
        **dict.fromkeys(("FRN_BWD", "FRN_BWD_LIN"), "frn_backward"),
        **dict.fromkeys(("FRN_SUM", "FRN_SUM_LIN", "FRN_ADD", "FRN_ADD_LIN", "FRN_ERR", "FRN_ERR_LIN"), "frn_rows"),
        **dict.fromkeys(("RELU_FWD", "LIN_FWD", "BP_OUT", "BP_OUT_RES", "BP_OUT_ADD"), "plain"),
        **dict.fromkeys(("RELU_BWD", "LIN_BWD"), "relu_backward"),
        **dict.fromkeys(("PARAM_UPD", "BIAS_UPD"), "update"),
        **dict.fromkeys(("WU", "DW_EXPORT"), "weights"),
        "LOGITS": "logits",
    }

    def _encode(self, which: int, a: int, sh: int, index: int, channel: int) -> tuple[int, int]:
        f = self.f
        bits = f[f"f{which}"]
        r = None
        if f[f"r{which}"]:
            r = hash24(self.seeds[f[f"t{which}"]], index + channel * f["s_ch"] & 0xFFFFFF) >> (24 - bits)
        v, code, stat = encode(a, sh, bits, r)
        self.outputs[which] |= stat
        return v, code

    def _x(self, plane: int, beat: int, lane: int, channel: int) -> int:
        f = self.f
        if f["xsrc"] == XSource.PSUM:
            return self.partial_sum(f, plane, beat, lane, channel)
        if f["xsrc"] == XSource.DW:
            at = f["dwbase"] + plane * f["nb"] + beat
            wide = wrap(self.xin[at] >> (64 * (lane * self.config.group + channel))) if f["xin"] else 0
            return wrap(self.dw(at, lane, channel) + wide)
        return 0

    def _bit(self, plane: int, beat: int, lane: int, channel: int) -> int:
        group = self.config.group
        address = self.f["sm0"] + plane * -(-self.f["nb"] // 8) + beat // 8
        return self.am[address] >> ((beat % 8 * 2 + lane) * group + channel) & 1

    def _put_bit(self, plane: int, beat: int, lane: int, channel: int, bit: int) -> None:
        address = self.f["om0"] + plane * -(-self.f["nb"] // 8) + beat // 8
        if beat % 8 == 0 and lane == 0 and channel == 0:
            self.om[address] = 0
        self._put(self.om, address, beat % 8 * 2 + lane, channel, bit, 1)

    def _norms(self, c: int) -> list[int]:
        """Sums of magnitudes of the planes, as the C-Core would have gathered them."""
        f = self.f
        sums = [0] * f["planes"]
        for plane, beat, lane, valid, _ in self.beats(f):
            if valid:
                sums[plane] += abs(self._x(plane, beat, lane, c))
        for plane, total in enumerate(sums):
            key = f["half"], f["pk"], f["ps0"] + plane & 0xFF
            self.norms.setdefault(key, [0] * self.config.group)[c] = total
        return sums

    def _lam(self, plane: int, c: int, total: int) -> tuple[int, int]:
        """lambda of a plane, kept unless dry."""
        f = self.f
        total = min(total + max(1, align(f["n"], self.sh[0])), (1 << 63) - 1)
        le = 0
        while (f["n"] << le) // total < 1 << 15:
            le += 1
        q = (f["n"] << le) // total
        if not f["dry"]:
            self.set_entry(f["pl0"] + plane, c, q | le << 16)
        return q, le

    def _frn_norm(self, name: str, c: int) -> None:
        f = self.f
        if name == "FRN_LAM":
            for plane in range(f["planes"]):
                self._lam(plane, c, self.entry(f["pl0"] + plane, c))
            return
        for plane, total in enumerate(self._norms(c)):
            if not f["dry"]:
                before = self.entry(f["pl0"] + plane, c) if name == "FRN_NORM_ADD" else 0
                self.set_entry(f["pl0"] + plane, c, before + total)

    def _frn_forward(self, name: str, c: int) -> None:
        f, sh = self.f, self.sh
        gamma, beta, tau = (self.master(f["pb0"] + i, c)[0] >> 12 for i in range(3))
        if name.startswith("FRN_FWD"):
            scale = [self._lam(plane, c, total) for plane, total in enumerate(self._norms(c))]
        else:
            words = [self.entry(f["pl0"] + plane, c, signed=False) for plane in range(f["planes"])]
            scale = [(word & 0xFFFF, word >> 16 & 0xFF) for word in words]
        for plane, beat, lane, valid, index in self.beats(f):
            q, le = scale[plane]
            at = plane * f["nb"] + beat
            bit = code1 = code2 = 0
            if valid:
                v, code1 = self._encode(1, self._x(plane, beat, lane, c) * q, le - 8, index, c)
                y = gamma * v + (beta << 8)
                if name.endswith("RES"):
                    y += align(decode(self._byte(self.aa, f["sa0"] + at, lane, c)), sh[2])
                bit = int(name.endswith("LIN") or y >= tau << 8)
                _, code2 = self._encode(2, y if bit else tau << 8, sh[1], index, c)
            self._put(self.ob, f["ob0"] + at, lane, c, code1)
            self._put(self.oa, f["oa0"] + at, lane, c, code2)
            if not name.endswith("LIN"):
                self._put_bit(plane, beat, lane, c, bit)

    def _plain(self, name: str, c: int) -> None:
        f, sh = self.f, self.sh
        forward = name in ("RELU_FWD", "LIN_FWD")
        bias = align(self.master(f["pb0"] + 1, c)[0], sh[0]) if forward else 0
        for plane, beat, lane, valid, index in self.beats(f):
            at = plane * f["nb"] + beat
            bit = code = 0
            if valid:
                y = self._x(plane, beat, lane, c) + bias
                if name in ("BP_OUT_RES", "BP_OUT_ADD"):
                    kept = name == "BP_OUT_ADD" or self._bit(plane, beat, lane, c)
                    y += align(decode(self._byte(self.aa, f["sa0"] + at, lane, c)) if kept else 0, sh[2])
                bit = int(y > 0)
                if name == "RELU_FWD" and not bit:
                    y = 0
                _, code = self._encode(2, y, sh[1], index, c)
            self._put(self.oa, f["oa0"] + at, lane, c, code)
            if name == "RELU_FWD":
                self._put_bit(plane, beat, lane, c, bit)

    def _logits(self, name: str, c: int) -> None:
        f, sh = self.f, self.sh
        bias = align(self.master(f["pb0"] + 1, c)[0], sh[0])
        for plane in range(f["planes"]):
            value = saturate(align(self._x(plane, 0, 0, c) + bias, sh[1]), 24)
            self._put(self.logit, f["ob0"] + plane * f["om0"], 0, c, value, 32)

    def _sums(self, c: int, values: dict[int, int]) -> None:
        for offset, value in values.items():
            total = self.entry(self.f["pb0"] + offset, c) + value
            if total != saturate(total, 64):
                self.fault = 0x12
            if not self.f["dry"]:
                self.set_entry(self.f["pb0"] + offset, c, saturate(total, 64))

    def _frn_backward(self, name: str, c: int) -> None:
        s1, s2, s3, values = self._masked(name.endswith("LIN"), c)
        self._sums(c, {3: sum(s1), 4: s2, 5: s3})
        self._errors(c, s1, values)

    def _frn_rows(self, name: str, c: int) -> None:
        """One plane's sum of products in entry 6, then its errors."""
        s1, s2, s3, values = self._masked(name.endswith("LIN"), c)
        at = self.f["pb0"] + 6
        if name.startswith("FRN_ERR"):
            self._errors(c, [self.entry(at, c)] * self.f["planes"], values)
            return
        if name.startswith("FRN_SUM") and not self.f["dry"]:
            self.set_entry(at, c, s1[0])
        self._sums(c, ({6: sum(s1)} if name.startswith("FRN_ADD") else {}) | {3: sum(s1), 4: s2, 5: s3})

    def _masked(self, keep: bool, c: int) -> tuple[list[int], int, int, list[tuple]]:
        """Sums of d xhat of every plane, of d and of dz - d, and every position with its d and xhat."""
        f = self.f
        s1, s2, s3 = [0] * f["planes"], 0, 0
        values = []
        for plane, beat, lane, valid, index in self.beats(f):
            at = plane * f["nb"] + beat
            dz = decode(self._byte(self.aa, f["sa0"] + at, lane, c))
            xhat = decode(self._byte(self.ab, f["sb0"] + at, lane, c))
            d = dz if keep or self._bit(plane, beat, lane, c) else 0
            values.append((plane, at, lane, valid, index, d, xhat))
            if valid:
                s1[plane] += d * xhat
                s2 += d
                s3 += dz - d
        return s1, s2, s3, values

    def _errors(self, c: int, s1: list[int], values: list[tuple]) -> None:
        f, sh = self.f, self.sh
        gamma = self.master(f["pb0"], c)[0] >> 12
        for plane, at, lane, valid, index, d, xhat in values:
            lam = self.entry(f["pl0"] + plane, c, signed=False)
            q, le = lam & 0xFFFF, lam >> 16 & 0xFF
            mean = s1[plane] * f["inv"] >> sh[3]
            gl = gamma * q >> 16
            u = saturate((d << 4) - ((xhat > 0) - (xhat < 0)) * mean, 18)
            code = self._encode(2, u * gl, sh[1] + le, index, c)[1] if valid else 0
            self._put(self.oa, f["oa0"] + at, lane, c, code)

    def _relu_backward(self, name: str, c: int) -> None:
        f, total = self.f, 0
        for plane, beat, lane, valid, index in self.beats(f):
            at = plane * f["nb"] + beat
            dz = decode(self._byte(self.aa, f["sa0"] + at, lane, c))
            d = dz if name == "LIN_BWD" or self._bit(plane, beat, lane, c) else 0
            total += d if valid else 0
            if name == "RELU_BWD":
                self._put(self.oa, f["oa0"] + at, lane, c, self._encode(2, d, 0, index, c)[1] if valid else 0)
        self._sums(c, {4: total})

    def _update(self, name: str, c: int) -> None:
        f, sh = self.f, self.sh
        for offset, shift in ((0, sh[0]), (1, sh[1]), (2, sh[1])) if name == "PARAM_UPD" else ((1, sh[1]),):
            p, v = self.master(f["pb0"] + offset, c)
            grad = saturate(align(self.entry(f["pb0"] + 3 + offset, c) * f["inv"], shift), 32)
            v = saturate((self.momentum * v >> 8) + grad, 32)
            p = saturate(p - align(v * self.lm, sh[2]), 28)
            if not f["dry"]:
                self.set_entry(f["pb0"] + offset, c, (v & 0xFFFFFFFF) << 32 | p & 0xFFFFFFFF)

    def _weights(self, name: str, c: int) -> None:
        f, sh = self.f, self.sh
        for plane, beat, lane, valid, index in self.beats(f):
            at = plane * f["nb"] + beat
            dw = self._x(plane, beat, lane, c) if valid else 0
            self._put(self.xout, f["dwbase"] + at, lane, c, dw, 64)
            if name == "DW_EXPORT":
                continue
            w = decode(self._byte(self.aa, f["sa0"] + at, lane, c))
            v = decode(self._byte(self.ab, f["sb0"] + at, lane, c))
            code1 = code2 = 0
            if valid:
                total = (self.momentum * v << 8) + align(dw * f["inv"], sh[0])
                total += 0 if self.decay_off else align(w, sh[2])
                value, code1 = self._encode(1, wrap(total), sh[1], index, c)
                _, code2 = self._encode(2, wrap((w << 16) - align(self.lm * value, sh[3])), sh[4], index, c)
            self._put(self.ob, f["ob0"] + at, lane, c, code1)
            self._put(self.oa, f["oa0"] + at, lane, c, code2)

    def _pool(self, name: str) -> None:
        f, sh = self.f, self.sh
        kernel, stride, pad, rows, columns = (f[k] for k in ("pkern", "pstride", "ppad", "pyi", "pxi"))
        entry_row, above = (columns + 1) // 2, pad + f["poff"]

        def at(memory: dict[int, int], first: int, plane: int, y: int, x: int, c: int) -> int:
            return self._byte(memory, first + (plane * rows + y) * entry_row + x // 2, x % 2, c)

        for plane, beat, lane, valid, index in self.beats(f):
            o, t = divmod(beat, f["xe"])
            x = 2 * t + lane
            for c in range(self.config.group):
                best, k, total = None, 0, 0
                if f["pool"] == 1:
                    for ky in range(kernel):
                        for kx in range(kernel):
                            iy, ix = o * stride - above + ky, x * stride - pad + kx
                            if 0 <= iy < rows and 0 <= ix < columns:
                                value = decode(at(self.aa, f["sa0"], plane, iy, ix, c))
                                total += value
                                if best is None or value > best:
                                    best, k = value, ky * kernel + kx
                    if f["pmax"]:
                        total = best or 0
                else:
                    for iy in range(rows):
                        for ix in range(columns):
                            ky, kx = o + above - iy * stride, x + pad - ix * stride
                            if 0 <= ky < kernel and 0 <= kx < kernel and (
                                    not f["pmax"] or at(self.ab, f["sb0"], plane, iy, ix, c) == ky * kernel + kx):
                                total += decode(at(self.aa, f["sa0"], plane, iy, ix, c))
                if name.startswith("AVG"):
                    total *= f["inv"]
                out = plane * f["nb"] + beat
                code = self._encode(2, total, sh[1], index, c)[1] if valid else 0
                self._put(self.oa, f["oa0"] + out, lane, c, code)
                if name == "MAXPOOL_FWD":
                    self._put(self.ob, f["ob0"] + out, lane, c, k if valid else 0)
