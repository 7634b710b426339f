"""What the A-Core's stream and bitmap buffers hold: a whole plane or not, and how many planes a command takes."""

from gradloom.host.compilation.fit import Needs
from gradloom.host.compilation.layer_sizes import Plane
from gradloom.host.compilation.program_builder import ProgramBuilder

__all__ = ["STREAM_SHARES", "holds", "planes_at_once"]

STREAM_SHARES = 4
"""Commands of the A-Core whose planes a stream buffer holds, so that loads run ahead and stores lag behind."""


def holds(builder: ProgramBuilder, plane: Plane, *, bits: bool = True) -> bool:
    """Whether the A-Core's buffers hold a plane; else its rows are taken in parts (:mod:`gradloom.host.tiles.row_parts`)."""
    config = builder.config
    return plane.nb <= config.abuf_depth and (not bits or plane.bits <= config.mbuf_depth)


def planes_at_once(builder: ProgramBuilder, layer: str, plane: Plane, *, bits: bool = True, also: Needs = ()) -> int:
    """Planes of one command of the A-Core: as many as a quarter of every stream buffer holds, so that loads run ahead and
    stores lag behind, or one if the whole holds it.

    Parameters
    ----------
    bits : :class:`bool`
        Whether bitmaps are read or written.
    also : tuple
        Further needs of a plane.

    Raises
    ------
    :exc:`~gradloom.host.compilation.fit.ScheduleError`
        If the buffers do not hold one plane.
    """
    config = builder.config
    needs = (
        ("one plane takes {} beats of the A-Core's stream buffers", "abuf_depth", plane.nb, config.abuf_depth),
        (
            "one plane takes {} beats of the A-Core's bitmap buffers",
            "mbuf_depth",
            plane.bits if bits else 0,
            config.mbuf_depth,
        ),
        *also,
    )
    most = min(builder.ring["PBUF"].size // 2, config.max_planes, builder.images[1] - builder.images[0])
    for planes in range(most, 1, -1):
        if all(unit * planes <= size // STREAM_SHARES for _, _, unit, size in needs):
            return planes
    builder.refuse(layer, needs)
    return 1
