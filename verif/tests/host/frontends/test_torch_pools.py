"""Rows of PyTorch's pools: the names of a row's settings are those of its functions and of its module; what upsampling is read."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gradloom.api.pytorch as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402
from gradloom.host.frontends.torch_pools import POOLS  # noqa: E402
from gradloom.models import floatref  # noqa: E402
from gradloom.models.layers import Upsample  # noqa: E402

MADE = {nn.MaxPool2d: nn.MaxPool2d(2), nn.AvgPool2d: nn.AvgPool2d(2), nn.AdaptiveAvgPool2d: nn.AdaptiveAvgPool2d(1),
        nn.Upsample: nn.Upsample(scale_factor=2)}
WRITTEN_IN_PYTHON = {nn.MaxPool2d: functional.max_pool2d_with_indices, nn.AdaptiveAvgPool2d: functional.adaptive_avg_pool2d,
                     nn.Upsample: functional.interpolate}
"""Of these the interpreter knows the signature; max_pool2d dispatches to a function of the same arguments."""


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.module.__name__)
def test_settings_have_the_names_of_the_arguments(pool):
    attributes = vars(MADE[pool.module])
    # Upsample leaves antialiasing to its function, whose default is none.
    assert [key for key in pool.arguments if key not in attributes] == (["antialias"] if pool.module is nn.Upsample else [])
    if pool.module in WRITTEN_IN_PYTHON:
        source, *names = inspect.signature(WRITTEN_IN_PYTHON[pool.module]).parameters
        assert source == "input" and names == list(pool.arguments)


class Enlarging(nn.Module):
    """A convolution's 4 features of 5 x 6, a function of them, and a convolution and a Linear behind it."""

    def __init__(self, function):
        super().__init__()
        self.stem, self.function = nn.Conv2d(1, 4, 3, padding=1), function
        self.last = nn.Conv2d(4, 3, 3, padding=1)
        self.head = nn.Linear(self.last(function(self.stem(torch.zeros(1, 1, 5, 6)))).numel(), 2)

    def forward(self, x):
        return self.head(self.last(self.function(self.stem(x))).flatten(1))


REPEATED = [
    nn.Upsample(scale_factor=2),
    nn.Upsample(scale_factor=(2, 2.0)),
    nn.Upsample(size=(10, 12)),
    nn.Upsample(scale_factor=2, mode="nearest-exact"),
    nn.UpsamplingNearest2d(scale_factor=2),
    lambda x: functional.interpolate(x, scale_factor=2),
    lambda x: functional.interpolate(x, (10, 12)),
    lambda x: functional.interpolate(x, None, 2.1, "nearest", recompute_scale_factor=True),
]


@pytest.mark.parametrize("function", REPEATED, ids=range(len(REPEATED)))
def test_repeated_rows_and_columns_are_a_layer(function):
    torch.manual_seed(4)
    module = Enlarging(function).eval()
    imported = bridge.from_module(module, (1, 5, 6))
    assert [layer.scale for layer in imported.network.layers if isinstance(layer, Upsample)] == [2]
    x, state = torch.randn(3, 1, 5, 6), imported.state()
    module.load_state_dict(bridge.to_state_dict(imported, state))
    with torch.no_grad():
        expected = module(x).numpy()
    assert np.abs(floatref.from_state(imported.network, state).logits(x.double().numpy()) - expected).max() < 1e-5


@pytest.mark.parametrize("function", [
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.UpsamplingBilinear2d(scale_factor=2),
    nn.Upsample(scale_factor=1.5),
    nn.Upsample(scale_factor=(2, 3)),
    nn.Upsample(scale_factor=2.1),
    nn.Upsample(size=(3, 3)),
], ids=repr)
def test_other_ways_to_enlarge_are_refused(function):
    with pytest.raises(UserError) as caught:
        bridge.from_module(Enlarging(function), (1, 5, 6))
    assert str(caught.value) == (
        f"module 'function' ({type(function).__name__}): only repeating every row and every column a whole number of times, the "
        "same both ways, is a layer (upsample): use the mode nearest and one whole scale"
    )
