"""ONNX models as they come: from files, whole or damaged. What is left after these checks is a graph that hangs together."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from gradloom.host.files import UserError
from gradloom.host.frontends.import_graph import refuse

__all__ = ["check_model", "load_model", "title_of"]

_OLDEST = 7
"""Operator set from which additions broadcast as they do today."""
_IMAGES = {TensorProto.UINT8, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16,
    TensorProto.UNDEFINED}


def load_model(given: Any) -> tuple[onnx.ModelProto, str]:
    """A model, and the name that its network shall have.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If it is neither a model nor a file that holds one.
    """
    if isinstance(given, str | Path):
        return _file(Path(given)), Path(given).stem
    if isinstance(given, bytes | bytearray):
        raise UserError("bytes are given: read them with onnx.load_model_from_string, or give a file")
    if not isinstance(given, onnx.ModelProto):
        fix = "its model_proto" if hasattr(given, "model_proto") else "a file or an onnx.ModelProto"
        raise UserError(f"an object of class {type(given).__name__} is no ONNX model: give {fix}")
    return given, given.graph.name or "network"


def _file(file: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(file)
    except Exception as error:  # protobuf's errors have no common class
        reason = error.strerror if isinstance(error, OSError) and error.strerror else (str(error).strip().splitlines() or [""])[0]
        raise UserError(f"{file} cannot be read as an ONNX model: {reason[:160]}") from None
    if not model.graph.node:
        raise UserError(f"{file} cannot be read as an ONNX model: it holds no nodes")
    return model


def title_of(node: onnx.NodeProto) -> str:
    """What messages call a node."""
    return f"node {node.name or next(iter(node.output), '')!r} ({node.op_type})"


def check_model(model: onnx.ModelProto) -> None:
    """Refuse versions that are not read, and graphs whose names do not make one order of computation.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
    """
    if not model.graph.node:
        raise UserError("the ONNX model has no nodes: give a whole model")
    _check_versions(model)
    _check_names(model.graph)
    _check_nodes(model)
    _check_ends(model.graph)


def _check_versions(model: onnx.ModelProto) -> None:
    if model.ir_version > onnx.IR_VERSION:
        raise UserError(f"the ONNX model has IR version {model.ir_version}, the installed onnx reads up to {onnx.IR_VERSION}: "
                        f"install "
                        "a newer one")
    sets = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    if not sets:
        raise UserError("the ONNX model names no operator set: export it anew")
    newest = onnx.defs.onnx_opset_version()
    if not _OLDEST <= sets[0] <= newest:
        fix = ("convert it with onnx.version_converter" if sets[0] < _OLDEST else
               "install a newer onnx, or export with a lower opset")
        raise UserError(f"the ONNX model has operator set {sets[0]}, sets {_OLDEST} to {newest} are read: {fix}")


def _check_names(graph: onnx.GraphProto) -> None:
    stored = [tensor.name for tensor in graph.initializer]
    twice = _twice(stored)
    if twice is not None:
        raise UserError(f"two initializers of the ONNX model are called {twice!r}: give each a name of its own")
    for tensor in graph.sparse_initializer:
        raise UserError(f"initializer {tensor.values.name!r} is sparse, the machine's tensors are dense: store it as a dense one")
    known = {value.name for value in graph.input} | set(stored)
    for node in graph.node:
        missing = next((name for name in node.input if name and name not in known), None)
        if missing is not None:
            raise refuse(title_of(node), f"its input {missing!r} is given by nothing before it", "check the file with onnx.checker")
        for name in node.output:
            if name and name in known:
                raise refuse(title_of(node), f"its output {name!r} is the name of another value",
                             "give each value a name of its own")
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise UserError(f"the ONNX model's output {value.name!r} is given by no node: check the file with onnx.checker")


def _check_nodes(model: onnx.ModelProto) -> None:
    """Each node has the inputs and attributes of its operator; operators unknown to onnx are refused where they are read."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {opset.domain: opset.version for opset in model.opset_import}
    for node in model.graph.node:
        known = node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type)
        if not known or any(attribute.HasField("g") for attribute in node.attribute):
            continue
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            raise refuse(title_of(node), str(error).strip().splitlines()[0].strip(" ."),
                "check the file with onnx.checker") from None


def _check_ends(graph: onnx.GraphProto) -> None:
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise UserError(f"the ONNX model has {len(inputs)} inputs and {len(graph.output)} outputs: the machine takes one "
                        "batch of images and gives its logits")
    kind = inputs[0].type.tensor_type.elem_type
    if kind not in _IMAGES:
        raise UserError(f"the ONNX model's input {inputs[0].name!r} holds {TensorProto.DataType.Name(kind)}, the machine "
                        f"takes images "
                        "as real numbers: export it so")
    dims = inputs[0].type.tensor_type.shape.dim
    if len(dims) not in (2, 4) or any(dim.dim_value < 1 for dim in dims[1:]):
        raise UserError(f"the ONNX model's input {inputs[0].name!r} must have a fixed shape (images, channels, rows, columns) or "
                        "(images, features), only the number of images may be open: export it so")


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
