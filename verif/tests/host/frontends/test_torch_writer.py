"""Settings that mean nothing else than what the machine has are accepted; reshapes and pools that mean something else are not."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gradloom.api.pytorch as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402
from gradloom.models import floatref  # noqa: E402
from gradloom.models.layers import AvgPool, FullyConnected, GlobalAvgPool, MaxPool  # noqa: E402


class Between(nn.Module):
    """A function of a convolution's 4 features of 8 x 8, and a Linear behind it."""

    def __init__(self, function, size):
        super().__init__()
        self.stem, self.function, self.head = nn.Conv2d(1, 4, 3, padding=1), function, nn.Linear(size, 3)

    def forward(self, x):
        return self.head(self.function(self.stem(x)))


def same_function(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the float module, with the parameters that are trained, computes what the imported network computes."""
    imported = bridge.from_module(module, shape)
    state = imported.state()
    copy = bridge.replace_norms(module, shape)
    copy.load_state_dict(bridge.to_state_dict(imported, state), strict=False)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(5))
    images = x.double().numpy().reshape(3, *imported.network.input_shape)
    with torch.no_grad():
        return bool(np.abs(copy(x).numpy() - floatref.from_state(imported.network, state).logits(images)).max() < 1e-5)


def flat(x):
    return torch.flatten(x, 1)


ACCEPTED = [
    (lambda x: flat(functional.max_pool2d(x, 2, ceil_mode=True)), 64, MaxPool),
    (lambda x: flat(functional.max_pool2d(x, 3, 1, 1, ceil_mode=True)), 256, MaxPool),
    (lambda x: flat(functional.max_pool2d(x, 4, 4, dilation=1, ceil_mode=True)), 16, MaxPool),
    (lambda x: flat(functional.avg_pool2d(x, 2, ceil_mode=True)), 64, AvgPool),
    (lambda x: flat(functional.avg_pool2d(x, 2, count_include_pad=False)), 64, AvgPool),
    (lambda x: flat(functional.avg_pool2d(x, 2, divisor_override=4)), 64, AvgPool),
    (lambda x: flat(functional.avg_pool2d(x, 3, 1, 1, divisor_override=9)), 256, AvgPool),
    (lambda x: flat(functional.avg_pool2d(x, x.size(3))), 4, AvgPool),
    (lambda x: flat(functional.adaptive_avg_pool2d(x, (4, 4))), 64, AvgPool),
    (lambda x: functional.adaptive_avg_pool2d(x, (1, 1)).view(x.size(0), -1), 4, GlobalAvgPool),
    (lambda x: functional.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1), 4, GlobalAvgPool),
    (lambda x: functional.adaptive_avg_pool2d(x, 1).squeeze(3).squeeze(2), 4, GlobalAvgPool),
    (lambda x: functional.adaptive_avg_pool2d(x, 1)[:, :, 0, 0], 4, GlobalAvgPool),
    (lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1), 4, GlobalAvgPool),
    (lambda x: x.mean([2, 3]), 4, GlobalAvgPool),
    (lambda x: x.mean((-1, -2), keepdim=True).flatten(1, -1), 4, GlobalAvgPool),
    (lambda x: torch.flatten(x, start_dim=1, end_dim=-1), 256, None),
    (lambda x: torch.flatten(x, 1, 3), 256, None),
    (lambda x: x.view(x.shape[0], -1), 256, None),
    (lambda x: x.view(-1, 4 * 8 * 8), 256, None),
    (lambda x: x.view(-1, x.size(1) * x.size(2) * x.size(3)), 256, None),
    (lambda x: x.reshape(x.shape[0], 256), 256, None),
    (lambda x: torch.reshape(x, (x.size(0), -1)), 256, None),
    (lambda x: x.contiguous().view(x.size(0), -1).clone().float(), 256, None),
    (lambda x: flat(functional.dropout(x, 0.0)), 256, None),
    (lambda x: functional.dropout(flat(x), 0.5, training=False), 256, None),
    (nn.Sequential(nn.Identity(), nn.Flatten(start_dim=1), nn.Dropout(p=0.0), nn.Dropout1d(0), nn.AlphaDropout(0.0)), 256, None),
    (nn.Sequential(nn.Conv2d(4, 4, 1, dilation=2), nn.Flatten()), 256, None),
    (nn.Sequential(nn.Conv2d(4, 4, 1, padding_mode="reflect"), nn.ReLU(), nn.Flatten()), 256, None),
    (nn.Sequential(nn.Conv2d(4, 4, 3, padding="valid", groups=1, dilation=(1, 1)), nn.Flatten()), 144, None),
    (nn.Sequential(nn.AdaptiveAvgPool2d((None, None)), nn.Flatten()), 256, None),
    (nn.Sequential(nn.Flatten(), nn.Unflatten(1, (256, 1, 1)), nn.Flatten()), 256, None),
]


@pytest.mark.parametrize(("function", "size", "pool"), ACCEPTED, ids=[str(number) for number in range(len(ACCEPTED))])
def test_what_means_nothing_else_is_accepted(function, size, pool):
    torch.manual_seed(6)
    module = Between(function, size)
    assert same_function(module, (1, 8, 8))
    pools = [type(layer) for layer in bridge.from_module(module, (1, 8, 8)).network.layers if not hasattr(layer, "out")]
    assert pools == ([pool] if pool else [])


REFUSED = [
    (lambda x: flat(functional.max_pool2d(x, 3, ceil_mode=True)), 36,
     "function 'max_pool2d' (node 'max_pool2d'): dilation, ceil_mode and return_indices are not supported: leave them at their "
     "defaults"),
    (lambda x: flat(functional.avg_pool2d(x, 3, 2, ceil_mode=True)), 64,
     "function 'avg_pool2d' (node 'avg_pool2d'): padding counts as zeros in the mean, and ceil_mode and divisor_override are not "
     "supported: leave these settings at their defaults"),
    (lambda x: flat(functional.avg_pool2d(x, 2, divisor_override=2)), 64,
     "function 'avg_pool2d' (node 'avg_pool2d'): padding counts as zeros in the mean, and ceil_mode and divisor_override are not "
     "supported: leave these settings at their defaults"),
    (lambda x: flat(functional.max_pool2d(x.flatten(1).view(-1, 256, 1, 1), 3, 1, 1)), 256,
     "function 'max_pool2d' (node 'max_pool2d'): its result is 256 x 1 x 1, as a layer of the machine's it would be 4 x 8 x "
     "8: give "
     "it features of the layer before as they are"),
    (lambda x: x.transpose(1, 2).reshape(x.size(0), -1), 256, "method 'transpose' (node 'transpose'): the machine has no such "
     "operation: use Conv2d, Linear, BatchNorm2d, ReLU, pools, additions and flatten"),
    (lambda x: x.view(2 * x.size(0), -1).view(x.size(0), -1), 256,
     "method 'view' (node 'view'): it reshapes images of 4 x 8 x 8 to 128: only flattening each image is supported, as "
     "torch.flatten(x, 1) does"),
    (lambda x: x.flatten(1).view(x.size(0), 4, 8, 8).mean((2, 3)), 4,
     "method 'view' (node 'view'): it reshapes images of 256 to 4 x 8 x 8: only flattening each image is supported, as "
     "torch.flatten(x, 1) does"),
    (lambda x: x.mean(3).flatten(1), 32,
     "method 'mean' (node 'mean'): only the mean over rows and columns of a feature map is a layer: write x.mean((2, 3))"),
]


@pytest.mark.parametrize(("function", "size", "message"), REFUSED)
def test_what_means_something_else_is_refused(function, size, message):
    with pytest.raises(UserError) as caught:
        bridge.from_module(Between(function, size), (1, 8, 8))
    assert str(caught.value) == message


def mlp(*first: nn.Module) -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(*first, nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3))


def test_features_are_accepted():
    """(images, features), as a module without a Flatten takes them."""
    imported = bridge.from_module(mlp(), (20,), 3)
    assert imported.network.input_shape == (20, 1, 1) and imported.flat
    assert imported.network.layers == (FullyConnected(name="0", input="input", out=6, act="relu"),
                                       FullyConnected(name="2", input="0", out=3))
    assert same_function(mlp(), (20,)) and same_function(mlp(nn.Flatten()), (20,))
    with pytest.raises(UserError, match=r"^module Sequential does not take images of 21 \(features\): mat1 .* \(in module '0'\)$"):
        bridge.from_module(mlp(), (21,))


@pytest.mark.parametrize("device", ["golden", "emulator"])
def test_features_are_trained(device):
    """The same steps with a Flatten and images, with features, and on every device."""
    x, y = torch.rand(4, 20, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0])
    models = [
        bridge.compile(mlp(), input_shape=(20,), device=device),
        bridge.compile(mlp(), device=device),
        bridge.compile(mlp(nn.Flatten()), device="golden"),
    ]
    shapes = ((4, 20), (4, 20, 1, 1), (4, 20, 1, 1))
    for step in range(2):
        losses = {model.step(x.reshape((4, 20) if step == 0 and n == 1 else shape), y).loss
                  for n, (model, shape) in enumerate(zip(models, shapes, strict=True))}
        assert len(losses) == 1
    assert models[0].evaluate([(x[:3], y[:3])]) == models[2].evaluate([(x[:3].reshape(3, 20, 1, 1), y[:3])])
    with pytest.raises(UserError) as caught:
        models[0].step(torch.rand(4, 21), y)
    assert str(caught.value) == "the network takes images of 20 x 1 x 1, these are 21: give images of one size"
