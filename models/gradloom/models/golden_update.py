"""Updates at the end of the golden step: weights, parameters, exponents (docs/arithmetic.md, sections 6 and 13)."""

import numpy as np

from gradloom.models import arith, dither, pint, scale, update
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind, Layer
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F
from gradloom.models.state import State, delayed_kinds

__all__ = ["next_exponents", "update_parameters", "update_weights"]


def _mode(net: Network, state: State, name: str, kind: Kind, shape: tuple[int, ...]) -> pint.Mode:
    """Rounding of weights or velocities; the element index is the linear OIHW position."""
    f = net.rounding.f(kind)
    if f == NEAREST_F:
        return pint.NEAREST
    index = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    return pint.Mode(f, dither.random_bits(dither.tensor_seed(state.seed, state.step, net.tid(name, kind)), index, f))


def update_weights(
    net: Network,
    state: State,
    layer: Layer,
    dw: np.ndarray,
    e: dict[int, int],
    stats: dict[int, int],
    hyper: Hyper,
    batch: int,
) -> None:
    """WU of docs/machine.md section 8, at the exponents W_NEXT and V_NEXT."""
    name = layer.name
    w_tid, v_tid, w_next, v_next = (net.tid(name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT))
    inv, k = arith.reciprocal(batch)
    ew, ev = e[w_tid], e[v_tid]
    modes = {f"mode_{kind.name.lower()}": _mode(net, state, name, kind, dw.shape) for kind in (Kind.W, Kind.V)}

    def operation() -> update.WeightUpdate:
        shifts = (
            e[net.dx_tid(name)] + e[net.z_tid(layer.input)] - 15 - k - ev + 16,
            16 + e[v_next] - ev,
            ew - hyper.decay_n - ev + 16,
            e[v_next] - hyper.le - ew + 16,
            16 + e[w_next] - ew,
        )
        return update.weights(
            dw,
            pint.decode(state.weights[name]),
            pint.decode(state.velocities[name]),
            inv=inv,
            momentum=hyper.momentum,
            lm=hyper.lm,
            shifts=shifts,
            decay=hyper.decay_n != NO_DECAY,
            **modes,
        )

    if not state.calibrated:
        e[v_next], e[w_next] = ev - 16, ew
        e[v_next] = scale.next_exponent(e[v_next], operation().v.stat, net.rounding.f(Kind.V))
    velocity, weight = operation()
    stats[v_next], stats[w_next] = velocity.stat, weight.stat
    state.velocities[name] = velocity.code.reshape(dw.shape)
    state.weights[name] = weight.code.reshape(dw.shape)


def update_parameters(
    net: Network,
    state: State,
    layer: Layer,
    sums: dict[tuple[str, str], np.ndarray],
    e: dict[int, int],
    hyper: Hyper,
    batch: int,
) -> None:
    """PARAM_UPD and BIAS_UPD of docs/machine.md section 8."""
    name = layer.name
    inv, k = arith.reciprocal(batch)
    edz = e[net.tid(name, Kind.DZ)]
    for key in net.parameters(name):
        source, fraction = ("sg", 1) if key == "gamma" else (f"s{key[0]}", 9)
        master, velocity = update.parameter(
            state.parameters[name][key],
            state.parameter_velocities[name][key],
            sums[name, source],
            inv=inv,
            shift=edz + fraction - k,
            momentum=hyper.momentum,
            lm=hyper.lm,
            le_lr=hyper.le,
        )
        state.parameters[name][key] = np.asarray(master, np.int32)
        state.parameter_velocities[name][key] = np.asarray(velocity, np.int32)


def next_exponents(net: Network, e: dict[int, int], stats: dict[int, int]) -> dict[int, int]:
    """Exponents of the next step: delayed scales; those of weights and velocities run one step ahead."""
    following = dict(e)
    for layer in net.layers:
        for kind in delayed_kinds(net, layer.name):
            tid = net.tid(layer.name, kind)
            following[tid] = scale.next_exponent(e[tid], stats[tid], net.rounding.f(kind))
    for layer in net.weighted:
        for now, ahead in ((Kind.W, Kind.W_NEXT), (Kind.V, Kind.V_NEXT)):
            tid = net.tid(layer.name, ahead)
            following[net.tid(layer.name, now)] = e[tid]
            following[tid] = scale.next_exponent(e[tid], stats[tid], net.rounding.f(now))
    return following
