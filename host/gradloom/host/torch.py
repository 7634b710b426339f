"""The old name of :mod:`gradloom.api.pytorch`, for one release."""

import warnings

from gradloom.api.pytorch import (
    FRN,
    Evaluation,
    Imported,
    LayerTensors,
    Model,
    Step,
    compile,
    from_module,
    replace_norms,
    to_state_dict,
)

__all__ = ["FRN", "Evaluation", "Imported", "LayerTensors", "Model", "Step", "compile", "from_module", "replace_norms",
           "to_state_dict"]

warnings.warn("gradloom.host.torch is now gradloom.api.pytorch: import that", DeprecationWarning, stacklevel=2)
