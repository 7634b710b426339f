"""Everything that training changes; how it starts, is saved and comes back."""

import dataclasses
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np

from gradloom.models import dither, pint
from gradloom.models.atomic import write_with
from gradloom.models.layers import Kind, Subsample
from gradloom.models.network import Network
from gradloom.models.rounding import Rounding, parse_rounding

__all__ = ["GAMMA_ONE", "State", "StateError", "delayed_kinds", "initial_weights"]

GAMMA_ONE = 1 << 24
"""1.0 as a parameter master (Q.24)."""
_INITIAL_STEP = 0xFFFFFFFF
"""The step number in the seeds of the initial weights, one that no training step has."""
_EXPONENT_FLOOR = -64
_DAMAGED = (OSError, ValueError, TypeError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise on files that are no archive, damaged, encrypted or larger than the memory."""


class StateError(ValueError):
    """A saved state that cannot be used; the message names the file, the array and the fix."""


def initial_weights(
    seed: int, tid: int, shape: tuple[int, int, int, int], *, gain: int
) -> tuple[np.ndarray, int]:
    """Uniform weights in +-sqrt(gain / fan-in) (He's bound for gain 6, LeCun's for 3; 1 for logits).

    Integers all the way: h = 24-bit hash of (seed, step 2^32 - 1, tensor, OIHW index); the weight is
    (2 h + 1 - 2^24) * floor(2^20 sqrt(gain / fan-in)) * 2^-44, encoded to nearest at the exponent that
    brings the largest magnitude into [2048, 4095].

    Parameters
    ----------
    seed : run seed
    tid : number of the weights' tensor
    shape : (M, C, Ky, Kx)

    Returns
    -------
    codes : uint8 array of ``shape``
    exponent : :class:`int`
    """
    fan_in = shape[1] * shape[2] * shape[3]
    bound = math.isqrt((gain << 40) // fan_in)
    index = np.arange(math.prod(shape), dtype=np.int64)
    hashed = np.asarray(dither.hash24(dither.tensor_seed(seed, _INITIAL_STEP, tid), index), dtype=np.int64)
    wide = (2 * hashed + 1 - (1 << 24)) * bound
    shift = int(np.abs(wide).max()).bit_length() - 12
    return pint.encode(wide, shift).code.reshape(shape), max(_EXPONENT_FLOOR, shift - 44)


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

    @classmethod
    def initial(cls, net: Network, seed: int, input_exponent: int) -> "State":
        """State before the first step: hashed weights, velocities 0, gamma 1, beta and tau 0.

        The velocities' exponent starts at the weights' minus 4; features and errors start at 0, calibration
        sets them.
        """
        state = cls({}, {}, {}, {}, {Kind.Z: input_exponent}, 0, seed, False, net.rounding)
        for layer in net.layers:
            for kind in delayed_kinds(net, layer.name):
                state.exponents[net.tid(layer.name, kind)] = 0
        for layer in net.weighted:
            shape = net.weight_shape(layer.name)
            # Small first logits keep the first errors, which the whole network's scales follow, small.
            gain = 1 if layer.name == net.logits.name else 3 if layer.act == "none" else 6
            codes, exponent = initial_weights(seed, net.tid(layer.name, Kind.W), shape, gain=gain)
            state.weights[layer.name] = codes
            state.velocities[layer.name] = np.zeros(shape, np.uint8)
            for kind, value in ((Kind.W, exponent), (Kind.W_NEXT, exponent)):
                state.exponents[net.tid(layer.name, kind)] = value
            for kind in (Kind.V, Kind.V_NEXT):
                state.exponents[net.tid(layer.name, kind)] = max(_EXPONENT_FLOOR, exponent - 4)
            names = net.parameters(layer.name)
            state.parameters[layer.name] = {
                name: np.full(shape[0], GAMMA_ONE if name == "gamma" else 0, np.int32) for name in names
            }
            state.parameter_velocities[layer.name] = {name: np.zeros(shape[0], np.int32) for name in names}
        state.exponents[net.tid(net.logits.name, Kind.DZ)] = net.error_exponent
        state.exponents = dict(sorted(state.exponents.items()))
        return state

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
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of the state by a path: ``weights/LAYER``, ``parameters/LAYER/gamma``, ..."""
        found = {f"weights/{name}": array for name, array in self.weights.items()}
        found |= {f"velocities/{name}": array for name, array in self.velocities.items()}
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
        arrays["rounding"] = np.frombuffer(str(self.rounding).encode(), np.uint8)
        write_with(Path(path), lambda stream: np.savez(stream, **cast(Any, arrays)))

    @classmethod
    def load(cls, path: Path | str, net: Network) -> "State":
        """Read a state that :meth:`save` wrote for ``net``.

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
        text = arrays.pop("rounding", None)
        expected = state.arrays()
        expected |= {
            "exponents": np.zeros((len(state.exponents), 2), np.int64),
            "step": np.array(0, np.int64),
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
        for name in state.weights:
            state.weights[name] = arrays[f"weights/{name}"]
            state.velocities[name] = arrays[f"velocities/{name}"]
            for key in state.parameters[name]:
                state.parameters[name][key] = arrays[f"parameters/{name}/{key}"]
                state.parameter_velocities[name][key] = arrays[f"parameter_velocities/{name}/{key}"]
        state.exponents = exponents
        state.step, state.seed = int(arrays["step"]), int(arrays["seed"])
        state.calibrated = bool(arrays["calibrated"])
        state.rounding = _saved_rounding(path, text)
        return state


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
