"""Updates of the emulator: weights by the format's rule, all parameters in one go (docs/arithmetic.md, section 13)."""

import dataclasses

import torch
from torch import Tensor

from gradloom.models.arithmetic.arith import PRODUCT_BITS, ArithmeticFault, located, reciprocal
from gradloom.models.arithmetic.linear import bounds
from gradloom.models.arithmetic.scale import next_exponent
from gradloom.models.arithmetic.update import MASTER_BITS, MASTER_EXPONENT, MASTER_WIDTH
from gradloom.models.emulator.learnt import Learnt, Parameters
from gradloom.models.emulator.numbers import Range, align, encode, ends_of, place, saturate, stat_of
from gradloom.models.emulator.run import Run
from gradloom.models.emulator.velocity import Velocity, together
from gradloom.models.formats import Update
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind, Layer
from gradloom.models.rounding import STOCHASTIC_F

__all__ = ["Updated", "check_sums", "sums_range", "update_parameters", "update_weights"]


def update_weights(run: Run, old: dict[str, Learnt], hyper: Hyper, batch: int) -> "Updated":
    """The format's update rule for all layers with weights."""
    layers = {layer.name: layer for layer in run.net.weighted}
    if run.format.update is not Update.VELOCITY:
        rule = _shift if run.format.update is Update.SHIFT else _master
        found = {}
        for name, layer in layers.items():
            with located(name, "WG + WU"):
                found[name] = rule(run, layer, old[name], hyper, batch)
        return Updated(found, {})
    rules: dict[str, Velocity] = {}
    for name, layer in layers.items():
        rules[name] = Velocity.of(run, layer, old[name], hyper, batch)
    ranges = {name: Range(*ends_of(run.dw[name])) for name, rule in rules.items() if not run.calibrate and rule.limit > 0}
    joined = together(run, {name: rules[name] for name in ranges})
    found = {name: joined[name] if name in joined else rule.learnt() for name, rule in rules.items()}
    return Updated(found, {name: (rules[name], ends) for name, ends in ranges.items()})


@dataclasses.dataclass
class Updated:
    """New weights by layer, and of which layers it must still be seen that the gradients are within what was assumed."""

    learnt: dict[str, Learnt]
    assumed: dict[str, tuple[Velocity, Range]]

    @property
    def ranges(self) -> list[Range]:
        return [found for _, found in self.assumed.values()]

    def mend(self) -> None:
        """Update layers with larger gradients anew; the ranges have been read."""
        for name, (rule, found) in self.assumed.items():
            if max(abs(end) for end in found.ends) > rule.limit:
                self.learnt[name] = rule.learnt()
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


def sums_range(run: Run, parameters: Parameters) -> Range:
    """Of the gradient sums of all parameters."""
    return Range(*ends_of(torch.cat([run.sums[place] for place in _sources(parameters)])))


def check_sums(run: Run, parameters: Parameters, found: Range) -> None:
    """:exc:`ArithmeticFault` if a gradient sum leaves the width of a product."""
    if max(-found.ends[0] - 1, found.ends[1]) >= 1 << (PRODUCT_BITS - 1):
        for layer, name in _sources(parameters):
            with located(layer, "WG + WU"):
                _check_product("gradient sums", run.sums[layer, name])


def _sources(parameters: Parameters) -> list[tuple[str, str]]:
    """Sums by parameter."""
    return [(layer, "sg" if key == "gamma" else f"s{key[0]}") for layer, key in parameters.places]


def update_parameters(run: Run, parameters: Parameters, hyper: Hyper, batch: int) -> Parameters:
    """New masters and velocities of gamma, beta, tau and the biases; :func:`check_sums` tells whether they are right."""
    inv, k = reciprocal(batch)
    totals, shifts = [], []
    for (name, key), where in parameters.places.items():
        source, fraction = ("sg", 1) if key == "gamma" else (f"s{key[0]}", 9)
        totals.append(run.sums[name, source])
        shifts += [run.sum_exponents[name] + fraction - k] * (where.stop - where.start)
    total = torch.cat(totals)
    shift = place(shifts, torch.int64, total.device)
    gradient = saturate(align(total * inv, shift), 32)
    velocity = saturate(((parameters.velocity * hyper.momentum) >> 8) + gradient, 32)
    # A step of 2^62 ends at the same bound as any larger one, and cannot overflow the difference.
    step = align(velocity * hyper.lm, -hyper.le).clamp_(-(1 << 62), 1 << 62)
    return Parameters(saturate(parameters.master - step, MASTER_BITS), velocity, parameters.places)
