"""PyTorch modules as networks: the same function in float, parameters both ways, refusals word for word."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")
sys.path.insert(0, str(Path(__file__).parent))

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch_modules import BasicBlock, Plain, ResNet, random_module  # noqa: E402

import gradloom.api.pytorch as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402
from gradloom.models import floatref  # noqa: E402
from gradloom.models.arithmetic import pint  # noqa: E402
from gradloom.models.layers import NetworkError, Training  # noqa: E402
from gradloom.models.network import Conv, FullyConnected, GlobalAvgPool, MaxPool, load_network  # noqa: E402

SHAPE = (3, 8, 8)


def same_function(module: nn.Module, shape: tuple[int, int, int]) -> float:
    """Largest difference of logits, float module against float reference, with a state's parameters in both."""
    imported = bridge.from_module(module, shape)
    state = imported.state(seed=3)
    copy = bridge.replace_norms(module, shape)
    copy.load_state_dict(bridge.to_state_dict(imported, state))
    torch.manual_seed(11)
    x = torch.randn(3, *shape)
    expected = floatref.from_state(imported.network, state).logits(x.numpy().astype(np.float64))
    with torch.no_grad():
        return float(np.abs(copy(x).numpy() - expected).max())


# What becomes of a module


def test_resnet_becomes_layers():
    torch.manual_seed(1)
    imported = bridge.from_module(ResNet(), SHAPE, 10, train=Training(batch=4))
    assert imported.network.layers == (
        Conv(name="conv1", input="input", out=4, kernel=3, pad=1),
        MaxPool(name="maxpool", input="conv1", kernel=3, stride=1, pad=1),
        Conv(name="layer1.0.conv1", input="maxpool", out=4, kernel=3, pad=1),
        Conv(name="layer1.0.conv2", input="layer1.0.conv1", out=4, kernel=3, pad=1, residual="maxpool"),
        Conv(name="layer1.1.conv1", input="layer1.0.conv2", out=4, kernel=3, pad=1),
        Conv(name="layer1.1.conv2", input="layer1.1.conv1", out=4, kernel=3, pad=1, residual="layer1.0.conv2"),
        Conv(name="layer2.0.conv1", input="layer1.1.conv2", out=8, kernel=3, stride=2, pad=1),
        Conv(name="layer2.0.downsample.0", input="layer1.1.conv2", out=8, kernel=1, stride=2, act="none"),
        Conv(name="layer2.0.conv2", input="layer2.0.conv1", out=8, kernel=3, pad=1, residual="layer2.0.downsample.0"),
        GlobalAvgPool(name="avgpool", input="layer2.0.conv2"),
        FullyConnected(name="fc", input="avgpool", out=10),
    )
    assert imported.network.name == "ResNet" and imported.network.train.batch == 4
    assert imported.notes == (
        "BatchNorm2d is replaced by L1-FRN with a trained threshold (TLU, it takes the ReLU's place) in 8 places: weight and bias "
        "start as they are, running statistics are not used",
    )
    assert imported.names["layer2.0.conv2", "tau"] == "layer2.0.bn2.tau"
    assert ("layer2.0.downsample.0", "tau") not in imported.names


def test_torchvision_resnet18_is_the_built_in_one():
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    network, built_in = bridge.from_module(models.resnet18(), (3, 224, 224), 1000).network, load_network("resnet18")
    assert [type(layer) for layer in network.layers] == [type(layer) for layer in built_in.layers]
    for layer, other in zip(network.layers, built_in.layers, strict=True):
        assert network.geometry(layer.name) == built_in.geometry(other.name)
        for key in ("norm", "act"):
            assert getattr(layer, key, None) == getattr(other, key, None)
        for key in ("input", "residual"):
            names = getattr(layer, key, None), getattr(other, key, None)
            assert names == (None, None) or network.index(names[0]) == built_in.index(names[1])


def test_layers_survive_a_file(tmp_path):
    network = bridge.from_module(ResNet(), SHAPE).network
    (tmp_path / "resnet.toml").write_text(network.to_toml())
    assert load_network(str(tmp_path / "resnet.toml")) == network


def test_plain_network_has_biases_and_no_note():
    imported = bridge.from_module(Plain(), (1, 8, 8), 3)
    assert [(layer.name, getattr(layer, "act", None)) for layer in imported.network.layers] == [
        ("conv1", "relu"), ("max_pool2d", None), ("avg_pool2d", None), ("conv2", "relu"), ("fc1", "relu"), ("fc2", "none")
    ]
    assert imported.notes == () and set(imported.names.values()) == set(dict(Plain().named_parameters()))


def test_bias_before_a_norm_falls_away_aloud():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    imported = bridge.from_module(module, SHAPE)
    assert imported.notes == (
        "BatchNorm2d is replaced by L1-FRN with a trained threshold (TLU, it takes the ReLU's place) in 1 places: weight and bias "
        "start as they are, running statistics are not used, and the bias of 1 convolutions falls away, which BatchNorm2d would "
        "cancel",
    )
    assert "0.bias" not in imported.names.values() and same_function(module, SHAPE) < 1e-5


def test_the_module_is_left_as_it_is():
    module = ResNet().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    bridge.from_module(module, SHAPE)
    bridge.replace_norms(module, SHAPE)
    assert module.training and all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


# The same function


@pytest.mark.parametrize(("make", "shape"), [(ResNet, SHAPE), (Plain, (1, 8, 8))])
def test_same_function(make, shape):
    torch.manual_seed(2)
    assert same_function(make(), shape) < 1e-5


@pytest.mark.parametrize("seed", range(24))
def test_random_networks_compute_the_same(seed):
    assert same_function(*random_module(seed)) < 2e-5


# Parameters


def test_weights_are_quantised_as_initial_ones_are():
    torch.manual_seed(3)
    module = ResNet()
    imported = bridge.from_module(module, SHAPE)
    state = imported.state()
    for layer in imported.network.weighted:
        exponent = state.exponents[imported.network.tid(layer.name, 0)]
        real = imported.values[layer.name, "w"].reshape(imported.network.weight_shape(layer.name))
        scaled = np.ldexp(real, -exponent)
        assert 2048 <= np.abs(scaled).max() < 4096
        step = np.where(np.abs(scaled) < 8, 1, np.where(np.abs(scaled) < 512, 8, 64))
        error = np.abs(pint.decode(state.weights[layer.name]) - scaled)
        assert (error[np.abs(scaled) <= 4032] <= step[np.abs(scaled) <= 4032] / 2).all()
        assert state.exponents[imported.network.tid(layer.name, 1)] == exponent - 4


def test_trained_weights_come_back_to_the_same_codes():
    torch.manual_seed(4)
    module = ResNet()
    with bridge.compile(module, input_shape=SHAPE, input_exponent=-9, lr=0.1, quiet=True) as model:
        for _ in range(3):
            model.step(torch.randn(4, *SHAPE), torch.tensor([0, 3, 5, 9]))
        trained, values = model.state(), model.state_dict()
    module.load_state_dict(values, strict=False)
    again = bridge.from_module(module, SHAPE).state()
    for name, codes in trained.weights.items():
        assert np.array_equal(np.ldexp(pint.decode(codes), trained.exponents[model.network.tid(name, 0)]),
                              np.ldexp(pint.decode(again.weights[name]), again.exponents[model.network.tid(name, 0)]))
        for key in ("gamma", "beta"):
            if key in trained.parameters[name]:
                assert np.abs(trained.parameters[name][key].astype(np.int64) - again.parameters[name][key]).max() <= 1


def test_state_dict_loads_strictly_into_the_replaced_module():
    imported = bridge.from_module(ResNet(), SHAPE)
    values = bridge.to_state_dict(imported, imported.state())
    assert all(value.dtype == torch.float32 for value in values.values())
    bridge.replace_norms(ResNet(), SHAPE).load_state_dict(values, strict=True)
    missing = ResNet().load_state_dict(values, strict=False).missing_keys
    assert all(name.endswith(("running_mean", "running_var", "num_batches_tracked")) for name in missing)


@pytest.mark.parametrize(("name", "value", "message"), [
    ("bn1.weight", 8.5, "parameter 'bn1.weight': it holds 8.5, the machine's range is -8..8: initialise it anew"),
    ("bn1.bias", float("nan"), "parameter 'bn1.bias': it holds nan, the machine's range is -8..8: initialise it anew"),
    ("conv1.weight", float("inf"),
     "parameter 'conv1.weight': its largest magnitude is inf, it must lie in 2^-53..2^60: initialise it anew"),
])
def test_values_out_of_range_are_refused(name, value, message):
    module = ResNet()
    with torch.no_grad():
        dict(module.named_parameters())[name].view(-1)[0] = value
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE).state()
    assert str(caught.value) == message


# Refusals


class Wrapped(nn.Module):
    """``inner`` between a convolution with norm and a head."""

    def __init__(self, inner):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.inner = inner
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(2))

    def forward(self, x):
        return self.head(self.inner(self.stem(x)))


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


MODULES = [
    (nn.GELU(), "module 'inner' (GELU): its activation is not one of the machine's: use ReLU"),
    (nn.GroupNorm(2, 4),
     "module 'inner' (GroupNorm): its norm is not one of the machine's: use BatchNorm2d behind a Conv2d, which becomes L1-FRN"),
    (nn.Conv2d(4, 4, 3, groups=2),
     "module 'inner' (Conv2d): groups is 2, every output channel reads every input channel: use groups=1"),
    (nn.Conv2d(4, 4, 3, dilation=2),
     "module 'inner' (Conv2d): dilation is (2, 2), windows are dense: use dilation=1 with a larger kernel"),
    (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
     "module 'inner' (Conv2d): padding_mode is 'reflect', padding is zeros: use padding_mode='zeros'"),
    (nn.Conv2d(4, 4, (1, 3)),
     "module 'inner' (Conv2d): kernel is 1 x 3, the machine's windows are square: make kernel equal both ways"),
    (nn.Conv2d(4, 4, 3, bias=False),
     "module 'inner' (Conv2d): a layer without a norm trains a bias, and this one has none: set bias=True, or put a BatchNorm2d "
     "behind it"),
    (nn.Conv2d(4, 4, 2, padding="same"),
     "module 'inner' (Conv2d): padding 'same' of an even kernel pads more on one side: use an odd kernel"),
    (nn.BatchNorm2d(4),
     "module 'inner' (BatchNorm2d): a norm must directly follow a convolution whose output nothing else reads, here it follows "
     "module 'stem.2' (ReLU): put it behind its Conv2d"),
    (nn.ReLU(),
     "module 'inner' (ReLU): an activation must follow a convolution, a linear layer, their norm or sum, or a max pool of these, "
     "whose output nothing else reads, here it follows module 'stem.2' (ReLU): put it there, or remove it"),
    (nn.Dropout(0.5), "module 'inner' (Dropout): the machine has no dropout, and p is 0.5: set p to 0 or remove it"),
    (nn.MaxPool2d(3, ceil_mode=True),
     "module 'inner' (MaxPool2d): dilation, ceil_mode and return_indices are not supported: leave them at their defaults"),
    (nn.AvgPool2d(3, padding=1, count_include_pad=False),
     "module 'inner' (AvgPool2d): padding counts as zeros in the mean, and ceil_mode and divisor_override are not supported: leave "
     "these settings at their defaults"),
    (nn.AdaptiveAvgPool2d(3),
     "module 'inner' (AdaptiveAvgPool2d): 8 x 8 to 3 x 3 takes windows that overlap or differ in size: choose an output size that "
     "divides the input's, or AdaptiveAvgPool2d(1)"),
    (nn.ConvTranspose2d(4, 4, 2, 2),
     "module 'inner' (ConvTranspose2d): the machine has no transposed convolution: use an Upsample and a Conv2d behind it"),
    (nn.Linear(8, 8),
     "module 'inner' (Linear): its input is a feature map, a fully connected layer takes every element of an image: put "
     "torch.flatten(x, 1) before it"),
    (Lambda(lambda x: torch.sigmoid(x)),
     "function 'sigmoid' (node 'sigmoid'): its activation is not one of the machine's: use ReLU"),
    (Lambda(lambda x: torch.cat([x, x], 1)),
     "function 'cat' (node 'cat'): the machine adds branches and does not concatenate them: add them after convolutions with "
     "BatchNorm2d"),
    (Lambda(lambda x: functional.dropout(x, 0.2, True)),
     "function 'dropout' (node 'dropout'): the machine has no dropout, and p is 0.2: set p to 0 or remove it"),
    (Lambda(lambda x: x * 2),
     "function 'mul' (node 'mul'): the machine has no such operation: use Conv2d, Linear, BatchNorm2d, ReLU, pools, additions and "
     "flatten"),
    (Lambda(lambda x: x + x),
     "function 'add' (node 'add'): one side of a sum must be a Conv2d followed by BatchNorm2d that nothing else reads, here the "
     "sides are module 'stem.2' (ReLU) and module 'stem.2' (ReLU): put a BatchNorm2d before the addition"),
    (Lambda(lambda x: x + 1),
     "function 'add' (node 'add'): only two feature maps of one shape are added: give both sides the same shape"),
    (Lambda(lambda x: x.view(x.size(0), 8, 4, 8)),
     "method 'view' (node 'view'): it reshapes images of 4 x 8 x 8 to 8 x 4 x 8: only flattening each image is supported, as "
     "torch.flatten(x, 1) does"),
    (Lambda(lambda x: x.mean(1, keepdim=True)),
     "method 'mean' (node 'mean'): only the mean over rows and columns of a feature map is a layer: write x.mean((2, 3))"),
    (Lambda(lambda x: functional.pad(x, (1, 1, 1, 1))),
     "function 'pad' (node 'pad'): only channels of zeros behind the source's are appended (subsample): write "
     "F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, MORE)), and pad planes in the convolution"),
    (Lambda(lambda x: x[:, 1:]),
     "function 'getitem' (node 'getitem'): only x[:, :, ::s, ::s] of a feature map is a layer (subsample): write the shortcut so"),
    (Lambda(lambda x: x if x.sum() > 0 else -x),
     "module Wrapped cannot be traced (symbolically traced variables cannot be used as inputs to control flow): its forward must "
     "not depend on values of tensors, write it with modules and torch functions"),
]


@pytest.mark.parametrize(("inner", "message"), MODULES)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
def test_refused(inner, message):
    module = Wrapped(inner)
    module.head = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        features = module.stem(torch.zeros(1, *SHAPE))
        try:
            size = inner(features).numel()
        except RuntimeError:
            size = 1
    module.head[1] = nn.Linear(size, 2)
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == message


class PreActivation(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(256, 2)

    def forward(self, x):
        x = self.stem(x)
        return self.fc(torch.flatten(x + self.bn(self.conv(x)), 1))


def test_a_sum_without_relu_is_refused():
    with pytest.raises(UserError) as caught:
        bridge.from_module(PreActivation(), SHAPE)
    assert str(caught.value) == (
        "function 'add' (node 'add'): a sum must be followed by a ReLU that alone reads it, the machine adds before the "
        "threshold: put the ReLU behind the addition, as ResNet's BasicBlock does"
    )


def test_shared_parameters_are_refused():
    conv = nn.Conv2d(3, 3, 3, padding=1)
    module = nn.Sequential(conv, nn.ReLU(), conv, nn.Flatten(), nn.Linear(192, 2))
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == (
        "module '0' (Conv2d): it is called more than once, shared parameters are not trained: make a module for each call"
    )


def test_softmax_at_the_end_is_refused():
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.LogSoftmax(1))
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == (
        "module '2' (LogSoftmax): softmax belongs to the loss, which the machine computes itself: return the logits"
    )


def test_an_output_that_is_no_linear_is_refused():
    module = nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == (
        "module '1' (AdaptiveAvgPool2d): the network's output must be the logits of a Linear layer that nothing else reads: end "
        "the network with a Linear layer and leave softmax to the loss"
    )


def test_wrong_images_and_classes_are_refused():
    with pytest.raises(UserError, match=r"^module ResNet does not take images of 1 x 8 x 8 \(channels, rows, columns\): Given "):
        bridge.from_module(ResNet(), (1, 8, 8))
    with pytest.raises(NetworkError) as caught:
        bridge.from_module(ResNet(), SHAPE, 7)
    assert str(caught.value) == "layer 'fc': out is 10, the network has 7 classes: make them equal"
    with pytest.raises(UserError) as refused:
        bridge.from_module("resnet18", SHAPE)
    assert str(refused.value) == (
        "'resnet18' is no torch.nn.Module: give a module, or an ONNX model through gradloom.api.onnx_models"
    )


def test_a_rule_of_the_network_names_the_module():
    module = nn.Sequential(BasicBlock(3, 3), nn.Conv2d(3, 4, 8), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    module = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), *module)
    with pytest.raises(NetworkError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == (
        "layer '4': FRN on a 1 x 1 plane would leave only signs: set norm to 'none', or use a fully_connected layer"
    )


def test_relu_that_changes_its_input_unseen_is_refused():
    def forward(x):
        functional.relu(x, inplace=True)
        return x

    module = nn.Sequential(nn.Conv2d(3, 2, 3), Lambda(forward), nn.Flatten(), nn.Linear(72, 2))
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == "node 'relu': it changes a tensor in place and its result is not used: assign its result"


def test_imported_is_plain_data():
    imported = bridge.from_module(ResNet(), SHAPE)
    assert dataclasses.replace(imported, notes=()).network is imported.network
