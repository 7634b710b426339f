"""ONNX models for tests: a graph of nodes and arrays with one input and one output. It needs the package onnx."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gradloom.api.onnx_models as bridge
from gradloom.host.files import UserError
from gradloom.models.layers import INPUT, NetworkError

__all__ = ["SHAPE", "model_of", "refusal", "weights"]

SHAPE = (3, 8, 8)
"""Shape of an image, unless another is given."""


def model_of(nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, Any], *, shape: Sequence[int | str] = ("batch", *SHAPE),
             output: str = "logits", opset: int = 17, ir: int = 9, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A model whose input is called :data:`~gradloom.models.layers.INPUT`; ``arrays`` are its initializers by name."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(INPUT, kind, shape)],
        [helper.make_tensor_value_info(output, kind, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normally distributed float32 numbers."""
    return rng.normal(size=shape).astype(np.float32)


def refusal(model: Any, kinds: type[Exception] | tuple[type[Exception], ...] = (UserError, NetworkError)) -> str:
    """The one sentence with which the import refuses ``model``."""
    with pytest.raises(kinds) as caught:
        bridge.from_model(model)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 320, message
    return message
