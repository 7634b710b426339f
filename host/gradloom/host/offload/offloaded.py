"""An unchanged PyTorch model whose products a device computes (Barista, section IV; Fox et al., section III)."""

import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.nn import functional

from gradloom.contracts.matrix_config import MatrixConfig
from gradloom.host.files import UserError
from gradloom.host.offload.geometry import ConvolutionShape, LinearShape
from gradloom.host.offload.ledger import Ledger, Line
from gradloom.host.offload.matrix_device import MatrixDevice, open_matrix_device
from gradloom.host.offload.placement import Placement, everywhere
from gradloom.host.offload.products import LayerProduct, Multiplier
from gradloom.models.matrix.blocks import FORMATS, ProductFormat

__all__ = ["Offloaded", "offload"]

_LAYERS: dict[Any, type[nn.Module]] = {nn.Linear.forward: nn.Linear, nn.Conv2d.forward: nn.Conv2d}


class Offloaded:
    """A model while its products run on a device; leaving the context, or :meth:`restore`, gives it back as it was.

    Attributes
    ----------
    layers : tuple of :class:`str`
        That are offloaded, by their names in the model.
    others : tuple of :class:`str`
        Modules with parameters that are not, as they are no Linear or Conv2d, or have a forward of their own.
    """

    def __init__(self, module: nn.Module, device: MatrixDevice, formats: ProductFormat, placement: Placement, *, check: bool,
                 seed: int, close: Callable[[], None] | None = None) -> None:
        self._device, self._placement, self._ledger, self._close = device, placement, Ledger(), close
        self._patched: list[nn.Module] = []
        self._multipliers: list[Multiplier] = []
        found: dict[str, nn.Module] = {name: layer for name, layer in module.named_modules() if type(layer).forward in _LAYERS}
        self.layers = tuple(name or type(layer).__name__ for name, layer in found.items())
        self.others = tuple(name for name, layer in module.named_modules()
                            if layer not in found.values() and next(layer.parameters(recurse=False), None) is not None)
        for name, layer in found.items():
            if "forward" in vars(layer):
                self.restore()
                raise UserError(f"layer {name!r} has a forward of its own already: restore() the model before it is offloaded "
                                "again")
            name = name or type(layer).__name__
            multiplier = Multiplier(name, len(self._multipliers), device, formats, self._ledger, check=check, seed=seed)
            self._multipliers.append(multiplier)
            run: Callable[..., torch.Tensor] = self._convolution if isinstance(layer, nn.Conv2d) else self._linear
            layer.forward = functools.partial(run, layer, name, multiplier)  # type: ignore[method-assign]
            self._patched.append(layer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.restore()

    def restore(self) -> None:
        """Give the model back as it was; once is enough. What it has learned stays."""
        for layer in self._patched:
            del layer.forward
        self._patched.clear()
        close, self._close = self._close, None
        if close is not None:
            close()

    @property
    def checked(self) -> int:
        """Products that were compared with the CPU's, and were the same."""
        return sum(multiplier.checked for multiplier in self._multipliers)

    @property
    def lines(self) -> list[Line]:
        """What the products have cost, by layer, stage and place."""
        return self._ledger.lines

    def table(self) -> str:
        """The same for people."""
        return self._ledger.table()

    def _linear(self, layer: nn.Linear, name: str, multiplier: Multiplier, x: torch.Tensor) -> torch.Tensor:
        _usable(name, x, layer.weight, layer.in_features, -1)
        if not self._placement(x.numel() // layer.in_features, layer.out_features, layer.in_features):
            return self._on_cpu(name, (x.numel() // layer.in_features, layer.out_features, layer.in_features),
                                lambda: functional.linear(x, layer.weight, layer.bias))
        whole = x if x.dim() > 1 else x[None]
        found = _product(whole, layer.weight, multiplier, LinearShape(tuple(whole.shape[:-1])))
        found = found if x.dim() > 1 else found[0]
        return found if layer.bias is None else found + layer.bias

    def _convolution(self, layer: nn.Conv2d, name: str, multiplier: Multiplier, x: torch.Tensor) -> torch.Tensor:
        _usable(name, x, layer.weight, layer.in_channels, -3)
        whole = x if x.dim() == 4 else x[None]
        padding = layer.padding
        if isinstance(padding, str) or layer.padding_mode != "zeros":
            # As Conv2d does: padding of unequal sides, or not by zeros, is an operation of its own.
            mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
            whole, padding = functional.pad(whole, layer._reversed_padding_repeated_twice, mode=mode), (0, 0)
        shape = ConvolutionShape(tuple(whole.shape[2:]), layer.kernel_size, layer.stride, padding, layer.dilation,  # type: ignore[arg-type]
                                 layer.groups)
        if min(shape.positions) < 1:
            raise UserError(f"layer {name!r}: a kernel of {layer.kernel_size} does not fit an input of {tuple(x.shape[-2:])}: give "
                            "larger images or more padding")
        size = (len(whole) * shape.positions[0] * shape.positions[1], layer.out_channels // layer.groups, layer.weight[0].numel())
        if not self._placement(*size):
            found = self._on_cpu(name, size, lambda: functional.conv2d(whole, layer.weight, layer.bias, layer.stride, padding,
                                                                       layer.dilation, layer.groups))
        else:
            found = _product(whole, layer.weight, multiplier, shape)
            found = found if layer.bias is None else found + layer.bias.reshape(-1, 1, 1)
        return found if x.dim() == 4 else found[0]

    def _on_cpu(self, name: str, size: tuple[int, int, int], run: Any) -> torch.Tensor:
        begin = time.perf_counter()
        found: torch.Tensor = run()
        self._ledger.add(name, "FP", "cpu", size, time.perf_counter() - begin)
        return found


def _product(x: torch.Tensor, w: torch.Tensor, multiplier: Multiplier, shape: Any) -> torch.Tensor:
    found: torch.Tensor = LayerProduct.apply(x, w, multiplier, shape)  # type: ignore[no-untyped-call]
    return found


def _usable(name: str, x: torch.Tensor, w: torch.Tensor, width: int, axis: int) -> None:
    """:exc:`UserError` unless input and weights are what a device can take."""
    for title, tensor in (("input", x), ("weight", w)):
        if tensor.device.type != "cpu":
            raise UserError(f"layer {name!r}: its {title} lies on {tensor.device}: move the model and its inputs to the CPU, from "
                            "where the device takes them")
        if torch.is_autocast_enabled(tensor.device.type):
            raise UserError(f"layer {name!r} runs under autocast, which would choose its numbers: leave autocast, the device has "
                            "its own format")
        if tensor.dtype != torch.float32:
            raise UserError(f"layer {name!r}: its {title} is of {tensor.dtype}: give torch.float32, which is quantised for the "
                            "device")
    least = 1 if axis == -1 else 3
    if x.dim() < least or (axis == -3 and x.dim() > 4) or x.shape[axis] != width:
        raise UserError(f"layer {name!r} takes {width} {'features' if axis == -1 else 'channels'}, and its input has the shape "
                        f"{tuple(x.shape)}: give one that fits")
    if not x.numel():
        raise UserError(f"layer {name!r}: its input of shape {tuple(x.shape)} has no elements: give at least one image")


def offload(module: nn.Module, *, format: str | ProductFormat = "bfp8", device: str | MatrixDevice = "twin",
            config: str | MatrixConfig | None = None, check: bool = False, placement: Placement = everywhere, seed: int = 0,
            ) -> Offloaded:
    """Let a device compute all products of a model's Linear and Conv2d layers: forward, error and weight gradient.

    Everything else (other layers, biases, loss, optimizer) runs in PyTorch as before, and the module is the same object with the
    same parameters, hooks and state.

    Parameters
    ----------
    module : :class:`torch.nn.Module`
    format : "bfp8", "bfp8-nearest", "int8", or a :class:`~gradloom.models.matrix.blocks.ProductFormat`
        How operands become 8-bit codes.
    device : "twin", "rtl", or an object with ``product(a, b)`` and ``seconds``
        The golden model, or a matrix machine in simulated hardware, which is closed when the model is restored.
    config : :class:`str` or :class:`~gradloom.contracts.matrix_config.MatrixConfig`, optional
        The machine, for "rtl": a preset's name (fox-N, darkfpga-TBxTI, barista-RxCxP) or a TOML file (default: fox-8).
    check : :class:`bool`
        Compare every product with the CPU's in 64-bit integers.
    placement : callable
        Given M, N and K of a layer's forward product, whether it goes to the device
        (:func:`~gradloom.host.offload.placement.by_model`).
    seed : :class:`int`
        Of stochastic rounding: the same seed, model and data give the same numbers.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If there is no such format, device or machine, no layer to offload, or the model is offloaded already; and from a layer,
        while the model runs, if its input cannot be used, a product does not fit the machine or a checked one differs.
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"an object of class {type(module).__name__} is no torch.nn.Module: give a model")
    if isinstance(format, str) and format not in FORMATS:
        raise UserError(f"there is no product format {format!r}: give {', '.join(map(repr, FORMATS))} or a ProductFormat")
    if not isinstance(seed, int) or not 0 <= seed < 1 << 32:
        raise UserError(f"seed must be a whole number of 0 to 4294967295, not {seed!r}")
    formats = FORMATS[format] if isinstance(format, str) else format
    if not isinstance(device, str) and config is not None:
        raise UserError("a device that is an object has its configuration: leave config out")
    opened = open_matrix_device(device, config) if isinstance(device, str) else device
    close: Callable[[], None] | None = getattr(opened, "close", None) if isinstance(device, str) else None
    try:
        found = Offloaded(module, opened, formats, placement, check=check, seed=seed, close=close)
    except UserError:
        if close is not None:
            close()
        raise
    if not found.layers:
        found.restore()
        raise UserError(f"the model of class {type(module).__name__} has no Linear or Conv2d layer of PyTorch's own: nothing would "
                        "run on the device")
    return found
