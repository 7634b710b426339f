"""Shapes of a layer from those of its input, and the rules of a single layer."""

from collections.abc import Mapping

from gradloom.models.layers import (
    AvgPool,
    Conv,
    FullyConnected,
    Geometry,
    GlobalAvgPool,
    Layer,
    MaxPool,
    NetworkError,
    Subsample,
    Upsample,
    is_integer,
    shape_text,
)

__all__ = ["MAX_CHANNELS", "MAX_SIZE", "check_reference", "infer"]

MAX_SIZE = 4095
"""Largest number of rows, columns or classes (12-bit fields of the program)."""
MAX_PLANE = 32767
"""Largest number of positions of a normalised plane (15-bit field of the program)."""
MAX_CHANNELS = 65535
MAX_KERNEL = 15

Shape = tuple[int, int, int]


def check_reference(layer: Layer, key: str, name: object, shapes: Mapping[str, Shape]) -> None:
    """Refuse a name that is no earlier tensor."""
    if not isinstance(name, str):
        raise NetworkError(f"layer {layer.name!r}: {key} must be a layer's name, not {name!r}: give a string")
    if name not in shapes:
        raise NetworkError(
            f"layer {layer.name!r}: {key} {name!r} is no earlier layer: give one of {', '.join(shapes)}"
        )


def infer(layer: Layer, shapes: Mapping[str, Shape]) -> Geometry:
    """Geometry of a layer whose ``input`` is filled in.

    Parameters
    ----------
    shapes : mapping
        (C, Y, X) of the input and of every earlier layer, by name.

    Raises
    ------
    :exc:`NetworkError`
        If the layer breaks a rule.
    """
    shape = shapes[layer.input]
    channels, rows, columns = shape
    if isinstance(layer, FullyConnected):
        out = _integer(layer, "out", 1, MAX_CHANNELS)
        if layer.act not in ("relu", "none"):
            raise NetworkError(
                f"layer {layer.name!r}: act of a fully connected layer must be 'relu' or 'none', not "
                f"{layer.act!r}: change it"
            )
        return Geometry(shape, (out, 1, 1), (rows, columns), 1, 0)
    if isinstance(layer, GlobalAvgPool):
        if rows != columns or rows > MAX_KERNEL:
            raise NetworkError(
                f"layer {layer.name!r}: a global average pool needs a square plane of at most {MAX_KERNEL} x "
                f"{MAX_KERNEL}, its input is {rows} x {columns}: put an avg_pool layer before or in its place"
            )
        return Geometry(shape, (channels, 1, 1), (rows, columns), rows, 0)
    if isinstance(layer, Upsample):
        scale = _integer(layer, "scale", 1, MAX_KERNEL)
        size = (scale * rows, scale * columns)
        _check_size(layer, size, "scale")
        return Geometry(shape, (channels, *size), (scale, scale), scale, 0)
    if isinstance(layer, Subsample):
        stride = _integer(layer, "stride", 1, MAX_KERNEL)
        out = _integer(layer, "out", channels, MAX_CHANNELS)
        return Geometry(shape, (out, (rows - 1) // stride + 1, (columns - 1) // stride + 1), (1, 1), stride, 0)
    assert isinstance(layer, Conv | MaxPool | AvgPool)
    kernel = _integer(layer, "kernel", 1, MAX_KERNEL)
    stride = _integer(layer, "stride", 1, 2 if isinstance(layer, Conv) else MAX_KERNEL)
    pad = _integer(layer, "pad", 0, MAX_KERNEL)
    if pad >= kernel:
        raise NetworkError(
            f"layer {layer.name!r}: pad must be below kernel, pad is {pad} and kernel {kernel}: lower pad"
        )
    size = ((rows + 2 * pad - kernel) // stride + 1, (columns + 2 * pad - kernel) // stride + 1)
    if min(size) < 1 or min(rows, columns) + 2 * pad < kernel:
        raise NetworkError(
            f"layer {layer.name!r}: a kernel of {kernel} with pad {pad} does not fit its input of {rows} "
            f"x {columns}, nothing would be left: shrink kernel or raise pad"
        )
    _check_size(layer, size, "pad")
    if not isinstance(layer, Conv):
        return Geometry(shape, (channels, *size), (kernel, kernel), stride, pad)
    geometry = Geometry(shape, (_integer(layer, "out", 1, MAX_CHANNELS), *size), (kernel, kernel), stride, pad)
    _check_conv(layer, geometry, shapes)
    return geometry


def _integer(layer: Layer, key: str, low: int, high: int) -> int:
    value = getattr(layer, key)
    if not is_integer(value):
        raise NetworkError(f"layer {layer.name!r}: {key} must be an integer, not {value!r}: give a whole number")
    if not low <= value <= high:
        raise NetworkError(f"layer {layer.name!r}: {key} must lie in {low}..{high}, not {value}: change it")
    return value


def _check_size(layer: Layer, size: tuple[int, int], key: str) -> None:
    """Refuse an output of more rows or columns than a program can name; ``key`` is what makes it smaller."""
    if max(size) > MAX_SIZE:
        raise NetworkError(
            f"layer {layer.name!r}: its output of {size[0]} x {size[1]} is larger than {MAX_SIZE}: lower {key}"
        )


def _check_conv(layer: Conv, geometry: Geometry, shapes: Mapping[str, Shape]) -> None:
    where = f"layer {layer.name!r}"
    _, rows, columns = geometry.out_shape
    allowed = {"frn": ("tlu", "none"), "none": ("relu", "none")}
    if layer.norm not in allowed:
        raise NetworkError(f"{where}: norm must be 'frn' or 'none', not {layer.norm!r}: choose one of the two")
    if layer.act not in allowed[layer.norm]:
        raise NetworkError(
            f"{where}: act must be {' or '.join(map(repr, allowed[layer.norm]))} with norm {layer.norm!r}, not "
            f"{layer.act!r}: change act or norm"
        )
    if layer.norm == "frn" and rows * columns == 1:
        raise NetworkError(
            f"{where}: FRN on a 1 x 1 plane would leave only signs: set norm to 'none', or use a "
            "fully_connected layer"
        )
    if layer.norm == "frn" and rows * columns > MAX_PLANE:
        raise NetworkError(
            f"{where}: FRN needs a plane of at most {MAX_PLANE} positions, its output is {rows} x {columns}: "
            "raise stride or shrink the input"
        )
    if layer.residual is None:
        return
    check_reference(layer, "residual", layer.residual, shapes)
    if layer.norm != "frn" or layer.act != "tlu":
        raise NetworkError(
            f"{where}: a residual needs norm 'frn' and act 'tlu', here they are {layer.norm!r} and "
            f"{layer.act!r}: change them or remove residual"
        )
    if shapes[layer.residual] != geometry.out_shape:
        raise NetworkError(
            f"{where}: residual {layer.residual!r} is {shape_text(shapes[layer.residual])}, the layer's output is "
            f"{shape_text(geometry.out_shape)}: add a subsample layer or a projection (a conv with act 'none') of "
            "the same shape"
        )
