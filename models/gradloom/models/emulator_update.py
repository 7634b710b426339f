"""Updates of the emulator: weights layer by layer, all parameters in one go (docs/arithmetic.md, section 13)."""

import dataclasses
import math

import torch
from torch import Tensor

from gradloom.models.arith import PRODUCT_BITS, ArithmeticFault, reciprocal
from gradloom.models.emulator_numbers import add, align, encode, saturate, stat_of
from gradloom.models.emulator_run import Run
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind, Layer
from gradloom.models.scale import next_exponent
from gradloom.models.update import MASTER_BITS

__all__ = ["Parameters", "update_parameters", "update_weights"]

_LARGEST = (1 << 63) - 1
_VALUE = 4096
"""Largest magnitude of a PINT value."""
_TERM_BITS = 50
"""Three terms of so many bits add up exactly in float64."""


@dataclasses.dataclass
class Parameters:
    """All parameters of a network, one after the other.

    Attributes
    ----------
    master, velocity : int64 (P,), Q.24
    places : dict of slice
        By (layer, parameter).
    """

    master: Tensor
    velocity: Tensor
    places: dict[tuple[str, str], slice]

    def by_layer(self, vector: Tensor) -> dict[str, dict[str, Tensor]]:
        """Views of a vector of this layout by layer and parameter."""
        found: dict[str, dict[str, Tensor]] = {}
        for (layer, key), place in self.places.items():
            found.setdefault(layer, {})[key] = vector[place]
        return found


def _encoded(run: Run, tid: int, wide: Tensor, sh: int, draw: int) -> Tensor:
    """Values (float32) of weights or velocities; ``tid`` takes the statistics, ``draw`` gives the random bits."""
    f = run.net.rounding.f(Kind(draw % 8))
    run.note(tid, wide, f + 1 - sh)
    return encode(wide, sh, f, run.increments(draw, wide.shape, f))


def update_weights(run: Run, layer: Layer, w: Tensor, v: Tensor, hyper: Hyper, batch: int) -> tuple[Tensor, Tensor]:
    """New weights and velocities (float32 values (M, C, Ky, Kx)) at the exponents W_NEXT and V_NEXT."""
    net, e, name = run.net, run.e, layer.name
    w_tid, v_tid, w_next, v_next = (net.tid(name, kind) for kind in (Kind.W, Kind.V, Kind.W_NEXT, Kind.V_NEXT))
    inv, k = reciprocal(batch)
    ew, ev, dw = e[w_tid], e[v_tid], run.dw[name]
    sh0 = e[net.dx_tid(name)] + e[net.z_tid(layer.input)] - 15 - k - ev + 16
    terms = [
        _aligned(dw, inv, sh0, max(int(dw.amax()), -int(dw.amin()))),
        _aligned(v, hyper.momentum, 8, _VALUE),
    ]
    if hyper.decay_n != NO_DECAY:
        terms.append(_aligned(w, 1, ew - hyper.decay_n - ev + 16, _VALUE))
    t = _total("velocity", terms)
    if run.calibrate:
        f = net.rounding.f(Kind.V)
        low, high = torch.stack(torch.aminmax(t)).tolist()
        e[v_next], e[w_next] = next_exponent(ev - 16, stat_of(low, high, f + 1), f), ew
    velocity = _encoded(run, v_next, t, 16 + e[v_next] - ev, v_tid)
    moved = _aligned(velocity, hyper.lm, e[v_next] - hyper.le - ew + 16, _VALUE)
    # Negating -2^63 would wrap; one unit less is far outside any sum that fits.
    moved = moved.neg_() if moved.dtype == torch.float64 else moved.clamp_(min=-_LARGEST).neg_()
    u = _total("weight", [_aligned(w, 1, 16, _VALUE), moved])
    return _encoded(run, w_next, u, 16 + e[w_next] - ew, w_tid), velocity


def _aligned(x: Tensor, factor: int, n: int, largest: int) -> Tensor:
    """``align(x factor, n)`` of integers: float64 if it and the product have at most 50 bits, else int64.

    ``largest`` is the largest magnitude of ``x``, 48 bits; ``factor`` has at most 17.
    """
    bits = (largest * factor).bit_length()
    if max(bits, bits + n) > _TERM_BITS:
        return align(x.to(torch.int64) * factor, n)
    scaled = x.to(torch.float64).mul(math.ldexp(factor, n))
    return scaled if n >= 0 else scaled.floor_()


def _total(name: str, terms: list[Tensor]) -> Tensor:
    """Sum of at most three terms; float64 if all are, else int64 with :exc:`ArithmeticFault` where it overflows."""
    if all(term.dtype == torch.float64 for term in terms):
        return sum(terms[1:], start=terms[0])
    total = terms[0].to(torch.int64)
    for term in terms[1:]:
        total = add(name, total, term.to(torch.int64))
    return total


def update_parameters(run: Run, parameters: Parameters, hyper: Hyper, batch: int) -> Parameters:
    """New masters and velocities of gamma, beta, tau and the biases."""
    inv, k = reciprocal(batch)
    totals, shifts = [], []
    for (name, key), place in parameters.places.items():
        source, fraction = ("sg", 1) if key == "gamma" else (f"s{key[0]}", 9)
        totals.append(run.sums[name, source])
        shifts += [run.e[run.net.tid(name, Kind.DZ)] + fraction - k] * (place.stop - place.start)
    total = torch.cat(totals)
    limit = 1 << (PRODUCT_BITS - 1)
    if bool(((total < -limit) | (total >= limit)).any()):
        raise ArithmeticFault(f"gradient sums: a value does not fit {PRODUCT_BITS} bits")
    shift = torch.tensor(shifts, dtype=torch.int64, device=total.device)
    gradient = saturate(align(total * inv, shift), 32)
    velocity = saturate(((parameters.velocity * hyper.momentum) >> 8) + gradient, 32)
    # A step of 2^62 ends at the same bound as any larger one, and cannot overflow the difference.
    step = align(velocity * hyper.lm, -hyper.le).clamp_(-(1 << 62), 1 << 62)
    return Parameters(saturate(parameters.master - step, MASTER_BITS), velocity, parameters.places)
