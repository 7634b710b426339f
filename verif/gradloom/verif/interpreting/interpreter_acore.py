"""RUN and SOFTMAX on numpy memories: docs/machine.md sections 5 and 8 with the golden model's operations.

What each microprogram's name means, with activations, logits and pools; FRN and the updates have files of their own.
"""

from typing import Any

import numpy as np

from gradloom.contracts.microprograms import TABLE
from gradloom.host.program.assembler import Instruction
from gradloom.models.arithmetic import activation, arith
from gradloom.models.arithmetic import softmax as loss
from gradloom.verif.interpreting import interpreter_frn as frn
from gradloom.verif.interpreting import interpreter_update as update
from gradloom.verif.interpreting.interpreter_run import Run

__all__ = ["run", "softmax"]

_NAMES = {address: name for name, address in TABLE.items()}
_NEVER = -(1 << 62)


def _biased(run: Run) -> np.ndarray:
    return run.x() + arith.align(run.master(1), run.sh[0]).reshape(1, -1, 1, 1)


def _relu_forward(run: Run) -> None:
    y = _biased(run)
    run.put_bits((y > 0).astype(np.uint8))
    run.encode_out(np.maximum(y, 0))


def _logits(run: Run) -> None:
    f = run.f
    value = arith.saturate(arith.align(_biased(run), run.sh[1]), 24)[:, :, 0, 0]
    for plane in range(f["planes"]):
        run.chip.logit[f["ob0"] + plane * f["om0"]] = value[plane]


def _bp_out(run: Run, *, bits: bool) -> None:
    error = run.decoded(run.chip.aa, run.f["sa0"])
    if bits:
        error = error * run.bits()
    run.encode_out(run.x() + arith.align(error, run.sh[2]))


def _relu_backward(run: Run) -> None:
    result = activation.relu_backward(run.decoded(run.chip.aa, run.f["sa0"]), run.bits())
    if run.sh[1] != 0 or run.f["t2"]:
        raise ValueError("RELU_BWD: SH1 and t2 must be 0")
    run.put(run.chip.oa, run.f["oa0"], result.dx.code)
    run.add_sum(4, result.sb.sum(axis=0))


def _pool(run: Run, *, maximum: bool) -> None:
    f = run.f
    stored = run.decoded(run.chip.aa, f["sa0"], rows=f["pyi"], columns=f["pxi"])
    if f["pool"] == 1:
        windows = _windows(run, stored, fill=_NEVER if maximum else 0)
        if maximum:
            wide, index = windows.max(axis=-1), windows.argmax(axis=-1)
            run.put(run.chip.ob, f["ob0"], index.astype(np.uint8))
        else:
            wide = windows.sum(axis=-1) * f["inv"]
    else:
        index = run.stream(run.chip.ab, f["sb0"], f["pyi"], f["pxi"]) if maximum else None
        wide = _scatter(run, stored, index) * (1 if maximum else f["inv"])
    run.encode_out(wide)


def _windows(run: Run, stored: np.ndarray, *, fill: int) -> np.ndarray:
    """Values (planes, G, py, columns, ky kx) of the windows of every output position; rows that are not stored are ``fill``."""
    f = run.f
    kernel, stride, above, left = f["pkern"], f["pstride"], f["ppad"] + f["poff"], f["ppad"]
    planes, channels, rows, columns = stored.shape
    size = (stride * f["py"] + kernel + above + rows, stride * run.x_columns + kernel + left + columns)
    padded = np.full((planes, channels, *size), fill, np.int64)
    padded[:, :, above : above + rows, left : left + columns] = stored
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))
    return windows[:, :, ::stride, ::stride][:, :, : f["py"], : run.x_columns].reshape(*run.shape, -1)


def _scatter(run: Run, stored: np.ndarray, index: np.ndarray | None) -> np.ndarray:
    """Sums (planes, G, py, columns) of the stored errors over the windows that hold a position (and whose index names it)."""
    f = run.f
    kernel, stride, above, left = f["pkern"], f["pstride"], f["ppad"] + f["poff"], f["ppad"]
    planes, channels, rows, columns = stored.shape
    size = (stride * rows + kernel + above + f["py"], stride * columns + kernel + left + run.x_columns)
    total = np.zeros((planes, channels, *size), np.int64)
    for tap in range(kernel * kernel):
        ky, kx = divmod(tap, kernel)
        total[:, :, ky : ky + stride * rows : stride, kx : kx + stride * columns : stride] += (
            stored if index is None else np.where(index == tap, stored, 0)
        )
    return total[:, :, above : above + f["py"], left : left + run.x_columns]


def run(machine: Any, instruction: Instruction) -> None:
    """One RUN command."""
    command = Run(machine, instruction)
    name = _NAMES[instruction.fields["uprog"]]
    actions = {
        "FRN_FWD": lambda: frn.forward(command, residual=False, threshold=True, whole=True),
        "FRN_FWD_RES": lambda: frn.forward(command, residual=True, threshold=True, whole=True),
        "FRN_FWD_LIN": lambda: frn.forward(command, residual=False, threshold=False, whole=True),
        "FRN_NORM": lambda: frn.add_norm(command, first=True),
        "FRN_NORM_ADD": lambda: frn.add_norm(command, first=False),
        "FRN_LAM": lambda: frn.put_quotient(command, command.chip.pbuf[command.f["pl0"]].view("<i8")[None]),
        "FRN_ROWS": lambda: frn.forward(command, residual=False, threshold=True, whole=False),
        "FRN_ROWS_RES": lambda: frn.forward(command, residual=True, threshold=True, whole=False),
        "FRN_ROWS_LIN": lambda: frn.forward(command, residual=False, threshold=False, whole=False),
        "RELU_FWD": lambda: _relu_forward(command),
        "LIN_FWD": lambda: command.encode_out(_biased(command)),
        "LOGITS": lambda: _logits(command),
        "BP_OUT": lambda: command.encode_out(command.x()),
        "BP_OUT_RES": lambda: _bp_out(command, bits=True),
        "BP_OUT_ADD": lambda: _bp_out(command, bits=False),
        "FRN_BWD": lambda: frn.backward(command, threshold=True, sums="plane", sweep=True),
        "FRN_BWD_LIN": lambda: frn.backward(command, threshold=False, sums="plane", sweep=True),
        "FRN_SUM": lambda: frn.backward(command, threshold=True, sums="first", sweep=False),
        "FRN_SUM_LIN": lambda: frn.backward(command, threshold=False, sums="first", sweep=False),
        "FRN_ADD": lambda: frn.backward(command, threshold=True, sums="add", sweep=False),
        "FRN_ADD_LIN": lambda: frn.backward(command, threshold=False, sums="add", sweep=False),
        "FRN_ERR": lambda: frn.backward(command, threshold=True, sums="", sweep=True),
        "FRN_ERR_LIN": lambda: frn.backward(command, threshold=False, sums="", sweep=True),
        "RELU_BWD": lambda: _relu_backward(command),
        "LIN_BWD": lambda: command.add_sum(
            4, command.decoded(command.chip.aa, command.f["sa0"]).sum(axis=(0, 2, 3))
        ),
        "PARAM_UPD": lambda: update.parameters(command, (0, 1, 2)),
        "BIAS_UPD": lambda: update.parameters(command, (1,)),
        "WU": lambda: update.weight_gradient(command, export=False),
        "WU_REST": lambda: update.weight_gradient(command, export=False, rests=True),
        "DW_EXPORT": lambda: update.weight_gradient(command, export=True),
        "MAXPOOL_FWD": lambda: _pool(command, maximum=True),
        "MAXPOOL_BWD": lambda: _pool(command, maximum=True),
        "AVGPOOL_FWD": lambda: _pool(command, maximum=False),
        "AVGPOOL_BWD": lambda: _pool(command, maximum=False),
    }
    actions[name]()


def softmax(machine: Any, f: dict[str, int]) -> None:
    """One SOFTMAX command."""
    g, chip = machine.config.group, machine.chip
    groups = -(-f["classes"] // g)
    logits = chip.logit[f["logit0"] : f["logit0"] + f["images"] * groups].reshape(f["images"], -1)[
        :, : f["classes"]
    ]
    labels = chip.label[: f["images"]]
    encoded = (loss.squared if f["squared"] else loss.gradient)(logits, labels)[1]
    out = np.zeros((f["images"], groups, 2, g), np.uint8)
    padded = np.zeros((f["images"], groups * g), np.uint8)
    padded[:, : f["classes"]] = encoded.code
    out[:, :, 0] = padded.reshape(f["images"], groups, g)
    chip.oa[f["oa0"] : f["oa0"] + f["images"] * groups] = out.reshape(-1, 2, g)
