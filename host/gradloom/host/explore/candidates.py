"""The machines that an exploration looks at: every legal array shape, with A-Cores, channels and buffers to match."""

import dataclasses
from collections.abc import Iterator

from gradloom.contracts.config import PRESETS, Config, ConfigError

__all__ = ["candidates", "machine_toml", "named"]

_SHAPES = [(clusters, cols) for clusters in (1, 2, 4, 8, 16) for cols in (1, 2, 4, 8)
           if clusters == cols or clusters == 2 * cols >= 4]
_ECP5 = {"psum_width": 32, "wg_width": 36, "export_depth": 0, "counters": "none", "family": "ecp5", "apu_shifters": "lut",
         "divider_bits": 1}
"""As in the presets for ECP5: no counters, which a board has no LUTs for, and nothing that only other families make cheap."""
_XC7 = {"wg_width": 44, "lutram_bits": 65536}
"""As in ``eta``."""
_BUFFERS = (
    {"ibuf_depth": 2048, "ebuf_depth": 1024, "wbuf_depth": 512, "psum_depth": 512, "abuf_depth": 2048, "mbuf_depth": 512,
     "pbuf_depth": 512, "dw_depth": 512},
    {"ibuf_depth": 1024, "ebuf_depth": 768, "wbuf_depth": 512, "psum_depth": 512, "abuf_depth": 2048, "mbuf_depth": 256,
     "pbuf_depth": 512, "dw_depth": 512},
    {"ibuf_depth": 2048, "ebuf_depth": 1024, "wbuf_depth": 512, "psum_depth": 256, "abuf_depth": 2048, "mbuf_depth": 512,
     "pbuf_depth": 256, "dw_depth": 128},
    {"ibuf_depth": 1024, "ebuf_depth": 512, "wbuf_depth": 512, "psum_depth": 256, "abuf_depth": 1024, "mbuf_depth": 256,
     "pbuf_depth": 256, "dw_depth": 128},
    {"ibuf_depth": 512, "ebuf_depth": 512, "wbuf_depth": 256, "psum_depth": 128, "abuf_depth": 512, "mbuf_depth": 256,
     "pbuf_depth": 128, "dw_depth": 128},
)
"""Largest first. The second one is eta's."""


def candidates(family: str, bytes_per_cycle: float, classes: int) -> Iterator[Config]:
    """Every machine of a family that may be worth a look, presets as they are.

    DMA channels: as many as the memory keeps busy. The A-Core: one unit for all channels of a group or one for each, of two lanes
    or of one. ``classes``: of the network.
    """
    seen = set()
    presets = [config for config in PRESETS.values() if (config.family == "ecp5") == (family == "ecp5")]
    for config in (*presets, *_generated(family, bytes_per_cycle, classes)):
        if config.digest() not in seen and config.max_classes >= classes:
            seen.add(config.digest())
            yield config


def _generated(family: str, bytes_per_cycle: float, classes: int) -> Iterator[Config]:
    for clusters, cols in _SHAPES:
        apus = sorted({1, clusters} if family == "xc7" else {1, min(2, clusters), clusters})
        for wpus in (1, 2, 3):
            for units in apus:
                for lanes in (2, 1):
                    for buffers in _BUFFERS:
                        made = _made(family, clusters, cols, wpus, units, lanes, buffers, bytes_per_cycle, classes)
                        if made is not None:
                            yield made


def _made(family: str, clusters: int, cols: int, wpus: int, units: int, lanes: int, buffers: dict[str, int], bytes_per_cycle: float,
          classes: int) -> Config | None:
    largest = 1 << max(64, classes).bit_length() - (max(64, classes).bit_count() == 1)
    beat = 2 * clusters
    loads, stores = (4, 2) if bytes_per_cycle >= 4 * beat else (2, 1) if bytes_per_cycle >= 2 * beat else (1, 1)
    fields = dict(buffers)
    if family == "xc7":
        # Two tiles of weight gradients must fit, and an export takes one.
        fields["export_depth"] = 1 << max(0, (9 * max(1, clusters // 2) - 1).bit_length())
    fields["dw_depth"] = max(fields["dw_depth"], 1 << (18 * max(1, clusters // 2) - 1).bit_length())
    fields |= {"max_classes": largest, "logit_depth": max(256, 1024 // clusters, largest // clusters),
               "max_planes": 32 if clusters < 8 else 16, "queue_words": 128 if family == "ecp5" else 1024,
               "tensors": 256 if family == "ecp5" else 512}
    if family == "ecp5":
        fields |= {"logit_depth": max(1024, largest // clusters), "max_planes": 32}
    name = f"{family}-{clusters}x{wpus}x{cols}"
    more: dict[str, object] = dict(_ECP5 if family == "ecp5" else _XC7)
    try:
        return Config(name=name, clusters=clusters, wpus=wpus, cols=cols, load_channels=loads, store_channels=stores,
                      apu_channels=clusters // units, apu_lanes=lanes, **fields, **more)  # type: ignore[arg-type]
    except ConfigError:
        return None


def named(config: Config) -> Config:
    """A generated machine with a name that tells it from others: shape, units and lanes of the A-Core, buffers."""
    if config.name in PRESETS:
        return config
    return dataclasses.replace(config, name=f"{config.name}-{config.digest() & 0xFFFF:04x}")


def machine_toml(config: Config) -> str:
    """A file that ``--config`` takes: of a preset its name as base, else every field."""
    if config.name in PRESETS:
        return f'# The preset {config.name}.\nbase = "{config.name}"\n'
    lines = [f"# {config.macs} MACs; made by gradloom explore."]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        lines.append(f'{field.name} = "{value}"' if isinstance(value, str) else f"{field.name} = {value}")
    return "\n".join(lines) + "\n"
