"""JSON test vectors of every operation, for others: ``python -m gradloom.models.vectors FOLDER``.

One file per operation: ``{"operation", "doc", "cases": [{"in": {...}, "out": {...}}]}``, integers only,
tensors as nested lists (NCHW, OIHW), names as in docs/arithmetic.md. The operands come from the project's own
hash, so that the files do not depend on any library's random numbers.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.arithmetic import activation, arith, conv, dither, feedback, frn, pint, pool, scale, softmax, update

__all__ = ["OPERATIONS", "generate", "write"]

Case = dict[str, dict[str, Any]]


class _Draw:
    """Operands from successive indices of the hash."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = dither.tensor_seed(seed, 0, sum(ord(letter) << i for i, letter in enumerate(name)))
        self._next = 0

    def integers(self, low: int, high: int, shape: tuple[int, ...] = ()) -> np.ndarray:
        """``low <= x < high``, from 48 hashed bits each."""
        count = int(np.prod(shape, dtype=np.int64))
        index = self._next + np.arange(2 * count)
        self._next += 2 * count
        x = dither.hash24(self._seed, index).reshape(2, count)
        wide = (x[0] << 24) | x[1]
        return np.array([low + (int(n) * (high - low) >> 48) for n in wide], dtype=np.int64).reshape(shape)

    def integer(self, low: int, high: int) -> int:
        return int(self.integers(low, high))

    def wide(self, bits: int) -> int:
        """A signed number of 1 to ``bits`` bits, every length alike."""
        length = self.integer(1, bits + 1)
        x = self.integer(-(1 << 47), 1 << 47)
        return x >> (48 - length) if length <= 48 else x << (length - 48)

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """PINT values, every code alike."""
        return pint.decode(self.integers(0, 256, shape)).astype(np.int64)


def _plain(x: Any) -> Any:
    if isinstance(x, pint.Encoded):
        return {"value": x.value.tolist(), "code": x.code.tolist(), "stat": x.stat}
    if isinstance(x, np.ndarray):
        return x.astype(np.int64).tolist()
    if isinstance(x, tuple | list):
        return [_plain(item) for item in x]
    return int(x) if isinstance(x, np.integer) else x


def _case(inputs: dict[str, Any], **outputs: Any) -> Case:
    return {"in": {key: _plain(value) for key, value in inputs.items()},
            "out": {key: _plain(value) for key, value in outputs.items()}}


def _codes(draw: _Draw) -> Iterator[Case]:
    for k in range(4, 9):
        for d in range(1, k - 2):
            yield _case({"k": k, "d": d}, value=pint.decode(np.arange(1 << k), k, d))


def _align(draw: _Draw) -> Iterator[Case]:
    edges = [(1, 62), (1, 63), (-1, 63), (-1, 64), (-1, -64), (-5, -200), (arith.INT64_MIN, -63), (0, 100)]
    for x, n in edges + [(draw.wide(64), draw.integer(-70, 70)) for _ in range(192)]:
        yield _case({"x": x, "n": n}, y=arith.align(x, n))


def _reciprocal(draw: _Draw) -> Iterator[Case]:
    for n in [*range(1, 129), *draw.integers(129, 1 << 15, (72,)).tolist()]:
        inv, k = arith.reciprocal(n)
        yield _case({"n": n}, inv=inv, k=k)


def _encoder(draw: _Draw) -> Iterator[Case]:
    for i in range(1500):
        f, a = (8, 16)[i & 1], draw.wide(62)
        sh = min(max(a.bit_length() - draw.integer(1, 15), -10), 60)
        rnd = draw.integer(0, 1 << f) if i % 3 else None
        yield _case({"a": a, "sh": sh, "f": f, "rnd": rnd}, encoded=pint.encode(a, sh, f=f, rnd=rnd))


def _feedback(draw: _Draw) -> Iterator[Case]:
    for _ in range(500):
        a, rnd = draw.wide(62), draw.integer(0, 1 << feedback.RANDOM_BITS)
        sh = min(max(a.bit_length() - draw.integer(1, 15), -10), 60)
        found = feedback.encode(a, sh, rnd)
        yield _case({"a": a, "sh": sh, "rnd": rnd}, encoded=found.w, rest=feedback.rests_of(found.rest),
                    joined=feedback.join(found.w.value, found.rest))


def _dither(draw: _Draw) -> Iterator[Case]:
    for _ in range(200):
        run, step, tid, idx = (draw.integer(0, 1 << n) for n in (32, 20, 11, 24))
        seed = dither.tensor_seed(run, step, tid)
        yield _case({"run_seed": run, "step": step, "tid": tid, "idx": idx}, seed=seed,
                    x24=dither.hash24(seed, idx), r16=dither.random_bits(seed, idx, 16))


def _scale(draw: _Draw) -> Iterator[Case]:
    for i in range(200):
        e, stat, f = draw.integer(-64, 64), abs(draw.wide(62)) if i % 10 else 0, (8, 16)[i & 1]
        yield _case({"e": e, "stat": stat, "f": f}, e_next=scale.next_exponent(e, stat, f))


def _conv(draw: _Draw) -> Iterator[Case]:
    for b, c, y, x, m, ky, kx, stride, pad in (
            (2, 3, 5, 4, 2, 3, 3, 1, 1), (1, 2, 7, 5, 3, 3, 3, 2, 1), (1, 2, 6, 6, 2, 3, 3, 2, 0),
            (1, 2, 6, 5, 2, 5, 5, 1, 2), (1, 2, 7, 8, 2, 5, 5, 2, 1), (2, 3, 4, 3, 3, 1, 1, 1, 0),
            (1, 3, 5, 6, 2, 1, 1, 2, 0), (2, 2, 3, 4, 5, 3, 4, 1, 0)):
        inputs, weights = draw.values((b, c, y, x)), draw.values((m, c, ky, kx))
        size = conv.output_size(y, ky, stride, pad), conv.output_size(x, kx, stride, pad)
        errors = draw.values((b, m, *size))
        yield _case({"x": inputs, "w": weights, "err": errors, "stride": stride, "pad": pad},
                    forward=conv.forward(inputs, weights, stride, pad),
                    backward=conv.backward(errors, weights, inputs.shape, stride, pad),
                    weight_gradient=conv.weight_gradient(inputs, errors, (ky, kx), stride, pad))


def _frn(draw: _Draw) -> Iterator[Case]:
    for i in range(24):
        shape = (2, 2, draw.integer(1, 6), draw.integer(2, 6))
        x = draw.integers(-(1 << draw.integer(4, 30)), 1 << draw.integer(4, 30), shape)
        gamma, beta, tau = (draw.integers(-(1 << bits), 1 << bits, (2,)) for bits in (14, 13, 11))
        e_x, e_z = draw.integer(-30, -8), draw.integer(-12, -5)
        threshold = i % 4 != 3
        aligned = arith.align(draw.values(shape), 20 - 10) if i % 3 == 0 else None
        out = frn.forward(x, gamma, beta, tau, -12 - e_x, sh_z=20 + e_z, residual=aligned,
                          threshold=threshold)
        dz = draw.values(shape)
        sh0 = draw.integer(-24, -4)
        back = frn.backward(dz, out.xhat_value, out.bit, gamma, out.q, out.le, sh0=sh0)
        yield _case({"X": x, "gamma": gamma, "beta": beta, "tau": tau, "eps_shift": -12 - e_x,
                     "sh_z": 20 + e_z, "residual_q20": aligned, "threshold": threshold, "dz": dz, "sh0": sh0},
                    xhat=out.xhat_value, xhat_code=out.xhat_code, y=out.y, bit=out.bit, z=out.z, q=out.q,
                    le=out.le, dx=back.dx, sg=back.sg, sb=back.sb, st=back.st)


def _activation(draw: _Draw) -> Iterator[Case]:
    for i in range(12):
        shape, e_x = (2, 3, 2, 3), draw.integer(-34, -6)
        x, master = draw.integers(-(1 << 28), 1 << 28, shape), draw.integers(-(1 << 27), 1 << 27, (3,))
        biased = activation.add_bias(x, master, e_x)
        dz, shortcut = draw.values(shape), draw.values(shape)
        sh, sh_shortcut = draw.integer(8, 20), draw.integer(-6, 14)
        z, bit = activation.relu_forward(biased, sh)
        dx, sb = activation.relu_backward(dz, bit)
        mask = bit if i & 1 else None
        yield _case({"X": x, "e_x": e_x, "master": master, "sh": sh, "dz": dz, "shortcut": shortcut,
                     "sh_shortcut": sh_shortcut, "shortcut_bit": mask},
                    biased=biased, relu=z, bit=bit, dx=dx, sb=sb,
                    linear=activation.linear_forward(biased, sh),
                    logits=activation.logits(biased[:, :, :1, :1], e_x),
                    error_out=activation.error_out(biased, sh, shortcut=shortcut, sh_shortcut=sh_shortcut,
                                                   bit=mask))


def _pool(draw: _Draw) -> Iterator[Case]:
    for y, x, kernel, stride, pad in (
            (6, 4, 2, 2, 0), (7, 5, 3, 2, 1), (5, 5, 3, 1, 1), (9, 7, 3, 3, 0), (4, 4, 4, 1, 0)):
        inputs = draw.values((2, 2, y, x)) >> (8 if stride == 1 else 0)
        value, index = pool.max_forward(inputs, kernel, stride, pad)
        dz = draw.values(value.shape)
        yield _case({"x": inputs, "dz": dz, "kernel": kernel, "stride": stride, "pad": pad},
                    max=value, index=index,
                    max_backward=pool.max_backward(dz, index, inputs.shape, kernel, stride, pad),
                    average=pool.avg_forward(inputs, kernel, stride, pad),
                    average_backward=pool.avg_backward(dz, inputs.shape, kernel, stride, pad))


def _softmax(draw: _Draw) -> Iterator[Case]:
    for classes in (1, 2, 3, 10, 10, 10, 37):
        bound = 1 << draw.integer(4, 23)
        logits, labels = draw.integers(-bound, bound, (4, classes)), draw.integers(0, classes, (4,))
        soft, square = softmax.gradient(logits, labels), softmax.squared(logits, labels)
        yield _case({"logits": logits, "labels": labels}, p=softmax.probabilities(logits), error=soft.error,
                    encoded=soft.encoded, squared_error=square.error, squared_encoded=square.encoded)


def _weights(draw: _Draw) -> Iterator[Case]:
    for i in range(24):
        shape, batch = (2, 2, 3, 3), draw.integer(1, 65)
        inv, k = arith.reciprocal(batch)
        dw, w, v = draw.integers(-(1 << 32), 1 << 32, shape), draw.values(shape), draw.values(shape)
        shifts = [draw.integer(low, high) - (k if position == 0 else 0)
                  for position, (low, high) in enumerate(((-30, -10), (12, 20), (-4, 12), (2, 10), (15, 18)))]
        rnd_v, rnd_w = draw.integers(0, 1 << 16, shape), draw.integers(0, 1 << 16, shape)
        momentum, lm, decay = draw.integer(0, 256), draw.integer(0, 256), bool(i & 1)
        # Of legal rests: what a weight was rounded from lies within half a step of it.
        rest = None if i % 3 == 0 else feedback.encode(w << 16, 16, rnd_w >> 8).rest
        for _ in range(2 if rest is not None else 0):
            moved = feedback.join(w, rest) << 8
            found = feedback.encode(moved + draw.integers(-(1 << 24), 1 << 24, shape), 16, rnd_w >> 8)
            w, rest = found.w.value, found.rest
        more = {"mode_w": pint.Mode(16, rnd_w)} if rest is None else {"rest": rest, "rnd": rnd_w >> 8}
        result = update.weights(dw, w, v, inv=inv, momentum=momentum, lm=lm, shifts=shifts, decay=decay,
                                mode_v=pint.Mode(16, rnd_v), **more)
        rests = (None, None) if rest is None else (feedback.rests_of(rest), feedback.rests_of(result.rest))
        yield _case({"dw": dw, "w": w, "v": v, "rest": rests[0], "inv": inv, "momentum": momentum, "lm": lm, "shifts": shifts,
                     "decay": decay, "rnd_v": rnd_v, "rnd_w": rnd_w}, v_next=result.v, w_next=result.w, rest_next=rests[1])


def _parameter(draw: _Draw) -> Iterator[Case]:
    for _ in range(48):
        inv, k = arith.reciprocal(draw.integer(1, 65))
        master, velocity = draw.integers(-(1 << 27), 1 << 27, (4,)), draw.integers(-(1 << 31), 1 << 31, (4,))
        rates = {"inv": inv, "shift": draw.integer(-24, 4) - k, "momentum": draw.integer(0, 256),
                 "lm": draw.integer(0, 256), "le_lr": draw.integer(-2, 24)}
        total = draw.integers(-(1 << 40), 1 << 40, (4,))
        result = update.parameter(master, velocity, total, **rates)
        yield _case({"master": master, "velocity": velocity, "sum": total, **rates},
                    master_next=result.master, velocity_next=result.velocity)


OPERATIONS: dict[str, tuple[str, Callable[[_Draw], Iterator[Case]]]] = {
    "codes": ("value of every code of PINT(k, d), code 0 first", _codes),
    "align": ("y = x 2^n in 64 bits, saturated or floored", _align),
    "reciprocal": ("inv = round(2^(15 + k) / n), k = ceil(log2 n)", _reciprocal),
    "encoder": ("PINT(8, 3) of a at shift sh, F = f; rnd null = nearest", _encoder),
    "feedback": ("PINT(8, 3) and a rest of a at shift sh; joined in units of 2^-8", _feedback),
    "dither": ("seed of a tensor, 24-bit hash of an element, its top 16 bits", _dither),
    "scale": ("delayed scale", _scale),
    "conv": ("forward, backward and weight-gradient sums of values", _conv),
    "frn": ("L1-FRN + TLU of sums X, then its backward pass of errors dz", _frn),
    "activation": ("bias, ReLU, linear output, logits, error with a shortcut", _activation),
    "pool": ("maximum and average pools, wide results before the encoder", _pool),
    "softmax": ("probabilities (Q16), softmax and squared-error gradients of Q8 logits", _softmax),
    "weight_update": ("shifts = SH0..SH4; rest null = no error feedback, else rnd_w's upper 8 bits count", _weights),
    "parameter_update": ("gamma, beta, tau or bias in Q.24", _parameter),
}
"""Operation -> (what its cases hold, their generator)."""


def generate(seed: int = 1) -> dict[str, dict[str, Any]]:
    """All files' contents by operation, a pure function of ``seed``."""
    return {name: {"operation": name, "doc": doc, "cases": list(cases(_Draw(seed, name)))}
            for name, (doc, cases) in OPERATIONS.items()}


def write(folder: Path, seed: int = 1) -> list[Path]:
    """Write one JSON file per operation into ``folder``, which is made if need be; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, content in generate(seed).items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def _main() -> None:
    parser = argparse.ArgumentParser(description="Write JSON test vectors of every operation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for path in write(arguments.folder, arguments.seed):
        print(path)


if __name__ == "__main__":
    _main()
