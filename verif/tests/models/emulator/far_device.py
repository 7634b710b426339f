"""A GPU's rules without a GPU: tensors on "cuda" whose values are computed on the CPU.

What it refuses is what a GPU refuses: operands on two devices, and numpy's view of a tensor that has not been copied to the CPU.
So it shows that a computation stays where it was put and takes the way of a device that does not multiply bytes; how a GPU
rounds it does not show (docs/emulator.md says why nothing is rounded).
"""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

__all__ = ["FarDevice", "FarTensor", "skip_unless_linked"]

_FAR = torch.device("cuda:0")


def skip_unless_linked() -> None:
    """Skip a test where PyTorch lacks the code for CUDA (wheels "+cpu")."""
    if not torch.backends.cuda.is_built():
        # Such a PyTorch refuses some functions on "cuda" before it asks the stand-in's class, so no test of it can begin.
        pytest.skip("a stand-in for a GPU needs a PyTorch that is linked with CUDA, as PyPI's is")


class FarTensor(torch.Tensor):
    """A tensor that says it is on a GPU; ``near`` holds its values."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> "FarTensor":
        far = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, near.shape, strides=near.stride(), storage_offset=near.storage_offset(), dtype=near.dtype, device=_FAR)
        far.near = near
        return far

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        """A GPU's tensor has it, too; PyTorch refuses it of subclasses."""
        return self.near.tolist()


def _near(value: Any) -> Any:
    return value.near if isinstance(value, FarTensor) else value


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    far = any(isinstance(value, FarTensor) for value in tensors)
    wanted = kwargs.get("device")
    name = func._schema.name
    if name == "aten::_to_copy":
        far = far if wanted is None else torch.device(wanted).type == _FAR.type
    elif name == "aten::copy_":
        far = isinstance(args[0], FarTensor)
    else:
        if far and any(not isinstance(value, FarTensor) and value.dim() > 0 for value in tensors):
            raise RuntimeError(f"{name}: operands on two devices")
        far = far or (wanted is not None and torch.device(wanted).type == _FAR.type)
    near = tree_map(_near, kwargs)
    if wanted is not None:
        near["device"] = torch.device("cpu")
    found = func(*tree_map(_near, args), **near)
    if func._schema.is_mutable and name.endswith("_"):
        return args[0]
    return tree_map(lambda value: FarTensor(value) if far and isinstance(value, torch.Tensor) else value, found)


class FarDevice(TorchDispatchMode):
    """Within it "cuda" is there: ``with FarDevice(): torch.zeros(3, device="cuda")``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __enter__(self) -> "FarDevice":
        self._init = torch.cuda._lazy_init
        torch.cuda._lazy_init = lambda: None
        torch._C._ensureCUDADeviceGuardSet()
        torch._C._set_only_lift_cpu_tensors(True)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(False)
        torch.cuda._lazy_init = self._init
