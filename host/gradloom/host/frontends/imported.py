"""A network that came from PyTorch or ONNX: gradloom's network, the parameters' own names, and values both ways."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from gradloom.host.datasets.data import quantise
from gradloom.host.files import UserError
from gradloom.host.frontends.import_fuse import Fused, fuse
from gradloom.host.frontends.import_graph import Graph, features, refuse
from gradloom.models.arithmetic import pint
from gradloom.models.layers import Kind, Training, shape_text
from gradloom.models.network import Network
from gradloom.models.state import State

__all__ = ["Imported", "build", "real_weights"]

_LIMIT = 8.0
"""Bound of gamma, beta, tau and biases: int16 Q3.12 in the datapath."""
_LEAST = 2.0**-53
"""Least peak of a tensor whose exponent is not below the exponent file's floor of -64."""
_CODES = 254
"""Different values that a PINT tensor can hold."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """A network and how its parameters are called where it came from.

    Parameters
    ----------
    network : :class:`~gradloom.models.network.Network`
    names : dict
        Own names by (layer, "w" | "gamma" | "beta" | "tau"). A parameter without a name is not there; tau of L1-FRN is
        ``NORM.tau``.
    values : dict
        Float64 values by the same keys; matrices are (outputs, inputs).
    transposed : set of :class:`str`
        Own names of the matrices that are (inputs, outputs) in the source.
    norms : dict
        The norms by the front end's node names, each with the node of its activation or ``None``.
    notes : tuple of :class:`str`
        What the trained network does otherwise than the given one; a sentence each.
    shapes : dict
        Shapes in the source, by own names, of the parameters whose ``values`` have another with as many elements.
    flat : :class:`bool`
        The source takes (images, features); the network's input is (features, 1, 1).
    """

    network: Network
    names: Mapping[tuple[str, str], str]
    values: Mapping[tuple[str, str], np.ndarray]
    transposed: frozenset[str]
    norms: Mapping[str, str | None]
    notes: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    flat: bool = False

    def state(self, *, seed: int = 1, input_exponent: int = -11) -> State:
        """The state before the first step, with the given network's parameters in PINT and Q.24.

        A weight tensor's exponent brings its largest magnitude into [2048, 4095], as
        :meth:`~gradloom.models.state.State.initial` does; one that is exact in PINT already keeps its values.

        Raises
        ------
        :exc:`UserError`
            If a value cannot be represented.
        """
        net = self.network
        state = State.initial(net, seed, input_exponent)
        for layer in net.weighted:
            name = layer.name
            codes, exponent = _quantise(self.names[name, "w"], self.values[name, "w"])
            state.weights[name] = codes.reshape(net.weight_shape(name))
            for kind, value in ((Kind.W, exponent), (Kind.W_NEXT, exponent), (Kind.V, exponent - 4), (Kind.V_NEXT, exponent - 4)):
                state.exponents[net.tid(name, kind)] = max(-64, value)
            for key in net.parameters(name):
                if (name, key) in self.values:
                    state.parameters[name][key] = _masters(self.names[name, key], self.values[name, key])
        return state

    def arrays(self, state: State) -> dict[str, np.ndarray]:
        """A state's parameters in float32 by their own names and in their own shapes.

        Weights are exact; the 28 bits of gamma, beta, tau and biases are rounded to the 24 of float32.
        """
        found = {}
        for (layer, key), own in self.names.items():
            value = real_weights(self.network, state, layer) if key == "w" else np.ldexp(
                state.parameters[layer][key].astype(np.float64), -24
            )
            value = value.reshape(self.values[layer, key].shape).astype(np.float32)
            value = np.ascontiguousarray(value.T) if own in self.transposed else value
            found[own] = value.reshape(self.shapes.get(own, value.shape))
        return found


def build(graph: Graph, name: str, classes: int | None, loss: str, train: Training | None) -> Imported:
    """The network of a graph.

    Raises
    ------
    :exc:`UserError`, :exc:`~gradloom.models.network.NetworkError`
        If the machine cannot train it.
    """
    fused = fuse(graph)
    last = fused.parameters[fused.layers[-1].name, "w"][1]
    network = Network(name, graph.input_shape, len(last) if classes is None else classes, fused.layers, loss, train or Training())
    _check_shapes(network, fused)
    return Imported(
        network,
        {key: own for key, (own, _) in fused.parameters.items()},
        {key: value for key, (_, value) in fused.parameters.items()},
        graph.transposed,
        fused.norms,
        (*_notes(graph, fused), *graph.notes),
        graph.shapes,
        graph.flat,
    )


def _check_shapes(network: Network, fused: Fused) -> None:
    """Every result and parameter has the shape that its layer gives it: nothing that is read wrongly may reach a device."""
    for layer, node in zip(network.layers, fused.nodes, strict=True):
        shape = network.shape(layer.name)
        if features(node.shape) != shape:
            raise refuse(node.where, f"its result is {shape_text(node.shape)}, as a layer of the machine's it would be "
                         f"{shape_text(shape)}", "give it features of the layer before as they are")
    for (owner, key), (name, value) in fused.parameters.items():
        outputs, *window = network.weight_shape(owner)
        wanted = (outputs, *window) if key == "w" else (outputs,)
        if value.shape not in (wanted, (outputs, int(np.prod(window)))):
            raise UserError(f"layer {owner!r}: parameter {name!r} has the shape {value.shape}, the layer needs {wanted}: give it "
                            "that shape")


def real_weights(net: Network, state: State, layer: str) -> np.ndarray:
    """Weights of a layer as real numbers, float64 (M, C, Ky, Kx)."""
    return np.ldexp(pint.decode(state.weights[layer]).astype(np.float64), state.exponents[net.tid(layer, Kind.W)])


def _notes(graph: Graph, fused: Fused) -> tuple[str, ...]:
    batch = [node for node in graph.nodes if node.name in fused.norms and not node.settings.get("exact")]
    if not batch:
        return ()
    note = (
        f"BatchNorm2d is replaced by L1-FRN with a trained threshold (TLU, it takes the ReLU's place) in {len(batch)} places: "
        "weight and bias start as they are, running statistics are not used"
    )
    if fused.dropped:
        note += f", and the bias of {len(fused.dropped)} convolutions falls away, which BatchNorm2d would cancel"
    return (note,)


def _quantise(name: str, value: np.ndarray) -> tuple[np.ndarray, int]:
    peak = float(np.abs(value).max())
    if not np.isfinite(peak) or peak >= 2.0**60 or 0 < peak < _LEAST:
        raise UserError(f"parameter {name!r}: its largest magnitude is {peak:g}, it must lie in 2^-53..2^60: initialise it anew")
    codes, exponent = quantise(value)
    if len(np.unique(value)) <= _CODES:
        # Trained weights come back: their exponent need not be the one that their peak suggests.
        for trial in range(exponent - 1, exponent + 13):
            wide = np.ldexp(value, -trial)
            exact = pint.encode(np.rint(np.clip(wide, -(2.0**40), 2.0**40)).astype(np.int64), 0)
            if trial >= -64 and np.array_equal(exact.value, wide):
                return exact.code, trial
    return codes, exponent


def _masters(name: str, value: np.ndarray) -> np.ndarray:
    if not np.isfinite(value).all() or np.abs(value).max() > _LIMIT:
        worst = value[np.argmax(~np.isfinite(value) | (np.abs(value) == np.abs(value).max()))]
        raise UserError(f"parameter {name!r}: it holds {worst:g}, the machine's range is -8..8: initialise it anew")
    return np.clip(np.rint(np.ldexp(value, 24)), -(2**27), 2**27 - 1).astype(np.int32)
