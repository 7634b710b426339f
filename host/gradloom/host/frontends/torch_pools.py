"""Pools of PyTorch and what walks windows as they do, each a module and functions of the same settings: rows of :data:`POOLS`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from gradloom.host.frontends.import_graph import adaptive, pair, refuse, window
from gradloom.host.frontends.torch_rules import refusal
from gradloom.host.frontends.torch_writer import Writer
from gradloom.models.layers import AvgPool, MaxPool, Upsample

__all__ = ["POOLS", "TorchPool", "adaptive_pool"]

Settings = Mapping[str, Any]
"""By name of an argument; ``None`` where a function is called without it."""


@dataclasses.dataclass(frozen=True)
class TorchPool:
    """A pool of PyTorch.

    Parameters
    ----------
    module : class of :class:`torch.nn.Module`
    functions : tuple
        The same as a function, wherever PyTorch keeps it.
    arguments : tuple of :class:`str`
        Of the functions, behind the input, in their order; the module's attributes have the same names.
    read : callable
        Writes the node of a call: of the writer, the traced node, what messages call it, the layer's name and the settings. It
        raises :exc:`~gradloom.host.files.UserError` for what the machine does not have.
    """

    module: type[nn.Module]
    functions: tuple[Any, ...]
    arguments: tuple[str, ...]
    read: Callable[[Writer, fx.Node, str, str, Settings], None]


def _max_pool(writer: Writer, node: fx.Node, where: str, layer: str, settings: Settings) -> None:
    found = _window(where, settings)
    dilated = pair(settings["dilation"] or 1) != (1, 1) and found["kernel"] > 1
    if dilated or _one_more_window(writer, node, where, found) or settings["return_indices"]:
        raise refuse(where, "dilation, ceil_mode and return_indices are not supported", "leave them at their defaults")
    writer.emit(node, MaxPool, where, layer, found)


def _avg_pool(writer: Writer, node: fx.Node, where: str, layer: str, settings: Settings) -> None:
    found = _window(where, settings)
    without_pad = settings["count_include_pad"] is False and found["pad"] > 0
    divided = settings["divisor_override"] not in (None, found["kernel"] ** 2)
    if _one_more_window(writer, node, where, found) or without_pad or divided:
        raise refuse(where, "padding counts as zeros in the mean, and ceil_mode and divisor_override are not supported",
                     "leave these settings at their defaults")
    writer.emit(node, AvgPool, where, layer, found)


def adaptive_pool(writer: Writer, node: fx.Node, where: str, layer: str, settings: Settings) -> None:
    """Means to an ``output_size``: one number, or (rows, columns), ``None`` for the input's."""
    shape, size = writer.plane_of_input(node, where), settings["output_size"]
    sizes = tuple(size) if isinstance(size, tuple | list) else (size, size)
    op, found = adaptive(where, shape, (sizes[0], sizes[-1]))
    writer.emit(node, op, where, layer, found)


def _upsample(writer: Writer, node: fx.Node, where: str, layer: str, settings: Settings) -> None:
    source, target = writer.plane_of_input(node, where)[1:], writer.values[node.name][2:]
    scale = target[0] // source[0]
    # A factor that is not quite whole may give the same size, but by other rows; not where the size, too, makes the factor.
    given = settings["scale_factor"] if not settings["recompute_scale_factor"] else None
    factors = given if isinstance(given, tuple | list) else (given,)
    whole = tuple(target) == (scale * source[0], scale * source[1]) and all(factor in (None, scale) for factor in factors)
    if settings["mode"] not in (None, "nearest", "nearest-exact") or not whole:
        raise refuse(where, *refusal("upsample"))
    writer.emit(node, Upsample, where, layer, {"scale": scale})


def _window(where: str, settings: Settings) -> dict[str, int]:
    kernel, stride = settings["kernel_size"], settings["stride"]
    return window(where, kernel, kernel if stride in (None, ()) else stride, settings["padding"] or 0)


def _one_more_window(writer: Writer, node: fx.Node, where: str, found: Mapping[str, int]) -> bool:
    """Whether ``ceil_mode`` adds a window that is not whole; where windows meet the edge it changes nothing."""
    sizes = writer.plane_of_input(node, where)[1:]
    floor = tuple((size + 2 * found["pad"] - found["kernel"]) // found["stride"] + 1 for size in sizes)
    return tuple(writer.values[node.name][2:]) != floor


POOLS = (
    TorchPool(nn.MaxPool2d, (functional.max_pool2d, torch.max_pool2d),
              ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"), _max_pool),
    TorchPool(nn.AvgPool2d, (functional.avg_pool2d,),
              ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"), _avg_pool),
    TorchPool(nn.AdaptiveAvgPool2d, (functional.adaptive_avg_pool2d,), ("output_size",), adaptive_pool),
    TorchPool(nn.Upsample, (functional.interpolate,),
              ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias"), _upsample),
)
