"""Commands of the A-Core for tests: their words, lists of shifts, random fields of every microprogram."""

import random

from gradloom.contracts.config import Config
from gradloom.contracts.isa import COMMANDS, SHIFT_FIELDS, Opcode, PsumLayout, XSource
from gradloom.contracts.microprograms import TABLE

__all__ = ["NORMS", "ROWS", "TILE", "UPDATES", "WINDOWS", "any_run", "command", "plane_fields", "pool_fields", "reciprocal",
           "shared_fields", "shift_sum", "shift_word", "update_tiles"]

NORMS = ("FRN_NORM", "FRN_NORM_ADD", "FRN_NORM_ADD", "FRN_LAM")
"""Sums of several tiles become lambda."""
ROWS = ("FRN_SUM", "FRN_ADD", "FRN_ERR", "FRN_SUM_LIN", "FRN_ADD_LIN", "FRN_ADD", "FRN_ERR_LIN")
"""Backward of a plane in tiles of rows."""
UPDATES = ("WU", "WU_REST", "DW_EXPORT")
"""Sweeps over weight gradients."""
TILE = {"planes": 1, "pl0": 22}
"""Fields of the commands of ``NORMS``."""
WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 2, 0), (2, 3, 0), (1, 1, 0), (5, 3, 2), (1, 2, 0))
"""Size, stride and padding of pooling windows."""


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
    """Word of a shift list."""
    return sum((int(values.get(field.name, 0)) & ((1 << field.width) - 1)) << field.lsb for field in SHIFT_FIELDS)


def shift_sum(dst: int, const: int, *tids: int) -> list[dict[str, int]]:
    """Shift words of SH[dst] = const + sum of e[tid], a negative tid subtracts."""
    return [{"dst": dst, "first": int(i == 0), "const": const if i == 0 else 0, "neg": int(tid < 0), "tid": abs(tid)}
            for i, tid in enumerate(tids or (0,))]


def reciprocal(n: int) -> tuple[int, int]:
    """(inv, k) of docs/machine.md section 8."""
    k = (n - 1).bit_length()
    return ((1 << (16 + k)) // n + 1) // 2, k


def plane_fields(rng: random.Random, layout: PsumLayout | None = None, *, widest: int = 4) -> dict[str, int]:
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


def shared_fields(rng: random.Random, wpus: int, fields: dict[str, int]) -> dict[str, int]:
    """Shared rows at the end of the planes, behind a whole row group; none in half of the cases, or of too few beats."""
    if fields["layout"] != PsumLayout.ROWS or wpus == 1 or fields["xe"] < wpus or rng.random() < 0.5:
        return {}
    shared = rng.randint(1, min(2, fields["py"]))
    return {"shared": shared, "sbeats": rng.randint(1, (fields["xe"] - 1) // (wpus - 1)),
            "pw0": (shared - fields["planes"] * fields["py"]) % wpus}


def update_tiles(config: Config, rng: random.Random, nr: int, nk: int) -> tuple[int, int]:
    """Tiles of one update, and further ones beside each of them, with room for 5 beats before them."""
    most = (config.dw_depth - 5) // (nr * nk * config.block_beats)
    planes = rng.randint(1, min(3, most))
    return planes, rng.randint(0, min(3, most // planes - 1))


def pool_fields(rng: random.Random, kernel: int, stride: int, pad: int) -> tuple[dict[str, int], dict[str, int], int]:
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


def any_run(config: Config, rng: random.Random, slot: int) -> tuple[str, dict[str, int], list[dict[str, int]]]:
    """Some microprogram with its fields and shifts. ``slot``: image slot of the sums that FRN takes."""
    name = rng.choice(list(TABLE))
    if "POOL" in name:
        forward_fields, backward_fields, k = pool_fields(rng, *rng.choice(WINDOWS))
        fields = forward_fields if name.endswith("FWD") else backward_fields
        maximum = int(name.startswith("MAX"))
        return name, fields | {"pmax": maximum}, shift_sum(1, 0 if maximum else 15 + k)
    fields = plane_fields(rng) | {"pw0": rng.randrange(config.wpus), "t1": rng.randint(8, 11), "t2": rng.randint(12, 15),
                                  "ps0": slot, "pb0": rng.choice((0, 7)), "r2": rng.randint(0, 1), "idx0": rng.getrandbits(24),
                                  "s_ch": rng.getrandbits(8)}
    inv, k = reciprocal(fields["n"])
    shifts = shift_sum(0, rng.randint(-12, 4)) + shift_sum(1, rng.randint(8, 20)) + shift_sum(2, rng.randint(-4, 12))
    if name.startswith("FRN_BWD"):
        shifts = shift_sum(1, rng.randint(-12, -4)) + shift_sum(3, 18 + k)
    elif name in ROWS:
        fields |= {"planes": 1, "pb0": 0}
        shifts = shift_sum(1, rng.randint(-12, -4)) + shift_sum(3, 18 + k)
    elif name.startswith("FRN"):
        fields |= TILE if name in NORMS else {}
        fields |= {"r1": rng.randint(0, 1), "s_k": rng.getrandbits(16)}
        shifts = shift_sum(0, -12, -10) + shift_sum(1, 20, 9) + shift_sum(2, 8)
    elif name.endswith("BWD"):
        shifts = []
    elif name.endswith("UPD"):
        fields |= {"planes": 1, "nb": 1, "xe": 1}
        shifts = shift_sum(0, rng.randint(-20, -2) - k) + shift_sum(1, rng.randint(-12, -2) - k) + shift_sum(2, 0, -1)
    elif name in UPDATES:
        nr, nk = rng.randint(1, 3), rng.randint(1, 3)
        planes, side = update_tiles(config, rng, nr, nk)
        nb = nr * nk * (side + 1) * config.block_beats
        fields |= {"planes": planes, "nb": nb, "xe": nb, "xodd": 0, "nr": nr, "nk": nk, "side": side, "r1": 1, "f1": 16,
                   "xin": rng.randint(0, 1), "s_k": rng.getrandbits(20), "s_t": rng.getrandbits(12), "s_lane": rng.getrandbits(8)}
        shifts += shift_sum(3, rng.randint(-4, 8)) + shift_sum(4, 16)
        fields |= {"r2": 1, "f2": 16, "sm0": fields["sa0"] + 11, "om0": fields["oa0"] + 201} if name == "WU_REST" else {}
    elif name == "LOGITS":
        fields |= {"nb": 1, "xe": 1, "py": 1, "xodd": 1, "layout": PsumLayout.K1, "pj": 1, "ob0": 0, "om0": 1, "t1": 0, "t2": 0}
        shifts = shift_sum(0, rng.randint(-6, 6)) + shift_sum(1, rng.randint(-12, 4))
    if "BWD" in name or "UPD" in name or name in ROWS:
        fields["xsrc"] = XSource.NONE
    elif name in UPDATES:
        fields["xsrc"] = XSource.DW
    else:
        fields |= shared_fields(rng, config.wpus, fields)
    return name, fields | {"inv": inv}, shifts
