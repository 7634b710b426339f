"""When a step writes its tensors: phases, and an order of all of them."""

from gradloom.models.arithmetic import pint
from gradloom.models.network import Network

__all__ = ["element_text", "execution_order", "phase"]

_FORWARD = ("z", "xhat", "q", "le", "bit", "index", "logits")
_BACKWARD = ("dz", "ds", "dx")
PINT_TENSORS = ("z", "xhat", "dz", "dx", "ds", "error", "w", "v")
"""Tensors of PINT codes."""


def element_text(network: Network, tensor: str, value: int) -> str:
    """An element of a tensor as reports show it: a code of pint8 with its value."""
    if network.format != "pint8" or tensor not in PINT_TENSORS:
        return str(value)
    return f"{value} (PINT {int(pint.decode(value))})"


def phase(tensor: str) -> str:
    """Phase of a step that writes a tensor, as reports name it."""
    if tensor in _FORWARD:
        return "FP"
    if tensor == "error":
        return "loss"
    if tensor.startswith("exponent"):
        return "scales"
    return {"dz": "BP", "ds": "BP", "dx": "norm BP"}.get(tensor, "WG + WU")


def execution_order(network: Network, layer: str, tensor: str) -> tuple[int, int, int]:
    """A key that sorts tensors by when the golden step computes them: forward, loss, backward and updates, scales."""
    number = network.index(layer)
    if tensor in _FORWARD:
        # Within a layer z follows from xhat.
        return 0, number, 1 if tensor == "z" else 0
    if tensor == "error":
        return 1, 0, 0
    if tensor.startswith("exponent"):
        return 3, number, 0
    return 2, -number, _BACKWARD.index(tensor) if tensor in _BACKWARD else len(_BACKWARD) + (tensor != "dw")
