"""PyTorch modules to :class:`~gradloom.host.frontends.import_graph.Graph`, by a symbolic trace that keeps modules whole.

The trace is made in training mode, which is what the machine runs; values that are not tensors (``x.size(0)``) come from
running the graph once on zeros. Each traced node that the output depends on is then read by
:mod:`~gradloom.host.frontends.torch_layers` or :mod:`~gradloom.host.frontends.torch_functions`.
"""

import copy
from typing import Any

import torch
from torch import fx, nn

from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import Graph, refuse
from gradloom.host.frontends.torch_functions import read_function
from gradloom.host.frontends.torch_layers import LayerReader, kind_of
from gradloom.host.frontends.torch_writer import BATCH, Shape, Writer

__all__ = ["Trace", "trace"]


class Trace:
    """A traced module.

    Parameters
    ----------
    root : :class:`torch.fx.GraphModule`
        A copy of the module; the nodes of its graph have the names of those of ``found``.
    found : :class:`~gradloom.host.frontends.import_graph.Graph`
    """

    def __init__(self, root: fx.GraphModule, found: Graph) -> None:
        self.root, self.found = root, found


class _Tracer(fx.Tracer):
    """Keeps subclasses whole that only change how a supported module is made."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return kind_of(m) is not None or super().is_leaf_module(m, module_qualified_name)


def trace(module: nn.Module, input_shape: tuple[int, int, int]) -> Trace:
    """Trace a module for images of ``input_shape`` (channels, rows, columns).

    Raises
    ------
    :exc:`UserError`
        If it cannot be traced or does not take such images, or holds an operation that the machine does not have.
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"{module!r} is no torch.nn.Module: give a module, or an ONNX model through gradloom.host.onnx")
    copied = copy.deepcopy(module).to("cpu", torch.float32).train()
    try:
        root = fx.GraphModule(copied, _Tracer().trace(copied), type(module).__name__)
    except Exception as error:  # the module's own code runs here
        raise UserError(
            f"module {type(module).__name__} cannot be traced ({_first_line(error)}): its forward must not depend on values of "
            "tensors, write it with modules and torch functions"
        ) from None
    root.eval()
    return Trace(root, _read(root, _run(root, input_shape), input_shape))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class _Recorder(fx.Interpreter):
    """Keeps the shape of every tensor and every other value."""

    def __init__(self, root: fx.GraphModule) -> None:
        super().__init__(root)
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        self.values[n.name] = Shape(result.shape) if isinstance(result, torch.Tensor) else result
        return result


def _run(root: fx.GraphModule, shape: tuple[int, ...]) -> dict[str, Any]:
    inputs = [node for node in root.graph.nodes if node.op == "placeholder"]
    if len([node for node in inputs if not node.args]) != 1:
        raise UserError(f"module {type(root).__name__} takes {len(inputs)} inputs: the machine takes one batch of images")
    recorder = _Recorder(root)
    try:
        with torch.no_grad():
            recorder.run(torch.zeros(BATCH, *shape))
    except Exception as error:  # torch's own complaint about shapes
        raise UserError(
            f"module {type(root).__name__} does not take images of {' x '.join(map(str, shape))} (channels, rows, columns): "
            f"{_first_line(error)}"
        ) from None
    return recorder.values


def _read(root: fx.GraphModule, values: dict[str, Any], shape: tuple[int, int, int]) -> Graph:
    writer = Writer(values)
    layers = LayerReader(root, writer)
    source = output = ""
    used = _used(root.graph)
    for node in root.graph.nodes:
        if node not in used and node.op != "placeholder":
            _check_unused(node, layers.modules)
        elif node.op == "placeholder":
            source = source or node.name
        elif node.op == "output":
            output = _output(root, node, values)
        elif node.op == "call_module":
            layers.read(node)
        elif node.op == "get_attr" or not isinstance(values[node.name], Shape):
            continue
        else:
            read_function(writer, node)
    return Graph(tuple(writer.nodes), source, output, shape)


def _used(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that the output depends on."""
    found: set[fx.Node] = set()
    waiting = [node for node in graph.nodes if node.op == "output"]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _check_unused(node: fx.Node, modules: dict[str, nn.Module]) -> None:
    module = modules.get(str(node.target)) if node.op == "call_module" else None
    in_place = node.kwargs.get("inplace") or getattr(module, "inplace", False)
    if in_place or str(node.target if isinstance(node.target, str) else node.name).endswith("_"):
        raise refuse(f"node {node.name!r}", "it changes a tensor in place and its result is not used", "assign its result")


def _output(root: fx.GraphModule, node: fx.Node, values: dict[str, Any]) -> str:
    value = node.args[0]
    if not isinstance(value, fx.Node) or not isinstance(values[value.name], Shape) or len(values[value.name]) != 2:
        raise UserError(f"module {type(root).__name__} does not return one tensor of logits (images, classes): return only that")
    return value.name
