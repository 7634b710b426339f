"""Rules of a configuration that no other test breaks."""

import dataclasses

import pytest

from gradloom.rtl.config import PRESETS, ConfigError


@pytest.mark.parametrize(("depth", "legal"), [(128, True), (127, False)])
def test_logit_buffer_holds_one_image(depth, legal):
    """1024 classes in entries of 8."""
    if legal:
        assert dataclasses.replace(PRESETS["eta"], logit_depth=depth).logit_depth == depth
    else:
        text = r"^logit_depth must hold the logits of one image \(128 entries\), not 127: raise it or lower max_classes$"
        with pytest.raises(ConfigError, match=text):
            dataclasses.replace(PRESETS["eta"], logit_depth=depth)


def test_distributed_memories_may_be_none():
    assert dataclasses.replace(PRESETS["eta"], lutram_bits=0).lutram_bits == 0
    with pytest.raises(ConfigError, match=r"^lutram_bits must be a non-negative integer, not -1$"):
        dataclasses.replace(PRESETS["eta"], lutram_bits=-1)
