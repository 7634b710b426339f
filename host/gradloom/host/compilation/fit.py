"""What does not fit on a machine, said in one sentence that names layer, resource, sizes and a way out."""

from gradloom.contracts.config import Config

__all__ = ["Needs", "ScheduleError", "refuse"]

Needs = tuple[tuple[str, str, int, int], ...]
"""What one image or plane takes: a text with {} for the number, the configuration's field, the number, how many there are."""


class ScheduleError(ValueError):
    """A network that does not fit the machine; the message names layer, resource and sizes."""


def refuse(config: Config, layer: str, needs: Needs) -> None:
    """:exc:`ScheduleError` if a need is more than there is."""
    for what, field, unit, size in needs:
        if unit > size:
            raise ScheduleError(
                f"layer {layer!r}: {what.format(unit)}, configuration {config.name!r} has {size} ({field}): "
                f"raise {field} or shrink the layer"
            )
