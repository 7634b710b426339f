"""The old name of :mod:`gradloom.api.onnx_models`, for one release."""

import warnings

from gradloom.api.onnx_models import *  # noqa: F403  every public name of the new module, so that none is missing here
from gradloom.api.onnx_models import __all__ as __all__

warnings.warn("gradloom.host.onnx is now gradloom.api.onnx_models: import that", DeprecationWarning, stacklevel=2)
