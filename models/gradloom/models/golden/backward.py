"""Backward pass of the golden step: errors, parameter sums and weight gradients (docs/arithmetic.md, sections 8 to 12)."""

from typing import Any

import numpy as np

from gradloom.models.arithmetic import arith, conv, frn, pint, pool, shortcut, softmax
from gradloom.models.formats import Quantiser
from gradloom.models.golden.run import Run, join_images
from gradloom.models.layers import Conv, FullyConnected, Kind, Pool, Subsample
from gradloom.models.rounding import NEAREST_F

__all__ = ["DX_CALIBRATION", "backward"]

DX_CALIBRATION = -32
"""Converter shift (without le) of the calibrating dry run of FRN's dx, less F; every other dry run has shift 0.

dx is dz * lambda, and lambda is about 1 / mean |X|: at shift 0 all of dx would lie below the statistics' F + 1
fraction bits as soon as mean |X| is 2^20, and the tensor would look like zeros. -32 + F leaves 33 fraction bits
for either F: 24 bits more than F = 8 has at shift 0, which reach 2^44.
"""


def backward(run: Run, logits: np.ndarray, labels: np.ndarray) -> None:
    """From the loss gradient to every weight gradient (``dw``) and parameter sum (``sums``)."""
    net, last = run.net, run.net.logits.name
    error = _loss_error(run, logits, labels)
    run.tensors[last, "error"] = error.code.reshape(logits.shape)
    run.values[last, "dz"] = error.value.reshape(*logits.shape, 1, 1)
    for layer in reversed(net.layers):
        name = layer.name
        if not net.needs_error(name):
            continue
        if isinstance(layer, Subsample):
            _subsample(run, layer)
            continue
        if name != last:
            run.keep(name, "dz", _output_error(run, name))
        if isinstance(layer, Conv | FullyConnected):
            _accumulator_error(run, layer)
            if net.sends_ds(name):
                run.keep(name, "ds", _second_error(run, name))
            g = net.geometry(name)
            x, dx = run.values[layer.input, "z"], run.values[name, "dx"]
            exponent = run.e[net.dx_tid(name)] + run.e[net.z_tid(layer.input)]
            run.dw_exponents[name], shift = join_images(exponent)
            if shift is not None:
                dx = arith.align(dx, shift)
            dw = conv.weight_gradient(x, dx, g.kernel, g.stride, g.pad, width=None)
            run.check(name, "WG + WU", "weight gradient", dw)
            run.dw[name] = dw


def _loss_error(run: Run, logits: np.ndarray, labels: np.ndarray) -> pint.Encoded:
    """The loss gradient: at its fixed exponent and rounded to nearest, or scaled as all errors of the format are."""
    net = run.net
    gradient = (softmax.gradient if net.loss == "softmax" else softmax.squared)(logits, labels)
    tid, zero = net.tid(net.logits.name, Kind.DZ), softmax.WIDE_EXPONENTS[net.loss]
    wide = gradient.error[:, :, None, None]
    if run.format.fixed_loss:
        return Quantiser(net.coding(tid), NEAREST_F).encode(wide, run.e[tid] - zero)
    mode = run.mode(tid, wide.shape)
    return run.scaled(tid, zero, lambda shift: mode.encode(wide, shift))


def _backward_exponent(run: Run, name: str) -> Any:
    return run.e[run.net.tid(name, Kind.W)] + run.e[run.net.dx_tid(name)]


def _convolution(run: Run, name: str) -> np.ndarray:
    g, dx = run.net.geometry(name), run.values[name, "dx"]
    wide = conv.backward(dx, run.weights(name), (len(dx), *g.in_shape), g.stride, g.pad, width=None)
    run.check(name, "BP", "backward sum", wide)
    return wide


def _second_error(run: Run, name: str) -> pint.Encoded:
    """DS: what the second convolution on a tensor sends back, a PINT tensor of its own."""
    wide, tid = _convolution(run, name), run.net.tid(name, Kind.DS)
    mode = run.mode(tid, wide.shape)
    return run.scaled(tid, _backward_exponent(run, name), lambda shift: mode.encode(wide, shift))


def _subsample(run: Run, layer: Subsample) -> None:
    """dz of a shortcut, the masked codes of the adding layer, and where they go in the shortcut's input."""
    name, adder = layer.name, run.net.consumers(layer.name)[0][0].name
    bit, shape = run.tensors[adder, "bit"], run.net.geometry(name).in_shape
    code, value = (table[adder, "dz"] * bit for table in (run.tensors, run.values))
    run.copy(name, "dz", code, value)
    code, value = (shortcut.subsample_backward(error, shape, layer.stride) for error in (code, value))
    run.copy(name, "ds", code, value)


def _output_error(run: Run, name: str) -> pint.Encoded:
    """dz of a layer: what its main consumer sends back, plus the shortcut's error, encoded once."""
    net = run.net
    main, second, tid = net.main_consumer(name), net.shortcut(name), net.tid(name, Kind.DZ)
    exponent: Any = 0
    if second is not None:
        exponent = run.e[net.dz_tid(second.layer) if second.kind == "residual" else net.ds_tid(second.layer)]
    if isinstance(main, Conv | FullyConnected):
        wide, zero = _convolution(run, main.name), _backward_exponent(run, main.name)
    elif isinstance(main, Pool):
        wide, zero = _pool(run, main)
    else:
        wide, zero = np.zeros((), np.int64), exponent
    if second is not None:
        if second.kind == "residual":
            error = run.values[second.layer, "dz"] * run.tensors[second.layer, "bit"].astype(np.int64)
        else:
            error = run.values[second.layer, "ds"].astype(np.int64)
        with arith.located(name, "BP"):
            wide = arith.add("shortcut error", wide, arith.align(error, exponent - zero))
    mode = run.mode(tid, wide.shape)
    return run.scaled(tid, zero, lambda shift: mode.encode(wide, shift))


def _pool(run: Run, layer: Pool) -> tuple[np.ndarray, Any]:
    name, g = layer.name, run.net.geometry(layer.name)
    walk = layer.walk(g).adjoint
    wide, _ = pool.walked(run.values[name, "dz"], walk, g.in_shape, run.tensors.get((name, "index")))
    return wide, run.e[run.net.tid(name, Kind.DZ)] - walk.fraction


def _accumulator_error(run: Run, layer: Conv | FullyConnected) -> None:
    """dx of a layer with weights, and its parameter gradients summed over the images."""
    name, dz = layer.name, run.values[layer.name, "dz"]
    if layer.norm == "frn":
        _frn(run, layer, dz)
        return
    if layer.act == "relu":
        bit = run.tensors[name, "bit"]
        dz = dz * bit.astype(np.int64)
        codes = run.tensors[name, "dz"]
        run.tensors[name, "dx"] = np.where(bit, codes, 0).astype(codes.dtype)
    run.values[name, "dx"] = dz
    _sum_images(run, name, {"sb": dz.astype(np.int64).sum(axis=(2, 3))})


def _sum_images(run: Run, name: str, planes: dict[str, np.ndarray]) -> None:
    """Gradient sums (B, C) of the parameters, summed over the images."""
    run.sum_exponents[name], shift = join_images(run.e[run.net.tid(name, Kind.DZ)])
    for key, sums in planes.items():
        aligned = sums if shift is None else arith.align(sums, shift.reshape(-1, 1))
        run.sums[name, key] = np.asarray(aligned, np.int64).sum(axis=0)


def _frn(run: Run, layer: Conv | FullyConnected, dz: np.ndarray) -> None:
    net, name = run.net, layer.name
    bit = run.tensors[name, "bit"] if layer.act == "tlu" else np.ones(dz.shape, np.uint8)
    gamma = run.master(name, "gamma") >> 12
    q, le = run.tensors[name, "q"], run.tensors[name, "le"]
    tid = net.tid(name, Kind.DX)
    mode = run.mode(tid, dz.shape)
    results = []

    def operation(shift: Any) -> pint.Encoded:
        results.append(frn.backward(dz, run.values[name, "xhat"], bit, gamma, q, le, sh0=shift, mode=mode))
        return results[-1].dx

    zero = run.e[net.tid(name, Kind.DZ)] - run.accumulator_exponent(layer)
    dry = DX_CALIBRATION + net.rounding.f(Kind.DX)
    with arith.located(name, "norm BP"):
        run.keep(name, "dx", run.scaled(tid, zero, operation, dry_shift=dry))
    result = results[-1]
    _sum_images(run, name, {"sg": result.sg, "sb": result.sb, "st": result.st})
