"""Stochastic weight averaging (Fox, section II-D; docs/formats.md): sums of weights and parameters over steps of a run.

The sums are integers in Q.24, so their order cannot matter. The averages are not used in training; an evaluation encodes
them to nearest, with the scale of their own largest magnitude.
"""

import numpy as np

from gradloom.models.arithmetic import arith, scale
from gradloom.models.arithmetic.activation import MASTER_EXPONENT
from gradloom.models.formats import Quantiser
from gradloom.models.layers import Kind
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F
from gradloom.models.state import State

__all__ = ["accumulate", "averaged", "encode_scaled"]


def encode_scaled(net: Network, wide: np.ndarray, quantiser: Quantiser) -> tuple[np.ndarray, int]:
    """Codes and exponent of Q.24 weights, scaled by their own statistics."""
    dry = quantiser.encode(wide, 0)
    e = scale.next_exponent(MASTER_EXPONENT, dry.stat, quantiser.f, net.arithmetic.operand.value_bits)
    return quantiser.encode(wide, e - MASTER_EXPONENT).code, e


def accumulate(net: Network, state: State) -> None:
    """Add the 8-bit weights and the parameters' masters of a state to its averages."""
    terms = {}
    for layer in net.weighted:
        name = layer.name
        value = net.arithmetic.operand.decode(state.weights[name])
        terms[f"weights/{name}"] = arith.align(value, state.exponents[net.tid(name, Kind.W)] - MASTER_EXPONENT)
        for key, master in state.parameters[name].items():
            terms[f"parameters/{name}/{key}"] = master.astype(np.int64)
    state.averages = {path: state.averages.get(path, 0) + term for path, term in terms.items()}
    state.averaged += 1


def averaged(net: Network, state: State) -> State:
    """The state itself, or, if it has averages, a copy with them in place of weights and parameters."""
    if not state.averaged:
        return state
    found = state.copy()
    means = {path: (2 * total + state.averaged) // (2 * state.averaged) for path, total in state.averages.items()}
    for layer in net.weighted:
        name = layer.name
        quantiser = Quantiser(net.arithmetic.operand, NEAREST_F)
        codes, e = encode_scaled(net, means[f"weights/{name}"], quantiser)
        found.weights[name], found.exponents[net.tid(name, Kind.W)] = codes, e
        for key in found.parameters[name]:
            found.parameters[name][key] = means[f"parameters/{name}/{key}"].astype(np.int32)
    return found
