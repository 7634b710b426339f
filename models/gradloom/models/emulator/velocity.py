"""ETA's update of 8-bit weights and velocities on the emulator (docs/arithmetic.md, section 13)."""

import dataclasses
import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gradloom.models.arithmetic import feedback
from gradloom.models.arithmetic.arith import located, reciprocal
from gradloom.models.arithmetic.scale import next_exponent
from gradloom.models.emulator.learnt import Learnt
from gradloom.models.emulator.numbers import (
    add,
    align,
    encode,
    place,
    random_increments,
    round_feedback,
    round_scaled,
    rounding_bits,
    stat_of,
)
from gradloom.models.emulator.run import ALL, Run, indices
from gradloom.models.hyper import NO_DECAY, Hyper
from gradloom.models.layers import Kind, Layer
from gradloom.models.rounding import NEAREST_F

__all__ = ["Velocity", "together"]

_LARGEST = (1 << 63) - 1
_VALUE = 4096
"""Largest magnitude of a PINT value."""
_PART, _FAR_PART = 1 << 17, 1 << 25
"""Weights that are updated at once, on a CPU and on other devices. A CPU keeps what lies between in its caches: half as long as
2.4 M weights at once (measured)."""
_TERM_BITS = 50
"""Three terms of so many bits add up exactly in float64."""


@dataclasses.dataclass(frozen=True)
class Velocity:
    """The update of a layer, for whatever numbers; ``wide`` with error feedback."""

    run: Run
    layer: Layer
    w: Tensor
    v: Tensor
    hyper: Hyper
    batch: int
    wide: Tensor | None = None

    @classmethod
    def of(cls, run: Run, layer: Layer, old: Learnt, hyper: Hyper, batch: int) -> "Velocity":
        assert old.v is not None
        return cls(run, layer, old.w, old.v, hyper, batch, old.wide)

    def tid(self, kind: Kind) -> int:
        return self.run.net.tid(self.layer.name, kind)

    @property
    def gradient_shift(self) -> int:
        """SH0 of docs/arithmetic.md, section 13."""
        return self.run.dw_exponents[self.layer.name] - 15 - reciprocal(self.batch)[1] - self.run.e[self.tid(Kind.V)] + 16

    @property
    def decay_shift(self) -> int:
        """SH2."""
        e = self.run.e
        return e[self.tid(Kind.W)] - self.hyper.decay_n - e[self.tid(Kind.V)] + 16

    @property
    def step_shift(self) -> int:
        """SH3."""
        e = self.run.e
        return e[self.tid(Kind.V_NEXT)] - self.hyper.le - e[self.tid(Kind.W)] + 16

    def coder_shift(self, kind: Kind) -> int:
        """SH1 of velocities (V_NEXT), SH4 of weights (W_NEXT)."""
        return 16 + self.run.e[self.tid(kind)] - self.run.e[self.tid(Kind.V if kind == Kind.V_NEXT else Kind.W)]

    @property
    def limit(self) -> int:
        """The largest gradient of which :func:`together` is exact; 0 if it may round whatever the gradient."""
        steps = (_VALUE * self.hyper.lm).bit_length() + max(0, self.step_shift)
        decay = 0 if self.hyper.decay_n == NO_DECAY else _VALUE.bit_length() + max(0, self.decay_shift)
        spare = _TERM_BITS - max(0, self.gradient_shift)
        if max(steps, decay) > _TERM_BITS or spare <= 0:
            return 0
        return ((1 << spare) - 1) // reciprocal(self.batch)[0]

    def velocity(self, part: slice) -> Tensor:
        """Velocities before their encoder, of the outputs ``part``."""
        inv, _ = reciprocal(self.batch)
        dw = self.run.dw[self.layer.name][part]
        terms = [
            _aligned(dw, inv, self.gradient_shift, max(int(dw.amax()), -int(dw.amin()))),
            _aligned(self.v[part], self.hyper.momentum, 8, _VALUE),
        ]
        if self.hyper.decay_n != NO_DECAY:
            terms.append(_aligned(self.w[part], 1, self.decay_shift, _VALUE))
        return _total("velocity", terms)

    def calibrate(self) -> None:
        """Exponents W_NEXT and V_NEXT of a calibrating step."""
        run, e, ev = self.run, self.run.e, self.run.e[self.tid(Kind.V)]
        f = run.net.rounding.f(Kind.V)
        low, high = torch.stack(torch.aminmax(self.velocity(ALL))).tolist()
        e[self.tid(Kind.V_NEXT)] = next_exponent(ev - 16, stat_of(low, high, f + 1), f, run.format.operand.value_bits)
        e[self.tid(Kind.W_NEXT)] = e[self.tid(Kind.W)]

    def update(self, part: slice) -> Learnt:
        """New weights and velocities of the outputs ``part``."""
        velocity = self._encoded(Kind.V_NEXT, self.velocity(part), Kind.V, part)
        moved = _aligned(velocity, self.hyper.lm, self.step_shift, _VALUE)
        # Negating -2^63 would wrap; one unit less is far outside any sum that fits.
        moved = moved.neg_() if moved.dtype == torch.float64 else moved.clamp_(min=-_LARGEST).neg_()
        if self.wide is None:
            u = _total("weight", [_aligned(self.w[part], 1, 16, _VALUE), moved])
            return Learnt(self._encoded(Kind.W_NEXT, u, Kind.W, part), velocity)
        u = _total("weight", [_aligned(self.wide[part], 1, 16 - feedback.REST_BITS, _VALUE << feedback.REST_BITS), moved])
        bits, sh = feedback.FEEDBACK_F + 1, self.coder_shift(Kind.W_NEXT)
        self.run.note(self.tid(Kind.W_NEXT), u, bits - sh)
        # What 64 bits lose as float64 lies beyond the format's range or below the fraction.
        scaled = align(u, bits - sh).to(torch.float64) if u.dtype == torch.int64 else u.mul(math.ldexp(1, bits - sh))
        increment = self.run.increments_of(self.tid(Kind.W), tuple(self.w.shape), feedback.RANDOM_BITS, part)
        w, wide = round_feedback(scaled, increment)
        return Learnt(w, velocity, wide=wide)

    def learnt(self) -> Learnt:
        """New weights and velocities at the exponents W_NEXT and V_NEXT, which a calibrating step finds first."""
        with located(self.layer.name, "WG + WU"):
            self.run.forget(self.tid(Kind.W_NEXT), self.tid(Kind.V_NEXT))
            if self.run.calibrate:
                self.calibrate()
            found = Learnt(torch.empty_like(self.w), torch.empty_like(self.v),
                           wide=None if self.wide is None else torch.empty_like(self.wide))
            for part in self.parts():
                new = self.update(part)
                for whole, piece in ((found.w, new.w), (found.v, new.v), (found.wide, new.wide)):
                    if whole is not None and piece is not None:
                        whole[part] = piece
            return found

    def parts(self) -> list[slice]:
        """Outputs that are updated at once."""
        rows = max(1, part_size(self.w.device) * len(self.w) // self.w.numel())
        return [slice(start, min(start + rows, len(self.w))) for start in range(0, len(self.w), rows)]

    def _encoded(self, kind: Kind, wide: Tensor, draw: Kind, part: slice) -> Tensor:
        """Values (float32); tensor ``kind`` takes the statistics, ``draw`` gives the random bits."""
        run, f, sh = self.run, self.run.net.rounding.f(draw), self.coder_shift(kind)
        run.note(self.tid(kind), wide, f + 1 - sh)
        return encode(wide, sh, f, run.increments(self.tid(draw), tuple(self.w.shape), f, part), run.format.operand)


_Piece = tuple[str, slice]
"""Some outputs of a layer."""


def part_size(device: torch.device) -> int:
    return _PART if device.type == "cpu" else _FAR_PART


def together(run: Run, rules: dict[str, Velocity]) -> dict[str, Learnt]:
    """The updates of all these layers in float64, many weights at once, with every layer's own factors.

    Exact where no gradient is beyond :attr:`Velocity.limit`, which nobody waits for here.
    """
    made: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in rules}
    for pieces in _groups(rules):
        for (name, _), new in zip(pieces, _updated(run, rules, pieces), strict=True):
            made[name].append(new)
    whole = {name: [_shaped(torch.cat(parts) if len(parts) > 1 else parts[0], rules[name].w) for parts in zip(*new, strict=True)]
             for name, new in made.items()}
    return {name: Learnt(w, v, wide=wide[0] if wide else None) for name, (w, v, *wide) in whole.items()}


def _groups(rules: dict[str, Velocity]) -> list[list[_Piece]]:
    """Pieces that are updated at once."""
    found: list[list[_Piece]] = []
    size = 0
    for name, rule in rules.items():
        for part in rule.parts():
            elements = rule.w[part].numel()
            if not found or size + elements > part_size(rule.w.device):
                found.append([])
                size = 0
            found[-1].append((name, part))
            size += elements
    return found


def _flat(x: Tensor) -> Tensor:
    """Weights in the order in which they lie in memory."""
    return x.permute(0, 2, 3, 1).reshape(-1)


def _shaped(flat: Tensor, like: Tensor) -> Tensor:
    outputs, channels, rows, columns = like.shape
    return flat.view(outputs, rows, columns, channels).permute(0, 3, 1, 2)


@lru_cache(maxsize=64)
def _owners(sizes: tuple[int, ...], device: str) -> Tensor:
    """Number of the piece of every element."""
    return torch.repeat_interleave(torch.arange(len(sizes), dtype=torch.int32), torch.tensor(sizes)).to(device)


@lru_cache(maxsize=64)
def _places(parts: tuple[tuple[tuple[int, ...], int, int], ...], device: str) -> Tensor:
    """Index of every element in its layer, modulo 2^24."""
    return torch.cat([_flat(indices(shape, device)[start:stop]) for shape, start, stop in parts])


def _spread(values: list[list[Any]], dtype: torch.dtype, sizes: tuple[int, ...], device: torch.device) -> list[Any]:
    """A number of every piece as one of every element, for several kinds of numbers; of one piece the numbers themselves."""
    if len(sizes) == 1:
        return [value for (value,) in values]
    return list(place(values, dtype, device).index_select(1, _owners(sizes, str(device))).unbind())


def _joined(tensors: list[Tensor]) -> Tensor:
    return _flat(tensors[0]) if len(tensors) == 1 else torch.cat([_flat(x) for x in tensors])


def _updated(run: Run, rules: dict[str, Velocity], pieces: list[_Piece]) -> list[tuple[Tensor, ...]]:
    """New weights and velocities of the pieces, and with error feedback the numbers that weights were rounded from, flat."""
    every = [rules[name] for name, _ in pieces]
    hyper, device = every[0].hyper, every[0].w.device
    w, v = (_joined([getattr(rule, key)[part] for rule, (_, part) in zip(every, pieces, strict=True)]) for key in ("w", "v"))
    dw = _joined([run.dw[name][part] for name, part in pieces])
    sizes = tuple(rule.w[part].numel() for rule, (_, part) in zip(every, pieces, strict=True))
    inv, decays = reciprocal(every[0].batch)[0], hyper.decay_n != NO_DECAY
    bits = {kind: rounding_bits(run.net.rounding.f(kind)) for kind in (Kind.V, Kind.W)}
    gradient, step, decay, scale_v, scale_w = _spread([
        [math.ldexp(inv, rule.gradient_shift) for rule in every],
        [math.ldexp(hyper.lm, rule.step_shift) for rule in every],
        [math.ldexp(1, rule.decay_shift) if decays else 0.0 for rule in every],
        [math.ldexp(1, bits[Kind.V] - rule.coder_shift(Kind.V_NEXT)) for rule in every],
        [math.ldexp(1, bits[Kind.W] - rule.coder_shift(Kind.W_NEXT)) for rule in every],
    ], torch.float64, sizes, device)

    def increments(draw: Kind, f: int) -> Tensor:
        seeds = [run.tensor_seed(rule.tid(draw)) for rule in every]
        low, high = _spread([[seed & 0xFFFFFF for seed in seeds], [seed >> 24 for seed in seeds]], torch.int32, sizes, device)
        parts = tuple((tuple(rule.w.shape), part.start, part.stop) for rule, (_, part) in zip(every, pieces, strict=True))
        return random_increments((low, high), _places(parts, str(device)), f)

    def scaled(wide: Tensor, kind: Kind, f: int, scale: Any) -> Tensor:
        for rule, part in zip(every, wide.split(sizes), strict=True):
            run.note(rule.tid(kind), part, f + 1 - rule.coder_shift(kind))
        return wide.mul_(scale)

    def encoded(wide: Tensor, kind: Kind, draw: Kind, scale: Any) -> Tensor:
        f = run.net.rounding.f(draw)
        increment = None if f == NEAREST_F else increments(draw, f)
        return round_scaled(scaled(wide, kind, f, scale), f, increment, torch.float32, run.format.operand)

    old = w.to(torch.float64)
    t = dw.mul(gradient).floor_().add_(v.to(torch.float64), alpha=hyper.momentum << 8)
    if decays:
        t += old.mul(decay).floor_()
    new_v = encoded(t, Kind.V_NEXT, Kind.V, scale_v)
    moved = new_v.to(torch.float64).mul_(step).floor_()
    if not run.net.rounding.keeps_rests:
        new_w = encoded(old.mul_(1 << 16).sub_(moved), Kind.W_NEXT, Kind.W, scale_w)
        return list(zip(new_w.split(sizes), new_v.split(sizes), strict=True))
    joined = _joined([rule.wide[part] for rule, (_, part) in zip(every, pieces, strict=True) if rule.wide is not None])
    u = scaled(joined.to(torch.float64).mul_(1 << 16 - feedback.REST_BITS).sub_(moved), Kind.W_NEXT, feedback.FEEDBACK_F, scale_w)
    new_w, wide = round_feedback(u, increments(Kind.W, feedback.RANDOM_BITS))
    return list(zip(new_w.split(sizes), new_v.split(sizes), wide.split(sizes), strict=True))


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
