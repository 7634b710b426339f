"""Modules in a traced graph, such as Conv2d, to nodes with the module's settings and parameters."""

from typing import Any

import numpy as np
from torch import fx, nn

from gradloom.host.frontends.import_graph import Op, pair, refuse, window
from gradloom.host.frontends.torch_checks import Parameters, changed_by
from gradloom.host.frontends.torch_pools import POOLS
from gradloom.host.frontends.torch_rules import refusal
from gradloom.host.frontends.torch_writer import Writer

__all__ = ["LayerReader", "kind_of"]

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_MODULES = (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Unflatten, nn.Identity, *_DROPOUTS,
            *(pool.module for pool in POOLS))


def kind_of(module: nn.Module) -> type[nn.Module] | None:
    """The supported class that the module is of; subclasses count that only change how it is made."""
    return next((cls for cls in _MODULES if isinstance(module, cls) and changed_by(module, cls) is None), None)


class LayerReader:
    """Reads the calls of a traced module's submodules.

    Parameters
    ----------
    root : :class:`torch.nn.Module`
        Holds the modules that the traced nodes call.
    parameters : :class:`~gradloom.host.frontends.torch_checks.Parameters`
        Of the module that was given.
    writer : :class:`~gradloom.host.frontends.torch_writer.Writer`

    Attributes
    ----------
    modules : dict of :class:`torch.nn.Module`
        By qualified name.
    """

    def __init__(self, root: nn.Module, parameters: Parameters, writer: Writer) -> None:
        self.modules = dict(root.named_modules())
        self._parameters = parameters
        self._writer = writer
        self._called: set[str] = set()

    def read(self, node: fx.Node) -> None:
        """Write the node of a call.

        Raises
        ------
        :exc:`~gradloom.host.files.UserError`
            If the machine has no such module, or not with these settings.
        """
        name, writer = str(node.target), self._writer
        module = self.modules[name]
        where = f"module {name!r} ({type(module).__name__})"
        kind = kind_of(module)
        if kind is None:
            if ".quantized" in type(module).__module__:
                raise refuse(where, "it holds quantised weights, and the machine trains real ones", "give the float module")
            raise refuse(where, *refusal(type(module).__name__))
        shape = writer.shape_of_input(node, where)
        if kind is nn.Conv2d:
            self._once(name, where)
            writer.plane_of_input(node, where)
            arrays = self._arrays(name, where, weight="w", bias="bias")
            writer.emit(node, Op.CONV, where, name, _conv(module, where, arrays["w"][1].shape), arrays)
        elif kind is nn.Linear:
            self._once(name, where)
            _check_flat(shape, where)
            arrays = self._arrays(name, where, weight="w", bias="bias")
            writer.linear(node, where, name, arrays)
        elif kind is nn.BatchNorm2d:
            self._once(name, where)
            if module.weight is None or module.bias is None:
                raise refuse(where, "L1-FRN trains weight and bias, and affine is False", "set affine=True")
            writer.emit(node, Op.NORM, where, name, {}, self._arrays(name, where, weight="gamma", bias="beta"))
        elif kind is nn.ReLU:
            writer.emit(node, Op.RELU, where, name)
        elif (pool := next((pool for pool in POOLS if pool.module is kind), None)) is not None:
            pool.read(writer, node, where, name, {key: getattr(module, key, None) for key in pool.arguments})
        elif kind in _DROPOUTS:
            writer.dropout(node, where, module.p)
        elif kind in (nn.Flatten, nn.Unflatten):
            writer.flatten(node, where)
        else:
            writer.emit(node, Op.SAME, where, name)

    def _once(self, name: str, where: str) -> None:
        if name in self._called:
            raise refuse(where, "it is called more than once, shared parameters are not trained", "make a module for each call")
        self._called.add(name)

    def _arrays(self, name: str, where: str, **keys: str) -> dict[str, tuple[str, np.ndarray]]:
        module = self.modules[name]
        return {
            key: (f"{name}.{own}", getattr(module, own).detach().numpy().astype(np.float64))
            for own, key in keys.items()
            if self._parameters.check(where, name, own)
        }



def _check_flat(shape: tuple[int, ...], where: str) -> None:
    if len(shape) != 1:
        raise refuse(where, "its input is a feature map, a fully connected layer takes every element of an image",
                     "put torch.flatten(x, 1) before it")


def _conv(module: nn.Module, where: str, shape: tuple[int, ...]) -> dict[str, int]:
    """Settings of a convolution whose weight has a shape of (outputs, inputs, rows, columns)."""
    assert isinstance(module, nn.Conv2d)
    if module.groups != 1:
        raise refuse(where, f"groups is {module.groups}, every output channel reads every input channel", "use groups=1")
    if pair(module.dilation) != (1, 1) and shape[2:] != (1, 1):
        raise refuse(where, f"dilation is {module.dilation}, windows are dense", "use dilation=1 with a larger kernel")
    if module.padding_mode != "zeros" and any(module._reversed_padding_repeated_twice):
        raise refuse(where, f"padding_mode is {module.padding_mode!r}, padding is zeros", "use padding_mode='zeros'")
    pad: Any = module.padding
    if isinstance(pad, str):
        rows, columns = shape[2:]
        if pad == "same" and (rows % 2 == 0 or columns % 2 == 0):
            raise refuse(where, "padding 'same' of an even kernel pads more on one side", "use an odd kernel")
        pad = (rows // 2, columns // 2) if pad == "same" else 0
    return {"out": shape[0], **window(where, shape[2:], module.stride, pad)}
