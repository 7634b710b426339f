"""FRN in the A-Core's plain reference: norms, forward and backward, by planes or by tiles of rows, one channel at a time.

Written from docs/machine.md sections 5 and 8 alone.
"""

from gradloom.verif.acore.acore_memories import AuxMemories
from gradloom.verif.plain_arith import align, decode, saturate

__all__ = ["backward", "forward", "norm", "rows"]


def _norms(ref: AuxMemories, c: int) -> list[int]:
    """Sums of magnitudes of the planes, as the C-Core would have gathered them."""
    f = ref.f
    sums = [0] * f["planes"]
    for plane, beat, lane, valid, _ in ref.beats(f):
        if valid:
            sums[plane] += abs(ref.x(plane, beat, lane, c))
    for plane, total in enumerate(sums):
        key = f["half"], f["pk"], f["ps0"] + plane & 0xFF
        ref.norms.setdefault(key, [0] * ref.config.group)[c] = total
    return sums


def _lam(ref: AuxMemories, plane: int, c: int, total: int) -> tuple[int, int]:
    """lambda of a plane, kept unless dry."""
    f = ref.f
    total = min(total + max(1, align(f["n"], ref.sh[0])), (1 << 63) - 1)
    le = 0
    while (f["n"] << le) // total < 1 << 15:
        le += 1
    q = (f["n"] << le) // total
    if not f["dry"]:
        ref.set_entry(f["pl0"] + plane, c, q | le << 16)
    return q, le


def norm(ref: AuxMemories, name: str, c: int) -> None:
    """Sums of magnitudes to the entries of their planes, or (FRN_LAM) lambda in their stead."""
    f = ref.f
    if name == "FRN_LAM":
        for plane in range(f["planes"]):
            _lam(ref, plane, c, ref.entry(f["pl0"] + plane, c))
        return
    for plane, total in enumerate(_norms(ref, c)):
        if not f["dry"]:
            before = ref.entry(f["pl0"] + plane, c) if name == "FRN_NORM_ADD" else 0
            ref.set_entry(f["pl0"] + plane, c, before + total)


def forward(ref: AuxMemories, name: str, c: int) -> None:
    """Whole planes (FRN_FWD) or rows whose lambda is there already."""
    f, sh = ref.f, ref.sh
    gamma, beta, tau = (ref.master(f["pb0"] + i, c)[0] >> 12 for i in range(3))
    if name.startswith("FRN_FWD"):
        scale = [_lam(ref, plane, c, total) for plane, total in enumerate(_norms(ref, c))]
    else:
        words = [ref.entry(f["pl0"] + plane, c, signed=False) for plane in range(f["planes"])]
        scale = [(word & 0xFFFF, word >> 16 & 0xFF) for word in words]
    for plane, beat, lane, valid, index in ref.beats(f):
        q, le = scale[plane]
        at = plane * f["nb"] + beat
        bit = code1 = code2 = 0
        if valid:
            v, code1 = ref.convert(1, ref.x(plane, beat, lane, c) * q, le - 8, index, c)
            y = gamma * v + (beta << 8)
            if name.endswith("RES"):
                y += align(decode(ref.byte(ref.aa, f["sa0"] + at, lane, c)), sh[2])
            bit = int(name.endswith("LIN") or y >= tau << 8)
            _, code2 = ref.convert(2, y if bit else tau << 8, sh[1], index, c)
        ref.put(ref.ob, f["ob0"] + at, lane, c, code1)
        ref.put(ref.oa, f["oa0"] + at, lane, c, code2)
        if not name.endswith("LIN"):
            ref.put_bit(plane, beat, lane, c, bit)


def backward(ref: AuxMemories, name: str, c: int) -> None:
    """Sums of whole planes, then their errors."""
    s1, s2, s3, values = _masked(ref, name.endswith("LIN"), c)
    ref.add_sums(c, {3: sum(s1), 4: s2, 5: s3})
    _errors(ref, c, s1, values)


def rows(ref: AuxMemories, name: str, c: int) -> None:
    """Backward, one plane in tiles of rows: its sum of products in entry 6, then its errors."""
    s1, s2, s3, values = _masked(ref, name.endswith("LIN"), c)
    at = ref.f["pb0"] + 6
    if name.startswith("FRN_ERR"):
        _errors(ref, c, [ref.entry(at, c)] * ref.f["planes"], values)
        return
    if name.startswith("FRN_SUM") and not ref.f["dry"]:
        ref.set_entry(at, c, s1[0])
    ref.add_sums(c, ({6: sum(s1)} if name.startswith("FRN_ADD") else {}) | {3: sum(s1), 4: s2, 5: s3})


def _masked(ref: AuxMemories, keep: bool, c: int) -> tuple[list[int], int, int, list[tuple]]:
    """Sums of d xhat of every plane, of d and of dz - d, and every position with its d and xhat."""
    f = ref.f
    s1, s2, s3 = [0] * f["planes"], 0, 0
    values = []
    for plane, beat, lane, valid, index in ref.beats(f):
        at = plane * f["nb"] + beat
        dz = decode(ref.byte(ref.aa, f["sa0"] + at, lane, c))
        xhat = decode(ref.byte(ref.ab, f["sb0"] + at, lane, c))
        d = dz if keep or ref.bit(plane, beat, lane, c) else 0
        values.append((plane, at, lane, valid, index, d, xhat))
        if valid:
            s1[plane] += d * xhat
            s2 += d
            s3 += dz - d
    return s1, s2, s3, values


def _errors(ref: AuxMemories, c: int, s1: list[int], values: list[tuple]) -> None:
    f, sh = ref.f, ref.sh
    gamma = ref.master(f["pb0"], c)[0] >> 12
    for plane, at, lane, valid, index, d, xhat in values:
        lam = ref.entry(f["pl0"] + plane, c, signed=False)
        q, le = lam & 0xFFFF, lam >> 16 & 0xFF
        mean = (s1[plane] * f["inv"] >> sh[3]) + 1 >> 1
        gl = gamma * q >> 16
        u = saturate((d << 4) - ((xhat > 0) - (xhat < 0)) * mean, 18)
        code = ref.convert(2, u * gl, sh[1] + le, index, c)[1] if valid else 0
        ref.put(ref.oa, f["oa0"] + at, lane, c, code)
