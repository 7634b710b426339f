"""The built-in microprograms: docs/machine.md section 8 as lists of microinstructions, and their addresses."""

from collections.abc import Callable
from typing import Any

from gradloom.contracts.microcode import (
    Y2,
    Y3,
    Base,
    Compare,
    Each,
    Factor,
    Kind,
    Multiplicand,
    Multiplier,
    Operand,
    OutB,
    Register,
    ScalarDestination,
    ScalarFactor,
    ScalarOperand,
    ScalarTerm,
    Shift,
    Term2,
    Term3,
    encode,
)

__all__ = ["PROGRAMS", "TABLE", "WORDS"]

Micro = dict[str, Any]


def _load(first: Register, count: int) -> Micro:
    return {"kind": Kind.LOAD, "reg": first, "count": count}


_SCALAR: Micro = {"kind": Kind.SCALAR, "each": Each.CHANNEL}
_PLANES: Micro = {"kind": Kind.SCALAR, "each": Each.PLANE}
_IN: Micro = {"kind": Kind.SWEEP, "x": Operand.IN}
_ENCODE: Micro = {"base": Base.T, "c2": Shift.SH1, "wa": 1}
_EPSILON: Micro = _SCALAR | {"sx": ScalarOperand.N, "ssh": Shift.SH0, "sdst": ScalarDestination.EPSILON}


def _quotient(total: ScalarOperand) -> Micro:
    return _PLANES | {"sx": total, "st2": ScalarTerm.EPSILON, "sdst": ScalarDestination.DIVIDE, "chain": 1}


def _frn_forward(*, residual: bool, threshold: bool, whole: bool = True) -> list[Micro]:
    """``whole``: lambda of every plane from its sum of magnitudes, and kept in the parameter buffer; else from there."""
    y: Micro = {"y2": Y2.BETA}
    if residual:
        y |= {"y3": Y3.A, "shy": Shift.SH2}
    if threshold:
        y |= {"cmp": Compare.TAU, "wm": 1}
    lam = [_EPSILON, _quotient(ScalarOperand.NORM)]
    return [
        _load(Register.GAMMA, 3),
        *(lam if whole else [_PLANES | {"sx": ScalarOperand.Q, "sdst": ScalarDestination.SCALE}]),
        _IN | {"factor": Factor.Q, "c1": Shift.RIGHT8, "c1le": 1, "wb": OutB.CODE1, "long": 1, "m2a": Multiplicand.V,
               "m2b": Multiplier.GAMMA, "base": Base.PRODUCT, "c2": Shift.SH1, "wa": 1} | y,
    ]


def _frn_norm(*, first: bool) -> list[Micro]:
    """Sum of magnitudes of a tile of rows to the plane's entry, where lambda will be."""
    if first:
        return [_PLANES | {"sx": ScalarOperand.NORM, "sdst": ScalarDestination.ENTRY}]
    return [
        _PLANES | {"sx": ScalarOperand.ENTRY, "r": 1, "sdst": ScalarDestination.R},
        _PLANES | {"sx": ScalarOperand.NORM, "st2": ScalarTerm.R, "r": 1, "sdst": ScalarDestination.ENTRY, "chain": 1},
    ]


def _add_sums(first: Register, count: int) -> list[Micro]:
    """The sums of the first pass are added to their entries, which nothing else in a program reads or writes."""
    return [_SCALAR | {"sx": ScalarOperand.ENTRY, "reg": Register(first + i), "st2": ScalarTerm.TOTAL,
                       "sdst": ScalarDestination.ENTRY, "chain": 1} for i in range(count)]


_SCALE: Micro = _PLANES | {"sx": ScalarOperand.Q, "sf": ScalarFactor.GAMMA, "ssh": Shift.RIGHT16, "sdst": ScalarDestination.SCALE}
_MEAN: Micro = {"sf": ScalarFactor.INV, "ssh": Shift.SH3, "sright": 1, "st2": ScalarTerm.ONE, "sdst": ScalarDestination.MEAN,
                "chain": 1}


def _frn_error(keep: int) -> Micro:
    return {"kind": Kind.SWEEP, "keep": keep, "m2a": Multiplicand.U, "m2b": Multiplier.SCALE, "base": Base.PRODUCT,
            "c2": Shift.SH1, "c2le": 1, "wa": 1}


def _frn_backward(*, keep: int) -> list[Micro]:
    return [
        {"kind": Kind.SUMS, "keep": keep},
        _load(Register.GAMMA, 1),
        _SCALE,
        _PLANES | {"sx": ScalarOperand.PLANE} | _MEAN,
        *_add_sums(Register.SG, 3),
        _frn_error(keep),
    ]


def _frn_sums(*, keep: int, first: bool) -> list[Micro]:
    """First pass over a tile of rows; ``first``: the plane's sum of products starts anew."""
    start = _SCALAR | {"sx": ScalarOperand.PLANE, "reg": Register.PLANE, "sdst": ScalarDestination.ENTRY}
    return [
        {"kind": Kind.SUMS, "keep": keep},
        *([start] if first else _add_sums(Register.PLANE, 1)),
        *_add_sums(Register.SG, 3),
    ]


def _frn_rows(*, keep: int) -> list[Micro]:
    """Sweep of a tile of rows of a plane whose sum of products is complete."""
    mean = _SCALAR | {"sx": ScalarOperand.ENTRY, "reg": Register.PLANE} | _MEAN
    return [_load(Register.GAMMA, 1), _SCALE, mean, _frn_error(keep)]


def _aligned_bias() -> Micro:
    """R = align(master of beta, SH0)."""
    return _SCALAR | {"sx": ScalarOperand.MASTER, "reg": Register.BETA, "ssh": Shift.SH0, "sdst": ScalarDestination.R}


def _update(*parameters: Register) -> list[Micro]:
    """Gradient, then velocity, then master of some parameters, whose sums are three entries further on.

    Each has a register R of its own, so that the steps of one lie between those of another and hide their latency.
    """
    shifts = {Register.GAMMA: Shift.SH0, Register.BETA: Shift.SH1, Register.TAU: Shift.SH1}
    steps: list[Callable[[Register], Micro]] = [
        lambda register: {"sx": ScalarOperand.ENTRY, "reg": Register(register + 3), "sf": ScalarFactor.INV,
                          "ssh": shifts[register], "sdst": ScalarDestination.R32},
        lambda register: {"sx": ScalarOperand.VELOCITY, "reg": register, "sf": ScalarFactor.MOMENTUM, "ssh": Shift.RIGHT8,
                          "st2": ScalarTerm.R, "sdst": ScalarDestination.R32},
        lambda register: {"sx": ScalarOperand.R, "reg": register, "sf": ScalarFactor.LM, "ssh": Shift.SH2, "sminus": 1,
                          "st2": ScalarTerm.MASTER, "sdst": ScalarDestination.PARAMETER},
    ]
    return [_SCALAR | step(register) | {"r": 1 + register, "chain": 1} for step in steps for register in parameters]


_WEIGHTS: Micro = _IN | {
    "wx": 1, "factor": Factor.INV, "sh1": Shift.SH0, "t2": Term2.MOMENTUM, "t3": Term3.DECAY, "sh3": Shift.SH2,
    "keep": 1, "c1": Shift.SH1, "wb": OutB.CODE1, "long": 1, "m2a": Multiplicand.V, "m2b": Multiplier.LM,
    "base": Base.ZERO, "y2": Y2.A, "y3": Y3.PRODUCT, "shy": Shift.SH3, "c2": Shift.SH4, "wa": 1}
_AVERAGE: Micro = {"kind": Kind.SWEEP, "x": Operand.POOL, "factor": Factor.INV} | _ENCODE

PROGRAMS: dict[str, list[Micro]] = {
    "FRN_FWD": _frn_forward(residual=False, threshold=True),
    "FRN_FWD_RES": _frn_forward(residual=True, threshold=True),
    "FRN_FWD_LIN": _frn_forward(residual=False, threshold=False),
    "FRN_NORM": _frn_norm(first=True),
    "FRN_NORM_ADD": _frn_norm(first=False),
    "FRN_LAM": [_EPSILON, _quotient(ScalarOperand.ENTRY)],
    "FRN_ROWS": _frn_forward(residual=False, threshold=True, whole=False),
    "FRN_ROWS_RES": _frn_forward(residual=True, threshold=True, whole=False),
    "FRN_ROWS_LIN": _frn_forward(residual=False, threshold=False, whole=False),
    "RELU_FWD": [_aligned_bias(), _IN | _ENCODE | {"t2": Term2.R, "cmp": Compare.ZERO, "wm": 1}],
    "LIN_FWD": [_aligned_bias(), _IN | _ENCODE | {"t2": Term2.R}],
    "LOGITS": [_aligned_bias(), _IN | {"t2": Term2.R, "base": Base.T, "c2": Shift.SH1, "c2left": 1, "wl": 1}],
    "BP_OUT": [_IN | _ENCODE],
    "BP_OUT_RES": [_IN | _ENCODE | {"t3": Term3.D, "sh3": Shift.SH2}],
    "BP_OUT_ADD": [_IN | _ENCODE | {"t3": Term3.D, "sh3": Shift.SH2, "keep": 1}],
    "FRN_BWD": _frn_backward(keep=0),
    "FRN_BWD_LIN": _frn_backward(keep=1),
    "FRN_SUM": _frn_sums(keep=0, first=True),
    "FRN_SUM_LIN": _frn_sums(keep=1, first=True),
    "FRN_ADD": _frn_sums(keep=0, first=False),
    "FRN_ADD_LIN": _frn_sums(keep=1, first=False),
    "FRN_ERR": _frn_rows(keep=0),
    "FRN_ERR_LIN": _frn_rows(keep=1),
    "RELU_BWD": [
        {"kind": Kind.SUMS},
        *_add_sums(Register.SB, 1),
        {"kind": Kind.SWEEP, "t3": Term3.D, "base": Base.T, "wa": 1},
    ],
    "LIN_BWD": [{"kind": Kind.SUMS, "keep": 1}, *_add_sums(Register.SB, 1)],
    "PARAM_UPD": _update(Register.GAMMA, Register.BETA, Register.TAU),
    "BIAS_UPD": _update(Register.BETA),
    "WU": [_WEIGHTS],
    "WU_REST": [_WEIGHTS | {"rest": 1}],
    "DW_EXPORT": [_IN | {"wx": 1}],
    "MAXPOOL_FWD": [{"kind": Kind.SWEEP, "x": Operand.POOL, "wb": OutB.INDEX} | _ENCODE],
    "MAXPOOL_BWD": [{"kind": Kind.SWEEP, "x": Operand.POOL} | _ENCODE],
    "AVGPOOL_FWD": [_AVERAGE],
    "AVGPOOL_BWD": [_AVERAGE],
}
"""Microinstructions by name, as the fields of :func:`gradloom.contracts.microcode.encode`."""


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
