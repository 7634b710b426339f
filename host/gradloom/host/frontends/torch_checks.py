"""What changes a module's function besides its class, settings and parameters: hooks, replaced forwards, computed, shared and
frozen parameters. Each is refused by the module's name, as the machine would train something else.
"""

from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import refuse

__all__ = ["Parameters", "changed_by", "check_call", "check_global_hooks", "check_values", "where_of"]

_HOOKS = {
    "_forward_hooks": "forward hook",
    "_forward_pre_hooks": "forward pre-hook",
    "_backward_hooks": "backward hook",
    "_backward_pre_hooks": "backward pre-hook",
}
"""Those of a module, by the attribute that holds them; hooks of saving and loading change no function."""
_REMOVE_HOOK = "remove the hook (its handle's remove())"
_DECIDES = ("forward", "_conv_forward", "__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward", "__getattr__",
            "__getattribute__", "weight", "bias")
"""Names by which a class decides what its modules compute."""
_TRAINED = {nn.Conv2d: "Conv2d", nn.Linear: "Linear", nn.BatchNorm2d: "BatchNorm2d"}


def where_of(name: str, module: nn.Module) -> str:
    """What messages call a module; the name of the outermost one is empty."""
    title = parametrize.type_before_parametrizations(module).__name__
    return f"module {name!r} ({title})" if name else f"module {title}"


def changed_by(module: nn.Module, cls: type[nn.Module]) -> str | None:
    """The first attribute in which a module's own class computes something else than ``cls``, which it derives from."""
    own = type(module)
    return next((name for name in _DECIDES if getattr(own, name, None) is not getattr(cls, name, None)), None)


def check_global_hooks() -> None:
    """Refuse hooks that run with every module."""
    for attribute, kind in _HOOKS.items():
        if getattr(torch_module, f"_global{attribute}"):
            raise UserError(f"a global {kind} runs with every module, which the machine cannot: {_REMOVE_HOOK}")


def check_call(name: str, module: nn.Module) -> None:
    """Refuse a module with code that runs around its class's forward, or instead of it.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
    """
    where = where_of(name, module)
    _check_computed(where, module)
    for attribute, kind in _HOOKS.items():
        if getattr(module, attribute):
            raise refuse(where, f"a {kind} runs with it, which the machine cannot", _REMOVE_HOOK)
    if "forward" in vars(module):
        raise refuse(where, "its forward was replaced, and only a class's is read", "write it in a class of its own")
    if not name and type(module).__call__ is not nn.Module.__call__ and not isinstance(module, fx.GraphModule):
        raise refuse(where, "its class changes __call__, and only forward is read", "write it in forward")
    for cls, title in _TRAINED.items():
        changed = changed_by(module, cls) if isinstance(module, cls) else None
        if changed is not None:
            raise refuse(where, f"its class changes {changed} of {title}, which the machine computes", f"use nn.{title} itself")


def _check_computed(where: str, module: nn.Module) -> None:
    """Refuse parametrisations in both of PyTorch's ways and pruning."""
    if parametrize.is_parametrized(module):
        own = next(iter(module.parametrizations))  # type: ignore[arg-type]
        raise _computed(where, own, f"torch.nn.utils.parametrize.remove_parametrizations(module, {own!r})")
    for hook in module._forward_pre_hooks.values():
        home = type(hook).__module__.rpartition(".")[2]
        own = str(getattr(hook, "name", None) or getattr(hook, "_tensor_name", "weight"))
        if home in ("weight_norm", "spectral_norm"):
            raise _computed(where, own, f"torch.nn.utils.remove_{home}(module)")
        if home == "prune":
            raise _computed(where, own, f"torch.nn.utils.prune.remove(module, {own!r})")


def _computed(where: str, own: str, remove: str) -> UserError:
    return refuse(where, f"its {own} is computed", f"remove the parametrisation first, {remove}")


def check_values(module: nn.Module) -> None:
    """Refuse parameters and buffers of any submodule that hold no real numbers, so that it can be copied and run."""
    for name, inner in module.named_modules():
        where = where_of(name, inner)
        for own, value in (*inner.named_parameters(recurse=False), *inner.named_buffers(recurse=False)):
            if nn.parameter.is_lazy(value):
                raise refuse(where, f"its {own} has no shape yet", "run the module once on a batch of images first")
            if value.device.type == "meta":
                raise refuse(where, f"its {own} is on the device 'meta' and has no values",
                             "load or initialise the parameters first")
            text = str(value.dtype).removeprefix("torch.")
            if value.is_complex():
                raise refuse(where, f"its {own} holds {text}, the machine's numbers are real", "convert it to float32")
            if value.layout is not torch.strided:
                layout = str(value.layout).removeprefix("torch.")
                raise refuse(where, f"its {own} is sparse ({layout}), the machine's tensors are dense", "use to_dense()")


class Parameters:
    """Checks the parameters of a module's layers one after the other.

    Parameters
    ----------
    module : :class:`torch.nn.Module`
        The user's own: what shares memory there need not do so in a copy.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._taken: list[tuple[str, torch.Tensor]] = []

    def check(self, where: str, module: str, own: str) -> bool:
        """Whether a layer has its parameter ``own``, which must be trained with every element for itself.

        Raises
        ------
        :exc:`~gradloom.host.files.UserError`
        """
        owner = self._module.get_submodule(module)
        value: Any = getattr(owner, own)
        if value is None:
            return False
        if not isinstance(owner._parameters.get(own), nn.Parameter):
            raise refuse(where, f"its {own} is a tensor and no parameter, and the machine trains parameters",
                         "make it an nn.Parameter")
        if value._backward_hooks or getattr(value, "_post_accumulate_grad_hooks", None):
            raise refuse(where, f"a hook of its {own} runs in the backward pass, which the machine cannot", _REMOVE_HOOK)
        if any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True)):
            raise refuse(where, f"elements of its {own} share memory, and shared parameters are not trained",
                         "give it a contiguous copy")
        other = next((name for name, taken in self._taken if _overlap(taken, value)), None)
        if other is not None:
            raise refuse(where, f"it shares {other}, and shared parameters are not trained", f"give it a {own} of its own")
        if not value.requires_grad:
            raise refuse(where, f"its {own} is frozen (requires_grad is False), and the machine trains every parameter",
                         "set requires_grad=True, or import the layers that shall be trained alone")
        self._taken.append((f"{module}.{own}", value))
        return True


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors have an element in common."""
    if first is second:
        return True
    if first.device != second.device or first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
        return False
    return bool(np.intersect1d(_places(first), _places(second)).size)


def _places(value: torch.Tensor) -> np.ndarray:
    """Addresses of a tensor's elements in its storage, in bytes."""
    found = np.full((), value.storage_offset(), np.int64)
    for size, stride in zip(value.shape, value.stride(), strict=True):
        found = np.add.outer(found, np.arange(size, dtype=np.int64) * stride)
    return found.reshape(-1) * value.element_size()
