"""Modules whose function is more than their parameters and settings say: each is refused by its name, in one sentence."""

import functools
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, prune  # noqa: E402

import gradloom.api.pytorch as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402

SHAPE = (1, 4, 4)


def net() -> nn.Sequential:
    """conv - norm - ReLU - flatten - two Linears of 8 outputs - a Linear of 3."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8), nn.ReLU(),
                         nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def refusal(module: nn.Module, shape: tuple[int, ...] = SHAPE) -> str:
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, shape)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300, message
    return message


# Code that runs around a module


def ignore(*arguments, **settings):
    """A hook that changes nothing; whether one does cannot be seen from outside."""


HOOKS = [
    ("register_forward_hook", "forward hook"),
    ("register_forward_pre_hook", "forward pre-hook"),
    ("register_full_backward_hook", "backward hook"),
    ("register_full_backward_pre_hook", "backward pre-hook"),
]


@pytest.mark.parametrize(("register", "kind"), HOOKS)
def test_hooks_are_refused(register, kind):
    module = net()
    getattr(module[0], register)(ignore)
    assert refusal(module) == (
        f"module '0' (Conv2d): a {kind} runs with it, which the machine cannot: remove the hook (its handle's remove())"
    )


@pytest.mark.parametrize(("register", "kind"), HOOKS)
def test_hooks_of_containers_and_of_the_module_itself_are_refused(register, kind):
    """The trace itself must not run them: they would see its placeholders."""
    def fail(*arguments):
        raise AssertionError("the hook was run")

    module = nn.Sequential(net())
    getattr(module[0], register)(fail)
    assert refusal(module).startswith(f"module '0' (Sequential): a {kind} runs with it, ")
    module = net()
    getattr(module, register)(fail)
    assert refusal(module).startswith(f"module Sequential: a {kind} runs with it, ")


@pytest.mark.parametrize(("register", "kind"), [
    ("register_module_forward_hook", "forward hook"),
    ("register_module_forward_pre_hook", "forward pre-hook"),
    ("register_module_full_backward_hook", "backward hook"),
    ("register_module_full_backward_pre_hook", "backward pre-hook"),
])
def test_hooks_of_every_module_are_refused(register, kind):
    handle = getattr(torch.nn.modules.module, register)(ignore)
    try:
        assert refusal(net()) == (
            f"a global {kind} runs with every module, which the machine cannot: remove the hook (its handle's remove())"
        )
    finally:
        handle.remove()
    bridge.from_module(net(), SHAPE)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused(register):
    module = net()
    getattr(module[4].bias, register)(ignore)
    assert refusal(module) == (
        "module '4' (Linear): a hook of its bias runs in the backward pass, which the machine cannot: remove the hook (its "
        "handle's "
        "remove())"
    )


def test_hooks_that_cannot_change_the_function_are_let_pass():
    """Removed hooks, those of saving and loading, and those of a module that is not called."""
    module = net()
    module[0].register_forward_hook(ignore).remove()
    module[0].register_state_dict_post_hook(ignore)
    module[0].register_load_state_dict_post_hook(ignore)
    bridge.from_module(module, SHAPE)

    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.spare = net(), nn.Linear(2, 2)
            self.spare.register_forward_hook(ignore)
            self.spare.weight.requires_grad_(False)

        def forward(self, x):
            return self.body(x)

    assert bridge.from_module(Spare(), SHAPE).network.classes == 3


class Around(nn.Module):
    """``function`` of a network's features, which a last Linear reads."""

    def __init__(self, function):
        super().__init__()
        self.body, self.fc, self.function = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU()), nn.Linear(8, 3), function

    def forward(self, x):
        return self.function(self, x)


@pytest.mark.parametrize("method", ["register_hook", "retain_grad"])
def test_hooks_of_features_are_refused(method):
    def forward(self, x):
        x = self.body(x)
        getattr(x, method)(*[ignore] * (method == "register_hook"))
        return self.fc(x)

    assert refusal(Around(forward)) == (
        f"method {method!r}: it hangs on the backward pass, which runs on the machine: remove it, tensors() of a "
        "compiled model gives the errors"
    )


# A forward that is not the class's


def test_a_forward_of_one_instance_is_refused():
    reason = "its forward was replaced, and only a class's is read: write it in a class of its own"
    for place, title in ((0, "Conv2d"), (2, "ReLU"), (3, "Flatten")):
        module = net()
        module[place].forward = functools.partial(type(module[place]).forward, module[place])
        assert refusal(module) == f"module '{place}' ({title}): {reason}"
    module = net()
    module.forward = types.MethodType(lambda self, x: nn.Sequential.forward(self, x) * 10, module)
    assert refusal(module) == f"module Sequential: {reason}"
    module = nn.Sequential(net())
    inner = module[0].forward
    module[0].forward = lambda x: inner(x) * 10
    assert refusal(module) == f"module '0' (Sequential): {reason}"


class Standardised(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


class Scaled(nn.Conv2d):
    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input, 10 * weight, bias)


class Halved(nn.Linear):
    @property
    def weight(self):
        return self.stored / 2

    def __init__(self, inputs, outputs):
        nn.Module.__init__(self)
        self.in_features, self.out_features = inputs, outputs
        self.stored, self.bias = nn.Parameter(torch.ones(outputs, inputs)), nn.Parameter(torch.zeros(outputs))


class Renamed(nn.Conv2d):
    """Only its construction differs."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, 3, padding=1)
        self.registered = True

    def extra_repr(self):
        return "renamed"


class Called(nn.Sequential):
    def __call__(self, x):
        return super().__call__(x) * 10


def test_classes_that_change_a_supported_one_are_refused():
    for place, inner, kind, what in ((0, Standardised(1, 2, 3, padding=1), "Conv2d", "forward"),
                                     (0, Scaled(1, 2, 3, padding=1), "Conv2d", "_conv_forward"),
                                     (6, Halved(8, 8), "Linear", "weight")):
        module = net()
        module[place] = inner
        assert refusal(module) == (
            f"module '{place}' ({type(inner).__name__}): its class changes {what} of {kind}, which the machine computes: use "
            f"nn.{kind} itself"
        )
    module = net()
    module[0] = Renamed(1, 2)
    assert bridge.from_module(module, SHAPE).names["0", "w"] == "0.weight"
    assert refusal(Called(*net())) == (
        "module Called: its class changes __call__, and only forward is read: write it in forward"
    )


# Parameters that are computed, shared or frozen


REMOVE = {
    "weight_norm": "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
    "old_weight_norm": "torch.nn.utils.remove_weight_norm(module)",
    "old_spectral_norm": "torch.nn.utils.remove_spectral_norm(module)",
    "prune": "torch.nn.utils.prune.remove(module, 'weight')",
}


@pytest.mark.parametrize(("wrap", "place", "own", "remove"), [
    (parametrizations.weight_norm, 4, "weight", REMOVE["weight_norm"]),
    (parametrizations.weight_norm, 0, "weight", REMOVE["weight_norm"]),
    (parametrizations.spectral_norm, 4, "weight", REMOVE["weight_norm"]),
    (parametrizations.orthogonal, 6, "weight", REMOVE["weight_norm"]),
    (nn.utils.weight_norm, 4, "weight", REMOVE["old_weight_norm"]),
    (nn.utils.spectral_norm, 0, "weight", REMOVE["old_spectral_norm"]),
    (lambda m: prune.l1_unstructured(m, "weight", 0.5), 4, "weight", REMOVE["prune"]),
    (lambda m: prune.random_unstructured(m, "bias", 0.5), 8, "bias", REMOVE["prune"].replace("weight", "bias")),
    (lambda m: prune.ln_structured(m, "weight", 0.5, 2, 0), 0, "weight", REMOVE["prune"]),
    (lambda m: parametrize.register_parametrization(m, "bias", nn.Identity()) or m, 4, "bias",
     REMOVE["weight_norm"].replace("weight", "bias")),
    (lambda m: parametrize.register_parametrization(m, "weight", nn.Identity()) or m, 1, "weight", REMOVE["weight_norm"]),
])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_computed_parameters_are_refused(wrap, place, own, remove):
    module = net()
    title = type(module[place]).__name__
    wrapped = wrap(module[place])
    if wrapped is not None:
        module[place] = wrapped
    assert refusal(module) == f"module '{place}' ({title}): its {own} is computed: remove the parametrisation first, {remove}"
    module(torch.zeros(2, *SHAPE))
    assert "its " + own + " is computed" in refusal(module), "after a call, when PyTorch's own copy fails"


def test_a_tensor_in_place_of_a_parameter_is_refused():
    for place, own, plain in ((4, "weight", True), (4, "bias", False), (0, "weight", True), (1, "bias", False)):
        module = net()
        value = getattr(module[place], own).detach().clone()
        delattr(module[place], own)
        if plain:
            setattr(module[place], own, value)
        else:
            module[place].register_buffer(own, value)
        assert refusal(module) == (
            f"module '{place}' ({type(module[place]).__name__}): its {own} is a tensor and no parameter, and the machine trains "
            "parameters: make it an nn.Parameter"
        )


def test_shared_parameters_are_refused():
    module = net()
    module[6].weight = module[6].weight
    module[8].bias = module[8].bias
    bridge.from_module(module, SHAPE)
    module[8] = nn.Linear(8, 8)
    module[8].weight = module[6].weight
    module.append(nn.Linear(8, 3))
    assert refusal(module) == (
        "module '8' (Linear): it shares 6.weight, and shared parameters are not trained: give it a weight of its own"
    )


@pytest.mark.parametrize(("own", "share"), [
    ("bias", lambda first, other: setattr(other, "bias", first.bias)),
    ("bias", lambda first, other: setattr(other, "bias", nn.Parameter(first.bias.data))),
    ("bias", lambda first, other: setattr(other.bias, "data", first.bias.data.view(8))),
    ("weight", lambda first, other: setattr(other, "weight", nn.Parameter(first.bias.data.expand(8, 8).clone()[:1].expand(8, 8)))),
])
def test_parameters_that_share_memory_are_refused(own, share):
    module = net()
    share(module[4], module[6])
    assert refusal(module) == {
        "bias": "module '6' (Linear): it shares 4.bias, and shared parameters are not trained: give it a bias of its own",
        "weight": "module '6' (Linear): elements of its weight share memory, and shared parameters are not trained: give it a "
                  "contiguous copy",
    }[own]


def test_one_storage_for_parameters_that_do_not_overlap_is_let_pass():
    module = net()
    flat = torch.randn(16)
    module[4].bias, module[6].bias = nn.Parameter(flat[:8]), nn.Parameter(flat[8:])
    assert bridge.from_module(module, SHAPE).values["6", "beta"].shape == (8,)


def test_one_module_in_two_places_is_refused():
    module = net()
    module[6] = nn.Linear(8, 8)
    module.insert(8, module[6])
    assert refusal(module) == (
        "module '6' (Linear): it is called more than once, shared parameters are not trained: make a module for each call"
    )
    norm = nn.BatchNorm2d(2)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Conv2d(2, 2, 1), norm, nn.Flatten(), nn.Linear(8, 3))
    assert refusal(module).startswith("module '1' (BatchNorm2d): it is called more than once, ")


@pytest.mark.parametrize(("freeze", "who", "what"), [
    (lambda m: m.requires_grad_(False), "'0' (Conv2d)", "its weight is frozen"),
    (lambda m: m[4].requires_grad_(False), "'4' (Linear)", "its weight is frozen"),
    (lambda m: m[4].bias.requires_grad_(False), "'4' (Linear)", "its bias is frozen"),
    (lambda m: m[1].requires_grad_(False), "'1' (BatchNorm2d)", "its weight is frozen"),
])
def test_frozen_parameters_are_refused(freeze, who, what):
    module = net()
    freeze(module)
    assert refusal(module) == (
        f"module {who}: {what} (requires_grad is False), and the machine trains every parameter: set requires_grad=True, or import "
        "the layers that shall be trained alone"
    )


def test_layers_frozen_by_a_context_are_refused():
    def forward(self, x):
        with torch.no_grad():
            x = self.body(x)
        return self.fc(x)

    reason = "it runs under torch.no_grad(), and the machine trains every layer: let it run outside"
    assert refusal(Around(forward)) == f"module 'body.0' (Flatten): {reason}"
    assert refusal(Around(torch.no_grad()(lambda self, x: self.fc(self.body(x))))) == f"module 'body.0' (Flatten): {reason}"
    assert refusal(Around(lambda self, x: self.fc(self.body(x).detach()))) == (
        "method 'detach' (node 'detach'): it stops the backward pass, and the machine trains every layer: remove it"
    )
    with torch.no_grad():
        bridge.from_module(net(), SHAPE)
    with torch.inference_mode():
        bridge.from_module(net().requires_grad_(True), SHAPE)


# Parameters without usable values


def test_parameters_without_values_are_refused():
    with torch.device("meta"):
        module = net()
    assert refusal(module) == (
        "module '0' (Conv2d): its weight is on the device 'meta' and has no values: load or initialise the parameters first"
    )
    module = net()
    module[4] = nn.LazyLinear(8)
    assert refusal(module) == (
        "module '4' (LazyLinear): its weight has no shape yet: run the module once on a batch of images first"
    )
    module = net()
    module[4] = nn.Linear(32, 8, dtype=torch.complex64)
    assert refusal(module) == "module '4' (Linear): its weight holds complex64, " \
        "the machine's numbers are real: convert it to float32"
    module = net()
    module[4].weight = nn.Parameter(module[4].weight.detach().to_sparse())
    assert refusal(module) == "module '4' (Linear): its weight is sparse (sparse_coo), " \
        "the machine's tensors are dense: use to_dense()"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_float_is_read(dtype):
    module = net().to(dtype)
    imported = bridge.from_module(module, SHAPE)
    assert (imported.values["4", "w"] == module[4].weight.detach().double().numpy()).all() or dtype is torch.float64
    assert module[4].weight.dtype is dtype


# The function that is imported is the module's


class Aliased(nn.Module):
    """``x += y`` is traced as ``x + y``, so a trace does not see that ``kept`` changes, too."""

    def __init__(self, in_place):
        super().__init__()
        self.a, self.b, self.c, self.d = (
            nn.Sequential(nn.Conv2d(channels, 2, 3, padding=1), nn.BatchNorm2d(2)) for channels in (1, 1, 2, 2)
        )
        self.fc, self.in_place = nn.Linear(32, 3), in_place

    def forward(self, x):
        other = torch.relu(self.b(x))
        kept = x = torch.relu(self.a(x))
        y = self.c(other)
        if self.in_place:
            x += y
        else:
            x = x + y
        return self.fc(torch.flatten(torch.relu(self.d(kept) + torch.relu(x)), 1))


def test_a_module_that_a_trace_does_not_see_through_is_refused():
    torch.manual_seed(4)
    assert bridge.from_module(Aliased(False), SHAPE).network.classes == 3
    assert refusal(Aliased(True)) == (
        "module Aliased computes something else than the modules and functions that its forward calls: look for a tensor that is "
        "changed in place (x += y) and read again under another name"
    )


def test_weights_are_those_of_the_tensor_and_not_of_the_settings():
    """``out_features`` and ``out_channels`` are labels: the tensors decide."""
    module = net()
    module[8].weight, module[8].bias = nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(5))
    assert module[8].out_features == 3 and bridge.from_module(module, SHAPE).network.classes == 5


@pytest.mark.parametrize("shape", [(1, 3), (1,), (1, 1), ()])
def test_a_bias_that_torch_broadcasts_is_read(shape):
    module = net()
    module[8].bias = nn.Parameter(torch.full(shape, 0.5))
    imported = bridge.from_module(module, SHAPE)
    assert imported.values["8", "beta"].shape == (3,)
    own = bridge.to_state_dict(imported, imported.state())["8.bias"]
    assert own.shape == (shape if 3 in shape else (3,)) and (own == 0.5).all()
