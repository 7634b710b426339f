"""Reference of the A-Core in plain Python integers: executes a microprogram by name, one channel after the other.

Written from docs/machine.md sections 2, 3, 5 and 8 alone; it shares no code with the golden model.
"""

from collections import defaultdict
from collections.abc import Callable

from gradloom.verif.acore import acore_frn
from gradloom.verif.acore.acore_memories import AuxMemories
from gradloom.verif.plain_arith import align, decode, saturate, with_rest, wrap

__all__ = ["AuxReference"]


class AuxReference(AuxMemories):
    """The memories around the A-Core and the effect of RUN commands on them."""

    def run(self, name: str, fields: dict[str, int], shifts: list[dict[str, int]]) -> None:
        """Execute microprogram ``name``."""
        f = defaultdict(int, fields)
        sh = [0] * 8
        for s in shifts:
            e = self.exponents.get(s["tid"], 0)
            sh[s["dst"]] = (0 if s["first"] else sh[s["dst"]]) + s["const"] + (-e if s["neg"] else e)
        self.outputs = defaultdict(int)
        self.f, self.sh = f, sh
        if f["pool"]:
            _pool(self, name)
        else:
            for channel in range(self.config.group):
                PROGRAMS[name](self, name, channel)
        for tid, which in ((f["t1"], 1), (f["t2"], 2)):
            if tid:
                self.stats[tid] |= self.outputs[which]


def _plain(ref: AuxMemories, name: str, c: int) -> None:
    f, sh = ref.f, ref.sh
    forward = name in ("RELU_FWD", "LIN_FWD")
    bias = align(ref.master(f["pb0"] + 1, c)[0], sh[0]) if forward else 0
    for plane, beat, lane, valid, index in ref.beats(f):
        at = plane * f["nb"] + beat
        bit = code = 0
        if valid:
            y = ref.x(plane, beat, lane, c) + bias
            if name in ("BP_OUT_RES", "BP_OUT_ADD"):
                kept = name == "BP_OUT_ADD" or ref.bit(plane, beat, lane, c)
                y += align(decode(ref.byte(ref.aa, f["sa0"] + at, lane, c)) if kept else 0, sh[2])
            bit = int(y > 0)
            if name == "RELU_FWD" and not bit:
                y = 0
            _, code = ref.convert(2, y, sh[1], index, c)
        ref.put(ref.oa, f["oa0"] + at, lane, c, code)
        if name == "RELU_FWD":
            ref.put_bit(plane, beat, lane, c, bit)


def _logits(ref: AuxMemories, name: str, c: int) -> None:
    f, sh = ref.f, ref.sh
    bias = align(ref.master(f["pb0"] + 1, c)[0], sh[0])
    for plane in range(f["planes"]):
        value = saturate(align(ref.x(plane, 0, 0, c) + bias, sh[1]), 24)
        ref.put(ref.logit, f["ob0"] + plane * f["om0"], 0, c, value, 32)


def _relu_backward(ref: AuxMemories, name: str, c: int) -> None:
    f, total = ref.f, 0
    for plane, beat, lane, valid, index in ref.beats(f):
        at = plane * f["nb"] + beat
        dz = decode(ref.byte(ref.aa, f["sa0"] + at, lane, c))
        d = dz if name == "LIN_BWD" or ref.bit(plane, beat, lane, c) else 0
        total += d if valid else 0
        if name == "RELU_BWD":
            ref.put(ref.oa, f["oa0"] + at, lane, c, ref.convert(2, d, 0, index, c)[1] if valid else 0)
    ref.add_sums(c, {4: total})


def _update(ref: AuxMemories, name: str, c: int) -> None:
    f, sh = ref.f, ref.sh
    for offset, shift in ((0, sh[0]), (1, sh[1]), (2, sh[1])) if name == "PARAM_UPD" else ((1, sh[1]),):
        p, v = ref.master(f["pb0"] + offset, c)
        grad = saturate(align(ref.entry(f["pb0"] + 3 + offset, c) * f["inv"], shift), 32)
        v = saturate((ref.momentum * v >> 8) + grad, 32)
        p = saturate(p - align(v * ref.lm, sh[2]), 28)
        if not f["dry"]:
            ref.set_entry(f["pb0"] + offset, c, (v & 0xFFFFFFFF) << 32 | p & 0xFFFFFFFF)


def _weights(ref: AuxMemories, name: str, c: int) -> None:
    f, sh = ref.f, ref.sh
    for plane, beat, lane, valid, index in ref.beats(f):
        at = plane * f["nb"] + beat
        dw = ref.x(plane, beat, lane, c) if valid else 0
        ref.put(ref.xout, f["dwbase"] + at, lane, c, dw, 64)
        if name == "DW_EXPORT":
            continue
        w = decode(ref.byte(ref.aa, f["sa0"] + at, lane, c))
        v = decode(ref.byte(ref.ab, f["sb0"] + at, lane, c))
        code1 = code2 = rest = 0
        if valid:
            total = (ref.momentum * v << 8) + align(dw * f["inv"], sh[0])
            total += 0 if ref.decay_off else align(w, sh[2])
            value, code1 = ref.convert(1, wrap(total), sh[1], index, c)
            step = align(ref.lm * value, sh[3])
            if name == "WU_REST":
                exact = with_rest(w, ref.byte(ref.aa, f["sm0"] + at, lane, c))
                code2, rest = ref.convert_rest(wrap((exact << 8) - step), sh[4], index, c)
            else:
                _, code2 = ref.convert(2, wrap((w << 16) - step), sh[4], index, c)
        ref.put(ref.ob, f["ob0"] + at, lane, c, code1)
        ref.put(ref.oa, f["oa0"] + at, lane, c, code2)
        if name == "WU_REST":
            ref.put(ref.oa, f["om0"] + at, lane, c, rest)


def _pool(ref: AuxMemories, name: str) -> None:
    f, sh = ref.f, ref.sh
    kernel, stride, pad, rows, columns = (f[k] for k in ("pkern", "pstride", "ppad", "pyi", "pxi"))
    entry_row, above = (columns + 1) // 2, pad + f["poff"]

    def at(memory: dict[int, int], first: int, plane: int, y: int, x: int, c: int) -> int:
        return ref.byte(memory, first + (plane * rows + y) * entry_row + x // 2, x % 2, c)

    for plane, beat, lane, valid, index in ref.beats(f):
        o, t = divmod(beat, f["xe"])
        x = 2 * t + lane
        for c in range(ref.config.group):
            best, k, total = None, 0, 0
            if f["pool"] == 1:
                for ky in range(kernel):
                    for kx in range(kernel):
                        iy, ix = o * stride - above + ky, x * stride - pad + kx
                        if 0 <= iy < rows and 0 <= ix < columns:
                            value = decode(at(ref.aa, f["sa0"], plane, iy, ix, c))
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
                                not f["pmax"] or at(ref.ab, f["sb0"], plane, iy, ix, c) == ky * kernel + kx):
                            total += decode(at(ref.aa, f["sa0"], plane, iy, ix, c))
            if name.startswith("AVG"):
                total *= f["inv"]
            out = plane * f["nb"] + beat
            code = ref.convert(2, total, sh[1], index, c)[1] if valid else 0
            ref.put(ref.oa, f["oa0"] + out, lane, c, code)
            if name == "MAXPOOL_FWD":
                ref.put(ref.ob, f["ob0"] + out, lane, c, k if valid else 0)


PROGRAMS: dict[str, Callable[[AuxMemories, str, int], None]] = {
    **dict.fromkeys(("FRN_FWD", "FRN_FWD_RES", "FRN_FWD_LIN", "FRN_ROWS", "FRN_ROWS_RES", "FRN_ROWS_LIN"), acore_frn.forward),
    **dict.fromkeys(("FRN_NORM", "FRN_NORM_ADD", "FRN_LAM"), acore_frn.norm),
    **dict.fromkeys(("FRN_BWD", "FRN_BWD_LIN"), acore_frn.backward),
    **dict.fromkeys(("FRN_SUM", "FRN_SUM_LIN", "FRN_ADD", "FRN_ADD_LIN", "FRN_ERR", "FRN_ERR_LIN"), acore_frn.rows),
    **dict.fromkeys(("RELU_FWD", "LIN_FWD", "BP_OUT", "BP_OUT_RES", "BP_OUT_ADD"), _plain),
    **dict.fromkeys(("RELU_BWD", "LIN_BWD"), _relu_backward),
    **dict.fromkeys(("PARAM_UPD", "BIAS_UPD"), _update),
    **dict.fromkeys(("WU", "WU_REST", "DW_EXPORT"), _weights),
    "LOGITS": _logits,
}
"""By name of the microprogram, what it does in one channel; pools are not among them."""
