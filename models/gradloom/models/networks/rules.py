"""The rules of a network as a whole: its header, names, last layer, readers of a tensor, and training settings.

A rule that is broken raises a :class:`~gradloom.models.layers.NetworkError` that names the layer, the rule and the fix. Rules of
a single layer are in :mod:`gradloom.models.networks.geometry`.
"""

import re
from collections.abc import Container, Sequence
from typing import Any

from gradloom.models.layers import (
    INPUT,
    LAYER_TYPES,
    FullyConnected,
    Layer,
    NetworkError,
    Pool,
    Subsample,
    Training,
    is_integer,
    shape_text,
    type_name,
)
from gradloom.models.networks.geometry import MAX_CHANNELS, MAX_SIZE

__all__ = ["MAX_LAYERS", "check_header", "check_last", "check_name", "check_readers", "check_training"]

MAX_LAYERS = 255
"""Largest number of layers (tensor numbers have 11 bits)."""
_SCHEDULES = ("constant", "linear", "cosine")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_header(name: Any, shape: Any, classes: Any, loss: Any, layers: Any) -> None:
    """Name, input's shape, number of classes, loss, and that there are layers."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NetworkError(
            f"the network's name must be letters, digits, '_', '.' or '-', not {name!r}: rename it"
        )
    if (
        not isinstance(shape, tuple | list)
        or len(shape) != 3
        or not all(is_integer(n) and n > 0 for n in shape)
    ):
        raise NetworkError(
            f"input must be three positive integers (channels, rows, columns), not {shape!r}: give all three"
        )
    if max(shape[1:]) > MAX_SIZE or shape[0] > MAX_CHANNELS:
        raise NetworkError(
            f"input of {shape_text(shape)} is too large: give at most {MAX_CHANNELS} channels and {MAX_SIZE} "
            "rows and columns"
        )
    if not is_integer(classes) or not 2 <= classes <= MAX_SIZE:
        raise NetworkError(
            f"classes must be an integer in 2..{MAX_SIZE}, not {classes!r}: give the number of outputs"
        )
    if loss not in ("softmax", "squared"):
        raise NetworkError(f"loss must be 'softmax' or 'squared', not {loss!r}: choose one of the two")
    if not isinstance(layers, tuple | list) or not layers:
        raise NetworkError("a network must have at least one layer: end it with a fully_connected layer")
    if len(layers) > MAX_LAYERS:
        raise NetworkError(
            f"a network may have at most {MAX_LAYERS} layers, this one has {len(layers)}: remove layers"
        )


def check_name(layer: object, taken: Container[str]) -> None:
    """That it is a layer, and that its name is none of the ``taken`` ones."""
    if not isinstance(layer, tuple(LAYER_TYPES.values())):
        raise NetworkError(
            f"{layer!r} is not a layer: give one of {', '.join(cls.__name__ for cls in LAYER_TYPES.values())}"
        )
    assert isinstance(layer, Layer)
    if not isinstance(layer.name, str) or not _NAME.fullmatch(layer.name):
        raise NetworkError(f"layer {layer.name!r}: a name must be letters, digits, '_', '.' or '-': rename it")
    if layer.name in taken:
        raise NetworkError(
            f"layer {layer.name!r}: the name is taken{' by the input' if layer.name == INPUT else ''}: "
            "rename it"
        )


def check_last(last: Layer, classes: int) -> None:
    """That the last layer gives the logits of the classes."""
    if not isinstance(last, FullyConnected):
        raise NetworkError(
            f"layer {last.name!r}: the last layer must be fully_connected, it gives the logits: append one"
        )
    if last.act != "none":
        raise NetworkError(
            f"layer {last.name!r}: the last layer gives the logits and has no activation: set act to 'none'"
        )
    if last.out != classes:
        raise NetworkError(
            f"layer {last.name!r}: out is {last.out}, the network has {classes} classes: make them equal"
        )


def check_readers(layer: Layer, readers: Sequence[tuple[Layer, str]], main: Layer | None, *, needs_error: bool) -> None:
    """That one or two layers read a layer's output, and that the machine can add the errors they send back.

    ``readers`` come each with "input" or "residual"; ``main`` is the one whose backward pass writes the output's error, if there
    is one, and ``needs_error`` says whether there is an error at all.
    """
    listed = ", ".join(f"{reader.name} ({role})" for reader, role in readers)
    if not readers:
        raise NetworkError(
            f"layer {layer.name!r}: no layer reads its output: remove it, or name it as an input"
        )
    if isinstance(layer, Subsample) and [role for _, role in readers] != ["residual"]:
        raise NetworkError(
            f"layer {layer.name!r}: a subsample layer is a shortcut, one layer adds it and nothing else "
            f"reads it, its output goes to {listed}: name it as one layer's residual only"
        )
    if not needs_error or len(readers) == 1:
        return
    if len(readers) > 2:
        raise NetworkError(
            f"layer {layer.name!r}: at most two layers may read a tensor, its output goes to {listed}: "
            "remove one of them"
        )
    for reader, role in readers:
        if role == "input" and isinstance(reader, Pool):
            raise NetworkError(
                f"layer {reader.name!r}: a layer of type {type_name(type(reader))} must be the only reader of its input, "
                f"{layer.name!r} goes to {listed}: let the other read its output"
            )
    if main is None:
        raise NetworkError(
            f"layer {layer.name!r}: of two layers that read a tensor one must convolve it, its output "
            f"goes to {listed}: remove one of them"
        )


def check_training(train: Training) -> None:
    """Every setting's type and range."""
    for key in ("batch", "epochs", "warmup"):
        value = getattr(train, key)
        if key == "warmup" and value is None:
            continue
        if not is_integer(value) or value < 1:
            raise NetworkError(f"train: {key} must be a positive integer, not {value!r}: give 1 or more")
    for key, low, high in (("lr", 2.0**-30, 64.0), ("momentum", 0.0, 255 / 256), ("weight_decay", 0.0, 0.5)):
        value = getattr(train, key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise NetworkError(f"train: {key} must be a number in {low:g}..{high:g}, not {value!r}: change it")
    if train.schedule not in _SCHEDULES:
        raise NetworkError(
            f"train: schedule must be one of {', '.join(_SCHEDULES)}, not {train.schedule!r}: choose one"
        )
