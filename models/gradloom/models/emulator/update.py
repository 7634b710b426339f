"""Updates of the emulator: weights layer by layer, all parameters in one go (docs/arithmetic.md, section 13)."""

import dataclasses
import math

import torch
from torch import Tensor

from gradloom.models.arithmetic.arith import PRODUCT_BITS, ArithmeticFault, located, reciprocal
from gradloom.models.arithmetic.linear import bounds
from gradloom.models.arithmetic.scale import next_exponent
from gradloom.models.arithmetic.update import MASTER_BITS, MASTER_EXPONENT, MASTER_WIDTH
from gradloom.models.emulator.numbers import add, align, encode, saturate, stat_of
from gradloom.models.emulator.run import ALL, Run
from gradloom.models.formats import Update
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind, Layer
from gradloom.models.rounding import STOCHASTIC_F

__all__ = ["Learnt", "Parameters", "update_parameters", "update_weights"]

_LARGEST = (1 << 63) - 1
_VALUE = 4096
"""Largest magnitude of a PINT value."""
_PART = 1 << 17
"""Weights that are updated at once: half as long as a layer of 2.4 M at once (measured)."""
_TERM_BITS = 50
"""Three terms of so many bits add up exactly in float64."""


@dataclasses.dataclass
class Learnt:
    """Weights of a layer (M, C, Ky, Kx) and what their updates need.

    Attributes
    ----------
    w : float32
        Values of the format's codes.
    v : float32 values, or int64 (Q.24) in formats with masters; ``None`` in formats without velocities.
    master : int64 (Q.24) or ``None``
    """

    w: Tensor
    v: Tensor | None = None
    master: Tensor | None = None


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


def update_weights(run: Run, layer: Layer, old: Learnt, hyper: Hyper, batch: int) -> Learnt:
    """The format's update rule."""
    rule = {Update.VELOCITY: _velocity, Update.SHIFT: _shift, Update.MASTER: _master}[run.format.update]
    with located(layer.name, "WG + WU"):
        return rule(run, layer, old, hyper, batch)


def _shift(run: Run, layer: Layer, old: Learnt, hyper: Hyper, batch: int) -> Learnt:
    """DarkFPGA's update (:func:`gradloom.models.arithmetic.update.shifted`)."""
    net, dw, tid = run.net, run.dw[layer.name], run.net.tid(layer.name, Kind.W)
    low, high = torch.stack(torch.aminmax(dw)).tolist()
    f, coding = net.rounding.f(Kind.W), run.format.operand
    step = encode(dw.clone(), stat_of(low, high, 0).bit_length() - hyper.eta, f, run.increments(tid, dw.shape, f), coding)
    low, high = bounds(coding.value_bits + 1, symmetric=True)
    return Learnt((old.w - step).clamp_(low, high))


def _master(run: Run, layer: Layer, old: Learnt, hyper: Hyper, batch: int) -> Learnt:
    """Fox's update (:func:`gradloom.models.arithmetic.update.master_weights`)."""
    net, name = run.net, layer.name
    assert old.v is not None and old.master is not None
    inv, k = reciprocal(batch)
    dw = run.dw[name].to(torch.int64)
    _check_product("weight gradients", dw)
    gradient = saturate(align(dw * inv, run.dw_exponents[name] - 15 - k - MASTER_EXPONENT), 32)
    if hyper.decay_n != NO_DECAY:
        gradient = gradient + (old.master >> hyper.decay_n)
    v = saturate(((old.v * hyper.momentum) >> 8) + gradient, 32)
    step = align(v * hyper.lm, -hyper.le).clamp_(-(1 << 62), 1 << 62)
    master = saturate(old.master - step, MASTER_BITS)
    if run.format.master_bits < MASTER_WIDTH:
        increment = run.increments(net.tid(name, Kind.V), master.shape, STOCHASTIC_F)
        assert increment is not None
        dropped = max(0, _length(master) - (run.format.master_bits - 1))
        master = ((master + ((increment.to(torch.int64) << dropped) >> 17)) >> dropped) << dropped
    f, tid, coding = net.rounding.f(Kind.W), net.tid(name, Kind.W), run.format.operand
    low, high = int(master.amin()), int(master.amax())
    e = next_exponent(MASTER_EXPONENT, stat_of(low, high, f + 1), f, coding.value_bits)
    run.e[net.tid(name, Kind.W_NEXT)] = e
    return Learnt(encode(master, e - MASTER_EXPONENT, f, run.increments(tid, master.shape, f), coding), v, master)


def _length(x: Tensor) -> int:
    """Bits of the largest magnitude."""
    return stat_of(int(x.amin()), int(x.amax()), 0).bit_length()


def _is_wide(x: Tensor) -> bool:
    limit = 1 << (PRODUCT_BITS - 1)
    return bool(((x < -limit) | (x >= limit)).any())


def _check_product(name: str, x: Tensor) -> None:
    if _is_wide(x):
        raise ArithmeticFault(name, PRODUCT_BITS, f"a value does not fit {PRODUCT_BITS} bits")


@dataclasses.dataclass(frozen=True)
class _Velocity:
    """ETA's update, of some outputs at a time: what lies between stays in the processor's caches."""

    run: Run
    layer: Layer
    w: Tensor
    v: Tensor
    hyper: Hyper
    batch: int

    def tid(self, kind: Kind) -> int:
        return self.run.net.tid(self.layer.name, kind)

    def velocity(self, part: slice) -> Tensor:
        """Velocities before their encoder, of the outputs ``part``."""
        run, e, hyper = self.run, self.run.e, self.hyper
        inv, k = reciprocal(self.batch)
        ew, ev, dw = e[self.tid(Kind.W)], e[self.tid(Kind.V)], run.dw[self.layer.name][part]
        sh0 = run.dw_exponents[self.layer.name] - 15 - k - ev + 16
        terms = [
            _aligned(dw, inv, sh0, max(int(dw.amax()), -int(dw.amin()))),
            _aligned(self.v[part], hyper.momentum, 8, _VALUE),
        ]
        if hyper.decay_n != NO_DECAY:
            terms.append(_aligned(self.w[part], 1, ew - hyper.decay_n - ev + 16, _VALUE))
        return _total("velocity", terms)

    def calibrate(self) -> None:
        """Exponents W_NEXT and V_NEXT of a calibrating step."""
        run, e, ev = self.run, self.run.e, self.run.e[self.tid(Kind.V)]
        f = run.net.rounding.f(Kind.V)
        low, high = torch.stack(torch.aminmax(self.velocity(ALL))).tolist()
        e[self.tid(Kind.V_NEXT)] = next_exponent(ev - 16, stat_of(low, high, f + 1), f, run.format.operand.value_bits)
        e[self.tid(Kind.W_NEXT)] = e[self.tid(Kind.W)]

    def update(self, part: slice) -> tuple[Tensor, Tensor]:
        """New weights and velocities of the outputs ``part``."""
        e, hyper, ew = self.run.e, self.hyper, self.run.e[self.tid(Kind.W)]
        ahead = e[self.tid(Kind.V_NEXT)]
        velocity = self._encoded(Kind.V_NEXT, self.velocity(part), 16 + ahead - e[self.tid(Kind.V)], Kind.V, part)
        moved = _aligned(velocity, hyper.lm, ahead - hyper.le - ew + 16, _VALUE)
        # Negating -2^63 would wrap; one unit less is far outside any sum that fits.
        moved = moved.neg_() if moved.dtype == torch.float64 else moved.clamp_(min=-_LARGEST).neg_()
        u = _total("weight", [_aligned(self.w[part], 1, 16, _VALUE), moved])
        return self._encoded(Kind.W_NEXT, u, 16 + e[self.tid(Kind.W_NEXT)] - ew, Kind.W, part), velocity

    def _encoded(self, kind: Kind, wide: Tensor, sh: int, draw: Kind, part: slice) -> Tensor:
        """Values (float32); tensor ``kind`` takes the statistics, ``draw`` gives the random bits."""
        run, f = self.run, self.run.net.rounding.f(draw)
        run.note(self.tid(kind), wide, f + 1 - sh)
        return encode(wide, sh, f, run.increments(self.tid(draw), tuple(self.w.shape), f, part), run.format.operand)


def _velocity(run: Run, layer: Layer, old: Learnt, hyper: Hyper, batch: int) -> Learnt:
    """8-bit weights and velocities at the exponents W_NEXT and V_NEXT."""
    assert old.v is not None
    rule = _Velocity(run, layer, old.w, old.v, hyper, batch)
    if run.calibrate:
        rule.calibrate()
    w, v = torch.empty_like(old.w), torch.empty_like(old.v)
    rows = max(1, _PART * len(old.w) // old.w.numel())
    for start in range(0, len(old.w), rows):
        part = slice(start, start + rows)
        w[part], v[part] = rule.update(part)
    return Learnt(w, v)


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
        shifts += [run.sum_exponents[name] + fraction - k] * (place.stop - place.start)
    total = torch.cat(totals)
    if _is_wide(total):
        for (name, _), part in zip(parameters.places, totals, strict=True):
            with located(name, "WG + WU"):
                _check_product("gradient sums", part)
    shift = torch.tensor(shifts, dtype=torch.int64, device=total.device)
    gradient = saturate(align(total * inv, shift), 32)
    velocity = saturate(((parameters.velocity * hyper.momentum) >> 8) + gradient, 32)
    # A step of 2^62 ends at the same bound as any larger one, and cannot overflow the difference.
    step = align(velocity * hyper.lm, -hyper.le).clamp_(-(1 << 62), 1 << 62)
    return Parameters(saturate(parameters.master - step, MASTER_BITS), velocity, parameters.places)
