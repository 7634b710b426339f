"""Networks as TOML: tables to the arguments of a network, and a network to text."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from gradloom.models.formats import find_format
from gradloom.models.images import ImageSettings
from gradloom.models.layers import LAYER_TYPES, Layer, NetworkError, Training, type_name
from gradloom.models.rounding import Rounding

__all__ = ["parse", "write"]

_KEYS = ("name", "input", "classes", "loss", "layers", "train", "rounding", "format", "data")


def parse(table: dict[str, Any], default_name: str) -> dict[str, Any]:
    """Arguments of :class:`~gradloom.models.network.Network` from a file's tables.

    Raises
    ------
    :exc:`NetworkError`
        If a key is missing or unknown.
    """
    for key in table:
        if key not in _KEYS:
            raise NetworkError(f"unknown key {key!r}: the keys are {', '.join(_KEYS)}")
    for key in ("input", "classes", "layers"):
        if key not in table:
            raise NetworkError(f"key {key!r} is missing: give it")
    if not isinstance(table["layers"], list) or not all(isinstance(entry, dict) for entry in table["layers"]):
        raise NetworkError("layers must be a list of tables: write each layer under [[layers]]")
    shape, name = table["input"], table.get("format", "pint8")
    return {
        "name": table.get("name", default_name),
        "input_shape": tuple(shape) if isinstance(shape, list) else shape,
        "classes": table["classes"],
        "layers": tuple(_layer(entry, number) for number, entry in enumerate(table["layers"], 1)),
        "loss": table.get("loss", "softmax"),
        "train": Training(**_settings(table, "train", Training)),
        "rounding": find_format(name).rounding.changed(_settings(table, "rounding", Rounding)),
        "format": name,
        "data": ImageSettings(**_settings(table, "data", ImageSettings)),
    }


def _settings(table: dict[str, Any], name: str, settings: type) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise NetworkError(f"{name} must be a table: write its keys under [{name}]")
    keys = [field.name for field in dataclasses.fields(settings)]
    for key in found:
        if key not in keys:
            raise NetworkError(f"{name}: unknown key {key!r}: the keys are {', '.join(keys)}")
    return found


def _layer(entry: dict[str, Any], number: int) -> Layer:
    where = f"layer {entry['name']!r}" if "name" in entry else f"layer number {number}"
    entry = dict(entry)
    kind = entry.pop("type", None)
    if not isinstance(kind, str) or kind not in LAYER_TYPES:
        raise NetworkError(f"{where}: type must be one of {', '.join(LAYER_TYPES)}, not {kind!r}: change it")
    fields = dataclasses.fields(LAYER_TYPES[kind])
    keys = [field.name for field in fields]
    for key in entry:
        if key not in keys:
            raise NetworkError(f"{where}: unknown key {key!r}: the keys of {kind} are type, {', '.join(keys)}")
    for field in fields:
        if field.default is dataclasses.MISSING and field.name not in entry:
            raise NetworkError(f"{where}: key {field.name!r} is missing: give it")
    return LAYER_TYPES[kind](**entry)


def write(
    name: str,
    input_shape: Sequence[int],
    classes: int,
    layers: Sequence[Layer],
    loss: str,
    train: Training,
    rounding: Rounding,
    format_name: str,
    data: ImageSettings,
) -> str:
    """The TOML file that :func:`parse` reads back to the same arguments."""
    lines = [f'name = "{name}"', f"input = {list(input_shape)}", f"classes = {classes}", f'loss = "{loss}"',
             f'format = "{format_name}"']
    for layer in layers:
        lines += ["", "[[layers]]", f'type = "{type_name(type(layer))}"', *_pairs(layer)]
    lines += ["", "[train]", *_pairs(train), "", "[rounding]", *_pairs(rounding)]
    if data != ImageSettings():
        lines += ["", "[data]", *_pairs(data)]
    return "\n".join(lines) + "\n"


def _pairs(settings: Any) -> list[str]:
    pairs = dataclasses.asdict(settings).items()
    return [f"{key} = {_literal(value)}" for key, value in pairs if value is not None]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
