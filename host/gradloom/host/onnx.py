"""The old name of :mod:`gradloom.api.onnx_models`, for one release."""

import warnings

from gradloom.api.onnx_models import Imported, from_model, to_model

__all__ = ["Imported", "from_model", "to_model"]

warnings.warn("gradloom.host.onnx is now gradloom.api.onnx_models: import that", DeprecationWarning, stacklevel=2)
