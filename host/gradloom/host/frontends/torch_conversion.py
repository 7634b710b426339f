"""PyTorch modules on gradloom: import, export, and training from a PyTorch loop.

``compile(module)`` gives a :class:`~gradloom.host.frontends.torch_model.Model` whose ``step(images, labels)`` trains on the golden
model, the emulator or the simulated hardware (docs/pytorch.md).
"""

import re
from typing import Any

from gradloom.host.frontends.import_graph import EPSILON
from gradloom.host.frontends.imported import Imported, build
from gradloom.models.layers import Training
from gradloom.models.state import State

try:
    import torch
except ImportError:
    raise ImportError("gradloom.api.pytorch needs PyTorch, which is not installed: pip install 'gradloom[torch]'") from None

from torch import fx, nn

from gradloom.host.frontends.torch_model import Evaluation, Model, Step
from gradloom.host.frontends.torch_tensors import LayerTensors
from gradloom.host.frontends.torch_trace import trace

__all__ = ["FRN", "Evaluation", "Imported", "LayerTensors", "Model", "Step", "compile", "from_module", "replace_norms",
           "to_state_dict"]

compile = Model
"""A module as a :class:`~gradloom.host.frontends.torch_model.Model`; the arguments are the class's."""


class FRN(nn.Module):
    """L1 filter response normalisation, what the machine trains in place of BatchNorm2d (ETA, section III-C).

    ``weight * x / (mean |x| + 2^-12) + bias``, the mean over the plane of each image and channel. ``tau`` is the threshold
    of the TLU that follows the sum with a residual; :func:`replace_norms` applies it.
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


def from_module(
    module: nn.Module,
    input_shape: tuple[int, ...],
    classes: int | None = None,
    *,
    name: str | None = None,
    loss: str = "softmax",
    train: Training | None = None,
) -> Imported:
    """gradloom's network of a module, and the module's parameters.

    Parameters
    ----------
    input_shape : (channels, rows, columns), or (features,)
        Of what the module takes, without the batch.
    classes : :class:`int`, optional
        Checked against the last Linear's outputs.
    name : :class:`str`, optional
        The network's; default: the module's class.
    loss : :class:`str`
        "softmax" or "squared".
    train : :class:`~gradloom.models.layers.Training`, optional

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`, :exc:`~gradloom.models.network.NetworkError`
        If a module is not supported (by its qualified name, with the reason and the nearest alternative), or a rule of
        docs/networks.md is broken.
    """
    found = trace(module, input_shape).found
    return build(found, name or re.sub(r"[^A-Za-z0-9_.-]", "_", type(module).__name__), classes, loss, train)


def to_state_dict(imported: Imported, state: State) -> dict[str, torch.Tensor]:
    """A state's parameters in float32 by the module's own names, and ``NORM.tau`` for every threshold.

    It loads strictly into the module that :func:`replace_norms` gives, and with ``strict=False`` into the module itself.
    """
    return {name: torch.from_numpy(array) for name, array in imported.arrays(state).items()}


def replace_norms(module: nn.Module, input_shape: tuple[int, ...]) -> nn.Module:
    """A float copy of the module that computes what gradloom trains: every BatchNorm2d is an :class:`FRN`, its ReLU a TLU."""
    found = trace(module, input_shape)
    imported = build(found.found, "copy", None, "softmax", None)
    root, graph = found.root, found.root.graph
    nodes = {node.name: node for node in graph.nodes}
    for norm, act in imported.norms.items():
        name = str(nodes[norm].target)
        _replace(root, name, act is not None)
        convolution = _source_module(root, nodes[norm])
        convolution.bias = None
        if act is not None:
            _threshold(graph, nodes[act], f"{name}.tau")
    root.recompile()
    root.delete_all_unused_submodules()
    return root.train()


def _replace(root: nn.Module, name: str, threshold: bool) -> None:
    parent, _, child = name.rpartition(".")
    old: Any = root.get_submodule(name)
    new = FRN(old.num_features, threshold=threshold)
    with torch.no_grad():
        new.weight.copy_(old.weight)
        new.bias.copy_(old.bias)
    setattr(root.get_submodule(parent), child, new)


def _source_module(root: nn.Module, norm: fx.Node) -> Any:
    source = norm.args[0]
    while isinstance(source, fx.Node):
        module = root.get_submodule(str(source.target)) if source.op == "call_module" else None
        if isinstance(module, nn.Conv2d):
            return module
        source = source.args[0]
    raise AssertionError(f"no convolution before {norm.name}")


def _threshold(graph: fx.Graph, act: fx.Node, tau: str) -> None:
    with graph.inserting_before(act):
        value = graph.get_attr(tau)
        column = graph.call_method("view", (value, -1, 1, 1))
        maximum = graph.call_function(torch.maximum, (act.args[0], column))
    act.replace_all_uses_with(maximum)
    graph.erase_node(act)
