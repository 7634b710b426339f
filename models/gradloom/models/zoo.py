"""The built-in networks: TOML files beside this module."""

from pathlib import Path

__all__ = ["FOLDER", "names", "path"]

FOLDER = Path(__file__).parent / "networks"
"""Folder of the built-in networks, one TOML file each."""


def names() -> tuple[str, ...]:
    """Names of the built-in networks, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def path(name: str) -> Path | None:
    """File of the built-in network ``name``, or ``None`` if there is none."""
    return FOLDER / f"{name}.toml" if name in names() else None
