"""Updates at the end of the golden step: weights, parameters, exponents (docs/arithmetic.md, sections 6, 13; docs/formats.md)."""

import dataclasses
from typing import Any

import numpy as np

from gradloom.models.arithmetic import arith, dither, feedback, scale, update
from gradloom.models.formats import Quantiser, Update
from gradloom.models.golden.averaging import encode_scaled
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind, Layer
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F, STOCHASTIC_F
from gradloom.models.state import State, delayed_kinds

__all__ = ["Scales", "next_exponents", "update_parameters", "update_weights"]


@dataclasses.dataclass
class Scales:
    """What the updates of a step need beside its sums.

    Parameters
    ----------
    e : dict
        Exponents by tensor number.
    dw, sums : dict of int
        Exponents of weight gradients and of sums of errors, by layer.
    stats : dict of int
        Statistics by tensor number; the updates add those of W_NEXT and V_NEXT.
    """

    e: dict[int, Any]
    dw: dict[str, int]
    sums: dict[str, int]
    stats: dict[int, int]


def _random(state: State, tid: int, f: int, shape: tuple[int, ...]) -> np.ndarray:
    """F-bit random numbers; the element index is the linear OIHW position."""
    index = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    return dither.random_bits(dither.tensor_seed(state.seed, state.step, tid), index, f)


def _mode(net: Network, state: State, name: str, kind: Kind, shape: tuple[int, ...]) -> Quantiser:
    """Coding and rounding of weights or velocities."""
    f, tid = net.rounding.f(kind), net.tid(name, kind)
    return Quantiser(net.arithmetic.operand, f, None if f == NEAREST_F else _random(state, tid, f, shape))


def update_weights(net: Network, state: State, layer: Layer, dw: np.ndarray, scales: Scales, hyper: Hyper, batch: int) -> None:
    """The format's update rule."""
    rule = {Update.VELOCITY: _velocity, Update.SHIFT: _shift, Update.MASTER: _master}[net.arithmetic.update]
    rule(net, state, layer, dw, scales, hyper, batch)


def _velocity(net: Network, state: State, layer: Layer, dw: np.ndarray, scales: Scales, hyper: Hyper, batch: int) -> None:
    """WU of docs/machine.md section 8, at the exponents W_NEXT and V_NEXT."""
    name, e = layer.name, scales.e
    w_tid, v_tid, w_next, v_next = (net.tid(name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT))
    inv, k = arith.reciprocal(batch)
    ew, ev = e[w_tid], e[v_tid]
    modes: Any = {"mode_v": _mode(net, state, name, Kind.V, dw.shape)}
    if net.rounding.keeps_rests:
        modes |= {"rest": state.rests[name], "rnd": _random(state, w_tid, feedback.RANDOM_BITS, dw.shape)}
    else:
        modes["mode_w"] = _mode(net, state, name, Kind.W, dw.shape)
    coding = net.arithmetic.operand

    def operation() -> update.WeightUpdate:
        shifts = (
            scales.dw[name] - 15 - k - ev + 16,
            16 + e[v_next] - ev,
            ew - hyper.decay_n - ev + 16,
            e[v_next] - hyper.le - ew + 16,
            16 + e[w_next] - ew,
        )
        return update.weights(
            dw,
            coding.decode(state.weights[name]),
            coding.decode(state.velocities[name]),
            inv=inv,
            momentum=hyper.momentum,
            lm=hyper.lm,
            shifts=shifts,
            decay=hyper.decay_n != NO_DECAY,
            **modes,
        )

    if not state.calibrated:
        e[v_next], e[w_next] = ev - 16, ew
        e[v_next] = scale.next_exponent(e[v_next], operation().v.stat, net.rounding.f(Kind.V), coding.value_bits)
    velocity, weight, rest = operation()
    scales.stats[v_next], scales.stats[w_next] = velocity.stat, weight.stat
    state.velocities[name] = velocity.code.reshape(dw.shape)
    state.weights[name] = weight.code.reshape(dw.shape)
    if rest is not None:
        state.rests[name] = rest.reshape(dw.shape)


def _shift(net: Network, state: State, layer: Layer, dw: np.ndarray, scales: Scales, hyper: Hyper, batch: int) -> None:
    """DarkFPGA's update: momentum, decay, batch and the gradient's own exponent play no part."""
    coding, name = net.arithmetic.operand, layer.name
    moved = update.shifted(
        dw, coding.decode(state.weights[name]), eta=hyper.eta, bits=coding.value_bits + 1,
        rounding=_mode(net, state, name, Kind.W, dw.shape))
    state.weights[name] = coding.encode(moved, 0, NEAREST_F, None, per_image=False).code


def _master(net: Network, state: State, layer: Layer, dw: np.ndarray, scales: Scales, hyper: Hyper, batch: int) -> None:
    """Fox's update: masters and velocities Q.24, from which the next step's weights are encoded."""
    name, kept = layer.name, net.arithmetic.master_bits
    inv, k = arith.reciprocal(batch)
    result = update.master_weights(
        state.masters[name], state.velocities[name], dw, inv=inv, shift=scales.dw[name] - 15 - k - update.MASTER_EXPONENT,
        momentum=hyper.momentum, lm=hyper.lm, le_lr=hyper.le, decay_n=None if hyper.decay_n == NO_DECAY else hyper.decay_n)
    master = result.master
    if kept < update.MASTER_WIDTH:
        master = update.shortened(master, kept, _random(state, net.tid(name, Kind.V), STOCHASTIC_F, dw.shape))
    state.masters[name], state.velocities[name] = master.astype(np.int32), result.velocity.astype(np.int32)
    codes, scales.e[net.tid(name, Kind.W_NEXT)] = encode_scaled(net, master, _mode(net, state, name, Kind.W, dw.shape))
    state.weights[name] = codes


def update_parameters(
    net: Network,
    state: State,
    layer: Layer,
    sums: dict[tuple[str, str], np.ndarray],
    scales: Scales,
    hyper: Hyper,
    batch: int,
) -> None:
    """PARAM_UPD and BIAS_UPD of docs/machine.md section 8."""
    name = layer.name
    inv, k = arith.reciprocal(batch)
    for key in net.parameters(name):
        source, fraction = ("sg", 1) if key == "gamma" else (f"s{key[0]}", 9)
        master, velocity = update.parameter(
            state.parameters[name][key],
            state.parameter_velocities[name][key],
            sums[name, source],
            inv=inv,
            shift=scales.sums[name] + fraction - k,
            momentum=hyper.momentum,
            lm=hyper.lm,
            le_lr=hyper.le,
        )
        state.parameters[name][key] = np.asarray(master, np.int32)
        state.parameter_velocities[name][key] = np.asarray(velocity, np.int32)


def next_exponents(net: Network, before: dict[int, int], e: dict[int, Any], stats: dict[int, int]) -> dict[int, int]:
    """Exponents of the next step.

    Delayed scales follow the statistics; those of 8-bit weights and velocities run one step ahead. ``before`` are the
    state's exponents, which stay where a format keeps none, ``e`` those that the step used.
    """
    form = net.arithmetic
    following = {tid: e[tid] for tid in before} if form.delayed else dict(before)
    if form.delayed:
        for layer in net.layers:
            for kind in delayed_kinds(net, layer.name):
                tid = net.tid(layer.name, kind)
                following[tid] = scale.next_exponent(e[tid], stats[tid], net.rounding.f(kind), net.coding(tid).value_bits)
    for layer in net.weighted:
        w, v, w_next, v_next = (net.tid(layer.name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT))
        if form.update is Update.VELOCITY:
            for now, ahead, kind in ((w, w_next, Kind.W), (v, v_next, Kind.V)):
                following[now] = e[ahead]
                f = net.rounding.f(kind)
                following[ahead] = scale.next_exponent(e[ahead], stats[ahead], f, form.operand.value_bits)
        elif form.update is Update.MASTER:
            following[w] = following[w_next] = e[w_next]
    return following
