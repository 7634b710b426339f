"""What is given in place of a module: a sentence says what it was, and what to give instead."""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gradloom[torch]')")

from torch import nn  # noqa: E402

import gradloom.api.pytorch as bridge  # noqa: E402
from gradloom.host.files import UserError  # noqa: E402

SHAPE = (1, 4, 4)


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.head = inner, net()

    def forward(self, x):
        return self.head(self.inner(x))


STATE = "holds parameters and no layers: build the module, load them with load_state_dict, and give the module"
GIVEN = [
    (lambda: torch.compile(net()),
     "torch.compile(Sequential) is given, whose layers cannot be read: give the module before torch.compile (its _orig_mod)"),
    (lambda: torch.jit.trace(net(), torch.zeros(1, *SHAPE)),
     "a TorchScript module (TopLevelTracedModule) is given, whose layers cannot be read: give the nn.Module that it was made from"),
    (lambda: torch.jit.script(net()),
     "a TorchScript module (RecursiveScriptModule) is given, whose layers cannot be read: give the nn.Module that it was made "
     "from"),
    (lambda: nn.DataParallel(net()),
     "DataParallel is given, a wrapper that spreads batches over devices: give the module in it (its module)"),
    (lambda: net().state_dict(), f"a state_dict (OrderedDict) {STATE}"),
    (lambda: dict(net().named_parameters()), f"a state_dict (dict) {STATE}"),
    (lambda: {"epoch": 3, "model": net().state_dict()}, f"a checkpoint (dict) {STATE}"),
    (OrderedDict, f"a checkpoint (OrderedDict) {STATE}"),
    (lambda: Wrapped, "the class Wrapped is given: give an instance of it, Wrapped(...)"),
    (lambda: nn.Linear, "the class Linear is given: give an instance of it, Linear(...)"),
    (lambda: net, "the function 'net' is given: give the module itself, which it may make or call"),
    (lambda: net().forward, "the method 'forward' is given: give the module itself, which it may make or call"),
    (lambda: nn.Parameter(torch.zeros(300, 400)), "a tensor of shape (300, 400) is given: give the module that holds or "
                                                  "computes it"),
    (lambda: torch.zeros(3), "a tensor of shape (3,) is given: give the module that holds or computes it"),
    (lambda: np.zeros((3, 4)), "an array of shape (3, 4) is given: give the module that holds or computes it"),
    (lambda: None, "None is given: give a module (load_state_dict, apply and the like may not return one)"),
    (lambda: net().load_state_dict(net().state_dict()),
     "an object of class _IncompatibleKeys is no torch.nn.Module: "
     "give a module, or an ONNX model through gradloom.api.onnx_models"),
    (lambda: [nn.Flatten(), nn.Linear(16, 3)], "a list of modules is given: join them, nn.Sequential(*modules)"),
    (lambda: tuple(net()), "a tuple of modules is given: join them, nn.Sequential(*modules)"),
    (lambda: nn.ModuleList([nn.Flatten(), nn.Linear(16, 3)]),
     "ModuleList has no forward, it only holds modules: give a module whose forward calls them, such as nn.Sequential"),
    (lambda: nn.ModuleDict({"fc": nn.Linear(16, 3)}),
     "ModuleDict has no forward, it only holds modules: give a module whose forward calls them, such as nn.Sequential"),
    (nn.Module, "Module has no forward, it only holds modules: give a module whose forward calls them, such as nn.Sequential"),
    (lambda: "model.pt", "'model.pt' is a file's name: load the file, put its parameters into a module and give the module"),
    (lambda: Path("a/model.pth"), "'a/model.pth' is a file's name: load the file, put its parameters into a module and give "
                                  "the module"),
    (lambda: "model.onnx", "'model.onnx' is a file's name: read the file with gradloom.api.onnx_models.from_model"),
    (lambda: "resnet18", "'resnet18' is no torch.nn.Module: give a module, or an ONNX model through gradloom.api.onnx_models"),
    (lambda: torch.optim.SGD(net().parameters(), 0.1),
     "an object of class SGD is no torch.nn.Module: give a module, or an ONNX model through gradloom.api.onnx_models"),
    (lambda: 3, "an object of class int is no torch.nn.Module: give a module, or an ONNX model through gradloom.api.onnx_models"),
]


@pytest.mark.parametrize(("make", "message"), GIVEN, ids=[str(number) for number in range(len(GIVEN))])
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is not supported:DeprecationWarning")
def test_what_is_no_module_is_named(make, message):
    """At once, and by whatever door it comes."""
    given = make()
    for door in (lambda: bridge.from_module(given, SHAPE), lambda: bridge.compile(given), lambda: bridge.replace_norms(given,
        SHAPE)):
        with pytest.raises(UserError) as caught:
            door()
        assert str(caught.value) == message


def test_an_exported_program_and_an_onnx_model_are_named():
    exported = torch.export.export(net(), (torch.zeros(2, *SHAPE),))
    with pytest.raises(UserError) as caught:
        bridge.compile(exported)
    assert str(caught.value) == (
        "an exported program is given, whose layers cannot be read: give the nn.Module that it was made from"
    )
    onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install 'gradloom[onnx]')")
    with pytest.raises(UserError) as caught:
        bridge.compile(onnx.ModelProto())
    assert str(caught.value) == (
        "an ONNX model is given: read it with gradloom.api.onnx_models.from_model, and give what that returns"
    )


def test_what_is_imported_already_is_named():
    imported = bridge.from_module(net(), SHAPE)
    with pytest.raises(UserError) as caught:
        bridge.from_module(imported, SHAPE)
    assert str(caught.value) == "an imported network is given: give it to compile, or give the module"
    model = bridge.compile(imported, quiet=True)
    for door in (lambda: bridge.compile(model), lambda: bridge.from_module(model, SHAPE)):
        with pytest.raises(UserError) as caught:
            door()
        assert str(caught.value) == "a compiled model is given: give the module that it was made from"


@pytest.mark.parametrize(("wrap", "title", "rest"), [
    (torch.compile, "OptimizedModule", "torch.compile hides its layers: put the module before torch.compile (its _orig_mod) "
                                       "in its place"),
    (nn.DataParallel, "DataParallel", "it spreads batches over devices: put the module in it (its module) in its place"),
    (torch.jit.script, "RecursiveScriptModule",
     "the layers of a TorchScript module cannot be read: put the nn.Module that it was made from in its place"),
])
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is not supported:DeprecationWarning")
def test_wrappers_inside_a_module_are_refused_by_name(wrap, title, rest):
    with pytest.raises(UserError) as caught:
        bridge.from_module(Wrapped(wrap(nn.Conv2d(1, 1, 1))), SHAPE)
    assert str(caught.value) == f"module 'inner' ({title}): {rest}"


def test_a_module_compiled_in_its_place_is_read():
    """``module.compile()`` keeps the layers where they are."""
    module = net()
    module.compile()
    module[0].compile()
    assert bridge.from_module(module, SHAPE).names["0", "w"] == "0.weight"


def test_a_traced_module_is_read_and_a_single_layer_is_not():
    assert bridge.from_module(torch.fx.symbolic_trace(net()), SHAPE).network.layers == bridge.from_module(net(),
        SHAPE).network.layers
    with pytest.raises(UserError) as caught:
        bridge.from_module(nn.Linear(16, 3), (16,))
    assert str(caught.value) == "module Linear is a single layer and no network: put it into one, nn.Sequential(module)"


def test_a_module_that_cannot_be_copied_is_refused():
    module = net()
    module.source = (number for number in range(3))
    with pytest.raises(UserError) as caught:
        bridge.from_module(module, SHAPE)
    assert str(caught.value) == (
        "module Sequential cannot be copied (cannot pickle 'generator' object): keep what cannot be copied outside of it"
    )


def test_modules_in_a_plain_list_are_refused():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Flatten(), nn.Linear(16, 3)]

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    with pytest.raises(UserError) as caught:
        bridge.from_module(Listed(), SHAPE)
    assert str(caught.value) == (
        "module Listed calls a Flatten that is none of its submodules: keep it in an attribute of its own or in an nn.ModuleList"
    )


@pytest.mark.parametrize("shape", [16, None, "1x4x4", (), (4, 4), (2, 1, 4, 4), (1, 0, 4), (1, -4, 4), (1, 4.0, 4), (True, 4, 4)])
def test_shapes_that_are_none_are_refused(shape):
    with pytest.raises(UserError) as caught:
        bridge.from_module(net(), shape)
    assert str(caught.value) == (
        f"input_shape must be (channels, rows, columns) or (features,), in whole numbers from 1 and without the batch, not "
        f"{shape!r}"
    )


def test_classes_must_be_a_number():
    for classes in ("3", 3.0, [3]):
        with pytest.raises((UserError, ValueError), match=r"^classes must be an integer in 2\.\."):
            bridge.from_module(net(), SHAPE, classes)
