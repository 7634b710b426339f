"""Everything that training changes; how it starts, is saved and comes back."""

import dataclasses
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from gradloom.models.arithmetic import dither, linear
from gradloom.models.atomic import write_with
from gradloom.models.formats import Update
from gradloom.models.layers import Conv, FullyConnected, Kind, Subsample
from gradloom.models.network import Network
from gradloom.models.rounding import NEAREST_F, Rounding, parse_rounding

__all__ = ["GAMMA_ONE", "WIDE_FRACTION", "State", "StateError", "delayed_kinds", "full_range_weights", "wide_weights"]

GAMMA_ONE = 1 << 24
"""1.0 as a parameter master (Q.24)."""
WIDE_FRACTION = 44
"""Fraction bits of initial weights before their encoding."""
_INITIAL_STEP = 0xFFFFFFFF
"""The step number in the seeds of the initial weights, one that no training step has."""
_EXPONENT_FLOOR, _EXPONENT_TOP = -64, 127
_MASTER_LIMIT = 1 << 27
"""Masters are clamped to 28 bits."""
_DAMAGED = (OSError, ValueError, TypeError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise on files that are no archive, damaged, encrypted or larger than the memory."""


class StateError(ValueError):
    """A saved state that cannot be used; the message names the file, the array and the fix."""


def _uniform(seed: int, tid: int, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Odd integers between -2^24 and 2^24, uniform: 2 h + 1 - 2^24, h the 24-bit hash of (seed, 2^32 - 1, tensor, index)."""
    index = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    hashed = np.asarray(dither.hash24(dither.tensor_seed(seed, _INITIAL_STEP, tid), index), dtype=np.int64)
    return 2 * hashed + 1 - (1 << 24)


def wide_weights(seed: int, tid: int, shape: tuple[int, int, int, int], *, gain: int) -> np.ndarray:
    """Uniform weights in +-sqrt(gain / fan-in) (He's bound for gain 6, LeCun's for 3; 1 for logits).

    Integers all the way: (2 h + 1 - 2^24) * floor(2^20 sqrt(gain / fan-in)), exponent -44.

    Parameters
    ----------
    seed : run seed
    tid : number of the weights' tensor
    shape : (M, C, Ky, Kx)

    Returns
    -------
    int64 array of ``shape``
    """
    return _uniform(seed, tid, shape) * math.isqrt((gain << 40) // math.prod(shape[1:]))


def full_range_weights(seed: int, tid: int, shape: tuple[int, int, int, int]) -> tuple[np.ndarray, int]:
    """Codes of weights in -127..127, uniform, and their exponent -7 - a_shift (DarkFPGA, sections 3.2.1 and 3.2.2).

    ``a_shift = max(ceil(log2(1 / sqrt(6 / fan-in))), 0)``, by which activations are divided, is part of the weights'
    exponent: W ~ U(-1, 1) then stands for weights within He's bound (docs/formats.md).
    """
    a_shift = 0
    # 2^a_shift >= sqrt(fan-in / 6), in integers.
    while 6 << (2 * a_shift) < math.prod(shape[1:]):
        a_shift += 1
    values = np.clip(_uniform(seed, tid, shape) >> 17, -127, 127)
    return linear.code_of(values, 8), -7 - a_shift


@dataclasses.dataclass
class State:
    """State of a training run between two steps.

    Attributes
    ----------
    weights, velocities : dict of uint8 arrays (M, C, Ky, Kx)
        PINT(8, 3) codes by layer name.
    parameters, parameter_velocities : dict of dict of int32 arrays (M,)
        Q.24 masters and velocities by layer name and "gamma", "beta", "tau" (a bias is a beta).
    exponents : dict of int
        By tensor number: all that the network uses, among them the input's (2) and the loss gradient's.
    step : :class:`int`
        Steps done.
    seed : :class:`int`
        Run seed, 32 bits.
    calibrated : :class:`bool`
        Whether the exponents of features and errors have been set; the first step does it.
    rounding : :class:`Rounding`
        That of the network which this is a state of, so that a saved state tells how it came about.
    format : :class:`str`
        Its number format. In others than pint8 weights have the format's codes, and int8-shift has no velocities; in fp32
        weights, velocities and parameters are float32.
    masters : dict of int32 arrays
        Q.24 weights by layer name, in formats that have them; velocities are then int32 Q.24, too.
    rests : dict of uint8 arrays
        What rounding left of the weights, by layer name, where weights are rounded with error feedback.
    averages : dict of int64 arrays
        Sums of ``averaged`` weights and parameters, Q.24, by path (:mod:`~gradloom.models.golden.averaging`).
    """

    weights: dict[str, np.ndarray]
    velocities: dict[str, np.ndarray]
    parameters: dict[str, dict[str, np.ndarray]]
    parameter_velocities: dict[str, dict[str, np.ndarray]]
    exponents: dict[int, int]
    step: int
    seed: int
    calibrated: bool
    rounding: Rounding
    format: str = "pint8"
    masters: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    averages: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    averaged: int = 0
    rests: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def weight_tables(self) -> dict[str, dict[str, np.ndarray]]:
        """What a step updates of the weights, by tensor and layer; a table without a layer has nothing of it."""
        return {"w": self.weights, "v": self.velocities, "master": self.masters, "rest": self.rests}

    @classmethod
    def initial(cls, net: Network, seed: int, input_exponent: int) -> "State":
        """State before the first step: hashed weights, velocities 0, gamma 1, beta and tau 0.

        The velocities' exponent starts at the weights' minus 4; features and errors start at 0, calibration
        sets them.
        """
        state = cls({}, {}, {}, {}, {Kind.Z: input_exponent}, 0, seed, False, net.rounding, net.format)
        for layer in net.layers:
            for kind in delayed_kinds(net, layer.name):
                state.exponents[net.tid(layer.name, kind)] = 0
        for layer in net.weighted:
            shape = net.weight_shape(layer.name)
            exponent = state._begin(net, layer, shape)
            for kind, value in ((Kind.W, exponent), (Kind.W_NEXT, exponent)):
                state.exponents[net.tid(layer.name, kind)] = value
            for kind in (Kind.V, Kind.V_NEXT):
                state.exponents[net.tid(layer.name, kind)] = max(_EXPONENT_FLOOR, exponent - 4)
            names = net.parameters(layer.name)
            one, kind_of = (1, np.float32) if net.arithmetic.real else (GAMMA_ONE, np.int32)
            state.parameters[layer.name] = {
                name: np.full(shape[0], one if name == "gamma" else 0, kind_of) for name in names
            }
            state.parameter_velocities[layer.name] = {name: np.zeros(shape[0], kind_of) for name in names}
        state.exponents[net.tid(net.logits.name, Kind.DZ)] = net.error_exponent
        state.exponents = dict(sorted(state.exponents.items()))
        return state

    def _begin(self, net: Network, layer: Conv | FullyConnected, shape: tuple[int, int, int, int]) -> int:
        """First weights of a layer, and what its updates need; the weights' exponent."""
        name, form, tid = layer.name, net.arithmetic, net.tid(layer.name, Kind.W)
        if form.update is Update.SHIFT:
            self.weights[name], exponent = full_range_weights(self.seed, tid, shape)
            return exponent
        # Small first logits keep the first errors, which the whole network's scales follow, small.
        gain = 1 if name == net.logits.name else 3 if layer.act == "none" else 6
        wide = wide_weights(self.seed, tid, shape, gain=gain)
        if form.update is Update.REAL:
            self.weights[name] = np.ldexp(wide.astype(np.float64), -WIDE_FRACTION).astype(np.float32)
            self.velocities[name] = np.zeros(shape, np.float32)
            return 0
        shift = int(np.abs(wide).max()).bit_length() - form.operand.value_bits
        self.weights[name] = form.operand.encode(wide, shift, NEAREST_F, None, per_image=False).code
        if form.update is Update.MASTER:
            self.masters[name] = (wide >> (WIDE_FRACTION - 24)).astype(np.int32)
            self.velocities[name] = np.zeros(shape, np.int32)
        else:
            self.velocities[name] = np.zeros(shape, np.uint8)
        if net.rounding.keeps_rests:
            self.rests[name] = np.zeros(shape, np.uint8)
        return max(_EXPONENT_FLOOR, shift - WIDE_FRACTION)

    def copy(self) -> "State":
        """An independent copy."""
        return State(
            {name: array.copy() for name, array in self.weights.items()},
            {name: array.copy() for name, array in self.velocities.items()},
            {name: {key: a.copy() for key, a in table.items()} for name, table in self.parameters.items()},
            {
                name: {key: a.copy() for key, a in table.items()}
                for name, table in self.parameter_velocities.items()
            },
            dict(self.exponents),
            self.step,
            self.seed,
            self.calibrated,
            self.rounding,
            self.format,
            {name: array.copy() for name, array in self.masters.items()},
            {path: total.copy() for path, total in self.averages.items()},
            self.averaged,
            {name: array.copy() for name, array in self.rests.items()},
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of the state by a path: ``weights/LAYER``, ``parameters/LAYER/gamma``, ..."""
        found = {f"weights/{name}": array for name, array in self.weights.items()}
        found |= {f"velocities/{name}": array for name, array in self.velocities.items()}
        found |= {f"masters/{name}": array for name, array in self.masters.items()}
        found |= {f"rests/{name}": array for name, array in self.rests.items()}
        found |= {f"averages/{path}": total for path, total in self.averages.items()}
        for title, tables in (
            ("parameters", self.parameters),
            ("parameter_velocities", self.parameter_velocities),
        ):
            for name, table in tables.items():
                found |= {f"{title}/{name}/{key}": array for key, array in table.items()}
        return found

    def save(self, path: Path | str) -> None:
        """Write an ``.npz`` file; it appears whole or not at all."""
        arrays = self.arrays()
        arrays["exponents"] = np.array(sorted(self.exponents.items()), np.int64).reshape(-1, 2)
        arrays["step"] = np.array(self.step, np.int64)
        arrays["seed"] = np.array(self.seed, np.int64)
        arrays["calibrated"] = np.array(self.calibrated, np.bool_)
        arrays["averaged"] = np.array(self.averaged, np.int64)
        arrays["format"] = np.frombuffer(self.format.encode(), np.uint8)
        arrays["rounding"] = np.frombuffer(str(self.rounding).encode(), np.uint8)
        write_with(Path(path), lambda stream: np.savez(stream, **cast(Any, arrays)))

    @classmethod
    def load(cls, path: Path | str, net: Network) -> "State":
        """Read a state that :meth:`save` wrote for ``net``. Its rounding may be another one: rests that the file has not are 0, and
        those that the network does not want are left out.

        Raises
        ------
        :exc:`StateError`
            If the file is missing or damaged or belongs to another network.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files}
        except _DAMAGED as error:
            raise StateError(f"{path} cannot be read as a saved state: {error}") from None
        state = cls.initial(net, 0, 0)
        text, form = arrays.pop("rounding", None), arrays.pop("format", None)
        if form is None:
            raise StateError(f"{path} has no array 'format': it is not a state of network {net.name!r}")
        if bytes(form) != net.format.encode():
            raise StateError(f"{path} is a state of the format {bytes(form).decode(errors='replace')}, network {net.name!r} has "
                             f"{net.format}: give --format or a state of this format")
        rounding = _saved_rounding(path, text)
        rests = {name: np.zeros(array.shape, np.uint8) for name, array in state.weights.items()}
        state.rests = rests if rounding.keeps_rests else {}
        expected = state.arrays()
        if int(arrays.get("averaged", np.zeros((), np.int64))):
            state.averages = _no_averages(state)
            expected = state.arrays()
        expected |= {
            "exponents": np.zeros((len(state.exponents), 2), np.int64),
            "step": np.array(0, np.int64),
            "averaged": np.array(0, np.int64),
            "seed": np.array(0, np.int64),
            "calibrated": np.array(False),
        }
        for key, array in expected.items():
            if key not in arrays:
                raise StateError(f"{path} has no array {key!r}: it is not a state of network {net.name!r}")
            if arrays[key].shape != array.shape or arrays[key].dtype != array.dtype:
                raise StateError(
                    f"{path}: {key} is {arrays[key].dtype} of shape {arrays[key].shape}, network "
                    f"{net.name!r} needs {array.dtype} of shape {array.shape}: give a state of this network"
                )
        extra = sorted(set(arrays) - set(expected))
        if extra:
            raise StateError(
                f"{path} has an array {extra[0]!r} that network {net.name!r} does not: give a state of this "
                "network"
            )
        exponents = {int(tid): int(e) for tid, e in arrays["exponents"]}
        if set(exponents) != set(state.exponents):
            raise StateError(
                f"{path}: its exponents are not those of network {net.name!r}: give a state of this network"
            )
        _check_ranges(path, arrays)
        for name in state.weights:
            state.weights[name] = arrays[f"weights/{name}"]
            for title, table in (("velocities", state.velocities), ("masters", state.masters), ("rests", state.rests)):
                if name in table:
                    table[name] = arrays[f"{title}/{name}"]
            for key in state.parameters[name]:
                state.parameters[name][key] = arrays[f"parameters/{name}/{key}"]
                state.parameter_velocities[name][key] = arrays[f"parameter_velocities/{name}/{key}"]
        state.rests = {name: state.rests.get(name, rest) for name, rest in rests.items()} if net.rounding.keeps_rests else {}
        state.averages = {path: arrays[f"averages/{path}"] for path in state.averages}
        state.averaged = int(arrays["averaged"])
        state.exponents = exponents
        state.step, state.seed = int(arrays["step"]), int(arrays["seed"])
        state.calibrated = bool(arrays["calibrated"])
        state.rounding = rounding
        return state


def _check_ranges(path: Path | str, arrays: dict[str, np.ndarray]) -> None:
    """Values that no run can have saved, which would only be noticed, or not, somewhere in a step."""
    exponents = arrays["exponents"][:, 1]
    if exponents.size and not _EXPONENT_FLOOR <= exponents.min() <= exponents.max() <= _EXPONENT_TOP:
        raise StateError(f"{path}: an exponent lies outside {_EXPONENT_FLOOR}..{_EXPONENT_TOP}: give a state that a run saved")
    if int(arrays["step"]) < 0 or not 0 <= int(arrays["seed"]) < 1 << 32:
        raise StateError(f"{path}: its step or its seed is none: give a state that a run saved")
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StateError(f"{path}: {key} holds values that are not finite: give a state of a run that did not diverge")
        clamped = key.startswith(("parameters/", "masters/")) and array.dtype.kind == "i" and array.size > 0
        if clamped and not -_MASTER_LIMIT <= int(array.min()) <= int(array.max()) < _MASTER_LIMIT:
            raise StateError(f"{path}: {key} leaves the 28 bits of a parameter: give a state that a run saved")


def _no_averages(state: State) -> dict[str, np.ndarray]:
    """Sums of nothing, of every path that :func:`gradloom.models.golden.averaging.accumulate` fills."""
    found = {f"weights/{name}": np.zeros(array.shape, np.int64) for name, array in state.weights.items()}
    for name, table in state.parameters.items():
        found |= {f"parameters/{name}/{key}": np.zeros(array.shape, np.int64) for key, array in table.items()}
    return found


def _saved_rounding(path: Path | str, text: np.ndarray | None) -> Rounding:
    if text is None:
        raise StateError(f"{path} has no array 'rounding': give a state that this version saved")
    try:
        return Rounding(**parse_rounding(bytes(text).decode()))
    except ValueError as error:
        raise StateError(f"{path}: its rounding cannot be read: {error}") from None


def delayed_kinds(net: Network, name: str) -> tuple[Kind, ...]:
    """Kinds of a layer's features and errors whose exponent follows from the previous step."""
    if name == net.logits.name:
        return (Kind.DS,) if net.sends_ds(name) else ()
    if isinstance(net.layer(name), Subsample):
        return ()
    kinds = [Kind.Z]
    if net.needs_error(name):
        kinds.append(Kind.DZ)
    if getattr(net.layer(name), "norm", None) == "frn":
        kinds.append(Kind.DX)
    if net.sends_ds(name):
        kinds.append(Kind.DS)
    return tuple(kinds)
