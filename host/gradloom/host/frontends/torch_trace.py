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
from gradloom.host.frontends.torch_checks import Parameters, check_call, check_global_hooks, check_values, where_of
from gradloom.host.frontends.torch_functions import read_function
from gradloom.host.frontends.torch_given import check_given, check_input_shape, check_wrappers
from gradloom.host.frontends.torch_layers import LayerReader, kind_of
from gradloom.host.frontends.torch_writer import BATCH, Shape, Writer

__all__ = ["Trace", "trace"]

_TOLERANCE = 2.0**-6
"""Share of the largest logit by which a module that computes partly in bfloat16 (autocast) may differ from its trace."""


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
    """Keeps subclasses whole that only change how a supported module is made, and refuses modules with code around them."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return kind_of(m) is not None or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            name = self.path_of_module(m)
        except NameError:
            raise UserError(f"module {type(self.root).__name__} calls a {type(m).__name__} that is none of its submodules: keep it "
                            "in an attribute of its own or in an nn.ModuleList") from None
        check_call(name, m)
        return super().call_module(m, forward, args, kwargs)

    def create_proxy(self, kind: str, target: fx.node.Target, args: tuple[Any, ...], kwargs: dict[str, Any],
                     *rest: Any, **more: Any) -> fx.Proxy:
        if kind == "call_method" and target in ("register_hook", "retain_grad"):
            raise refuse(f"method {target!r}", "it hangs on the backward pass, which runs on the machine",
                         "remove it, tensors() of a compiled model gives the errors")
        return super().create_proxy(kind, target, args, kwargs, *rest, **more)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta["frozen"] = not torch.is_grad_enabled()
        return node


def trace(module: nn.Module, input_shape: tuple[int, ...]) -> Trace:
    """Trace a module for images of ``input_shape``: (channels, rows, columns), or (features,).

    Raises
    ------
    :exc:`UserError`
        If it cannot be traced or does not take such images, holds an operation that the machine does not have, or computes
        something else than the modules and functions that it calls.
    """
    check_given(module)
    shape = check_input_shape(input_shape)
    with torch.inference_mode(False), torch.enable_grad():
        copied = _copy(module)
        try:
            root = fx.GraphModule(copied, _Tracer().trace(copied), type(module).__name__)
        except UserError:
            raise
        except Exception as error:  # the module's own code runs here
            raise UserError(
                f"module {type(module).__name__} cannot be traced ({_first_line(error)}): its forward must not depend on values of "
                "tensors, write it with modules and torch functions"
            ) from None
    root.eval()
    found = _read(root, Parameters(module), _run(root, shape), shape)
    _check_same(copied.eval(), root, shape)
    return Trace(root, found)


def _copy(module: nn.Module) -> nn.Module:
    """A float32 copy on the CPU in training mode."""
    check_wrappers(module)
    check_values(module)
    check_global_hooks()
    check_call("", module)
    if kind_of(module) is not None:
        raise UserError(f"module {type(module).__name__} is a single layer and no network: put it into one, nn.Sequential(module)")
    try:
        return copy.deepcopy(module).to("cpu", torch.float32).train()
    except Exception as error:  # whatever an attribute of the module raises
        for name, inner in module.named_modules():
            check_call(name, inner)
        raise UserError(f"module {type(module).__name__} cannot be copied ({_first_line(error)}): keep what cannot be copied "
                        "outside of it") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_same(module: nn.Module, root: fx.GraphModule, shape: tuple[int, ...]) -> None:
    """The graph computes what the module computes: in-place changes and whatever else a trace does not see are found here."""
    images = torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, got = module(images.clone()), root(images.clone())
    finite = torch.isfinite(expected) & torch.isfinite(got)
    peak = float(expected[finite].abs().max()) if finite.any() else 0.0
    if expected.shape != got.shape or float((expected - got)[finite].abs().amax() if finite.any() else 0.0) > _TOLERANCE * peak:
        raise UserError(f"module {type(root).__name__} computes something else than the modules and functions that its forward "
                        "calls: look for a tensor that is changed in place (x += y) and read again under another name")


class _Recorder(fx.Interpreter):
    """Keeps the shape of every tensor and every other value."""

    def __init__(self, root: fx.GraphModule) -> None:
        super().__init__(root)
        self.values: dict[str, Any] = {}
        self._current: fx.Node | None = None

    def at(self) -> str:
        """The module that was called last, as the end of a sentence."""
        node = self._current
        return f" (in module {str(node.target)!r})" if node is not None and node.op == "call_module" else ""

    def run_node(self, n: fx.Node) -> Any:
        self._current = n
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
            f"module {type(root).__name__} does not take images of {' x '.join(map(str, shape))} "
            f"({'channels, rows, columns' if len(shape) == 3 else 'features'}): {_first_line(error)}{recorder.at()}"
        ) from None
    return recorder.values


def _read(root: fx.GraphModule, parameters: Parameters, values: dict[str, Any], shape: tuple[int, ...]) -> Graph:
    writer = Writer(values)
    layers = LayerReader(root, parameters, writer)
    source = output = ""
    used = _used(root.graph)
    for node in root.graph.nodes:
        if node not in used and node.op != "placeholder":
            _check_unused(node, layers.modules)
        elif node.meta["frozen"] and node.op.startswith("call") and isinstance(values[node.name], Shape):
            raise refuse(_where(node, layers.modules), "it runs under torch.no_grad(), and the machine trains every layer",
                         "let it run outside")
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
    planes = (shape[0], shape[1], shape[2]) if len(shape) == 3 else (shape[0], 1, 1)
    return Graph(tuple(writer.nodes), source, output, planes, shapes=writer.shapes, flat=len(shape) == 1,
                 notes=tuple(writer.notes))


def _where(node: fx.Node, modules: dict[str, nn.Module]) -> str:
    if node.op == "call_module":
        return where_of(str(node.target), modules[str(node.target)])
    return f"node {node.name!r}"


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
