"""PyTorch modules to :class:`~gradloom.host.import_graph.Graph`, by a symbolic trace that keeps modules whole.

The trace is made in training mode, which is what the machine runs; values that are not tensors (``x.size(0)``) come from
running the graph once on zeros.
"""

import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from gradloom.host.files import UserError
from gradloom.host.import_graph import EPSILON, Graph, Node, Op, adaptive, pair, refuse, window
from gradloom.host.torch_rules import refusal

__all__ = ["FRN", "Trace", "trace"]

_BATCH = 2
"""Images of the run on zeros."""
_MODULES = (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten,
            nn.Identity, nn.Dropout, nn.Dropout2d)


class FRN(nn.Module):
    """L1 filter response normalisation, what the machine trains in place of BatchNorm2d (ETA, section III-C).

    ``weight * x / (mean |x| + 2^-12) + bias``, the mean over the plane of each image and channel. ``tau`` is the threshold
    of the TLU that follows the sum with a residual; :func:`gradloom.host.torch.replace_norms` applies it.
    """

    def __init__(self, channels: int, *, threshold: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        if threshold:
            self.tau = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().mean((2, 3), keepdim=True) + EPSILON
        return self.weight[:, None, None] * (x / scale) + self.bias[:, None, None]


class Trace:
    """A traced module.

    Parameters
    ----------
    root : :class:`torch.fx.GraphModule`
        A copy of the module; the nodes of its graph have the names of those of ``found``.
    found : :class:`~gradloom.host.import_graph.Graph`
    """

    def __init__(self, root: fx.GraphModule, found: Graph) -> None:
        self.root, self.found = root, found


class _Tracer(fx.Tracer):
    """Keeps subclasses whole that only change how a supported module is made."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _kind(m) is not None or super().is_leaf_module(m, module_qualified_name)


def _kind(module: nn.Module) -> type[nn.Module] | None:
    return next((cls for cls in _MODULES if isinstance(module, cls) and type(module).forward is cls.forward), None)


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
    return Trace(root, _Reader(root, _run(root, input_shape), input_shape).read())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class _Shape(tuple[int, ...]):
    """Shape of a tensor, as distinct from a tuple that the module computes."""


class _Recorder(fx.Interpreter):
    """Keeps the shape of every tensor and every other value."""

    def __init__(self, root: fx.GraphModule) -> None:
        super().__init__(root)
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        self.values[n.name] = _Shape(result.shape) if isinstance(result, torch.Tensor) else result
        return result


def _run(root: fx.GraphModule, shape: tuple[int, ...]) -> dict[str, Any]:
    inputs = [node for node in root.graph.nodes if node.op == "placeholder"]
    if len([node for node in inputs if not node.args]) != 1:
        raise UserError(f"module {type(root).__name__} takes {len(inputs)} inputs: the machine takes one batch of images")
    recorder = _Recorder(root)
    try:
        with torch.no_grad():
            recorder.run(torch.zeros(_BATCH, *shape))
    except Exception as error:  # torch's own complaint about shapes
        raise UserError(
            f"module {type(root).__name__} does not take images of {' x '.join(map(str, shape))} (channels, rows, columns): "
            f"{_first_line(error)}"
        ) from None
    return recorder.values


class _Reader:
    def __init__(self, root: fx.GraphModule, values: dict[str, Any], shape: tuple[int, int, int]) -> None:
        self.root, self.graph, self.values, self.shape = root, root.graph, values, shape
        self.modules = dict(root.named_modules())
        self.parameters = dict(root.named_parameters())
        self.called: set[str] = set()
        self.nodes: list[Node] = []

    def read(self) -> Graph:
        source = output = ""
        used = self._used()
        for node in self.graph.nodes:
            if node not in used and node.op != "placeholder":
                self._check_unused(node)
            elif node.op == "placeholder":
                source = source or node.name
            elif node.op == "output":
                output = self._output(node)
            elif node.op == "call_module":
                self._module(node)
            elif node.op == "get_attr" or not isinstance(self.values[node.name], _Shape):
                continue
            else:
                self._function(node)
        return Graph(tuple(self.nodes), source, output, self.shape)

    def _used(self) -> set[fx.Node]:
        """Nodes that the output depends on."""
        found: set[fx.Node] = set()
        waiting = [node for node in self.graph.nodes if node.op == "output"]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += node.all_input_nodes
        return found

    def _check_unused(self, node: fx.Node) -> None:
        module = self.modules.get(str(node.target)) if node.op == "call_module" else None
        in_place = node.kwargs.get("inplace") or getattr(module, "inplace", False)
        if in_place or str(node.target if isinstance(node.target, str) else node.name).endswith("_"):
            raise refuse(f"node {node.name!r}", "it changes a tensor in place and its result is not used", "assign its result")

    def _output(self, node: fx.Node) -> str:
        value = node.args[0]
        if not isinstance(value, fx.Node) or not isinstance(self.values[value.name], _Shape) or len(self.values[value.name]) != 2:
            raise UserError(f"module {type(self.root).__name__} does not return one tensor of logits (images, classes): "
                            "return only that")
        return value.name

    # Modules

    def _module(self, node: fx.Node) -> None:
        name = str(node.target)
        module = self.modules[name]
        where = f"module {name!r} ({type(module).__name__})"
        kind = _kind(module)
        if kind is None:
            raise refuse(where, *refusal(type(module).__name__))
        shape = self._shape_of_input(node, where)
        if kind is nn.Conv2d:
            self._once(name, where)
            self._emit(node, Op.CONV, where, name, _conv(module, where), self._arrays(name, weight="w", bias="bias"))
        elif kind is nn.Linear:
            self._once(name, where)
            self._check_flat(node, where)
            self._emit(node, Op.LINEAR, where, name, {"out": module.out_features},
                       self._arrays(name, weight="w", bias="bias"))
        elif kind is nn.BatchNorm2d:
            self._once(name, where)
            if not module.affine:
                raise refuse(where, "L1-FRN trains weight and bias, and affine is False", "set affine=True")
            self._emit(node, Op.NORM, where, name, {}, self._arrays(name, weight="gamma", bias="beta"))
        elif kind is nn.ReLU:
            self._emit(node, Op.RELU, where, name)
        elif kind is nn.MaxPool2d:
            self._max_pool(node, where, name, vars(module))
        elif kind is nn.AvgPool2d:
            self._avg_pool(node, where, name, vars(module))
        elif kind is nn.AdaptiveAvgPool2d:
            self._adaptive(node, where, name, shape, module.output_size)
        elif kind in (nn.Dropout, nn.Dropout2d):
            self._dropout(node, where, module.p)
        elif kind is nn.Flatten:
            self._flatten(node, where)
        else:
            self._emit(node, Op.SAME, where, name)

    def _once(self, name: str, where: str) -> None:
        if name in self.called:
            raise refuse(where, "it is called more than once, shared parameters are not trained", "make a module for each call")
        self.called.add(name)

    def _arrays(self, module: str, **keys: str) -> dict[str, tuple[str, np.ndarray]]:
        found = {}
        for own, key in keys.items():
            name = f"{module}.{own}"
            if name in self.parameters:
                found[key] = (name, self.parameters[name].detach().numpy().astype(np.float64))
        return found

    # Functions and methods

    def _function(self, node: fx.Node) -> None:
        title = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        where = f"{'method' if node.op == 'call_method' else 'function'} {title!r} (node {node.name!r})"
        read = _READERS.get(_key(node))
        if read is None:
            raise refuse(where, *refusal(str(title)))
        self._shape_of_input(node, where)
        read(self, node, where)

    def _argument(self, node: fx.Node, position: int, key: str, default: Any = None) -> Any:
        value = node.args[position] if position < len(node.args) else node.kwargs.get(key, default)
        return fx.node.map_arg(value, lambda argument: self.values[argument.name])

    def _relu(self, node: fx.Node, where: str) -> None:
        self._emit(node, Op.RELU, where, node.name)

    def _pool_settings(self, node: fx.Node, *keys: str) -> dict[str, Any]:
        return {key: self._argument(node, position + 1, key) for position, key in enumerate(keys)}

    def _max_pool_function(self, node: fx.Node, where: str) -> None:
        settings = self._pool_settings(node, "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        self._max_pool(node, where, node.name, settings)

    def _avg_pool_function(self, node: fx.Node, where: str) -> None:
        settings = self._pool_settings(node, "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad",
                                       "divisor_override")
        self._avg_pool(node, where, node.name, settings)

    def _adaptive_function(self, node: fx.Node, where: str) -> None:
        self._adaptive(node, where, node.name, self._shape_of_input(node, where), self._argument(node, 1, "output_size"))

    def _dropout_function(self, node: fx.Node, where: str) -> None:
        self._dropout(node, where, self._argument(node, 1, "p", 0.5) if self._argument(node, 2, "training", True) else 0)

    def _mean(self, node: fx.Node, where: str) -> None:
        dims = self._argument(node, 1, "dim")
        dims = (dims,) if isinstance(dims, int) else tuple(dims or ())
        if sorted(dim % 4 for dim in dims) != [2, 3] or len(self._shape_of_input(node, where)) != 3:
            raise refuse(where, "only the mean over rows and columns of a feature map is a layer", "write x.mean((2, 3))")
        self._emit(node, *self._adaptive_op(node, where, 1))

    def _flatten(self, node: fx.Node, where: str) -> None:
        source = self.values[self._source(node, where).name]
        if self.values[node.name] not in (source, (_BATCH, int(np.prod(source[1:])))):
            raise refuse(
                where,
                f"it reshapes images of {_text(source[1:])} to {_text(self.values[node.name][1:])}",
                "only flattening each image is supported, as torch.flatten(x, 1) does",
            )
        self._emit(node, Op.SAME, where, node.name)

    def _same(self, node: fx.Node, where: str) -> None:
        self._emit(node, Op.SAME, where, node.name)

    def _add(self, node: fx.Node, where: str) -> None:
        sides = [node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("other")]
        shapes = [self.values[side.name] if isinstance(side, fx.Node) else None for side in sides]
        maps = all(isinstance(shape, _Shape) for shape in shapes) and shapes[0] == shapes[1]
        if not maps or self._argument(node, 2, "alpha", 1) != 1:
            raise refuse(where, "only two feature maps of one shape are added", "give both sides the same shape")
        self._emit(node, Op.ADD, where, node.name, inputs=tuple(str(side) for side in sides))

    def _sliced(self, node: fx.Node, where: str) -> None:
        """The shortcut of the CIFAR ResNets: ``x[:, :, ::2, ::2]``, usually inside ``F.pad``."""
        stride = _slice_stride(self._argument(node, 1, "index"))
        if stride is None:
            raise refuse(where, "only x[:, :, ::s, ::s] of a feature map is a layer (subsample)", "write the shortcut so")
        channels = self.values[node.name][1]
        self._emit(node, Op.SUBSAMPLE, where, node.name, {"out": channels, "stride": stride})

    def _pad(self, node: fx.Node, where: str) -> None:
        pads = tuple(self._argument(node, 1, "pad"))
        before, after = (pads[4], pads[5]) if len(pads) == 6 else (-1, 0)
        plain = self._argument(node, 2, "mode", "constant") == "constant" and not self._argument(node, 3, "value", 0)
        if not plain or any(pads[:4]) or before != 0 or after < 0:
            raise refuse(
                where,
                "only channels of zeros behind the source's are appended (subsample)",
                "write F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, MORE)), and pad planes in the convolution",
            )
        source = self._source(node, where).name
        sliced = next((found for found in self.nodes if found.name == source and found.op == Op.SUBSAMPLE), None)
        settings = {"out": self.values[node.name][1], "stride": 1}
        if sliced is None or len(self._source(node, where).users) > 1:
            self._emit(node, Op.SUBSAMPLE, where, node.name, settings)
            return
        self.nodes.remove(sliced)
        self._emit(node, Op.SUBSAMPLE, where, node.name, settings | {"stride": sliced.settings["stride"]}, inputs=sliced.inputs)

    # Shared by modules and functions

    def _max_pool(self, node: fx.Node, where: str, layer: str, settings: Mapping[str, Any]) -> None:
        if pair(settings["dilation"] or 1) != (1, 1) or settings["ceil_mode"] or settings["return_indices"]:
            raise refuse(where, "dilation, ceil_mode and return_indices are not supported", "leave them at their defaults")
        self._emit(node, Op.MAX_POOL, where, layer, _pool_window(where, settings))

    def _avg_pool(self, node: fx.Node, where: str, layer: str, settings: Mapping[str, Any]) -> None:
        without_pad = settings["count_include_pad"] is False and any(pair(settings["padding"] or 0))
        if settings["ceil_mode"] or without_pad or settings["divisor_override"]:
            raise refuse(where, "padding counts as zeros in the mean, and ceil_mode and divisor_override are not supported",
                         "leave these settings at their defaults")
        self._emit(node, Op.AVG_POOL, where, layer, _pool_window(where, settings))

    def _adaptive(self, node: fx.Node, where: str, layer: str, shape: tuple[int, ...], size: Any) -> None:
        op, where, _, settings = self._adaptive_op(node, where, size, shape)
        self._emit(node, op, where, layer, settings)

    def _adaptive_op(self, node: fx.Node, where: str, size: Any, shape: tuple[int, ...] | None = None) -> tuple[Any, ...]:
        shape = shape or self._shape_of_input(node, where)
        sizes = tuple(size) if isinstance(size, tuple | list) else (size, size)
        op, settings = adaptive(where, (shape[0], shape[1], shape[2]), (sizes[0], sizes[-1]))
        return op, where, node.name, settings

    def _dropout(self, node: fx.Node, where: str, p: float) -> None:
        if p > 0:
            raise refuse(where, f"the machine has no dropout, and p is {p:g}", "set p to 0 or remove it")
        self._emit(node, Op.SAME, where, node.name)

    def _check_flat(self, node: fx.Node, where: str) -> None:
        if len(self.values[self._source(node, where).name]) != 2:
            raise refuse(where, "its input is a feature map, a fully connected layer takes every element of an image",
                         "put torch.flatten(x, 1) before it")

    def _source(self, node: fx.Node, where: str) -> fx.Node:
        source = node.args[0] if node.args else node.kwargs.get("input")
        if not isinstance(source, fx.Node) or not isinstance(self.values[source.name], _Shape) or source.op == "get_attr":
            raise refuse(where, "its input is no output of a layer", "compute only from the network's input")
        return source

    def _shape_of_input(self, node: fx.Node, where: str) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self.values[self._source(node, where).name][1:])

    def _emit(self, node: fx.Node, op: str, where: str, layer: str, settings: dict[str, Any] | None = None,
              arrays: dict[str, tuple[str, np.ndarray]] | None = None, inputs: tuple[str, ...] | None = None) -> None:
        inputs = inputs or (self._source(node, where).name,)
        self.nodes.append(Node(node.name, op, where, layer, inputs, settings or {}, arrays or {}))


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _conv(module: nn.Module, where: str) -> dict[str, int]:
    assert isinstance(module, nn.Conv2d)
    if module.groups != 1:
        raise refuse(where, f"groups is {module.groups}, every output channel reads every input channel", "use groups=1")
    if pair(module.dilation) != (1, 1):
        raise refuse(where, f"dilation is {module.dilation}, windows are dense", "use dilation=1 with a larger kernel")
    if module.padding_mode != "zeros" and any(module._reversed_padding_repeated_twice):
        raise refuse(where, f"padding_mode is {module.padding_mode!r}, padding is zeros", "use padding_mode='zeros'")
    pad: Any = module.padding
    if isinstance(pad, str):
        rows, columns = pair(module.kernel_size)
        if pad == "same" and (rows % 2 == 0 or columns % 2 == 0):
            raise refuse(where, "padding 'same' of an even kernel pads more on one side", "use an odd kernel")
        pad = (rows // 2, columns // 2) if pad == "same" else 0
    return {"out": module.out_channels, **window(where, module.kernel_size, module.stride, pad)}


def _pool_window(where: str, settings: Mapping[str, Any]) -> dict[str, int]:
    kernel = settings["kernel_size"]
    stride = settings["stride"]
    return window(where, kernel, kernel if stride in (None, ()) else stride, settings["padding"] or 0)


def _slice_stride(index: Any) -> int | None:
    whole = slice(None)
    if isinstance(index, tuple) and len(index) == 4 and index[:2] == (whole, whole):
        rows, columns = index[2:]
        if isinstance(rows, slice) and rows == columns and rows.start in (None, 0) and rows.stop is None:
            return rows.step or 1
    return None


def _key(node: fx.Node) -> str:
    """One name for a function in whatever place PyTorch keeps it; methods have a dot before."""
    if node.op == "call_method":
        return f".{node.target}"
    return next((name for name, functions in _FUNCTIONS.items() if node.target in functions), "")


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "relu": (torch.relu, torch.relu_, functional.relu, functional.relu_),
    "max_pool": (functional.max_pool2d, torch.max_pool2d),
    "avg_pool": (functional.avg_pool2d,),
    "adaptive": (functional.adaptive_avg_pool2d,),
    "dropout": (functional.dropout, functional.dropout2d, torch.dropout),
    "mean": (torch.mean,),
    "flatten": (torch.flatten, torch.reshape),
    "add": (operator.add, operator.iadd, torch.add),
    "getitem": (operator.getitem,),
    "pad": (functional.pad,),
}
_READERS: dict[str, Callable[[_Reader, fx.Node, str], None]] = {
    "relu": _Reader._relu,
    ".relu": _Reader._relu,
    ".relu_": _Reader._relu,
    "max_pool": _Reader._max_pool_function,
    "avg_pool": _Reader._avg_pool_function,
    "adaptive": _Reader._adaptive_function,
    "dropout": _Reader._dropout_function,
    "mean": _Reader._mean,
    ".mean": _Reader._mean,
    "flatten": _Reader._flatten,
    ".flatten": _Reader._flatten,
    ".view": _Reader._flatten,
    ".reshape": _Reader._flatten,
    ".contiguous": _Reader._same,
    "add": _Reader._add,
    ".add": _Reader._add,
    ".add_": _Reader._add,
    "getitem": _Reader._sliced,
    "pad": _Reader._pad,
}
