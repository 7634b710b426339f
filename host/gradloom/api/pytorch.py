"""PyTorch modules: import, export, and training from a PyTorch loop (docs/pytorch.md). Needs PyTorch.

``compile(module)`` is a :class:`Model` whose ``step(images, labels)`` trains on the golden model, the emulator or the
simulated hardware.
"""

from gradloom.host.frontends.torch_conversion import (
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
