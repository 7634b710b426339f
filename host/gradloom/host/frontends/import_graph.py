"""What a foreign network is reduced to before layers are made of it: operations in order, names, float arrays.

Front ends (:mod:`gradloom.host.frontends.torch_trace`, :mod:`gradloom.host.frontends.onnx_graph`) write a :class:`Graph`;
:func:`gradloom.host.frontends.import_fuse.fuse` reads it. Neither PyTorch nor ONNX is needed here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradloom.host.files import UserError
from gradloom.models.layers import AvgPool, GlobalAvgPool, Layer

__all__ = ["EPSILON", "Graph", "Node", "Op", "adaptive", "bias_vector", "expanded", "features", "pair", "refuse", "window"]

EPSILON = 2.0**-12
"""Added to the mean of |x| in L1-FRN (:data:`gradloom.models.floatref.EPSILON`)."""


class Op:
    """Operations of a :class:`Node` that are no layer without weights, and their settings.

    ``CONV``: out, kernel, stride, pad. ``LINEAR``: out. ``NORM``: BatchNorm2d or L1-FRN. ``RELU``. ``TLU``: maximum with
    tau. ``ADD``. ``SAME``: the input itself (identity, flatten).
    """

    CONV = "conv"
    LINEAR = "linear"
    NORM = "norm"
    RELU = "relu"
    TLU = "tlu"
    ADD = "add"
    SAME = "same"


@dataclasses.dataclass(frozen=True)
class Node:
    """One operation.

    Parameters
    ----------
    name : :class:`str`
        Unique in the graph.
    op : :class:`str` or class
        Of :class:`Op`, or the class of a layer without weights.
    where : :class:`str`
        What messages call it: ``module 'layer1.0.conv1' (Conv2d)``.
    layer : :class:`str`
        Name that its layer shall have.
    inputs : tuple of :class:`str`
        Nodes, or :attr:`Graph.input`.
    settings : dict
        See :class:`Op`; of a layer without weights its own keys.
    arrays : dict
        By "w", "bias", "gamma", "beta", "tau": the parameter's own name and its float64 value.
    shape : tuple of :class:`int`
        Of the result for one image, in the source.
    """

    name: str
    op: str | type[Layer]
    where: str
    layer: str
    inputs: tuple[str, ...]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    arrays: dict[str, tuple[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be computed; ``input`` and ``output`` are names of values.

    Parameters
    ----------
    transposed : set of :class:`str`
        Names of the matrices whose arrays in the nodes are (outputs, inputs), but (inputs, outputs) in the source.
    shapes : dict
        Shapes in the source of those parameters whose arrays in the nodes have another, with as many elements.
    flat : :class:`bool`
        The source takes (images, features) instead of planes; ``input_shape`` is (features, 1, 1) then.
    notes : tuple of :class:`str`
        A sentence for whatever the source says otherwise than the nodes.
    """

    nodes: tuple[Node, ...]
    input: str
    output: str
    input_shape: tuple[int, int, int]
    transposed: frozenset[str] = frozenset()
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    flat: bool = False
    notes: tuple[str, ...] = ()


def refuse(where: str, reason: str, fix: str) -> UserError:
    """The error for something that cannot be imported: what, why, and the nearest thing that can."""
    return UserError(f"{where}: {reason}: {fix}")


def features(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image with dimensions of 1 behind the others, so that there are three: features are (features, 1, 1)."""
    return shape + (1,) * (3 - len(shape))


def pair(value: Any) -> tuple[int, int]:
    """(rows, columns) of a setting that is one number or two."""
    if isinstance(value, tuple | list):
        first, second = value if len(value) == 2 else (value[0], value[0])
        return int(first), int(second)
    return int(value), int(value)


def bias_vector(where: str, name: str, value: np.ndarray, count: int) -> np.ndarray:
    """A bias of a fully connected layer, in any shape that broadcasts to the same ``count`` numbers for every image, as (count,).

    Raises
    ------
    :exc:`UserError`
        If it does not.
    """
    if value.ndim > 2 or value.shape[-1:] not in ((), (1,), (count,)) or value.shape[:-1] not in ((), (1,)):
        raise refuse(where, f"its bias {name!r} has the shape {value.shape}, the layer has {count} outputs",
                     f"give it the shape ({count},)")
    return np.broadcast_to(value.reshape(-1), (count,)).copy()


def window(where: str, kernel: Any, stride: Any, pad: Any) -> dict[str, int]:
    """Settings of a square window.

    Raises
    ------
    :exc:`UserError`
        If rows and columns are treated differently.
    """
    found = {}
    for key, value in (("kernel", kernel), ("stride", stride), ("pad", pad)):
        rows, columns = pair(value)
        if rows != columns:
            raise refuse(where, f"{key} is {rows} x {columns}, the machine's windows are square", f"make {key} equal both ways")
        found[key] = rows
    return found


def expanded(where: str, name: str, count: int) -> str:
    """The note that a bias of one number becomes one of ``count``."""
    return f"{where}: its bias {name!r} is one number for {count} outputs, and is trained as {count}"


def adaptive(
    where: str, shape: tuple[int, int, int], size: tuple[int | None, int | None]
) -> tuple[str | type[Layer], dict[str, int]]:
    """Operation and settings of an adaptive average pool to ``size`` of an input of ``shape``.

    Raises
    ------
    :exc:`UserError`
        If its windows are not all of one size.
    """
    rows, columns = shape[1:]
    to = (rows if size[0] is None else size[0], columns if size[1] is None else size[1])
    if to == (rows, columns):
        return Op.SAME, {}
    if to == (1, 1):
        return GlobalAvgPool, {}
    if rows % to[0] or columns % to[1] or rows // to[0] != columns // to[1]:
        raise refuse(
            where,
            f"{rows} x {columns} to {to[0]} x {to[1]} takes windows that overlap or differ in size",
            "choose an output size that divides the input's, or AdaptiveAvgPool2d(1)",
        )
    kernel = rows // to[0]
    return AvgPool, {"kernel": kernel, "stride": kernel, "pad": 0}
