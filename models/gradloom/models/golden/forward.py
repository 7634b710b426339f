"""Forward pass of the golden step, layer by layer (docs/arithmetic.md, sections 8 to 11)."""

from typing import Any

import numpy as np

from gradloom.models.arithmetic import activation, arith, conv, frn, pint, pool, shortcut
from gradloom.models.golden.run import Run
from gradloom.models.layers import INPUT, Conv, FullyConnected, Kind, Pool, Subsample

__all__ = ["Q20", "forward"]

Q20 = 20
"""Fraction bits of y: 8 of the normalised activations and 12 of gamma."""


def forward(run: Run, x_codes: np.ndarray) -> np.ndarray:
    """Codes (B, C, Y, X) to logits int32 (B, classes)."""
    _input(run, x_codes)
    for layer in run.net.layers:
        with arith.located(layer.name, "FP"):
            if isinstance(layer, Conv | FullyConnected):
                _convolution(run, layer)
            elif isinstance(layer, Subsample):
                _subsample(run, layer)
            elif isinstance(layer, Pool):
                _pool(run, layer)
    del run.tensors[INPUT, "z"]
    return run.tensors[run.net.logits.name, "logits"]


def _input(run: Run, x_codes: np.ndarray) -> None:
    """The images: PINT(8, 3) codes as they come, or encoded anew in a format that has other operands."""
    values = pint.decode(x_codes)
    if not run.format.recodes_input:
        run.copy(INPUT, "z", x_codes, values)
        return
    tid, given = Kind.Z, run.state.exponents[Kind.Z]
    mode = run.mode(tid, values.shape)
    run.keep(INPUT, "z", run.scaled(tid, given, lambda shift: mode.encode(values, shift)))


def _convolution(run: Run, layer: Conv | FullyConnected) -> None:
    net, name = run.net, layer.name
    g, ex, tid = net.geometry(name), run.accumulator_exponent(layer), net.tid(name, Kind.Z)
    x = conv.forward(run.values[layer.input, "z"], run.weights(name), g.stride, g.pad, width=None)
    run.check(name, "FP", "forward sum", x)
    if layer.norm == "frn":
        _frn(run, layer, x, ex)
        return
    biased = activation.add_bias(x, run.master(name, "beta"), ex)
    if name == net.logits.name:
        run.tensors[name, "logits"] = activation.logits(biased, ex)
        return
    if layer.act == "relu":
        run.tensors[name, "bit"] = (biased > 0).astype(np.uint8)
        biased = np.maximum(biased, 0)
    mode = run.mode(tid, biased.shape)
    run.keep(name, "z", run.scaled(tid, ex, lambda shift: mode.encode(biased, shift)))


def _frn(run: Run, layer: Conv | FullyConnected, x: np.ndarray, ex: Any) -> None:
    name, tid = layer.name, run.net.tid(layer.name, Kind.Z)
    gamma, beta, tau = (run.master(name, key) >> 12 for key in ("gamma", "beta", "tau"))
    residual = None
    if layer.residual is not None:
        added = run.values[layer.residual, "z"].astype(np.int64)
        residual = arith.align(added, Q20 + run.e[run.net.z_tid(layer.residual)])
    mode_xhat, mode_z = run.xhat_mode(layer, x.shape), run.mode(tid, x.shape)
    results = []

    def operation(shift: Any) -> pint.Encoded:
        results.append(frn.forward(
            x,
            gamma,
            beta,
            tau,
            -12 - ex,
            sh_z=shift,
            residual=residual,
            threshold=layer.act == "tlu",
            mode_xhat=mode_xhat,
            mode_z=mode_z,
        ))
        return results[-1].z

    z = run.scaled(tid, -Q20, operation)
    result = results[-1]
    run.keep(name, "z", z)
    run.copy(name, "xhat", result.xhat_code, result.xhat_value)
    if layer.act == "tlu":
        run.tensors[name, "bit"] = np.asarray(result.bit).astype(np.uint8)
    run.tensors[name, "q"] = np.asarray(result.q, np.int64)
    run.tensors[name, "le"] = np.asarray(result.le, np.int64)


def _pool(run: Run, layer: Pool) -> None:
    net, name = run.net, layer.name
    walk, tid = layer.walk(net.geometry(name)), net.tid(name, Kind.Z)
    wide, index = pool.walked(run.values[layer.input, "z"], walk, net.shape(name))
    if index is not None:
        run.tensors[name, "index"] = index
    zero, mode = run.e[net.z_tid(layer.input)] - walk.fraction, run.mode(tid, wide.shape)
    run.keep(name, "z", run.scaled(tid, zero, lambda shift: mode.encode(wide, shift)))


def _subsample(run: Run, layer: Subsample) -> None:
    code, value = (
        shortcut.subsample(table[layer.input, "z"], layer.stride, layer.out) for table in (run.tensors, run.values)
    )
    run.copy(layer.name, "z", code, value)
