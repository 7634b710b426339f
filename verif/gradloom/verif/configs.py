"""Configurations for tests, beside the presets."""

from pathlib import Path

from gradloom.rtl.config import PRESETS, Config, load_config

__all__ = ["machine_config", "machines"]

_FOLDER = Path(__file__).resolve().parents[2] / "tests" / "configs"


def machines() -> dict[str, Config]:
    """Every preset and every configuration of the tests, by name."""
    return PRESETS | {path.stem: load_config(str(path)) for path in sorted(_FOLDER.glob("*.toml"))}


def machine_config(name: str) -> Config:
    """A preset, or a configuration of the tests."""
    return machines()[name]
