"""Rows of PyTorch's pools: the names of a row's settings are those of its functions and of its module."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from gradloom.host.frontends.torch_pools import POOLS  # noqa: E402

MADE = {nn.MaxPool2d: nn.MaxPool2d(2), nn.AvgPool2d: nn.AvgPool2d(2), nn.AdaptiveAvgPool2d: nn.AdaptiveAvgPool2d(1)}
WRITTEN_IN_PYTHON = {nn.MaxPool2d: functional.max_pool2d_with_indices, nn.AdaptiveAvgPool2d: functional.adaptive_avg_pool2d}
"""Of these the interpreter knows the signature; max_pool2d dispatches to a function of the same arguments."""


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.module.__name__)
def test_settings_have_the_names_of_the_arguments(pool):
    attributes = vars(MADE[pool.module])
    assert [key for key in pool.arguments if key not in attributes] == []
    if pool.module in WRITTEN_IN_PYTHON:
        source, *names = inspect.signature(WRITTEN_IN_PYTHON[pool.module]).parameters
        assert source == "input" and names == list(pool.arguments)
