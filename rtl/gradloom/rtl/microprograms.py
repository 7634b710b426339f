"""The built-in microprograms: docs/machine.md section 8 as lists of microinstructions, and their addresses."""

from typing import Any

from gradloom.rtl.microcode import (
    Y2,
    Y3,
    Accumulate,
    Base,
    Compare,
    Destination,
    Factor,
    Kind,
    Loop,
    Multiplicand,
    Multiplier,
    Operand,
    OutB,
    Register,
    Shift,
    Term2,
    Term3,
    encode,
)

__all__ = ["PROGRAMS", "TABLE", "WORDS"]

Micro = dict[str, Any]


def _load(first: Register, count: int) -> Micro:
    return {"kind": Kind.LOAD, "loop": Loop.ONCE, "reg": first, "count": count}


def _store(first: Register, count: int) -> Micro:
    return {"kind": Kind.STORE, "loop": Loop.ONCE, "reg": first, "count": count}


_LOAD_LAMBDA: Micro = {"kind": Kind.LOAD, "loop": Loop.PLANES}
_STORE_LAMBDA: Micro = {"kind": Kind.STORE, "loop": Loop.PLANES}
_IN: Micro = {"loop": Loop.BEATS, "x": Operand.IN}
_ENCODE: Micro = {"base": Base.T, "c2": Shift.SH1, "wa": 1}


def _frn_forward(*, residual: bool, threshold: bool) -> list[Micro]:
    y: Micro = {"y2": Y2.BETA}
    if residual:
        y |= {"y3": Y3.A, "shy": Shift.SH2}
    if threshold:
        y |= {"cmp": Compare.TAU, "wm": 1}
    return [
        _load(Register.GAMMA, 3),
        _IN | {"acc": Accumulate.ABS},
        {"kind": Kind.DIVIDE, "loop": Loop.PLANES},
        _STORE_LAMBDA,
        _IN | {"factor": Factor.Q, "c1": Shift.RIGHT8, "c1le": 1, "wb": OutB.CODE1, "long": 1, "m2a": Multiplicand.V,
               "m2b": Multiplier.GAMMA, "base": Base.PRODUCT, "c2": Shift.SH1, "wa": 1} | y,
    ]


def _frn_backward(*, keep: int) -> list[Micro]:
    return [
        _load(Register.GAMMA, 1),
        _load(Register.SG, 3),
        _LOAD_LAMBDA,
        {"loop": Loop.BEATS, "keep": keep, "m2a": Multiplicand.D, "m2b": Multiplier.B, "acc": Accumulate.PRODUCT, "sums": 1},
        _store(Register.SG, 3),
        {"loop": Loop.PLANES, "x": Operand.S, "factor": Factor.INV, "sh1": Shift.SH3, "right1": 1,
         "dst": Destination.MEAN},
        {"loop": Loop.PLANES, "x": Operand.Q, "factor": Factor.GAMMA, "sh1": Shift.RIGHT16, "dst": Destination.GL},
        {"loop": Loop.BEATS, "keep": keep, "m2a": Multiplicand.U, "m2b": Multiplier.GL, "base": Base.PRODUCT,
         "c2": Shift.SH1, "c2le": 1, "wa": 1},
    ]


def _aligned_bias() -> list[Micro]:
    """R = align(master of beta, SH0)."""
    return [_load(Register.BETA, 1), {"loop": Loop.ONCE, "x": Operand.P, "sh1": Shift.SH0, "dst": Destination.R}]


def _update(register: Register, sh: Shift) -> list[Micro]:
    """Gradient, velocity and master of one parameter; its sum is three registers further on."""
    return [
        _load(register, 1),
        {"loop": Loop.ONCE, "x": Operand.SUM, "reg": register + 3, "factor": Factor.INV, "sh1": sh,
         "dst": Destination.GRAD},
        {"loop": Loop.ONCE, "x": Operand.V, "factor": Factor.MOMENTUM, "sh1": Shift.RIGHT8, "t2": Term2.R,
         "dst": Destination.V},
        {"loop": Loop.ONCE, "x": Operand.V, "factor": Factor.LM, "sh1": Shift.SH2, "minus1": 1, "t2": Term2.P,
         "dst": Destination.P},
        _store(register, 1),
    ]


_AVERAGE: Micro = {"loop": Loop.BEATS, "x": Operand.POOL, "factor": Factor.INV} | _ENCODE

PROGRAMS: dict[str, list[Micro]] = {
    "FRN_FWD": _frn_forward(residual=False, threshold=True),
    "FRN_FWD_RES": _frn_forward(residual=True, threshold=True),
    "FRN_FWD_LIN": _frn_forward(residual=False, threshold=False),
    "RELU_FWD": [*_aligned_bias(), _IN | _ENCODE | {"t2": Term2.R, "cmp": Compare.ZERO, "wm": 1}],
    "LIN_FWD": [*_aligned_bias(), _IN | _ENCODE | {"t2": Term2.R}],
    "LOGITS": [
        *_aligned_bias(),
        _IN | {"t2": Term2.R, "dst": Destination.S},
        {"loop": Loop.PLANES, "x": Operand.S, "sh1": Shift.SH1, "dst": Destination.LOGIT},
    ],
    "BP_OUT": [_IN | _ENCODE],
    "BP_OUT_RES": [_IN | _ENCODE | {"t3": Term3.D, "sh3": Shift.SH2}],
    "BP_OUT_ADD": [_IN | _ENCODE | {"t3": Term3.D, "sh3": Shift.SH2, "keep": 1}],
    "FRN_BWD": _frn_backward(keep=0),
    "FRN_BWD_LIN": _frn_backward(keep=1),
    "RELU_BWD": [
        _load(Register.SB, 1),
        {"loop": Loop.BEATS, "sums": 1, "t3": Term3.D, "base": Base.T, "wa": 1},
        _store(Register.SB, 1),
    ],
    "LIN_BWD": [
        _load(Register.SB, 1),
        {"loop": Loop.BEATS, "sums": 1, "keep": 1},
        _store(Register.SB, 1),
    ],
    "PARAM_UPD": [
        _load(Register.SG, 3),
        *_update(Register.GAMMA, Shift.SH0),
        *_update(Register.BETA, Shift.SH1),
        *_update(Register.TAU, Shift.SH1),
    ],
    "BIAS_UPD": [_load(Register.SB, 1), *_update(Register.BETA, Shift.SH1)],
    "WU": [_IN | {
        "wx": 1, "factor": Factor.INV, "sh1": Shift.SH0, "t2": Term2.MOMENTUM, "t3": Term3.DECAY, "sh3": Shift.SH2,
        "keep": 1, "c1": Shift.SH1, "wb": OutB.CODE1, "long": 1, "m2a": Multiplicand.V, "m2b": Multiplier.LM,
        "base": Base.ZERO, "y2": Y2.A, "y3": Y3.PRODUCT, "shy": Shift.SH3, "c2": Shift.SH4, "wa": 1}],
    "DW_EXPORT": [_IN | {"wx": 1}],
    "MAXPOOL_FWD": [{"loop": Loop.BEATS, "x": Operand.POOL, "wb": OutB.INDEX} | _ENCODE],
    "MAXPOOL_BWD": [{"loop": Loop.BEATS, "x": Operand.POOL} | _ENCODE],
    "AVGPOOL_FWD": [_AVERAGE],
    "AVGPOOL_BWD": [_AVERAGE],
}
"""Microinstructions by name, as the fields of :func:`gradloom.rtl.microcode.encode`."""


def _place() -> tuple[dict[str, int], list[int]]:
    table: dict[str, int] = {}
    words: list[int] = []
    address = 0
    for name, program in PROGRAMS.items():
        table[name] = address
        address += len(program)
        for i, micro in enumerate(program):
            words += encode(**micro, end=int(i == len(program) - 1))
    return table, words


TABLE, WORDS = _place()
"""``TABLE``: address (``uprog``) of each microprogram. ``WORDS``: initial contents of the program memory, from word 0 on."""
