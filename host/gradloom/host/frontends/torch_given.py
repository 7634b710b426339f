"""What users give where a PyTorch module is wanted: a module whose layers can be read, or a sentence that says what it was."""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import refuse
from gradloom.host.frontends.imported import Imported

__all__ = ["check_given", "check_input_shape", "check_wrappers"]

_WEIGHT_FILES = (".pt", ".pth", ".pkl", ".ckpt", ".bin", ".safetensors", ".tar", ".npz")
_SCRIPT = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_UNREADABLE = "whose layers cannot be read: give the nn.Module that it was made from"


def check_given(given: Any) -> None:
    """Refuse what is no module, and modules whose layers cannot be read.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        It says what was given, without printing any values, and what to give instead.
    """
    said = _said(given)
    if said is not None:
        raise UserError(said)


def check_wrappers(module: nn.Module) -> None:
    """Refuse submodules that hide the layers in them, by their qualified names."""
    for name, inner in module.named_modules():
        where = f"module {name!r} ({type(inner).__name__})"
        if _is_compiled(inner):
            raise refuse(where, "torch.compile hides its layers",
                         "put the module before torch.compile (its _orig_mod) in its place")
        if isinstance(inner, _SCRIPT):
            raise refuse(where, "the layers of a TorchScript module cannot be read",
                         "put the nn.Module that it was made from in its place")
        if isinstance(inner, _PARALLEL):
            raise refuse(where, "it spreads batches over devices", "put the module in it (its module) in its place")


def check_input_shape(shape: Any) -> tuple[int, ...]:
    """The shape of an image as a tuple: (channels, rows, columns), or (features,).

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If it is none.
    """
    whole = isinstance(shape, tuple | list) and all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0 for size in shape
    )
    if not whole or len(shape) not in (1, 3):
        raise UserError("input_shape must be (channels, rows, columns) or (features,), in whole numbers from 1 and without the "
                        f"batch, not {shape!r}")
    return tuple(int(size) for size in shape)


def _said(given: Any) -> str | None:
    if isinstance(given, nn.Module):
        return _unreadable(given)
    title = type(given).__name__
    if isinstance(given, torch.Tensor | np.ndarray):
        what = "a tensor" if isinstance(given, torch.Tensor) else "an array"
        return f"{what} of shape {tuple(given.shape)} is given: give the module that holds or computes it"
    if isinstance(given, Mapping):
        tensors = bool(given) and all(isinstance(value, torch.Tensor) for value in given.values())
        return (f"a {'state_dict' if tensors else 'checkpoint'} ({title}) holds parameters and no layers: build the module, load "
                "them with load_state_dict, and give the module")
    if isinstance(given, str | Path):
        return _name(str(given))
    if isinstance(given, type):
        return f"the class {given.__name__} is given: give an instance of it, {given.__name__}(...)"
    if given is None:
        return "None is given: give a module (load_state_dict, apply and the like may not return one)"
    if isinstance(given, list | tuple) and given and all(isinstance(element, nn.Module) for element in given):
        return f"a {title} of modules is given: join them, nn.Sequential(*modules)"
    if isinstance(given, Imported):
        return "an imported network is given: give it to compile, or give the module"
    if type(given).__module__ == "gradloom.host.frontends.torch_model":
        return "a compiled model is given: give the module that it was made from"
    if type(given).__module__.partition(".")[0] == "onnx":
        return "an ONNX model is given: read it with gradloom.api.onnx_models.from_model, and give what that returns"
    if title == "ExportedProgram":
        return f"an exported program is given, {_UNREADABLE}"
    if isinstance(given, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        what = "method" if isinstance(given, types.MethodType) else "function"
        return f"the {what} {given.__name__!r} is given: give the module itself, which it may make or call"
    return f"an object of class {title} is no torch.nn.Module: give a module, or an ONNX model through gradloom.api.onnx_models"


def _unreadable(module: nn.Module) -> str | None:
    title = type(module).__name__
    if _is_compiled(module):
        inner = type(getattr(module, "_orig_mod", None)).__name__
        return (f"torch.compile({inner}) is given, whose layers cannot be read: give the module before torch.compile (its "
                "_orig_mod)")
    if isinstance(module, _SCRIPT):
        return f"a TorchScript module ({title}) is given, {_UNREADABLE}"
    if isinstance(module, _PARALLEL):
        return f"{title} is given, a wrapper that spreads batches over devices: give the module in it (its module)"
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        return (f"{title} has no forward, it only holds modules: give a module whose forward calls them, such as "
                "nn.Sequential")
    return None


def _is_compiled(module: nn.Module) -> bool:
    """Whether torch.compile made it; by its name, as to import its class takes seconds."""
    return type(module).__name__ == "OptimizedModule" and type(module).__module__.startswith("torch._dynamo")


def _name(text: str) -> str:
    if text.lower().endswith(".onnx"):
        return f"{text!r} is a file's name: read the file with gradloom.api.onnx_models.from_model"
    if text.lower().endswith(_WEIGHT_FILES):
        return f"{text!r} is a file's name: load the file, put its parameters into a module and give the module"
    return f"{text!r} is no torch.nn.Module: give a module, or an ONNX model through gradloom.api.onnx_models"
