"""Functions and methods of tensors in a traced graph, such as ``torch.relu`` and ``x.view``, to nodes."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from gradloom.host.frontends.import_graph import Op, refuse
from gradloom.host.frontends.torch_pools import POOLS, adaptive_pool
from gradloom.host.frontends.torch_rules import refusal
from gradloom.host.frontends.torch_writer import Shape, Writer
from gradloom.models.layers import Subsample

__all__ = ["read_function"]


def read_function(writer: Writer, node: fx.Node) -> None:
    """Write the node of a call of a function or method.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the machine has no such operation, or not with these arguments.
    """
    title = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    where = f"{'method' if node.op == 'call_method' else 'function'} {title!r} (node {node.name!r})"
    pool, read = next((pool for pool in POOLS if node.target in pool.functions), None), _READERS.get(_key(node))
    if pool is None and read is None:
        raise refuse(where, *refusal(str(title)))
    writer.shape_of_input(node, where)
    if pool is not None:
        settings = {key: writer.argument(node, position, key) for position, key in enumerate(pool.arguments, 1)}
        pool.read(writer, node, where, node.name, settings)
    elif read is not None:
        read(writer, node, where)


def _relu(writer: Writer, node: fx.Node, where: str) -> None:
    writer.emit(node, Op.RELU, where, node.name)


def _dropout(writer: Writer, node: fx.Node, where: str) -> None:
    writer.dropout(node, where, writer.argument(node, 1, "p", 0.5) if writer.argument(node, 2, "training", True) else 0)


def _mean(writer: Writer, node: fx.Node, where: str) -> None:
    dims = writer.argument(node, 1, "dim")
    dims = (dims,) if isinstance(dims, int) else tuple(dims or ())
    if sorted(dim % 4 for dim in dims) != [2, 3] or len(writer.shape_of_input(node, where)) != 3:
        raise refuse(where, "only the mean over rows and columns of a feature map is a layer", "write x.mean((2, 3))")
    adaptive_pool(writer, node, where, node.name, {"output_size": 1})


def _flatten(writer: Writer, node: fx.Node, where: str) -> None:
    writer.flatten(node, where)


def _same(writer: Writer, node: fx.Node, where: str) -> None:
    writer.emit(node, Op.SAME, where, node.name)


def _add(writer: Writer, node: fx.Node, where: str) -> None:
    sides = [node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("other")]
    shapes = [writer.values[side.name] if isinstance(side, fx.Node) else None for side in sides]
    maps = all(isinstance(shape, Shape) for shape in shapes) and shapes[0] == shapes[1]
    if not maps or writer.argument(node, 2, "alpha", 1) != 1:
        raise refuse(where, "only two feature maps of one shape are added", "give both sides the same shape")
    writer.emit(node, Op.ADD, where, node.name, inputs=tuple(str(side) for side in sides))


def _sliced(writer: Writer, node: fx.Node, where: str) -> None:
    """The shortcut of the CIFAR ResNets, ``x[:, :, ::2, ::2]``, usually in ``F.pad``; or ``x[:, :, 0, 0]`` of a pooled plane."""
    index = writer.argument(node, 1, "index")
    plain = isinstance(index, tuple) and all(part is None or isinstance(part, int | slice) for part in index)
    if plain and writer.shape_of_input(node, where)[1:] == (1, 1) and len(writer.values[node.name]) == 2:
        writer.flatten(node, where)
        return
    stride = _slice_stride(index)
    if stride is None:
        raise refuse(where, "only x[:, :, ::s, ::s] of a feature map is a layer (subsample)", "write the shortcut so")
    channels = writer.values[node.name][1]
    writer.emit(node, Subsample, where, node.name, {"out": channels, "stride": stride})


def _slice_stride(index: Any) -> int | None:
    whole = slice(None)
    if isinstance(index, tuple) and len(index) == 4 and index[:2] == (whole, whole):
        rows, columns = index[2:]
        if isinstance(rows, slice) and rows == columns and rows.start in (None, 0) and rows.stop is None:
            return rows.step or 1
    return None


def _pad(writer: Writer, node: fx.Node, where: str) -> None:
    pads = tuple(writer.argument(node, 1, "pad"))
    before, after = (pads[4], pads[5]) if len(pads) == 6 else (-1, 0)
    plain = writer.argument(node, 2, "mode", "constant") == "constant" and not writer.argument(node, 3, "value", 0)
    if not plain or any(pads[:4]) or before != 0 or after < 0:
        raise refuse(
            where,
            "only channels of zeros behind the source's are appended (subsample)",
            "write F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, MORE)), and pad planes in the convolution",
        )
    source = writer.source(node, where)
    sliced = next((found for found in writer.nodes if found.name == source.name and found.op is Subsample), None)
    settings = {"out": writer.values[node.name][1], "stride": 1}
    if sliced is None or len(source.users) > 1:
        writer.emit(node, Subsample, where, node.name, settings)
        return
    writer.nodes.remove(sliced)
    writer.emit(node, Subsample, where, node.name, settings | {"stride": sliced.settings["stride"]}, inputs=sliced.inputs)


def _key(node: fx.Node) -> str:
    """One name for a function in whatever place PyTorch keeps it; methods have a dot before."""
    if node.op == "call_method":
        return f".{node.target}"
    return next((name for name, functions in _FUNCTIONS.items() if node.target in functions), "")


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "relu": (torch.relu, torch.relu_, functional.relu, functional.relu_),
    "dropout": (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d, torch.dropout),
    "mean": (torch.mean,),
    "flatten": (torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze, torch.unflatten),
    "clone": (torch.clone,),
    "add": (operator.add, operator.iadd, torch.add),
    "getitem": (operator.getitem,),
    "pad": (functional.pad,),
}
_READERS: dict[str, Callable[[Writer, fx.Node, str], None]] = {
    "relu": _relu,
    ".relu": _relu,
    ".relu_": _relu,
    "dropout": _dropout,
    "mean": _mean,
    ".mean": _mean,
    "flatten": _flatten,
    ".flatten": _flatten,
    ".view": _flatten,
    ".reshape": _flatten,
    ".squeeze": _flatten,
    ".unsqueeze": _flatten,
    ".unflatten": _flatten,
    ".contiguous": _same,
    ".float": _same,
    ".clone": _same,
    "clone": _same,
    "add": _add,
    ".add": _add,
    ".add_": _add,
    "getitem": _sliced,
    "pad": _pad,
}
