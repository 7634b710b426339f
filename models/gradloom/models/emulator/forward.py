"""Forward pass of the emulator, layer by layer (docs/arithmetic.md, sections 8 to 11)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from gradloom.models.arithmetic.activation import LOGIT_BITS, LOGIT_EXPONENT, MASTER_EXPONENT
from gradloom.models.arithmetic.arith import located
from gradloom.models.emulator import frn as emulator_frn
from gradloom.models.emulator import pool as emulator_pool
from gradloom.models.emulator.conv import forward as convolution
from gradloom.models.emulator.numbers import EXACT_BITS, Exponent, add, align, channels_last, factor, largest, saturate, value_table
from gradloom.models.emulator.operands import Operand
from gradloom.models.emulator.run import Run
from gradloom.models.golden.forward import Q20
from gradloom.models.layers import INPUT, Conv, FullyConnected, Kind, Pool, Subsample

__all__ = ["biased", "forward"]


def forward(run: Run, x_codes: Tensor) -> Tensor:
    """uint8 codes (B, C, Y, X) to logits int32 (B, classes)."""
    values = value_table(str(x_codes.device)).index_select(0, x_codes.reshape(-1).to(torch.int32)).view(x_codes.shape)
    run.keep(INPUT, "z", channels_last(values))
    if run.format.recodes_input:
        run.keep(INPUT, "z", run.encoded(Kind.Z, run.given, run.v(INPUT, "z").to(torch.float64)))
    for layer in run.net.layers:
        with located(layer.name, "FP"):
            if isinstance(layer, Conv | FullyConnected):
                _convolution(run, layer)
            elif isinstance(layer, Subsample):
                run.keep(layer.name, "z", _subsample(run.v(layer.input, "z"), layer))
                if layer.input == INPUT and not run.format.recodes_input:
                    # Copied codes, which need not be those of an encoder.
                    run.raw[layer.name, "z"] = _subsample(x_codes, layer)
            elif isinstance(layer, Pool):
                _pool(run, layer)
    return run.raw[run.net.logits.name, "logits"]


def _subsample(x: Tensor, layer: Subsample) -> Tensor:
    kept = x[:, :, :: layer.stride, :: layer.stride]
    return channels_last(F.pad(kept, (0, 0, 0, 0, 0, layer.out - x.shape[1])))


def biased(x: Tensor, master: Tensor, e_x: Exponent) -> Tensor:
    """Sums of exponent ``e_x`` plus a bias (int64 (C,), Q.24): float64, or int64 where that is too narrow."""
    n = MASTER_EXPONENT - e_x
    # The master has 32 bits, the sum one more.
    if 32 + largest(n) + 1 <= EXACT_BITS:
        return x.to(torch.float64).add_(emulator_frn.plane(master.to(torch.float64)).mul(factor(n)).floor_())
    return add("bias", x.to(torch.int64), align(emulator_frn.plane(master), n))


def _logits(x: Tensor, n: Exponent) -> Tensor:
    """Biased sums as logits, int32 (B, M), aligned by ``n`` and saturated."""
    aligned = x.mul_(factor(n)).floor_() if x.dtype == torch.float64 else align(x, n)
    return saturate(aligned, LOGIT_BITS).to(torch.int32).reshape(len(x), -1)


def _convolution(run: Run, layer: Conv | FullyConnected) -> None:
    net, name = run.net, layer.name
    ex, tid, masters = run.accumulator_exponent(layer), net.tid(name, Kind.Z), run.masters[name]
    x = convolution(run.values[layer.input, "z"], run.weights[name], net.geometry(name), name, run.watch(name),
                    widths=run.widths)
    if layer.norm == "frn":
        _frn(run, layer, x, ex)
        return
    wide = biased(x, masters["beta"], ex)
    if name == net.logits.name:
        run.raw[name, "logits"] = _logits(wide, ex - LOGIT_EXPONENT)
        return
    if layer.act == "relu":
        wide = wide.clamp_(min=0)
        run.raw[name, "bit"] = wide > 0
    run.keep(name, "z", run.encoded(tid, ex, wide))


def _frn(run: Run, layer: Conv | FullyConnected, x: Tensor, ex: Exponent) -> None:
    net, name = run.net, layer.name
    added, shift = None, 0
    if layer.residual is not None:
        added, shift = run.v(layer.residual, "z"), Q20 + run.e[net.z_tid(layer.residual)]
    result = emulator_frn.forward(
        x, run.narrow[name]["gamma"], run.narrow[name]["beta"], run.narrow[name]["tau"] if layer.act == "tlu" else None, -12 - ex,
        f=net.rounding.xhat_f, increment=run.xhat_increments(layer, x.shape), residual=added, residual_shift=shift,
        coding=run.format.normalised, up=run.format.normalised_up,
    )
    run.values[name, "xhat"] = Operand(result.xhat)
    run.keep(name, "z", run.encoded(net.tid(name, Kind.Z), -Q20, result.out))
    if result.bit is not None:
        run.raw[name, "bit"] = result.bit
    run.raw[name, "q"], run.raw[name, "le"] = result.q, result.le


def _pool(run: Run, layer: Pool) -> None:
    net, name = run.net, layer.name
    walk = layer.walk(net.geometry(name))
    wide, index = emulator_pool.walked(run.v(layer.input, "z"), walk, net.shape(name)[1:])
    if index is not None:
        run.raw[name, "index"] = index
    run.keep(name, "z", run.encoded(net.tid(name, Kind.Z), run.e[net.z_tid(layer.input)] - walk.fraction, wide))
