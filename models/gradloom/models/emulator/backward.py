"""Backward pass of the emulator: errors, parameter sums and weight gradients (docs/arithmetic.md, sections 8 to 12)."""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from gradloom.models.arithmetic import softmax
from gradloom.models.arithmetic.arith import located
from gradloom.models.emulator import conv as emulator_conv
from gradloom.models.emulator import frn as emulator_frn
from gradloom.models.emulator import pool as emulator_pool
from gradloom.models.emulator.numbers import Exponent, add, align, encode, factor, largest
from gradloom.models.emulator.run import Run, join_images
from gradloom.models.golden.backward import DX_CALIBRATION
from gradloom.models.layers import Conv, FullyConnected, Kind, Pool, Subsample
from gradloom.models.rounding import NEAREST_F

__all__ = ["backward"]

_NARROW_SHIFT = 17
"""A shortcut's error (13 bits) shifted left by at most so much and added to sums below 2^30 stays in int32."""
_FLOAT_SHIFT = 38
"""A shortcut's error (13 bits) shifted left by at most so much and added to 36 bits stays exact in float64."""


def backward(run: Run, logits: Tensor, labels: Tensor) -> None:
    """From the loss gradient to every weight gradient (``dw``) and parameter sum (``sums``)."""
    net, last = run.net, run.net.logits.name
    error = _loss_error(run, _loss_gradient(net.loss, logits.to(torch.int64), labels)[:, :, None, None])
    run.keep(last, "error", error)
    run.keep(last, "dz", error)
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
                run.keep(name, "ds", run.encoded(net.tid(name, Kind.DS), _exponent(run, name), _convolution(run, name)))
            x, dx = run.values[layer.input, "z"], run.values[name, "dx"]
            exponent = run.e[net.dx_tid(name)] + run.e[net.z_tid(layer.input)]
            run.dw_exponents[name], shift = join_images(exponent)
            run.dw[name] = emulator_conv.weight_gradient(x, dx, run.weights[name], net.geometry(name), name, shift=shift,
                                                         watch=run.watch(name), widths=run.widths)


@cache
def _exponentials(device: str) -> Tensor:
    return torch.from_numpy(softmax.EXP_TABLE).to(device)


def _loss_gradient(loss: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Errors (B, M), int64, of logits (int64, Q8), at the loss's wide exponent; ``labels`` may be targets (B, M)."""
    if loss == "softmax":
        table = _exponentials(str(logits.device))
        d = (logits.amax(1, keepdim=True) - logits).clamp_(max=32767)
        t = (d * 369) >> 8
        power = table[t & 255] >> (t >> 8).clamp_(max=16)
        wide, one = (power << 16) // power.sum(1, keepdim=True), 1 << 16
    elif labels.dim() == 2:
        return logits - labels
    else:
        wide, one = logits.clone(), 256
    wide[torch.arange(len(labels), device=labels.device), labels] -= one
    return wide


def _loss_error(run: Run, wide: Tensor) -> Tensor:
    """Values of the loss gradient: at its fixed exponent and rounded to nearest, or scaled as all errors of the format are."""
    tid, zero = run.net.tid(run.net.logits.name, Kind.DZ), softmax.WIDE_EXPONENTS[run.net.loss]
    if run.format.fixed_loss:
        return encode(wide, run.e[tid] - zero, NEAREST_F, None, run.net.coding(tid))
    return run.encoded(tid, zero, wide.to(torch.float64))


def _exponent(run: Run, name: str) -> Any:
    return run.e[run.net.tid(name, Kind.W)] + run.e[run.net.dx_tid(name)]


def _convolution(run: Run, name: str) -> Tensor:
    return emulator_conv.backward(run.values[name, "dx"], run.weights[name], run.net.geometry(name), name, run.watch(name),
                                  widths=run.widths)


def _masked(run: Run, name: str) -> Tensor:
    """bit dz of a layer with FRN and TLU."""
    if name not in run.masked:
        run.masked[name] = run.v(name, "dz") * run.raw[name, "bit"]
    return run.masked[name]


def _subsample(run: Run, layer: Subsample) -> None:
    """dz of a shortcut, the masked values of the adding layer, and where they go in the shortcut's input."""
    dz = _masked(run, run.net.consumers(layer.name)[0][0].name)
    spread = torch.empty((len(dz), *run.net.geometry(layer.name).in_shape), device=dz.device,
                         memory_format=torch.channels_last).zero_()
    spread[:, :, :: layer.stride, :: layer.stride] = dz[:, : spread.shape[1]]
    run.keep(layer.name, "dz", dz)
    run.keep(layer.name, "ds", spread)


def _output_error(run: Run, name: str) -> Tensor:
    """dz of a layer: what its main consumer sends back, plus the shortcut's error, encoded once."""
    net = run.net
    main, second, tid = net.main_consumer(name), net.shortcut(name), net.tid(name, Kind.DZ)
    exponent: Exponent = 0
    error = None
    if second is not None:
        residual = second.kind == "residual"
        exponent = run.e[net.dz_tid(second.layer) if residual else net.ds_tid(second.layer)]
        error = _masked(run, second.layer) if residual else run.v(second.layer, "ds")
    if isinstance(main, Conv | FullyConnected):
        wide, zero = _convolution(run, main.name), _exponent(run, main.name)
    elif isinstance(main, Pool):
        wide, zero = _pool(run, main)
    else:
        assert error is not None
        return run.encoded(tid, exponent, error.to(torch.float64))
    if error is not None:
        with located(name, "BP"):
            wide = _plus(wide, error, exponent - zero)
    return run.encoded(tid, zero, wide)


def _plus(wide: Tensor, error: Tensor, n: Exponent) -> Tensor:
    """Sums plus a shortcut's error aligned by ``n``: int32 or float64, or int64 where these are too narrow."""
    if isinstance(n, Tensor):
        if largest(n) > _FLOAT_SHIFT:
            return add("shortcut error", wide.to(torch.int64), align(error.to(torch.int64), n))
        return wide.to(torch.float64).add_(error.to(torch.float64).mul_(factor(n)).floor_())
    if wide.dtype == torch.int32 and n <= _NARROW_SHIFT:
        whole = error.to(torch.int32)
        return wide.add_(whole << n if n >= 0 else whole >> min(-n, 31))
    if n > _FLOAT_SHIFT:
        return add("shortcut error", wide.to(torch.int64), align(error.to(torch.int64), n))
    aligned = error.to(torch.float64).mul_(math.ldexp(1.0, n))
    return wide.to(torch.float64).add_(aligned if n >= 0 else aligned.floor_())


def _pool(run: Run, layer: Pool) -> tuple[Tensor, Any]:
    name, g = layer.name, run.net.geometry(layer.name)
    walk = layer.walk(g).adjoint
    wide, _ = emulator_pool.walked(run.v(name, "dz"), walk, g.in_shape[1:], run.raw.get((name, "index")))
    return wide, run.e[run.net.tid(name, Kind.DZ)] - walk.fraction


def _accumulator_error(run: Run, layer: Conv | FullyConnected) -> None:
    """dx of a layer with weights, and its parameter gradients summed over the images."""
    net, name = run.net, layer.name
    if layer.norm == "frn":
        bit = run.raw[name, "bit"] if layer.act == "tlu" else None
        result = emulator_frn.backward(run.v(name, "dz"), run.v(name, "xhat"), bit, run.narrow[name]["gamma"],
                                       run.raw[name, "q"], run.raw[name, "le"])
        run.masked[name] = result.masked
        zero = run.e[net.tid(name, Kind.DZ)] - run.accumulator_exponent(layer)
        dry = DX_CALIBRATION + net.rounding.f(Kind.DX)
        run.keep(name, "dx", run.encoded(net.tid(name, Kind.DX), zero, result.dx, dry_shift=dry))
        _sum_images(run, name, {"sg": result.sg, "sb": result.sb, "st": result.st})
        return
    if layer.act == "relu":
        run.keep(name, "dx", _masked(run, name))
    else:
        run.values[name, "dx"] = run.values[name, "dz"]
    _sum_images(run, name, {"sb": run.v(name, "dx").to(torch.float64).sum((2, 3)).to(torch.int64)})


def _sum_images(run: Run, name: str, planes: dict[str, Tensor]) -> None:
    """Gradient sums (B, C) of the parameters, summed over the images."""
    run.sum_exponents[name], shift = join_images(run.e[run.net.tid(name, Kind.DZ)])
    every = torch.stack(list(planes.values()))
    totals = (every if shift is None else align(every, shift.reshape(-1, 1))).sum(1)
    for key, total in zip(planes, totals.unbind(), strict=True):
        run.sums[name, key] = total
