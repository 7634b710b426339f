"""ONNX models: import as a network, export of a network and its trained parameters (docs/pytorch.md). Needs onnx."""

from gradloom.host.frontends.onnx_conversion import Imported, from_model, to_model

__all__ = ["Imported", "from_model", "to_model"]
