"""Windows of ONNX operators, and the traces of norms that an exporter has folded into convolutions."""

from collections.abc import Iterable, Mapping
from typing import Any

from gradloom.host.frontends.import_graph import Node, Op, refuse, window
from gradloom.models.layers import shape_text

__all__ = ["folded_norms", "one_more_window", "window_of"]


def window_of(where: str, settings: Mapping[str, Any], shape: tuple[int, int, int], kernel: tuple[int, ...] = ()) -> dict[str, int]:
    """Kernel, stride and pad of an operator on features of ``shape`` (channels, rows, columns).

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the machine has no such windows.
    """
    kernel = kernel or tuple(settings["kernel_shape"])
    if len(kernel) != 2:
        raise refuse(where, "the machine works on planes of rows and columns", "use two-dimensional windows")
    dilations = tuple(settings.get("dilations", (1, 1)))
    stride = tuple(settings.get("strides", (1, 1)))
    for key, numbers in (("kernel_shape", kernel), ("strides", stride), ("dilations", dilations)):
        if len(numbers) != 2 or min(numbers) < 1:
            raise refuse(where, f"{key} is {list(numbers)}", "give it a whole number from 1 for rows and one for columns")
    if any(dilation != 1 and size > 1 for dilation, size in zip(dilations, kernel, strict=False)):
        raise refuse(where, f"dilations are {list(dilations)}, windows are dense", "use dilations of 1")
    pads = _pads(where, settings, shape, kernel, stride)
    if pads[:2] != pads[2:] or min(pads) < 0:
        raise refuse(where, f"pads are {list(pads)}, padding is the same on all sides", "pad all sides equally")
    found = window(where, kernel, stride, pads[:2])
    if found["kernel"] > min(shape[1:]) + 2 * found["pad"]:
        raise refuse(where, f"its kernel is {shape_text(kernel)}, larger than its input of {shape_text(shape[1:])} with "
                            f"{found['pad']} "
                     "rows and columns of padding", "shrink the kernel or pad more")
    return found


def _pads(where: str, settings: Mapping[str, Any], shape: tuple[int, int, int], kernel: tuple[int, ...],
          stride: tuple[int, ...]) -> tuple[int, ...]:
    auto = settings.get("auto_pad", b"NOTSET").decode()
    if auto == "VALID":
        return (0, 0, 0, 0)
    if auto not in ("SAME_UPPER", "SAME_LOWER", "NOTSET"):
        raise refuse(where, f"auto_pad is {auto!r}, which is none of the operator's", "give pads, equal on all sides")
    if auto == "NOTSET":
        return tuple(settings.get("pads", (0, 0, 0, 0))) or (0, 0, 0, 0)
    total = [max(0, (-(-size // step) - 1) * step + length - size)
             for size, step, length in zip(shape[1:], stride, kernel, strict=True)]
    if any(pad % 2 for pad in total):
        raise refuse(where, f"auto_pad {auto} pads more on one side", "give pads, equal on all sides")
    return (total[0] // 2, total[1] // 2) * 2


def one_more_window(settings: Mapping[str, Any], found: Mapping[str, int], shape: tuple[int, int, int]) -> bool:
    """Whether ``ceil_mode`` adds windows that are not whole; where windows meet the edge it changes nothing."""
    rest = [(size + 2 * found["pad"] - found["kernel"]) % found["stride"] for size in shape[1:]]
    return bool(settings.get("ceil_mode", 0)) and any(rest)


def folded_norms(nodes: Iterable[Node]) -> str:
    """The note that norms were probably folded into convolutions, or nothing.

    An exporter that folds a norm computes new parameters, which do not have a module's names ("x.weight" and "x.bias") any more.
    """
    nodes = list(nodes)
    names = [(node.arrays["w"][0], node.arrays["bias"][0]) for node in nodes if node.op == Op.CONV and "bias" in node.arrays]
    computed = sum(not weight.endswith("weight") or bias != weight.removesuffix("weight") + "bias" for weight, bias in names)
    if not computed or any(node.op == Op.NORM for node in nodes):
        return ""
    return (f"no convolution has a norm, and the parameters of {computed} do not have a module's names: if the network had "
            "BatchNormalization, its exporter probably folded it into them, and they are trained without; to train norms, "
            "export in "
            "training mode (TrainingMode.PRESERVE, do_constant_folding=False)")
