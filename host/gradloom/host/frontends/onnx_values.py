"""Values of an ONNX graph that do not depend on the images: shapes, and constants however they are made."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from gradloom.host.files import UserError

__all__ = ["constants_of", "infer_shapes", "shapes_of"]

_OPEN_BATCH = 61
"""Images that stand for an open number of them: a prime number that no flattening makes by chance."""
_FOLDED = ("Identity", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Gather", "Slice", "Shape",
           "ConstantOfShape", "Neg", "Add", "Sub", "Mul", "Div", "CastLike", "Expand")
"""Operators of which constants are computed before the network is read."""
_SMALL = 1 << 10
"""Elements of the largest constant that stands in place of a node."""
_MOST = 1 << 28
"""Elements of the largest constant that is computed."""


def infer_shapes(model: onnx.ModelProto, constants: Mapping[str, np.ndarray], *, strict: bool) -> onnx.ModelProto:
    """A copy of the model with the shape of every value, and a number in place of an open number of images.

    Small ``constants`` stand in place of the nodes that compute them, as shapes of other values may depend on them.
    Only the input's shape counts: shapes that the exporter has noted may be those of another batch.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If the model cannot be read, or, ``strict``, if operators do not fit their inputs.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    stored = {tensor.name for tensor in copied.graph.initializer}
    for value in copied.graph.input:
        batch = value.type.tensor_type.shape.dim[0] if value.name not in stored else None
        if batch is not None and batch.dim_value < 1:
            batch.dim_value = _OPEN_BATCH
    del copied.graph.value_info[:]
    computed = {node.output[0]: node for node in copied.graph.node
                if node.output and node.output[0] in constants and constants[node.output[0]].size <= _SMALL}
    for name, node in computed.items():
        copied.graph.node.remove(node)
        copied.graph.initializer.append(numpy_helper.from_array(constants[name], name))
    for value in copied.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        return shape_inference.infer_shapes(copied, strict_mode=strict, data_prop=True)
    except (shape_inference.InferenceError, ValueError, RuntimeError) as error:
        reason = _last_reason(str(error))
        raise UserError(f"the ONNX model's shapes cannot be inferred ({reason}): check it with onnx.checker") from None


def _last_reason(text: str) -> str:
    lines = text.strip().splitlines() or ["for no reason that onnx gives"]
    return lines[0].rpartition("[ShapeInferenceError] ")[2][:160]


def shapes_of(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes by name, with the batch; 0 where a dimension has no number. A value whose rank is not known is not there."""
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }


def constants_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Values by name: initializers, Constant nodes, and what is computed of these alone.

    Raises
    ------
    :exc:`~gradloom.host.files.UserError`
        If an initializer's values are missing or damaged.
    """
    found = {tensor.name: _array(tensor, f"initializer {tensor.name!r}") for tensor in model.graph.initializer}
    opset = next(opset for opset in model.opset_import if opset.domain in ("", "ai.onnx"))
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            continue
        if node.op_type == "Constant":
            found[node.output[0]] = _constant(node)
        elif node.op_type in _FOLDED and all(name in found for name in node.input if name):
            value = _computed(node, found, opset)
            if value is not None:
                found[node.output[0]] = value
    return found


def _array(tensor: onnx.TensorProto, where: str) -> np.ndarray:
    if tensor.data_location == TensorProto.EXTERNAL:
        file = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        raise UserError(f"{where} is in another file, {file}, that was not loaded: load the model with onnx.load")
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise UserError(f"{where} cannot be read ({str(error).strip().splitlines()[0]}): export the model anew") from None


def _constant(node: onnx.NodeProto) -> np.ndarray:
    for attribute in node.attribute:
        if attribute.name == "value":
            return _array(attribute.t, f"node {node.name or node.output[0]!r} (Constant)")
        if attribute.name in ("value_int", "value_ints"):
            return np.array(helper.get_attribute_value(attribute), np.int64)
        if attribute.name in ("value_float", "value_floats"):
            return np.array(helper.get_attribute_value(attribute), np.float32)
    return np.zeros(0)


def _computed(node: onnx.NodeProto, values: Mapping[str, np.ndarray], opset: onnx.OperatorSetIdProto) -> np.ndarray | None:
    """The node's result, or ``None`` where onnx's reference does not give one: it stays a node, and is refused as one."""
    names = sorted({name for name in node.input if name})
    if any(values[name].size > _MOST for name in names):
        return None
    graph = helper.make_graph(
        [node], "constant", [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), None)
                             for name in names],
        [helper.make_tensor_value_info(node.output[0], TensorProto.UNDEFINED, None)],
    )
    try:
        model = helper.make_model(graph, opset_imports=[opset])
        result: Any = ReferenceEvaluator(model).run(None, {name: values[name] for name in names})
    except Exception:  # the reference has no common class of errors; a node that it cannot run is no constant
        return None
    return np.asarray(result[0])
