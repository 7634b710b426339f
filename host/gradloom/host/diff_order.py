"""When a step writes its tensors: phases, and an order of all of them."""

from gradloom.models.network import Network

__all__ = ["PINT_TENSORS", "execution_order", "phase"]

_FORWARD = ("z", "xhat", "q", "le", "bit", "index", "logits")
_BACKWARD = ("dz", "ds", "dx")
PINT_TENSORS = ("z", "xhat", "dz", "dx", "ds", "error", "w", "v")
"""Tensors of PINT codes."""


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
