"""The nodes that a traced PyTorch module becomes, and rules of what PyTorch has both as a module and as a function."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import fx

from gradloom.host.frontends.import_graph import Node, Op, bias_vector, expanded, features, refuse
from gradloom.models.layers import Layer

__all__ = ["BATCH", "Shape", "Writer"]

BATCH = 2
"""Images of the run on zeros that gives the values."""


class Shape(tuple[int, ...]):
    """Shape of a tensor, as distinct from a tuple that the module computes."""


class Writer:
    """Writes nodes of a :class:`~gradloom.host.frontends.import_graph.Graph` for those of a traced graph.

    ``where`` is what messages call a traced node, ``layer`` the name that its layer shall have. All methods raise
    :exc:`~gradloom.host.files.UserError` for what the machine does not have.

    Parameters
    ----------
    values : dict
        By name of a traced node: the :class:`Shape` of a tensor for :data:`BATCH` images, any other value itself.

    Attributes
    ----------
    nodes : list of :class:`~gradloom.host.frontends.import_graph.Node`
        Those written so far.
    shapes, notes
        Those of the :class:`~gradloom.host.frontends.import_graph.Graph`.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.nodes: list[Node] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.notes: list[str] = []

    def source(self, node: fx.Node, where: str) -> fx.Node:
        """The traced node whose output is the first argument of ``node``."""
        source = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(source, fx.Node) or not isinstance(self.values[source.name], Shape) or source.op == "get_attr":
            raise refuse(where, "its input is no output of a layer", "compute only from the network's input")
        return source

    def shape_of_input(self, node: fx.Node, where: str) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self.values[self.source(node, where).name][1:])

    def plane_of_input(self, node: fx.Node, where: str) -> tuple[int, int, int]:
        """Shape of one image, which must be a feature map."""
        shape = self.shape_of_input(node, where)
        if len(shape) != 3:
            raise refuse(where, "its input is no feature map", "give it (images, channels, rows, columns)")
        return shape[0], shape[1], shape[2]

    def argument(self, node: fx.Node, position: int, key: str, default: Any = None) -> Any:
        """An argument's value, whether it is given by its position or by its key."""
        value = node.args[position] if position < len(node.args) else node.kwargs.get(key, default)
        return fx.node.map_arg(value, lambda argument: self.values[argument.name])

    def emit(self, node: fx.Node, op: str | type[Layer], where: str, layer: str, settings: dict[str, Any] | None = None,
             arrays: dict[str, tuple[str, np.ndarray]] | None = None, inputs: tuple[str, ...] | None = None) -> None:
        """Write a :class:`~gradloom.host.frontends.import_graph.Node`; ``inputs`` is by default the :meth:`source` alone."""
        inputs = inputs or (self.source(node, where).name,)
        shape = tuple(self.values[node.name][1:])
        self.nodes.append(Node(node.name, op, where, layer, inputs, settings or {}, arrays or {}, shape))

    def linear(self, node: fx.Node, where: str, layer: str, arrays: dict[str, tuple[str, np.ndarray]]) -> None:
        """A fully connected layer; its bias may have any shape that means one number an output."""
        count = len(arrays["w"][1])
        if "bias" in arrays:
            name, value = arrays["bias"]
            arrays = arrays | {"bias": (name, bias_vector(where, name, value, count))}
            if value.size == count:
                self.shapes[name] = value.shape
            else:
                self.notes.append(expanded(where, name, count))
        self.emit(node, Op.LINEAR, where, layer, {"out": count}, arrays)

    def dropout(self, node: fx.Node, where: str, p: float) -> None:
        """Nothing, if its probability ``p`` is 0."""
        if p > 0:
            raise refuse(where, f"the machine has no dropout, and p is {p:g}", "set p to 0 or remove it")
        self.emit(node, Op.SAME, where, node.name)

    def flatten(self, node: fx.Node, where: str) -> None:
        """Nothing, if every image is flattened, keeps its shape, or gains or loses dimensions of 1 behind the others."""
        source = self.values[self.source(node, where).name]
        target = self.values[node.name]
        flat = target == (BATCH, int(np.prod(source[1:])))
        if not flat and (target[:1] != (BATCH,) or features(target[1:]) != features(source[1:])):
            raise refuse(
                where,
                f"it reshapes images of {_text(source[1:])} to {_text(target[1:])}",
                "only flattening each image is supported, as torch.flatten(x, 1) does",
            )
        self.emit(node, Op.SAME, where, node.name)


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
