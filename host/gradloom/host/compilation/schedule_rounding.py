"""Fields of RUN that say how a converter rounds (docs/arithmetic.md, sections 4 and 7)."""

from gradloom.host.compilation.program_builder import ProgramBuilder
from gradloom.models.network import Kind
from gradloom.models.rounding import NEAREST_F, XHAT_DRAW

__all__ = ["plane_rounding", "weight_rounding", "xhat_rounding"]

_INDEX_MASK = (1 << 24) - 1


def _converter(number: int, tid: int, f: int) -> dict[str, int]:
    return {f"t{number}": tid, f"f{number}": f, f"r{number}": int(f != NEAREST_F)}


def _index(shape: tuple[int, int, int], images: tuple[int, int], first_channel: int, row: int, column: int = 0) -> dict[str, int]:
    """Element indices of the planes of one channel group from a position on: linear NCHW positions in the whole batch."""
    channels, y, x = shape
    plane = y * x
    found = {"idx0": (images[0] * channels + first_channel) * plane + row * x + column, "s_k": channels * plane, "s_ch": plane}
    return {key: value & _INDEX_MASK for key, value in found.items()}


def plane_rounding(
    builder: ProgramBuilder,
    name: str,
    kind: int,
    shape: tuple[int, int, int],
    images: tuple[int, int],
    group: int,
    row: int = 0,
    column: int = 0,
) -> dict[str, int]:
    """Converter 2 writes tensor ``kind`` of layer ``name``, planes of one channel group of some images.

    Parameters
    ----------
    shape : (C, Y, X)
        Of the tensor.
    row, column : :class:`int`
        First position of the planes that is written.
    """
    f = builder.network.rounding.f(Kind(kind))
    if not builder.training and f == NEAREST_F:
        return {"t2": 0, "f2": f}
    fields = _converter(2, builder.tid(name, kind), f)
    return fields if f == NEAREST_F else fields | _index(shape, images, group * builder.config.group, row, column)


def xhat_rounding(builder: ProgramBuilder, name: str, images: tuple[int, int], group: int, row: int = 0) -> dict[str, int]:
    """Converter 1 writes xhat; without a scale, it keeps no statistics unless it needs a seed."""
    f = builder.network.rounding.xhat_f
    if f == NEAREST_F:
        return {}
    shape = builder.network.shape(name)
    return _converter(1, builder.tid(name, XHAT_DRAW), f) | _index(shape, images, group * builder.config.group, row)


def weight_rounding(builder: ProgramBuilder, name: str, *, dry: bool) -> dict[str, int]:
    """Converter 1 writes velocities, converter 2 weights (and rests); a dry run gathers the statistics of velocities only."""
    rounding = builder.network.rounding
    weights = _converter(2, builder.tid(name, Kind.W), rounding.f(Kind.W))
    if dry:
        weights["t2"] = 0
    return _converter(1, builder.tid(name, Kind.V), rounding.f(Kind.V)) | weights
