"""Configurations for tests, beside the presets."""


from gradloom.contracts.config import PRESETS, Config, load_config
from gradloom.verif.checkout import CONFIGS

__all__ = ["machine_config", "machines"]

_FOLDER = CONFIGS


def machines() -> dict[str, Config]:
    """Every preset and every configuration of the tests, by name."""
    return PRESETS | {path.stem: load_config(str(path)) for path in sorted(_FOLDER.glob("*.toml"))}


def machine_config(name: str) -> Config:
    """A preset, or a configuration of the tests."""
    return machines()[name]
